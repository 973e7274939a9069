//! How the production policy fares over many cells.

use super::cell::Cell;
use super::contest::Role;

/// A cell counts as far behind from this excess of foreground time over the best baseline on.
const FAR: f64 = 1.05;

/// How one cell stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Foreground time in parts of the best baseline's: below 1 is a win.
    pub relative: f64,
    /// Of the total time between clock + Bloom N = 2 and the least for who moves up what was used, the part that is saved; negative
    /// if the policy is worse than that. `None` without a bound or a gap.
    pub gap_closed: Option<f64>,
    /// The same of the gap to the least of all, which moves up what will be used.
    pub gap_to_least_closed: Option<f64>,
    /// Bytes moved per byte read and written by users.
    pub moved: f64,
    /// The same of clock + Bloom N = 3.
    pub moved_n3: f64,
}

impl Standing {
    /// Where the production policy in this role stands in a cell; `None` if it or what it is compared with is missing.
    pub fn of(cell: &Cell, role: Role) -> Option<Standing> {
        let (ours, best) = (cell.of(role)?, cell.best_baseline()?);
        let (n2, n3) = (cell.named("clock+Bloom N=2")?, cell.named("clock+Bloom N=3")?);
        let relative = match (ours.foreground_ns, best.foreground_ns) {
            (0, 0) => 1.0,
            (ours, best) => ours as f64 / best.max(1) as f64,
        };
        let closed = |least: u64| {
            let gap = n2.total_ns().checked_sub(least).filter(|gap| *gap > 0)?;
            Some((n2.total_ns() as f64 - ours.total_ns() as f64) / gap as f64)
        };
        Some(Standing {
            relative,
            gap_closed: cell.bounds.and_then(|b| closed(b.after_use_total_ns)),
            gap_to_least_closed: cell.bounds.and_then(|b| closed(b.least_total_ns)),
            moved: ours.moved_per_user_byte(),
            moved_n3: n3.moved_per_user_byte(),
        })
    }
}

/// How all cells stand together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Cells.
    pub cells: usize,
    /// Those in which the policy needs less foreground time than every baseline.
    pub below_all: usize,
    /// Those in which it needs as much as the best.
    pub level: usize,
    /// Those in which it needs over 5 % more than the best.
    pub far_behind: usize,
    /// The worst of them: foreground time in parts of the best baseline's.
    pub worst: f64,
    /// Geometric mean of foreground time in parts of the best baseline's.
    pub relative: f64,
    /// Mean part of the gap that is closed between clock + Bloom N = 2 and the least for who moves up what was used; 0 without bounds.
    pub gap_closed: f64,
    /// The same of the gap to the least of all.
    pub gap_to_least_closed: f64,
    /// Mean of bytes moved per user byte.
    pub moved: f64,
    /// The same of clock + Bloom N = 3.
    pub moved_n3: f64,
}

impl Summary {
    /// Of the production policy in this role.
    pub fn of<'a>(cells: impl IntoIterator<Item = &'a Cell>, role: Role) -> Summary {
        let all: Vec<Standing> = cells.into_iter().filter_map(|c| Standing::of(c, role)).collect();
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let count = |of: &dyn Fn(&Standing) -> bool| all.iter().filter(|s| of(s)).count();
        if all.is_empty() {
            return Summary::default();
        }
        Summary {
            cells: all.len(),
            below_all: count(&|s| s.relative < 1.0),
            level: count(&|s| s.relative == 1.0),
            far_behind: count(&|s| s.relative > FAR),
            worst: all.iter().map(|s| s.relative).fold(0.0, f64::max),
            relative: mean(all.iter().map(|s| s.relative.max(f64::MIN_POSITIVE).ln()).collect()).exp(),
            gap_closed: mean(all.iter().filter_map(|s| s.gap_closed).collect()),
            gap_to_least_closed: mean(all.iter().filter_map(|s| s.gap_to_least_closed).collect()),
            moved: mean(all.iter().map(|s| s.moved).collect()),
            moved_n3: mean(all.iter().map(|s| s.moved_n3).collect()),
        }
    }
}

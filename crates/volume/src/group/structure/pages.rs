//! Pages of the map for volumes.

use bimetal_format::label::{rows_of, PageRun, VolumeRow, MAX_VOLUMES};
use bimetal_format::ENTRIES_PER_PAGE;

use super::StructureError;
use crate::units::CHUNK;

/// Pages that so many chunks take.
pub(crate) fn pages_of(chunks: u64) -> u64 {
    chunks.div_ceil(ENTRIES_PER_PAGE as u64)
}

/// Runs of pages that no volume has.
fn free_runs(rows: &[VolumeRow], pages: u64) -> Vec<PageRun> {
    let mut taken: Vec<PageRun> = rows.iter().flat_map(|v| v.runs.iter().copied()).collect();
    taken.sort_by_key(|r| r.first);
    let mut free = Vec::new();
    let mut at = 0;
    for (first, end) in taken.iter().map(|r| (u64::from(r.first), r.end())).chain([(pages, pages)]) {
        if first > at {
            free.push(PageRun { first: at as u32, count: (first - at) as u32 });
        }
        at = end;
    }
    free
}

/// Adds `need` pages to `runs`, which no volume of `rows` has but this one: behind its last run, then the smallest free
/// run that suffices, else the largest ones.
pub(crate) fn extend(
    runs: &mut Vec<PageRun>,
    mut need: u64,
    rows: &[VolumeRow],
    pages: u64,
) -> Result<(), StructureError> {
    let mut free = free_runs(rows, pages);
    let left: u64 = free.iter().map(|r| u64::from(r.count)).sum();
    if left < need {
        return Err(StructureError::NoPages(left * ENTRIES_PER_PAGE as u64 * CHUNK));
    }
    let before = runs.len();
    if let Some(last) = runs.last_mut() {
        if let Some(behind) = free.iter_mut().find(|r| u64::from(r.first) == last.end()) {
            let count = need.min(behind.count.into()) as u32;
            last.count += count;
            (behind.first, behind.count) = (behind.first + count, behind.count - count);
            need -= u64::from(count);
        }
    }
    while need > 0 {
        let fits = free.iter_mut().filter(|r| u64::from(r.count) >= need).min_by_key(|r| r.count);
        let best = match fits {
            Some(r) => r,
            None => free.iter_mut().max_by_key(|r| r.count).expect("they are enough together"),
        };
        let count = need.min(best.count.into()) as u32;
        runs.push(PageRun { first: best.first, count });
        (best.first, best.count) = (best.first + count, best.count - count);
        need -= u64::from(count);
    }
    match rows_of(rows) + runs.len() - before > MAX_VOLUMES {
        true => Err(StructureError::TableFull),
        false => Ok(()),
    }
}

/// Cuts pages off the end until `keep` are left, and gives those that were cut off.
pub(crate) fn cut(runs: &mut Vec<PageRun>, keep: u64) -> Vec<u32> {
    let mut left: u64 = runs.iter().map(|r| u64::from(r.count)).sum();
    let mut gone = Vec::new();
    while left > keep {
        let last = runs.last_mut().expect("pages are left");
        let count = (left - keep).min(last.count.into()) as u32;
        last.count -= count;
        gone.extend(last.first + last.count..last.first + last.count + count);
        left -= u64::from(count);
        if last.count == 0 {
            runs.pop();
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_format::label::{PlacementCode, VolumeState};

    fn run(first: u32, count: u32) -> PageRun {
        PageRun { first, count }
    }

    fn row(runs: &[PageRun]) -> VolumeRow {
        VolumeRow {
            uuid: [1; 16],
            name: "a".into(),
            size: CHUNK,
            id: 1,
            runs: runs.to_vec(),
            family: 0,
            placement: PlacementCode::Auto,
            state: VolumeState::Living,
        }
    }

    #[test]
    fn pages_are_taken_behind_then_where_they_fit_best_then_from_the_largest_runs() {
        // Free: 3..5, 7..17, 20..23 of 25, and 24.
        let rows = [row(&[run(0, 3)]), row(&[run(5, 2)]), row(&[run(17, 3), run(23, 1)])];
        let grown = |runs: &[PageRun], need| {
            let mut runs = runs.to_vec();
            extend(&mut runs, need, &rows, 25).map(|()| runs)
        };
        assert_eq!(grown(&[run(0, 3)], 2), Ok(vec![run(0, 5)]));
        assert_eq!(grown(&[run(0, 3)], 5), Ok(vec![run(0, 5), run(20, 3)]));
        assert_eq!(grown(&[], 3), Ok(vec![run(20, 3)]));
        assert_eq!(grown(&[], 1), Ok(vec![run(24, 1)]));
        assert_eq!(grown(&[], 12), Ok(vec![run(7, 10), run(3, 2)]));
        assert_eq!(grown(&[], 16), Ok(vec![run(7, 10), run(20, 3), run(3, 2), run(24, 1)]));
        assert_eq!(grown(&[], 17), Err(StructureError::NoPages(16 * 252 * CHUNK)));
    }

    #[test]
    fn pages_are_cut_off_the_end() {
        let mut runs = vec![run(7, 3), run(1, 2)];
        assert_eq!(cut(&mut runs, 4), [2]);
        assert_eq!(cut(&mut runs, 2), [1, 9]);
        assert_eq!(runs, [run(7, 2)]);
        assert!(cut(&mut runs, 2).is_empty());
    }

    #[test]
    fn a_full_table_takes_no_more_runs() {
        let rows: Vec<_> = (0..MAX_VOLUMES as u32).map(|i| row(&[run(2 * i, 1)])).collect();
        assert_eq!(extend(&mut Vec::new(), 1, &rows, 1000), Err(StructureError::TableFull));
        let mut last = vec![run(2 * MAX_VOLUMES as u32 - 2, 1)];
        assert_eq!(extend(&mut last, 5, &rows, 1000), Ok(()), "behind its own there is room");
    }
}

//! Pages of the map for volumes.

use bimetal_format::label::{rows_of, PageRun, VolumeRow, MAX_VOLUMES};
use bimetal_format::ENTRIES_PER_PAGE;

use super::StructureError;
use crate::env::Env;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::map::Page;
use crate::units::{ChunkId, CHUNK};
use crate::wait;

/// Pages looked at in one turn: a large volume has millions, and other tasks wait meanwhile.
const PAGES_PER_TURN: usize = 64;

/// Pages that so many chunks take.
pub(crate) fn pages_of(chunks: u64) -> u64 {
    chunks.div_ceil(ENTRIES_PER_PAGE as u64)
}

/// Runs of pages that no volume has, and that are `empty`.
fn free_runs(rows: &[VolumeRow], pages: u64, empty: impl Fn(u32) -> bool) -> Vec<PageRun> {
    let mut taken: Vec<PageRun> = rows.iter().flat_map(|v| v.runs.iter().copied()).collect();
    taken.sort_by_key(|r| r.first);
    let mut free = Vec::new();
    let mut at = 0;
    for (first, end) in taken.iter().map(|r| (u64::from(r.first), r.end())).chain([(pages, pages)]) {
        let between: Vec<u32> = (at as u32..first as u32).filter(|page| empty(*page)).collect();
        let runs = between.chunk_by(|a, b| a + 1 == *b);
        free.extend(runs.map(|run| PageRun { first: run[0], count: run.len() as u32 }));
        at = end;
    }
    free
}

/// Adds `need` pages to `runs`, which no volume of `rows` has but this one: behind its last run, then the smallest free
/// run that suffices, else the largest ones. A page that is not `empty` is never taken, whatever the table says.
fn extend(
    runs: &mut Vec<PageRun>,
    mut need: u64,
    rows: &[VolumeRow],
    pages: u64,
    empty: impl Fn(u32) -> bool,
) -> Result<(), StructureError> {
    let mut free = free_runs(rows, pages, empty);
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

impl<E: Env> Core<E> {
    /// Adds pages to a volume's, see [`extend`].
    pub(super) fn add_pages(
        &self,
        runs: &mut Vec<PageRun>,
        need: u64,
        rows: &[VolumeRow],
    ) -> Result<(), StructureError> {
        let map = self.map.borrow();
        let unused = |page: u32| map.page(page).is_none_or(Page::is_unused);
        extend(runs, need, rows, map.len() as u64, |page| !map.is_damaged(page) && unused(page))
    }

    /// The pages of a volume that are not empty, from its `n`-th chunk on.
    pub(crate) fn pages_in_use(&self, v: &VolumeInfo, mut n: u64) -> PagesInUse {
        let mut runs = Vec::new();
        for (first, count) in v.chunk_runs() {
            let skip = n.min(count);
            n -= skip;
            runs.push((first + skip, first + count));
        }
        runs.reverse();
        PagesInUse { runs, seen: 0 }
    }
}

/// See [`Core::pages_in_use`].
pub(crate) struct PagesInUse {
    /// First chunk and end of what is left, the next last.
    runs: Vec<(u64, u64)>,
    seen: usize,
}

impl PagesInUse {
    /// The chunks of the next page in which something may live. Other tasks have their turn in between.
    pub(crate) async fn next<E: Env>(&mut self, core: &Core<E>) -> Option<impl DoubleEndedIterator<Item = ChunkId>> {
        loop {
            let (first, end) = self.runs.pop()?;
            let page = ChunkId(first).page();
            let next = ((u64::from(page) + 1) * ENTRIES_PER_PAGE as u64).min(end);
            if next < end {
                self.runs.push((next, end));
            }
            self.seen += 1;
            if self.seen % PAGES_PER_TURN == 0 {
                wait::turn().await;
            }
            if first < next && !core.map.borrow().is_empty_page(page) {
                return Some((first..next).map(ChunkId));
            }
        }
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
            extend(&mut runs, need, &rows, 25, |_| true).map(|()| runs)
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

    /// (C7.4) Whatever the table says: a page in which something lives would show it to its new owner.
    #[test]
    fn a_page_that_is_not_empty_is_never_taken() {
        let rows = [row(&[run(0, 3)])];
        let mut runs = Vec::new();
        assert_eq!(extend(&mut runs, 4, &rows, 10, |page| page != 5), Ok(()));
        assert_eq!(runs, [run(6, 4)]);
        assert_eq!(extend(&mut runs, 2, &rows, 10, |page| page != 5 && page < 6), Ok(()));
        assert_eq!(runs, [run(6, 4), run(3, 2)]);
        let none = extend(&mut vec![run(0, 3)], 1, &rows, 4, |page| page != 3);
        assert_eq!(none, Err(StructureError::NoPages(0)));
    }

    #[test]
    fn a_full_table_takes_no_more_runs() {
        let rows: Vec<_> = (0..MAX_VOLUMES as u32).map(|i| row(&[run(2 * i, 1)])).collect();
        assert_eq!(extend(&mut Vec::new(), 1, &rows, 1000, |_| true), Err(StructureError::TableFull));
        let mut last = vec![run(2 * MAX_VOLUMES as u32 - 2, 1)];
        assert_eq!(extend(&mut last, 5, &rows, 1000, |_| true), Ok(()), "behind its own there is room");
    }
}

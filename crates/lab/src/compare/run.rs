//! All cells of all cases, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use super::case::{Case, CaseError};
use super::cell::{cells_of, Cell, How};
use crate::trace::Repairs;

/// How far a comparison has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Cases that are done, this one included.
    pub done: usize,
    /// Cases in all.
    pub of: usize,
    /// The one that was done last.
    pub name: &'a str,
}

/// What a comparison found, in the order of the cases.
#[derive(Debug, Default)]
pub struct Matrix {
    /// All cells.
    pub cells: Vec<Cell>,
    /// Cases that could not be replayed, and why.
    pub refused: Vec<(String, CaseError)>,
    /// What was repaired in the others, where something was.
    pub repaired: Vec<(String, Repairs)>,
}

/// The cells of one case, once they are there.
type Slot = Mutex<Option<Result<(Vec<Cell>, Repairs), CaseError>>>;

/// Computes all cells of these cases on so many threads, and tells `progress` of each case that is done. The threads
/// change nothing but the order in which cases are done.
pub fn compare(cases: &[Case], how: &How, threads: usize, progress: &(dyn Fn(Progress) + Sync)) -> Matrix {
    let results: Vec<Slot> = cases.iter().map(|_| Mutex::default()).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || loop {
        let i = next.fetch_add(1, Ordering::Relaxed);
        let Some((case, result)) = cases.get(i).zip(results.get(i)) else { return };
        let found = case.stream();
        let found = found.map(|(stream, repairs)| (cells_of(&case.name, case.origin, &stream, how), repairs));
        *result.lock().unwrap_or_else(|e| e.into_inner()) = Some(found);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        progress(Progress { done, of: cases.len(), name: &case.name });
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, cases.len().max(1)) {
            scope.spawn(work);
        }
    });
    let mut matrix = Matrix::default();
    for (case, result) in cases.iter().zip(results) {
        match result.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(Ok((cells, repairs))) => {
                matrix.cells.extend(cells);
                if repairs != Repairs::default() {
                    matrix.repaired.push((case.name.clone(), repairs));
                }
            }
            Some(Err(e)) => matrix.refused.push((case.name.clone(), e)),
            None => {}
        }
    }
    matrix
}

//! The workloads of the matrix: recorded traces, and generators with seeds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::policy::{Start, Stream, TooLarge};
use crate::trace::{self, Repairs, TraceError};
use crate::workload::{self, SpecError, Workload};

/// Seeds of generators on which the policy was tuned.
pub const TUNING_SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// Seeds on which it is judged; none of them was looked at while it was tuned. Whoever looks at them takes others next time, as was
/// done with 101 to 103 and 201 to 203.
pub const VALIDATION_SEEDS: std::ops::RangeInclusive<u64> = 301..=303;

/// Bytes of the volume on which a generator works. Its sets are parts of the volume, so this sets only the scale.
const VOLUME: u64 = 4 << 30;
/// Requests taken from a generator.
const REQUESTS: usize = 200_000;

/// Where a workload comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was recorded.
    Trace,
    /// A generator made it from this seed.
    Generated {
        /// The seed.
        seed: u64,
    },
}

impl Origin {
    /// Whether the policy may have been fitted to it: all but seeds of [`VALIDATION_SEEDS`].
    pub fn was_tuned_on(self) -> bool {
        !matches!(self, Origin::Generated { seed } if VALIDATION_SEEDS.contains(&seed))
    }
}

/// A workload that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The generator refuses its parameters.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// It reaches too far.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// It only flushes or discards.
    #[error("it reads and writes nothing")]
    Nothing,
    /// The folder of traces cannot be listed.
    #[error("{path}: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

enum Source {
    File(PathBuf),
    Generator(Arc<dyn Workload>, u64),
}

/// A workload, read or made when it is its turn.
pub struct Case {
    /// Its name: the file's without its ending, or the generator's.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    source: Source,
}

impl Case {
    /// A trace file of any known format.
    pub fn trace(path: &Path) -> Case {
        let file = file_name(path);
        let plain = file.strip_suffix(".gz").unwrap_or(&file);
        let name = plain.rsplit_once('.').map_or(plain, |(name, _)| name).to_owned();
        Case { name, origin: Origin::Trace, source: Source::File(path.to_owned()) }
    }

    /// A generator with a seed.
    pub fn generated(workload: Arc<dyn Workload>, seed: u64) -> Case {
        let (name, origin) = (workload.name().to_owned(), Origin::Generated { seed });
        Case { name, origin, source: Source::Generator(workload, seed) }
    }

    /// Its requests, cut into chunk accesses, and what was repaired in them.
    ///
    /// # Errors
    /// The file is no readable trace, or nothing in it is read or written.
    pub fn stream(&self) -> Result<(Stream, Repairs), CaseError> {
        let (stream, repairs) = match &self.source {
            Source::File(path) => read(path)?,
            Source::Generator(workload, seed) => {
                (Stream::new(workload.accesses(VOLUME, *seed)?.take(REQUESTS), Start::Fresh)?, Repairs::default())
            }
        };
        if stream.accesses() == 0 {
            return Err(CaseError::Nothing);
        }
        Ok((stream, repairs))
    }
}

/// Reads a trace as far as it is replayed.
fn read(path: &Path) -> Result<(Stream, Repairs), CaseError> {
    let mut reader = trace::open(path, &trace::Options::default())?;
    let mut failed = None;
    let accesses = std::iter::from_fn(|| match reader.next()? {
        Ok(access) => Some(access),
        Err(e) => {
            failed = Some(e);
            None
        }
    });
    let stream = Stream::new(accesses, Start::Fresh)?;
    match failed {
        Some(e) => Err(e.into()),
        None => Ok((stream, reader.repairs().clone())),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
}

/// Every generator with each of these seeds.
pub fn generated(seeds: impl IntoIterator<Item = u64>) -> Vec<Case> {
    let workloads: Vec<Arc<dyn Workload>> = workload::all().into_iter().map(Arc::from).collect();
    let one = |seed: u64| workloads.iter().map(move |w| Case::generated(w.clone(), seed)).collect::<Vec<_>>();
    seeds.into_iter().flat_map(one).collect()
}

/// The traces of a folder: files named `*.csv` or `*.csv.gz`, by name. Where two would have the same, they are named with
/// their endings.
///
/// # Errors
/// The folder cannot be listed.
pub fn traces_in(folder: &Path) -> Result<Vec<Case>, CaseError> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect()
    };
    let mut paths = list().map_err(|source| CaseError::Folder { path: folder.to_owned(), source })?;
    paths.retain(|p| {
        let name = p.to_string_lossy();
        name.ends_with(".csv") || name.ends_with(".csv.gz")
    });
    paths.sort();
    let mut cases: Vec<Case> = paths.iter().map(|p| Case::trace(p)).collect();
    let names: Vec<String> = cases.iter().map(|c| c.name.clone()).collect();
    for (case, path) in cases.iter_mut().zip(&paths) {
        if names.iter().filter(|n| **n == case.name).count() > 1 {
            case.name = file_name(path);
        }
    }
    Ok(cases)
}

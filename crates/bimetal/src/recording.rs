//! Recordings of block I/O as commands read them: progress while it lasts, errors that say what to do, and what was
//! repaired.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use anyhow::{anyhow, bail, Context, Result};
use bimetal_lab::trace::{survey, Access, Devices, Fix, Options, Reader, Repairs, TraceError};
use serde_json::json;

use crate::cli::Recording;
use crate::progress::Progress;

/// Requests between two looks at the progress.
const STRIDE: u64 = 1 << 14;

/// What was read, besides the accesses.
pub(crate) struct Summary {
    pub(crate) format: &'static str,
    pub(crate) repairs: Repairs,
    pub(crate) requests: u64,
}

/// Counts the bytes that go through.
struct Counting {
    file: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read(buf)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A recording being read. An error ends it, and [`Recorded::finish`] tells it.
pub(crate) struct Recorded<'a> {
    path: &'a Path,
    how: &'a Recording,
    reader: Reader,
    count: Arc<AtomicU64>,
    /// Bytes of the file.
    whole: u64,
    requests: u64,
    progress: Progress,
    failed: Option<TraceError>,
}

impl<'a> Recorded<'a> {
    /// Opens a recording; `-` is standard input.
    pub(crate) fn open(path: &'a Path, how: &'a Recording) -> Result<Recorded<'a>> {
        crate::progress::cleared_when_interrupted();
        let (reader, count, whole) = open(path, how)?;
        let progress = Progress::new();
        Ok(Recorded { path, how, reader, count, whole, requests: 0, progress, failed: None })
    }

    /// What was read and repaired, or why the recording cannot be read to its end.
    pub(crate) fn finish(self) -> Result<Summary> {
        if let Some(e) = self.failed {
            return Err(explained(self.path, self.how, e));
        }
        let (format, repairs) = (self.reader.format().name(), self.reader.repairs().clone());
        Ok(Summary { format, repairs, requests: self.requests })
    }
}

impl Iterator for Recorded<'_> {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        match self.reader.next()? {
            Err(e) => {
                self.failed = Some(e);
                None
            }
            Ok(access) => {
                self.requests += 1;
                if self.requests % STRIDE == 0 {
                    let part = self.progress.part(self.count.load(Ordering::Relaxed), self.whole);
                    let millions = self.requests as f64 / 1e6;
                    let path = self.path.display();
                    self.progress.show(|| format!("{path}: {millions:.1} million requests, {part}"));
                }
                Some(access)
            }
        }
    }
}

fn open(path: &Path, how: &Recording) -> Result<(Reader, Arc<AtomicU64>, u64)> {
    let failed = |e| explained(path, how, e);
    let (file, length) = match path.as_os_str() == "-" {
        true => (Box::new(std::io::stdin()) as Box<dyn Read + Send>, None),
        false => file(path, how)?,
    };
    let mut options = Options { format: how.format, ..Options::default() };
    options.devices = match (&how.device, length) {
        (Some(name), _) => Some(Devices::Only(name.clone())),
        (None, Some(_)) => devices(path, &options).map_err(failed)?,
        // A pipe can be read only once, so a second device in it is an error that says so.
        (None, None) => None,
    };
    let count = Arc::new(AtomicU64::new(0));
    let reader = Reader::new(Counting { file, count: count.clone() }, &options).map_err(failed)?;
    if how.device.is_some() && !reader.format().has_devices() {
        let (path, format) = (path.display(), reader.format());
        bail!(
            "{path}: a recording in the format {format} does not name devices, so --device has nothing to choose from"
        );
    }
    Ok((reader, count, length.unwrap_or(0)))
}

/// A file, and its length unless it can be read only once.
fn file(path: &Path, how: &Recording) -> Result<(Box<dyn Read + Send>, Option<u64>)> {
    let failed = |source| explained(path, how, TraceError::Open { path: path.into(), source });
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().with_context(|| path.display().to_string())?;
    if metadata.is_dir() {
        bail!("{} is a folder; name a recording", path.display());
    }
    refuse_part(path)?;
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
}

/// Refuses what blktrace wrote for one processor of several: advice on a part would be wrong.
fn refuse_part(path: &Path) -> Result<()> {
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let Some((base, cpu)) = name.rsplit_once(".blktrace.") else { return Ok(()) };
    let sibling = |n: u32| path.with_file_name(format!("{base}.blktrace.{n}")).exists();
    match cpu.parse::<u32>() {
        Ok(n) if sibling(n.wrapping_add(1)) || n.checked_sub(1).is_some_and(sibling) => bail!(
            "{} is what one processor recorded, and files of others lie beside it. Put them together first:\n  \
             blkparse -q -i {base} -d {base}.bin -O",
            path.display()
        ),
        _ => Ok(()),
    }
}

/// The devices of a recording, laid one after another; nothing where the format has none.
fn devices(path: &Path, options: &Options) -> Result<Option<Devices>, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::Open { path: path.into(), source })?;
    if !Reader::new(file, options)?.format().has_devices() {
        return Ok(None);
    }
    let mut progress = Progress::new();
    progress.show(|| format!("{}: looking for the devices in it", path.display()));
    Ok(Some(Devices::Laid(survey(path, options)?)))
}

/// The error with what to do about it.
fn explained(path: &Path, how: &Recording, e: TraceError) -> anyhow::Error {
    let advice = match &e {
        TraceError::Open { .. } => "\n`bimetal advise` without a trace says how to record one",
        TraceError::UnknownFormat => "\nSay which it is with --format",
        TraceError::GzipCut { .. } => "\n`zcat FILE > part` saves what is whole of it",
        TraceError::Bad { .. } if how.format.is_none() => {
            "\nIf the format was recognised wrongly, name it with --format"
        }
        TraceError::NotInOrder { .. } => {
            "\nIf one line has a wrong time, take it out. If all are mixed, sort them by time first: `sort -s -n`, for csv with \
             the header first (`head -n 1 FILE; tail -n +2 FILE | sort -s -t, -k1,1n`), for msr `sort -s -t, -k1,1n`, for spc \
             `sort -s -t, -k5,5g`, for blkparse `sort -s -k4,4g`"
        }
        TraceError::Empty { .. } if how.device.is_some() => "\nIs --device a name that the recording has?",
        _ => "",
    };
    match e {
        // It names the file itself.
        TraceError::Open { .. } => anyhow!("{e}{advice}"),
        e => anyhow!("{}: {e}{advice}", path.display()),
    }
}

impl Summary {
    /// One line for each kind of repair.
    pub(crate) fn words(&self) -> String {
        self.repairs.to_string().lines().map(|l| format!("  {l}\n")).collect()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        json!({"format": self.format, "requests": self.requests, "repairs": repairs_json(&self.repairs)})
    }
}

/// Each kind of repair that was made, for programs.
pub(crate) fn repairs_json(repairs: &Repairs) -> serde_json::Value {
    let made = Fix::ALL.into_iter().filter(|fix| repairs.count(*fix) > 0);
    let one = |fix: Fix| {
        let first = repairs.first(fix).map(|at| at.to_string());
        let mut repair = json!({"what": fix.what(), "done": fix.done(), "count": repairs.count(fix), "first": first});
        if !repairs.device(fix).is_empty() {
            repair["device"] = repairs.device(fix).into();
        }
        repair
    };
    made.map(one).collect()
}

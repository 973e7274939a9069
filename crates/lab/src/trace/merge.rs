//! Several traces of one machine as one, such as the file that blktrace writes for each CPU.

use super::{Access, Reader, TraceError};

/// A stream of the accesses of several readers in order of time; the first of all is at 0. The clocks of the
/// recordings must be the same.
pub struct Merge {
    parts: Vec<Part>,
    /// An error met while the first requests were read.
    failed: Option<TraceError>,
}

struct Part {
    reader: Reader,
    /// The next access, on the common clock.
    next: Option<Access>,
    /// What to add to the reader's times.
    shift_us: u64,
}

impl Merge {
    /// Merges. Reads the first request of each; an empty trace among others is no error.
    pub fn new(readers: Vec<Reader>) -> Merge {
        let mut failed = None;
        let mut parts = Vec::with_capacity(readers.len());
        let mut empty = None;
        for mut reader in readers {
            match reader.next() {
                Some(Ok(access)) => parts.push(Part { reader, next: Some(access), shift_us: 0 }),
                Some(Err(e @ TraceError::Empty { .. })) => empty = empty.or(Some(e)),
                Some(Err(e)) => failed = failed.or(Some(e)),
                None => {}
            }
        }
        if parts.is_empty() {
            failed = failed.or(empty);
        }
        let start = parts.iter().filter_map(|part| part.reader.start_ns()).min().unwrap_or(0);
        for part in &mut parts {
            let later_ns = part.reader.start_ns().unwrap_or(start) - start;
            part.shift_us = u64::try_from(later_ns / 1000).unwrap_or(u64::MAX);
            part.next = part.next.map(|access| part.shifted(access));
        }
        Merge { parts, failed }
    }

    /// The readers, for their repairs.
    pub fn readers(&self) -> impl Iterator<Item = &Reader> {
        self.parts.iter().map(|part| &part.reader)
    }
}

impl Part {
    fn shifted(&self, access: Access) -> Access {
        Access { time_us: access.time_us.saturating_add(self.shift_us), ..access }
    }
}

impl Iterator for Merge {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Result<Access, TraceError>> {
        if let Some(e) = self.failed.take() {
            self.parts.clear();
            return Some(Err(e));
        }
        let earliest = |part: &&mut Part| part.next.map_or(u64::MAX, |access| access.time_us);
        let part = self.parts.iter_mut().filter(|part| part.next.is_some()).min_by_key(earliest)?;
        let access = part.next.take()?;
        match part.reader.next() {
            Some(Ok(next)) => part.next = Some(part.shifted(next)),
            Some(Err(e)) => self.failed = Some(e),
            None => {}
        }
        Some(Ok(access))
    }
}

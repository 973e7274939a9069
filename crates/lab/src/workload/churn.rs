//! Files come and go.

use std::collections::VecDeque;

use bimetal_sim::prng::Prng;

use super::place::log_uniform;
use super::space::Space;
use super::stream::{stream, Accesses, Script, Visits};
use super::{check, check_part, check_request, check_share, check_volume, parameters, part};
use super::{SpecError, Workload, PAGE};
use crate::trace::Op;

/// Files that are kept at most, and the bytes of memory they cost are 16 times as many.
const FILES_MAX: usize = 1 << 20;

/// Builds, mail queues, downloads: files are written, read a few times and deleted, oldest first or at random, and
/// what is deleted is discarded; a tier that keeps dead data wastes itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Churn {
    /// Part of the volume that live files take, in parts per million; at most nine tenths.
    pub live_ppm: u32,
    /// Bytes of the smallest file.
    pub file_bytes_min: u64,
    /// Bytes of the largest file; each doubling in between is as likely.
    pub file_bytes_max: u64,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Reads of a live file for each that is written.
    pub reads_per_file: u32,
    /// Deletions of the oldest file, in parts per million; the others are at random.
    pub oldest_ppm: u32,
    /// Microseconds between visits, on average.
    pub gap_us: u64,
}

impl Default for Churn {
    fn default() -> Churn {
        Churn {
            live_ppm: 300_000,
            file_bytes_min: 4 << 10,
            file_bytes_max: 8 << 20,
            request_bytes: 128 << 10,
            reads_per_file: 2,
            oldest_ppm: 700_000,
            gap_us: 20_000,
        }
    }
}

impl Workload for Churn {
    fn name(&self) -> &'static str {
        "churn"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; live_ppm, file_bytes_min, file_bytes_max, request_bytes, reads_per_file, oldest_ppm, gap_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check_part(self.live_ppm, "live_ppm")?;
        check(self.live_ppm <= 900_000, "live_ppm", "must be at most 900000")?;
        check_request(self.request_bytes, "request_bytes")?;
        check_share(self.oldest_ppm, "oldest_ppm")?;
        let ordered = PAGE <= self.file_bytes_min && self.file_bytes_min <= self.file_bytes_max;
        check(ordered, "file_bytes_min", "must be a page at least and no more than file_bytes_max")?;
        let live_max = part(volume_bytes, self.live_ppm);
        check_volume(self.name(), live_max, self.file_bytes_max)?;
        let space = Space::new(0, volume_bytes / PAGE * PAGE);
        let files = VecDeque::new();
        Ok(stream(Files { spec: self.clone(), live_max, live: 0, space, files, rng: Prng::new(seed) }))
    }
}

struct Files {
    spec: Churn,
    live_max: u64,
    /// Bytes of all live files.
    live: u64,
    space: Space,
    /// First byte and length of each live file, the oldest first, more or less.
    files: VecDeque<(u64, u64)>,
    rng: Prng,
}

impl Files {
    fn any(&mut self) -> usize {
        self.rng.below(self.files.len() as u64) as usize
    }

    fn delete(&mut self, script: &mut Script) {
        let i = if self.rng.chance(self.spec.oldest_ppm) { 0 } else { self.any() };
        // The oldest takes the place of one that goes at random: cheap, and age is only a habit.
        let Some((start, len)) = self.files.swap_remove_front(i) else { return };
        script.request(Op::Trim, start, len);
        self.space.give(start, len);
        self.live -= len;
    }
}

impl Visits for Files {
    fn visit(&mut self, script: &mut Script) {
        let size = log_uniform(self.spec.file_bytes_min, self.spec.file_bytes_max, &mut self.rng);
        while !self.files.is_empty() && (self.live + size > self.live_max || self.files.len() >= FILES_MAX) {
            self.delete(script);
        }
        if let Some((start, len)) = self.space.take(size) {
            script.run(Op::Write, start, len, self.spec.request_bytes, 0);
            self.files.push_back((start, len));
            self.live += len;
        }
        script.wait(&mut self.rng, self.spec.gap_us);
        for _ in 0..self.spec.reads_per_file {
            let i = self.any();
            let (start, len) = self.files[i];
            script.run(Op::Read, start, len, self.spec.request_bytes, 0);
            script.wait(&mut self.rng, self.spec.gap_us);
        }
    }
}

//! Hardly any room is left.

use bimetal_sim::prng::Prng;

use super::place::{inside, log_uniform};
use super::space::Space;
use super::stream::{stream, Accesses, Script, Visits};
use super::zipf::{Zipf, RANKS_MAX};
use super::{check, check_exponent, check_request, check_share, check_volume, parameters, part};
use super::{SpecError, Workload, PAGE};
use crate::trace::Op;

/// A volume that was filled to the brim and is used on: files are read and changed, and to write a new one an old one
/// has to go; every move needs room that is not there.
#[derive(Clone, Debug, PartialEq)]
pub struct NearlyFull {
    /// Part of the volume that is filled first, in parts per million; at least half.
    pub full_ppm: u32,
    /// Size of a file as a part of the volume, in parts per million; the smallest has a sixteenth of it.
    pub file_ppm: u32,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Bytes of a read or change of a file, at most.
    pub piece_bytes: u64,
    /// Zipf exponent of the files.
    pub exponent: f64,
    /// Visits that write, in parts per million.
    pub write_ppm: u32,
    /// Visits that replace a file, in parts per million.
    pub replace_ppm: u32,
    /// Microseconds between visits, on average.
    pub gap_us: u64,
}

impl Default for NearlyFull {
    fn default() -> NearlyFull {
        NearlyFull {
            full_ppm: 970_000,
            file_ppm: 2_000,
            request_bytes: 128 << 10,
            piece_bytes: 256 << 10,
            exponent: 0.9,
            write_ppm: 400_000,
            replace_ppm: 20_000,
            gap_us: 20_000,
        }
    }
}

impl Workload for NearlyFull {
    fn name(&self) -> &'static str {
        "nearly-full"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; full_ppm, file_ppm, request_bytes, piece_bytes, exponent, write_ppm, replace_ppm, gap_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check((500_000..=1_000_000).contains(&self.full_ppm), "full_ppm", "must be 500000 to 1000000")?;
        check((100..=100_000).contains(&self.file_ppm), "file_ppm", "must be 100 to 100000")?;
        check_request(self.request_bytes, "request_bytes")?;
        check(self.piece_bytes >= PAGE, "piece_bytes", "must be a page at least")?;
        check_exponent(self.exponent)?;
        check_share(self.write_ppm, "write_ppm")?;
        check_share(self.replace_ppm, "replace_ppm")?;
        let file = part(volume_bytes, self.file_ppm);
        check_volume(self.name(), file, 16 * PAGE)?;
        let full = part(volume_bytes, self.full_ppm);
        let space = Space::new(0, volume_bytes / PAGE * PAGE);
        Ok(stream(Full {
            spec: self.clone(),
            file,
            full,
            held: 0,
            space,
            files: Vec::new(),
            zipf: None,
            rng: Prng::new(seed),
        }))
    }
}

struct Full {
    spec: NearlyFull,
    /// Bytes of the largest file.
    file: u64,
    /// Bytes to fill, and bytes of all files.
    full: u64,
    held: u64,
    space: Space,
    /// First byte and length of each file; its popularity goes with its place here, and later ones have none.
    files: Vec<(u64, u64)>,
    /// Known once the volume is full.
    zipf: Option<Zipf>,
    rng: Prng,
}

impl Full {
    /// Writes a new file; none if there is no room within what may be filled.
    fn create(&mut self, script: &mut Script) -> Option<(u64, u64)> {
        let size = log_uniform((self.file / 16).max(PAGE), self.file, &mut self.rng).min(self.full - self.held);
        if size == 0 {
            return None;
        }
        let (start, len) = self.space.take(size)?;
        self.held += len;
        script.run(Op::Write, start, len, self.spec.request_bytes, 0);
        Some((start, len))
    }

    /// Deletes a file and writes another, and more as long as there is room for the largest.
    fn replace(&mut self, i: usize, script: &mut Script) {
        let (start, len) = self.files[i];
        script.request(Op::Trim, start, len);
        self.space.give(start, len);
        self.held -= len;
        // What was just given back is free, so there is room.
        if let Some(file) = self.create(script) {
            self.files[i] = file;
        }
        while self.full - self.held >= self.file {
            let Some(file) = self.create(script) else { break };
            self.files.push(file);
        }
    }

    fn touch(&mut self, (start, size): (u64, u64), script: &mut Script) {
        let len = log_uniform(PAGE, self.spec.piece_bytes.min(size), &mut self.rng);
        let op = if self.rng.chance(self.spec.write_ppm) { Op::Write } else { Op::Read };
        script.run(op, inside(start, size, len, &mut self.rng), len, self.spec.request_bytes, 0);
    }
}

impl Visits for Full {
    fn visit(&mut self, script: &mut Script) {
        if self.zipf.is_none() {
            if let Some(file) = self.create(script) {
                self.files.push(file);
                return;
            }
            let ranks = (self.files.len() as u64).min(RANKS_MAX);
            self.zipf = Some(Zipf::new(ranks, self.spec.exponent));
        }
        let rank = self.zipf.as_ref().map_or(0, |zipf| zipf.rank(&mut self.rng)) as usize;
        if self.rng.chance(self.spec.replace_ppm) {
            // Any file: what is popular is not what goes.
            let i = self.rng.below(self.files.len() as u64) as usize;
            self.replace(i, script);
        } else {
            self.touch(self.files[rank], script);
        }
        script.wait(&mut self.rng, self.spec.gap_us);
    }
}

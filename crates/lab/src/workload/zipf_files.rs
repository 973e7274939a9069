//! Files of mixed sizes, a few of them used most of the time.

use bimetal_sim::prng::Prng;

use super::place::{inside, log_uniform, Scatter};
use super::stream::{stream, Accesses, Script, Visits};
use super::zipf::{Zipf, RANKS_MAX};
use super::{check, check_exponent, check_part, check_request, check_share, check_volume, parameters, part};
use super::{SpecError, Workload, PAGE};
use crate::trace::Op;

/// The documents and programs of a desktop: most visits go to few files, whatever their size, and small files are read
/// or saved whole, large ones in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct ZipfFiles {
    /// Zipf exponent of the files' popularity.
    pub exponent: f64,
    /// Bytes of the smallest file.
    pub file_bytes_min: u64,
    /// Bytes of the largest file; each doubling in between is as likely.
    pub file_bytes_max: u64,
    /// Files up to so many bytes are used whole, of others a piece of up to as many.
    pub piece_bytes: u64,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Part of the volume that holds files, in parts per million.
    pub used_ppm: u32,
    /// Visits that write, in parts per million.
    pub write_ppm: u32,
    /// Microseconds between visits, on average.
    pub gap_us: u64,
}

impl Default for ZipfFiles {
    fn default() -> ZipfFiles {
        ZipfFiles {
            exponent: 0.9,
            file_bytes_min: 4 << 10,
            file_bytes_max: 64 << 20,
            piece_bytes: 4 << 20,
            request_bytes: 128 << 10,
            used_ppm: 700_000,
            write_ppm: 200_000,
            gap_us: 50_000,
        }
    }
}

impl Workload for ZipfFiles {
    fn name(&self) -> &'static str {
        "zipf-files"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![
            self; exponent, file_bytes_min, file_bytes_max, piece_bytes, request_bytes, used_ppm, write_ppm, gap_us
        ]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check_exponent(self.exponent)?;
        check_part(self.used_ppm, "used_ppm")?;
        check_share(self.write_ppm, "write_ppm")?;
        check_request(self.request_bytes, "request_bytes")?;
        check(self.piece_bytes >= PAGE, "piece_bytes", "must be a page at least")?;
        let ordered = PAGE <= self.file_bytes_min && self.file_bytes_min <= self.file_bytes_max;
        check(ordered, "file_bytes_min", "must be a page at least and no more than file_bytes_max")?;
        let used = part(volume_bytes, self.used_ppm);
        check_volume(self.name(), used, self.file_bytes_max.saturating_add(PAGE))?;

        let rng = &mut Prng::new(seed);
        let starts = self.lay_out(used, &mut rng.fork(1));
        // All but the last start begin a file.
        let files = starts.len() as u64 - 1;
        let popular = Scatter::new(files, rng);
        let zipf = Zipf::new(files, self.exponent);
        Ok(stream(Files { spec: self.clone(), starts, popular, zipf, rng: rng.clone() }))
    }
}

impl ZipfFiles {
    /// First bytes of the files, one after another, and the end of the last.
    fn lay_out(&self, used: u64, rng: &mut Prng) -> Vec<u64> {
        let mut starts = vec![0];
        let mut end = 0;
        while (starts.len() as u64) < RANKS_MAX {
            let size = log_uniform(self.file_bytes_min, self.file_bytes_max, rng);
            if used - end < size {
                break;
            }
            end += size;
            starts.push(end);
        }
        starts
    }
}

struct Files {
    spec: ZipfFiles,
    starts: Vec<u64>,
    /// Which file has which rank: size and place have nothing to do with popularity.
    popular: Scatter,
    zipf: Zipf,
    rng: Prng,
}

impl Visits for Files {
    fn visit(&mut self, script: &mut Script) {
        let file = self.popular.of(self.zipf.rank(&mut self.rng)) as usize;
        let (start, size) = (self.starts[file], self.starts[file + 1] - self.starts[file]);
        let op = if self.rng.chance(self.spec.write_ppm) { Op::Write } else { Op::Read };
        let (offset, len) = if size <= self.spec.piece_bytes {
            (start, size)
        } else {
            let len = log_uniform(PAGE, self.spec.piece_bytes, &mut self.rng);
            (inside(start, size, len, &mut self.rng), len)
        };
        script.run(op, offset, len, self.spec.request_bytes, 0);
        script.wait(&mut self.rng, self.spec.gap_us);
    }
}

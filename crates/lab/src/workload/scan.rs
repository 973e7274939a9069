//! Something reads everything, while somebody works.

use bimetal_sim::prng::Prng;

use super::place::{inside, HotSet};
use super::stream::{interleave, stream, Accesses, Script, Visits};
use super::{check, check_exponent, check_part, check_request, check_volume, parameters, part};
use super::{SpecError, Workload};
use crate::trace::Op;

/// Bytes that a scan reads at a go.
const BURST: u64 = 1 << 20;
/// Requests of somebody who works.
const WORK_REQUEST: u64 = 16 << 10;
/// What belongs together for somebody who works.
const WORK_EXTENT: u64 = 128 << 10;

/// A backup or virus scan that reads the whole volume in order once a day, while a small hot set is worked on; it must
/// not push that set out.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// Part of the volume that is scanned, in parts per million, from its beginning.
    pub scanned_ppm: u32,
    /// Bytes of a request of the scan.
    pub request_bytes: u64,
    /// Bytes per second that the scan reads.
    pub rate: u64,
    /// Microseconds between two scans.
    pub pause_us: u64,
    /// Part of the volume that is worked on, in parts per million.
    pub hot_ppm: u32,
    /// Zipf exponent within the hot set.
    pub exponent: f64,
    /// Microseconds between requests of the work, on average.
    pub gap_us: u64,
}

impl Default for Scan {
    fn default() -> Scan {
        Scan {
            scanned_ppm: 800_000,
            request_bytes: 128 << 10,
            rate: 100 << 20,
            pause_us: 3_600_000_000,
            hot_ppm: 20_000,
            exponent: 0.8,
            gap_us: 20_000,
        }
    }
}

impl Workload for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; scanned_ppm, request_bytes, rate, pause_us, hot_ppm, exponent, gap_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check_part(self.scanned_ppm, "scanned_ppm")?;
        check_request(self.request_bytes, "request_bytes")?;
        check(self.rate > 0, "rate", "must be above 0")?;
        let len = part(volume_bytes, self.scanned_ppm);
        check_volume(self.name(), len, BURST)?;
        let rng = &mut Prng::new(seed);
        let work = Work::new(volume_bytes, self.hot_ppm, self.exponent, self.gap_us, rng)?;
        let reader = Reader { spec: self.clone(), len, at: 0 };
        Ok(interleave(vec![stream(work), stream(reader)]))
    }
}

struct Reader {
    spec: Scan,
    len: u64,
    at: u64,
}

impl Visits for Reader {
    fn visit(&mut self, script: &mut Script) {
        let len = BURST.min(self.len - self.at);
        script.run(Op::Read, self.at, len, self.spec.request_bytes, gap_us(self.spec.request_bytes, self.spec.rate));
        self.at += len;
        if self.at == self.len {
            self.at = 0;
            script.pause(self.spec.pause_us);
        }
    }
}

/// Microseconds between requests that make so many bytes per second.
pub(super) fn gap_us(request: u64, rate: u64) -> u64 {
    request.saturating_mul(1_000_000) / rate
}

/// Somebody who reads and writes a small hot set, whatever else goes on.
pub(super) struct Work {
    hot: HotSet,
    gap_us: u64,
    rng: Prng,
}

impl Work {
    pub(super) fn new(
        volume_bytes: u64,
        hot_ppm: u32,
        exponent: f64,
        gap_us: u64,
        rng: &mut Prng,
    ) -> Result<Work, SpecError> {
        check_part(hot_ppm, "hot_ppm")?;
        check_exponent(exponent)?;
        check(gap_us > 0, "gap_us", "must be above 0")?;
        check_volume("work", volume_bytes, WORK_EXTENT)?;
        let hot = HotSet::new(0, volume_bytes, part(volume_bytes, hot_ppm), WORK_EXTENT, exponent, rng);
        Ok(Work { hot, gap_us, rng: rng.fork(2) })
    }
}

impl Visits for Work {
    fn visit(&mut self, script: &mut Script) {
        let start = self.hot.pick(&mut self.rng);
        // Two reads for a write.
        let op = if self.rng.below(3) == 0 { Op::Write } else { Op::Read };
        script.request(op, inside(start, self.hot.extent(), WORK_REQUEST, &mut self.rng), WORK_REQUEST);
        script.wait(&mut self.rng, self.gap_us);
    }
}

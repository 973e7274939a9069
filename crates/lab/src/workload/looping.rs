//! The same data, over and over.

use bimetal_sim::prng::Prng;

use super::place::Scatter;
use super::scan::gap_us;
use super::stream::{stream, Accesses, Script, Visits};
use super::{check, check_part, check_request, check_volume, parameters, part};
use super::{SpecError, Workload};
use crate::trace::Op;

/// What a shuffled pass reads in one go.
const EXTENT: u64 = 1 << 20;

/// A job that reads the same data set from end to end again and again, such as a nightly report or the epochs of a
/// training; if it is larger than the fast tier, plain recency keeps exactly the wrong part.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// The data set as a part of the volume, in parts per million.
    pub span_ppm: u32,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Bytes per second.
    pub rate: u64,
    /// Whether each pass takes the pieces of 1 MiB in another order.
    pub shuffled: bool,
    /// Microseconds between two passes.
    pub pause_us: u64,
}

impl Default for Loop {
    fn default() -> Loop {
        Loop { span_ppm: 200_000, request_bytes: 128 << 10, rate: 100 << 20, shuffled: false, pause_us: 60_000_000 }
    }
}

impl Workload for Loop {
    fn name(&self) -> &'static str {
        "loop"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; span_ppm, request_bytes, rate, shuffled, pause_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check_part(self.span_ppm, "span_ppm")?;
        check_request(self.request_bytes, "request_bytes")?;
        check(self.rate > 0, "rate", "must be above 0")?;
        let span = part(volume_bytes, self.span_ppm) / EXTENT;
        check_volume(self.name(), span * EXTENT, EXTENT)?;
        let mut rng = Prng::new(seed);
        // Somewhere on the volume, at a whole extent.
        let start = rng.range(0, volume_bytes / EXTENT - span) * EXTENT;
        Ok(stream(Passes { spec: self.clone(), start, extents: span, done: 0, order: None, rng }))
    }
}

struct Passes {
    spec: Loop,
    start: u64,
    extents: u64,
    /// Extents read in this pass.
    done: u64,
    order: Option<Scatter>,
    rng: Prng,
}

impl Visits for Passes {
    fn visit(&mut self, script: &mut Script) {
        if self.done == 0 && self.spec.shuffled {
            self.order = Some(Scatter::new(self.extents, &mut self.rng));
        }
        let extent = self.order.as_ref().map_or(self.done, |order| order.of(self.done));
        let gap = gap_us(self.spec.request_bytes, self.spec.rate);
        script.run(Op::Read, self.start + extent * EXTENT, EXTENT, self.spec.request_bytes, gap);
        self.done += 1;
        if self.done == self.extents {
            self.done = 0;
            script.pause(self.spec.pause_us);
        }
    }
}

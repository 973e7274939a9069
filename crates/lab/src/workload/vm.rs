//! An image of a virtual machine.

use bimetal_sim::prng::Prng;

use super::place::{inside, log_uniform};
use super::stream::{stream, Accesses, Script, Visits};
use super::{check, check_part, check_share, check_volume, parameters, part};
use super::{SpecError, Workload, PAGE};
use crate::trace::Op;

/// Bytes of the largest request.
const REQUEST_MAX: u64 = 64 << 10;

/// One large file of which a part in the middle, the guest's database say, gets nearly all requests; who places whole
/// files serves it badly.
#[derive(Clone, Debug, PartialEq)]
pub struct VmImage {
    /// The image as a part of the volume, in parts per million.
    pub image_ppm: u32,
    /// The hot range as a part of the image, in parts per million.
    pub hot_ppm: u32,
    /// Requests to the hot range, in parts per million; the others go anywhere in the image.
    pub hot_share_ppm: u32,
    /// Requests that write, in parts per million.
    pub write_ppm: u32,
    /// Requests between two flushes; 0 for none.
    pub flush_requests: u64,
    /// Microseconds between requests, on average.
    pub gap_us: u64,
}

impl Default for VmImage {
    fn default() -> VmImage {
        VmImage {
            image_ppm: 400_000,
            hot_ppm: 50_000,
            hot_share_ppm: 850_000,
            write_ppm: 400_000,
            flush_requests: 100,
            gap_us: 5_000,
        }
    }
}

impl Workload for VmImage {
    fn name(&self) -> &'static str {
        "vm-image"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; image_ppm, hot_ppm, hot_share_ppm, write_ppm, flush_requests, gap_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check_part(self.image_ppm, "image_ppm")?;
        check_part(self.hot_ppm, "hot_ppm")?;
        check_share(self.hot_share_ppm, "hot_share_ppm")?;
        check_share(self.write_ppm, "write_ppm")?;
        check(self.flush_requests != 1, "flush_requests", "must be 0 or above 1")?;
        let image = part(volume_bytes, self.image_ppm);
        let hot = part(image, self.hot_ppm);
        check_volume(self.name(), hot, REQUEST_MAX)?;
        let mut rng = Prng::new(seed);
        let image_start = inside(0, volume_bytes, image, &mut rng);
        let hot_start = inside(image_start, image, hot, &mut rng);
        Ok(stream(Guest { spec: self.clone(), image: (image_start, image), hot: (hot_start, hot), requests: 0, rng }))
    }
}

struct Guest {
    spec: VmImage,
    /// First byte and length.
    image: (u64, u64),
    hot: (u64, u64),
    requests: u64,
    rng: Prng,
}

impl Visits for Guest {
    fn visit(&mut self, script: &mut Script) {
        let (start, extent) = if self.rng.chance(self.spec.hot_share_ppm) { self.hot } else { self.image };
        let len = log_uniform(PAGE, REQUEST_MAX, &mut self.rng);
        let op = if self.rng.chance(self.spec.write_ppm) { Op::Write } else { Op::Read };
        script.request(op, inside(start, extent, len, &mut self.rng), len);
        self.requests += 1;
        if self.spec.flush_requests != 0 && self.requests % self.spec.flush_requests == 0 {
            script.flush();
        }
        script.wait(&mut self.rng, self.spec.gap_us);
    }
}

//! Machines start, programs are launched.

use bimetal_sim::prng::{mix, Prng};

use super::place::{log_uniform, Scatter};
use super::stream::{stream, Accesses, Script, Visits};
use super::zipf::{Zipf, RANKS_MAX};
use super::{check, check_exponent, check_part, check_volume, parameters, part};
use super::{SpecError, Workload, PAGE};
use crate::trace::Op;

/// Bytes of the largest piece that a start reads.
const PIECE: u64 = 256 << 10;
/// Microseconds between the reads of a start: the processor has things to do, too.
const THINK_US: u64 = 500;

/// A day of a personal computer: a boot that reads the same scattered pieces each morning, launches of programs, the
/// favourite ones again and again, and long hours of nothing; waiting is felt here more than anywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Boot {
    /// What a boot reads as a part of the volume, in parts per million.
    pub boot_ppm: u32,
    /// What the launch of a program reads as a part of the volume, in parts per million.
    pub launch_ppm: u32,
    /// Programs that are installed.
    pub programs: u64,
    /// Zipf exponent of their popularity.
    pub exponent: f64,
    /// Launches a day.
    pub launches: u64,
    /// Microseconds between launches, on average.
    pub gap_us: u64,
    /// Microseconds from the last launch to the next boot.
    pub night_us: u64,
}

impl Default for Boot {
    fn default() -> Boot {
        Boot {
            boot_ppm: 2_000,
            launch_ppm: 400,
            programs: 60,
            exponent: 1.0,
            launches: 30,
            gap_us: 900_000_000,
            night_us: 43_200_000_000,
        }
    }
}

impl Workload for Boot {
    fn name(&self) -> &'static str {
        "boot"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; boot_ppm, launch_ppm, programs, exponent, launches, gap_us, night_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check_part(self.boot_ppm, "boot_ppm")?;
        check_part(self.launch_ppm, "launch_ppm")?;
        check((1..=RANKS_MAX).contains(&self.programs), "programs", "must be 1 to 1048576")?;
        check_exponent(self.exponent)?;
        let (boot, launch) = (part(volume_bytes, self.boot_ppm), part(volume_bytes, self.launch_ppm));
        check_volume(self.name(), volume_bytes, PIECE)?;
        check_volume(self.name(), boot.min(launch), PAGE)?;
        let mut rng = Prng::new(seed);
        let places = Scatter::new(volume_bytes / PIECE, &mut rng);
        let zipf = Zipf::new(self.programs, self.exponent);
        Ok(stream(Days { spec: self.clone(), seed, boot, launch, places, zipf, start: None, launched: None, rng }))
    }
}

struct Days {
    spec: Boot,
    seed: u64,
    /// Bytes that a boot and a launch read.
    boot: u64,
    launch: u64,
    /// Where pieces lie; the boot and each program own a part of the row.
    places: Scatter,
    zipf: Zipf,
    /// What is being started.
    start: Option<Start>,
    /// Launches since the boot; `None` before it.
    launched: Option<u64>,
    rng: Prng,
}

/// A boot or launch that goes on.
struct Start {
    /// Draws the sizes of the pieces.
    rng: Prng,
    /// Where the next piece lies in the row of places.
    next: u64,
    /// Bytes not read yet.
    left: u64,
}

impl Days {
    /// Begins to read `bytes` in pieces that depend on nothing but `program`, always in the same order. 0 is the boot.
    fn begin(&mut self, program: u64, bytes: u64) {
        let mut rng = Prng::new(mix(self.seed ^ mix(program)));
        let next = rng.below(self.places.count());
        self.start = Some(Start { rng, next, left: bytes });
    }
}

impl Visits for Days {
    fn visit(&mut self, script: &mut Script) {
        if let Some(start) = &mut self.start {
            let len = log_uniform(PAGE, PIECE, &mut start.rng).min(start.left);
            script.run(Op::Read, self.places.of(start.next) * PIECE, len, PIECE, THINK_US);
            start.next += 1;
            start.left -= len;
            if start.left == 0 {
                self.start = None;
            }
            return;
        }
        match self.launched {
            None => {
                self.begin(0, self.boot);
                self.launched = Some(0);
            }
            Some(n) if n < self.spec.launches => {
                script.wait(&mut self.rng, self.spec.gap_us);
                let program = 1 + self.zipf.rank(&mut self.rng);
                self.begin(program, self.launch);
                self.launched = Some(n + 1);
            }
            Some(_) => {
                script.pause(self.spec.night_us);
                self.launched = None;
            }
        }
    }
}

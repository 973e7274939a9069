//! Films are copied, while somebody works.

use bimetal_sim::prng::Prng;

use super::place::log_uniform;
use super::scan::{gap_us, Work};
use super::stream::{interleave, stream, Accesses, Script, Visits};
use super::{check, check_part, check_request, check_volume, parameters, part};
use super::{SpecError, Workload, PAGE};
use crate::trace::Op;

/// Bytes that a copy reads before it writes them.
const BURST: u64 = 1 << 20;

/// A film library that grows and is sorted: each film is read in one place and written in another, once, while a small
/// hot set is worked on; films belong on the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct FilmCopy {
    /// Size of the largest film as a part of the volume, in parts per million; the smallest has a quarter of it.
    pub film_ppm: u32,
    /// Bytes of a request of the copy.
    pub request_bytes: u64,
    /// Bytes per second that are copied.
    pub rate: u64,
    /// Microseconds between two copies.
    pub pause_us: u64,
    /// Part of the volume that is worked on, in parts per million.
    pub hot_ppm: u32,
    /// Zipf exponent within the hot set.
    pub exponent: f64,
    /// Microseconds between requests of the work, on average.
    pub gap_us: u64,
}

impl Default for FilmCopy {
    fn default() -> FilmCopy {
        FilmCopy {
            film_ppm: 50_000,
            request_bytes: 256 << 10,
            rate: 80 << 20,
            pause_us: 600_000_000,
            hot_ppm: 20_000,
            exponent: 0.8,
            gap_us: 20_000,
        }
    }
}

impl Workload for FilmCopy {
    fn name(&self) -> &'static str {
        "film-copy"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; film_ppm, request_bytes, rate, pause_us, hot_ppm, exponent, gap_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check_part(self.film_ppm, "film_ppm")?;
        check(self.film_ppm <= 250_000, "film_ppm", "must be at most 250000")?;
        check_request(self.request_bytes, "request_bytes")?;
        check(self.rate > 0, "rate", "must be above 0")?;
        let film = part(volume_bytes, self.film_ppm);
        check_volume(self.name(), film, 4 * PAGE)?;
        let rng = &mut Prng::new(seed);
        let work = Work::new(volume_bytes, self.hot_ppm, self.exponent, self.gap_us, rng)?;
        // Sources in the lower half, copies in the upper.
        let half = volume_bytes / 2 / PAGE * PAGE;
        let copier = Copier {
            spec: self.clone(),
            half,
            film,
            from: 0,
            to: half,
            left: 0,
            next_from: 0,
            next_to: half,
            rng: rng.fork(1),
        };
        Ok(interleave(vec![stream(work), stream(copier)]))
    }
}

struct Copier {
    spec: FilmCopy,
    half: u64,
    film: u64,
    from: u64,
    to: u64,
    /// Bytes of the film not copied yet.
    left: u64,
    next_from: u64,
    next_to: u64,
    rng: Prng,
}

impl Copier {
    /// Takes the next film, at the beginning of its half again when it does not fit the rest.
    fn next_film(&mut self) {
        self.left = log_uniform((self.film / 4).max(PAGE), self.film, &mut self.rng);
        if self.next_from + self.left > self.half {
            self.next_from = 0;
        }
        if self.next_to + self.left > 2 * self.half {
            self.next_to = self.half;
        }
        (self.from, self.to) = (self.next_from, self.next_to);
        self.next_from += self.left;
        self.next_to += self.left;
    }
}

impl Visits for Copier {
    fn visit(&mut self, script: &mut Script) {
        if self.left == 0 {
            self.next_film();
        }
        let len = BURST.min(self.left);
        let request = self.spec.request_bytes;
        // Reading and writing share the time.
        let gap_us = gap_us(request, self.spec.rate) / 2;
        script.run(Op::Read, self.from, len, request, gap_us);
        script.run(Op::Write, self.to, len, request, gap_us);
        self.from += len;
        self.to += len;
        self.left -= len;
        if self.left == 0 {
            script.pause(self.spec.pause_us);
        }
    }
}

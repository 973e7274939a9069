//! From visits to accesses.
//!
//! A *visit* is one thing a user or program does: reads a file, commits a transaction. A workload says what a visit
//! consists of; the stream expands it one access at a time, so that a film costs no more memory than a page.

use std::collections::VecDeque;

use bimetal_sim::prng::Prng;

use super::math::ln;
use crate::trace::{Access, Op};

/// An endless stream of accesses.
pub type Accesses = Box<dyn Iterator<Item = Access> + Send>;

/// Makes one visit after another.
pub(super) trait Visits: Send {
    /// Says what the next visit does. Every few calls there is a request.
    fn visit(&mut self, script: &mut Script);
}

/// A part of a visit.
enum Step {
    /// Requests of `request` bytes, one after another from `offset` to `end`, each followed by a gap.
    Run {
        op: Op,
        offset: u64,
        end: u64,
        request: u64,
        gap_us: u64,
    },
    Flush,
    Pause(u64),
}

/// What is left to do of a visit.
#[derive(Default)]
pub(super) struct Script(VecDeque<Step>);

impl Script {
    /// One request.
    pub(super) fn request(&mut self, op: Op, offset: u64, len: u64) {
        self.run(op, offset, len, len, 0);
    }

    /// `len` bytes in requests of at most `request`, with a gap in microseconds after each.
    pub(super) fn run(&mut self, op: Op, offset: u64, len: u64, request: u64, gap_us: u64) {
        debug_assert!(len > 0 && request > 0 && op != Op::Flush);
        self.0.push_back(Step::Run { op, offset, end: offset + len, request, gap_us });
    }

    pub(super) fn flush(&mut self) {
        self.0.push_back(Step::Flush);
    }

    /// Lets so many microseconds pass.
    pub(super) fn pause(&mut self, us: u64) {
        self.0.push_back(Step::Pause(us));
    }

    /// Lets time pass until something that comes every `mean_us` on average, at random, comes again.
    pub(super) fn wait(&mut self, rng: &mut Prng, mean_us: u64) {
        // In (0, 1], so that the logarithm is finite: at most 37 times the mean.
        let u = ((rng.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.pause((-ln(u) * mean_us as f64) as u64);
    }
}

/// The stream of a workload's visits.
pub(super) fn stream(visits: impl Visits + 'static) -> Accesses {
    Box::new(Stream { visits, script: Script::default(), now_us: 0 })
}

struct Stream<V> {
    visits: V,
    script: Script,
    now_us: u64,
}

impl<V: Visits> Iterator for Stream<V> {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let time_us = loop {
            match self.script.0.front_mut() {
                None => self.visits.visit(&mut self.script),
                Some(Step::Pause(us)) => {
                    self.now_us = self.now_us.saturating_add(*us);
                    self.script.0.pop_front();
                }
                Some(_) => break self.now_us,
            }
        };
        match self.script.0.front_mut()? {
            Step::Run { op, offset, end, request, gap_us } => {
                let access = Access { time_us, op: *op, offset: *offset, len: (*request).min(*end - *offset) };
                *offset += access.len;
                self.now_us = self.now_us.saturating_add(*gap_us);
                if offset == end {
                    self.script.0.pop_front();
                }
                Some(access)
            }
            Step::Flush | Step::Pause(_) => {
                self.script.0.pop_front();
                Some(Access { time_us, op: Op::Flush, offset: 0, len: 0 })
            }
        }
    }
}

/// Several streams on the same volume at the same time, in order of time.
pub fn interleave(streams: Vec<Accesses>) -> Accesses {
    let heads = streams.into_iter().filter_map(|mut stream| Some((stream.next()?, stream))).collect();
    Box::new(Interleave { heads })
}

struct Interleave {
    /// Each stream with its next access.
    heads: Vec<(Access, Accesses)>,
}

impl Iterator for Interleave {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let i = (0..self.heads.len()).min_by_key(|&i| self.heads[i].0.time_us)?;
        let (head, stream) = &mut self.heads[i];
        let access = *head;
        match stream.next() {
            Some(next) => *head = next,
            None => drop(self.heads.remove(i)),
        }
        Some(access)
    }
}

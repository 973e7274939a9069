//! Two devices one behind the other, as one.

use std::collections::{BTreeMap, VecDeque};

use bimetal_sim::model::catalog::Spec;
use bimetal_sim::model::{BadSpec, END_OF_TIME};
use bimetal_volume::units::Tier;

use super::pair::Pair;
use super::{Completion, Facts, Request, System};
use crate::system::Op;

/// A set that only concatenates: the first bytes are on the SSD, the rest on the disk, for ever (B12).
pub struct Concat {
    now: u64,
    pair: Pair,
    /// By number: the caller's id, and device requests on their way.
    under_way: BTreeMap<u64, (u64, u32)>,
    numbers: u64,
    done: VecDeque<Completion>,
    /// Bytes from the start that were written at least once, at most: an upper bound of what the SSD holds.
    written: u64,
}

impl Concat {
    /// A new set. Fails if a device cannot be made.
    pub fn new(fast: &Spec, slow: &Spec) -> Result<Concat, BadSpec> {
        let pair = Pair::new(fast, slow)?;
        Ok(Concat { now: 0, pair, under_way: BTreeMap::new(), numbers: 0, done: VecDeque::new(), written: 0 })
    }

    /// The parts of a request on the two devices.
    fn parts(&self, request: &Request) -> Vec<(Tier, Request)> {
        let border = self.pair.size(Tier::Fast);
        let Request { op, offset, len } = *request;
        if op == Op::Flush {
            return vec![(Tier::Fast, *request), (Tier::Slow, *request)];
        }
        let fast = border.saturating_sub(offset).min(len);
        let mut out = Vec::new();
        if fast > 0 {
            out.push((Tier::Fast, Request { op, offset, len: fast }));
        }
        if len > fast {
            out.push((Tier::Slow, Request { op, offset: (offset + fast) - border, len: len - fast }));
        }
        out
    }
}

impl System for Concat {
    fn name(&self) -> String {
        "concatenated set".into()
    }

    fn size(&self) -> u64 {
        self.pair.size(Tier::Fast) + self.pair.size(Tier::Slow)
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn submit(&mut self, id: u64, request: Request) {
        let parts = self.parts(&request);
        if request.op == Op::Write {
            self.written = self.written.max(request.offset + request.len);
        }
        self.numbers += 1;
        if parts.is_empty() {
            self.done.push_back(Completion { id, at: self.now });
            return;
        }
        self.under_way.insert(self.numbers, (id, parts.len() as u32));
        for (tier, part) in parts {
            self.pair.submit(self.now, tier, self.numbers, part);
        }
    }

    fn run(&mut self, until: u64) -> Option<Completion> {
        let until = until.clamp(self.now, END_OF_TIME.max(self.now));
        loop {
            if let Some(done) = self.done.pop_front() {
                return Some(done);
            }
            let Some(at) = self.pair.next_event().filter(|at| *at <= until) else {
                self.now = until;
                return None;
            };
            self.now = self.now.max(at);
            while let Some(number) = self.pair.complete(self.now) {
                let Some((id, waits)) = self.under_way.get_mut(&number) else { continue };
                *waits -= 1;
                if *waits == 0 {
                    self.done.push_back(Completion { id: *id, at: self.now });
                    self.under_way.remove(&number);
                }
            }
        }
    }

    fn fast_bytes(&self, offset: u64, len: u64) -> u64 {
        self.pair.size(Tier::Fast).saturating_sub(offset).min(len)
    }

    fn facts(&self) -> Facts {
        Facts {
            promoted: 0,
            demoted: 0,
            fast_free: self.pair.size(Tier::Fast).saturating_sub(self.written),
            fast: self.pair.traffic(Tier::Fast),
            slow: self.pair.traffic(Tier::Slow),
        }
    }
}

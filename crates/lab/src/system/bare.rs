//! A device without any system above it.

use bimetal_sim::model::{Completion, Model, Op, Request, END_OF_TIME};
use bimetal_volume::units::Tier;

use super::{Facts, System, Traffic};

impl Traffic {
    /// Counts a request.
    pub fn count(&mut self, request: &Request) {
        match request.op {
            Op::Read => {
                self.reads += 1;
                self.read_bytes += request.len;
            }
            Op::Write => {
                self.writes += 1;
                self.write_bytes += request.len;
            }
            Op::Trim | Op::Flush => {}
        }
    }
}

/// A modelled device as a system: "SSD alone", "disk alone". Any model, also a boxed one of unknown kind
/// (`Bare<dyn Model>`).
pub struct Bare<M: Model + ?Sized> {
    name: String,
    tier: Tier,
    now: u64,
    traffic: Traffic,
    model: Box<M>,
}

impl<M: Model + ?Sized> Bare<M> {
    /// The device at time zero. `tier` says as which of the two devices its traffic counts.
    pub fn new(name: &str, tier: Tier, model: Box<M>) -> Bare<M> {
        Bare { name: name.to_string(), tier, now: 0, traffic: Traffic::default(), model }
    }

    /// The device, for what its kind tells beyond times (wear, say).
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The device, to change what its kind lets one change (kind of content, say).
    pub fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }
}

impl<M: Model + ?Sized> System for Bare<M> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> u64 {
        self.model.size()
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn submit(&mut self, id: u64, request: Request) {
        self.traffic.count(&request);
        let taken = self.model.submit(self.now, id, request);
        assert!(taken.is_ok(), "{} does not take {request:?}: {taken:?}", self.name);
    }

    fn run(&mut self, until: u64) -> Option<Completion> {
        let until = until.clamp(self.now, END_OF_TIME.max(self.now));
        while let Some(at) = self.model.next_event().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            if let Some(done) = self.model.complete(self.now) {
                return Some(done);
            }
        }
        self.now = until;
        None
    }

    /// All of a fast device, nothing of a slow one: a device knows no holes.
    fn fast_bytes(&self, _offset: u64, len: u64) -> u64 {
        match self.tier {
            Tier::Fast => len,
            Tier::Slow => 0,
        }
    }

    /// Only traffic: a device moves nothing by itself, and does not know what is free.
    fn facts(&self) -> Facts {
        match self.tier {
            Tier::Fast => Facts { fast: self.traffic, ..Facts::default() },
            Tier::Slow => Facts { slow: self.traffic, ..Facts::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use bimetal_sim::model::catalog;
    use bimetal_sim::model::hdd::Hdd;

    use super::*;

    #[test]
    fn times_are_those_of_the_model() {
        let mut alone = Hdd::new(catalog::hdd2012()).expect("the catalog's disk");
        let mut bare = Bare::new("disk", Tier::Slow, Box::new(alone.clone()));
        for i in 0..100u64 {
            let request = Request::read((i * 7_919) % 1000 * (1 << 20), 4096);
            alone.submit(0, i, request).expect("in range");
            bare.submit(i, request);
        }
        let mut last = 0;
        while let Some(done) = alone.wait() {
            assert_eq!(bare.run(u64::MAX), Some(done));
            assert_eq!(bare.now(), done.at);
            last = done.at;
        }
        assert_eq!(bare.run(last + 5), None);
        assert_eq!(bare.now(), last + 5);
        let facts = bare.facts();
        assert_eq!((facts.slow.reads, facts.slow.read_bytes, facts.fast.reads), (100, 409_600, 0));
    }

    #[test]
    fn time_does_not_pass_the_limit() {
        let disk = catalog::find("hdd2012").and_then(|s| s.build().ok()).expect("the catalog's disk");
        let mut bare: Bare<dyn Model> = Bare::new("disk", Tier::Slow, disk);
        bare.submit(1, Request::read(500 << 30, 4096));
        assert_eq!(bare.run(1000), None);
        assert_eq!(bare.now(), 1000);
        assert!(bare.run(u64::MAX).is_some_and(|done| done.id == 1 && done.at > 1_000_000));
    }
}

//! The two devices below a system, on one clock.

use bimetal_sim::model::catalog::Spec;
use bimetal_sim::model::{BadSpec, Model, Request};
use bimetal_volume::units::Tier;

use crate::system::Traffic;

/// A fast and a slow device; requests carry a tag that comes back when they are complete.
pub(super) struct Pair {
    models: [Box<dyn Model>; 2],
    traffic: [Traffic; 2],
}

fn index(tier: Tier) -> usize {
    match tier {
        Tier::Fast => 0,
        Tier::Slow => 1,
    }
}

impl Pair {
    pub(super) fn new(fast: &Spec, slow: &Spec) -> Result<Pair, BadSpec> {
        Ok(Pair { models: [fast.build()?, slow.build()?], traffic: [Traffic::default(); 2] })
    }

    pub(super) fn size(&self, tier: Tier) -> u64 {
        self.models[index(tier)].size()
    }

    pub(super) fn traffic(&self, tier: Tier) -> Traffic {
        self.traffic[index(tier)]
    }

    pub(super) fn submit(&mut self, now: u64, tier: Tier, tag: u64, request: Request) {
        self.traffic[index(tier)].count(&request);
        let taken = self.models[index(tier)].submit(now, tag, request);
        assert!(taken.is_ok(), "the {tier:?} device does not take {request:?}: {taken:?}");
    }

    /// When something happens on either device, if nothing more is submitted.
    pub(super) fn next_event(&mut self) -> Option<u64> {
        self.models.iter_mut().filter_map(|m| m.next_event()).min()
    }

    /// Tag of a request that is complete at `now`.
    pub(super) fn complete(&mut self, now: u64) -> Option<u64> {
        self.models.iter_mut().find_map(|m| m.complete(now)).map(|done| done.id)
    }
}

//! Who takes part: the production policy, the baselines, and under which rules.

use crate::policy::cache::{Arc, Cache, Lfu, Lru, S3Fifo, TinyLfu};
use crate::policy::{
    replay, ClockBloom, FirstFit, Inclusive, Production, Replay, Seat, Seated, Setup, Shadow, Smq, Stream,
};

/// What a policy is in the contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A placement policy with the same seat and budget of moves.
    Baseline,
    /// An inclusive cache in front of a disk, smaller than the fast tier. Its fills cost nothing and are not counted
    /// against the budget, and writes that go to the cache first never wait for the disk.
    Cache,
    /// The production policy, moving when it likes, as the baselines do.
    Policy,
    /// The production policy with its scheduler, which waits for quiet moments of the modelled disk.
    Scheduled,
}

/// A policy and what it reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub role: Role,
    /// What it reached.
    pub replay: Replay,
}

/// Gets each policy that sits in the [`Seat`].
pub trait Visitor {
    /// A policy, fresh.
    fn seat<S: Seat>(&mut self, role: Role, seat: S);
}

fn caches(n: u32, setup: &Setup) -> Vec<Box<dyn Cache>> {
    let hold = setup.fast_slots.saturating_sub(setup.reserve) as usize;
    vec![
        Box::new(Lru::new(n, hold)),
        Box::new(Lfu::new(n, hold, 0)),
        Box::new(Lfu::new(n, hold, 8 * u64::from(setup.fast_slots))),
        Box::new(Arc::new(n, hold)),
        Box::new(S3Fifo::new(n, hold)),
        Box::new(TinyLfu::new(n, hold)),
    ]
}

/// All policies with a seat, for chunks below `chunks`.
pub fn each_seat(chunks: u32, setup: &Setup, visitor: &mut impl Visitor) {
    let slots = setup.fast_slots;
    visitor.seat(Role::Baseline, Seated(FirstFit));
    for cache in caches(chunks, setup) {
        visitor.seat(Role::Baseline, Seated(Shadow::new(cache)));
    }
    visitor.seat(Role::Baseline, Seated(Smq::new(chunks, slots)));
    visitor.seat(Role::Baseline, Seated(ClockBloom::new(slots, 2)));
    visitor.seat(Role::Baseline, Seated(ClockBloom::new(slots, 3)));
    visitor.seat(Role::Policy, Production::new(slots));
    visitor.seat(Role::Scheduled, Production::scheduled(slots));
}

struct Replays<'a> {
    stream: &'a Stream,
    setup: &'a Setup,
    entries: Vec<Entry>,
    tell: &'a mut dyn FnMut(),
}

impl Visitor for Replays<'_> {
    fn seat<S: Seat>(&mut self, role: Role, mut seat: S) {
        self.entries.push(Entry { role, replay: replay(self.stream, &mut seat, self.setup) });
        (self.tell)();
    }
}

/// A cache beside so many fast slots.
type OfSlots = fn(u32) -> Inclusive;

/// The caches that were sold with disks, in proportion to a fast tier that stands for the 121 GB of a Fusion Drive.
const CACHES: [(&str, OfSlots); 2] =
    [("hybrid disk, 8 GB cache", Inclusive::hybrid_disk), ("Smart Response, 64 GB cache", Inclusive::smart_response)];

/// Policies and caches of a contest.
pub(super) const CONTESTANTS: usize = 12 + CACHES.len();

/// Replays a stream on every policy, and tells of each. The inclusive caches come last; their fills are free.
pub(super) fn contest(stream: &Stream, setup: &Setup, tell: &mut dyn FnMut()) -> Vec<Entry> {
    let mut replays = Replays { stream, setup, entries: Vec::new(), tell };
    each_seat(stream.chunks, setup, &mut replays);
    let Replays { mut entries, tell, .. } = replays;
    for (name, cache) in CACHES {
        let replay = Replay { policy: name.into(), ..cache(setup.fast_slots).replay(stream, &setup.cost) };
        entries.push(Entry { role: Role::Cache, replay });
        tell();
    }
    debug_assert_eq!(entries.len(), CONTESTANTS);
    entries
}

//! How long decisions take on this machine. These figures differ from run to run, so they are kept apart from the
//! matrix.

use std::time::Instant;

use bimetal_volume::tier::{HeadTime, Plan, BYTES_PER_CHUNK};
use bimetal_volume::units::Tier;

use super::contest::{each_seat, Role, Visitor};
use crate::policy::{replay, Piece, Seat, Setup, Stream, Tiers};

/// What a policy needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Its name.
    pub policy: String,
    /// What it is.
    pub role: Role,
    /// Time to count an access, in ns: the median.
    pub touch_ns: f64,
    /// All that it does, the choice of chunks to move included, in ns per access: the mean.
    pub decision_ns: f64,
    /// Accesses replayed per second, clocks included: a little less than without.
    pub accesses_per_second: f64,
}

/// Bytes of memory that the engine keeps for each mapped chunk of a group with so many of them and so many fast slots:
/// the map, the chunk of each fast slot (4 bytes), and the tables of the production policy.
pub fn bytes_per_chunk(chunks: u64, fast_slots: u32) -> f64 {
    let fixed = HeadTime::new(fast_slots).bytes() as f64 + 4.0 * f64::from(fast_slots);
    BYTES_PER_CHUNK as f64 + fixed / chunks.max(1) as f64
}

/// Replays a stream on every policy, with a clock around each call.
pub fn speeds(stream: &Stream, setup: &Setup) -> Vec<Speed> {
    let mut clocks = Clocks { stream, setup, empty_ns: empty_ns(), found: Vec::new() };
    each_seat(stream.chunks, setup, &mut clocks);
    clocks.found
}

fn median(mut samples: Vec<u32>) -> f64 {
    match samples.len() {
        0 => 0.0,
        n => f64::from(*samples.select_nth_unstable(n / 2).1),
    }
}

/// What a clock around nothing says.
fn empty_ns() -> f64 {
    let mut timed = Timed::new(());
    (0..10_000).for_each(|_| timed.touching(|()| ()));
    median(timed.touches)
}

struct Clocks<'a> {
    stream: &'a Stream,
    setup: &'a Setup,
    empty_ns: f64,
    found: Vec<Speed>,
}

impl Visitor for Clocks<'_> {
    fn seat<S: Seat>(&mut self, role: Role, seat: S) {
        let accesses = self.stream.accesses().max(1) as f64;
        let mut timed = Timed::new(seat);
        let begun = Instant::now();
        replay(self.stream, &mut timed, self.setup);
        let seconds = begun.elapsed().as_secs_f64().max(1e-9);
        let total = timed.total_ns as f64 - timed.calls as f64 * self.empty_ns;
        self.found.push(Speed {
            policy: timed.seat.name(),
            role,
            touch_ns: (median(timed.touches) - self.empty_ns).max(0.0),
            decision_ns: (total / accesses).max(0.0),
            accesses_per_second: accesses / seconds,
        });
    }
}

/// A seat with a clock.
struct Timed<S> {
    seat: S,
    /// Each touch, in ns.
    touches: Vec<u32>,
    total_ns: u64,
    calls: u64,
}

impl<S> Timed<S> {
    fn new(seat: S) -> Timed<S> {
        Timed { seat, touches: Vec::new(), total_ns: 0, calls: 0 }
    }

    fn timed<R>(&mut self, f: impl FnOnce(&mut S) -> R) -> R {
        let begun = Instant::now();
        let result = f(&mut self.seat);
        self.total_ns += begun.elapsed().as_nanos() as u64;
        self.calls += 1;
        result
    }

    fn touching(&mut self, f: impl FnOnce(&mut S)) {
        let before = self.total_ns;
        self.timed(f);
        self.touches.push(u32::try_from(self.total_ns - before).unwrap_or(u32::MAX));
    }
}

impl<S: Seat> Seat for Timed<S> {
    fn name(&self) -> String {
        self.seat.name()
    }
    fn place(&mut self, tiers: &mut Tiers, piece: &Piece) -> Tier {
        self.timed(|s| s.place(tiers, piece))
    }
    fn touch(&mut self, tiers: &mut Tiers, piece: &Piece) {
        self.touching(|s| s.touch(tiers, piece));
    }
    fn victims(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        self.timed(|s| s.victims(tiers, max))
    }
    fn candidates(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        self.timed(|s| s.candidates(tiers, max))
    }
    fn waiting(&self) -> usize {
        self.seat.waiting()
    }
    fn moved(&mut self, tiers: &mut Tiers, chunk: u32, to: Tier, ns: u64) {
        self.timed(|s| s.moved(tiers, chunk, to, ns));
    }
    fn in_engine(&self) -> bool {
        self.seat.in_engine()
    }
    fn wants(&mut self, tiers: &mut Tiers, chunk: u32) -> bool {
        self.timed(|s| s.wants(tiers, chunk))
    }
    fn written_anew(&mut self, tiers: &mut Tiers, chunk: u32) {
        self.timed(|s| s.written_anew(tiers, chunk));
    }
    fn settled(&mut self, tiers: &Tiers, chunk: u32, tier: Tier) {
        self.seat.settled(tiers, chunk, tier);
    }
    fn served(&mut self, tiers: &Tiers, piece: &Piece, ns: u64) {
        self.seat.served(tiers, piece, ns);
    }
    fn clock_ns(&self) -> Option<u64> {
        self.seat.clock_ns()
    }
    fn plan(&mut self, tiers: &Tiers, until_ns: u64) -> Option<Plan> {
        self.timed(|s| s.plan(tiers, until_ns))
    }
}

//! The seat in which all placement policies are compared, and the narrow trait by which a baseline fills it.

use bimetal_volume::tier::Plan;
use bimetal_volume::units::Tier;

use super::piece::Piece;
use super::tiers::Tiers;

/// A placement policy as the replay drives it.
pub trait Seat {
    /// Its usual name, with the parameters that tell it from its kin.
    fn name(&self) -> String;

    /// The tier for a chunk that gets its first home. Fast is a wish: without a free slot it goes to the slow tier.
    fn place(&mut self, tiers: &mut Tiers, piece: &Piece) -> Tier;

    /// A piece that reads or writes, after the chunk has its home.
    fn touch(&mut self, tiers: &mut Tiers, piece: &Piece);

    /// At most `max` chunks that are to leave the fast tier; none is a fair answer.
    fn victims(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32>;

    /// At most `max` chunks that are to enter the fast tier.
    fn candidates(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32>;

    /// Chunks that want to enter; some may turn out not to when asked for.
    fn waiting(&self) -> usize;

    /// A chunk was moved, in so many ns of disk time; 0 if the disk was not asked.
    fn moved(&mut self, tiers: &mut Tiers, chunk: u32, to: Tier, ns: u64);

    /// Whether it sits in Bimetal's engine, with what that does about moves beside the policy (see [`super::engine`]).
    fn in_engine(&self) -> bool {
        false
    }

    /// Chunks that are to make way for new data, with so many slots free beyond what is kept free: [`Seat::let_go`] names them first.
    fn to_make_way(&self, beyond: u64) -> u64 {
        let _ = beyond;
        0
    }

    /// At most `max` chunks of the fast tier with a kept copy that are to make room for new data.
    fn let_go(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        let _ = (tiers, max);
        Vec::new()
    }

    /// Whether a chunk of the slow tier is to come up. If so it is no candidate any more.
    fn wants(&mut self, tiers: &mut Tiers, chunk: u32) -> bool {
        let _ = (tiers, chunk);
        false
    }

    /// A write has replaced a whole chunk of the slow tier, and went to the fast one.
    fn written_anew(&mut self, tiers: &mut Tiers, chunk: u32) {
        let _ = (tiers, chunk);
    }

    /// A chunk was discarded: it has no home any more.
    fn discarded(&mut self, chunk: u32) {
        let _ = chunk;
    }

    /// A chunk got its first home.
    fn settled(&mut self, tiers: &Tiers, chunk: u32, tier: Tier) {
        let _ = (tiers, chunk, tier);
    }

    /// A piece was served in so many ns of disk time; 0 from the fast tier.
    fn served(&mut self, tiers: &Tiers, piece: &Piece, ns: u64) {
        let _ = (tiers, piece, ns);
    }

    /// The time, in ns, of a policy that decides itself when to move. `None`: whenever the budget allows.
    fn clock_ns(&self) -> Option<u64> {
        None
    }

    /// What may be moved before `until_ns`, for a policy with a clock of its own, which it sets to when that is.
    /// `None`: nothing more, and its clock has come to that time.
    fn plan(&mut self, tiers: &Tiers, until_ns: u64) -> Option<Plan> {
        let _ = (tiers, until_ns);
        None
    }
}

/// A baseline: it counts visits, names one candidate and one victim at a time.
pub trait Baseline {
    /// Its usual name, with the parameters that tell it from its kin.
    fn name(&self) -> String;

    /// A visit of a chunk that has a home.
    fn touch(&mut self, tiers: &Tiers, piece: &Piece);

    /// The chunk that should enter the fast tier first; it is not named again until it is visited again.
    fn candidate(&mut self, tiers: &Tiers) -> Option<u32>;

    /// Chunks that want to enter, some of which may not when asked for.
    fn waiting(&self) -> usize;

    /// The chunk of the fast tier that should leave first. It is moved at once.
    fn victim(&mut self, tiers: &Tiers) -> Option<u32>;

    /// A chunk was moved, or got its first home.
    fn moved(&mut self, tiers: &Tiers, chunk: u32, to: Tier) {
        let _ = (tiers, chunk, to);
    }

    /// A chunk was discarded.
    fn discarded(&mut self, chunk: u32) {
        let _ = chunk;
    }
}

/// A [`Baseline`] in the [`Seat`]: new chunks go to the fast tier while a slot is free, a visit is counted once per
/// correlation window.
pub struct Seated<B>(pub B);

impl<B: Baseline> Seat for Seated<B> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn place(&mut self, tiers: &mut Tiers, _piece: &Piece) -> Tier {
        if tiers.free() > 0 {
            Tier::Fast
        } else {
            Tier::Slow
        }
    }

    fn touch(&mut self, tiers: &mut Tiers, piece: &Piece) {
        if piece.visit {
            self.0.touch(tiers, piece);
        }
    }

    fn victims(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        let mut out = Vec::new();
        while out.len() < max {
            let Some(chunk) = self.0.victim(tiers) else { break };
            // Named again: it has nothing else to offer.
            if out.contains(&chunk) {
                break;
            }
            out.push(chunk);
        }
        out
    }

    fn candidates(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        let mut out = Vec::new();
        while out.len() < max {
            let Some(chunk) = self.0.candidate(tiers) else { break };
            out.push(chunk);
        }
        out
    }

    fn waiting(&self) -> usize {
        self.0.waiting()
    }

    fn moved(&mut self, tiers: &mut Tiers, chunk: u32, to: Tier, _ns: u64) {
        self.0.moved(tiers, chunk, to);
    }

    fn settled(&mut self, tiers: &Tiers, chunk: u32, tier: Tier) {
        self.0.moved(tiers, chunk, tier);
    }

    fn discarded(&mut self, chunk: u32) {
        self.0.discarded(chunk);
    }
}

/// Most chunks of a queue of candidates; what waits longest is forgotten.
const WISHES: usize = 4096;

/// Chunks that want to enter the fast tier, the latest first: what was used just now is the likeliest to be used again.
#[derive(Default)]
pub(super) struct Wishes {
    queue: std::collections::VecDeque<u32>,
}

impl Wishes {
    pub(super) fn push(&mut self, chunk: u32) {
        if self.queue.back() == Some(&chunk) {
            return;
        }
        if self.queue.len() >= WISHES {
            self.queue.pop_front();
        }
        self.queue.push_back(chunk);
    }

    /// The latest of those that still want to.
    pub(super) fn pop(&mut self, still: impl Fn(u32) -> bool) -> Option<u32> {
        while let Some(chunk) = self.queue.pop_back() {
            if still(chunk) {
                return Some(chunk);
            }
        }
        None
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}

/// No moves at all: the first chunks fill the fast tier and stay there.
pub struct FirstFit;

impl Baseline for FirstFit {
    fn name(&self) -> String {
        "first fit".into()
    }
    fn touch(&mut self, _tiers: &Tiers, _piece: &Piece) {}
    fn candidate(&mut self, _tiers: &Tiers) -> Option<u32> {
        None
    }
    fn waiting(&self) -> usize {
        0
    }
    fn victim(&mut self, _tiers: &Tiers) -> Option<u32> {
        None
    }
}

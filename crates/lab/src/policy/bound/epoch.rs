//! The oracle of epochs: before each epoch it puts those chunks on the fast tier that save most head time in it. What
//! is there already is preferred by the cost of an exchange. It fetches ahead, and so is optimistic for short epochs.

use crate::policy::cost::HeadCost;
use crate::policy::piece::{Kind, Stream};

/// What the oracle reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochOracle {
    /// Accesses served by the fast tier.
    pub fast: u64,
    /// Head time of the others at the least they can cost, in ns.
    pub foreground_ns: u64,
    /// Chunks that came up.
    pub promotions: u64,
    /// Chunks that went down.
    pub demotions: u64,
}

/// What the oracle knows of a chunk in one epoch.
#[derive(Clone, Copy, Default)]
struct Chunk {
    /// Head time that the fast tier saves it.
    value: u64,
    /// It gets its first home in the epoch: there is nothing to move.
    born: bool,
    fast: bool,
}

/// Serves a stream with so many slots, `epoch` pieces at a time (at least 1).
pub fn epoch_oracle(stream: &Stream, cost: &HeadCost, slots: u32, epoch: usize) -> EpochOracle {
    let mut out = EpochOracle::default();
    let mut chunks = vec![Chunk::default(); stream.chunks as usize];
    let mut fast: Vec<u32> = Vec::new();
    for pieces in stream.pieces.chunks(epoch.max(1)) {
        let mut offered = fast.clone();
        for p in pieces {
            let c = &mut chunks[p.chunk as usize];
            match p.kind {
                Kind::Trim => continue,
                Kind::Birth => c.born = true,
                _ => {}
            }
            if c.value == 0 && !c.fast {
                offered.push(p.chunk);
            }
            c.value += cost.least(p);
        }
        fast = choose(&mut chunks, offered, cost, slots, &mut out);
        for p in pieces.iter().filter(|p| p.kind != Kind::Trim) {
            if chunks[p.chunk as usize].fast {
                out.fast += 1;
            } else {
                out.foreground_ns += cost.least(p);
            }
        }
        for p in pieces {
            let c = &mut chunks[p.chunk as usize];
            (c.value, c.born) = (0, false);
            if p.kind == Kind::Trim && std::mem::take(&mut c.fast) {
                fast.retain(|f| *f != p.chunk);
            }
        }
    }
    out
}

/// The chunks of the next epoch's fast tier, out of those offered.
fn choose(chunks: &mut [Chunk], mut offered: Vec<u32>, cost: &HeadCost, slots: u32, out: &mut EpochOracle) -> Vec<u32> {
    let worth = |c: &Chunk| {
        let (bonus, fare) =
            (if c.fast { cost.demote_ns } else { 0 }, if c.fast || c.born { 0 } else { cost.promote_ns });
        (c.value + bonus).saturating_sub(fare)
    };
    offered.retain(|c| worth(&chunks[*c as usize]) > 0);
    let slots = slots as usize;
    if offered.len() > slots && slots > 0 {
        // Ties by number, so that the choice is the same each time.
        offered.select_nth_unstable_by_key(slots - 1, |c| (std::cmp::Reverse(worth(&chunks[*c as usize])), *c));
    }
    let (stay, leave) = offered.split_at(slots.min(offered.len()));
    for c in leave {
        out.demotions += u64::from(std::mem::take(&mut chunks[*c as usize].fast));
    }
    for c in stay {
        let c = &mut chunks[*c as usize];
        out.promotions += u64::from(!c.fast && !c.born);
        c.fast = true;
    }
    stay.to_vec()
}

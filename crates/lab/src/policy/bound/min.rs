//! MIN with bypass (Belady 1966): of the chunks held and the one just used, that leaves which is used again last. No
//! policy that takes in only what was just used serves more accesses; cost is not looked at.

use crate::policy::cost::HeadCost;
use crate::policy::heap::Heap;
use crate::policy::piece::{Kind, Stream};

/// No use any more.
const NEVER: u32 = u32::MAX;

/// What MIN reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Min {
    /// Accesses served by the fast tier. Births are taken to find room there.
    pub fast: u64,
    /// Head time of the others at the least they can cost, in ns.
    pub foreground_ns: u64,
    /// Chunks that came up.
    pub promotions: u64,
}

/// When each piece's chunk is used next, as an index; `NEVER` if it is not, or gets a new life first.
fn next_use(stream: &Stream) -> Vec<u32> {
    let mut next = vec![NEVER; stream.pieces.len()];
    let mut seen = vec![NEVER; stream.chunks as usize];
    for (i, p) in stream.pieces.iter().enumerate().rev() {
        next[i] = seen[p.chunk as usize];
        seen[p.chunk as usize] = if matches!(p.kind, Kind::Trim | Kind::Birth) { NEVER } else { i as u32 };
    }
    next
}

/// Serves a stream with so many slots.
pub fn min(stream: &Stream, cost: &HeadCost, slots: u32) -> Min {
    let next = next_use(stream);
    let mut out = Min::default();
    // The latest use first: keys are turned round.
    let mut held: Heap<u32> = Heap::new(stream.chunks);
    for (p, next) in stream.pieces.iter().zip(next) {
        let hit = held.contains(p.chunk);
        match p.kind {
            Kind::Trim => {
                held.remove(p.chunk);
                continue;
            }
            _ if hit || (p.kind == Kind::Birth && slots > 0) => out.fast += 1,
            _ => out.foreground_ns += cost.least(p),
        }
        if next == NEVER {
            held.remove(p.chunk);
            continue;
        }
        let key = NEVER - next;
        if !hit && held.len() >= slots as usize {
            match held.least() {
                Some((latest, victim)) if latest < key => held.remove(victim),
                _ => continue,
            };
        }
        held.set(p.chunk, key);
        out.promotions += u64::from(!hit && p.kind != Kind::Birth);
    }
    out
}

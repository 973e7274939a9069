//! Inclusive caches in front of the disk: what hybrid disks (8 GB) and Smart Response (64 GB) do (REFERENCE R5). The
//! disk has all chunks, the cache keeps copies of blocks that were used, in LRU order.
//!
//! A *frame* is a chunk's worth of cache with a mask of the blocks it holds and one of those the disk does not have
//! yet. A fill costs the disk nothing, since the data have just passed by; a frame that leaves with newer blocks is
//! written back.

use bimetal_volume::units::{Tier, BLOCK, CHUNK};

use super::cost::HeadCost;
use super::follow::Follows;
use super::lists::Lists;
use super::piece::{Kind, Piece, Stream};
use super::replay::Replay;

/// What a cache does with writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// They go to the disk; copies in the cache become invalid (hybrid disks of the time).
    Around,
    /// They go to both (Smart Response, "enhanced").
    Through,
    /// They go to the cache, to the disk when the frame leaves ("maximized").
    Back,
}

/// An LRU cache in front of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inclusive {
    /// Frames of 128 KiB.
    pub frames: usize,
    /// What becomes of writes.
    pub writes: Writes,
}

impl Inclusive {
    /// The 8 GB of a hybrid disk, in proportion to a fast tier that stands for 121 GB.
    pub fn hybrid_disk(fast_slots: u32) -> Inclusive {
        Inclusive { frames: (fast_slots as usize * 8 / 121).max(1), writes: Writes::Around }
    }

    /// The 64 GB that Smart Response takes at most, in proportion to a fast tier that stands for 121 GB.
    pub fn smart_response(fast_slots: u32) -> Inclusive {
        Inclusive { frames: (fast_slots as usize * 64 / 121).max(1), writes: Writes::Back }
    }

    fn name(&self) -> String {
        let writes = match self.writes {
            Writes::Around => "around",
            Writes::Through => "through",
            Writes::Back => "back",
        };
        format!("cache of {} frames, write {writes}", self.frames)
    }

    /// Replays a stream. Promotions are frames that came in, demotions frames written back.
    pub fn replay(&self, stream: &Stream, cost: &HeadCost) -> Replay {
        let n = stream.chunks as usize;
        let mut run = Run {
            spec: *self,
            cost,
            lru: Lists::new(stream.chunks, 1),
            valid: vec![0; n],
            dirty: vec![0; n],
            out: Replay { policy: self.name(), ..Replay::default() },
        };
        for p in &stream.pieces {
            match p.kind {
                Kind::Trim => run.discard(p.chunk),
                _ => run.serve(p),
            }
        }
        run.out
    }
}

struct Run<'a> {
    spec: Inclusive,
    cost: &'a HeadCost,
    lru: Lists,
    valid: Vec<u32>,
    dirty: Vec<u32>,
    out: Replay,
}

/// Blocks of a piece; `whole`: only those it covers in full.
fn mask(p: &Piece, whole: bool) -> u32 {
    let (first, end) = (u64::from(p.offset), u64::from(p.offset) + u64::from(p.len));
    let (a, b) = if whole { (first.div_ceil(BLOCK), end / BLOCK) } else { (first / BLOCK, end.div_ceil(BLOCK)) };
    let below = |n: u64| if n >= CHUNK / BLOCK { u32::MAX } else { (1u32 << n) - 1 };
    below(b) & !below(a.min(b))
}

impl Run<'_> {
    fn serve(&mut self, p: &Piece) {
        self.out.accesses += 1;
        self.out.user_bytes += u64::from(p.len);
        let tier = if p.writes() { self.write(p) } else { self.read(p) };
        if tier == Tier::Fast {
            self.out.fast += 1;
            self.out.fast_births += u64::from(p.kind == Kind::Birth);
            return;
        }
        // What the disk served before is behind the cache; it is taken as if the head were where the trace says.
        let follows = p.follows != Follows::Nothing;
        self.out.foreground_ns += self.cost.of(p, follows.then_some(0));
        self.out.slow_follows += u64::from(follows);
        self.out.slow_seeks += u64::from(!follows);
    }

    fn read(&mut self, p: &Piece) -> Tier {
        let (all, chunk) = (mask(p, false), p.chunk as usize);
        let hit = self.valid[chunk] & all == all;
        self.keep(p.chunk);
        self.valid[chunk] |= all;
        if hit {
            Tier::Fast
        } else {
            Tier::Slow
        }
    }

    fn write(&mut self, p: &Piece) -> Tier {
        let (whole, all, chunk) = (mask(p, true), mask(p, false), p.chunk as usize);
        match self.spec.writes {
            Writes::Around => {
                self.valid[chunk] &= !all;
                Tier::Slow
            }
            Writes::Through => {
                self.keep(p.chunk);
                self.valid[chunk] |= whole;
                Tier::Slow
            }
            Writes::Back => {
                self.keep(p.chunk);
                // A part of a block that the cache does not hold has to be read first; it costs a seek like any other.
                let torn = all & !whole & !self.valid[chunk];
                self.valid[chunk] |= all;
                self.dirty[chunk] |= all;
                if torn == 0 || p.kind == Kind::Birth {
                    Tier::Fast
                } else {
                    Tier::Slow
                }
            }
        }
    }

    /// Gives the chunk a frame, or makes its frame the latest.
    fn keep(&mut self, chunk: u32) {
        self.out.promotions += u64::from(self.lru.list_of(chunk).is_none());
        self.lru.put_front(0, chunk);
        if self.lru.len(0) > self.spec.frames {
            let Some(out) = self.lru.pop_back(0) else { return };
            self.valid[out as usize] = 0;
            if std::mem::take(&mut self.dirty[out as usize]) != 0 {
                self.out.demotions += 1;
                self.out.background_ns += self.cost.demote_ns;
            }
        }
    }

    fn discard(&mut self, chunk: u32) {
        self.lru.remove(chunk);
        self.valid[chunk as usize] = 0;
        self.dirty[chunk as usize] = 0;
    }
}

//! Placement: which chunks deserve the fast tier, and when they may be moved.
//!
//! Two halves that know nothing of each other, of I/O or of tasks:
//! - a [`Policy`] ranks chunks. It sees the map through a [`View`], hears of every request by [`Policy::touch`], and
//!   answers three questions: where does a new chunk go, which chunks should leave the fast tier, which should enter
//!   it. [`HeadTime`] is the one in use; baselines plug into the same seat.
//! - a [`Scheduler`] decides how many chunks may be on the move now. It sees only levels and latencies.
//!
//! The mover asks the scheduler for a [`Plan`], the policy for chunks, and carries them.

mod backoff;
mod births;
mod candidates;
mod carry;
mod copies;
mod correlate;
mod endurance;
mod evacuate;
mod foreground;
mod half_life;
mod headtime;
mod heat;
mod histogram;
mod influx;
mod latency;
mod levels;
pub(crate) mod lift;
pub(crate) mod mover;
mod newborn;
mod pace;
mod pause;
mod plan;
mod recency;
mod regions;
mod relief;
mod requests;
pub mod reserve;
mod residence;
mod sample;
pub mod schedule;
mod seeks;
mod share;
mod shortage;
mod sleepers;
mod stream;
mod tail_budget;
mod under_way;
mod unreadable;
pub(crate) mod view;
mod worth;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy;

pub(crate) use endurance::BURST as PROMOTION_BURST;
pub use headtime::HeadTime;
pub use influx::Influx;
pub use levels::Levels;
pub use plan::{Job, Plan};
pub use schedule::Scheduler;
pub use seeks::DeviceRange;

use crate::env::Instant;
use crate::units::{ChunkId, Tier};

/// Chunks of an aligned group of 1 MiB, the unit that moves prefer: one seek pays for all of them.
pub const GROUP_CHUNKS: u64 = 8;

/// Bytes of memory that a group keeps for each chunk: its entry, and its heat.
pub const BYTES_PER_CHUNK: usize = std::mem::size_of::<bimetal_format::Entry>() + std::mem::size_of::<u16>();

/// What a policy sees of the group. Every call is O(1), without I/O.
pub trait View {
    /// The time now.
    fn now(&self) -> Instant;

    /// Slots of the fast tier, over all its members.
    fn fast_slots(&self) -> u32;

    /// The chunk in the `i`-th fast slot (`i < fast_slots()`) if it may be moved: it belongs to a volume with placement
    /// `auto`, and no move of it is under way.
    fn fast_at(&self, i: u32) -> Option<ChunkId>;

    /// The fast slot of a chunk, `i` of [`View::fast_at`]; `None` if its home is elsewhere.
    fn fast_slot(&self, c: ChunkId) -> Option<u32>;

    /// Heat of a chunk, as the policy last set it or as [`Policy::restore`] made it.
    fn heat(&self, c: ChunkId) -> u16;

    /// Keeps the heat of a chunk in memory. Does not make the chunk's entry a pending change.
    fn set_heat(&mut self, c: ChunkId, heat: u16);

    /// Parts of a few hundred chunks that the group is made of, for [`View::change_heats`].
    fn parts(&self) -> u32;

    /// Shows all heats of a part to `change`, and keeps in memory what it says instead; nothing has to be saved for that. False if
    /// the part has no heats: nothing was ever used there.
    fn change_heats(&mut self, part: u32, change: impl Fn(u16) -> Option<u16>) -> bool;

    /// Where a chunk lives if it may be moved; `None` for a chunk that is unmapped, out of range, of a volume with
    /// another placement than `auto`, or on the move.
    fn tier_of(&self, c: ChunkId) -> Option<Tier>;

    /// Whether a chunk has a home, also one that cannot be moved now.
    fn is_mapped(&self, c: ChunkId) -> bool {
        self.tier_of(c).is_some()
    }

    /// Fast slots that can be taken at once.
    fn free_fast(&self) -> u32;

    /// Fast slots for new writes: free, or of cold chunks that can be let go ([`reserve`]).
    fn reserve(&self) -> u32;

    /// Those of them that are to be kept free.
    fn keep_free(&self) -> u32;

    /// Whether the SSD's life allows to promote chunks only because slots are free.
    fn may_fill(&self) -> bool;

    /// Whether a fast chunk has a kept copy on the slow tier.
    fn has_copy(&self, c: ChunkId) -> bool;

    /// 32 random bits; seeded in the simulator.
    fn random(&mut self) -> u32;
}

/// One foreground request's part in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The chunk.
    pub chunk: ChunkId,
    /// A write (or zeroing with allocation); otherwise a read.
    pub write: bool,
    /// Byte address in the group: `chunk * 128 KiB + offset in the chunk`.
    pub offset_in_group: u64,
    /// Bytes, at most a chunk.
    pub len: u64,
    /// The request gave the chunk its first home.
    pub born: bool,
}

/// Ranks chunks. All state besides one `u16` per chunk, kept by the [`View`], is a few hundred KiB at most; 1.5 MiB more if very many
/// chunks cannot be read.
pub trait Policy {
    /// The tier for a chunk that gets its first home, before [`Policy::touch`] is told of the same request. `Fast`
    /// is a wish: without a free fast slot the chunk goes to the slow tier, and the other way round.
    fn place(&mut self, v: &mut impl View, t: &Touch) -> Tier;

    /// Counts a request. Runs for every chunk of every foreground request: O(1), no allocation.
    fn touch(&mut self, v: &mut impl View, t: &Touch);

    /// At most `max` chunks that should leave the fast tier, coldest first within reason, then put in [`ChunkId`] order
    /// so that neighbours go together. Looks at a bounded number of slots; empty means none was found this time. The
    /// caller moves them now or forgets them. While less is free than should be, repeated calls find whatever can
    /// be moved (I6).
    fn victims(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId>;

    /// At most `max` chunks of the fast tier with a kept copy: those that only fill slots if new data have come, and if there are none, or
    /// less is free than should be, what is colder than new data, the coldest of them as far as it is known. In [`ChunkId`] order. As
    /// with [`Policy::victims`], empty means none was found this time.
    fn let_go(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId>;

    /// What the reserve needs to know.
    fn room(&mut self, v: &impl View) -> reserve::Learned;

    /// Chunks that only fill slots: [`Policy::let_go`] names them first.
    fn filled(&self) -> reserve::Filled;

    /// At most `max` chunks that should enter the fast tier, the most deserving first, in runs of neighbours. They are
    /// taken off the queue: the caller moves them now, or calls [`Policy::gave_up`].
    fn candidates(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId>;

    /// A slow chunk is about to be read whole, and [`Policy::touch`] has counted that: whether it should enter the fast
    /// tier now. If so it is taken off the queue: the caller moves it, or calls [`Policy::gave_up`].
    fn wants(&mut self, v: &mut impl View, c: ChunkId) -> bool;

    /// Whether a fast stream that the fast tier serves comes to chunks of the slow one in a moment.
    fn stream_comes(&self, now: Instant) -> bool;

    /// Chunks in the queue of [`Policy::candidates`], some of which may turn out not to deserve it any more.
    fn candidate_count(&self) -> usize;

    /// Somebody says that the chunk will be used soon (NBD CACHE).
    fn hint(&mut self, v: &mut impl View, c: ChunkId);

    /// A move of the chunk was committed.
    fn moved(&mut self, v: &mut impl View, c: ChunkId, to: Tier);

    /// A move of the chunk was cancelled, failed, or not begun. It is tried again after a while, a bounded number of
    /// times; after that only a new request can bring it back.
    fn gave_up(&mut self, v: &mut impl View, c: ChunkId);

    /// A chunk of this tier could not be read when it was to be moved: it is left alone for long, longer every time.
    fn cannot_read(&mut self, v: &mut impl View, c: ChunkId, tier: Tier);

    /// Whether a move of the chunk failed, and it is not to be tried again yet.
    fn has_to_wait(&self, v: &impl View, c: ChunkId) -> bool;

    /// A chunk was read and moved within its tier.
    fn was_read(&mut self, c: ChunkId);

    /// How many chunks of each tier could not be read, as far as is known. Cheap, but for once a minute.
    fn unreadable(&mut self, v: &impl View) -> [usize; 2];

    /// Heat as one byte of the entry on the members. 0 is the coldest.
    fn coarse(&self, heat: u16) -> u8;

    /// The heat that [`Policy::coarse`] stood for when [`Policy::octave`] was `at`, 0 if that is not known; after
    /// [`Policy::restore_clock`].
    fn restore(&self, coarse: u8, at: u32) -> u16;

    /// Heat for people: 0 (cold) to 15 (hot).
    fn heat_level(&self, heat: u16) -> u8;

    /// The policy's own clock, to be saved with the heats.
    fn clock(&self) -> u64;

    /// What is to be saved beside the coarse heats of a page, to be able to read them at any later time; never 0.
    fn octave(&self) -> u32;

    /// Sets the clock to what [`Policy::clock`] gave. To be called before any heat is restored.
    fn restore_clock(&mut self, clock: u64);
}

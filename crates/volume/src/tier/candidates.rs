//! The queue of chunks that want to enter the fast tier: a fixed table of 1 MiB groups, each with the chunks wanted and
//! a priority. A table rather than rings, because a hot chunk is seen again and again while it waits.
//!
//! Where not all can go, those asked for last go first: what waits long is the least likely to be used again.

use super::correlate::hash;
use super::GROUP_CHUNKS;
use crate::units::ChunkId;

/// Ways of a set: a group lives in one of these places.
const WAYS: usize = 4;
/// Groups at most: 8 GiB of candidates.
const ENTRIES: usize = 8192;
/// Priorities, the highest is served first.
pub(super) const PRIORITIES: usize = 8;

/// Requests that count as made at the same time: what they ask for goes in the order of addresses.
const SAME_TIME: u32 = 32;

/// When so many chunks of a group are wanted or on the fast tier, the others come along.
pub(super) const MOST_OF_GROUP: u32 = 4;

/// Chunks that come up when these of a group are wanted, as far as the queue knows.
fn brought_by(mask: u8) -> usize {
    match mask.count_ones() {
        0..MOST_OF_GROUP => mask.count_ones() as usize,
        _ => GROUP_CHUNKS as usize,
    }
}

/// Chunks of one group that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// `ChunkId / GROUP_CHUNKS`.
    pub(super) group: u64,
    /// Bit i: chunk `group * GROUP_CHUNKS + i`.
    pub(super) mask: u8,
    /// 0 to 7.
    pub(super) priority: u8,
    /// A chunk of it is wanted because a stream came again: the group is judged by the milder rule for streams.
    pub(super) stream: bool,
    /// When a chunk of it was asked for last, in [`SAME_TIME`] from 1 on; 0 for what would only fill a slot.
    pub(super) asked: u32,
}

const EMPTY: Wanted = Wanted { group: 0, mask: 0, priority: 0, stream: false, asked: 0 };

/// Places of the table with groups of one priority, a bit each: who takes a few of many need not look at all of it.
struct Places {
    words: Box<[u64]>,
    count: usize,
}

impl Places {
    fn none() -> Places {
        Places { words: vec![0; ENTRIES / 64].into_boxed_slice(), count: 0 }
    }

    /// Adds one that is not among them.
    fn add(&mut self, i: usize) {
        self.words[i / 64] |= 1 << (i % 64);
        self.count += 1;
    }

    /// Removes one that is among them.
    fn remove(&mut self, i: usize) {
        self.words[i / 64] &= !(1 << (i % 64));
        self.count -= 1;
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(n, word)| {
            // What is left of a word when its lowest bit is taken out, until nothing is.
            let rest = std::iter::successors(Some(*word), |w| Some(w & (w - 1)).filter(|w| *w != 0));
            rest.map(move |w| n * 64 + w.trailing_zeros() as usize)
        })
    }
}

/// The queue.
pub(super) struct Candidates {
    table: Box<[Wanted]>,
    chunks: usize,
    per_priority: [Places; PRIORITIES],
    /// Groups are served from here on upwards, then around: the head of a disk sweeps one way.
    sweep: u64,
    /// Requests so far.
    requests: u32,
}

impl Candidates {
    pub(super) fn new() -> Candidates {
        Candidates {
            table: vec![EMPTY; ENTRIES].into_boxed_slice(),
            chunks: 0,
            per_priority: std::array::from_fn(|_| Places::none()),
            sweep: 0,
            requests: 0,
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.table) + PRIORITIES * ENTRIES / 8
    }

    /// Chunks that may come up: those in the queue, and the rest of each group most of which is in it.
    pub(super) fn len(&self) -> usize {
        self.chunks
    }

    /// Adds a chunk; what has the lowest priority is dropped when there is no room.
    pub(super) fn push(&mut self, c: ChunkId, priority: u8, stream: bool) {
        // After 2^32 requests the oldest count as the newest once: they go first, which is no harm.
        self.requests = self.requests.wrapping_add(1);
        self.insert(Wanted {
            group: c.0 / GROUP_CHUNKS,
            mask: 1u8 << (c.0 % GROUP_CHUNKS),
            priority: priority.min(PRIORITIES as u8 - 1),
            stream,
            asked: self.requests / SAME_TIME + 1,
        });
    }

    /// Adds a chunk that would only fill a slot: after all others, in the order of addresses, from the last move on.
    pub(super) fn push_filling(&mut self, c: ChunkId) {
        self.insert(Wanted {
            group: c.0 / GROUP_CHUNKS,
            mask: 1u8 << (c.0 % GROUP_CHUNKS),
            priority: 0,
            stream: true,
            asked: 0,
        });
    }

    fn insert(&mut self, w: Wanted) {
        let set = Self::set_of(w.group);
        let same = set.clone().find(|i| self.table[*i].mask != 0 && self.table[*i].group == w.group);
        let place = same.or_else(|| set.clone().find(|i| self.table[*i].mask == 0)).or_else(|| {
            // What only fills goes first.
            let rank = |w: &Wanted| (w.priority, w.asked > 0);
            let least = set.min_by_key(|i| rank(&self.table[*i]))?;
            (rank(&self.table[least]) <= rank(&w)).then_some(least)
        });
        let Some(i) = place else { return };
        let old = self.clear(i);
        let merged = if same.is_some() {
            Wanted {
                mask: old.mask | w.mask,
                priority: old.priority.max(w.priority),
                stream: old.stream || w.stream,
                asked: old.asked.max(w.asked),
                ..w
            }
        } else {
            w
        };
        self.set(i, merged);
    }

    /// Whether a chunk is in the queue; if so, whether its group is judged by the rule for streams.
    pub(super) fn asked(&self, c: ChunkId) -> Option<bool> {
        self.place_of(c).map(|i| self.table[i].stream)
    }

    /// Takes one chunk out of the queue.
    pub(super) fn remove(&mut self, c: ChunkId) {
        let Some(i) = self.place_of(c) else { return };
        let w = self.clear(i);
        let rest = Wanted { mask: w.mask & !(1 << (c.0 % GROUP_CHUNKS)), ..w };
        if rest.mask != 0 {
            self.set(i, rest);
        }
    }

    fn place_of(&self, c: ChunkId) -> Option<usize> {
        let (group, bit) = (c.0 / GROUP_CHUNKS, 1u8 << (c.0 % GROUP_CHUNKS));
        Self::set_of(group).find(|i| self.table[*i].mask & bit != 0 && self.table[*i].group == group)
    }

    fn set_of(group: u64) -> std::ops::Range<usize> {
        let first = (hash(group) as usize % (ENTRIES / WAYS)) * WAYS;
        first..first + WAYS
    }

    fn set(&mut self, i: usize, w: Wanted) {
        self.table[i] = w;
        self.chunks += brought_by(w.mask);
        self.per_priority[w.priority as usize].add(i);
    }

    fn clear(&mut self, i: usize) -> Wanted {
        let old = std::mem::replace(&mut self.table[i], EMPTY);
        if old.mask != 0 {
            self.chunks -= brought_by(old.mask);
            self.per_priority[old.priority as usize].remove(i);
        }
        old
    }

    /// Takes up to `max` groups out: the highest priorities, among these what was asked for last, in sweep order.
    pub(super) fn take(&mut self, max: usize) -> Vec<Wanted> {
        if self.chunks == 0 || max == 0 {
            return Vec::new();
        }
        let mut lowest = 0;
        let mut groups = 0;
        for p in (0..PRIORITIES).rev() {
            groups += self.per_priority[p].count;
            if groups >= max {
                lowest = p;
                break;
            }
        }
        let sweep = self.sweep;
        let place = |w: &Wanted| w.group.wrapping_sub(sweep);
        let order = |w: &Wanted| (u8::MAX - w.priority, u32::MAX - w.asked, place(w));
        let waiting = self.per_priority[lowest..].iter().flat_map(Places::iter);
        let mut found: Vec<(_, usize)> = waiting.map(|i| (order(&self.table[i]), i)).collect();
        if found.len() > max {
            found.select_nth_unstable(max - 1);
            found.truncate(max);
        }
        found.sort_unstable_by_key(|((_, _, place), _)| *place);
        let taken: Vec<Wanted> = found.into_iter().map(|(_, i)| self.clear(i)).collect();
        if let Some(last) = taken.last() {
            self.sweep = last.group.wrapping_add(1);
        }
        taken
    }

    /// Puts back what [`Candidates::take`] gave and could not be used yet.
    pub(super) fn put_back(&mut self, w: Wanted) {
        if w.mask != 0 {
            self.sweep = w.group;
            self.insert(w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_chunk_is_queued_once_and_neighbours_share_an_entry() {
        let mut q = Candidates::new();
        for _ in 0..10 {
            for c in 16..24 {
                q.push(ChunkId(c), 3, false);
            }
        }
        assert_eq!(q.len(), 8);
        assert_eq!(
            q.take(10),
            [Wanted { group: 2, mask: 0xff, priority: 3, stream: false, asked: 80 / SAME_TIME + 1 }]
        );
        assert_eq!(q.len(), 0);
    }

    #[test]
    fn high_priorities_first_then_by_address() {
        let mut q = Candidates::new();
        for g in [9u64, 3, 7, 1, 5] {
            q.push(ChunkId(g * 8), if g > 4 { 5 } else { 1 }, false);
        }
        let groups = |v: Vec<Wanted>| v.iter().map(|w| w.group).collect::<Vec<_>>();
        assert_eq!(groups(q.take(2)), [5, 7]);
        assert_eq!(groups(q.take(9)), [9, 1, 3]);
    }

    #[test]
    fn what_was_asked_for_last_goes_first_in_the_order_of_addresses() {
        let mut q = Candidates::new();
        for g in (0..4 * u64::from(SAME_TIME)).rev() {
            q.push(ChunkId(g * 8), 3, false);
        }
        let groups = |v: Vec<Wanted>| v.iter().map(|w| w.group).collect::<Vec<_>>();
        let first = groups(q.take(40));
        assert!(first.is_sorted() && first[39] < 48, "{first:?}");
        // Asked for again, though it has waited the longest.
        q.push(ChunkId(4 * u64::from(SAME_TIME) * 8 - 8), 3, false);
        assert_eq!(groups(q.take(1)), [4 * u64::from(SAME_TIME) - 1]);
    }

    #[test]
    fn what_only_fills_goes_last_and_from_its_beginning() {
        let mut q = Candidates::new();
        (0..4 * u64::from(SAME_TIME)).for_each(|g| q.push_filling(ChunkId(g * 8)));
        (500..520).for_each(|g| q.push(ChunkId(g * 8), 0, true));
        let groups = |v: Vec<Wanted>| v.iter().map(|w| w.group).collect::<Vec<_>>();
        assert!(groups(q.take(20)).iter().all(|g| *g >= 500));
        assert_eq!(groups(q.take(3)), [0, 1, 2]);
        assert_eq!(groups(q.take(3)), [3, 4, 5]);
    }

    #[test]
    fn what_only_fills_takes_the_place_of_nothing_else() {
        let mut q = Candidates::new();
        let same_set: Vec<u64> = (0u64..).filter(|g| Candidates::set_of(*g) == Candidates::set_of(0)).take(6).collect();
        q.push(ChunkId(same_set[0] * 8), 0, false);
        same_set[1..5].iter().for_each(|g| q.push_filling(ChunkId(g * 8)));
        assert_eq!(q.asked(ChunkId(same_set[0] * 8)), Some(false));
        q.push(ChunkId(same_set[5] * 8), 0, false);
        assert_eq!([0, 5].map(|i| q.asked(ChunkId(same_set[i] * 8))), [Some(false); 2]);
        assert_eq!(q.len(), 4);
    }

    #[test]
    fn a_high_priority_does_not_stand_behind_what_was_asked_for_later() {
        let mut q = Candidates::new();
        q.push(ChunkId(8), 7, false);
        for n in 0..2 * u64::from(SAME_TIME) {
            q.push(ChunkId((10 + n % 5) * 8), 0, false);
        }
        assert!(q.take(2).iter().any(|w| w.group == 1));
    }

    #[test]
    fn one_chunk_can_be_taken_out_of_its_group() {
        let mut q = Candidates::new();
        (16..19).for_each(|c| q.push(ChunkId(c), 3, c == 18));
        assert_eq!((q.asked(ChunkId(17)), q.asked(ChunkId(19)), q.asked(ChunkId(9))), (Some(true), None, None));
        q.remove(ChunkId(17));
        q.remove(ChunkId(17));
        assert_eq!((q.len(), q.asked(ChunkId(17))), (2, None));
        assert_eq!(q.take(10), [Wanted { group: 2, mask: 0b101, priority: 3, stream: true, asked: 1 }]);
        q.push(ChunkId(40), 1, false);
        q.remove(ChunkId(40));
        assert_eq!((q.len(), q.take(1)), (0, Vec::new()));
    }

    #[test]
    fn a_range_of_8_gib_fits_and_the_count_stays_true() {
        let mut q = Candidates::new();
        for c in 0..65536u64 {
            q.push(ChunkId(c), 2, true);
        }
        assert!(q.len() > 60_000, "{}", q.len());
        for c in 0..1_000_000u64 {
            q.push(ChunkId(c * 3), (c % 8) as u8, false);
        }
        let mut counted = 0;
        loop {
            let before = q.len();
            let taken: usize = q.take(100).iter().map(|w| w.mask.count_ones() as usize).sum();
            if taken == 0 {
                break;
            }
            assert_eq!(q.len(), before - taken);
            counted += taken;
        }
        assert!(counted > 0 && q.len() == 0);
    }
}

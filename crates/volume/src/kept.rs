//! Kept copies (C9): the slow slot that a chunk left when it was promoted still holds the same data, and stays the
//! chunk's own while nobody writes to it and there is room. Such a chunk goes down again by an edit of the map, to its
//! old place; and after an orderly stop the slow member alone can serve it.
//!
//! Invariants:
//! 1. A kept copy equals the home in all valid blocks. A write ends it before anything is sent to the home.
//! 2. Its end is a change of the entry like any other: pending, then in a commit; its slot is *left* (C2.1).
//! 3. After a crash no copy counts: an overwrite in place leaves no trace in the map. `mirrors_from` in the labels,
//!    raised before anything is served, says so for all times (C9.1).
//! 4. The home is on a fast member, the copy on a slow one, and the volume's placement is `auto`.
//! 5. Copies stand in nobody's way (I5): they are dropped before slow slots become scarce, and at once when one is
//!    needed.
//! 6. Nothing goes down to a copy on a member that leaves ([`Core::copy_of`]): it may be leaving because it dies, and then what it holds
//!    cannot be read, while the home is good. Such copies are room for nobody; they are dropped before anything else leaves it.

use std::cell::Cell;

use bimetal_format::Entry;

use crate::env::Env;
use crate::group::core::Core;
use crate::member::{add, take_off};
use crate::mutant::{self, Mutant};
use crate::tier::reserve::Learned;
use crate::units::{ChunkId, MemberIndex, Placement, SlotId, Tier};
use crate::wait;

/// Copies are dropped while fewer than one slow slot in so many is free.
const FREE_SHARE: u64 = 50;
/// ... or, on small groups, fewer than this, but never more than an eighth.
const FREE_LEAST: u64 = 64;
/// Fast slots that a search for copies to drop looks at before others have their turn.
const SEARCH: u64 = 4096;
/// Copies found for each that is dropped: those of the hottest chunks go, which are the last to be demoted.
const CHOICE: usize = 4;

/// Generation that no page or record has: no copy counts.
const NEVER: u64 = u64::MAX;

/// Kept copies of a group.
#[derive(Default)]
pub(crate) struct Kept {
    /// What the policy has learned that the reserve needs to know.
    learned: Cell<Learned>,
    /// What older generations recorded does not count.
    from: Cell<u64>,
    /// Those that count may be older than their homes, which are gone: they are for `rescue` only (C9.2).
    old: Cell<bool>,
    /// Next fast slot to look at.
    hand: Cell<u64>,
    /// Somebody is looking for copies to drop.
    seeking: Cell<bool>,
    /// Demotions that copied nothing, since the group was opened.
    pub(crate) used: Cell<u64>,
    /// Copies ended by a write.
    pub(crate) ended: Cell<u64>,
    /// Copies dropped for their slots.
    pub(crate) dropped: Cell<u64>,
    /// Chunks sent down to theirs to make room for new data.
    pub(crate) let_go: Cell<u64>,
}

/// Somebody looks for copies to drop until this is dropped.
struct Seeking<'a>(&'a Cell<bool>);

impl Drop for Seeking<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Kept {
    /// The policy has learned this.
    pub(crate) fn learn(&self, learned: Learned) {
        self.learned.set(learned);
    }

    /// What the policy has learned.
    pub(crate) fn learned(&self) -> Learned {
        self.learned.get()
    }

    /// Whether copies may be older than their homes.
    pub(crate) fn may_be_old(&self) -> bool {
        self.old.get()
    }

    /// Says so.
    pub(crate) fn set_old(&self, old: bool) {
        self.old.set(old);
    }

    /// What copies count from now on: those recorded since `generation`, or none.
    pub(crate) fn count_from(&self, generation: Option<u64>) {
        self.from.set(generation.unwrap_or(NEVER));
    }

    /// The generation that the labels of a new epoch must name, which begins with `first`.
    pub(crate) fn mirrors_from(&self, first: u64) -> u64 {
        match self.from.get() {
            NEVER => first,
            from => from,
        }
    }

    /// An entry that a page or record of this generation holds, without a copy that does not count.
    pub(crate) fn believed(&self, generation: u64, e: Entry) -> Entry {
        match generation < self.from.get() {
            true => e.without_kept(),
            false => e,
        }
    }
}

/// The slot of the kept copy.
pub(crate) fn kept_slot(e: &Entry) -> Option<SlotId> {
    e.kept().filter(|_| e.is_mapped()).map(|(member, slot)| SlotId { member, slot })
}

/// All slots that an entry holds: its home and its kept copy.
pub(crate) fn slots_of(e: &Entry) -> impl Iterator<Item = SlotId> {
    let home = e.is_mapped().then_some(SlotId { member: e.member, slot: e.slot });
    home.into_iter().chain(kept_slot(e))
}

impl<E: Env> Core<E> {
    /// The kept copy that a chunk may go down to.
    pub(crate) fn copy_of(&self, e: &Entry) -> Option<SlotId> {
        let stays = |s: &SlotId| self.members[s.member as usize].takes_chunks();
        kept_slot(e).filter(|s| stays(s) || mutant::on(Mutant::C9DownToLeaver))
    }

    /// Chunks that have one, which is as good as the home.
    pub(crate) fn copies(&self) -> u64 {
        match self.kept.may_be_old() {
            true => 0,
            false => self.open_to_chunks(Tier::Slow).map(|m| m.copies.get()).sum(),
        }
    }

    /// Those of them that somebody would get a slot by if they were dropped now.
    pub(crate) fn copies_in_reach(&self) -> u64 {
        match self.kept.may_be_old() {
            true => 0,
            false => self.members_of(Tier::Slow).filter(|m| m.takes_chunks()).map(|m| m.copies.get()).sum(),
        }
    }

    /// Keeps the counts of copies true when an entry changes.
    pub(crate) fn count_copies(&self, before: &Entry, after: &Entry) {
        let of = |e: &Entry| kept_slot(e).map(|s| &self.members[s.member as usize].copies);
        of(after).into_iter().for_each(|n| add(n, 1));
        of(before).into_iter().for_each(|n| take_off(n, 1));
    }

    /// Slow slots below whose number copies are dropped. More than the mover leaves to clients: else it would wait for
    /// ever on a group that is full of copies.
    fn kept_floor(&self) -> u64 {
        let slots = self.slots_in(Tier::Slow);
        (slots / FREE_SHARE).max(FREE_LEAST).min(slots / 8).max(self.headroom() / 2 + 1)
    }

    /// Whether a slot that a chunk leaves on this member may stay the chunk's own: it is a slow one, with room.
    pub(crate) fn may_keep(&self, member: MemberIndex) -> bool {
        let slow = self.tier_of_member(member) == Tier::Slow && self.members[member as usize].takes_slots();
        slow && self.available(Tier::Slow, Placement::Auto) > self.kept_floor()
    }

    /// A write to the chunk is about to begin: its copy is one no longer.
    pub(crate) fn end_kept(&self, chunk: ChunkId) {
        let Some(e) = self.map.borrow().get(chunk).filter(|e| kept_slot(e).is_some()) else { return };
        if mutant::on(Mutant::C9WriteKeepsCopy) {
            return;
        }
        add(&self.kept.ended, 1);
        self.change_entry(chunk, e.without_kept());
    }

    /// How many copies should be dropped for the free slow slots to suffice.
    pub(crate) fn kept_excess(&self) -> usize {
        let kept = self.copies();
        if kept == 0 {
            return 0;
        }
        let (free, floor) = (self.available(Tier::Slow, Placement::Auto), self.kept_floor());
        if free >= floor {
            return 0;
        }
        // What a leaving member gets free is room for nobody.
        let slow = |m: u8| self.open_to_chunks(Tier::Slow).any(|o| o.index == m);
        let left = self.commit.left.borrow().iter().filter(|l| slow(l.slot.member)).count();
        let coming = left + self.open_to_chunks(Tier::Slow).map(|m| self.reclaiming_on(m)).sum::<usize>();
        (floor - free).min(kept).saturating_sub(coming as u64) as usize
    }

    /// Drops up to `max` copies, and asks for the commit and the journal writes that free their slots. Some at least, if there are any but
    /// of chunks on the move: few may lie anywhere on a large fast tier. Others have their turn meanwhile.
    pub(crate) async fn drop_kept(&self, max: usize) {
        if max == 0 || self.copies_in_reach() == 0 || self.kept.seeking.replace(true) {
            return;
        }
        let _seeking = Seeking(&self.kept.seeking);
        let calls = self.slots_present(Tier::Fast).div_ceil(SEARCH);
        for call in 0..calls {
            if call > 0 {
                wait::turn().await;
            }
            if self.health.is_latched() || self.drop_some(max) {
                return;
            }
        }
    }

    /// Drops copies that are found in the next few thousand slots, if the next commit has room. False if there are none.
    fn drop_some(&self, max: usize) -> bool {
        // A commit's worth at most, beside what clients change (I10).
        let max = max.min((self.commit.limit.get() / 4).max(1));
        let room = match mutant::on(Mutant::DropsWaitForRequests) {
            true => self.commit.has_room(max),
            false => self.commit.has_room_for_drops(max),
        };
        if !room {
            self.commit.want_next();
            return true;
        }
        let mut found = self.find_kept(max.saturating_mul(CHOICE));
        let map = self.map.borrow();
        found.sort_by_key(|c| std::cmp::Reverse(self.policy_heat(map.heat(*c))));
        drop(map);
        found.truncate(max);
        for chunk in &found {
            let e = self.map.borrow().get(*chunk).expect("it was just found there");
            self.change_entry(*chunk, e.without_kept());
        }
        add(&self.kept.dropped, found.len() as u64);
        if !found.is_empty() {
            self.commit.want_next();
            self.demand_slots();
        }
        !found.is_empty()
    }

    fn policy_heat(&self, heat: u16) -> u8 {
        use crate::tier::Policy;
        self.policy.borrow().heat_level(heat)
    }

    /// Up to `max` chunks with a copy that are not on the move. What a member that leaves, or is lost, gets free is room for nobody.
    fn find_kept(&self, max: usize) -> Vec<ChunkId> {
        let slots = self.slots_present(Tier::Fast).max(1);
        let mut found = Vec::new();
        for _ in 0..SEARCH.min(slots) {
            let at = self.kept.hand.get() % slots;
            self.kept.hand.set(at + 1);
            let has = |c: &ChunkId| self.map.borrow().get(*c).is_some_and(|e| self.copy_of(&e).is_some());
            if let Some(c) = self.chunk_in_fast(at).filter(|c| has(c) && !self.claims.in_motion(*c)) {
                found.push(c);
            }
            if found.len() >= max {
                break;
            }
        }
        found
    }

    /// The chunk in the `i`-th slot of the fast tier.
    pub(crate) fn chunk_in_fast(&self, mut i: u64) -> Option<ChunkId> {
        for m in self.members_of(Tier::Fast) {
            let occupants = m.occupants.borrow();
            if i < occupants.len() as u64 {
                return occupants.get(i as u32);
            }
            i -= occupants.len() as u64;
        }
        None
    }
}

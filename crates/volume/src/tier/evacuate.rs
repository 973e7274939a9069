//! A member is emptied: what lives on it goes to other members, by the same steps as any move (copied, synced, switched,
//! committed). Invariants of moves: see [`super::mover`].
//!
//! 1. Within a tier where there is room, else, for volumes that may live on both, to the other one: never into what
//!    volumes bound to a tier were promised, nor into the half of the headroom that is the clients' (I5).
//! 2. Beside clients it takes a quarter of the time at most; alone all of it.
//! 3. It ends when no slot of the member is in use, and goes on until then: a chunk that cannot go now, or cannot be read, is
//!    tried again, less and less often, and keeps no other from going. Of what is written all the time writers wait in the
//!    end, one chunk at a time: the only move that they ever wait for (D7).

use std::rc::Rc;
use std::time::Duration;

use super::mover::{add_to, Move};
use super::Job;
use crate::claim::Claimed;
use crate::env::Env;
use crate::group::core::Core;
use crate::kept::kept_slot;
use crate::member::{Member, Standing};
use crate::units::{ChunkId, MemberIndex, Placement, SlotId, Tier};
use crate::wait;
use bimetal_format::ENTRIES_PER_PAGE;

/// Chunks looked up at a time: 512 MiB, moved in the order of their slots.
const ROUND: usize = 4096;
/// Pages of the map looked through without a pause.
const PAGES_AT_ONCE: u32 = 512;
/// Chunks moved together while nobody else uses the tier, and beside clients.
const BATCH: usize = 64;
const BATCH_BESIDE: usize = 8;
/// Batches on their way while nobody else uses the tier.
const AT_ONCE: usize = 2;
/// A tier left alone by clients for so long is idle.
const IDLE: Duration = Duration::from_millis(100);
/// Beside clients: rest after a batch, in times that it took, and at most.
const REST: u32 = 3;
const REST_MOST: Duration = Duration::from_secs(2);
/// After a pass that freed nothing, and after many of them.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MOST: Duration = Duration::from_secs(30);
/// When passes that freed nothing are this far apart, writers have to wait for what is left.
const FORCED: Duration = Duration::from_millis(400);
/// Between looks whether a chunk that writers wait for has switched.
const SWITCHED: Duration = Duration::from_millis(1);
/// A stop is noticed after so long.
const NOTICE: Duration = Duration::from_millis(200);

impl<E: Env> Core<E> {
    /// Slots of a member that something lives on, or that are on their way to being free.
    pub(crate) fn slots_used(&self, m: &Member<E::Device>) -> u64 {
        let (count, free) = (m.free.borrow().count(), m.free.borrow().free());
        let kept_back = self.quarantine.borrow().iter().filter(|s| s.member == m.index).count() as u64;
        count - free - kept_back
    }

    /// Empties the members that are leaving, as a task of its own, if there is none yet.
    pub(crate) fn start_evacuating(self: &Rc<Self>) {
        self.mover.leaving.notify();
        if !self.mover.evacuating.replace(true) {
            let core = self.clone();
            self.env.spawn(async move {
                core.evacuate_all().await;
                core.mover.evacuating.set(false);
                core.mover.ended.notify();
            });
        }
    }

    fn evacuates(&self) -> bool {
        !self.stopping.get() && !self.stopped.get() && !self.health.is_latched()
    }

    async fn evacuate_all(self: &Rc<Self>) {
        let used =
            |indexes: &[MemberIndex]| indexes.iter().map(|m| self.slots_used(&self.members[*m as usize])).sum::<u64>();
        let mut rest = AGAIN;
        while self.evacuates() {
            let another = self.mover.leaving.wait();
            let leaving =
                self.members.iter().filter(|m| m.standing.get() == Standing::Leaving && self.slots_used(m) > 0);
            let leaving: Vec<MemberIndex> = leaving.map(|m| m.index).collect();
            if leaving.is_empty() {
                return;
            }
            let before = used(&leaving);
            for m in &leaving {
                self.evacuate(*m, rest >= FORCED).await;
            }
            // What a dying disk cannot read is not asked for without a pause.
            if used(&leaving) < before {
                rest = AGAIN;
            } else {
                let until = self.env.now().plus(rest);
                wait::first(self.rest(rest), another).await;
                // One more member leaves, and waits for no other.
                let early = self.env.now() < until;
                rest = if early { AGAIN } else { (rest * 2).min(AGAIN_MOST) };
            }
        }
    }

    async fn rest(&self, duration: Duration) {
        let until = self.env.now().plus(duration);
        while self.evacuates() && self.env.now() < until {
            self.env.sleep(until.since(self.env.now()).min(NOTICE)).await;
        }
    }

    /// Moves chunks that are written all the time: writers wait while theirs is on the way, one at a time.
    async fn force_away(self: &Rc<Self>, m: MemberIndex, chunks: &[ChunkId]) {
        for chunk in chunks {
            if !self.evacuates() || self.members[m as usize].standing.get() != Standing::Leaving {
                return;
            }
            let claim = self.claims.claim_alone(*chunk).await;
            let Some((job, mv)) = self.begin_evacuation(m, *chunk, &[None; 2], Some(&claim)) else { continue };
            self.send_off(job, vec![mv]).await;
            while self.claims.in_motion(*chunk) && self.evacuates() {
                self.env.sleep(SWITCHED).await;
            }
        }
    }

    /// One pass over all that is on a member.
    async fn evacuate(self: &Rc<Self>, m: MemberIndex, forced: bool) {
        let member = &self.members[m as usize];
        let mut page = Some(0);
        while let Some(first) = page {
            if !self.evacuates() || member.standing.get() != Standing::Leaving {
                break;
            }
            let (mut found, next) = self.find_on(m, first).await;
            page = next;
            found.sort_unstable();
            let chunks: Vec<ChunkId> = found.into_iter().map(|(_, c)| c).collect();
            match forced {
                true => self.force_away(m, &chunks).await,
                false => self.move_away(m, &chunks).await,
            }
        }
        // What has left is free after a commit, a journal write and a discard.
        self.commit.want_next();
        self.reclaim.demand();
    }

    /// Up to [`ROUND`] chunks that live on `m`, each with its slot, from a page on; and the page to go on with. Kept
    /// copies that lie there are dropped on the way.
    async fn find_on(&self, m: MemberIndex, first: u32) -> (Vec<(u32, ChunkId)>, Option<u32>) {
        let mut found = Vec::new();
        let pages = self.map.borrow().len() as u32;
        for page in first..pages {
            if found.len() >= ROUND {
                return (found, Some(page));
            }
            let mut copies = Vec::new();
            if let Some(p) = self.map.borrow().page(page) {
                let start = u64::from(page) * ENTRIES_PER_PAGE as u64;
                for (i, e) in p.entries().enumerate().filter(|(_, e)| e.is_mapped()) {
                    let chunk = ChunkId(start + i as u64);
                    if e.member == m {
                        found.push((e.slot, chunk));
                    }
                    if kept_slot(&e).is_some_and(|s| s.member == m) {
                        copies.push(chunk);
                    }
                }
            }
            self.drop_copies(&copies, m).await;
            if (page + 1 - first) % PAGES_AT_ONCE == 0 {
                wait::turn().await;
            }
        }
        (found, None)
    }

    async fn drop_copies(&self, chunks: &[ChunkId], m: MemberIndex) {
        for chunk in chunks {
            while !self.commit.has_room(1) && self.evacuates() {
                self.commit.want_next();
                wait::first(self.commit.done.wait(), self.env.sleep(AGAIN)).await;
            }
            let entry = self.map.borrow().get(*chunk);
            let there = entry.filter(|e| kept_slot(e).is_some_and(|s| s.member == m));
            if let Some(e) = there.filter(|_| self.evacuates() && !self.claims.in_motion(*chunk)) {
                self.change_entry(*chunk, e.without_kept());
            }
        }
        if !chunks.is_empty() {
            self.commit.want_next();
        }
    }

    /// Moves chunks off a member, as many at a time as clients leave time for.
    async fn move_away(self: &Rc<Self>, m: MemberIndex, chunks: &[ChunkId]) {
        let mut rest = chunks;
        while !rest.is_empty() && self.evacuates() && self.members[m as usize].standing.get() == Standing::Leaving {
            if self.mover.is_held() {
                self.rest(AGAIN).await;
                continue;
            }
            // Without the mover nobody else drops copies for room.
            let excess = self.kept_excess();
            if excess > 0 {
                self.drop_kept(excess);
            }
            let idle = self.quiet_for_evacuation(m) >= IDLE;
            let (batch, at_once) = if idle { (BATCH, AT_ONCE) } else { (BATCH_BESIDE, 1) };
            let begun = self.env.now();
            let mut batches = Vec::new();
            for _ in 0..at_once {
                let (now, later) = rest.split_at(rest.len().min(batch.min((self.commit.limit.get() / 4).max(1))));
                rest = later;
                let moves = self.begin_evacuations(m, now);
                for (job, moves) in moves.into_iter().filter(|(_, moves)| !moves.is_empty()) {
                    batches.push(self.send_off(job, moves));
                }
            }
            if batches.is_empty() {
                wait::turn().await;
                continue;
            }
            wait::all(batches).await;
            if !idle {
                let took = self.env.now().since(begun);
                self.rest((took * REST).min(REST_MOST)).await;
            }
        }
    }

    /// How long clients have left alone what a member's chunks are read from and where they go.
    fn quiet_for_evacuation(&self, m: MemberIndex) -> Duration {
        let own = self.members[m as usize].tier;
        let to = self.shelter(own, Placement::Auto).unwrap_or(own);
        self.quiet_for(own).min(self.quiet_for(to))
    }

    fn begin_evacuations(&self, m: MemberIndex, chunks: &[ChunkId]) -> [(Job, Vec<Move>); 2] {
        let mut moves = [(Job::Demote, Vec::new()), (Job::Promote, Vec::new())];
        let mut last: [Option<(ChunkId, SlotId)>; 2] = [None; 2];
        for chunk in chunks {
            if let Some((job, mv)) = self.begin_evacuation(m, *chunk, &last, None) {
                last[job as usize] = Some((*chunk, mv.to));
                let place = if job == Job::Demote { 0 } else { 1 };
                moves[place].1.push(mv);
            }
        }
        for (_, moves) in &mut moves {
            moves.sort_by_key(|mv| mv.to);
        }
        moves
    }

    fn begin_evacuation(
        &self,
        m: MemberIndex,
        chunk: ChunkId,
        last: &[Option<(ChunkId, SlotId)>; 2],
        claim: Option<&Claimed<'_>>,
    ) -> Option<(Job, Move)> {
        let entry = self.entry(chunk).ok().filter(|e| e.is_mapped() && e.member == m)?;
        let tier = self.shelter(self.members[m as usize].tier, self.placement_of(chunk)?)?;
        if !claim.map_or_else(|| self.claims.begin_motion(chunk), |c| self.claims.begin_motion_under(c)) {
            return None;
        }
        let job = if tier == Tier::Fast { Job::Promote } else { Job::Demote };
        let beside = last[job as usize].and_then(|l| self.take_after(l, chunk));
        let Some(to) = beside.or_else(|| self.take_slot(tier, chunk)) else {
            self.claims.end_motion(chunk);
            return None;
        };
        let from = SlotId { member: m, slot: entry.slot };
        let certain = !self.members[m as usize].tainted.borrow().contains(&from.slot);
        Some((job, Move { chunk, from, to, mask: entry.mask, kept: false, certain }))
    }

    /// The tier in which a chunk of this placement finds a place: its own rather than the other one, and either beyond
    /// the reserve rather than in it.
    fn shelter(&self, own: Tier, placement: Placement) -> Option<Tier> {
        let room = |tier| self.available(tier, placement);
        let free = self.available(Tier::Fast, Placement::Auto) + self.available(Tier::Slow, Placement::Auto);
        if placement == Placement::Auto && free <= self.headroom() / 2 {
            return None;
        }
        let kept_free = |tier| if tier == Tier::Fast { self.reserve_slots() } else { 0 };
        let tiers = [own, own.other()];
        let beyond = tiers.into_iter().find(|t| room(*t) > kept_free(*t));
        beyond.or_else(|| tiers.into_iter().find(|t| room(*t) > 0))
    }

    /// Carries a batch; completes when it has been copied, and mostly when it has been switched.
    async fn send_off(self: &Rc<Self>, job: Job, moves: Vec<Move>) {
        add_to(&self.mover.batches, 1);
        add_to(&self.mover.copying[job as usize], moves.len());
        add_to(&self.mover.under_way[job as usize], moves.len());
        self.clone().run_batch(job, moves, Vec::new()).await;
    }
}

//! A member is emptied: what lives on it goes to other members, by the same steps as any move (copied, synced, switched,
//! committed). Invariants of moves: see [`super::mover`].
//!
//! 1. Within a tier where there is room, else, for volumes that may live on both, to the other one: never into what
//!    volumes bound to a tier were promised, nor into the half of the headroom that is the clients' (I5).
//! 2. Alone it takes all of the time; between requests of clients it goes on with a short queue; beside those that leave no gaps
//!    it takes a quarter of the time at most, as much as keeps the tail of requests to the slow tier ([`super::tail_budget`]); beside
//!    small requests to the fast tier that never pause, wherever it is, as much as these do not feel ([`super::pace`]).
//! 3. While the connection to a member is lost it rests, as all moves do: what would fail beside it, or latch the group, may go on.
//! 4. It ends when no slot of the member is in use, and goes on until then: a chunk that cannot go now, or cannot be read, is
//!    tried again, less and less often, and keeps no other from going. Of what is written all the time writers wait in the
//!    end, one chunk at a time (D7): the only move that they wait for, but for room that the mover owes them (`io/place.rs`).

mod find;
mod place;
mod throttle;

use std::rc::Rc;
use std::time::Duration;

use self::throttle::NotYet;
use super::mover::{add_to, take_from, Move};
use super::under_way::{Planner, Stage};
use super::Job;
use crate::env::Env;
use crate::group::core::Core;
use crate::io::place::Still;
use crate::member::{Member, Standing};
use crate::units::{ChunkId, MemberIndex};
use crate::wait;

/// Slots of the member whose chunks are looked up at a time: 64 GiB, moved in the order in which they lie there. The whole map is
/// looked through for them; the list of them takes 8 MiB.
const SPAN: u32 = 1 << 19;
/// Chunks that are on their way, at most.
const UNDER_WAY: usize = 1024;
/// Beside clients: rest after a batch, in times that copying it took, and at most.
const REST: u32 = 3;
const REST_MOST: Duration = Duration::from_secs(2);
/// After a pass that freed nothing, and after many of them.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MOST: Duration = Duration::from_secs(30);
/// When passes that freed nothing are this far apart, writers have to wait for what is left.
const FORCED: Duration = Duration::from_millis(400);
/// The shortest rest.
const SOON: Duration = Duration::from_millis(1);
/// Chunks looked at without a pause.
const LOOKED_AT: usize = 64;
/// Between looks whether a chunk that writers wait for has switched.
const SWITCHED: Duration = Duration::from_millis(1);
/// For so long they wait for it at most.
const WRITERS_WAIT: Duration = Duration::from_secs(5);
/// While the connection to a member is lost, whether it still is is looked at so often.
const LOST: Duration = Duration::from_secs(1);
/// A stop is noticed after so long.
const NOTICE: Duration = Duration::from_millis(200);

impl<E: Env> Core<E> {
    /// Slots of a member that something lives on, or that are on their way to being free.
    pub(crate) fn slots_used(&self, m: &Member<E::Device>) -> u64 {
        let (count, free) = (m.free.borrow().count(), m.free.borrow().free());
        count - free - self.kept_back_on(m.index)
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

    /// Whether a member is to be emptied further now.
    fn goes_on(&self, m: MemberIndex) -> bool {
        let leaves = self.members[m as usize].standing.get() == Standing::Leaving;
        self.evacuates() && leaves && self.lost_member().is_none()
    }

    async fn evacuate_all(self: &Rc<Self>) {
        let used =
            |indexes: &[MemberIndex]| indexes.iter().map(|m| self.slots_used(&self.members[*m as usize])).sum::<u64>();
        let mut rest = AGAIN;
        while self.evacuates() {
            if self.lost_member().is_some() {
                self.rest(LOST).await;
                continue;
            }
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
        for (n, chunk) in chunks.iter().enumerate() {
            if n % LOOKED_AT == LOOKED_AT - 1 {
                wait::turn().await;
            }
            if !self.goes_on(m) {
                return;
            }
            let claim = self.claims.claim_alone(*chunk).await;
            let Some((job, mv)) = self.begin_evacuation(m, *chunk, Some(&claim)) else { continue };
            self.send_off(job, vec![mv]);
            // A disk may stand still over it: then the next write ends the move, and it is tried again.
            let until = self.env.now().plus(WRITERS_WAIT);
            while self.claims.in_motion(*chunk) && self.evacuates() && self.env.now() < until {
                wait::first(self.mover.ended.wait(), self.env.sleep(SWITCHED)).await;
            }
        }
    }

    /// Completes when all batches that were sent off have ended, but for what hangs on a member that stands still.
    async fn evacuations_ended(&self) {
        while self.mover.evacuations.get() > 0 && self.mover.leaving_now(&self.standing_still()) > 0 {
            wait::first(self.mover.ended.wait(), self.env.sleep(NOTICE)).await;
        }
    }

    /// One pass over all that is on a member.
    async fn evacuate(self: &Rc<Self>, m: MemberIndex, forced: bool) {
        let member = &self.members[m as usize];
        let slots = member.free.borrow().count() as u32;
        for first in (0..slots).step_by(SPAN as usize) {
            if !self.goes_on(m) {
                break;
            }
            let span = first..slots.min(first.saturating_add(SPAN));
            if !member.free.borrow().any_taken(span.clone()) {
                continue;
            }
            self.drop_copies_on_leavers().await;
            let chunks = self.find_on(m, span).await;
            self.move_away(m, &chunks).await;
            if forced {
                // Only what would not go otherwise: perhaps the devices failed for a moment, and now all would.
                self.evacuations_ended().await;
                self.force_away(m, &chunks).await;
            }
        }
        self.evacuations_ended().await;
        self.drop_copies_on_leavers().await;
        // What has left is free after a commit, a journal write and a discard.
        self.commit.want_next();
        self.demand_slots();
    }

    /// Moves chunks off a member, as many at a time as clients leave time for.
    async fn move_away(self: &Rc<Self>, m: MemberIndex, chunks: &[ChunkId]) {
        let mut rest = chunks;
        while !rest.is_empty() && self.goes_on(m) {
            if self.mover.is_held() {
                self.rest(AGAIN).await;
                continue;
            }
            // Without the mover nobody else drops copies for room.
            self.drop_kept(self.kept_excess()).await;
            // Others may have had their turn.
            if self.mover.is_held() || !self.goes_on(m) {
                continue;
            }
            let throttle = match self.throttle(m) {
                Ok(throttle) => throttle,
                Err(NotYet::HandsFull) => {
                    wait::first(self.mover.ended.wait(), self.env.sleep(NOTICE)).await;
                    continue;
                }
                Err(NotYet::Rest(rest)) => {
                    self.rest(rest.max(SOON)).await;
                    continue;
                }
            };
            let most = self.in_runs(m, &rest[..rest.len().min(throttle.batch)], throttle.runs);
            let (now, later) = rest.split_at(most.min((self.commit.limit.get() / 4).max(1)));
            rest = later;
            let begun = self.env.now();
            let batches = self.begin_evacuations(m, now);
            if batches.is_empty() {
                wait::turn().await;
                continue;
            }
            batches.into_iter().for_each(|(job, moves)| self.send_off(job, moves));
            if throttle.rests {
                // What waits for syncs and commits leaves most disks alone: it takes no part in this.
                while self.evacuating_copies() > 0 {
                    wait::first(self.mover.ended.wait(), self.env.sleep(NOTICE)).await;
                }
                let took = self.env.now().since(begun);
                self.rest((took * REST).min(REST_MOST)).await;
            }
        }
    }

    /// Chunks of evacuations that are being copied, but for those that hang on a member that stands still.
    fn evacuating_copies(&self) -> usize {
        self.mover.under_way.of_both(Planner::Evacuation, Stage::Copying, &self.standing_still())
    }

    /// Carries a batch as a task of its own.
    fn send_off(self: &Rc<Self>, job: Job, moves: Vec<Move>) {
        let m = &self.mover;
        add_to(&m.evacuations, 1);
        add_to(&m.batches, 1);
        moves.iter().for_each(|mv| self.begins(job, mv));
        m.scheduler.borrow_mut().foreground.evacuation_begins(self.env.now());
        let core = self.clone();
        self.env.spawn(async move {
            core.clone().run_batch(job, moves, Vec::new()).await;
            let left = core.mover.leaving_now(&Still::default());
            core.mover.scheduler.borrow_mut().foreground.evacuates(left > 0, core.env.now());
            take_from(&core.mover.evacuations, 1);
            core.mover.ended.notify();
        });
    }
}

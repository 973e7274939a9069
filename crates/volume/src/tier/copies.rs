//! How many copies are under way at a time, and that they give way to requests.
//!
//! What a disk was sent is served among what clients ask of it, whatever it is for. So of a batch that begins while nobody wants
//! anything of the slow tier, few copies are sent at a time, and none while somebody does: a request that comes waits for one or
//! two of them, not for all. A batch that was planned beside requests goes at once: how many of them it holds up was thought of,
//! and one copy after the other would hold up more.
//!
//! Invariants:
//! 1. No copy waits for ever: after [`GIVES_WAY`] they go one by one, however busy the disks are.
//! 2. None waits while new data are short of room, or a volume bound to the slow tier of what it was promised; when the group stops,
//!    or when moves are to end.
//! 3. So many are under way at a time on each slow member. Turns come in the order of the batch, whichever member they are of: its
//!    moves end together.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use super::carry::Copied;
use super::foreground::{QUIET_LIGHT, QUIET_LONG};
use super::mover::Move;
use super::schedule::QUIET_PROMOTE;
use super::Job;
use crate::env::{Env, Instant};
use crate::group::core::Core;
use crate::units::{MemberIndex, Placement, Tier};
use crate::wait::{self, Mutex, Signal};

/// Copies under way at most while the slow tier is quiet for long, for a while, or perhaps only within a row of requests.
const WHILE_IDLE: usize = 16;
const WHILE_BETWEEN: usize = 2;
const WHILE_WITHIN: usize = 1;
/// A batch gives way for so long. After that a copy goes so long after the one before it.
const GIVES_WAY: Duration = Duration::from_secs(10);
const ONE_BY_ONE: Duration = Duration::from_millis(100);
/// It is looked again after this time.
const LOOK: Duration = Duration::from_millis(10);

/// Copies under way that give way to requests.
#[derive(Default)]
pub(super) struct Copies {
    /// Of each slow member.
    under_way: RefCell<BTreeMap<MemberIndex, usize>>,
    /// When one ended last.
    last: Cell<Option<Instant>>,
    ended: Signal,
}

/// Copies that may be under way after such a quiet of the slow tier.
fn width(quiet: Duration) -> usize {
    match quiet {
        q if q >= QUIET_LONG => WHILE_IDLE,
        q if q >= QUIET_PROMOTE => WHILE_BETWEEN,
        q if q >= QUIET_LIGHT => WHILE_WITHIN,
        _ => 0,
    }
}

impl<E: Env> Core<E> {
    /// Whether a batch that begins now gives way to requests.
    pub(super) fn gives_way(&self, job: Job, moves: &[Move]) -> bool {
        let planned = moves.iter().all(|m| !m.evacuates);
        planned && self.quiet_for(Tier::Slow) >= QUIET_LIGHT && !self.copies_are_urgent(job)
    }

    fn copies_are_urgent(&self, job: Job) -> bool {
        let short = || self.available(Tier::Fast, Placement::Auto) * 2 < self.keep_free_slots();
        let needed = match job {
            Job::Demote => short(),
            Job::Promote => self.owed_below() > 0,
        };
        self.stopping.get() || self.mover.is_held() || needed
    }

    /// Copies each run when it is its turn; what was given for each, in order.
    pub(super) async fn copy_in_turn(&self, job: Job, runs: &[&[Move]]) -> Vec<Vec<Copied>> {
        let (begun, next, front) = (self.env.now(), Cell::new(0), Mutex::default());
        let copied = RefCell::new(vec![Vec::new(); runs.len()]);
        let lane = || async {
            loop {
                // One at a time waits, the others for that one.
                let turn = front.lock().await;
                let n = next.get();
                let Some(run) = runs.get(n) else { return };
                next.set(n + 1);
                let member = self.slow_member_of(&run[0]);
                if !run[0].kept {
                    self.wait_for_turn(job, member, begun).await;
                }
                *self.mover.copies.under_way.borrow_mut().entry(member).or_default() += 1;
                drop(turn);
                let done = self.copy_run(run).await;
                copied.borrow_mut()[n] = done;
                self.copy_ended(member);
            }
        };
        wait::all((0..WHILE_IDLE.min(runs.len())).map(|_| lane()).collect()).await;
        copied.into_inner()
    }

    fn slow_member_of(&self, mv: &Move) -> MemberIndex {
        match self.tier_of_member(mv.from.member) {
            Tier::Slow => mv.from.member,
            Tier::Fast => mv.to.member,
        }
    }

    fn copy_ended(&self, member: MemberIndex) {
        let copies = &self.mover.copies;
        if let Some(n) = copies.under_way.borrow_mut().get_mut(&member) {
            *n -= 1;
        }
        copies.last.set(Some(self.env.now()));
        copies.ended.notify();
    }

    async fn wait_for_turn(&self, job: Job, member: MemberIndex, begun: Instant) {
        let copies = &self.mover.copies;
        loop {
            let ended = copies.ended.wait();
            let now = self.env.now();
            let under_way = copies.under_way.borrow().get(&member).copied().unwrap_or(0);
            let waited = now.since(begun) >= GIVES_WAY
                && under_way == 0
                && copies.last.get().is_none_or(|last| now.since(last) >= ONE_BY_ONE);
            if waited || under_way < width(self.quiet_for(Tier::Slow)) || self.copies_are_urgent(job) {
                return;
            }
            wait::first(ended, self.env.sleep(LOOK)).await;
        }
    }
}

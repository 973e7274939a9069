//! Moves on their way, counted.
//!
//! Counted by the two members that they go between: what hangs on one that stands still must not look like work that goes on, or
//! nothing else would be begun beside it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::mover::Move;
use super::Job;
use crate::io::place::Still;
use crate::units::MemberIndex;

/// What of a move is not over yet. All that are copying or finishing are on their way, too.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Its data are being copied.
    Copying,
    /// They have been, and it has not switched.
    Finishing,
    /// From the first to the last step.
    OnItsWay,
    /// What it writes to the slow tier may be in a disk's cache.
    Unsettled,
    /// Its chunk is of a volume bound to the slow tier, has a slot on another member already, and counts as promised one until it switches.
    Rehoming,
}

const STAGES: usize = 5;

/// Whose move it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Planner {
    Scheduler,
    /// A member is being emptied: the scheduler has not sent it off.
    Evacuation,
}

impl Planner {
    fn of(mv: &Move) -> Planner {
        match mv.evacuates {
            true => Planner::Evacuation,
            false => Planner::Scheduler,
        }
    }
}

/// Moves of a kind and of a planner between two members.
type Way = (usize, Planner, MemberIndex, MemberIndex);

/// The counts: of each way that moves are on, those in each stage.
#[derive(Default)]
pub(crate) struct UnderWay(RefCell<BTreeMap<Way, [usize; STAGES]>>);

impl UnderWay {
    /// This move comes to a stage.
    pub(super) fn begins(&self, job: Job, stage: Stage, mv: &Move) {
        let way = (job as usize, Planner::of(mv), mv.from.member, mv.to.member);
        self.0.borrow_mut().entry(way).or_default()[stage as usize] += 1;
    }

    /// It is past it.
    pub(super) fn ends(&self, job: Job, stage: Stage, mv: &Move) {
        let way = (job as usize, Planner::of(mv), mv.from.member, mv.to.member);
        let mut ways = self.0.borrow_mut();
        let counts = ways.get_mut(&way).expect("it came to this stage");
        counts[stage as usize] -= 1;
        if *counts == [0; STAGES] {
            ways.remove(&way);
        }
    }

    /// Moves of a kind in a stage, but for those from or to one of these members.
    pub(super) fn of(&self, job: Job, planner: Planner, stage: Stage, but: &Still) -> usize {
        self.between(job, planner, stage, |from, to| !but.has(from) && !but.has(to))
    }

    /// Those between members of which this holds: the one that is left, and the other one.
    pub(super) fn between(
        &self,
        job: Job,
        planner: Planner,
        stage: Stage,
        holds: impl Fn(MemberIndex, MemberIndex) -> bool,
    ) -> usize {
        let ways = self.0.borrow();
        let own = ways.iter().filter(|(way, _)| (way.0, way.1) == (job as usize, planner));
        own.filter(|((_, _, from, to), _)| holds(*from, *to)).map(|(_, n)| n[stage as usize]).sum()
    }

    /// Moves of both kinds in a stage, but for those.
    pub(super) fn of_both(&self, planner: Planner, stage: Stage, but: &Still) -> usize {
        [Job::Demote, Job::Promote].into_iter().map(|job| self.of(job, planner, stage, but)).sum()
    }
}

//! Discards of slots that are on their way to being free. They are hints, and may take long: nobody who needs anything else of the
//! member waits for them.

use std::cell::Cell;
use std::time::Duration;

use crate::env::{DeviceError, Env};
use crate::group::core::Core;
use crate::member::{add, Member};
use crate::mutant::{self, Mutant};
use crate::units::{SlotId, SlotIndex, CHUNK};
use crate::wait::{self, Signal};

/// A member that leaves a discard unanswered for so long gets no more of them before the next start: it is a hint that nobody
/// should wait for. The slots are not used either, since it may still be carried out.
const DISCARD_PATIENCE: Duration = Duration::from_secs(30);
/// Most slots given to one discard, and what part of those that may be kept back: a discard that is never answered keeps its slots back,
/// and what is promised to volumes must be there all the same (I5). Each member may have one of them.
pub(super) const DISCARD_SLOTS: usize = 512;
const DISCARD_SHARE: u64 = 8;

/// Discards that devices have not answered.
#[derive(Default)]
pub(crate) struct Discards {
    unanswered: Cell<usize>,
    /// One of them has been answered.
    answered: Signal,
}

impl<E: Env> Core<E> {
    /// Discards these slots, which are in order, unless the group stops meanwhile. Gives those that may be used, and of these the ones
    /// whose discard has failed: it may still be carried out. What a member does not answer for is kept back until the next start.
    pub(crate) async fn discard_runs(
        &self,
        m: &Member<E::Device>,
        slots: &[SlotIndex],
    ) -> (Vec<SlotIndex>, Vec<SlotIndex>) {
        let (mut usable, mut unsure) = (Vec::new(), Vec::new());
        let (spare, members) = (self.may_be_kept_back(m.tier), self.members_of(m.tier).count() as u64);
        let at_once = match spare >= members {
            true => ((spare / DISCARD_SHARE.max(2 * members)) as usize).clamp(1, DISCARD_SLOTS),
            false => 0,
        };
        for run in slots.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(at_once.max(1))) {
            let discards = m.discards() && !self.stopped.get() && at_once > 0;
            let hint = if discards { self.discard_run(m, run).await } else { Some(Ok(())) };
            match hint {
                // A hint: a member that cannot do it loses nothing.
                Some(Ok(()) | Err(DeviceError::Unsupported)) => {}
                Some(Err(_)) => unsure.extend_from_slice(run),
                None if mutant::on(Mutant::C2HungDiscardFreed) => {}
                None => {
                    let mut kept_back = self.quarantine.borrow_mut();
                    for slot in run.iter().map(|&slot| SlotId { member: m.index, slot }) {
                        if !kept_back.contains(&slot) {
                            kept_back.push(slot);
                        }
                    }
                    continue;
                }
            }
            usable.extend_from_slice(run);
        }
        (usable, unsure)
    }

    /// Discards neighbouring slots; `None` if the member does not answer.
    async fn discard_run(&self, m: &Member<E::Device>, run: &[SlotIndex]) -> Option<Result<(), DeviceError>> {
        let discards = &self.reclaim.discards;
        discards.unanswered.set(discards.unanswered.get() + 1);
        let answer = async { Some(m.discard(m.layout.slot(run[0]), run.len() as u64 * CHUNK).await) };
        let patience = async {
            self.env.sleep(DISCARD_PATIENCE).await;
            None
        };
        let hint = wait::first(answer, patience).await;
        match hint.is_some() {
            true => {
                discards.unanswered.set(discards.unanswered.get() - 1);
                discards.answered.notify();
            }
            // It counts as one that is under way, for a stop that waits for them.
            false => {
                m.discards_hang.set(true);
                add(&m.counters.errors, 1);
            }
        }
        hint
    }

    /// Completes when no device has a discard to answer any more, after this time at the latest. A server that is told so after the
    /// connection has ended may carry it out beside what the next daemon writes.
    pub(crate) async fn discards_ended(&self, patience: Duration) {
        let all = async {
            while self.reclaim.discards.unanswered.get() > 0 {
                self.reclaim.discards.answered.wait().await;
            }
        };
        wait::first(all, self.env.sleep(patience)).await;
    }
}

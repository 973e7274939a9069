//! Steps that verify the group beside the requests of clients: nothing may be found but what was damaged on purpose.

use bimetal_volume::error::Error;
use bimetal_volume::inspect::Problem;
use bimetal_volume::units::{MemberIndex, Tier};

use super::client::Client;
use super::damage::LABEL;
use super::SLOTS_START;
use crate::counters::Seen;

const BLOCK: u64 = 4096;
/// Blocks from the second label to the end of a disk.
const SECOND_LABEL: u64 = 512;

impl Client {
    /// Damages all metadata of a disk under the running engine, but for one label.
    pub(super) fn rot(&self, disk: usize) {
        for block in LABEL.end..SLOTS_START / 4096 {
            let mut store = self.shared.disks[disk].store_mut();
            self.shared.world.random(|p| store.rot(block, p));
        }
        self.rot_label(disk);
    }

    /// Damages the second label of a disk.
    pub(super) fn rot_label(&self, disk: usize) {
        let mut store = self.shared.disks[disk].store_mut();
        let second = store.blocks() - SECOND_LABEL;
        for block in second..second + LABEL.end - LABEL.start {
            self.shared.world.random(|p| store.rot(block, p));
        }
        self.shared.rotten.set(true);
    }

    /// Damages the map of a disk: pages, directory and root.
    pub(super) fn rot_map(&self, disk: usize) {
        let mut store = self.shared.disks[disk].store_mut();
        let Some(layout) = super::forge::layout(&store, disk) else { return };
        for block in layout.map / BLOCK..layout.away / BLOCK {
            self.shared.world.random(|p| store.rot(block, p));
        }
        self.shared.rotten.set(true);
        // A checkpoint that has just written it, and reads it back, is right to take writes from everybody.
        self.shared.world.inject(|i| {
            i.metadata += 1;
            i.grave[disk] += 1;
        });
    }

    /// Verifies the group.
    pub(super) async fn check(&self, mend: bool) {
        let before = self.shared.world.injected();
        let (lost, latched) = (self.lost_members(), self.group.status().latched.is_some());
        let result = self.group.check(mend, &|_, _| {}).await;
        if !self.answered() {
            return;
        }
        if !latched {
            self.lost_are_left_alone(&lost);
        }
        // What cannot be read is told of, and what cannot be written anew.
        let now = self.shared.world.injected();
        let undisturbed = (now.reads, now.writes) == (before.reads, before.writes);
        match result {
            Ok(mut report) => {
                if before.header_writes > self.start.header_writes {
                    report.problems.retain(|p| !p.what.contains("a header that was replaced"));
                }
                let lost = self.lost_members();
                let unverified =
                    |p: &Problem| p.what.contains("was not verified") && p.member.is_some_and(|m| lost.contains(&m));
                report.problems.retain(|p| !unverified(p));
                // A write that failed may have left a label half written.
                let latched = self.group.status().latched.is_some();
                let rotten = self.shared.rotten.get();
                let wrong = match (self.shared.damaged || latched, rotten) {
                    (true, _) => report.problems.iter().find(|p| p.serious && !latched),
                    (false, false) => report.problems.first(),
                    (false, true) => report.problems.iter().find(|p| p.serious || mend && !p.mended),
                };
                let all_mended = mend && report.problems.iter().all(|p| p.mended);
                self.shared.rotten.set(rotten && !all_mended);
                self.shared.marks.borrow_mut().mark_if(rotten && mend && !report.problems.is_empty(), Seen::Mended);
                if let Some(p) = wrong.filter(|_| undisturbed) {
                    self.shared.fail(format!("a check of the group in use finds {p:?}"));
                }
                self.shared.marks.borrow_mut().mark(Seen::Checked);
            }
            Err(Error::Stopping) => {}
            Err(e) if mend => self.judge(super::judge::Kind::Flush, "a check", &e, before),
            Err(e) => self.shared.fail(format!("a check of the group in use was refused: {e}")),
        }
    }

    /// A check that began when these members were lost has sent them nothing for which the group latches. Where nothing is moved and no
    /// table changed, nobody else writes the journal or map of a slow one then.
    fn lost_are_left_alone(&self, lost: &[MemberIndex]) {
        let status = self.group.status();
        let Some(why) = status.latched.filter(|_| !self.shared.moves) else { return };
        for m in status.members.iter().filter(|m| m.tier == Tier::Slow && lost.contains(&m.index)) {
            let mended =
                ["a journal write", "a metadata write"].map(|what| format!("{what} of member {} failed", m.index));
            if mended.iter().any(|words| why.starts_with(words)) {
                self.shared.fail(format!("a check beside a lost member takes writes from everybody: {why}"));
            }
        }
    }
}

//! How many runs had what: a simulator that never fills a group or never tears a page proves nothing about it.

use std::fmt;

/// What a run can have. The order is that of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A chunk moved to the fast tier.
    Promotion,
    /// A chunk moved to the slow tier.
    Demotion,
    /// A move given up because a write came.
    CancelledMove,
    /// A journal ring began again at its first block.
    JournalWrap,
    /// A power cut tore a block of a map zone.
    TornPage,
    /// A write waited because no slot was free.
    FullGroup,
    /// A crash before the group was open.
    CrashInRecovery,
    /// A TRIM or zeroing hit a chunk in motion.
    TrimDuringMove,
    /// A sync that failed.
    FailedSync,
    /// A write that failed.
    FailedWrite,
    /// A read that failed.
    FailedRead,
    /// A checkpoint.
    Checkpoint,
    /// A group that latched.
    Latched,
    /// A start without all members, or with an old one.
    DamagedStart,
    /// The death of the daemon alone.
    DaemonDeath,
    /// A member that broke its promise, and was found out.
    BrokenPromise,
    /// The liveness phase.
    Liveness,
    /// What nobody flushed was there after a power cut, an interval later.
    KeptInTime,
    /// A promoted chunk whose old place was kept.
    KeptCopy,
    /// A demotion to the kept place, without copying.
    Uncopied,
    /// Chunks let go for new data.
    LetGo,
    /// A promotion of what a client's read had brought.
    Lifted,
    /// Promotions held back by the endurance budget.
    Spared,
    /// A kept copy ended by a write.
    KeptEnded,
    /// A chunk of the slow tier that a client wrote whole, and that came up by it.
    WrittenAnew,
    /// A kept copy dropped because slow slots were scarce.
    KeptDropped,
    /// A volume made while the group was open.
    Made,
    /// A volume deleted.
    Deleted,
    /// A volume resized or renamed.
    Changed,
    /// A volume that shrank.
    Shrunk,
    /// A member added while the group was open.
    MemberAdded,
    /// A device that failed while it was being added.
    NewDeviceFailed,
    /// A member that was to leave, and has.
    MemberLeft,
    /// A member that was to leave, and stayed.
    MemberKept,
    /// A member that was slow as one is that dies, but answered.
    SickMember,
    /// A member that died when it had been emptied, and was done without.
    DeadLeaver,
    /// A member of which only itself, or only the others, knew that it was leaving.
    HalfTold,
    /// A volume copied onto a plain device while it was in use.
    Dissolved,
    /// One of which the copy was given up at its end.
    NotDissolved,
    /// A family made, deleted, or given another header.
    Family,
    /// A volume that had held plaintext was given a family.
    Encrypted,
    /// A volume was encrypted to the end, and no plaintext of it was left on any member.
    NoPlaintext,
    /// A family was locked while clients used its volumes.
    Locked,
    /// A group was repaired of which a member was gone, or damaged.
    Repaired,
    /// A repair was cut off.
    RepairCutOff,
    /// A new device of a repair that was done without it came back after yet another repair.
    LeftByOlder,
    /// A start that mended a member was cut off.
    MendingCutOff,
    /// A client that died while a request of its was under way.
    DeadClient,
    /// The group was verified while it was in use.
    Checked,
    /// Such a check found damage, and mended it.
    Mended,
    /// A start that could not read a page of the map, or a block of a page directory or of away bits.
    UnreadAtStart,
    /// A start that had to hold slots back until their member knows who is in them.
    SlotsHeld,
    /// A read-only start with a hole in the only journal.
    GapServed,
    /// A member without labels that was recognised.
    Recognised,
    /// A member that died while it was used, and was back for the next start.
    DiedInUse,
    /// Two halves of a group were used apart, and came together again.
    UsedApart,
    /// What a group had left behind was opened alone.
    LeftBehind,
}

/// Names, and whether one run in a hundred must have it.
const NAMES: [(&str, bool); Seen::LeftBehind as usize + 1] = [
    ("promotion", true),
    ("demotion", true),
    ("cancelled move", true),
    ("journal wrap", true),
    ("torn map page", true),
    ("full group", true),
    ("crash in recovery", true),
    ("TRIM during a move", true),
    ("failed sync", true),
    ("failed write", false),
    ("failed read", false),
    ("checkpoint", false),
    ("latched", false),
    ("damaged start", false),
    ("daemon death", false),
    ("broken promise found", false),
    ("liveness phase", false),
    ("kept in time", false),
    ("kept copy", true),
    ("demotion uncopied", true),
    ("let go", false),
    ("lift", true),
    ("promotions spared", false),
    ("kept copy written", true),
    ("chunk written anew", true),
    ("kept copy dropped", false),
    ("volume made", true),
    ("volume deleted", true),
    ("volume changed", true),
    ("volume shrunk", true),
    ("member added", true),
    ("new device failed", false),
    ("member left", true),
    ("member kept", false),
    ("member slow, not dead", true),
    ("emptied member dead", false),
    ("leaving known to some", false),
    ("volume dissolved", true),
    ("volume not dissolved", false),
    ("family changed", true),
    ("volume encrypted", true),
    ("plaintext gone", true),
    ("family locked", false),
    ("repair", true),
    ("repair cut off", true),
    ("new device of an older repair", false),
    ("mending cut off", false),
    ("client died", true),
    ("checked in use", true),
    ("mended in use", false),
    ("metadata unread at start", false),
    ("slots held at start", true),
    ("journal gap served", false),
    ("member recognised", false),
    ("member died in use", true),
    ("used apart", false),
    ("left behind, alone", true),
];

/// What one run had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u64);

impl Marks {
    /// The run had this.
    pub fn mark(&mut self, seen: Seen) {
        self.0 |= 1 << seen as u32;
    }

    /// The run had this if `yes`.
    pub fn mark_if(&mut self, yes: bool, seen: Seen) {
        if yes {
            self.mark(seen);
        }
    }

    /// Whether the run had this.
    pub fn has(self, seen: Seen) -> bool {
        self.0 >> seen as u32 & 1 == 1
    }
}

/// Sums over many runs.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    runs: u64,
    with: Vec<u64>,
    /// Crash points passed, requests answered, crashes survived.
    pub points: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Crashes.
    pub crashes: u64,
}

impl Counters {
    /// Adds a run.
    pub fn add(&mut self, marks: Marks) {
        self.runs += 1;
        self.with.resize(NAMES.len(), 0);
        for (i, n) in self.with.iter_mut().enumerate() {
            *n += marks.0 >> i & 1;
        }
    }

    /// Runs.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Adds the runs of another.
    pub fn merge(&mut self, other: &Counters) {
        self.runs += other.runs;
        self.points += other.points;
        self.requests += other.requests;
        self.crashes += other.crashes;
        self.with.resize(NAMES.len(), 0);
        for (a, b) in self.with.iter_mut().zip(&other.with) {
            *a += b;
        }
    }

    /// What fewer than one run in a hundred had, of what must be seen. Empty with fewer than 1000 runs.
    pub fn unseen(&self) -> Vec<&'static str> {
        let rare = |i: &usize| self.with.get(*i).is_none_or(|n| n * 100 < self.runs);
        let all = 0..NAMES.len();
        all.filter(|i| NAMES[*i].1 && self.runs >= 1000).filter(rare).map(|i| NAMES[i].0).collect()
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} runs, {} requests, {} crashes, {} crash points",
            self.runs, self.requests, self.crashes, self.points
        )?;
        for ((name, _), n) in NAMES.iter().zip(&self.with) {
            writeln!(f, "  {name:<24} {n:>9} runs  {:>6.2} %", *n as f64 * 100.0 / self.runs.max(1) as f64)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_features_are_named() {
        let mut c = Counters::default();
        for i in 0..2000 {
            let mut m = Marks::default();
            m.mark(Seen::Promotion);
            m.mark_if(i < 19, Seen::Demotion);
            c.add(m);
        }
        assert!(c.unseen().contains(&"demotion") && !c.unseen().contains(&"promotion"));
        assert!(!c.unseen().contains(&"failed read"), "not required");
    }
}

//! What a check of a group found: `POST /v1/check`, and `bimetal check --json`.

use bimetal_volume::inspect::Report;
use bimetal_volume::units;
use serde::{Deserialize, Serialize};

use super::SCHEMA;

/// `POST /v1/check`: the group is verified while it is in use. The answer is a [`super::Job`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CheckRequest {
    /// What is damaged is written anew.
    #[serde(default)]
    pub(crate) mend: bool,
}

impl Problem {
    /// How much it matters; nothing is said of what a start mends that may not come, because of something `serious`.
    pub(crate) fn weight(&self, serious: bool) -> &'static str {
        match (self.mended, self.serious, self.in_memory) {
            (true, ..) => " (mended)",
            (false, true, _) => " (SERIOUS)",
            (false, false, true) => " (the daemon has it whole)",
            (false, false, false) if self.by_check => " (`bimetal check --mend` mends it while the group is in use)",
            (false, false, false) if serious => "",
            (false, false, false) => " (the next start mends it)",
        }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) schema: u32,
    pub(crate) group: String,
    /// Nothing is wrong (any more).
    pub(crate) sound: bool,
    /// Verified while it was served.
    pub(crate) in_use: bool,
    /// It was stopped in order. Never while it is in use.
    pub(crate) clean: bool,
    pub(crate) problems: Vec<Problem>,
    /// More of the same that are not among them.
    #[serde(default)]
    pub(crate) untold: u64,
    /// Members that are not there, in words.
    pub(crate) absent: Vec<String>,
    /// Devices that may be such members, and are there, or may be, but cannot be used as they are, in words.
    #[serde(default)]
    pub(crate) unread: Vec<String>,
    /// Where such members may be that nobody has looked at, in words.
    #[serde(default)]
    pub(crate) elsewhere: Vec<String>,
    /// Devices that the configuration names and that are no members, in words.
    pub(crate) no_members: Vec<String>,
    /// Copies of map pages, on all members together.
    pub(crate) pages_verified: u64,
    /// That the next start replays; while it is in use: that were verified in the journals.
    pub(crate) records_to_replay: u64,
    pub(crate) chunks: u64,
    pub(crate) kept_chunks: u64,
    /// Volumes whose space is being freed.
    pub(crate) deleting: Vec<String>,
    pub(crate) slots: Vec<Slots>,
    /// Write requests of a check that must not write: always zero.
    pub(crate) writes: u64,
}

/// When the group was verified last while it was in use, and what came of it. In `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastCheck {
    /// Since its end.
    pub(crate) seconds_ago: u64,
    /// The daemon did it of its own accord.
    pub(crate) by_itself: bool,
    /// What was found.
    pub(crate) problems: u64,
    /// What of that was written anew, and is whole now.
    pub(crate) mended: u64,
    /// Data is lost or in doubt.
    pub(crate) serious: bool,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// The member that shows it, if it is one member's.
    pub(crate) member: Option<u8>,
    pub(crate) what: String,
    /// Data is lost or in doubt.
    pub(crate) serious: bool,
    /// The daemon has it whole, in memory or on another member, and writes it anew if it is asked to.
    #[serde(default)]
    pub(crate) in_memory: bool,
    /// A copy that no start looks at as long as a better one is there: a check of the group in use mends it.
    #[serde(default)]
    pub(crate) by_check: bool,
    /// It was written anew, and is whole now.
    pub(crate) mended: bool,
}

/// Space of a member, in slots of 128 KiB and in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Slots {
    pub(crate) member: u8,
    pub(crate) tier: String,
    /// Where it was found.
    pub(crate) locator: Option<String>,
    pub(crate) used: u64,
    pub(crate) used_bytes: u64,
    pub(crate) free: u64,
    pub(crate) free_bytes: u64,
}

impl Checked {
    /// From what the engine found; `place` tells the tier of a member, and where it is.
    pub(crate) fn of(r: Report, place: impl Fn(u8) -> (String, Option<String>)) -> Checked {
        let slots = |(member, used, free): &(u8, u64, u64)| {
            let (tier, locator) = place(*member);
            let (used_bytes, free_bytes) = (used * units::CHUNK, free * units::CHUNK);
            Slots { member: *member, tier, locator, used: *used, used_bytes, free: *free, free_bytes }
        };
        let problems = r.problems.iter().map(|p| Problem {
            member: p.member,
            what: p.what.clone(),
            serious: p.serious,
            in_memory: p.in_memory,
            by_check: p.by_check,
            mended: p.mended,
        });
        Checked {
            schema: SCHEMA,
            sound: r.is_sound(),
            problems: problems.collect(),
            untold: r.untold,
            in_use: r.in_use,
            clean: r.clean,
            absent: Vec::new(),
            unread: Vec::new(),
            elsewhere: Vec::new(),
            no_members: Vec::new(),
            pages_verified: r.pages,
            records_to_replay: r.records,
            chunks: r.chunks,
            kept_chunks: r.kept,
            deleting: r.deleting,
            slots: r.slots.iter().map(slots).collect(),
            writes: r.writes,
            group: r.name,
        }
    }
}

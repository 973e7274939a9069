//! What a group tells about itself: `GET /v1/status`, `GET /v1/health`.

use bimetal_volume::units;
use serde::{Deserialize, Serialize};

use super::{Attachment, Dissolving, LastCheck};

/// `state` of a member that is to leave.
pub(crate) const LEAVING: &str = "leaving";

/// `GET /v1/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) schema: u32,
    /// The group's name.
    pub(crate) group: String,
    pub(crate) uuid: String,
    /// `serving`, `stopping` or `not running`.
    pub(crate) state: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// When that process began, in the kernel's ticks since the boot: ids are given away again. Earlier versions lack it.
    #[serde(default)]
    pub(crate) process_began: Option<u64>,
    /// Seconds since the daemon began to serve.
    pub(crate) uptime_seconds: u64,
    pub(crate) read_only: bool,
    /// Why writes are refused after an error, if they are.
    pub(crate) latched: Option<String>,
    /// Plain sentences: what tiering does and why, what waits, what needs a person.
    pub(crate) summary: Vec<String>,
    pub(crate) generation: u64,
    pub(crate) commits: u64,
    /// Changes that wait for the next commit.
    pub(crate) pending_changes: u64,
    /// Fast space for new data: free, or of cold data that make room at once, or in use as long as few new data come.
    pub(crate) reserve_bytes: u64,
    /// What of it is to be free.
    #[serde(default)]
    pub(crate) keep_free_bytes: u64,
    /// What of the rest makes room at once.
    #[serde(default)]
    pub(crate) room_at_once_bytes: u64,
    pub(crate) fast_free_bytes: u64,
    pub(crate) members: Vec<Member>,
    pub(crate) volumes: Vec<Volume>,
    /// Families: volumes that share an encryption key.
    #[serde(default)]
    pub(crate) families: Vec<Family>,
    /// Volumes that are deleted, but whose chunks still hold space.
    #[serde(default)]
    pub(crate) deleting: Vec<Volume>,
    pub(crate) mover: Mover,
    /// What moved in the last ten minutes, newest last.
    #[serde(default)]
    pub(crate) recent_moves: Vec<RecentMoves>,
    /// Sentences about the recovery at the start.
    pub(crate) recovery: Vec<String>,
    /// Where clients connect: `nbd+unix://...`.
    pub(crate) exports: Vec<String>,
    pub(crate) clients: Vec<Client>,
    /// The volumes as files, while they are shown.
    #[serde(default)]
    pub(crate) files: Option<Files>,
    pub(crate) attachments: Vec<Attachment>,
    /// The volume that is being copied onto a plain device, or was last.
    #[serde(default)]
    pub(crate) dissolving: Option<Dissolving>,
    /// When it was verified last since the daemon began, and what came of it.
    #[serde(default)]
    pub(crate) last_check: Option<LastCheck>,
    /// What keeps a requested stop waiting.
    #[serde(default)]
    pub(crate) stop_waits_for: Vec<String>,
}

/// A member of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) index: u8,
    pub(crate) uuid: String,
    pub(crate) tier: String,
    /// Where it was found.
    pub(crate) locator: Option<String>,
    pub(crate) present: bool,
    /// What it is in its group, in words.
    #[serde(default)]
    pub(crate) state: String,
    pub(crate) size_bytes: u64,
    pub(crate) slots: u64,
    pub(crate) free_slots: u64,
    pub(crate) leaving_slots: u64,
    pub(crate) quarantined_slots: u64,
    pub(crate) journal_used_blocks: u64,
    pub(crate) journal_blocks: u64,
    /// Pages of its copy of the map.
    #[serde(default)]
    pub(crate) map_pages: u64,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) discarded_bytes: u64,
    pub(crate) errors: u64,
    /// Requests that it has not answered yet, and for how long the oldest of them has waited.
    #[serde(default)]
    pub(crate) unanswered: u64,
    #[serde(default)]
    pub(crate) unanswered_seconds: u64,
    /// Why all its requests fail, if the connection to it is lost.
    #[serde(default)]
    pub(crate) lost: Option<String>,
}

impl Member {
    /// Whether it is to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        self.present && self.state == LEAVING
    }

    /// Bytes in use on it, as far as they are known.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.slots.saturating_sub(self.free_slots + self.quarantined_slots) * units::CHUNK
    }
}

/// A volume of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) size_bytes: u64,
    /// Logical sector.
    pub(crate) sector_bytes: u32,
    pub(crate) placement: String,
    pub(crate) fast_bytes: u64,
    pub(crate) slow_bytes: u64,
    /// The family whose key encrypts it, if it has one.
    #[serde(default)]
    pub(crate) family: Option<String>,
    /// It cannot be read or written: its family is locked.
    #[serde(default)]
    pub(crate) locked: bool,
    /// How far its encryption is, while it may still be found in plain on some member.
    #[serde(default)]
    pub(crate) encrypting: Option<Encrypting>,
}

/// How far the encryption of a volume is that was plain before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Encrypting {
    /// Of its data, what is not encrypted yet.
    pub(crate) plain_bytes: u64,
    /// Space of the members that may still hold some of its plaintext and is to be overwritten; known when that has begun.
    pub(crate) to_overwrite_bytes: u64,
    /// All that is to be done, data and space together, in percent.
    pub(crate) done_percent: u64,
    /// Why it does not go on: `locked` or `failing`.
    pub(crate) waits_for: Option<String>,
}

/// A family: volumes that share an encryption key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Family {
    pub(crate) name: String,
    /// Also that of its LUKS2 header.
    pub(crate) uuid: String,
    /// Its key is in the daemon's memory.
    pub(crate) unlocked: bool,
    /// Names of its volumes.
    pub(crate) volumes: Vec<String>,
    /// What its header takes on every member.
    pub(crate) header_bytes: u64,
}

/// What the mover did since the daemon began to serve, in chunks of 128 KiB.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mover {
    pub(crate) promoted_chunks: u64,
    pub(crate) demoted_chunks: u64,
    /// Of these, such as still had their place on the slow tier, so that nothing was copied.
    #[serde(default)]
    pub(crate) demoted_uncopied_chunks: u64,
    /// Sent there to make room for new data at once.
    #[serde(default)]
    pub(crate) let_go_chunks: u64,
    /// Came to the fast tier without being moved, because a client wrote them whole.
    #[serde(default)]
    pub(crate) written_anew_chunks: u64,
    /// On the fast tier, with their place on the slow tier kept.
    #[serde(default)]
    pub(crate) kept_chunks: u64,
    pub(crate) cancelled_chunks: u64,
    pub(crate) failed_chunks: u64,
    pub(crate) in_flight_chunks: u64,
    pub(crate) candidate_chunks: u64,
    pub(crate) doing: String,
    pub(crate) why: String,
}

/// Moves within one minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecentMoves {
    /// Whole minutes ago.
    pub(crate) minutes_ago: u64,
    pub(crate) promoted_bytes: u64,
    pub(crate) demoted_bytes: u64,
}

/// A connected NBD client, or a ublk device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) peer: String,
    pub(crate) export: String,
    pub(crate) connected_seconds: u64,
    pub(crate) requests: u64,
    pub(crate) bytes_in_flight: u64,
}

impl Client {
    /// The process that has connected, as the daemon counts processes, where it is known.
    pub(crate) fn process(&self) -> Option<u32> {
        self.peer.strip_prefix("pid ")?.parse().ok().filter(|pid| *pid != 0)
    }
}

/// The FUSE mount in which each volume is a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Files {
    pub(crate) folder: String,
    /// Answered since it was mounted.
    pub(crate) requests: u64,
    pub(crate) in_flight: u64,
}

/// `GET /v1/health`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Health {
    pub(crate) schema: u32,
    pub(crate) healthy: bool,
    pub(crate) reasons: Vec<String>,
}

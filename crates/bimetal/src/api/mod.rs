//! The control API's JSON, version 1. Fields are only ever added. The types of the engine are not serialisable on
//! purpose: what goes over the wire is decided here.

mod check;

use bimetal_volume::units;
use serde::{Deserialize, Serialize};

pub(crate) use check::{CheckRequest, Checked};

/// Version of every JSON document of the API and of `--json`.
pub(crate) const SCHEMA: u32 = 1;

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
    pub(crate) reserve_bytes: u64,
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
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) discarded_bytes: u64,
    pub(crate) errors: u64,
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

/// `POST /v1/families`: a change of the families. The answer is a [`Job`].
///
/// Keys are never part of it: `key` names a FIFO in the run-state folder of the group, which belongs to whoever asks and
/// from which the daemon reads the 32 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum FamilyChange {
    /// A new family, unlocked.
    Create {
        name: String,
        /// Also that of its header.
        uuid: String,
        key: String,
        /// LUKS2, in hexadecimal digits.
        header: String,
    },
    /// Its volumes can be read and written from now on.
    Unlock { name: String, key: String },
    /// They cannot any more; the key leaves memory.
    Lock {
        name: String,
        /// Although somebody uses them.
        #[serde(default)]
        force: bool,
    },
    /// Another header. The key proves that it is a wish of somebody who can open the family.
    Header {
        name: String,
        key: String,
        /// The header that the new one was made from, which must still be there; without: whatever is there.
        #[serde(default)]
        before: Option<String>,
        header: String,
    },
    /// Another name.
    Rename { name: String, new_name: String },
    /// Away with one that has no volumes.
    Delete { name: String },
}

/// `GET /v1/families/NAME/header`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FamilyHeader {
    pub(crate) schema: u32,
    pub(crate) family: String,
    pub(crate) uuid: String,
    /// LUKS2, in hexadecimal digits.
    pub(crate) header: Option<String>,
    /// Why there is none: no member has it whole.
    #[serde(default)]
    pub(crate) lost: Option<String>,
}

/// What the mover did since the daemon began to serve, in chunks of 128 KiB.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mover {
    pub(crate) promoted_chunks: u64,
    pub(crate) demoted_chunks: u64,
    /// Of these, such as still had their place on the slow tier, so that nothing was copied.
    #[serde(default)]
    pub(crate) demoted_uncopied_chunks: u64,
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

/// The FUSE mount in which each volume is a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Files {
    pub(crate) folder: String,
    /// Answered since it was mounted.
    pub(crate) requests: u64,
    pub(crate) in_flight: u64,
}

/// Answer to `POST /v1/files`: the volumes are files in this folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FilesShown {
    pub(crate) schema: u32,
    pub(crate) folder: String,
}

/// `POST /v1/dissolve`: a volume is to be copied onto a plain device; what is under way is gone on with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DissolveRequest {
    pub(crate) volume: String,
    /// Where to; as a member would be named.
    #[serde(default)]
    pub(crate) onto: String,
    /// Although it is a member of another group.
    #[serde(default)]
    pub(crate) force: bool,
    /// End the run under way instead.
    #[serde(default)]
    pub(crate) cancel: bool,
}

/// How far such a copy is, and the answer to the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dissolving {
    /// No other run of this daemon has this number.
    pub(crate) run: u64,
    pub(crate) volume: String,
    pub(crate) volume_uuid: String,
    pub(crate) onto: String,
    /// `copying`, `checking`, `waiting`, `finishing`; at the end `done`, `failed`, `cancelled`.
    pub(crate) phase: String,
    /// What this phase has been over, and has to go over.
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Not known to be equal on both.
    pub(crate) unsure_bytes: u64,
    /// Who uses the volume, while that keeps the end waiting.
    pub(crate) waits_for: Option<String>,
    pub(crate) error: Option<String>,
}

impl Dissolving {
    /// Whether it has not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self.phase.as_str(), "done" | "failed" | "cancelled")
    }
}

/// A block device made by `bimetal attach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) volume: String,
    /// `/dev/...`.
    pub(crate) device: String,
    /// `ublk`, `nbd` or `fuse`.
    pub(crate) via: String,
    /// Who holds it: mount points, swap, devices stacked on it. Filled when asked for, not stored.
    #[serde(default)]
    pub(crate) held_by: Vec<String>,
    /// UUID of the volume: another may have the name now. Empty in records of earlier versions.
    #[serde(default)]
    pub(crate) volume_uuid: String,
    /// What is needed to take it down, by the means that made it.
    #[serde(default)]
    pub(crate) handle: serde_json::Value,
}

impl Attachment {
    /// Whether both are of the same volume.
    pub(crate) fn is_of(&self, other: &Attachment) -> bool {
        self.is_of_volume(&other.volume, &other.volume_uuid)
    }

    /// Whether this is of the volume with this UUID, or with this name where no UUID was written down.
    pub(crate) fn is_of_volume(&self, name: &str, uuid: &str) -> bool {
        match self.volume_uuid.is_empty() || uuid.is_empty() {
            true => self.volume == name,
            false => self.volume_uuid == uuid,
        }
    }
}

/// `GET /v1/health`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Health {
    pub(crate) schema: u32,
    pub(crate) healthy: bool,
    pub(crate) reasons: Vec<String>,
}

/// `POST /v1/stop`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StopRequest {
    /// Stop although attached devices are in use.
    #[serde(default)]
    pub(crate) force: bool,
}

/// Answer to `POST /v1/stop`: the stop has begun, or waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StopAccepted {
    pub(crate) schema: u32,
    /// The daemon's.
    pub(crate) process: Option<u32>,
    /// Who holds an attached device; the daemon goes on serving until they are gone.
    pub(crate) waits_for: Vec<String>,
}

/// `POST /v1/volumes`: a change of the volumes. The answer is a [`Job`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum VolumeChange {
    /// A new volume.
    Create {
        name: String,
        /// Bytes; all that is left without.
        #[serde(default)]
        size_bytes: Option<u64>,
        /// `auto`, `fast-only` or `slow-only`.
        #[serde(default)]
        placement: Placement,
        /// The family whose key encrypts it; it must be unlocked.
        #[serde(default)]
        family: Option<String>,
    },
    /// It joins a family, and what it holds is encrypted in the background. The job ends when that has begun.
    Encrypt { name: String, family: String },
    /// Another size.
    Resize {
        name: String,
        size_bytes: u64,
        /// Shrink although clients use it.
        #[serde(default)]
        force: bool,
    },
    /// Another name.
    Rename { name: String, new_name: String },
    /// Away with it.
    Delete {
        name: String,
        /// Although clients use it.
        #[serde(default)]
        force: bool,
    },
}

impl VolumeChange {
    /// The name that the volume has before the change, or gets.
    pub(crate) fn name(&self) -> &str {
        match self {
            VolumeChange::Create { name, .. }
            | VolumeChange::Encrypt { name, .. }
            | VolumeChange::Resize { name, .. }
            | VolumeChange::Rename { name, .. }
            | VolumeChange::Delete { name, .. } => name,
        }
    }
}

/// `GET /v1/volumes/NAME/fates/FROM`: what has become of the content of a volume from byte FROM on; ask again from
/// `until_bytes` while that is not its size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fates {
    pub(crate) schema: u32,
    pub(crate) volume: String,
    pub(crate) size_bytes: u64,
    /// The runs end here.
    pub(crate) until_bytes: u64,
    pub(crate) runs: Vec<FateRun>,
}

/// Neighbouring blocks of one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FateRun {
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) fate: Fate,
}

/// What has become of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fate {
    /// Holds no data: reads as zeros.
    NeverWritten,
    /// Reads as it was last written and flushed.
    Whole,
    /// Readable, but writes of the last seconds before the group ended may be missing.
    PossiblyStale,
    /// An old copy on the slow tier is all there is: an error, unless served with `--kept-copies`.
    KeptCopy,
    /// An error; what is left does not know whether there was anything.
    PerhapsLost,
    /// An error; there was data.
    Lost,
}

impl Fate {
    /// How many there are.
    pub(crate) const COUNT: usize = 6;
}

impl From<bimetal_volume::fate::Fate> for Fate {
    fn from(fate: bimetal_volume::fate::Fate) -> Fate {
        use bimetal_volume::fate::Fate as Of;
        match fate {
            Of::NeverWritten => Fate::NeverWritten,
            Of::Whole => Fate::Whole,
            Of::PossiblyStale => Fate::PossiblyStale,
            Of::KeptCopy => Fate::KeptCopy,
            Of::PerhapsLost => Fate::PerhapsLost,
            Of::Lost => Fate::Lost,
        }
    }
}

impl From<bimetal_volume::fate::FateRun> for FateRun {
    fn from(r: bimetal_volume::fate::FateRun) -> FateRun {
        FateRun { offset_bytes: r.offset, length_bytes: r.len, fate: r.fate.into() }
    }
}

/// Where the chunks of a volume may live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Placement {
    #[default]
    Auto,
    FastOnly,
    SlowOnly,
}

/// `GET /v1/jobs/N`, and the answer to what begins one: work that may take longer than a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) schema: u32,
    pub(crate) job: u64,
    pub(crate) done: bool,
    /// Why it failed, if it did.
    pub(crate) error: Option<String>,
    /// Size of the volume after a change that gives it one; of a new member the bytes for data.
    pub(crate) size_bytes: Option<u64>,
    /// After a member was added, or is to leave: bytes that volumes can grow by.
    #[serde(default)]
    pub(crate) room_bytes: Option<u64>,
    /// The member that was added, or taken out.
    #[serde(default)]
    pub(crate) member: Option<ChangedMember>,
    /// Of a member that is to leave: bytes in use on it.
    #[serde(default)]
    pub(crate) used_bytes: Option<u64>,
    /// Why the label of a member that was taken out could not be erased, if it could not.
    #[serde(default)]
    pub(crate) not_erased: Option<String>,
    /// What a check found.
    #[serde(default)]
    pub(crate) checked: Option<Checked>,
    /// How far it is, and of how much, where that is known: map pages.
    #[serde(default)]
    pub(crate) over: Option<(u64, u64)>,
}

/// A member that has just been added, or taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedMember {
    pub(crate) index: u8,
    pub(crate) uuid: String,
    pub(crate) locator: String,
}

/// `POST /v1/members`: a change of the members. The answer is a [`Job`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum MemberChange {
    /// A new member; everything on its device is lost.
    Add {
        /// Where it is; a path is absolute.
        locator: String,
        tier: Tier,
        /// Although it belongs to another group.
        #[serde(default)]
        force: bool,
    },
    /// A member is to leave: nothing new is put on it, and what is there goes to others. The job ends when that has begun;
    /// the status tells how much is left.
    Evacuate {
        /// Its index, which is never given to another.
        member: u8,
        /// Only tell what would be moved, and whether it fits.
        #[serde(default)]
        dry_run: bool,
    },
    /// A member that was to leave stays.
    Keep { member: u8 },
    /// Take a member out that is leaving and empty; its label is erased.
    Remove { member: u8 },
}

/// Tier of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    Fast,
    Slow,
}

impl From<Tier> for units::Tier {
    fn from(tier: Tier) -> units::Tier {
        match tier {
            Tier::Fast => units::Tier::Fast,
            Tier::Slow => units::Tier::Slow,
        }
    }
}

impl From<units::Tier> for Tier {
    fn from(tier: units::Tier) -> Tier {
        match tier {
            units::Tier::Fast => Tier::Fast,
            units::Tier::Slow => Tier::Slow,
        }
    }
}

/// `POST /v1/attach` and `POST /v1/detach`: a volume as a ublk device of the daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct VolumeRequest {
    pub(crate) volume: String,
    /// Of `detach`: the volume's UUID, which counts instead of the name. The name may be another's by then.
    #[serde(default)]
    pub(crate) volume_uuid: String,
    /// Detach although somebody uses it: they get errors, and what was not yet written is lost.
    #[serde(default)]
    pub(crate) force: bool,
}

/// Answer to both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachAnswer {
    pub(crate) schema: u32,
    /// The device that is there now, if there is one.
    pub(crate) device: Option<String>,
    /// Why none can be had on this machine.
    #[serde(default)]
    pub(crate) why: String,
}

/// Any failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) schema: u32,
    pub(crate) error: String,
}

//! What a person decides when a group is made or opened, and what the engine tells about itself.

use std::time::Duration;

use crate::units::{MemberIndex, Placement, Tier};

/// 16 bytes that name a group, member or volume for ever.
pub type Uuid = [u8; 16];

/// A volume to be made at creation.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// `[a-z0-9][a-z0-9._-]{0,62}`.
    pub name: String,
    /// Bytes, rounded down to a multiple of 128 KiB; `None` takes all the space that is left.
    pub size: Option<u64>,
    /// Where its chunks may live.
    pub placement: Placement,
}

/// How a group is made.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// `[a-z0-9][a-z0-9._-]{0,62}`.
    pub name: String,
    /// At least one.
    pub volumes: Vec<NewVolume>,
    /// Logical sector shown to clients: 4096 or 512.
    pub sector_size: u32,
    /// Fast slots kept free for new writes, in bytes; `None`: 4 GiB, at most a quarter of the fast tier. In use it is never
    /// more than a quarter of what volumes bound to that tier leave.
    pub reserve: Option<u64>,
    /// Blocks of each member's journal ring; `None`: by the size of the member. Small rings are for tests.
    pub journal_blocks: Option<u32>,
}

/// How a group is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Serve writes. Needs every member.
    pub writable: bool,
    /// With `writable` off: open although members are missing.
    pub allow_missing: bool,
    /// With `allow_missing`: serve what has nothing but a kept copy on a slow member that was not stopped in order, which
    /// may be old ([`crate::fate::Fate::KeptCopy`]). A last resort.
    pub kept_copies: bool,
    /// A pending change is committed at the latest after this time.
    pub commit_interval: Duration,
    /// Move chunks between the tiers in the background.
    pub migrate: bool,
    /// Chunks that may be promoted at once, before the endurance budget counts. Fewer are for tests, `u64::MAX` is for
    /// experiments without a budget.
    pub promotion_burst: u64,
    /// Records in a journal block, at most 168. Fewer are for tests, which want commits of several blocks.
    pub journal_records: usize,
    /// Pages of a checkpoint written side by side, at least 1. Fewer are for tests, which want checkpoints of several batches.
    pub checkpoint_batch: usize,
    /// Regions of the away bitmap that are set together, at least 1. Fewer are for tests, which want several such steps in a small group.
    pub away_ahead: u32,
    /// Most bytes of requests the engine takes at a time, beside one request of each volume; more wait.
    pub max_inflight_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            writable: true,
            allow_missing: false,
            kept_copies: false,
            commit_interval: Duration::from_secs(5),
            migrate: true,
            promotion_burst: crate::tier::PROMOTION_BURST,
            journal_records: bimetal_format::journal::RECORDS_PER_BLOCK,
            checkpoint_batch: 256,
            away_ahead: crate::member::away::AHEAD,
            max_inflight_bytes: 256 << 20,
        }
    }
}

/// What a member is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// A member like any other.
    InUse,
    /// It is being added; nothing lives on it yet.
    Joining,
    /// It is to leave the group: what is on it goes to other members.
    Leaving,
}

/// A member as `status` shows it. Counters count since the group was opened.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its number in the group.
    pub index: MemberIndex,
    /// Its name for ever.
    pub uuid: Uuid,
    /// Its tier.
    pub tier: Tier,
    /// Whether it is there.
    pub present: bool,
    /// What it is in its group.
    pub state: MemberState,
    /// Size of the device in bytes.
    pub size: u64,
    /// Slots in its data zone.
    pub slots: u64,
    /// Slots that can be taken at once.
    pub free: u64,
    /// Slots that were left and become free after a commit or discard.
    pub leaving: u64,
    /// Slots kept back after a failed write.
    pub quarantined: u64,
    /// Journal blocks in use, and in all.
    pub journal_used: u64,
    /// Blocks of the journal ring.
    pub journal_blocks: u64,
    /// Pages of its copy of the map, as many as every member has.
    pub map_pages: u64,
    /// Read requests and bytes sent to the device.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests sent to the device, metadata included.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that the device has not answered yet.
    pub unanswered: u64,
    /// For how long the oldest of them has waited.
    pub unanswered_for: Duration,
    /// For how long nothing was answered at all, although something waited.
    pub silent_for: Duration,
    /// Why every request fails until the group is opened anew, if so: the connection to it is lost.
    pub lost: Option<String>,
}

/// A volume as `status` shows it.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its name for ever.
    pub uuid: Uuid,
    /// Bytes.
    pub size: u64,
    /// Where its chunks may live.
    pub placement: Placement,
    /// Chunks on the fast tier.
    pub fast_chunks: u64,
    /// Chunks on the slow tier.
    pub slow_chunks: u64,
    /// The name of its family, if it has one.
    pub family: Option<String>,
    /// It cannot be read or written: its family is locked.
    pub locked: bool,
    /// It had held plaintext when it was given its family: chunks that still do, if that is not over.
    pub encrypting: Option<Encrypting>,
}

/// How far the encryption of a volume has come that had held plaintext.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encrypting {
    /// Its chunks whose content is plaintext yet.
    pub plain_chunks: u64,
    /// Slots of the group, on all members, that may still hold some of it and were not overwritten yet.
    pub slots_to_wipe: u64,
    /// Why it does not go on, if it does not.
    pub waits_for: Option<Waiting>,
}

/// Why the encryption of a volume does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Its family is locked.
    Locked,
    /// Chunks could not be read or written, or slots not be overwritten.
    Failing,
}

/// A family as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyStatus {
    /// Its name.
    pub name: String,
    /// Its name for ever, also that of its LUKS2 header.
    pub uuid: Uuid,
    /// Its key is here.
    pub unlocked: bool,
    /// Bytes that its header takes on every member.
    pub header: u64,
}

/// What the mover did since the group was opened, in chunks.
#[derive(Clone, Debug, Default)]
pub struct MoverStatus {
    /// Moved to the fast tier.
    pub promoted: u64,
    /// Moved to the slow tier.
    pub demoted: u64,
    /// Of those moved to the slow tier, such as had their place there still, so that nothing was copied.
    pub demoted_uncopied: u64,
    /// Sent there to make room for new data at once.
    pub let_go: u64,
    /// Of those moved to the fast tier (or on their way there), such as a client's read had brought anyway.
    pub lifted: u64,
    /// Came to the fast tier without being moved, because a client wrote them whole.
    pub written_anew: u64,
    /// Chunks on the fast tier whose place on the slow tier still holds the same data.
    pub kept: u64,
    /// Kept places given up because the chunk was written.
    pub kept_ended: u64,
    /// Kept places given up because slow slots became scarce.
    pub kept_dropped: u64,
    /// Chunks that went to another member of their tier, because theirs leaves.
    pub evacuated: u64,
    /// Given up because a write came.
    pub cancelled: u64,
    /// Failed on a device error.
    pub failed: u64,
    /// Being copied now.
    pub in_flight: u64,
    /// Chunks that wait to be promoted: used enough, or read while slots are free.
    pub candidates: u64,
    /// What it is doing, in plain words.
    pub doing: String,
    /// Why, in plain words.
    pub why: String,
}

/// The state of a group.
#[derive(Clone, Debug)]
pub struct Status {
    /// Group name.
    pub name: String,
    /// Group UUID.
    pub uuid: Uuid,
    /// Whether writes are refused, and why: opened so, or latched (I7).
    pub read_only: bool,
    /// Why the group latched, if it did.
    pub latched: Option<String>,
    /// Number of the newest durable commit.
    pub generation: u64,
    /// Commits made since the group was opened.
    pub commits: u64,
    /// Entry changes that wait for a commit.
    pub pending: u64,
    /// Fast bytes for new writes: free, or of cold chunks that the slow tier has a copy of and that make room at once, or, while
    /// few new data come, of other chunks.
    pub reserve: u64,
    /// Those of them that are to be free.
    pub keep_free: u64,
    /// About how many of the others make room at once.
    pub room_at_once: u64,
    /// Fast bytes free now.
    pub fast_free: u64,
    /// Members.
    pub members: Vec<MemberStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Families.
    pub families: Vec<FamilyStatus>,
    /// Volumes that are deleted, but whose chunks still hold slots.
    pub deleting: Vec<VolumeStatus>,
    /// The mover.
    pub mover: MoverStatus,
    /// What recovery found when the group was opened, one sentence each.
    pub recovery: Vec<String>,
}

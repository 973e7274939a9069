//! The label of a member: who it is, to which group it belongs, where its zones lie, and which journal tail and page
//! directory are current. Two equal copies, 64 KiB each; a flip writes one, syncs, then writes the other. Of two valid
//! copies the one with the higher `sequence` counts.

mod codec;
mod epoch;
mod families;
pub(crate) mod raw;
mod volumes;

pub use self::epoch::Epoch;
pub use self::families::{FamilyRow, MAX_HEADER};
pub use self::volumes::{rows_of, PageRun, PlacementCode, VolumeRow, VolumeState};

use crate::block::GROWING_LIMIT;
use crate::layout::{keys_extents, Layout, LayoutError, ZoneExtent, ZoneKind};

/// Bytes of a label.
pub const LABEL_SIZE: usize = 64 << 10;
/// First bytes of every label.
pub const MAGIC: [u8; 8] = *b"BIMETAL\x01";
/// Most members of a group.
pub const MAX_MEMBERS: usize = 255;
/// Most volumes of a group.
pub const MAX_VOLUMES: usize = 224;
/// Most families of a group.
pub const MAX_FAMILIES: usize = 32;
/// Epochs remembered.
pub const EPOCH_HISTORY: usize = 64;
/// Most extents of the zone table.
pub const MAX_ZONES: usize = 64;
const NAME: usize = 64;

/// Features that any version may ignore.
pub const COMPATIBLE: u64 = 0;
/// Features that a version which does not know them may only read.
pub const READ_ONLY_COMPATIBLE: u64 = 0;
/// Features that a version which does not know them must refuse.
pub const INCOMPATIBLE: u64 = KEPT_COPIES | CHANGED_TABLES | CHANGED_MEMBERS | LEAVING_MEMBERS | FAMILIES | REPAIRING;
/// Incompatible feature: entries may name kept copies. A reader that does not know them would take records that do for
/// the end of the journal.
pub const KEPT_COPIES: u64 = 1;
/// Incompatible feature: the volume table was changed since the group was made. Labels may hold two states of it, rows
/// may be continued, and rows may belong to a volume that is being deleted.
pub const CHANGED_TABLES: u64 = 2;
/// Incompatible feature: the member table was changed since the group was made. Labels may hold two states of it, and a
/// device may carry the label of a member that it has not become.
pub const CHANGED_MEMBERS: u64 = 4;
/// Incompatible feature: a member leaves the group, or has left it. A reader that does not know this would wait for the
/// one that has left, and put chunks on the one that is leaving.
pub const LEAVING_MEMBERS: u64 = 8;
/// Incompatible feature: there are families, or have been: chunks may hold ciphertext.
pub const FAMILIES: u64 = 16;
/// Incompatible feature: a repair of the group was begun, and is not done on this member.
pub const REPAIRING: u64 = 32;

/// What a repair has done to a member, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// 0: nothing since the group was last started.
    None,
    /// 1: it was begun: the map is to be written anew, or another member's label says so already.
    Begun,
    /// 2: it is done, and the group was not started since.
    Done,
}

/// Tier of a member, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierCode {
    /// 1.
    Fast,
    /// 2.
    Slow,
}

/// What a member is to its group, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberCode {
    /// 0: one like any other.
    Member,
    /// 1: it is to leave: no chunk is put on it, and those that are there go.
    Leaving,
    /// 2: it has left. Its row stays, because an index is never given out twice.
    Left,
}

/// A member as every label of the group lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// Its name for ever.
    pub uuid: [u8; 16],
    /// Its tier.
    pub tier: TierCode,
    /// Size of its device in bytes.
    pub size: u64,
    /// Slots in its data zone.
    pub slots: u32,
    /// What it is to the group.
    pub state: MemberCode,
}

/// A decoded label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Number of this write; grows with each flip.
    pub sequence: u64,
    /// Compatible feature bits.
    pub compatible: u64,
    /// Read-only-compatible feature bits.
    pub read_only_compatible: u64,
    /// Group UUID.
    pub group: [u8; 16],
    /// Group name.
    pub group_name: String,
    /// Index of this member.
    pub member: u8,
    /// Seconds since 1970 when the group was made.
    pub created: u64,
    /// Size of the device when it was laid out.
    pub device_size: u64,
    /// Fast bytes kept free for new writes.
    pub reserve: u64,
    /// Logical sector of the volumes: 512 or 4096.
    pub sector_size: u32,
    /// Id for the next volume.
    pub next_volume: u32,
    /// Written by an orderly stop: nothing to replay, heat is saved.
    pub clean: bool,
    /// No request was answered since the last orderly stop: said durably on all members before one of them is `clean`, and by those
    /// that come after until an epoch is confirmed. Earlier versions do not say so.
    pub stopped: bool,
    /// The epoch.
    pub epoch: Epoch,
    /// Sequence of the first journal block to replay.
    pub journal_tail: u64,
    /// Hash of the block before it.
    pub journal_tail_hash: u64,
    /// With `clean`: sequence after the last block. Else the journal was durable up to there when this was written, or further: one that
    /// ends before is damaged. Earlier versions leave it as it was at the last orderly stop.
    pub journal_end: u64,
    /// Commits up to this one are in the pages.
    pub checkpoint_generation: u64,
    /// Generation of the root blocks; 0 if no page was ever written.
    pub root_generation: u64,
    /// Side of the root blocks.
    pub root_side: u8,
    /// Kept copies recorded by earlier generations do not count (C9).
    pub mirrors_from: u64,
    /// The policy's virtual clock.
    pub policy_clock: u64,
    /// Newest generation that was given out when this label was written.
    pub generation: u64,
    /// Number of changes of the tables since the group was made; of labels that differ the higher one counts.
    pub tables: u64,
    /// The member table was changed since the group was made.
    pub members_changed: bool,
    /// This device is being added to the group: it is a member only if the table of the others says so.
    pub joining: bool,
    /// Zone table.
    pub zones: Vec<ZoneExtent>,
    /// Members of the group, by index.
    pub members: Vec<MemberRow>,
    /// Volumes of the group.
    pub volumes: Vec<VolumeRow>,
    /// Families of the group: volumes that share a key.
    pub families: Vec<FamilyRow>,
    /// Id for the next family; 0 as long as there was none.
    pub next_family: u32,
    /// Side of the keys zone that `families` speaks of.
    pub keys_side: u8,
    /// What a repair has done.
    pub repair: Repair,
    /// Which repair that was, random and not zero; it stays when the group is started again. 0: there was none yet.
    pub repair_id: u32,
}

/// Why bytes are not a usable label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No label here.
    #[error("no Bimetal label")]
    NotALabel,
    /// The bytes were damaged, or torn by a crash.
    #[error("the label is damaged (checksum does not match)")]
    Checksum,
    /// A newer format.
    #[error("format version {0} is newer than this program; use a newer Bimetal")]
    Version(u16),
    /// Features this version does not know.
    #[error("the group uses features that this program does not know (bits {0:#x}); use a newer Bimetal")]
    Features(u64),
    /// The checksum is right but a field is impossible.
    #[error("impossible label field: {0}")]
    Field(&'static str),
    /// The zone table is impossible.
    #[error("{0}")]
    Layout(#[from] LayoutError),
}

impl LabelError {
    /// Whether the label is whole, its checksum right, and only a newer version of this program can read it.
    pub fn is_newer(&self) -> bool {
        matches!(self, LabelError::Version(_) | LabelError::Features(_))
    }
}

/// Whether `name` is a legal name of a group or volume: `[a-z0-9][a-z0-9._-]{0,62}`.
pub fn is_name(name: &str) -> bool {
    let alnum = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let b = name.as_bytes();
    !b.is_empty() && b.len() <= 63 && alnum(&b[0]) && b.iter().all(|c| alnum(c) || b"._-".contains(c))
}

impl Label {
    /// Its pages and journal have all that was ever flushed: an orderly stop came so far, and nothing was served since.
    pub fn knows_all(&self) -> bool {
        self.clean || self.stopped
    }

    /// Whether by this label a member has left that `other` still has. Who has left never comes back, so `other` does not come after this,
    /// whatever their numbers say; if both have struck off one of the other's, they were used apart.
    pub fn has_struck_off_one_of(&self, other: &Label) -> bool {
        self.members
            .iter()
            .zip(&other.members)
            .any(|(own, row)| own.uuid == row.uuid && own.state == MemberCode::Left && row.state != MemberCode::Left)
    }

    /// Numbers that only grow.
    fn growing(&self) -> [u64; 8] {
        [
            self.sequence,
            self.generation,
            self.root_generation,
            self.checkpoint_generation,
            self.epoch.first_generation,
            self.journal_tail,
            self.journal_end,
            self.tables,
        ]
    }

    /// Whether a number is so large that no group can have come to it: what is written on from there could not be read again.
    pub fn is_exhausted(&self) -> bool {
        self.growing().iter().any(|n| *n >= GROWING_LIMIT / 2)
    }

    /// Volumes that are not deleted.
    pub fn living_volumes(&self) -> impl Iterator<Item = &VolumeRow> {
        self.volumes.iter().filter(|v| v.state != VolumeState::Deleted)
    }

    /// Gives this member a keys zone, if the group has families and it has none yet.
    pub fn add_keys_zone(&mut self) {
        let has_one = self.zones.iter().any(|z| z.kind == ZoneKind::Keys);
        if self.next_family > 0 && !has_one {
            self.zones.extend(keys_extents(self.device_size));
        }
    }

    /// The zones of this member. [`Label::decode`] has checked the table.
    pub fn layout(&self) -> Layout {
        Layout::from_zones(&self.zones, self.device_size).expect("checked when the label was decoded or planned")
    }
}

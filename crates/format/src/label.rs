//! The label of a member: who it is, to which group it belongs, where its zones lie, and which journal tail and page
//! directory are current. Two equal copies, 64 KiB each; a flip writes one, syncs, then writes the other. Of two valid
//! copies the one with the higher `sequence` counts.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

mod families;
pub(crate) mod raw;
mod volumes;

pub use self::families::{FamilyRow, MAX_HEADER};
use self::raw::{RawHead, RawLabel, RawMember, RawZone};
use self::volumes::{decode_volumes, encode_volume};
pub use self::volumes::{rows_of, PageRun, PlacementCode, VolumeRow, VolumeState};

use crate::block::{crc32c, GROWING_LIMIT};
use crate::layout::{keys_extents, Layout, LayoutError, ZoneExtent, ZoneKind};
use crate::VERSION;

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

/// The epoch that a label was written in (C4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Random, not zero.
    pub id: u64,
    /// Commits of this epoch have this generation or a later one.
    pub first_generation: u64,
    /// Bit per member that was present when the epoch began.
    pub members: [u8; 32],
    /// The labels of all members present carry this epoch durably; only then was anything served.
    pub confirmed: bool,
    /// Epochs before this one, newest first.
    pub history: Vec<u64>,
    /// One more than how many of these, the newest ones, were never confirmed; 0: that is not known.
    pub cut_off: u8,
}

impl Epoch {
    /// The `history` of an epoch that comes after this one, and its `cut_off`; `served` tells whether this one was served.
    ///
    /// Starts that are cut off may be any number. Of more epochs than there is room for, those go first that were not served and that
    /// no label carries: without the others a member would look as if it had been used apart.
    pub fn history_after(&self, served: bool, carried: impl Fn(u64) -> bool) -> (Vec<u64>, u8) {
        let mut history: Vec<u64> = std::iter::once(self.id).chain(self.history.iter().copied()).collect();
        let mut unserved = match (served, usize::from(self.cut_off)) {
            (true, _) => Some(0),
            (false, 0) => None,
            (false, n) => Some(n),
        };
        if history.len() > EPOCH_HISTORY {
            let dispensable = unserved.and_then(|n| (1..n.min(history.len())).rev().find(|i| !carried(history[*i])));
            if let Some(i) = dispensable {
                history.remove(i);
                unserved = unserved.map(|n| n - 1);
            }
            history.truncate(EPOCH_HISTORY);
        }
        let cut_off = unserved.filter(|n| *n < EPOCH_HISTORY).map_or(0, |n| n as u8 + 1);
        (history, cut_off)
    }

    /// The last epoch that was served, as far as it is known: this one, or one before it.
    pub fn last_served(&self) -> Option<u64> {
        match self.confirmed {
            true => Some(self.id),
            false => usize::from(self.cut_off).checked_sub(1).and_then(|n| self.history.get(n)).copied(),
        }
    }

    /// Whether epoch `id` is older than one of which it is known that it was served.
    pub fn has_served_since(&self, id: u64) -> bool {
        let back = self.history.iter().position(|e| *e == id);
        let served = match self.confirmed {
            true => return self.id != id,
            false => usize::from(self.cut_off),
        };
        served > 0 && back.is_none_or(|back| back >= served)
    }

    /// Whether member `index` was present when the epoch began.
    pub fn has_member(&self, index: u8) -> bool {
        self.members[index as usize / 8] & 1 << (index % 8) != 0
    }
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
    /// With `clean`: sequence after the last block.
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

fn put_name(name: &str) -> [u8; NAME] {
    let mut out = [0; NAME];
    out[..name.len()].copy_from_slice(name.as_bytes());
    out
}

fn get_name(raw: &[u8; NAME], field: &'static str) -> Result<String, LabelError> {
    let len = raw.iter().position(|&b| b == 0).ok_or(LabelError::Field(field))?;
    let text = std::str::from_utf8(&raw[..len]).map_err(|_| LabelError::Field(field))?;
    if is_name(text) {
        Ok(text.to_string())
    } else {
        Err(LabelError::Field(field))
    }
}

/// Whether `name` is a legal name of a group or volume: `[a-z0-9][a-z0-9._-]{0,62}`.
pub fn is_name(name: &str) -> bool {
    let alnum = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let b = name.as_bytes();
    !b.is_empty() && b.len() <= 63 && alnum(&b[0]) && b.iter().all(|c| alnum(c) || b"._-".contains(c))
}

fn checksum(bytes: &[u8], place: u64) -> u32 {
    let mut all = Vec::with_capacity(bytes.len() + 8);
    all.extend_from_slice(bytes);
    all[8..12].fill(0);
    all.extend_from_slice(&place.to_le_bytes());
    crc32c(&all)
}

impl Label {
    /// The bytes of this label for byte offset `place` of its member. Limits on counts and names are the caller's.
    pub fn encode(&self, place: u64) -> Vec<u8> {
        assert!(self.members.len() <= MAX_MEMBERS && rows_of(&self.volumes) <= MAX_VOLUMES);
        assert!(self.families.len() <= MAX_FAMILIES);
        let mut raw = RawLabel::new_box_zeroed().expect("64 KiB of memory");
        raw.head = self.raw_head();
        for (r, z) in raw.zones.iter_mut().zip(&self.zones) {
            r.kind = U16::new(z.kind as u16);
            r.version = U16::new(z.version);
            r.offset = U64::new(z.offset);
            r.len = U64::new(z.len);
        }
        for (r, m) in raw.members.iter_mut().zip(&self.members) {
            r.uuid = m.uuid;
            r.size = U64::new(m.size);
            r.slots = U32::new(m.slots);
            r.tier = tier_code(m.tier);
            r.state = match m.state {
                MemberCode::Member => 0,
                MemberCode::Leaving => 1,
                MemberCode::Left => 2,
            };
        }
        let rows = self.volumes.iter().flat_map(|v| v.runs.iter().enumerate().map(move |(i, run)| (v, i, run)));
        for (r, (v, i, run)) in raw.volumes.iter_mut().zip(rows) {
            encode_volume(r, v, i as u16, run);
        }
        for (r, f) in raw.families.iter_mut().zip(&self.families) {
            families::encode_family(r, f);
        }
        let crc = checksum(raw.as_bytes(), place);
        raw.head.crc = U32::new(crc);
        raw.as_bytes().to_vec()
    }

    fn raw_head(&self) -> RawHead {
        let mut h = RawHead::new_zeroed();
        h.magic = MAGIC;
        h.version = U16::new(VERSION);
        h.tier = self.members.get(self.member as usize).map_or(0, |m| tier_code(m.tier));
        h.member = self.member;
        h.sequence = U64::new(self.sequence);
        h.compatible = U64::new(self.compatible);
        h.read_only_compatible = U64::new(self.read_only_compatible);
        h.incompatible = U64::new(self.features());
        h.group = self.group;
        h.member_uuid = self.members.get(self.member as usize).map_or([0; 16], |m| m.uuid);
        h.group_name = put_name(&self.group_name);
        h.created = U64::new(self.created);
        h.device_size = U64::new(self.device_size);
        h.reserve = U64::new(self.reserve);
        h.sector_size = U32::new(self.sector_size);
        h.member_count = U16::new(self.members.len() as u16);
        h.volume_count = U16::new(rows_of(&self.volumes) as u16);
        h.zone_count = U16::new(self.zones.len() as u16);
        h.clean = self.clean.into();
        h.stopped = self.stopped.into();
        h.epoch_confirmed = self.epoch.confirmed.into();
        h.epoch_cut_off = self.epoch.cut_off;
        h.next_volume = U32::new(self.next_volume);
        h.epoch = U64::new(self.epoch.id);
        h.epoch_first_generation = U64::new(self.epoch.first_generation);
        h.epoch_members = self.epoch.members;
        for (r, e) in h.epoch_history.iter_mut().zip(&self.epoch.history) {
            *r = U64::new(*e);
        }
        h.journal_tail = U64::new(self.journal_tail);
        h.journal_tail_hash = U64::new(self.journal_tail_hash);
        h.journal_end = U64::new(self.journal_end);
        h.checkpoint_generation = U64::new(self.checkpoint_generation);
        h.root_generation = U64::new(self.root_generation);
        h.root_side = self.root_side;
        h.mirrors_from = U64::new(self.mirrors_from);
        h.policy_clock = U64::new(self.policy_clock);
        h.generation = U64::new(self.generation);
        h.tables = U64::new(self.tables);
        h.family_count = U16::new(self.families.len() as u16);
        h.keys_side = self.keys_side;
        h.next_family = U32::new(self.next_family);
        h.joining = self.joining.into();
        h.repair = match self.repair {
            Repair::None => 0,
            Repair::Begun => 1,
            Repair::Done => 2,
        };
        h.repair_id = U32::new(self.repair_id);
        h
    }

    /// The incompatible features that it makes use of.
    fn features(&self) -> u64 {
        let bit = |on: bool, feature: u64| if on { feature } else { 0 };
        let leaving = self.members.iter().any(|m| m.state != MemberCode::Member);
        KEPT_COPIES
            | bit(self.tables > 0, CHANGED_TABLES)
            | bit(self.members_changed, CHANGED_MEMBERS)
            | bit(leaving, LEAVING_MEMBERS)
            | bit(self.next_family > 0, FAMILIES)
            | bit(self.repair == Repair::Begun, REPAIRING)
    }

    /// What bytes that look like a label say of the size of their device, damaged or not. It tells where the other copy may lie on a
    /// device that has grown since; that copy has a checksum of its own.
    pub fn device_size_unchecked(bytes: &[u8]) -> Option<u64> {
        let raw = RawLabel::read_from_bytes(bytes.get(..LABEL_SIZE)?).ok()?;
        (raw.head.magic == MAGIC).then_some(raw.head.device_size.get())
    }

    /// Reads a label from `bytes`, found at byte offset `place` of its member. Anything but a sound label of a known
    /// version is an error.
    pub fn decode(bytes: &[u8], place: u64) -> Result<Label, LabelError> {
        if bytes.len() < LABEL_SIZE || bytes[..8] != MAGIC {
            return Err(LabelError::NotALabel);
        }
        let bytes = &bytes[..LABEL_SIZE];
        let raw = RawLabel::read_from_bytes(bytes).map_err(|_| LabelError::NotALabel)?;
        let h = &raw.head;
        if h.crc.get() != checksum(bytes, place) {
            return Err(LabelError::Checksum);
        }
        if h.version.get() != VERSION {
            return Err(LabelError::Version(h.version.get()));
        }
        if h.incompatible.get() & !INCOMPATIBLE != 0 {
            return Err(LabelError::Features(h.incompatible.get()));
        }
        let label = Label::from_raw(&raw)?;
        label.check(h)?;
        Ok(label)
    }

    fn from_raw(raw: &RawLabel) -> Result<Label, LabelError> {
        let h = &raw.head;
        let count = |n: U16, max: usize, field| match n.get() as usize {
            n if n <= max => Ok(n),
            _ => Err(LabelError::Field(field)),
        };
        let members = &raw.members[..count(h.member_count, MAX_MEMBERS, "member count")?];
        let volumes = &raw.volumes[..count(h.volume_count, MAX_VOLUMES, "volume count")?];
        let families = &raw.families[..count(h.family_count, MAX_FAMILIES, "family count")?];
        let zones = &raw.zones[..count(h.zone_count, MAX_ZONES, "zone count")?];
        Ok(Label {
            sequence: h.sequence.get(),
            compatible: h.compatible.get(),
            read_only_compatible: h.read_only_compatible.get(),
            group: h.group,
            group_name: get_name(&h.group_name, "group name")?,
            member: h.member,
            created: h.created.get(),
            device_size: h.device_size.get(),
            reserve: h.reserve.get(),
            sector_size: h.sector_size.get(),
            next_volume: h.next_volume.get(),
            clean: h.clean == 1,
            stopped: h.stopped == 1,
            epoch: Epoch {
                id: h.epoch.get(),
                first_generation: h.epoch_first_generation.get(),
                members: h.epoch_members,
                confirmed: h.epoch_confirmed == 1,
                history: h.epoch_history.iter().map(|e| e.get()).take_while(|&e| e != 0).collect(),
                cut_off: h.epoch_cut_off,
            },
            journal_tail: h.journal_tail.get(),
            journal_tail_hash: h.journal_tail_hash.get(),
            journal_end: h.journal_end.get(),
            checkpoint_generation: h.checkpoint_generation.get(),
            root_generation: h.root_generation.get(),
            root_side: h.root_side,
            mirrors_from: h.mirrors_from.get(),
            policy_clock: h.policy_clock.get(),
            generation: h.generation.get(),
            tables: h.tables.get(),
            members_changed: h.incompatible.get() & CHANGED_MEMBERS != 0,
            joining: h.joining == 1,
            zones: zones.iter().map(decode_zone).collect::<Result<_, _>>()?,
            members: members.iter().map(decode_member).collect::<Result<_, _>>()?,
            volumes: decode_volumes(volumes)?,
            families: families.iter().map(families::decode_family).collect::<Result<_, _>>()?,
            next_family: h.next_family.get(),
            keys_side: h.keys_side,
            repair: match h.repair {
                0 => Repair::None,
                1 => Repair::Begun,
                2 => Repair::Done,
                _ => return Err(LabelError::Field("repair mark")),
            },
            repair_id: h.repair_id.get(),
        })
    }

    fn check(&self, h: &RawHead) -> Result<(), LabelError> {
        let field = |ok: bool, name| if ok { Ok(()) } else { Err(LabelError::Field(name)) };
        let own = self.members.get(self.member as usize).ok_or(LabelError::Field("member index"))?;
        field(own.uuid == h.member_uuid && tier_code(own.tier) == h.tier, "member identity")?;
        field(self.epoch.id != 0, "epoch")?;
        field(self.root_side < 2, "root side")?;
        field(self.sector_size == 512 || self.sector_size == 4096, "sector size")?;
        field(h.clean < 2 && h.stopped < 2 && h.epoch_confirmed < 2, "clean, stopped or confirmed mark")?;
        let repairing = h.incompatible.get() & REPAIRING != 0;
        field(repairing == (self.repair == Repair::Begun), "repair mark")?;
        field(self.repair == Repair::None || self.repair_id != 0, "repair id")?;
        field(h.joining == 0 || self.members_changed && h.joining == 1, "joining mark")?;
        field(self.growing().iter().all(|n| *n < GROWING_LIMIT), "sequence, generation or journal position")?;
        let fits = |m: &MemberRow| u64::from(m.slots) * crate::CHUNK <= m.size;
        field(self.members.iter().all(fits), "slots of a member")?;
        let layout = Layout::from_zones(&self.zones, self.device_size)?;
        field(layout.slot_count == u64::from(own.slots), "slot count")?;
        families::check(self, &layout)?;
        volumes::check_names(&self.volumes, self.next_volume)?;
        volumes::check_pages(&self.volumes, layout.pages)
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

fn tier_code(t: TierCode) -> u8 {
    match t {
        TierCode::Fast => 1,
        TierCode::Slow => 2,
    }
}

fn decode_zone(r: &RawZone) -> Result<ZoneExtent, LabelError> {
    let kind = ZoneKind::from_u16(r.kind.get()).ok_or(LabelError::Field("zone kind"))?;
    Ok(ZoneExtent { kind, version: r.version.get(), offset: r.offset.get(), len: r.len.get() })
}

fn decode_member(r: &RawMember) -> Result<MemberRow, LabelError> {
    let tier = match r.tier {
        1 => TierCode::Fast,
        2 => TierCode::Slow,
        _ => return Err(LabelError::Field("member tier")),
    };
    let state = match r.state {
        0 => MemberCode::Member,
        1 => MemberCode::Leaving,
        2 => MemberCode::Left,
        _ => return Err(LabelError::Field("member state")),
    };
    Ok(MemberRow { uuid: r.uuid, tier, size: r.size.get(), slots: r.slots.get(), state })
}

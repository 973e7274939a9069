//! A label from bytes and as bytes: [`RawLabel`] is how it lies on a member.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::raw::{RawHead, RawLabel, RawMember, RawZone};
use super::volumes::{self, decode_volumes, encode_volume, rows_of};
use super::{
    families, is_name, Epoch, Label, LabelError, MemberCode, MemberRow, Repair, TierCode, CHANGED_MEMBERS,
    CHANGED_TABLES, FAMILIES, INCOMPATIBLE, KEPT_COPIES, LABEL_SIZE, LEAVING_MEMBERS, MAGIC, MAX_FAMILIES, MAX_MEMBERS,
    MAX_VOLUMES, MAX_ZONES, NAME, REPAIRING,
};
use crate::block::{crc32c, GROWING_LIMIT};
use crate::layout::{Layout, ZoneExtent, ZoneKind};
use crate::VERSION;

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

    /// What bytes that look like a label say of when they were written, among the writes of their member. A version with other features has
    /// this where version 1 has it.
    pub fn sequence_unchecked(bytes: &[u8]) -> Option<u64> {
        let raw = RawLabel::read_from_bytes(bytes.get(..LABEL_SIZE)?).ok()?;
        (raw.head.magic == MAGIC).then_some(raw.head.sequence.get())
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
}

pub(super) fn put_name(name: &str) -> [u8; NAME] {
    let mut out = [0; NAME];
    out[..name.len()].copy_from_slice(name.as_bytes());
    out
}

pub(super) fn get_name(raw: &[u8; NAME], field: &'static str) -> Result<String, LabelError> {
    let len = raw.iter().position(|&b| b == 0).ok_or(LabelError::Field(field))?;
    let text = std::str::from_utf8(&raw[..len]).map_err(|_| LabelError::Field(field))?;
    if is_name(text) {
        Ok(text.to_string())
    } else {
        Err(LabelError::Field(field))
    }
}

fn checksum(bytes: &[u8], place: u64) -> u32 {
    let mut all = Vec::with_capacity(bytes.len() + 8);
    all.extend_from_slice(bytes);
    all[8..12].fill(0);
    all.extend_from_slice(&place.to_le_bytes());
    crc32c(&all)
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

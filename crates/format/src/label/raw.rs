//! The bytes of a label as structures; [`super`] turns them into checked values and back.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{EPOCH_HISTORY, LABEL_SIZE, MAX_FAMILIES, MAX_MEMBERS, MAX_VOLUMES, MAX_ZONES, NAME};
use crate::document::{fields, Field};

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawHead {
    pub(super) magic: [u8; 8],
    pub(super) crc: U32,
    pub(super) version: U16,
    pub(super) tier: u8,
    pub(super) member: u8,
    pub(super) sequence: U64,
    pub(super) compatible: U64,
    pub(super) read_only_compatible: U64,
    pub(super) incompatible: U64,
    pub(super) group: [u8; 16],
    pub(super) member_uuid: [u8; 16],
    pub(super) group_name: [u8; NAME],
    pub(super) created: U64,
    pub(super) device_size: U64,
    pub(super) reserve: U64,
    pub(super) sector_size: U32,
    pub(super) member_count: U16,
    pub(super) volume_count: U16,
    pub(super) zone_count: U16,
    pub(super) clean: u8,
    pub(super) epoch_confirmed: u8,
    pub(super) next_volume: U32,
    pub(super) epoch: U64,
    pub(super) epoch_first_generation: U64,
    pub(super) epoch_members: [u8; 32],
    pub(super) epoch_history: [U64; EPOCH_HISTORY],
    pub(super) journal_tail: U64,
    pub(super) journal_tail_hash: U64,
    pub(super) journal_end: U64,
    pub(super) checkpoint_generation: U64,
    pub(super) root_generation: U64,
    pub(super) root_side: u8,
    pub(super) joining: u8,
    pub(super) epoch_cut_off: u8,
    pub(super) repair: u8,
    pub(super) repair_id: U32,
    pub(super) mirrors_from: U64,
    pub(super) policy_clock: U64,
    pub(super) generation: U64,
    pub(super) tables: U64,
    pub(super) family_count: U16,
    pub(super) keys_side: u8,
    pub(super) stopped: u8,
    pub(super) next_family: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawZone {
    pub(super) kind: U16,
    pub(super) version: U16,
    pub(super) pad: U32,
    pub(super) offset: U64,
    pub(super) len: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawMember {
    pub(super) uuid: [u8; 16],
    pub(super) size: U64,
    pub(super) slots: U32,
    pub(super) tier: u8,
    pub(super) state: u8,
    pad: [u8; 34],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawVolume {
    pub(super) uuid: [u8; 16],
    pub(super) name: [u8; NAME],
    pub(super) size: U64,
    pub(super) id: U32,
    pub(super) first_page: U32,
    pub(super) page_count: U32,
    pub(super) family: U32,
    pub(super) placement: u8,
    pub(super) state: u8,
    pub(super) run: U16,
    pad: [u8; 20],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawFamily {
    pub(super) uuid: [u8; 16],
    pub(super) name: [u8; NAME],
    pub(super) check: [u8; 16],
    pub(super) id: U32,
    pub(super) at: U32,
    pub(super) stored: U32,
    pub(super) header: U32,
    pub(super) crc: U32,
    pub(super) state: u8,
    pad: [u8; 11],
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawLabel {
    pub(super) head: RawHead,
    head_pad: [u8; 4096 - std::mem::size_of::<RawHead>()],
    pub(super) zones: [RawZone; MAX_ZONES],
    zone_pad: [u8; 4096 - MAX_ZONES * std::mem::size_of::<RawZone>()],
    pub(super) members: [RawMember; MAX_MEMBERS],
    member_pad: [u8; 64],
    pub(super) volumes: [RawVolume; MAX_VOLUMES],
    pub(super) families: [RawFamily; MAX_FAMILIES],
    tail: [u8; LABEL_SIZE - 8192 - 16384 - MAX_VOLUMES * 128 - MAX_FAMILIES * 128],
}

const _: () = assert!(std::mem::size_of::<RawLabel>() == LABEL_SIZE);
const _: () = assert!(std::mem::size_of::<RawMember>() == 64);
const _: () = assert!(std::mem::size_of::<RawVolume>() == 128);
const _: () = assert!(std::mem::size_of::<RawFamily>() == 128);

/// The structures of a label with their fields, for the test that holds `FORMAT.md` against the code.
pub(crate) fn structures() -> Vec<(&'static str, Vec<Field>)> {
    vec![
        ("label", fields!(RawLabel { head, head_pad, zones, zone_pad, members, member_pad, volumes, families, tail })),
        (
            "label head",
            fields!(RawHead {
                magic,
                crc,
                version,
                tier,
                member,
                sequence,
                compatible,
                read_only_compatible,
                incompatible,
                group,
                member_uuid,
                group_name,
                created,
                device_size,
                reserve,
                sector_size,
                member_count,
                volume_count,
                zone_count,
                clean,
                epoch_confirmed,
                next_volume,
                epoch,
                epoch_first_generation,
                epoch_members,
                epoch_history,
                journal_tail,
                journal_tail_hash,
                journal_end,
                checkpoint_generation,
                root_generation,
                root_side,
                joining,
                epoch_cut_off,
                repair,
                repair_id,
                mirrors_from,
                policy_clock,
                generation,
                tables,
                family_count,
                keys_side,
                stopped,
                next_family,
            }),
        ),
        ("zone row", fields!(RawZone { kind, version, pad, offset, len })),
        ("member row", fields!(RawMember { uuid, size, slots, tier, state, pad })),
        (
            "volume row",
            fields!(RawVolume { uuid, name, size, id, first_page, page_count, family, placement, state, run, pad }),
        ),
        ("family row", fields!(RawFamily { uuid, name, check, id, at, stored, header, crc, state, pad })),
    ]
}

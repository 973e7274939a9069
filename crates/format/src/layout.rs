//! Where things lie on a member.
//!
//! The first 64 KiB and the last MiB of a member are never written by the engine (partition tables, backup GPT). A label lies at
//! 64 KiB and another 2 MiB before the end; zones follow from 1 MiB on; slots come last, aligned to 1 MiB.

use crate::away::REGIONS_PER_BLOCK;
use crate::directory::{DIRECTORIES_PER_ROOT, PAGES_PER_DIRECTORY};
use crate::label::{LABEL_SIZE, MAX_VOLUMES};
use crate::page::ENTRIES_PER_PAGE;
use crate::size::InWords;
use crate::CHUNK;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = crate::BLOCK as u64;

/// Offset of the first label.
pub const LABEL_A: u64 = 64 << 10;
/// First byte of the zones.
pub const ZONES_START: u64 = MIB;
/// Bytes of a side of the keys zone.
pub const KEYS_LEN: u64 = 896 << 10;
/// Smallest journal ring, in blocks. A commit may take a quarter of a ring.
pub const MIN_JOURNAL_BLOCKS: u32 = 8;

/// Offset of the second label on a device of `size` bytes.
pub fn label_b(size: u64) -> u64 {
    (size & !(BLOCK - 1)).saturating_sub(2 * MIB)
}

/// Offset of the block that says who holds the member, on a device laid out with `size` bytes: the last before the MiB that is
/// not ours.
pub fn lease(size: u64) -> u64 {
    label_b(size) + MIB - BLOCK
}

/// The kinds of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum ZoneKind {
    /// Journal ring.
    Journal = 1,
    /// Map pages: side 0 of all pages, then side 1, so that a start reads long runs.
    Map = 2,
    /// Directory blocks, both sides beside each other.
    Directory = 3,
    /// Root blocks: all of side 0, then all of side 1.
    Root = 4,
    /// The away bitmap, both sides of a block beside each other.
    Away = 5,
    /// Slots.
    Slots = 6,
    /// Headers with the keys of families, in two sides: two rows of the table.
    Keys = 7,
    /// Reserved: block checksums.
    Checksums = 8,
}

impl ZoneKind {
    /// The kind with this number.
    pub fn from_u16(n: u16) -> Option<ZoneKind> {
        use ZoneKind::*;
        [Journal, Map, Directory, Root, Away, Slots, Keys, Checksums].into_iter().find(|k| *k as u16 == n)
    }
}

/// A run of bytes of a member that belongs to a zone. A zone may have several; they follow each other in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneExtent {
    /// Which zone.
    pub kind: ZoneKind,
    /// Version of the zone's content.
    pub version: u16,
    /// First byte on the member.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The zones of a member, each in one extent (format 1 makes no others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First byte of the journal ring.
    pub journal: u64,
    /// Blocks of the ring.
    pub journal_blocks: u64,
    /// First byte of the map zone.
    pub map: u64,
    /// Pages in the map zone.
    pub pages: u64,
    /// First byte of the directory zone.
    pub directory: u64,
    /// First byte of the root zone.
    pub root: u64,
    /// First byte of the away zone.
    pub away: u64,
    /// First byte of the slots.
    pub slots: u64,
    /// Number of slots.
    pub slot_count: u64,
    /// The keys of families, where there are any.
    pub keys: Option<Keys>,
}

/// The keys zone of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// First byte of each side.
    pub sides: [u64; 2],
    /// Bytes of a side.
    pub len: u64,
}

/// Why a member cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Nothing is left for slots.
    #[error("a device of {} is too small: metadata takes {} and at least one MiB must remain", InWords(*size), InWords(*metadata))]
    TooSmall {
        /// Size of the device.
        size: u64,
        /// Bytes that labels and zones need.
        metadata: u64,
    },
    /// The zone table of a label contradicts itself.
    #[error("zone table: {0}")]
    Table(&'static str),
}

/// The keys zone that a device of `size` bytes has room for beside all that any member has: side 0 between the first label
/// and the zones, side 1 after the second label.
pub fn keys_extents(size: u64) -> [ZoneExtent; 2] {
    let extent = |offset| ZoneExtent { kind: ZoneKind::Keys, version: 1, offset, len: KEYS_LEN };
    [extent(LABEL_A + LABEL_SIZE as u64), extent(label_b(size) + LABEL_SIZE as u64)]
}

fn keys_of(zones: &[ZoneExtent]) -> Result<Option<Keys>, LayoutError> {
    let found: Vec<&ZoneExtent> = zones.iter().filter(|z| z.kind == ZoneKind::Keys).collect();
    match found[..] {
        [] => Ok(None),
        [a, b] if a.len == KEYS_LEN && b.len == KEYS_LEN && a.version == 1 && b.version == 1 => {
            Ok(Some(Keys { sides: [a.offset, b.offset], len: a.len }))
        }
        _ => Err(LayoutError::Table("the keys zone needs two sides of 896 KiB")),
    }
}

/// Directory blocks for so many pages.
pub fn directory_blocks(pages: u64) -> u64 {
    pages.div_ceil(PAGES_PER_DIRECTORY as u64)
}

/// Root blocks for so many pages.
pub fn root_blocks(pages: u64) -> u64 {
    directory_blocks(pages).div_ceil(DIRECTORIES_PER_ROOT as u64)
}

/// Away blocks for so many pages.
pub fn away_blocks(pages: u64) -> u64 {
    pages.div_ceil(REGIONS_PER_BLOCK as u64)
}

/// Map pages of a new group whose members have `total_bytes` together: for all their chunks, and for each of `volumes`
/// volumes one more, because volumes do not share pages. Volumes that are made later have room too: an eighth more, at
/// least 8, at most [`MAX_VOLUMES`].
pub fn pages_for(total_bytes: u64, volumes: u64) -> u64 {
    let needed = (total_bytes / CHUNK).div_ceil(ENTRIES_PER_PAGE as u64);
    needed + volumes.max((needed / 8).clamp(8, MAX_VOLUMES as u64))
}

/// Journal blocks for a member of `size` bytes: 1/512 of it, 256 KiB to 32 MiB.
pub fn default_journal_blocks(size: u64) -> u32 {
    ((size / 512).clamp(256 << 10, 32 << 20) / BLOCK) as u32
}

impl Layout {
    /// Lays out a new member of `size` bytes.
    pub fn plan(size: u64, pages: u64, journal_blocks: u32) -> Result<Layout, LayoutError> {
        let mut at = ZONES_START;
        let mut take = |blocks: u64| {
            let start = at;
            at += blocks * BLOCK;
            start
        };
        let journal = take(u64::from(journal_blocks));
        let map = take(pages * 2);
        let directory = take(directory_blocks(pages) * 2);
        let root = take(root_blocks(pages) * 2);
        let away = take(away_blocks(pages) * 2);
        let slots = at.next_multiple_of(MIB);
        let end = label_b(size);
        let slot_count = (end.saturating_sub(slots) / CHUNK).min(u64::from(u32::MAX));
        if slot_count * CHUNK < MIB {
            return Err(LayoutError::TooSmall { size, metadata: slots + 2 * MIB });
        }
        let journal_blocks = u64::from(journal_blocks);
        Ok(Layout { journal, journal_blocks, map, pages, directory, root, away, slots, slot_count, keys: None })
    }

    /// The zone table that describes this layout.
    pub fn zones(&self) -> Vec<ZoneExtent> {
        let keys = |k: Keys| k.sides.map(|offset| ZoneExtent { kind: ZoneKind::Keys, version: 1, offset, len: k.len });
        let z = |kind, offset, blocks: u64| ZoneExtent { kind, version: 1, offset, len: blocks * BLOCK };
        let mut zones = vec![
            z(ZoneKind::Journal, self.journal, self.journal_blocks),
            z(ZoneKind::Map, self.map, self.pages * 2),
            z(ZoneKind::Directory, self.directory, directory_blocks(self.pages) * 2),
            z(ZoneKind::Root, self.root, root_blocks(self.pages) * 2),
            z(ZoneKind::Away, self.away, away_blocks(self.pages) * 2),
            z(ZoneKind::Slots, self.slots, self.slot_count * (CHUNK / BLOCK)),
        ];
        zones.extend(self.keys.into_iter().flat_map(keys));
        zones
    }

    /// Reads a zone table of a device of `size` bytes: every zone once, inside the device, apart from the others.
    pub fn from_zones(zones: &[ZoneExtent], size: u64) -> Result<Layout, LayoutError> {
        let one = |kind: ZoneKind| {
            let mut found = zones.iter().filter(|z| z.kind == kind);
            match (found.next(), found.next()) {
                (Some(z), None) if z.version == 1 => Ok(*z),
                (Some(_), None) => Err(LayoutError::Table("a zone has an unknown version")),
                (None, _) => Err(LayoutError::Table("a zone is missing")),
                (Some(_), Some(_)) => Err(LayoutError::Table("a zone has two extents")),
            }
        };
        let (journal, map) = (one(ZoneKind::Journal)?, one(ZoneKind::Map)?);
        let layout = Layout {
            journal: journal.offset,
            journal_blocks: journal.len / BLOCK,
            map: map.offset,
            pages: map.len / (2 * BLOCK),
            directory: one(ZoneKind::Directory)?.offset,
            root: one(ZoneKind::Root)?.offset,
            away: one(ZoneKind::Away)?.offset,
            slots: one(ZoneKind::Slots)?.offset,
            slot_count: one(ZoneKind::Slots)?.len / CHUNK,
            keys: keys_of(zones)?,
        };
        layout.check(zones, size)?;
        Ok(layout)
    }

    fn check(&self, zones: &[ZoneExtent], size: u64) -> Result<(), LayoutError> {
        let mut sorted: Vec<&ZoneExtent> = zones.iter().collect();
        sorted.sort_by_key(|z| z.offset);
        let mut end = LABEL_A + LABEL_SIZE as u64;
        for z in sorted {
            if z.offset < end || z.offset % BLOCK != 0 || z.len % BLOCK != 0 || z.len == 0 {
                return Err(LayoutError::Table("zones overlap or are not aligned"));
            }
            end = z.offset.checked_add(z.len).ok_or(LayoutError::Table("a zone's end overflows"))?;
            let (b, behind_b) = (label_b(size), label_b(size) + LABEL_SIZE as u64);
            let inside = match z.kind {
                ZoneKind::Keys => end <= b || z.offset >= behind_b && end <= b + MIB,
                // The keys must have their place whenever the group gets a family.
                _ => z.offset >= ZONES_START && end <= b,
            };
            if !inside {
                return Err(LayoutError::Table("a zone reaches beyond the device"));
            }
        }
        if self.journal_blocks < u64::from(MIN_JOURNAL_BLOCKS) || self.journal_blocks > 1 << 24 {
            return Err(LayoutError::Table("impossible size of the journal"));
        }
        if self.pages == 0 || self.pages > u64::from(u32::MAX) || self.slot_count > u64::from(u32::MAX) {
            return Err(LayoutError::Table("impossible number of pages or slots"));
        }
        let len_of = |kind| zones.iter().find(|z| z.kind == kind).map_or(0, |z| z.len);
        let enough = len_of(ZoneKind::Directory) >= directory_blocks(self.pages) * 2 * BLOCK
            && len_of(ZoneKind::Root) >= root_blocks(self.pages) * 2 * BLOCK
            && len_of(ZoneKind::Away) >= away_blocks(self.pages) * 2 * BLOCK;
        if !enough {
            return Err(LayoutError::Table("directory, root or away zone is too short for the map"));
        }
        Ok(())
    }

    /// Byte offset of journal block number `sequence`.
    pub fn journal_block(&self, sequence: u64) -> u64 {
        self.journal + sequence % self.journal_blocks * BLOCK
    }

    /// Byte offset of a side of a map page.
    pub fn page(&self, page: u32, side: u8) -> u64 {
        self.map + (u64::from(side) * self.pages + u64::from(page)) * BLOCK
    }

    /// Byte offset of a side of a directory block.
    pub fn directory_block(&self, index: u64, side: u8) -> u64 {
        self.directory + (index * 2 + u64::from(side)) * BLOCK
    }

    /// Byte offset of a side of a root block.
    pub fn root_block(&self, index: u64, side: u8) -> u64 {
        self.root + (u64::from(side) * root_blocks(self.pages) + index) * BLOCK
    }

    /// Byte offset of a side of an away block.
    pub fn away_block(&self, index: u64, side: u8) -> u64 {
        self.away + (index * 2 + u64::from(side)) * BLOCK
    }

    /// Byte offset of a slot.
    pub fn slot(&self, slot: u32) -> u64 {
        self.slots + u64::from(slot) * CHUNK
    }
}

//! The metadata of a group as a file: `dump --save` writes it, `restore` writes it back.
//!
//! ```text
//! BIMETAL METADATA 1\n      what it is, and the version of this layout
//! {"program":...}\n         a line of JSON: [`Header`]
//! 4 bytes                   CRC-32C of both lines, little-endian
//! records                   [`record`]: runs of blocks, by member and then by offset
//! end                       how many records and bytes there were
//! ```
//!
//! Of each member it holds both places of the label and every zone but the slots, byte for byte. Each such *extent* is cut into
//! *pieces* of 1 MiB, from its beginning; a record lies in one piece. Blocks of 4 KiB that hold nothing but zeros are left out.
//! What could not be read has a record that says so, without content.
//!
//! What is believed when it is read:
//! 1. Nothing, before the whole file has been read and every checksum was right. Each record's is salted with that of the one
//!    before, so that none can be missing, twice, or of another file.
//! 2. Of the header only what the saved labels say, too: who the members are, and where their extents lie. So no file makes
//!    `restore` write into slots, or beside what its label calls a zone.

mod mark;
mod patient;
mod put;
mod read;
mod record;
mod since;
#[cfg(test)]
mod sweep;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod traces;
mod walk;
mod write;

use bimetal_format::label::{Label, TierCode, LABEL_SIZE};
use bimetal_format::layout::{label_b, ZoneExtent, ZoneKind, LABEL_A};
use serde::{Deserialize, Serialize};

pub(crate) use self::mark::{LaidOut, Mark};
pub(crate) use self::put::{label_behind, put_back, Target, Written};
pub(crate) use self::read::{SavedFile, SavedMember};
pub(crate) use self::since::{committed_since, Sign};
pub(crate) use self::traces::has_traces_of;
pub(crate) use self::write::{save, OneSaved, Saved, Secret};

/// The first line without the version.
const MAGIC: &str = "BIMETAL METADATA ";
/// Version of the layout.
const VERSION: &str = "1";
/// Bytes of a piece: most that a record holds, and most that is in memory at a time.
const PIECE: u64 = 1 << 20;
const BLOCK: u64 = bimetal_format::BLOCK as u64;
/// Longest line of JSON, in bytes: 255 members need a tenth of it.
const MAX_HEADER: usize = 4 << 20;

/// The line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// What wrote the file.
    program: String,
    /// Name of this file for ever, a random UUID.
    id: String,
    /// Name of the group.
    group: String,
    /// UUID of the group.
    uuid: String,
    /// When it was saved, in seconds since 1970.
    saved_at: u64,
    members: Vec<HeaderMember>,
}

/// A member in the header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeaderMember {
    index: u8,
    uuid: String,
    /// `fast` or `slow`.
    tier: String,
    /// Where it was.
    locator: String,
    /// Bytes of its device when it was saved.
    size_bytes: u64,
    /// Bytes of its device when it became a member: where its second label lies depends on this.
    laid_out_bytes: u64,
    /// Id of the epoch of its label, in hexadecimal: JSON numbers lose bits in many readers.
    epoch: String,
    /// Number of its label.
    sequence: u64,
    /// What is saved of it, by offset.
    extents: Vec<Extent>,
}

/// A range of a member that is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// `label`, or the kind of the zone.
    what: String,
    /// First byte on the member.
    offset: u64,
    /// Bytes.
    length: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    fn is_label(&self) -> bool {
        self.what == "label"
    }

    /// Offset and length of its pieces.
    fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        let (end, starts) = (self.end(), (self.offset..self.end()).step_by(PIECE as usize));
        starts.map(move |at| (at, PIECE.min(end - at)))
    }
}

/// The range of the piece in which byte `offset` lies.
fn piece_at(extents: &[Extent], offset: u64) -> Option<(u64, u64)> {
    let extent = extents.iter().find(|e| (e.offset..e.end()).contains(&offset))?;
    let start = offset - (offset - extent.offset) % PIECE;
    Some((start, PIECE.min(extent.end() - start)))
}

/// Both places of a member's label, in bytes from its beginning.
fn label_places(laid_out_bytes: u64) -> [u64; 2] {
    [LABEL_A, label_b(laid_out_bytes)]
}

/// What is saved of the member that has this label, by offset. A decoded label's zones do not overlap, nor reach into labels.
fn extents_of(label: &Label) -> Vec<Extent> {
    let label_extent = |offset| Extent { what: "label".into(), offset, length: LABEL_SIZE as u64 };
    let zone = |z: &ZoneExtent| Extent { what: zone_name(z.kind).into(), offset: z.offset, length: z.len };
    let zones = label.zones.iter().filter(|z| z.kind != ZoneKind::Slots).map(zone);
    let mut all: Vec<Extent> = zones.chain(label_places(label.device_size).map(label_extent)).collect();
    all.sort_by_key(|e| e.offset);
    all
}

fn zone_name(kind: ZoneKind) -> &'static str {
    match kind {
        ZoneKind::Journal => "journal",
        ZoneKind::Map => "map",
        ZoneKind::Directory => "directory",
        ZoneKind::Root => "root",
        ZoneKind::Away => "away",
        ZoneKind::Slots => "slots",
        ZoneKind::Keys => "keys",
        ZoneKind::Checksums => "checksums",
    }
}

/// Tier of the member that carries the label.
pub(crate) fn own_tier(label: &Label) -> TierCode {
    // A decoded label lists its own member.
    label.members.get(usize::from(label.member)).map_or(TierCode::Slow, |row| row.tier)
}

/// Of what the two places of a label hold: which one counts, and what it says.
fn counting_label(places: [u64; 2], contents: [&[u8]; 2]) -> Option<(usize, Label)> {
    let decoded = [0, 1].map(|i| Label::decode(contents[i], places[i]).ok());
    let sound = decoded.into_iter().enumerate().filter_map(|(i, label)| Some((i, label?)));
    // The first of equal ones, as everybody reads them.
    sound.reduce(|best, next| if next.1.sequence > best.1.sequence { next } else { best })
}

//! Reading a file back: once whole, to believe it, then piece by piece.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use bimetal_format::block::crc32c;
use bimetal_format::label::{is_name, Label, LABEL_SIZE};

use super::record::{read_whole, Record, RecordReader};
use super::{counting_label, extents_of, label_places, own_tier, piece_at};
use super::{Extent, Header, HeaderMember, LaidOut, BLOCK, MAGIC, MAX_HEADER, VERSION};
use crate::members::{own_uuid, tier_name};
use crate::uuid::{uuid_bytes, uuid_text};

/// A file that was read once, and is sound.
pub(crate) struct SavedFile {
    file: File,
    path: PathBuf,
    content: SavedContent,
}

/// What a sound file says, but for the content of zones.
pub(crate) struct SavedContent {
    /// Its name for ever.
    pub(crate) id: [u8; 16],
    /// Name of the group.
    pub(crate) group: String,
    /// UUID of the group.
    pub(crate) uuid: [u8; 16],
    /// When it was saved, in seconds since 1970.
    pub(crate) saved_at: u64,
    pub(crate) members: Vec<SavedMember>,
    /// Where records begin, and the checksum before them.
    records_at: u64,
    chain: u32,
}

/// A member that is in the file.
pub(crate) struct SavedMember {
    /// Its label, the one of the two that counts.
    pub(crate) label: Label,
    /// Where it was when it was saved.
    pub(crate) locator: String,
    /// Bytes of its device when it was saved.
    pub(crate) size: u64,
    /// What is saved of it, by offset.
    pub(super) extents: Vec<Extent>,
    /// Both places of its label; the one that counts first.
    pub(super) labels: [Piece; 2],
}

/// The content of a piece of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Which of the members in the file.
    pub(super) member: usize,
    /// Its first byte on the member.
    pub(super) offset: u64,
    /// All of it; zeros where the file has nothing.
    pub(super) content: Vec<u8>,
    /// Ranges of the content that could not be read when it was saved.
    pub(super) holes: Vec<(usize, usize)>,
}

impl SavedMember {
    /// UUID of the member.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        own_uuid(&self.label)
    }

    /// "member 1 (slow, 931 GiB)".
    pub(crate) fn named(&self) -> String {
        let tier = tier_name(own_tier(&self.label));
        format!("member {} ({tier}, {})", self.label.member, crate::size::approx(self.size))
    }

    /// Bytes that are written back to it.
    pub(crate) fn bytes(&self) -> u64 {
        self.extents.iter().map(|e| e.length).sum()
    }
}

impl SavedFile {
    /// Reads the file from end to end. Anything but a sound file of a known version is an error that says what is wrong.
    pub(crate) fn open(path: &Path) -> Result<SavedFile> {
        let unreadable = || format!("{} cannot be read", path.display());
        // Before it is opened: a pipe would wait for its other end.
        if !std::fs::metadata(path).with_context(unreadable)?.is_file() {
            bail!("{} is no regular file, so it is none that `bimetal dump --save` has made", path.display());
        }
        let file = File::open(path).with_context(unreadable)?;
        let content = read_content(&mut BufReader::with_capacity(1 << 20, &file))
            .with_context(|| format!("{} cannot be used; nothing was written", path.display()))?;
        Ok(SavedFile { file, path: path.to_owned(), content })
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All pieces of all extents, by member and offset. The file is read again, and every checksum verified again.
    pub(super) fn pieces(&self) -> Result<FilePieces<'_>> {
        let mut input = BufReader::with_capacity(1 << 20, &self.file);
        input.seek(SeekFrom::Start(self.records_at))?;
        Pieces::new(RecordReader::new(input, self.chain), &self.members)
    }
}

impl SavedContent {
    /// How the members in it were laid out.
    pub(crate) fn laid_out(&self) -> Vec<LaidOut> {
        self.members.iter().map(|m| (m.uuid(), m.label.device_size)).collect()
    }
}

impl std::ops::Deref for SavedFile {
    type Target = SavedContent;
    fn deref(&self) -> &SavedContent {
        &self.content
    }
}

/// Reads and verifies everything.
pub(super) fn read_content(input: &mut impl BufRead) -> Result<SavedContent> {
    let (header, records_at, chain) = read_header(input)?;
    let bad = |what: &str| format!("its header is impossible: {what}");
    let id = uuid_bytes(&header.id).with_context(|| bad("the name of the file"))?;
    let uuid = uuid_bytes(&header.uuid).with_context(|| bad("the UUID of the group"))?;
    // Names of files are made of it.
    ensure!(is_name(&header.group), bad("the name of the group"));
    check_members(&header.members)?;
    let mut labels: Vec<[Piece; 2]> = header.members.iter().enumerate().map(empty_labels).collect();
    read_records(input, chain, &header.members, &mut labels)?;
    let members = header.members.iter().zip(labels).map(|(m, labels)| believed(&header, m, labels));
    let members = members.collect::<Result<Vec<_>>>()?;
    Ok(SavedContent { id, group: header.group.clone(), uuid, saved_at: header.saved_at, members, records_at, chain })
}

/// The header, how long it is with its checksum, and that checksum.
fn read_header(input: &mut impl BufRead) -> Result<(Header, u64, u32)> {
    let mut lines = Vec::new();
    input.take(64).read_until(b'\n', &mut lines).context("it cannot be read")?;
    let first = lines.strip_suffix(b"\n").and_then(|l| std::str::from_utf8(l).ok());
    let Some(version) = first.and_then(|l| l.strip_prefix(MAGIC)) else {
        bail!("it is no file that `bimetal dump --save` has made");
    };
    if version != VERSION {
        bail!("it is of version {version}, and this program knows version {VERSION}; use a newer Bimetal");
    }
    let begin = lines.len();
    input.take(MAX_HEADER as u64).read_until(b'\n', &mut lines).context("it cannot be read")?;
    if !lines.ends_with(b"\n") || lines.len() == begin {
        bail!("it is cut off, or its header damaged");
    }
    let mut crc = [0; 4];
    read_whole(input, &mut crc)?;
    let chain = crc32c(&lines);
    if chain.to_le_bytes() != crc {
        bail!("the checksum of its header is wrong");
    }
    let header = serde_json::from_slice(&lines[begin..]).context("its header is damaged")?;
    Ok((header, (lines.len() + crc.len()) as u64, chain))
}

/// Refuses what would be wrong whatever the labels say.
fn check_members(members: &[HeaderMember]) -> Result<()> {
    ensure!(!members.is_empty(), "its header is impossible: it names no member");
    let mut seen = HashSet::new();
    for m in members {
        let bad = |what: &str| format!("its header is impossible: {what} of member {}", m.index);
        ensure!(seen.insert(m.index), bad("there are two"));
        ensure!(m.laid_out_bytes <= m.size_bytes && m.size_bytes < 1 << 63, bad("the size"));
        ensure!(m.extents.len() <= 2 + bimetal_format::label::MAX_ZONES, bad("the number of extents"));
        let mut end = 0;
        for e in &m.extents {
            let aligned = e.offset % BLOCK == 0 && e.length % BLOCK == 0 && e.length > 0;
            let apart = e.offset >= end && e.offset.checked_add(e.length).is_some_and(|end| end <= m.laid_out_bytes);
            ensure!(aligned && apart, bad("an extent"));
            end = e.end();
        }
    }
    Ok(())
}

fn empty_labels((member, m): (usize, &HeaderMember)) -> [Piece; 2] {
    label_places(m.laid_out_bytes).map(|offset| Piece {
        member,
        offset,
        content: vec![0; LABEL_SIZE],
        holes: Vec::new(),
    })
}

/// Reads all records: each in a piece, behind the one before. What belongs to labels is kept.
fn read_records(input: &mut impl Read, chain: u32, members: &[HeaderMember], labels: &mut [[Piece; 2]]) -> Result<()> {
    let mut records = RecordReader::new(input, chain);
    let mut behind = (0, 0);
    loop {
        let record = records.next()?;
        let (index, offset, length) = match record {
            Record::End => return Ok(()),
            Record::Content { member, offset, content } => (member, offset, content.len() as u64),
            Record::Unreadable { member, offset, length } => (member, offset, length),
        };
        let bad = || format!("a record at byte {offset} of member {index} is not where one can be");
        let member = members.iter().position(|m| m.index == index).with_context(bad)?;
        let (start, len) = piece_at(&members[member].extents, offset).with_context(bad)?;
        ensure!((member, offset) >= behind && length <= start + len - offset, bad());
        behind = (member, offset + length);
        if let Some(label) = labels[member].iter_mut().find(|l| l.offset == start && len == LABEL_SIZE as u64) {
            label.take(&record, offset);
        }
    }
}

impl Piece {
    /// Puts a record of this piece into it.
    fn take(&mut self, record: &Record<'_>, offset: u64) {
        let at = (offset - self.offset) as usize;
        match record {
            Record::Content { content, .. } => self.content[at..at + content.len()].copy_from_slice(content),
            Record::Unreadable { length, .. } => self.holes.push((at, at + *length as usize)),
            Record::End => {}
        }
    }

    /// Ranges of the content that were saved.
    pub(super) fn saved(&self) -> Vec<(usize, usize)> {
        let starts = std::iter::once(0).chain(self.holes.iter().map(|h| h.1));
        let ends = self.holes.iter().map(|h| h.0).chain([self.content.len()]);
        starts.zip(ends).filter(|(start, end)| start < end).collect()
    }
}

/// A member of which the header and the saved label say the same.
fn believed(header: &Header, m: &HeaderMember, [a, b]: [Piece; 2]) -> Result<SavedMember> {
    let counting = counting_label([a.offset, b.offset], [&a.content, &b.content]);
    let (which, label) = counting.with_context(|| format!("it has no sound label of member {}", m.index))?;
    let same = label.group_name == header.group
        && uuid_text(&label.group) == header.uuid
        && label.member == m.index
        && uuid_text(&own_uuid(&label)) == m.uuid
        && tier_name(own_tier(&label)) == m.tier
        && label.device_size == m.laid_out_bytes
        && format!("{:#x}", label.epoch.id) == m.epoch
        && label.sequence == m.sequence
        && extents_of(&label) == m.extents;
    ensure!(same, "its header and the saved label of member {} contradict each other", m.index);
    let labels = if which == 0 { [a, b] } else { [b, a] };
    Ok(SavedMember { label, locator: m.locator.clone(), size: m.size_bytes, extents: m.extents.clone(), labels })
}

/// The pieces of a file.
pub(super) type FilePieces<'a> = Pieces<'a, BufReader<&'a File>>;

/// Goes through all pieces of all extents.
pub(super) struct Pieces<'a, R> {
    records: RecordReader<R>,
    /// The record that was read and belongs to a piece further on.
    ahead: Option<Ahead>,
    /// What is still to come: member, index of the member, offset, length.
    places: Box<dyn Iterator<Item = (usize, u8, u64, u64)> + 'a>,
}

/// A record that waits for its piece.
struct Ahead {
    member: u8,
    offset: u64,
    content: Vec<u8>,
    /// Bytes that could not be read.
    unreadable: u64,
}

impl<'a, R: Read> Pieces<'a, R> {
    fn new(records: RecordReader<R>, members: &'a [SavedMember]) -> Result<Pieces<'a, R>> {
        let of_member = |(i, m): (usize, &'a SavedMember)| {
            let pieces = m.extents.iter().flat_map(Extent::pieces);
            pieces.map(move |(offset, length)| (i, m.label.member, offset, length))
        };
        let places = Box::new(members.iter().enumerate().flat_map(of_member));
        let mut pieces = Pieces { records, ahead: None, places };
        pieces.read_ahead()?;
        Ok(pieces)
    }

    fn read_ahead(&mut self) -> Result<()> {
        self.ahead = match self.records.next()? {
            Record::End => None,
            Record::Content { member, offset, content } => {
                Some(Ahead { member, offset, content: content.to_vec(), unreadable: 0 })
            }
            Record::Unreadable { member, offset, length } => {
                Some(Ahead { member, offset, content: Vec::new(), unreadable: length })
            }
        };
        Ok(())
    }

    /// The next piece; `None` after the last. An error if the file has changed since it was verified.
    pub(super) fn next(&mut self) -> Result<Option<Piece>> {
        let Some((member, index, offset, length)) = self.places.next() else {
            ensure!(self.ahead.is_none(), "the file has changed while it was read");
            return Ok(None);
        };
        let mut piece = Piece { member, offset, content: vec![0; length as usize], holes: Vec::new() };
        while let Some(a) = &self.ahead {
            if a.member != index || !(offset..offset + length).contains(&a.offset) {
                break;
            }
            let record = match a.unreadable {
                0 => Record::Content { member: a.member, offset: a.offset, content: &a.content },
                length => Record::Unreadable { member: a.member, offset: a.offset, length },
            };
            piece.take(&record, a.offset);
            self.read_ahead()?;
        }
        Ok(Some(piece))
    }
}

//! Saving: one pass over all that is saved of each member, a piece in memory at a time.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use bimetal_format::block::crc32c;
use bimetal_format::label::{Label, LabelError, MemberCode, MemberRow, LABEL_SIZE};
use bimetal_host::{HostDevice, HostEnv};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{Device, Env};

use super::patient::Patient;
use super::record::RecordWriter;
use super::{counting_label, extents_of, label_places, own_tier};
use super::{Extent, Header, HeaderMember, BLOCK, MAGIC, VERSION};
use crate::durable::sync_new;
use crate::members::{own_uuid, tier_name, Opened};
use crate::progress::Progress;
use crate::size::approx;
use crate::standing::{newest, standing, Standing};
use crate::uuid::uuid_text;

/// What was saved, and what was not.
#[derive(Debug)]
pub(crate) struct Saved {
    /// Name of the group.
    pub(crate) group: String,
    /// UUID of the group.
    pub(crate) uuid: String,
    /// When, in seconds since 1970.
    pub(crate) at: u64,
    /// The file.
    pub(crate) file: PathBuf,
    /// Its bytes.
    pub(crate) file_bytes: u64,
    /// How secret it is.
    pub(crate) secret: Secret,
    pub(crate) members: Vec<OneSaved>,
    /// Devices that could not be saved, or are no members, and why.
    pub(crate) not_saved: Vec<String>,
    /// Members of the group that were not there.
    pub(crate) missing: Vec<String>,
}

/// How secret what was saved is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// It tells what lies where.
    Layout,
    /// It has the headers of families, too: whoever has it can try passphrases.
    Headers,
}

/// A member that was saved.
#[derive(Debug)]
pub(crate) struct OneSaved {
    pub(crate) index: u8,
    pub(crate) uuid: String,
    pub(crate) locator: String,
    /// Blocks of 4 KiB that could not be read, and are not in the file.
    pub(crate) unreadable_blocks: u64,
}

/// A member that can be saved.
struct Source<'a, D> {
    locator: String,
    device: &'a D,
    label: Label,
    /// What stands in the places of its label: read once, so that the file's header and its content agree.
    labels: [Found; 2],
}

/// Saves the metadata of the members of one idle group into the new file `path`, for its owner alone. When this returns, the file
/// is durable. Nothing is written to members; the devices need not be writable.
///
/// What cannot be read, a device without a sound label, one that is no member by the newest label, and a member that is missing are left
/// out, and the report says so. It is an error if `path` is there already or cannot be written, if no member can be saved, or if the devices are not of one
/// group; then no file is left.
pub(crate) async fn save(env: &HostEnv, opened: &[Opened], path: &Path) -> Result<Saved> {
    let patient = |device: &HostDevice| {
        let env = env.clone();
        Patient::new(device.clone(), async move |pause| env.sleep(pause).await)
    };
    let devices: Vec<_> = opened.iter().map(|m| (m.locator.to_string(), patient(&m.device))).collect();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&env.random().to_le_bytes());
    id[8..].copy_from_slice(&env.random().to_le_bytes());
    save_devices(id, env.unix_seconds(), &devices, path).await
}

/// The same for devices of any kind, each with its name, as file `id` of the time `at`.
pub(super) async fn save_devices<D: Device>(
    id: [u8; 16],
    at: u64,
    devices: &[(String, D)],
    path: &Path,
) -> Result<Saved> {
    let (mut sources, mut not_saved) = (Vec::new(), Vec::new());
    for (locator, device) in devices {
        match source(locator, device).await {
            Ok(source) => sources.push(source),
            Err(why) => not_saved.push(format!("{locator}: {why}, so it cannot be saved")),
        }
    }
    refuse_mixture(&sources)?;
    let sources = members_only(sources, &mut not_saved);
    let Some(newest) = newest(sources.iter().map(|s| &s.label)).cloned() else {
        bail!("nothing can be saved: {}", not_saved.join("; "));
    };
    refuse_copies(&sources)?;
    let missing = missing(&newest, &sources);
    let header = header(id, at, &newest, &sources);
    let (file_bytes, unreadable) = write_file(path, &header, &sources).await?;
    let members = sources.iter().zip(unreadable);
    Ok(Saved {
        group: header.group,
        uuid: header.uuid,
        at,
        file: path.to_owned(),
        file_bytes,
        secret: if newest.next_family > 0 { Secret::Headers } else { Secret::Layout },
        members: members.map(|(s, unreadable_blocks)| one_saved(s, unreadable_blocks)).collect(),
        not_saved,
        missing,
    })
}

fn one_saved<D>(source: &Source<'_, D>, unreadable_blocks: u64) -> OneSaved {
    let uuid = uuid_text(&own_uuid(&source.label));
    OneSaved { index: source.label.member, uuid, locator: source.locator.clone(), unreadable_blocks }
}

/// Content of a range, and which of its blocks could not be read: these are zeros in the content.
struct Found {
    content: BufMut,
    lost: Vec<bool>,
}

/// Reads a range, block by block where it cannot be read at once.
async fn read<D: Device>(device: &D, offset: u64, length: u64) -> Found {
    let blocks = (length / BLOCK) as usize;
    let (content, read) = device.read(offset, BufMut::new(length as usize)).await;
    if read.is_ok() {
        return Found { content, lost: vec![false; blocks] };
    }
    let mut found = Found { content: BufMut::zeroed(length as usize), lost: vec![false; blocks] };
    let whole = found.content.chunks_exact_mut(BLOCK as usize);
    for ((i, block), lost) in (0..).zip(whole).zip(&mut found.lost) {
        let (content, read) = device.read(offset + i * BLOCK, BufMut::new(BLOCK as usize)).await;
        match read {
            Ok(()) => block.copy_from_slice(&content),
            Err(_) => *lost = true,
        }
    }
    found
}

/// A device with its label; in words why it has none.
async fn source<'a, D: Device>(locator: &str, device: &'a D) -> Result<Source<'a, D>, String> {
    // The second label lies where the device ended when it was laid out; only the label tells.
    let mut laid_out = device.size();
    loop {
        let places = label_places(laid_out);
        if places.iter().any(|place| place + LABEL_SIZE as u64 > device.size()) {
            return Err("it is too small for a member".into());
        }
        let [first, second] = places.map(|place| read(device, place, LABEL_SIZE as u64));
        let labels = [first.await, second.await];
        let contents = [&labels[0].content[..], &labels[1].content[..]];
        match counting_label(places, contents) {
            Some((_, label)) if label.device_size == laid_out => {
                return Ok(Source { locator: locator.to_owned(), device, label, labels });
            }
            // Only towards a smaller size, so that this ends.
            Some((_, label)) if label.device_size < laid_out => laid_out = label.device_size,
            Some(_) => return Err("it has become smaller since it became a member".into()),
            None => return Err(reason(places, contents)),
        }
    }
}

/// Why there is no label: a damaged one says more than none.
fn reason(places: [u64; 2], contents: [&[u8]; 2]) -> String {
    let errors = [0, 1].map(|i| Label::decode(contents[i], places[i]).err());
    let told = errors.into_iter().flatten().find(|e| *e != LabelError::NotALabel);
    let why = told.map_or_else(|| "there is none".into(), |e| e.to_string());
    format!("both places of its label hold no sound one ({why})")
}

fn refuse_mixture<D>(sources: &[Source<'_, D>]) -> Result<()> {
    let Some(first) = sources.first() else { return Ok(()) };
    let Some(other) = sources.iter().find(|s| s.label.group != first.label.group) else { return Ok(()) };
    bail!(
        "{} is a member of group '{}', {} of another one, '{}'; name the members of one",
        first.locator,
        first.label.group_name,
        other.locator,
        other.label.group_name
    );
}

/// Leaves out who is no member by the newest label, and says so: a file has one member of each index, and whoever writes it back needs all
/// that are in it.
fn members_only<'a, D>(sources: Vec<Source<'a, D>>, not_saved: &mut Vec<String>) -> Vec<Source<'a, D>> {
    let Some(newest) = newest(sources.iter().map(|s| &s.label)).cloned() else { return sources };
    let is_member = |s: &Source<'_, D>| row_of(&newest, &s.label).is_some_and(|row| row.state != MemberCode::Left);
    let (members, others): (Vec<_>, Vec<_>) = sources.into_iter().partition(is_member);
    let told = |s: &Source<'_, D>| format!("{}: {}, so it is not saved", s.locator, why_none(&s.label, &newest));
    not_saved.extend(others.iter().map(told));
    members
}

/// Why the device with this label is no member.
fn why_none(label: &Label, newest: &Label) -> &'static str {
    match (row_of(newest, label).is_some(), standing(label, newest)) {
        (_, Standing::Joining) => "it was being added to the group when that was cut off, and has not become a member",
        (true, Standing::Former) => "it has left the group",
        _ => {
            "the newest label of the group names no such member (a repair went on without it, or it was used apart: to save that side, \
             name its members alone)"
        }
    }
}

/// All are members by now: two with one index are one.
fn refuse_copies<D>(sources: &[Source<'_, D>]) -> Result<()> {
    let mut seen = HashSet::new();
    match sources.iter().find(|s| !seen.insert(s.label.member)) {
        Some(s) => bail!("{} is a copy of another member that was named; name only one of them", s.locator),
        None => Ok(()),
    }
}

fn row_of<'a>(newest: &'a Label, label: &Label) -> Option<&'a MemberRow> {
    newest.members.get(usize::from(label.member)).filter(|row| row.uuid == own_uuid(label))
}

fn missing<D>(newest: &Label, sources: &[Source<'_, D>]) -> Vec<String> {
    let here: HashSet<[u8; 16]> = sources.iter().map(|s| own_uuid(&s.label)).collect();
    let rows = newest.members.iter().enumerate();
    let absent = rows.filter(|(_, row)| row.state != MemberCode::Left && !here.contains(&row.uuid));
    absent.map(|(i, row)| format!("member {i} ({}, {})", tier_name(row.tier), approx(row.size))).collect()
}

fn header<D: Device>(id: [u8; 16], saved_at: u64, newest: &Label, sources: &[Source<'_, D>]) -> Header {
    let member = |s: &Source<'_, D>| HeaderMember {
        index: s.label.member,
        uuid: uuid_text(&own_uuid(&s.label)),
        tier: tier_name(own_tier(&s.label)).into(),
        locator: s.locator.clone(),
        size_bytes: s.device.size(),
        laid_out_bytes: s.label.device_size,
        epoch: format!("{:#x}", s.label.epoch.id),
        sequence: s.label.sequence,
        extents: extents_of(&s.label),
    };
    Header {
        program: format!("bimetal {}", env!("CARGO_PKG_VERSION")),
        id: uuid_text(&id),
        group: newest.group_name.clone(),
        uuid: uuid_text(&newest.group),
        saved_at,
        members: sources.iter().map(member).collect(),
    }
}

/// Writes the file; its bytes, and of each member the blocks that could not be read. A file that was not finished is removed.
async fn write_file<D: Device>(path: &Path, header: &Header, sources: &[Source<'_, D>]) -> Result<(u64, Vec<u64>)> {
    let file = create(path)?;
    let written = write_content(&file, header, sources).await.and_then(|unreadable| {
        sync_new(&file, path)?;
        Ok((file.metadata()?.len(), unreadable))
    });
    written
        .inspect_err(|_| drop(std::fs::remove_file(path)))
        .with_context(|| format!("{} cannot be written", path.display()))
}

fn create(path: &Path) -> Result<File> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} is there already, and is not overwritten; take another name", path.display())
        }
        opened => opened.with_context(|| format!("{} cannot be made", path.display())),
    }
}

async fn write_content<D: Device>(file: &File, header: &Header, sources: &[Source<'_, D>]) -> Result<Vec<u64>> {
    let lines = format!("{MAGIC}{VERSION}\n{}\n", serde_json::to_string(header)?);
    let crc = crc32c(lines.as_bytes());
    let mut out = BufWriter::new(file);
    out.write_all(lines.as_bytes())?;
    out.write_all(&crc.to_le_bytes())?;
    let mut records = RecordWriter::new(out, crc);
    let mut progress = Progress::new();
    let whole = header.members.iter().flat_map(|m| &m.extents).map(|e| e.length).sum();
    let (mut done, mut unreadable) = (0, Vec::new());
    for (source, member) in sources.iter().zip(&header.members) {
        let mut lost = 0;
        for extent in &member.extents {
            for (offset, length) in extent.pieces() {
                progress.show(|| format!("Saving {}: {}", source.locator, progress_part(done, whole)));
                lost += write_piece(&mut records, source, extent, offset, length).await?;
                done += length;
            }
        }
        unreadable.push(lost);
    }
    records.end()?.flush()?;
    Ok(unreadable)
}

fn progress_part(done: u64, whole: u64) -> String {
    format!("{} of {}", approx(done), approx(whole))
}

/// Writes the records of a piece; how many of its blocks cannot be read.
async fn write_piece<D: Device, W: Write>(
    records: &mut RecordWriter<W>,
    source: &Source<'_, D>,
    extent: &Extent,
    offset: u64,
    length: u64,
) -> std::io::Result<u64> {
    if extent.is_label() {
        let which = usize::from(offset != label_places(source.label.device_size)[0]);
        return write_found(records, source.label.member, offset, &source.labels[which]);
    }
    let found = read(source.device, offset, length).await;
    write_found(records, source.label.member, offset, &found)
}

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockState {
    Zeros,
    Content,
    Lost,
}

fn write_found<W: Write>(
    records: &mut RecordWriter<W>,
    member: u8,
    offset: u64,
    found: &Found,
) -> std::io::Result<u64> {
    let state = |(block, lost): (&[u8], &bool)| match (lost, block.iter().all(|b| *b == 0)) {
        (true, _) => BlockState::Lost,
        (false, true) => BlockState::Zeros,
        (false, false) => BlockState::Content,
    };
    let states: Vec<BlockState> = found.content.chunks_exact(BLOCK as usize).zip(&found.lost).map(state).collect();
    let (mut at, mut lost) = (0, 0);
    for run in states.chunk_by(|a, b| a == b) {
        let length = run.len() * BLOCK as usize;
        match run[0] {
            BlockState::Zeros => {}
            BlockState::Content => records.content(member, offset + at as u64, &found.content[at..at + length])?,
            BlockState::Lost => {
                records.unreadable(member, offset + at as u64, length as u64)?;
                lost += run.len() as u64;
            }
        }
        at += length;
    }
    Ok(lost)
}

//! Writing metadata back. At no moment may a group be found that mixes what was saved with what was there:
//!
//! 1. Both places of every member's label become a [`Mark`], the one that does not count first; all synced. Until then no
//!    zone has changed, and a member that still has a label has the one that it had. From then on there is no group. Devices that a
//!    repair had added come first; they keep their marks until all else is done, so that the next call knows them.
//! 2. All zones are written, zeros included; all synced; read back and compared.
//! 3. The labels, the one that counts first. A member that has one has all its zones, and so have all others.
//!
//! Of blocks that could not be read when they were saved, what is there now may be of later, and look sound: a map page counts if it is not
//! older than the directory says, an away block if it is the newest. So they are spoilt, to be as damaged as they were, unless nothing was
//! written to the member since ([`Target::as_saved`]).
//!
//! Whatever ends this in the middle, writing back the same file again completes it.

use anyhow::{bail, ensure, Context, Result};
use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::label_b;
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{Device, DeviceError};

use super::read::{Piece, SavedFile, SavedMember};
use super::walk::Walk;
use super::{counting_label, Mark};
use crate::members::own_uuid;

/// A device, and which of the members in the file it is.
pub(crate) struct Target<D> {
    pub(crate) locator: String,
    pub(crate) device: D,
    /// Nothing has written to its zones since it was saved. Blocks that could not be read then may be read now, and are right.
    pub(crate) as_saved: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes that were not what was saved, and are now.
    pub(crate) changed_bytes: u64,
}

/// Writes everything in the file back to `targets`, one for each of its members in their order. `added` are devices that became
/// members later: they lose their labels. Nobody else may use any of them.
///
/// It is an error if a device cannot be written or read, or does not hold what was written to it. Then the group does not
/// start, and the same call completes it, unless nothing had been written yet.
pub(crate) async fn put_back<D: Device>(
    saved: &SavedFile,
    targets: &[Target<D>],
    added: &[Target<D>],
) -> Result<Written> {
    assert_eq!(saved.members.len(), targets.len(), "a device for each member");
    take_labels(saved, targets, added).await?;
    let changed_bytes = write_zones(saved, targets).await?;
    compare_zones(saved, targets).await?;
    let labels = write_labels(saved, targets).await?;
    for t in added {
        bimetal_volume::probe::wipe(&t.device).await.with_context(|| failed(t))?;
    }
    Ok(Written { changed_bytes: changed_bytes + labels })
}

/// First step: no member has a label any more.
async fn take_labels<D: Device>(saved: &SavedFile, targets: &[Target<D>], added: &[Target<D>]) -> Result<()> {
    for t in added {
        // One that has none is marked already.
        if let Ok(label) = bimetal_volume::probe::probe(&t.device).await.with_context(|| failed(t))? {
            // While the label says where they lie.
            wipe_keys(t, &label).await?;
            take_label(saved, t, &label).await?;
        }
    }
    for (t, member) in targets.iter().zip(&saved.members) {
        take_label(saved, t, &member.label).await?;
    }
    Ok(())
}

/// A mark takes the place of a member's label.
async fn take_label<D: Device>(saved: &SavedFile, t: &Target<D>, label: &Label) -> Result<()> {
    let mark = Mark { group: saved.uuid, member: own_uuid(label), file: saved.id }.encode();
    for place in weaker_first(&t.device, super::label_places(label.device_size)).await {
        t.device.write(place, mark.clone()).await.with_context(|| failed(t))?;
        // A label that counts for less must not be the only one left.
        t.device.sync().await.with_context(|| failed(t))?;
    }
    let left = bimetal_volume::probe::probe(&t.device).await.with_context(|| failed(t))?;
    ensure!(left.is_err(), "{}: its label cannot be taken away", t.locator);
    Ok(())
}

/// Why a device that is larger than its member was cannot be written back to: a label at its end, of something else, would count as long as
/// its own are not there.
pub(crate) async fn label_behind<D: Device>(t: &Target<D>, member: &SavedMember) -> Result<Option<String>> {
    let (laid_out, end) = (member.label.device_size, label_b(t.device.size()));
    if end <= label_b(laid_out) {
        return Ok(None);
    }
    let (content, read) = t.device.read(end, BufMut::new(LABEL_SIZE)).await;
    read.with_context(|| failed(t))?;
    let whose = match Label::decode(&content, end) {
        Ok(label) => format!("the label of a member of group '{}'", label.group_name),
        Err(why) if why.is_newer() => "a label of a newer version".to_owned(),
        Err(_) => return Ok(None),
    };
    Ok(Some(format!(
        "{} is larger than {} was, and has {whose} at its end, at byte {end}, which would count meanwhile. Give it {laid_out} bytes, or \
         overwrite the {} bytes there with zeros if nobody needs them",
        t.locator,
        member.named(),
        LABEL_SIZE
    )))
}

/// What a device holds of the keys of families.
async fn wipe_keys<D: Device>(t: &Target<D>, label: &Label) -> Result<()> {
    let Some(keys) = label.layout().keys else { return Ok(()) };
    for side in keys.sides {
        t.device.write(side, BufMut::zeroed(keys.len as usize).freeze()).await.with_context(|| failed(t))?;
    }
    t.device.sync().await.with_context(|| failed(t))
}

/// The places of a label, the one that counts last.
async fn weaker_first<D: Device>(device: &D, places: [u64; 2]) -> [u64; 2] {
    let [a, b] = places.map(|place| device.read(place, BufMut::new(LABEL_SIZE)));
    let contents = [a.await, b.await].map(|(content, read)| if read.is_ok() { content } else { BufMut::new(0) });
    match counting_label(places, [&contents[0], &contents[1]]) {
        Some((0, _)) => [places[1], places[0]],
        _ => places,
    }
}

/// Second step: the zones hold what was saved. The bytes that changed.
async fn write_zones<D: Device>(saved: &SavedFile, targets: &[Target<D>]) -> Result<u64> {
    let mut walk = Walk::begin(saved, "Writing")?;
    let mut changed = 0;
    while let Some(piece) = walk.next(targets)? {
        let t = &targets[piece.member];
        for (start, end) in settled(saved, t, &piece) {
            let (offset, wanted) = (piece.offset + start as u64, &piece.content[start..end]);
            // What is so already stays: a hole of a file stays a hole.
            if !holds(&t.device, offset, wanted).await.unwrap_or(false) {
                let content = BufMut::copy_of(wanted).freeze();
                t.device.write(offset, content).await.with_context(|| failed(t))?;
                changed += wanted.len() as u64;
            }
        }
    }
    for t in targets {
        t.device.sync().await.with_context(|| failed(t))?;
    }
    Ok(changed)
}

async fn compare_zones<D: Device>(saved: &SavedFile, targets: &[Target<D>]) -> Result<()> {
    let mut walk = Walk::begin(saved, "Reading back")?;
    while let Some(piece) = walk.next(targets)? {
        let t = &targets[piece.member];
        compare(t, &piece, settled(saved, t, &piece)).await?;
    }
    Ok(())
}

/// Ranges of a piece of a zone that are to be as they are in it: all that were saved, and the others where they are to be spoilt. These
/// are zeros there, which nothing is. A repair has left journals as they were, and headers of families can only be the same.
fn settled<D>(saved: &SavedFile, t: &Target<D>, piece: &Piece) -> Vec<(usize, usize)> {
    let extents = &saved.members[piece.member].extents;
    let zone = extents.iter().find(|e| (e.offset..e.end()).contains(&piece.offset));
    let left_alone = t.as_saved || zone.is_none_or(|e| ["journal", "keys"].contains(&e.what.as_str()));
    match left_alone {
        true => piece.saved(),
        false => vec![(0, piece.content.len())],
    }
}

async fn compare<D: Device>(t: &Target<D>, piece: &Piece, ranges: Vec<(usize, usize)>) -> Result<()> {
    for (start, end) in ranges {
        let offset = piece.offset + start as u64;
        let same = holds(&t.device, offset, &piece.content[start..end]).await.with_context(|| failed(t))?;
        if !same {
            bail!("{} does not hold what was written to it, at byte {offset} or behind; replace the device", t.locator);
        }
    }
    Ok(())
}

async fn holds<D: Device>(device: &D, offset: u64, wanted: &[u8]) -> Result<bool, DeviceError> {
    let (content, read) = device.read(offset, BufMut::new(wanted.len())).await;
    read.map(|()| content[..] == *wanted)
}

/// Third step: the labels. The bytes written.
async fn write_labels<D: Device>(saved: &SavedFile, targets: &[Target<D>]) -> Result<u64> {
    let mut changed = 0;
    for (t, member) in targets.iter().zip(&saved.members) {
        for piece in &member.labels {
            for (start, end) in piece.saved() {
                let content = BufMut::copy_of(&piece.content[start..end]).freeze();
                t.device.write(piece.offset + start as u64, content).await.with_context(|| failed(t))?;
                changed += (end - start) as u64;
            }
            t.device.sync().await.with_context(|| failed(t))?;
            compare(t, piece, piece.saved()).await?;
        }
    }
    Ok(changed)
}

fn failed<D>(t: &Target<D>) -> String {
    format!("{} cannot be written back to", t.locator)
}

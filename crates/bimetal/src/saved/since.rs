//! Whether a group has committed anything since it was saved. Its labels do not say so: they change at starts, stops and checkpoints,
//! and commits go to the journals alone. A group that was stopped in order begins none without new labels; but what was saved of one
//! in use, from copies or beside its daemon, may be older than what its journals say.

use anyhow::Result;
use bimetal_format::label::Label;
use bimetal_format::layout::ZoneKind;
use bimetal_format::{journal, Salt};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Device;

use super::put::Target;
use super::read::{Piece, SavedFile};
use super::walk::Walk;
use super::BLOCK;

/// The first of `targets`, one for each member of the file in their order, whose journal has a sound block that was not saved. Only those
/// are looked at of which `asked` says so by their place; those that were stopped in order need no look.
pub(crate) async fn committed_since<D: Device>(
    saved: &SavedFile,
    targets: &[Target<D>],
    asked: impl Fn(usize) -> bool,
) -> Result<Option<usize>> {
    let asked = |m: usize| asked(m) && !saved.members[m].label.clean;
    if !(0..targets.len()).any(asked) {
        return Ok(None);
    }
    let mut walk = Walk::begin(saved, "Looking at the journal of")?;
    while let Some(piece) = walk.next(targets)? {
        let label = &saved.members[piece.member].label;
        if asked(piece.member)
            && is_of_journal(label, piece.offset)
            && went_on(label, &targets[piece.member], &piece).await?
        {
            return Ok(Some(piece.member));
        }
    }
    Ok(None)
}

fn is_of_journal(label: &Label, offset: u64) -> bool {
    let zones = label.zones.iter().filter(|z| z.kind == ZoneKind::Journal);
    zones.into_iter().any(|z| (z.offset..z.offset + z.len).contains(&offset))
}

/// Whether the device has a sound block here that is another one than was saved. What cannot be read says nothing.
async fn went_on<D: Device>(label: &Label, t: &Target<D>, piece: &Piece) -> Result<bool> {
    for (start, end) in piece.saved() {
        let (content, read) = t.device.read(piece.offset + start as u64, BufMut::new(end - start)).await;
        if read.is_err() {
            continue;
        }
        let blocks = content.chunks(BLOCK as usize).zip(piece.content[start..end].chunks(BLOCK as usize));
        let places = (piece.offset + start as u64..).step_by(BLOCK as usize);
        let is_newer = |((now, then), place): ((&[u8], &[u8]), u64)| {
            now != then && journal::decode(now, &Salt { group: label.group, member: label.member, place }).is_ok()
        };
        if blocks.zip(places).any(is_newer) {
            return Ok(true);
        }
    }
    Ok(false)
}

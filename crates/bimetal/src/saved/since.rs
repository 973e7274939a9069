//! Whether a group has committed anything since it was saved. Its labels do not say so: they change at starts, stops and checkpoints,
//! and commits go to the journals alone. A group that was stopped in order begins none without new labels; but what was saved of one
//! in use, from copies or beside its daemon, may be older than what its journals say. And labels may be gone: then an old image of another
//! member may fit what was saved. Every start leaves a block of its own in each journal. A repair changes labels, too, and says nothing of
//! when the last commit was; it leaves journals as they are.

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

/// What of a journal says that there was a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Nothing: other things prove that there was none, or nothing can.
    None,
    /// A sound block that was not saved.
    SoundBlock,
    /// The same on a device whose label says nothing of what came after, if it is not of before: what an older file left that was being
    /// written back is no sign.
    LaterBlock,
    /// Any change: what is damaged may have been a commit, and a damaged journal is why groups are repaired.
    AnyChange,
}

/// The first of `targets`, one for each member of the file in their order, whose journal has the sign of a commit that `sign` names by
/// their place. Of those that were stopped in order a label tells, if they have one.
pub(crate) async fn committed_since<D: Device>(
    saved: &SavedFile,
    targets: &[Target<D>],
    sign: impl Fn(usize) -> Sign,
) -> Result<Option<usize>> {
    let sign = |m: usize| match sign(m) {
        Sign::SoundBlock | Sign::AnyChange if saved.members[m].label.clean => Sign::None,
        sign => sign,
    };
    if (0..targets.len()).all(|m| sign(m) == Sign::None) {
        return Ok(None);
    }
    let mut walk = Walk::begin(saved, "Looking at the journal of")?;
    while let Some(piece) = walk.next(targets)? {
        let (label, sign) = (&saved.members[piece.member].label, sign(piece.member));
        if sign != Sign::None
            && is_of_journal(label, piece.offset)
            && went_on(label, &targets[piece.member], &piece, sign).await?
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

/// Whether the device has the sign of a commit here. What cannot be read says nothing.
async fn went_on<D: Device>(label: &Label, t: &Target<D>, piece: &Piece, sign: Sign) -> Result<bool> {
    for (start, end) in piece.saved() {
        let (content, read) = t.device.read(piece.offset + start as u64, BufMut::new(end - start)).await;
        if read.is_err() {
            continue;
        }
        let blocks = content.chunks(BLOCK as usize).zip(piece.content[start..end].chunks(BLOCK as usize));
        let places = (piece.offset + start as u64..).step_by(BLOCK as usize);
        let is_newer = |((now, then), place): ((&[u8], &[u8]), u64)| {
            let sound = || journal::decode(now, &Salt { group: label.group, member: label.member, place });
            let is_sign = || match sign {
                Sign::None => false,
                Sign::SoundBlock => sound().is_ok(),
                Sign::LaterBlock => sound().is_ok_and(|(head, ..)| head.generation >= label.generation),
                Sign::AnyChange => true,
            };
            now != then && is_sign()
        };
        if blocks.zip(places).any(is_newer) {
            return Ok(true);
        }
    }
    Ok(false)
}

//! Going through what a file has of the zones.

use anyhow::{Context, Result};

use super::put::Target;
use super::read::{Piece, SavedFile};
use crate::progress::Progress;

/// All pieces of zones, with progress.
pub(super) struct Walk<'a> {
    pieces: super::read::FilePieces<'a>,
    saved: &'a SavedFile,
    progress: Progress,
    what: &'static str,
    done: u64,
    whole: u64,
}

impl<'a> Walk<'a> {
    /// From the beginning; `what` is being done with them.
    pub(super) fn begin(saved: &'a SavedFile, what: &'static str) -> Result<Walk<'a>> {
        let whole = saved.members.iter().map(|m| m.bytes()).sum();
        let pieces = saved.pieces().with_context(|| unreadable(saved))?;
        Ok(Walk { pieces, saved, progress: Progress::new(), what, done: 0, whole })
    }

    /// The next piece that is not of a label.
    pub(super) fn next<D>(&mut self, targets: &[Target<D>]) -> Result<Option<Piece>> {
        loop {
            let next = self.pieces.next().with_context(|| unreadable(self.saved))?;
            let Some(piece) = next else { return Ok(None) };
            self.done += piece.content.len() as u64;
            let (part, at) = (self.progress.part(self.done, self.whole), &targets[piece.member].locator);
            self.progress.show(|| format!("{} {at}: {part}", self.what));
            let labels = &self.saved.members[piece.member].labels;
            if labels.iter().all(|label| label.offset != piece.offset) {
                return Ok(Some(piece));
            }
        }
    }
}

fn unreadable(saved: &SavedFile) -> String {
    format!("{} cannot be read any more", saved.path().display())
}

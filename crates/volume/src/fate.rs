//! What has become of the content of a volume when members are missing (C8): told from never written, how stale.
//!
//! One function decides, [`Core::known`]; reads follow it and `bimetal rescue` prints it, so that neither can say
//! anything else than the other.
//!
//! 1. A map from a fast member, or of a slow one that was stopped in order, is complete: what it says is so.
//! 2. A slow member's map after a crash is certain only where its away bit is clear. Where it is set, "holds no data"
//!    means "perhaps lost", and what lives on that member may have moved to the fast tier and changed there since. Such a
//!    change is told to the slow member's journal seconds after its commit, so that only the newest are unknown.
//! 3. A journal with a gap in its middle hides changes of chunks that nobody can name: as in 2, for all chunks. It may
//!    hide too that a slot went from one chunk to another: fast homes are lost, and slow ones that their own members do
//!    not confirm.
//! 4. Of a page of the map that nobody has a slow member still knows what lives on itself, as in 2 where its away bit is set. Of
//!    the page's other chunks it is not known whether they held data.

use bimetal_format::Entry;

use crate::env::Env;
use crate::error::Error;
use crate::group::core::Core;
use crate::io::split::runs;
use crate::kept::kept_slot;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Tier, BLOCK};
use crate::Volume;

/// What has become of a block of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// It holds no data (never written, or trimmed since): reads as zeros, and that is certain.
    NeverWritten,
    /// It reads as what was last written and flushed.
    Whole,
    /// It reads as the member that is left knows it. If it was moved to the fast tier and written there in the last
    /// seconds before the group ended, that is missing.
    PossiblyStale,
    /// It lived on the fast tier; a copy that was kept on the slow tier is as it was when it was moved up, or newer. It
    /// reads as an error, unless the group was opened with `OpenOptions::kept_copies`.
    KeptCopy,
    /// It may have held data on a member that is missing, or none: what is left does not know. Reads as an error.
    PerhapsLost,
    /// It held data that is on a member that is missing, or whose place is not known any more: reads as an error.
    Lost,
}

impl Fate {
    /// All of them, best first.
    pub const ALL: [Fate; 6] =
        [Fate::NeverWritten, Fate::Whole, Fate::PossiblyStale, Fate::KeptCopy, Fate::PerhapsLost, Fate::Lost];
}

/// Neighbouring blocks of one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FateRun {
    /// First byte in the volume, a multiple of 4096.
    pub offset: u64,
    /// Bytes, a multiple of 4096.
    pub len: u64,
    /// What has become of them.
    pub fate: Fate,
}

/// What is known of a chunk.
pub(crate) struct Known {
    /// The entry, with the place to read from as its home.
    pub(crate) entry: Entry,
    /// Blocks of `entry.mask`.
    valid: Fate,
    /// All others.
    empty: Fate,
}

impl Known {
    /// Nothing is known.
    fn nothing() -> Known {
        Known { entry: Entry::default(), valid: Fate::Lost, empty: Fate::Lost }
    }

    /// Blocks that hold data.
    pub(crate) fn mask(&self) -> u32 {
        if self.entry.is_mapped() {
            self.entry.mask
        } else {
            0
        }
    }

    /// What has become of blocks that hold data as far as is known (`valid`), or of the others.
    pub(crate) fn fate(&self, valid: bool) -> Fate {
        if valid {
            self.valid
        } else {
            self.empty
        }
    }
}

impl<E: Env> Core<E> {
    /// What is known of a chunk: the one decision about what can be served.
    pub(crate) fn known(&self, chunk: ChunkId) -> Known {
        let Ok(entry) = self.entry(chunk) else { return Known::nothing() };
        let partly = !self.writable && self.is_partly_known(chunk.page());
        let unsure = partly || (!self.is_certain() && self.may_be_newer_elsewhere(chunk));
        let empty = if unsure { Fate::PerhapsLost } else { Fate::NeverWritten };
        if !entry.is_mapped() {
            return Known { entry, valid: empty, empty };
        }
        let present = |m: u8| self.members[m as usize].is_present();
        let sibling_gone = |tier| self.members.iter().any(|m| m.tier == tier && !m.is_present() && !m.is_gone());
        let doubted = !self.writable && present(entry.member) && sibling_gone(self.tier_of_member(entry.member));
        if doubted && mutant::on(Mutant::C8LostByTier) {
            return Known { entry, valid: Fate::Lost, empty };
        }
        // Hidden commits may have given a fast slot to another chunk, and nobody else knows. Of slow slots their own
        // members do: recovery has asked them.
        let gap = self.journal_gap.get() && !self.left_behind.get();
        let hidden = gap && self.tier_of_member(entry.member) == Tier::Fast;
        if hidden && !mutant::on(Mutant::C5GapServesSlots) {
            return Known { entry, valid: Fate::Lost, empty };
        }
        if present(entry.member) && self.vouches(entry.member) {
            let stale = unsure && !mutant::on(Mutant::C8StaleCalledWhole);
            return Known { entry, valid: if stale { Fate::PossiblyStale } else { Fate::Whole }, empty };
        }
        // The copy of a chunk whose home is gone; another member's slots may have been given away since.
        let copy = kept_slot(&entry).filter(|c| present(c.member) && self.vouches(c.member));
        match copy {
            Some(copy) => {
                let valid = if self.kept.may_be_old() { Fate::KeptCopy } else { Fate::Whole };
                Known { entry: Entry { member: copy.member, slot: copy.slot, ..entry }, valid, empty }
            }
            None => Known { entry, valid: Fate::Lost, empty },
        }
    }

    /// Whether what the map says of a member's slots is so: of a complete map all is; else a slow member was asked, and knows its own.
    fn vouches(&self, member: MemberIndex) -> bool {
        self.map_complete || self.vouching.contains(&member)
    }

    /// Whether the map is complete: what it says is so.
    pub(crate) fn is_certain(&self) -> bool {
        self.writable || (self.map_complete && !self.journal_gap.get())
    }

    /// Whether what is not known here may be newer on a missing member, or in a hole of the journal (C8.1).
    fn may_be_newer_elsewhere(&self, chunk: ChunkId) -> bool {
        if mutant::on(Mutant::C8AwayIgnored) {
            return false;
        }
        let away = || self.members.iter().filter(|m| m.is_present()).any(|m| m.away.borrow().is_set(chunk.page()));
        self.journal_gap.get() || away()
    }

    /// Whether blocks of this fate are served.
    pub(crate) fn is_served(&self, fate: Fate) -> bool {
        match fate {
            Fate::NeverWritten | Fate::Whole | Fate::PossiblyStale => true,
            Fate::KeptCopy => self.options.kept_copies,
            Fate::PerhapsLost | Fate::Lost => false,
        }
    }
}

impl<E: Env> Volume<E> {
    /// What has become of a range, in order, without gaps, neighbours of one fate joined, in at most `max` runs (at
    /// least one; fewer may cover less than the range). The range is extended to whole blocks. Of a volume whose family
    /// is locked too: it needs no key.
    pub fn fates(&self, offset: u64, len: u64, max: usize) -> Result<Vec<FateRun>, Error> {
        self.info.check_range(offset, len)?;
        let first = offset / BLOCK * BLOCK;
        let end = (offset + len).div_ceil(BLOCK) * BLOCK;
        let mut found: Vec<FateRun> = Vec::new();
        let mut at = first;
        for part in self.info.parts(first, end - first) {
            let known = self.core.known(part.chunk);
            let blocks = ((part.from / BLOCK) as u32, (part.from + part.len).div_ceil(BLOCK) as u32);
            for (from, to, valid) in runs(known.mask(), blocks.0, blocks.1) {
                let (fate, len) = (self.fate_of(&known, valid), u64::from(to - from) * BLOCK);
                let full = found.len() == max.max(1);
                match found.last_mut() {
                    Some(last) if last.fate == fate => last.len += len,
                    _ if full => return Ok(found),
                    _ => found.push(FateRun { offset: at, len, fate }),
                }
                at += len;
            }
        }
        Ok(found)
    }

    /// The members that the chunk of a byte is on: that of its home, and of a kept copy which is as good. For those who check
    /// the engine; out of range there are none.
    pub fn members_of(&self, offset: u64) -> impl Iterator<Item = MemberIndex> {
        let inside = self.info.check_range(offset, 1).is_ok();
        let part = inside.then(|| self.info.parts(offset, 1).next()).flatten();
        let entry = part.and_then(|p| self.core.map.borrow().get(p.chunk)).filter(Entry::is_mapped);
        let copy = entry.as_ref().and_then(kept_slot).filter(|_| !self.core.kept.may_be_old());
        entry.map(|e| e.member).into_iter().chain(copy.map(|c| c.member))
    }

    fn fate_of(&self, known: &Known, valid: bool) -> Fate {
        match known.fate(valid) {
            Fate::PerhapsLost if mutant::on(Mutant::C8LostCalledEmpty) => Fate::NeverWritten,
            fate => fate,
        }
    }
}

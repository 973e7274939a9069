//! TRIM and WRITE_ZEROES. TRIM forgets whole blocks and leaves the edges; WRITE_ZEROES zeroes exactly its range (I1).

use std::rc::Rc;

use bimetal_format::Entry;

use super::split::Part;
use crate::backend::{Wanted, WriteFlags, TO_ITS_END};
use crate::env::Env;
use crate::error::Error;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::mutant::{self, Mutant};
use crate::units::BLOCK;
use crate::wait::Pace;

impl<E: Env> Core<E> {
    /// Forgets the whole blocks inside the range, as long as that is `wanted`.
    pub(crate) async fn trim(
        &self,
        v: &VolumeInfo,
        offset: u64,
        len: u64,
        flags: WriteFlags,
        wanted: Wanted<'_>,
    ) -> Result<(), Error> {
        let _in = v.let_in_to_change(offset, len)?;
        let _admitted = self.admit_change(v, 0).await?;
        self.forget_all(v, offset, len, wanted).await?;
        self.confirm(v, offset, len, flags).await
    }

    /// Waits for what the flags ask of a completed change.
    async fn confirm(&self, v: &VolumeInfo, offset: u64, len: u64, flags: WriteFlags) -> Result<(), Error> {
        if flags.fua {
            self.flush().await?;
        } else if flags.outlives {
            self.make_range_outlive(v, offset, len).await?;
        }
        Ok(())
    }

    /// Zeroes exactly the range, as long as that is `wanted`.
    pub(crate) async fn write_zeroes(
        self: &Rc<Self>,
        v: &VolumeInfo,
        offset: u64,
        len: u64,
        flags: WriteFlags,
        wanted: Wanted<'_>,
    ) -> Result<(), Error> {
        let _in = v.let_in_to_change(offset, len)?;
        if flags.no_hole {
            self.check_writable()?;
            self.write_real_zeros(v, offset, len, wanted).await?;
            return self.confirm(v, offset, len, flags).await;
        }
        let _admitted = self.admit_change(v, BLOCK).await?;
        let end = offset + len;
        let (first, last) = (offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        if !mutant::on(Mutant::ZeroesKeepEdges) {
            if first > last {
                self.zero_edge(v, offset, len, wanted).await?;
            } else {
                self.zero_edge(v, offset, first - offset, wanted).await?;
                self.zero_edge(v, last, end - last, wanted).await?;
            }
        }
        if first < last {
            self.forget_all(v, first, last - first, wanted).await?;
        }
        self.confirm(v, offset, len, flags).await
    }

    /// Forgets the whole blocks inside the range, as long as that is `wanted`. Others have their turn meanwhile: it may be all of a
    /// large volume.
    async fn forget_all(&self, v: &VolumeInfo, offset: u64, len: u64, wanted: Wanted<'_>) -> Result<(), Error> {
        let wanted = if mutant::on(Mutant::TrimOfTheGone) { TO_ITS_END } else { wanted };
        let (mut walk, mut pace) = (v.walk(offset, len), Pace::default());
        while let Some(stretch) = walk.next(self) {
            // A write that is under way may be about to give a chunk its first home.
            if stretch.unused && !self.claims.any_in(stretch.chunks()) {
                pace.step().await;
                continue;
            }
            for part in stretch.parts() {
                if !wanted() {
                    return Err(Error::Stopping);
                }
                self.forget(&part, wanted).await?;
                pace.step().await;
            }
        }
        Ok(())
    }

    /// Clears the valid bits of the part's whole blocks if that is `wanted`; a chunk without any leaves its slot.
    pub(crate) async fn forget(&self, part: &Part, wanted: Wanted<'_>) -> Result<(), Error> {
        let mask = part.whole_blocks();
        if mask == 0 {
            return Ok(());
        }
        let mapped = self.entry(part.chunk)?.is_mapped();
        if !mapped && self.claims.busy(part.chunk) & mask == 0 {
            return Ok(());
        }
        // Kept while it waits for its blocks: all that wait behind a slow write go on together.
        self.wait_for_room(1).await?;
        let _room = self.commit.reserve(1);
        let claimed = self.claims.claim(part.chunk, mask).await;
        self.health.check()?;
        // It may have waited long for its blocks, and others have written there before.
        if !wanted() {
            return Err(Error::Stopping);
        }
        self.claims.cancel_motion(part.chunk, true);
        let e = self.entry(part.chunk)?;
        if !e.is_mapped() {
            return Ok(());
        }
        let rest = e.mask & !mask;
        // While others write to this chunk its slot is in use, though no block of it is valid yet.
        let alone = self.claims.holders(part.chunk) == 1;
        if rest == 0 && alone {
            let gone = match mutant::on(Mutant::ReadOfFreedSlot) {
                true => Entry { flags: 0, ..e }.without_kept(),
                false => Entry::default(),
            };
            self.change_entry(part.chunk, gone);
        } else if rest != e.mask {
            self.change_entry(part.chunk, Entry { mask: rest, ..e });
        }
        drop(claimed);
        Ok(())
    }
}

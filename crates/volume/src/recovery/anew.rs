//! What a writable start builds upon is written anew, where it was and as it was (C7.5).
//!
//! What can be read is not therefore durable. After a sync that has failed, a cache below a member (that of the server behind an NBD
//! connection, of a file system) may go on showing what never came to the medium, and counts it as written: no sync after that writes it.
//! A commit that is read from there may be gone with the next power cut, or as soon as the cache needs the room; then the chain of the
//! journal has a hole, and whatever was made durable behind it is lost. So a start that follows no orderly stop writes again
//!
//! 1. the blocks of each journal from its tail to its end, to where they are: cut off in the midst, each sector is as before;
//! 2. the away bits, each block to its older side.
//!
//! The labels it writes anyway. Pages and directories were synced before a label named them.

use super::load::Source;
use super::start::failed;
use super::OpenError;
use crate::buf::BufMut;
use crate::env::{Device, DeviceError, Env};
use crate::group::core::Core;
use crate::member::{Member, WriteFor};
use crate::mutant::{self, Mutant};
use crate::units::{Tier, BLOCK};
use crate::wait;

use bimetal_format::journal;

/// Blocks of a journal written at once.
const BLOCKS: u64 = 256;

/// Durable when it returns, on all members.
pub(super) async fn write_anew<E: Env>(core: &Core<E>, source: &Source) -> Result<(), OpenError> {
    if mutant::on(Mutant::C7ShownIsDurable) {
        return Ok(());
    }
    let each = core.members.rows().zip(&source.chains).filter_map(|(m, chain)| {
        let end = chain.as_ref()?.end.sequence;
        // A journal that begins anew is not built upon; after an orderly stop nothing is left to it.
        let goes_on = !source.rebuild[m.index as usize] && !m.label.borrow().clean;
        goes_on.then_some(async move { member_anew(m, end).await.map_err(failed(m.index)) })
    });
    wait::all(each.collect()).await.into_iter().collect()
}

async fn member_anew<D: Device>(m: &Member<D>, end: u64) -> Result<(), DeviceError> {
    let mut at = m.label.borrow().journal_tail;
    while at < end {
        let until_wrap = m.layout.journal_blocks - at % m.layout.journal_blocks;
        let count = BLOCKS.min(until_wrap).min(end - at);
        journal_anew(m, at, count).await?;
        at += count;
    }
    if m.tier == Tier::Slow {
        m.write_away_anew().await?;
    }
    m.sync_all().await
}

/// The blocks from `first` on, which do not go round the end of the ring.
async fn journal_anew<D: Device>(m: &Member<D>, first: u64, count: u64) -> Result<(), DeviceError> {
    let place = m.layout.journal_block(first);
    let blocks = m.read(place, BufMut::new((count * BLOCK) as usize)).await?;
    for (at, block) in (first..).zip(blocks.chunks_exact(BLOCK as usize)) {
        // It was sound a moment ago: what the device gives now must not be made to last.
        let same =
            journal::decode(block, &m.salt(m.layout.journal_block(at))).is_ok_and(|(head, ..)| head.sequence == at);
        if !same {
            return Err(DeviceError::Io(EIO));
        }
    }
    m.write(place, blocks.freeze(), WriteFor::Engine).await
}

/// The errno of a device that does not give what it has given before.
const EIO: i32 = 5;

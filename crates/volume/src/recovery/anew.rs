//! What a writable start builds upon is written anew, where it was and as it was (C7.5).
//!
//! What can be read is not therefore durable. After a sync that has failed, a cache below a member (that of the server behind an NBD
//! connection, of a file system) may go on showing what never came to the medium, and counts it as written: no sync after that writes it.
//! A commit that is read from there may be gone with the next power cut, or as soon as the cache needs the room; then the chain of the
//! journal has a hole, and whatever was made durable behind it is lost. So a start writes again
//!
//! 1. the blocks of each journal from its tail to its end, to where they are: cut off in the midst, each sector is as before;
//! 2. the away bits that are set, each block to its older side; also after an orderly stop: a start that was cut off since may have set
//!    them, and failed. One that is clear, and was not cleared, only says too much.
//!
//! 3. of the two copies of each label the one that it comes to last when it flips the label.
//!
//! Pages and directories were synced before a label named them.

use super::hole::Runs;
use super::load::Source;
use super::start::failed;
use super::OpenError;
use crate::buf::BufMut;
use crate::env::{DeviceError, Env};
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
    let each = core.members.rows().zip(&source.chains).filter_map(|(m, chain)| {
        // A journal that begins anew is not built upon, nor is one after an orderly stop.
        let goes_on = !source.rebuild[m.index as usize] && !m.label.borrow().clean;
        let end = chain.as_ref()?.end.sequence;
        let end = if goes_on && !mutant::on(Mutant::C7ShownIsDurable) { end } else { 0 };
        Some(async move { member_anew(&core.env, m, end).await.map_err(failed(m.index)) })
    });
    wait::all(each.collect()).await.into_iter().collect::<Result<(), _>>()?;
    let present = core.members.iter().filter(|m| m.is_present() && !mutant::on(Mutant::C7LabelShownIsDurable));
    let each = present.map(|m| async move { m.label_anew().await.map_err(failed(m.index)) });
    wait::all(each.collect()).await.into_iter().collect()
}

/// What the journal has before `end`, and the away bits.
async fn member_anew<E: Env>(env: &E, m: &Member<E::Device>, end: u64) -> Result<(), DeviceError> {
    let mut at = m.label.borrow().journal_tail;
    while at < end {
        let until_wrap = m.layout.journal_blocks - at % m.layout.journal_blocks;
        let count = BLOCKS.min(until_wrap).min(end - at);
        journal_anew(env, m, at, count).await?;
        at += count;
    }
    if m.tier == Tier::Slow && !mutant::on(Mutant::C7AwayShownIsDurable) {
        m.write_away_anew().await?;
    }
    m.sync_all().await
}

/// The blocks from `first` on, which do not go round the end of the ring.
async fn journal_anew<E: Env>(env: &E, m: &Member<E::Device>, first: u64, count: u64) -> Result<(), DeviceError> {
    let place = m.layout.journal_block(first);
    let mut all = BufMut::new((count * BLOCK) as usize);
    let found = Runs::new(env, m).read(place, count).await?;
    for ((at, block), found) in (first..).zip(all.chunks_exact_mut(BLOCK as usize)).zip(found) {
        // It was sound a moment ago: what the device gives now must not be made to last.
        let salt = m.salt(m.layout.journal_block(at));
        let same = |b: &Vec<u8>| journal::decode(b, &salt).is_ok_and(|(head, ..)| head.sequence == at);
        let found = found.filter(same).ok_or(DeviceError::Io(EIO))?;
        block.copy_from_slice(&found);
    }
    m.write(place, all.freeze(), WriteFor::Engine).await
}

/// The errno of a device that does not give what it has given before.
const EIO: i32 = 5;

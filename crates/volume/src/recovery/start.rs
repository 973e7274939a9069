//! Step 6: a writable group begins a new epoch (C4.1). Order:
//! 1. heads of the journals; what was found is written anew where it was ([`super::anew`], C7.2); what slow members believe of their
//!    slots is held against the map (C2.1, C1.6);
//! 2. away bits for all regions in use, durable (C8.1);
//! 3. fast members that only a slow one can mend, which was stopped in order and knows everything, get their map while its label still
//!    says so: cut off, the next start can do the same; likewise pages of the source that are damaged, if a slow member lent them;
//! 4. labels with the new epoch on every member, durable, not yet *confirmed*;
//! 5. other fast journals get what they lack of the last commit; members left behind get a new map, and slow ones of which a page
//!    could not be read get the pages that they lack: nothing that they might believe of their slots is left; pages of the source that
//!    are damaged are written anew, after the others have what they lack, because its journal is given up with that;
//! 6. a block without records ends each journal, so that nothing of a commit that was cut off lies where the next one
//!    goes, and each member can be told from an older copy of itself (see [`super::recognise`]); durable, so that the label can promise
//!    it: a journal that is lost as a whole does not look empty;
//! 7. all labels say *confirmed*. Only now is anything served.
//!
//! A crash in between is harmless: an epoch that is not confirmed was never used.

use std::collections::BTreeMap;

use bimetal_format::directory::Expected;
use bimetal_format::journal::Record;
use bimetal_format::label::{Epoch, Repair};
use bimetal_format::{page, Entry, ENTRIES_PER_PAGE};

use super::anew;
use super::choose::{knows_all, reach};
use super::load::Source;
use super::replay::chunk_of;
use super::window::{batches, Window};
use super::{Chain, OpenError};
use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::member::journal::Position;
use crate::member::{Member, Standing};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, SlotId, Tier};
use crate::wait;

pub(super) async fn start<E: Env>(core: &Core<E>, source: Source) -> Result<(), OpenError> {
    set_heads(core, &source);
    anew::write_anew(core, &source).await?;
    let mut unsure = Vec::new();
    for m in core.members_of(Tier::Slow).filter(|m| !source.rebuild[m.index as usize]) {
        let all_read = hold_believed_slots(core, m, source.chains[m.index as usize].as_ref()).await;
        if !all_read && !mutant::on(Mutant::C2UnreadBelievesNothing) {
            unsure.push(m.index);
        }
    }
    set_away(core).await?;
    let first = |m: &&Member<E::Device>| is_mended_first(core, &source, m);
    for m in core.members.iter().filter(first) {
        rebuild(core, m).await?;
    }
    let lent_by_stopped = is_lent_by_stopped(core, &source);
    if lent_by_stopped {
        mend_source(core, &source).await?;
    }
    write_epoch(core, &source).await?;
    bring_up_to_date(core, &source, first, &unsure).await?;
    if !lent_by_stopped && !source.lent.is_empty() {
        mend_source(core, &source).await?;
    }
    let unsealed = |m: &&Member<E::Device>| mutant::on(Mutant::SealNotRebuilt) && source.rebuild[m.index as usize];
    for m in core.members.iter().filter(|m| first(m) || !unsealed(m)) {
        seal_end(core, m).await?;
    }
    make_ends_durable(core).await?;
    confirm(core).await
}

/// Gives the other members what they lack, but for those that got their map `first`.
async fn bring_up_to_date<E: Env>(
    core: &Core<E>,
    source: &Source,
    first: impl Fn(&&Member<E::Device>) -> bool,
    unsure: &[MemberIndex],
) -> Result<(), OpenError> {
    // The fast ones first: a slow one must never have heard of a commit that not all of them have. Of these those that lack the last
    // one: whoever has it may give it up in a checkpoint for what another lacks of it, and could not tell them any more.
    let newest = |member: usize| source.chains[member].as_ref().map_or(0, |c| c.generation);
    let mut fast: Vec<&Member<E::Device>> = core.members_of(Tier::Fast).collect();
    fast.sort_by_key(|m| newest(m.index as usize) >= newest(source.best));
    for m in fast.into_iter().chain(core.members_of(Tier::Slow)).filter(|m| !first(m)) {
        if source.rebuild[m.index as usize] {
            rebuild(core, m).await?;
        } else if m.tier == Tier::Fast && m.index as usize != source.best {
            catch_up(core, m, source).await?;
        } else if unsure.contains(&m.index) {
            core.checkpoint(m, &[]).await.map_err(|e| failed_commit(core, &e, m.index))?;
        }
    }
    Ok(())
}

/// Whether a member gets its map from a slow one that says that it was stopped in order. That is all that the map can be known by, and
/// the new epoch takes it away.
fn is_mended_first<E: Env>(core: &Core<E>, source: &Source, m: &Member<E::Device>) -> bool {
    let by_slow = core.members[source.best].tier == Tier::Slow && !mutant::on(Mutant::C5MendedTooLate);
    by_slow && m.tier == Tier::Fast && source.rebuild[m.index as usize]
}

/// Whether the source has pages from a slow member that counts only as long as it says that it was stopped in order.
fn is_lent_by_stopped<E: Env>(core: &Core<E>, source: &Source) -> bool {
    let by_slow = source.lent.iter().any(|m| core.tier_of_member(*m) == Tier::Slow);
    by_slow && knows_all(core, &core.members[source.best]) && !mutant::on(Mutant::C5MendedTooLate)
}

/// Writes the pages that are damaged on the source, and what else its checkpoint finds to do.
async fn mend_source<E: Env>(core: &Core<E>, source: &Source) -> Result<(), OpenError> {
    let m = &core.members[source.best];
    // Kept copies that do not count in this start are not in these pages, and must not count in the next one (C9.1).
    m.label.borrow_mut().clean = false;
    core.checkpoint(m, &[]).await.map_err(|e| failed_commit(core, &e, m.index))
}

pub(super) fn failed(m: MemberIndex) -> impl Fn(DeviceError) -> OpenError {
    move |source| OpenError::Member { member: m, source }
}

/// Which member has failed is said by the error, or by the latch; else it is `member`.
fn failed_commit<E: Env>(core: &Core<E>, error: &Error, member: MemberIndex) -> OpenError {
    let (member, source) = match error {
        Error::Device { member, source } => (*member, *source),
        _ => core.health.failed_first().unwrap_or((member, DeviceError::Io(5))),
    };
    OpenError::Member { member, source }
}

/// The journals go on after their last sound block. A damaged one begins anew, unconnected to what is on the ring.
fn set_heads<E: Env>(core: &Core<E>, source: &Source) {
    for (m, chain) in core.members.rows().zip(&source.chains) {
        let Some(chain) = chain else { continue };
        let fresh = source.rebuild[m.index as usize];
        let end = match fresh {
            // Beyond the numbers of all blocks that lie on the ring: none of them can look like a later one.
            true => Position::anew(chain.end.sequence + m.layout.journal_blocks, core.env.random()),
            false => chain.end,
        };
        let mut j = m.journal.borrow_mut();
        j.head = end;
        j.durable = end;
        if fresh {
            j.tail = end.sequence;
        }
    }
}

/// A slow member's own pages and journal may still give a slot to a chunk that has left it. Such a slot must not be
/// used again before that journal has been told (C1.6): it is on its way to being free, not free. False if there is a page that
/// cannot be read now: nobody knows what it gives to whom, and it may be read the next time.
async fn hold_believed_slots<E: Env>(core: &Core<E>, m: &Member<E::Device>, chain: Option<&Chain>) -> bool {
    let (pages, mut all_read) = (core.map.borrow().len() as u32, true);
    let stale = |p: u32, e: Expected| core.map.borrow().generation(p) > e.generation();
    for batch in batches(0..pages) {
        let reads = batch.into_iter().map(|window| Window::read(&core.env, m, window, stale)).collect();
        for read in wait::all(reads).await.into_iter().flatten() {
            all_read &= hold_believed_of(core, m, &read);
        }
    }
    let records = chain.map(|c| &c.records[..]).unwrap_or_default();
    for (_, r) in records.iter().filter(|(_, r)| r.page < pages) {
        hold_believed(core, m, chunk_of(r), &r.entry);
    }
    all_read
}

/// What the page copies of `m` in a window say. False if one could not be read.
fn hold_believed_of<E: Env>(core: &Core<E>, m: &Member<E::Device>, read: &Window) -> bool {
    let mut all_read = true;
    for (page, _, copy) in read.copies(m) {
        all_read &= copy.is_some();
        // A copy that is rotten is one that the member cannot believe either.
        let Some(Ok((_, entries))) = copy.map(|(bytes, salt)| page::decode(bytes, &salt)) else { continue };
        let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
        for (i, e) in entries.iter().enumerate() {
            hold_believed(core, m, ChunkId(first + i as u64), e);
        }
    }
    all_read
}

/// Member `m` believes that `chunk` is as `e` says.
fn hold_believed<E: Env>(core: &Core<E>, m: &Member<E::Device>, chunk: ChunkId, e: &Entry) {
    if !e.is_mapped() || e.member != m.index {
        return;
    }
    let now = core.map.borrow().get(chunk).unwrap_or_default();
    if now.is_mapped() && (now.member, now.slot) == (e.member, e.slot) {
        return;
    }
    core.note_lag_on(chunk, m.index);
    let slot = SlotId { member: e.member, slot: e.slot };
    if m.free.borrow_mut().take_exact(e.slot) {
        core.reclaim_slot(slot, chunk);
    }
}

/// Sets the away bits of all regions in use, so that no flush has to wait for one of them.
async fn set_away<E: Env>(core: &Core<E>) -> Result<(), OpenError> {
    for m in core.members_of(Tier::Slow) {
        let generation = core.commit.generation.get();
        match m.standing.get() {
            // No commit is to wait for it: see `leave`.
            Standing::Leaving => m.set_all_away(generation).await,
            _ => m.mend_away(generation).await,
        }
        .map_err(failed(m.index))?;
    }
    let regions: Vec<u32> = {
        let map = core.map.borrow();
        (0..map.len() as u32).filter(|p| map.page(*p).is_some()).collect()
    };
    core.cover_regions(&regions).await.map_err(|e| failed_commit(core, &e, 0))
}

/// The epoch after `parent`, with these members; not confirmed. `served` tells whether anything was served in `parent`.
pub(crate) fn next_epoch<'a, E: Env>(
    core: &Core<E>,
    parent: &Epoch,
    served: bool,
    present: impl Iterator<Item = &'a Member<E::Device>>,
) -> Epoch
where
    E::Device: 'a,
{
    let mut members = [0u8; 32];
    present.for_each(|m| members[m.index as usize / 8] |= 1 << (m.index % 8));
    let carried = |id| core.members.iter().any(|m| m.is_present() && m.label.borrow().epoch.id == id);
    let (history, cut_off) = parent.history_after(served, |id| carried(id) || mutant::on(Mutant::C4HistoryForgets));
    Epoch {
        id: core.env.random().max(1),
        first_generation: core.commit.generation.get() + 1,
        members,
        confirmed: false,
        history,
        cut_off,
    }
}

async fn write_epoch<E: Env>(core: &Core<E>, source: &Source) -> Result<(), OpenError> {
    if mutant::on(Mutant::C4NoEpoch) {
        return Ok(());
    }
    let newest = core.members.iter().filter(|m| m.is_present()).max_by_key(|m| {
        let l = m.label.borrow();
        (l.epoch.first_generation, l.epoch.confirmed)
    });
    let parent = newest.map(|m| m.label.borrow().epoch.clone()).expect("a writable group has members");
    // Nothing is served before this epoch is confirmed.
    let stopped = core.members.iter().filter(|m| m.is_present()).all(|m| m.label.borrow().stopped);
    let epoch = next_epoch(core, &parent, parent.confirmed, core.members.iter().filter(|m| m.is_present()));
    for m in core.members.iter().filter(|m| m.is_present()) {
        // The tail of a journal that begins anew stays: only with the whole map behind it may it be given up.
        let mut label = m.label.borrow().clone();
        label.epoch = epoch.clone();
        label.clean = false;
        label.stopped = stopped && !mutant::on(Mutant::C4StartForgetsStop);
        label.repair = Repair::None;
        if !mutant::on(Mutant::C9MirrorsFromNotRaised) {
            label.mirrors_from = core.kept.mirrors_from(epoch.first_generation);
        }
        label.generation = core.commit.generation.get();
        if asks_anew(m.index, source) {
            label.journal_end = m.journal.borrow().durable.sequence;
        }
        m.flip(label).await.map_err(failed(m.index))?;
    }
    Ok(())
}

/// Whether the label of an epoch that is not confirmed asks for what this start has found, should it be cut off: an end that was found
/// rotten is written over. Of a journal that is given up as damaged it asks for the place where another one will begin, which is beyond
/// the ring: the next start finds it damaged again, though the epoch by which this one knew that is in no label any more. One that could
/// not be read may be whole the next time, and so may one of which only the map is written anew.
fn asks_anew(member: MemberIndex, source: &Source) -> bool {
    let is_no_good = source.chains[member as usize].as_ref().is_some_and(|c| c.damaged && !c.unread);
    match source.rebuild[member as usize] {
        true => is_no_good && !mutant::on(Mutant::C6DamageForgotten),
        false => !mutant::on(Mutant::C6PromiseStays),
    }
}

/// Appends the records of the last commit that a fast member lacks. Commits are durable on all fast members before the
/// next begins, so that this is one commit at most, and perhaps a part of it was there already: records are
/// after-images and may come twice.
async fn catch_up<E: Env>(core: &Core<E>, m: &Member<E::Device>, source: &Source) -> Result<(), OpenError> {
    let best = source.chains[source.best].as_ref().expect("the best source is present");
    let own = source.chains[m.index as usize].as_ref().expect("a fast member of a writable group");
    let source = &core.members[source.best];
    let complete = match mutant::on(Mutant::HalfCommitIsWhole) {
        true => own.generation >= best.generation,
        false => reach(m, own) >= reach(source, best),
    };
    if complete {
        return Ok(());
    }
    if source.label.borrow().checkpoint_generation >= best.generation {
        // Its pages have the commit, and its journal may not.
        return core.checkpoint(m, &[]).await.map_err(|e| failed_commit(core, &e, m.index));
    }
    let missing: Vec<(u64, Record)> = best.records.iter().filter(|(g, _)| *g >= own.generation).copied().collect();
    let _meta = m.meta.lock().await;
    for same in missing.chunk_by(|a, b| a.0 == b.0) {
        // Each chunk once, however often starts that were cut off have told it: more would not fit a smaller ring.
        let newest: BTreeMap<ChunkId, Record> = same.iter().map(|(_, r)| (chunk_of(r), *r)).collect();
        let records: Vec<Record> = newest.into_values().collect();
        if !m.journal_has_room(m.blocks_for(records.len())) {
            core.checkpoint_locked(m).await.map_err(|e| failed_commit(core, &e, m.index))?;
        }
        m.append(&records, same[0].0, core.epoch()).await.map_err(failed(m.index))?;
        m.sync_all().await.map_err(failed(m.index))?;
        let mut j = m.journal.borrow_mut();
        j.durable = j.head;
    }
    Ok(())
}

/// Writes a block without records where the journal ends. A block of a commit that was cut off may lie there, torn:
/// parts of the next block, torn too, could make it whole again, and with it a commit that nobody has seen for a
/// session. A damaged journal begins anew elsewhere and needs none. A full one gives up what all members know by now:
/// without a block of this epoch the member could not be recognised, should it lose its labels.
async fn seal_end<E: Env>(core: &Core<E>, m: &Member<E::Device>) -> Result<(), OpenError> {
    let _meta = m.meta.lock().await;
    if mutant::on(Mutant::TornEndLeft) {
        return Ok(());
    }
    if !m.journal_has_room(1) {
        if mutant::on(Mutant::SealNeedsRoom) {
            return Ok(());
        }
        core.checkpoint_locked(m).await.map_err(|e| failed_commit(core, &e, m.index))?;
    }
    m.append_end(core.commit.generation.get(), core.epoch()).await.map_err(failed(m.index))
}

/// What is durable of a journal is what its label promises: the ends are, before a label says *confirmed*.
async fn make_ends_durable<E: Env>(core: &Core<E>) -> Result<(), OpenError> {
    let present: Vec<&Member<E::Device>> = core.members.iter().filter(|m| m.is_present()).collect();
    if !mutant::on(Mutant::C6PromiseBeforeSync) {
        let syncs = present.iter().map(|m| async { m.sync_all().await.map_err(failed(m.index)) }).collect();
        wait::all(syncs).await.into_iter().collect::<Result<(), _>>()?;
    }
    for m in present {
        let mut j = m.journal.borrow_mut();
        j.durable = j.head;
    }
    Ok(())
}

/// Writes the whole map to a member that was left behind or is damaged, under a journal that begins anew.
async fn rebuild<E: Env>(core: &Core<E>, m: &Member<E::Device>) -> Result<(), OpenError> {
    // What it says of an orderly stop is about the journal that is given up.
    m.label.borrow_mut().clean = false;
    disown_directory(core, m).await?;
    {
        let map = core.map.borrow();
        let mut d = m.directory.borrow_mut();
        for p in 0..d.pages.len() {
            let e = d.pages.get(p);
            match map.generation(p as u32) {
                0 => d.pages.set(p, Expected::default()),
                _ if e.is_some() => d.pages.set(p, Expected::new(1, e.side())),
                _ => {}
            }
        }
    }
    core.checkpoint(m, &[]).await.map_err(|e| failed_commit(core, &e, m.index))
}

/// Where the directory that the label names could not be read, it is not known which sides are in use, and what is written now
/// goes over some of them. Should that be cut off, nothing of it may be taken for the old directory, nor that for whole: the label
/// names one that is nowhere, and the new one gets a generation that none had before.
async fn disown_directory<E: Env>(core: &Core<E>, m: &Member<E::Device>) -> Result<(), OpenError> {
    let mut label = m.label.borrow().clone();
    let unread = !m.directory.borrow().root.is_some() && label.root_generation > 0;
    if !unread || mutant::on(Mutant::C5NewUnderOldName) {
        return Ok(());
    }
    let is_empty = (0..m.layout.pages).all(|p| core.map.borrow().generation(p as u32) == 0);
    let nowhere = label.root_generation.max(core.commit.durable_generation.get()) + 1;
    label.root_generation = if is_empty { 0 } else { nowhere };
    let side = label.root_side;
    m.flip(label).await.map_err(failed(m.index))?;
    if !is_empty {
        m.directory.borrow_mut().root = Expected::new(nowhere + 1, side);
    }
    Ok(())
}

async fn confirm<E: Env>(core: &Core<E>) -> Result<(), OpenError> {
    for m in core.members.iter().filter(|m| m.is_present()) {
        let mut label = m.label.borrow_mut();
        (label.epoch.confirmed, label.stopped) = (true, false);
    }
    if mutant::on(Mutant::C4NoEpoch) {
        return Ok(());
    }
    // On every member: if only some said so, an old copy put back in their place would take the evidence with it. And one after the other:
    // of one that says so all before it did.
    for m in core.members.iter().filter(|m| m.is_present()) {
        let mut label = m.label.borrow().clone();
        m.promise_journal(&mut label, core.commit.generation.get());
        m.flip(label).await.map_err(failed(m.index))?;
    }
    Ok(())
}

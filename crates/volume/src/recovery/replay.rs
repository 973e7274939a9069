//! Step 4: the journal of a member, along its hash chain (C6).
//!
//! The chain ends at the first block that is not the sound successor of the one before. That is where the last commit
//! was cut off, unless a block of a *later commit* follows: commits are synced one after another, so then a block
//! in between was durable once and is damaged now. For that the later one need not be sound, as long as its head can be read
//! and is of the label's epoch: rot that reaches to the end of a journal is not taken for a cut-off commit. What cannot be read is damage
//! too, up to a block that can be read and is not of this lap: only that one tells that the journal had not come so far. The label tells
//! up to where the journal was durable when it was written: a chain that ends before that is damaged, whatever lies behind. Behind a
//! checkpoint, which gives up all that is durable, the block before the tail is asked for instead.
//!
//! A block without records is the end that a start has put there: it keeps its place in the chain, but is no commit.

use std::collections::BTreeSet;

use bimetal_format::journal::{self, JournalHead, Record};
use bimetal_format::ENTRIES_PER_PAGE;

use super::hole::Runs;
use crate::buf::BufMut;
use crate::env::{Device, DeviceError, Env};
use crate::member::journal::Position;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, BLOCK};

/// The chunk that a record is about.
pub(super) fn chunk_of(r: &Record) -> ChunkId {
    ChunkId(u64::from(r.page) * ENTRIES_PER_PAGE as u64 + u64::from(r.index))
}

/// Bytes read at once.
const READ: u64 = 1 << 20;

/// What a member's journal says.
pub(crate) struct Chain {
    /// Generation and record, in order.
    pub(crate) records: Vec<(u64, Record)>,
    /// Position after the last sound block.
    pub(crate) end: Position,
    /// Generation of the newest commit in it; that of the checkpoint if there is none.
    pub(crate) generation: u64,
    /// A start has put an end behind its newest commit: it has all of that.
    pub(crate) sealed: bool,
    /// The ring was damaged in the middle.
    pub(crate) damaged: bool,
    /// With `damaged`: a block could not be read. It may be another time.
    pub(crate) unread: bool,
    /// With `damaged`: chunks that sound blocks beyond the gap are about. Their newest state is not known.
    pub(crate) beyond_gap: Vec<ChunkId>,
    /// Newest generation in any block that looks like one of this group's, also beyond the end.
    pub(crate) newest_seen: u64,
}

type Decoded = Option<(JournalHead, Vec<Record>, u64)>;

/// Reads the journal from the label's tail on.
pub(crate) async fn read_chain<E: Env>(env: &E, m: &Member<E::Device>) -> Result<Chain, DeviceError> {
    let (tail, hash, generation, clean, journal_end, epoch) = {
        let l = m.label.borrow();
        (l.journal_tail, l.journal_tail_hash, l.checkpoint_generation, l.clean, l.journal_end, l.epoch.id)
    };
    let mut chain = Chain {
        records: Vec::new(),
        end: Position { sequence: tail, hash },
        generation,
        sealed: false,
        damaged: false,
        unread: false,
        beyond_gap: Vec::new(),
        newest_seen: generation,
    };
    let (mut ended, mut end_is_sure) = (false, false);
    let blocks = m.layout.journal_blocks;
    let mut runs = Runs::new(env, m);
    let mut sequence = tail;
    // After an orderly stop the end is known, and the rest of the ring is old.
    let limit = if clean { journal_end.min(tail + blocks) } else { tail + blocks };
    while sequence < limit {
        let until_wrap = blocks - sequence % blocks;
        let count = (READ / BLOCK).min(until_wrap).min(limit - sequence);
        let place = m.layout.journal_block(sequence);
        for (at, block) in (sequence..).zip(runs.read(place, count).await?) {
            // What cannot be read may have been durable: it is a hole, not the end.
            chain.unread |= block.is_none() && !end_is_sure;
            chain.damaged |= chain.unread;
            let salt = m.salt(m.layout.journal_block(at));
            let sound = block.as_ref().and_then(|b| journal::decode(b, &salt).ok());
            let legible = || block.as_ref().and_then(|b| journal::legible_head(b, &salt));
            let head = sound.as_ref().map(|(head, ..)| *head).or_else(legible);
            let of_this_lap = head.filter(|head| head.sequence == at && head.epoch == epoch);
            chain.damaged |= sound.is_none() && of_this_lap.is_some_and(|head| chain.is_beyond_gap(&head));
            ended = chain.take(at, sound, ended);
            // Whether one that is torn or rotten was the last, what follows tells.
            let tells = of_this_lap.is_none() || mutant::on(Mutant::C6UnreadTellsEnd);
            end_is_sure |= ended && block.is_some() && tells;
        }
        sequence += count;
    }
    if clean && chain.end.sequence != journal_end {
        chain.damaged = true;
    } else if chain.end.sequence < journal_end && !mutant::on(Mutant::C6PromiseIgnored) {
        chain.damaged |= !lacks_its_end_only(m, &chain).await;
    } else if !clean && chain.end.sequence == tail && journal_end <= tail {
        chain.damaged |= !ends_where_it_was_left(m).await && !mutant::on(Mutant::C6EmptyIsWhole);
    }
    if mutant::on(Mutant::ReplaySkipsLast) {
        chain.skip_last();
    }
    Ok(chain)
}

/// Whether a chain that ends before what its label says was durable lacks but the end that the last start put there: that block has
/// rotted, there was no commit yet when the label was written, and behind it lies what was there before. Where a journal is lost as a
/// whole, that is lost too.
async fn lacks_its_end_only<D: Device>(m: &Member<D>, chain: &Chain) -> bool {
    let (behind, no_commit) = {
        let l = m.label.borrow();
        (l.journal_end, l.epoch.confirmed && l.generation < l.epoch.first_generation)
    };
    no_commit && chain.end.sequence + 1 == behind && has_rotted_alone(m, behind - 1).await
}

/// Whether a journal with nothing behind its tail is one that was left so: the block before the tail, whose hash the label has, is still
/// there, or it alone has rotted. Where a journal is lost as a whole, that is lost too. A start that was cut off has asked before.
async fn ends_where_it_was_left<D: Device>(m: &Member<D>) -> bool {
    let (tail, confirmed) = {
        let l = m.label.borrow();
        (Position { sequence: l.journal_tail, hash: l.journal_tail_hash }, l.epoch.confirmed)
    };
    if !confirmed || !tail.follows_a_block() {
        return true;
    }
    let place = m.layout.journal_block(tail.sequence - 1);
    let before = m.read(place, BufMut::new(BLOCK as usize)).await.ok();
    let found = before.and_then(|block| journal::decode(&block, &m.salt(place)).ok());
    match found {
        Some((head, _, own)) => head.sequence + 1 == tail.sequence && own == tail.hash,
        None => has_rotted_alone(m, tail.sequence - 1).await,
    }
}

/// Whether this block of the journal has rotted, or cannot be read, and behind it lies what was there before: an earlier lap, or nothing.
async fn has_rotted_alone<D: Device>(m: &Member<D>, sequence: u64) -> bool {
    let (place, behind) = (m.layout.journal_block(sequence), m.layout.journal_block(sequence + 1));
    let block = m.read(place, BufMut::new(BLOCK as usize)).await;
    let Ok(next) = m.read(behind, BufMut::new(BLOCK as usize)).await else { return false };
    let is_zero = |block: &[u8]| block.iter().all(|b| *b == 0);
    let rotten = block.map_or(true, |b| !is_zero(&b) && journal::decode(&b, &m.salt(place)).is_err());
    let untouched = match journal::decode(&next, &m.salt(behind)) {
        Ok((head, ..)) => head.sequence <= sequence,
        Err(_) => is_zero(&next) && sequence + 1 < m.layout.journal_blocks,
    };
    rotten && untouched
}

/// What still lies on the ring before the label's tail: a checkpoint gives it up, and what comes later goes over it.
pub(super) struct BeforeTail {
    /// Whole commits, the newest first: their generations, and how many chunks each is about.
    pub(super) commits: Vec<(u64, usize)>,
    /// They go back to the first block that was ever written.
    pub(super) from_start: bool,
}

/// The commits before the label's tail, back to one of which that is `enough`. The label has the hash of the last block before it,
/// and each block that of the one before.
pub(super) async fn commits_before_tail<D: Device>(m: &Member<D>, enough: impl Fn(u64) -> bool) -> BeforeTail {
    let (tail, mut hash) = {
        let l = m.label.borrow();
        (l.journal_tail, l.journal_tail_hash)
    };
    let (mut commits, mut chunks) = (Vec::new(), BTreeSet::new());
    for at in (tail.saturating_sub(m.layout.journal_blocks)..tail).rev() {
        let place = m.layout.journal_block(at);
        let Ok(block) = m.read(place, BufMut::new(BLOCK as usize)).await else { break };
        let Ok((head, records, own)) = journal::decode(&block, &m.salt(place)) else { break };
        if head.sequence != at || own != hash {
            break;
        }
        hash = head.previous;
        chunks.extend(records.iter().map(chunk_of));
        if head.commit_start == at && !records.is_empty() {
            commits.push((head.generation, std::mem::take(&mut chunks).len()));
            if enough(head.generation) {
                break;
            }
        }
        if at == 0 {
            return BeforeTail { commits, from_start: true };
        }
    }
    BeforeTail { commits, from_start: tail == 0 }
}

impl Chain {
    /// Looks at the block in place number `at`; true once the chain has ended.
    fn take(&mut self, at: u64, block: Decoded, ended: bool) -> bool {
        let Some((head, records, hash)) = block else { return true };
        self.newest_seen = self.newest_seen.max(head.generation);
        let follows = head.sequence == at && (head.previous == self.end.hash || mutant::on(Mutant::C6NoChain));
        if !ended && follows {
            self.sealed = records.is_empty();
            if !records.is_empty() {
                self.generation = self.generation.max(head.generation);
            }
            self.records.extend(records.into_iter().map(|r| (head.generation, r)));
            self.end = Position { sequence: at + 1, hash };
            return false;
        }
        if head.sequence == at {
            self.beyond_gap.extend(records.iter().map(chunk_of));
        }
        // A sound block of this lap whose commit began after the gap.
        if head.sequence == at && head.commit_start > self.end.sequence {
            self.damaged = true;
        }
        true
    }

    /// Whether a block of this lap that is not sound belongs to a commit that began after the end: what lies between was durable once. One
    /// that a crash has torn belongs to the first commit that is not whole.
    fn is_beyond_gap(&self, head: &JournalHead) -> bool {
        head.commit_start > self.end.sequence && !mutant::on(Mutant::C6RottenHeadIgnored)
    }

    /// How far it reaches: its newest generation, and the number of chunks that it knows of that commit. A record
    /// counts once, however often it was appended: what a start appended again and could not finish makes no commit
    /// whole.
    pub(crate) fn reach(&self) -> (u64, usize) {
        let last = self.records.iter().rev().take_while(|(g, _)| *g == self.generation);
        (self.generation, last.map(|(_, r)| chunk_of(r)).collect::<BTreeSet<_>>().len())
    }

    fn skip_last(&mut self) {
        if let Some(last) = self.records.last().map(|(g, _)| *g) {
            self.records.retain(|(g, _)| *g != last);
        }
    }
}

//! Fills the map of a group that was just made, without writing any data: every chunk of every volume gets a home, or so
//! many in a hundred, in runs as files have them. For tests and benchmarks of very large groups on sparse files.
//!
//!   bimetal create big --fast fast.img --slow slow.img
//!   full_map clean|crashed [1%] fast.img slow.img
//!
//! `clean` leaves the members as after an orderly stop: all in the map pages, nothing to replay. `crashed` leaves them
//! as after a crash with full journals: the pages hold half of each chunk, the journals say that the rest is there too.
//! Given again, it starts over from the members as it left them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use bimetal_format::directory::{encode_directory, encode_root, Expected, DIRECTORIES_PER_ROOT, PAGES_PER_DIRECTORY};
use bimetal_format::entry::MAPPED;
use bimetal_format::journal::{self, JournalHead, Record, RecordKind, RECORDS_PER_BLOCK};
use bimetal_format::label::{Label, TierCode, LABEL_SIZE};
use bimetal_format::layout::{label_b, Layout, LABEL_A};
use bimetal_format::page::{self, PageHead};
use bimetal_format::{Entry, Salt, BLOCK, CHUNK, ENTRIES_PER_PAGE};

/// Pages written with one system call.
const BATCH: usize = 256;
/// Journal blocks of one commit.
const COMMIT_BLOCKS: u64 = 16;
/// Distance, in chunks, between the chunks of consecutive records: a prime, so that the records touch the whole map.
const STRIDE: u64 = 7919;
/// Neighbouring chunks that have a home, if not all have.
const RUN: u64 = 4096;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Member {
    file: File,
    label: Label,
    layout: Layout,
}

/// The homes of all chunks, as a rule instead of a table.
struct Plan {
    /// Chunks with a home of each volume, with the first page of its part of the map and its id.
    volumes: Vec<(u64, u32, u32)>,
    /// Distance from one run of chunks with a home to the next.
    period: u64,
    /// Member and slots used of it, slow members first, as evenly as they can: what they cannot take is on the fast ones.
    homes: Vec<(u8, u64)>,
    chunks: u64,
    /// Blocks that the pages say are valid.
    mask_in_pages: u32,
    /// Generation of the pages.
    generation: u64,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: full_map clean|crashed [PERCENT%] MEMBER MEMBER...";
    let (mode, rest) = args.split_first().ok_or(usage)?;
    let (percent, paths) = match rest.split_first() {
        Some((first, paths)) if first.ends_with('%') => (first.trim_end_matches('%').parse()?, paths),
        _ => (100, rest),
    };
    let crashed = mode == "crashed";
    if !(crashed || mode == "clean") || !(1..=100).contains(&percent) || paths.len() < 2 {
        return Err(usage.into());
    }
    let members = paths.iter().map(|p| open(p)).collect::<Result<Vec<Member>>>()?;
    let plan = Plan::new(&members, crashed, RUN * 100 / percent)?;
    let mut newest = plan.generation;
    let mut ends = Vec::new();
    for m in &members {
        write_pages(m, &plan)?;
        let (end, generation) = if crashed { write_journal(m, &plan)? } else { (m.label.journal_tail, newest) };
        ends.push(end);
        newest = newest.max(generation);
    }
    for (m, end) in members.iter().zip(ends) {
        write_label(m, &plan, crashed, end, newest)?;
    }
    println!("{} chunks have a home, on {} members", plan.chunks, members.len());
    Ok(())
}

fn open(path: &str) -> Result<Member> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut bytes = vec![0; LABEL_SIZE];
    file.read_exact_at(&mut bytes, LABEL_A)?;
    let label = Label::decode(&bytes, LABEL_A).map_err(|e| format!("{path}: {e}"))?;
    let layout = label.layout();
    Ok(Member { file, label, layout })
}

impl Member {
    fn salt(&self, place: u64) -> Salt {
        Salt { group: self.label.group, member: self.label.member, place }
    }
}

impl Plan {
    fn new(members: &[Member], crashed: bool, period: u64) -> Result<Plan> {
        let label = &members[0].label;
        if members.len() != label.members.len() || members.iter().any(|m| m.label.group != label.group) {
            return Err("name all members of one group".into());
        }
        let with_home = |chunks: u64| chunks / period * RUN + (chunks % period).min(RUN);
        let volumes: Vec<_> =
            label.volumes.iter().map(|v| (with_home(v.size / CHUNK), v.runs[0].first, v.id)).collect();
        let chunks: u64 = volumes.iter().map(|v| v.0).sum();
        let mut left = chunks;
        let mut homes = Vec::new();
        for tier in [TierCode::Slow, TierCode::Fast] {
            let rows: Vec<_> = label.members.iter().enumerate().filter(|(_, row)| row.tier == tier).collect();
            for (n, (i, row)) in rows.iter().enumerate() {
                let share = left.div_ceil((rows.len() - n) as u64);
                let take = share.min(u64::from(row.slots));
                homes.push((*i as u8, take));
                left -= take;
            }
        }
        let newest = members.iter().map(|m| m.label.generation).max().unwrap_or(0);
        let mask_in_pages = if crashed { 0xffff } else { u32::MAX };
        Ok(Plan { volumes, period, homes, chunks, mask_in_pages, generation: newest + 1 })
    }

    /// The place in its volume of the `n`-th chunk with a home.
    fn chunk(&self, n: u64) -> u64 {
        n / RUN * self.period + n % RUN
    }

    /// Home of the `n`-th chunk of all volumes that has one.
    fn entry(&self, mut n: u64, mask: u32) -> Entry {
        for &(member, slots) in &self.homes {
            if n < slots {
                return Entry { slot: n as u32, mask, member, flags: MAPPED, heat: 1, ..Entry::default() };
            }
            n -= slots;
        }
        Entry::default()
    }

    /// Page and index of the `n`-th chunk of all volumes that has a home.
    fn place(&self, mut n: u64) -> (u32, u8) {
        for &(chunks, first_page, _) in &self.volumes {
            if n < chunks {
                let per_page = ENTRIES_PER_PAGE as u64;
                let chunk = self.chunk(n);
                return (first_page + (chunk / per_page) as u32, (chunk % per_page) as u8);
            }
            n -= chunks;
        }
        unreachable!("n is below the number of chunks")
    }
}

/// Writes all pages in which a chunk has a home to side 0, and the directory that names them.
fn write_pages(m: &Member, plan: &Plan) -> io::Result<()> {
    let mut expected = vec![Expected::default(); m.layout.pages as usize];
    let mut batch = Batch { file: &m.file, at: 0, bytes: Vec::with_capacity(BATCH * BLOCK) };
    let mut before = 0;
    for &(chunks, first_page, volume) in &plan.volumes {
        let mut n = 0;
        while n < chunks {
            let p = plan.chunk(n) / ENTRIES_PER_PAGE as u64;
            let mut entries = [Entry::default(); ENTRIES_PER_PAGE];
            while n < chunks && plan.chunk(n) / ENTRIES_PER_PAGE as u64 == p {
                let entry = plan.entry(before + n, plan.mask_in_pages);
                entries[(plan.chunk(n) % ENTRIES_PER_PAGE as u64) as usize] = entry;
                n += 1;
            }
            let page = first_page + p as u32;
            let head = PageHead { page, volume, generation: plan.generation, epoch: m.label.epoch.id, clock: 0 };
            let mut block = [0; BLOCK];
            let place = m.layout.page(page, 0);
            page::encode(&mut block, &head, &entries, &m.salt(place));
            batch.add(place, &block)?;
            expected[page as usize] = Expected::new(plan.generation, 0);
        }
        before += chunks;
    }
    batch.write()?;
    write_directory(m, plan, &expected)
}

/// Neighbouring blocks that are written together.
struct Batch<'a> {
    file: &'a File,
    at: u64,
    bytes: Vec<u8>,
}

impl Batch<'_> {
    fn add(&mut self, place: u64, block: &[u8]) -> io::Result<()> {
        if self.bytes.len() == BATCH * BLOCK || self.at + self.bytes.len() as u64 != place {
            self.write()?;
            self.at = place;
        }
        self.bytes.extend_from_slice(block);
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.bytes, self.at)?;
        self.bytes.clear();
        Ok(())
    }
}

fn write_directory(m: &Member, plan: &Plan, pages: &[Expected]) -> io::Result<()> {
    let mut block = [0; BLOCK];
    let mut blocks = Vec::new();
    for (index, part) in pages.chunks(PAGES_PER_DIRECTORY).enumerate() {
        let place = m.layout.directory_block(index as u64, 0);
        encode_directory(&mut block, index as u64, plan.generation, part, &m.salt(place));
        m.file.write_all_at(&block, place)?;
        blocks.push(Expected::new(plan.generation, 0));
    }
    for (index, part) in blocks.chunks(DIRECTORIES_PER_ROOT).enumerate() {
        let place = m.layout.root_block(index as u64, 0);
        encode_root(&mut block, index as u64, plan.generation, part, &m.salt(place));
        m.file.write_all_at(&block, place)?;
    }
    Ok(())
}

/// Fills the whole ring with commits after the pages. A fast member's journal is about all chunks, a slow member's
/// about its own. Gives the sequence after the last block, and the newest generation.
fn write_journal(m: &Member, plan: &Plan) -> io::Result<(u64, u64)> {
    let own = |e: &Entry| m.label.members[m.label.member as usize].tier == TierCode::Fast || e.member == m.label.member;
    let (tail, blocks) = (m.label.journal_tail, m.layout.journal_blocks);
    let (mut previous, mut generation, mut n) = (m.label.journal_tail_hash, plan.generation, 0u64);
    let mut block = [0; BLOCK];
    if !plan.homes.iter().any(|(member, chunks)| *chunks > 0 && own(&Entry { member: *member, ..Entry::default() })) {
        return Ok((tail, generation));
    }
    for sequence in tail..tail + blocks {
        let in_commit = (sequence - tail) % COMMIT_BLOCKS;
        generation += u64::from(in_commit == 0);
        let mut records = Vec::with_capacity(RECORDS_PER_BLOCK);
        while records.len() < RECORDS_PER_BLOCK {
            n = (n + STRIDE) % plan.chunks;
            let entry = plan.entry(n, u32::MAX);
            if own(&entry) {
                let (page, index) = plan.place(n);
                records.push(Record { page, index, kind: RecordKind::Set, move_id: 0, entry });
            }
        }
        let epoch = m.label.epoch.id;
        let head = JournalHead { sequence, generation, epoch, previous, commit_start: sequence - in_commit };
        let place = m.layout.journal_block(sequence);
        previous = journal::encode(&mut block, &head, &records, &m.salt(place));
        m.file.write_all_at(&block, place)?;
    }
    Ok((tail + blocks, generation))
}

/// Makes it all current.
fn write_label(m: &Member, plan: &Plan, crashed: bool, journal_end: u64, newest: u64) -> io::Result<()> {
    let mut label = m.label.clone();
    label.sequence += 1;
    label.clean = !crashed;
    label.journal_end = if crashed { 0 } else { journal_end };
    label.root_generation = plan.generation;
    label.root_side = 0;
    label.checkpoint_generation = plan.generation;
    label.generation = newest;
    for place in [LABEL_A, label_b(label.device_size)] {
        m.file.write_all_at(&label.encode(place), place)?;
        m.file.sync_all()?;
    }
    Ok(())
}

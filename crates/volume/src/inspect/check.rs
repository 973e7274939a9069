//! Verifying a group that is not in use.

use bimetal_format::directory::Expected;
use bimetal_format::label::Label;
use bimetal_format::{page, Entry, ENTRIES_PER_PAGE};

use crate::buf::BufMut;
use crate::env::{Device, Env};
use crate::group::core::Core;
use crate::kept::{kept_slot, slots_of};
use crate::member::label::read_labels;
use crate::member::Member;
use crate::options::OpenOptions;
use crate::recovery::{self, OpenError};
use crate::repair;
use crate::units::{ChunkId, Tier, BLOCK};
use crate::wait;

/// Pages read side by side.
const SIDE_BY_SIDE: usize = 64;
/// What becomes of a page that one member has no sound copy of.
const ANOTHER: &str = "another member's copy is used";

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The member that shows it, if it is one member's.
    pub member: Option<u8>,
    /// What is wrong, and what it means.
    pub what: String,
    /// Data is lost or in doubt; otherwise the next writable start mends it.
    pub serious: bool,
    /// The group is in use, and can write it anew; should it end otherwise, this may be missed.
    pub in_memory: bool,
    /// A copy that no start looks at as long as a better one is there: the check of a group in use mends it, no start does.
    pub by_check: bool,
    /// It has been mended by the check that found it.
    pub mended: bool,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Group name.
    pub name: String,
    /// It was verified while it was in use.
    pub in_use: bool,
    /// It was stopped in order: nothing needs to be replayed.
    pub clean: bool,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// More of the same that are not among them.
    pub untold: u64,
    /// Map pages that were verified, all members together.
    pub pages: u64,
    /// Journal records that the next start replays; in use, those on all members.
    pub records: u64,
    /// Volumes that are deleted, whose chunks the next writable start goes on to free.
    pub deleting: Vec<String>,
    /// Chunks with a home.
    pub chunks: u64,
    /// Of these, such as still have their place on the slow tier.
    pub kept: u64,
    /// Slots in use, and free, per member.
    pub slots: Vec<(u8, u64, u64)>,
    /// Write requests that the check sent to members: always zero.
    pub writes: u64,
}

impl Report {
    /// Nothing is wrong (any more).
    pub fn is_sound(&self) -> bool {
        self.untold == 0 && self.problems.iter().all(|p| p.mended)
    }

    fn note(&mut self, member: impl Into<Option<u8>>, serious: bool, what: impl Into<String>) {
        self.problems.push(Problem {
            member: member.into(),
            what: what.into(),
            serious,
            in_memory: false,
            by_check: false,
            mended: false,
        });
    }

    /// A copy on a member is no good, and another member has a good one.
    fn note_copy(&mut self, member: u8, what: String) {
        self.note(member, false, what);
        self.problems.iter_mut().last().into_iter().for_each(|p| p.by_check = true);
    }
}

/// Verifies labels, page directories, every page copy and journal of all members, and the map that a start would use:
/// every slot used once, none beyond its member, none lost. Writes nothing. `progress` hears how many page copies it has
/// been over, and of how many.
pub async fn check<E: Env>(env: E, devices: Vec<E::Device>, progress: &dyn Fn(u64, u64)) -> Result<Report, OpenError> {
    let mut report = Report::default();
    for (position, d) in devices.iter().enumerate() {
        check_labels(d, position, &mut report).await?;
    }
    let options = OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() };
    let core = recovery::open(env, devices, options).await?;
    report.name = core.name.clone();
    report.deleting = core.volumes.all().iter().filter(|v| v.deleted.get()).map(|v| v.name.borrow().clone()).collect();
    report.clean = core.members.iter().filter(|m| m.is_present()).all(|m| m.label.borrow().clean);
    for finding in core.findings.borrow().iter() {
        if !report.problems.iter().any(|p| p.what.contains(finding.what.as_str())) {
            report.note(None, finding.serious, finding.what.clone());
        }
    }
    if let Some(what) = old_map(&core) {
        report.note(None, true, what);
    }
    if repair::is_cut_off(&core) {
        report.note(None, true, "a repair of the group was begun and cut off: no start takes it until it is repaired again, or that is undone");
    }
    let present = || core.members.iter().filter(|m| m.is_present());
    let all = present().map(|m| m.directory.borrow().pages.rows().count() as u64).sum();
    let mut over = 0;
    for m in present() {
        let is_over = |pages| {
            over += pages;
            progress(over, all);
        };
        check_member(&core, m, &mut report, is_over).await;
        check_headers(&core, m, &mut report).await;
    }
    check_slots(&core, &mut report);
    report.writes = core.members.iter().map(|m| m.counters.writes.get()).sum();
    Ok(report)
}

/// What is said of a map that only a slow member has, though a fast one is there: no start writes over that.
pub(super) fn old_map<E: Env>(core: &Core<E>) -> Option<&'static str> {
    let is_old = !core.map_complete && core.members_of(Tier::Fast).next().is_some();
    is_old.then_some("no fast member that is there has a sound map, and those of slow ones may be older; no start writes with these members")
}

async fn check_labels<D: Device>(device: &D, position: usize, report: &mut Report) -> Result<(), OpenError> {
    let found = read_labels(device).await.map_err(|source| OpenError::Device { device: position, source })?;
    let member = found.newest.as_ref().map(|l: &Label| l.member);
    for (place, e) in found.problems {
        match member {
            Some(_) => {
                report.note(
                    member,
                    false,
                    format!("the label at byte {place} is not sound: {e}; the other copy is used"),
                );
            }
            // It is no member any more, and no start makes it one.
            None => report.note(None, false, format!("device {position} has no sound label at byte {place}: {e}")),
        }
    }
    Ok(())
}

async fn check_member<E: Env>(
    core: &Core<E>,
    m: &Member<E::Device>,
    report: &mut Report,
    mut is_over: impl FnMut(u64),
) {
    match recovery::read_chain(&core.env, m).await {
        Ok(chain) if m.tier == Tier::Fast => report.records = report.records.max(chain.records.len() as u64),
        Ok(_) => {}
        Err(e) => report.note_copy(m.index, format!("its journal cannot be read: {e}")),
    }
    // After a crash a torn block is nothing unusual.
    let clean = report.clean;
    for block in m.away.borrow().unsound.iter().filter(|_| clean) {
        report.note(
            m.index,
            false,
            format!("block {block} of the away bitmap is not sound; all its bits count as set"),
        );
    }
    let pages: Vec<_> = m.directory.borrow().pages.rows().collect();
    for part in pages.chunks(SIDE_BY_SIDE) {
        let places = part.iter().map(|(number, e)| m.layout.page(*number as u32, e.side()));
        let reads = places.map(|place| m.read(place, BufMut::new(BLOCK as usize))).collect();
        for ((number, expected), read) in part.iter().zip(wait::all(reads).await) {
            match read {
                Ok(bytes) => check_page(core, m, *number as u32, *expected, &bytes, report),
                Err(e) => report.note_copy(m.index, format!("map page {number} cannot be read: {e}; {ANOTHER}")),
            }
        }
        is_over(part.len() as u64);
    }
}

fn check_page<E: Env>(
    core: &Core<E>,
    m: &Member<E::Device>,
    number: u32,
    expected: Expected,
    bytes: &[u8],
    report: &mut Report,
) {
    match page::decode(bytes, &m.salt(m.layout.page(number, expected.side()))) {
        Err(e) => report.note_copy(m.index, format!("map page {number}: {e}; {ANOTHER}")),
        Ok((head, _)) if head.generation < expected.generation() => {
            let what = format!("map page {number} has generation {}, not {}", head.generation, expected.generation());
            report.note_copy(m.index, what);
        }
        Ok((head, _)) if head.page != number => {
            report.note_copy(m.index, format!("map page {number} says that it is page {}", head.page));
        }
        Ok((head, entries)) => {
            report.pages += 1;
            if report.clean {
                let believed = entries.map(|e| core.kept.believed(head.generation, e));
                compare_page(core, m, number, &believed, report);
            }
        }
    }
}

/// What is said of a header that is damaged on one member.
pub(super) fn damaged_header(family: &str) -> String {
    format!("the header of family {family} is damaged; another member's is used")
}

/// What is said of one that no member has whole.
pub(super) fn lost_header(family: &str) -> String {
    format!(
        "the header of family {family} is damaged, and no member has it whole; `bimetal family import-header` gives it back \
         from a backup"
    )
}

/// Every member has the headers of all families whole.
async fn check_headers<E: Env>(core: &Core<E>, m: &Member<E::Device>, report: &mut Report) {
    let rows = m.label.borrow().families.clone();
    for row in rows {
        if core.header_on(m, &row).await.is_none() {
            match core.read_header(&row).await {
                Ok(_) => report.note(m.index, false, damaged_header(&row.name)),
                Err(_) => report.note(m.index, true, lost_header(&row.name)),
            }
        }
    }
}

/// After an orderly stop every member's pages hold the whole map.
fn compare_page<E: Env>(
    core: &Core<E>,
    m: &Member<E::Device>,
    number: u32,
    entries: &[Entry; ENTRIES_PER_PAGE],
    report: &mut Report,
) {
    let map = core.map.borrow();
    let first = u64::from(number) * ENTRIES_PER_PAGE as u64;
    for (i, e) in entries.iter().enumerate() {
        let used = map.get(ChunkId(first + i as u64)).unwrap_or_default();
        let homes = |e: &Entry| (e.flags, e.member, e.slot, e.mask, e.kept());
        let same = homes(e) == homes(&used);
        if !same && (e.is_mapped() || used.is_mapped()) {
            report.note_copy(m.index, format!("map page {number}, entry {i}: differs from the other members"));
        }
    }
}

/// What is wrong with a chunk that has a home, if its volume is asked.
pub(super) fn wrong_content<E: Env>(core: &Core<E>, chunk: ChunkId, e: &Entry) -> Option<String> {
    let Some(v) = core.volume_of(chunk) else {
        return Some(format!("chunk {} has a home but belongs to no volume", chunk.0));
    };
    // One that was deleted while it was being encrypted stays half plaintext until its chunks are free.
    let must = v.cipher.is_on() && !v.cipher.is_encrypting() && !v.deleted.get();
    let wrong = e.mask != 0 && (e.is_encrypted() && !v.cipher.is_on() || must && !e.is_encrypted());
    let is = if must { "plaintext" } else { "ciphertext" };
    wrong.then(|| format!("chunk {} of volume {} is {is}, and should not be", chunk.0, v.name.borrow()))
}

fn check_slots<E: Env>(core: &Core<E>, report: &mut Report) {
    let map = core.map.borrow();
    let mut used = vec![0u64; core.members.len()];
    for (chunk, e) in map.mapped() {
        slots_of(&e).for_each(|s| used[s.member as usize] += 1);
        report.chunks += 1;
        report.kept += u64::from(kept_slot(&e).is_some());
        if let Some(what) = wrong_content(core, chunk, &e) {
            report.note(None, true, what);
        }
    }
    for m in core.members.iter().filter(|m| m.is_present()) {
        let free = m.free.borrow();
        let (count, free) = (free.count(), free.free());
        report.slots.push((m.index, used[m.index as usize], free));
        if used[m.index as usize] + free != count {
            let what = format!("{} slots used and {free} free do not make {count}", used[m.index as usize]);
            report.note(m.index, true, what);
        }
    }
}

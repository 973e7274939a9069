//! Small writes that must be durable.

use bimetal_sim::prng::Prng;

use super::place::{inside, log_uniform, HotSet};
use super::stream::{stream, Accesses, Script, Visits};
use super::{check, check_exponent, check_part, check_share, check_volume, parameters, part};
use super::{SpecError, Workload, PAGE};
use crate::trace::Op;

/// Bytes of the largest record of a commit.
const RECORD_MAX: u64 = 16 << 10;
/// What belongs together in the tables.
const EXTENT: u64 = 128 << 10;

/// A database, a browser's profile, a mail server: each commit appends a little to a journal and flushes, and now and
/// then the changed pages are written in place; every flush is waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncWrites {
    /// The journal, which is written round and round, as a part of the volume, in parts per million.
    pub journal_ppm: u32,
    /// The tables as a part of the volume, in parts per million; with the journal no more than the whole.
    pub tables_ppm: u32,
    /// Zipf exponent of the tables' pages.
    pub exponent: f64,
    /// Commits between two checkpoints.
    pub checkpoint_commits: u64,
    /// Pages that a checkpoint writes.
    pub checkpoint_pages: u64,
    /// Commits that read a page of the tables before, in parts per million.
    pub read_ppm: u32,
    /// Microseconds between commits, on average.
    pub gap_us: u64,
}

impl Default for SyncWrites {
    fn default() -> SyncWrites {
        SyncWrites {
            journal_ppm: 1_000,
            tables_ppm: 30_000,
            exponent: 0.9,
            checkpoint_commits: 200,
            checkpoint_pages: 100,
            read_ppm: 500_000,
            gap_us: 20_000,
        }
    }
}

impl Workload for SyncWrites {
    fn name(&self) -> &'static str {
        "sync-writes"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; journal_ppm, tables_ppm, exponent, checkpoint_commits, checkpoint_pages, read_ppm, gap_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check_part(self.journal_ppm, "journal_ppm")?;
        check_part(self.tables_ppm, "tables_ppm")?;
        let whole = u64::from(self.journal_ppm) + u64::from(self.tables_ppm) <= 1_000_000;
        check(whole, "tables_ppm", "must fit beside the journal")?;
        check_exponent(self.exponent)?;
        check_share(self.read_ppm, "read_ppm")?;
        check(self.checkpoint_commits > 0, "checkpoint_commits", "must be above 0")?;
        check(self.checkpoint_pages <= 1 << 20, "checkpoint_pages", "must be at most 1048576")?;
        let (journal, tables) = (part(volume_bytes, self.journal_ppm), part(volume_bytes, self.tables_ppm));
        check_volume(self.name(), journal, RECORD_MAX)?;
        check_volume(self.name(), tables, EXTENT)?;
        let rng = &mut Prng::new(seed);
        let tables = HotSet::new(journal, tables, tables, EXTENT, self.exponent, rng);
        Ok(stream(Commits { spec: self.clone(), journal, at: 0, tables, commits: 0, rng: rng.fork(1) }))
    }
}

struct Commits {
    spec: SyncWrites,
    /// Bytes of the journal, from 0.
    journal: u64,
    at: u64,
    tables: HotSet,
    commits: u64,
    rng: Prng,
}

impl Commits {
    fn page(&mut self) -> u64 {
        let extent = self.tables.pick(&mut self.rng);
        inside(extent, self.tables.extent(), PAGE, &mut self.rng)
    }
}

impl Visits for Commits {
    fn visit(&mut self, script: &mut Script) {
        if self.rng.chance(self.spec.read_ppm) {
            let page = self.page();
            script.request(Op::Read, page, PAGE);
        }
        let len = log_uniform(PAGE, RECORD_MAX, &mut self.rng);
        if self.at + len > self.journal {
            self.at = 0;
        }
        script.request(Op::Write, self.at, len);
        script.flush();
        self.at += len;
        self.commits += 1;
        if self.commits % self.spec.checkpoint_commits == 0 {
            for _ in 0..self.spec.checkpoint_pages {
                let page = self.page();
                script.request(Op::Write, page, PAGE);
            }
            script.flush();
        }
        script.wait(&mut self.rng, self.spec.gap_us);
    }
}

//! Medium and volatile cache of one simulated disk: the crash model, without time.
//!
//! Terms: a *record* is one applied write or discard that is not durable yet. `current` is what reads see: the medium
//! under all records in the order they were applied. Rules:
//!
//! 1. A sync makes durable the records that were complete when it began; others may follow or not.
//! 2. At a power cut each sector of each record, complete or not, is kept or lost on its own. As every record can be
//!    lost alone, this includes every order in which a disk may write them. A record cannot undo a younger durable one.
//! 3. A failed sync loses some complete records for ever: reads then show the old content at once, or still the new
//!    content (a *ghost*, like a page marked clean) that no later sync makes durable. A ghost is gone when the device
//!    is opened again; but where a cache that is not the daemon's shows it (`shows`), one of metadata stays until the power goes. One of
//!    data that stayed could not be told from data by anybody.
//! 4. A lying disk answers syncs and makes nothing durable; the first promised record that a power cut damages is
//!    remembered as its broken promise.
//! 5. Fresh and discarded blocks hold poison, never zeros.

use std::collections::BTreeSet;
use std::ops::Range;

use super::cell::Cell;
use crate::prng::Prng;

/// How much of the cache survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survival {
    /// Chance that a block of a record is kept whole, in millionths.
    pub keep_ppm: u32,
    /// Chance that it is torn: each sector by its own coin.
    pub tear_ppm: u32,
}

impl Survival {
    /// Everything is torn.
    pub const TORN: Survival = Survival { keep_ppm: 500_000, tear_ppm: 1_000_000 };

    /// A random one, extremes included.
    pub fn random(prng: &mut Prng) -> Survival {
        let keep_ppm = *prng.pick(&[0, 0, 30_000, 200_000, 500_000, 800_000, 970_000, 1_000_000]);
        let tear_ppm = *prng.pick(&[0, 30_000, 300_000, 800_000]);
        Survival { keep_ppm, tear_ppm }
    }
}

struct Record {
    id: u32,
    first: u64,
    cells: Vec<Cell>,
    /// When it was complete, in the world's sequence; `u64::MAX` before.
    complete: u64,
    ghost: bool,
    promised: bool,
}

impl Record {
    fn cell(&self, block: u64) -> Option<&Cell> {
        self.cells.get(block.checked_sub(self.first)? as usize)
    }
}

/// Content of one disk, in blocks of 4 KiB.
pub struct Store {
    disk: usize,
    current: Vec<Cell>,
    durable: Vec<Cell>,
    /// Youngest record that is durable, per block.
    durable_id: Vec<u32>,
    records: Vec<Record>,
    next_id: u32,
    /// Rule 4.
    pub lying: bool,
    /// Rule 3.
    pub shows: bool,
    /// Whether a promise was broken (rule 4).
    pub broke_promise: bool,
    /// Blocks torn by the last power cut.
    pub torn: Vec<u64>,
}

/// A copy of a medium, to be put back later.
#[derive(Clone)]
pub struct Image(Vec<Cell>);

impl Store {
    /// A fresh disk, all poison.
    pub fn new(disk: usize, blocks: u64) -> Store {
        let n = blocks as usize;
        Store {
            disk,
            current: vec![Cell::Virgin; n],
            durable: vec![Cell::Virgin; n],
            durable_id: vec![0; n],
            records: Vec::new(),
            next_id: 1,
            lying: false,
            shows: false,
            broke_promise: false,
            torn: Vec::new(),
        }
    }

    /// Blocks.
    pub fn blocks(&self) -> u64 {
        self.current.len() as u64
    }

    /// What a read of a block sees.
    pub fn current(&self, block: u64) -> &Cell {
        &self.current[block as usize]
    }

    /// What a read would see after a power cut that keeps nothing.
    pub fn durable(&self, block: u64) -> &Cell {
        &self.durable[block as usize]
    }

    /// Whether a sync would have something to do.
    pub fn dirty(&self) -> bool {
        self.records.iter().any(|r| !r.ghost)
    }

    /// Whether a write was complete, and no sync has made it durable.
    pub fn owes(&self) -> bool {
        self.records.iter().any(|r| r.complete < u64::MAX)
    }

    /// Applies a write: reads see it from now on. Returns its record.
    pub fn apply(&mut self, first: u64, cells: Vec<Cell>) -> u32 {
        for (at, cell) in self.current[first as usize..].iter_mut().zip(&cells) {
            at.clone_from(cell);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.records.push(Record { id, first, cells, complete: u64::MAX, ghost: false, promised: false });
        id
    }

    /// The write of this record completes.
    pub fn complete(&mut self, record: u32, now: u64) {
        if let Some(r) = self.records.iter_mut().find(|r| r.id == record) {
            r.complete = now;
        }
    }

    fn harden(durable: &mut [Cell], durable_id: &mut [u32], r: &Record) {
        for (i, cell) in r.cells.iter().enumerate() {
            let at = r.first as usize + i;
            if durable_id[at] < r.id {
                durable[at].clone_from(cell);
                durable_id[at] = r.id;
            }
        }
    }

    /// A sync that began at `began` succeeds (rules 1 and 4).
    pub fn sync(&mut self, began: u64) {
        if self.lying {
            for r in self.records.iter_mut().filter(|r| r.complete <= began) {
                r.promised = true;
            }
            return;
        }
        let (durable, ids) = (&mut self.durable, &mut self.durable_id);
        self.records.retain(|r| {
            let hardened = r.complete <= began && !r.ghost;
            if hardened {
                Store::harden(durable, ids, r);
            }
            !hardened
        });
    }

    /// A sync that began at `began` fails (rule 3).
    pub fn sync_fails(&mut self, began: u64, prng: &mut Prng) {
        let mut touched = BTreeSet::new();
        let mut broke = false;
        let lose_ppm = *prng.pick(&[200_000, 500_000, 1_000_000]);
        self.records.retain_mut(|r| {
            if r.complete > began || !prng.chance(lose_ppm) {
                return true;
            }
            broke |= r.promised;
            r.ghost |= prng.coin();
            if !r.ghost {
                touched.extend(r.first..r.first + r.cells.len() as u64);
            }
            r.ghost
        });
        self.broke_promise |= broke;
        for block in touched {
            self.recompute(block);
        }
    }

    fn recompute(&mut self, block: u64) {
        let at = block as usize;
        let young = self.records.iter().rev().filter(|r| r.id > self.durable_id[at]).find_map(|r| r.cell(block));
        self.current[at] = young.unwrap_or(&self.durable[at]).clone();
    }

    /// The device, whose slots lie in these blocks, is closed by the death of its user (rule 3).
    pub fn close(&mut self, slots: &Range<u64>) {
        let mut touched = BTreeSet::new();
        let shows = self.shows;
        let goes = |r: &Record| r.ghost && (!shows || slots.contains(&r.first));
        for r in self.records.iter().filter(|r| goes(r)) {
            touched.extend(r.first..r.first + r.cells.len() as u64);
        }
        self.records.retain(|r| !goes(r));
        for block in touched {
            self.recompute(block);
        }
    }

    /// The power goes away, and comes back (rule 2). `in_flight` are writes not applied yet.
    pub fn power_cut(&mut self, in_flight: Vec<(u64, Vec<Cell>)>, survival: Survival, prng: &mut Prng) {
        for (first, cells) in in_flight {
            self.apply(first, cells);
        }
        self.torn.clear();
        for r in std::mem::take(&mut self.records) {
            if r.ghost {
                continue;
            }
            for (i, cell) in r.cells.iter().enumerate() {
                let block = r.first + i as u64;
                let at = block as usize;
                if self.durable_id[at] >= r.id {
                    continue;
                }
                let keep = keep_mask(survival, prng);
                self.broke_promise |= r.promised && keep != 0xff;
                if keep != 0 {
                    let merged = cell.merge(&self.durable[at], keep, self.disk, block);
                    self.durable[at] = merged;
                }
                if keep != 0 && keep != 0xff {
                    self.torn.push(block);
                }
            }
        }
        self.current.clone_from(&self.durable);
    }

    /// A copy of what is durable.
    pub fn image(&self) -> Image {
        Image(self.durable.clone())
    }

    /// What reads see now, as a copy of the disk has it.
    pub fn seen(&self) -> Image {
        Image(self.current.clone())
    }

    /// Replaces the whole content, as durable; returns what was durable before.
    pub fn swap_image(&mut self, image: Image) -> Image {
        self.records.clear();
        self.current.clone_from(&image.0);
        Image(std::mem::replace(&mut self.durable, image.0))
    }

    /// Puts the content of an older image back in one block: a write that was lost although the disk had confirmed it.
    /// Returns whether that changes anything.
    pub fn revert(&mut self, block: u64, image: &Image) -> bool {
        let at = block as usize;
        let old = image.0[at].bytes(self.disk, block);
        let changes = old != self.durable[at].bytes(self.disk, block);
        self.durable[at].clone_from(&image.0[at]);
        self.recompute(block);
        changes
    }

    /// Replaces the content of one block of the medium.
    pub fn put(&mut self, block: u64, cell: Cell) {
        self.durable[block as usize] = cell;
        self.recompute(block);
    }

    /// Damages a block of the medium: bits rot. Returns whether there was anything to damage.
    pub fn rot(&mut self, block: u64, prng: &mut Prng) -> bool {
        let at = block as usize;
        let mut bytes = self.durable[at].bytes(self.disk, block);
        let place = prng.below(bytes.len() as u64) as usize;
        bytes[place] ^= 1 << prng.below(8);
        if matches!(self.durable[at], Cell::Virgin) {
            return false;
        }
        self.durable[at] = Cell::from_bytes(&bytes);
        self.recompute(block);
        true
    }
}

fn keep_mask(survival: Survival, prng: &mut Prng) -> u8 {
    if prng.chance(survival.tear_ppm) {
        prng.next() as u8
    } else if prng.chance(survival.keep_ppm) {
        0xff
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{data_code, STEP};

    fn data(write: u64, block: u64) -> Cell {
        Cell::Run(data_code(write, 0, block * 8))
    }

    fn write(s: &mut Store, write_id: u64, block: u64, now: u64) {
        let r = s.apply(block, vec![data(write_id, block)]);
        s.complete(r, now);
    }

    fn cut(s: &mut Store, keep_ppm: u32, tear_ppm: u32, seed: u64) {
        s.power_cut(Vec::new(), Survival { keep_ppm, tear_ppm }, &mut Prng::new(seed));
    }

    fn is(s: &Store, block: u64, cell: &Cell) -> bool {
        s.current(block).bytes(0, block) == cell.bytes(0, block)
    }

    #[test]
    fn a_sync_covers_only_what_was_complete_when_it_began() {
        let mut s = Store::new(0, 4);
        write(&mut s, 1, 0, 10);
        write(&mut s, 2, 1, 20);
        s.sync(15);
        cut(&mut s, 0, 0, 1);
        assert!(is(&s, 0, &data(1, 0)));
        assert!(is(&s, 1, &Cell::Virgin), "complete after the sync began: lost");
    }

    #[test]
    fn unsynced_writes_are_kept_dropped_or_torn_in_any_order() {
        let (mut old, mut new, mut base, mut torn) = (0, 0, 0, 0);
        for seed in 0..400 {
            let mut s = Store::new(0, 1);
            write(&mut s, 1, 0, 1);
            write(&mut s, 2, 0, 2);
            cut(&mut s, 500_000, 200_000, seed);
            if is(&s, 0, &data(1, 0)) {
                old += 1;
            } else if is(&s, 0, &data(2, 0)) {
                new += 1;
            } else if is(&s, 0, &Cell::Virgin) {
                base += 1;
            } else {
                torn += 1;
                for code in s.current(0).codes(0, 0).expect("codes") {
                    let sector = code >> 8 & 7;
                    let legal = [data_code(1, 0, sector), data_code(2, 0, sector)];
                    let poison = Cell::Virgin.codes(0, 0).expect("codes")[sector as usize];
                    assert!(legal.contains(&code) || code == poison);
                }
            }
        }
        assert!(old > 20 && new > 20 && base > 20 && torn > 20, "{old} {new} {base} {torn}");
    }

    #[test]
    fn an_older_write_in_flight_cannot_undo_a_durable_younger_one() {
        let mut s = Store::new(0, 1);
        let late = s.apply(0, vec![data(1, 0)]);
        write(&mut s, 2, 0, 5);
        s.sync(6);
        s.complete(late, 7);
        s.sync(8);
        cut(&mut s, 1_000_000, 0, 3);
        assert!(is(&s, 0, &data(2, 0)));
    }

    #[test]
    fn a_failed_sync_loses_writes_for_ever() {
        let (mut seen_old, mut ghosts) = (0, 0);
        for seed in 0..200 {
            let mut s = Store::new(0, 1);
            write(&mut s, 1, 0, 1);
            s.sync_fails(2, &mut Prng::new(seed));
            let visible = is(&s, 0, &data(1, 0));
            s.sync(3);
            cut(&mut s, 1_000_000, 0, seed);
            let survived = is(&s, 0, &data(1, 0));
            seen_old += u32::from(!visible && !survived);
            ghosts += u32::from(visible && !survived);
        }
        assert!(seen_old > 20 && ghosts > 20, "{seen_old} {ghosts}");
    }

    #[test]
    fn metadata_that_a_failed_sync_has_lost_may_be_shown_until_the_power_goes() {
        let (mut shown, mut hidden) = (0, 0);
        for seed in 0..200 {
            let mut s = Store::new(0, 2);
            s.shows = true;
            write(&mut s, 1, 0, 1);
            write(&mut s, 1, 1, 1);
            s.sync_fails(2, &mut Prng::new(seed));
            let (metadata, slot) = (is(&s, 0, &data(1, 0)), is(&s, 1, &data(1, 1)));
            s.close(&(1..2));
            assert_eq!(is(&s, 0, &data(1, 0)), metadata);
            hidden += u32::from(slot && !is(&s, 1, &data(1, 1)));
            s.sync(3);
            cut(&mut s, 1_000_000, 0, seed);
            shown += u32::from(metadata && !is(&s, 0, &data(1, 0)));
        }
        assert!(shown > 20 && hidden > 20, "{shown} {hidden}");
    }

    #[test]
    fn a_lying_disk_is_found_out_at_the_power_cut() {
        let mut s = Store::new(0, 1);
        s.lying = true;
        write(&mut s, 1, 0, 1);
        s.sync(2);
        assert!(!s.broke_promise);
        cut(&mut s, 0, 0, 1);
        assert!(s.broke_promise && is(&s, 0, &Cell::Virgin));
    }

    #[test]
    fn rot_changes_one_bit_and_images_come_back() {
        let mut s = Store::new(0, 2);
        write(&mut s, 1, 1, 1);
        s.sync(2);
        let image = s.image();
        assert!(s.rot(1, &mut Prng::new(1)));
        assert!(!is(&s, 1, &data(1, 1)));
        let rotten = s.swap_image(image);
        assert!(is(&s, 1, &data(1, 1)));
        assert!(matches!(rotten.0[1], Cell::Raw(_) | Cell::Mixed(_)));
        assert_eq!(STEP, 256);
    }
}

//! Content of one 4 KiB block of a disk, as small as it can be said.

use std::rc::Rc;

use crate::content::{fill_sector, poison_code, sector_code, SECTOR, SECTORS, STEP};

/// Bytes of a block.
pub const BLOCK: usize = SECTOR * SECTORS;

/// Content of a block. Cloning is cheap.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Never written, or discarded: poison that names the place.
    Virgin,
    /// Zeros.
    Zero,
    /// Eight sectors with codes `n`, `n + STEP`, and so on: a whole block of one write.
    Run(u64),
    /// Eight sectors with these codes.
    Mixed(Rc<[u64; SECTORS]>),
    /// Anything else, such as metadata.
    Raw(Rc<[u8; BLOCK]>),
}

impl Cell {
    /// The content of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Cell {
        let mut codes = [0; SECTORS];
        for (code, sector) in codes.iter_mut().zip(bytes.chunks_exact(SECTOR)) {
            match sector_code(sector) {
                Some(c) => *code = c,
                None => {
                    let raw: [u8; BLOCK] = bytes.try_into().expect("a whole block");
                    return Cell::Raw(Rc::new(raw));
                }
            }
        }
        Cell::from_codes(codes)
    }

    /// The content with these sectors.
    pub fn from_codes(codes: [u64; SECTORS]) -> Cell {
        let first = codes[0];
        if codes.iter().all(|c| *c == 0) {
            Cell::Zero
        } else if first != 0 && codes.iter().enumerate().all(|(i, c)| *c == first + i as u64 * STEP) {
            Cell::Run(first)
        } else {
            Cell::Mixed(Rc::new(codes))
        }
    }

    /// The codes of its sectors, if all have one. `disk` and `block` say where it lies.
    pub fn codes(&self, disk: usize, block: u64) -> Option<[u64; SECTORS]> {
        let run = |first: u64| std::array::from_fn(|i| first + i as u64 * STEP);
        match self {
            Cell::Virgin => Some(run(poison_code(disk, block * SECTORS as u64))),
            Cell::Zero => Some([0; SECTORS]),
            Cell::Run(first) => Some(run(*first)),
            Cell::Mixed(codes) => Some(**codes),
            Cell::Raw(_) => None,
        }
    }

    /// Writes its bytes to `out`.
    pub fn fill(&self, out: &mut [u8], disk: usize, block: u64) {
        match (self, self.codes(disk, block)) {
            (Cell::Zero, _) => out.fill(0),
            (Cell::Raw(raw), _) => out.copy_from_slice(&raw[..]),
            (_, Some(codes)) => {
                for (sector, code) in out.chunks_exact_mut(SECTOR).zip(codes) {
                    fill_sector(sector, code);
                }
            }
            (_, None) => unreachable!("only raw cells have no codes"),
        }
    }

    /// Its bytes.
    pub fn bytes(&self, disk: usize, block: u64) -> [u8; BLOCK] {
        let mut out = [0; BLOCK];
        self.fill(&mut out, disk, block);
        out
    }

    /// The block whose sectors come from `self` where the bit of `keep` is set, else from `other`.
    #[must_use]
    pub fn merge(&self, other: &Cell, keep: u8, disk: usize, block: u64) -> Cell {
        match keep {
            0 => return other.clone(),
            0xff => return self.clone(),
            _ => {}
        }
        if let (Some(mine), Some(others)) = (self.codes(disk, block), other.codes(disk, block)) {
            return Cell::from_codes(std::array::from_fn(|i| if keep >> i & 1 == 1 { mine[i] } else { others[i] }));
        }
        let mut bytes = other.bytes(disk, block);
        let mine = self.bytes(disk, block);
        for i in (0..SECTORS).filter(|i| keep >> i & 1 == 1) {
            let at = i * SECTOR..(i + 1) * SECTOR;
            bytes[at.clone()].copy_from_slice(&mine[at]);
        }
        Cell::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::data_code;

    #[test]
    fn every_kind_of_content_comes_back() {
        let mut raw = [7u8; BLOCK];
        raw[9] = 1;
        let mixed: [u64; SECTORS] = std::array::from_fn(|i| data_code(i as u64, 0, 100));
        for cell in
            [Cell::Virgin, Cell::Zero, Cell::Run(data_code(5, 0, 8)), Cell::from_codes(mixed), Cell::Raw(Rc::new(raw))]
        {
            let bytes = cell.bytes(1, 3);
            assert_eq!(Cell::from_bytes(&bytes).bytes(1, 3), bytes);
        }
        assert!(matches!(Cell::from_bytes(&Cell::Run(data_code(5, 0, 8)).bytes(0, 0)), Cell::Run(_)));
    }

    #[test]
    fn merge_tears_at_sectors() {
        let new = Cell::Run(data_code(5, 0, 8));
        let raw = Cell::Raw(Rc::new([3; BLOCK]));
        for old in [Cell::Virgin, raw] {
            let torn = new.merge(&old, 0b0000_0110, 0, 1).bytes(0, 1);
            let (a, b) = (new.bytes(0, 1), old.bytes(0, 1));
            for i in 0..SECTORS {
                let at = i * SECTOR..(i + 1) * SECTOR;
                let want = if i == 1 || i == 2 { &a } else { &b };
                assert_eq!(torn[at.clone()], want[at]);
            }
        }
    }
}

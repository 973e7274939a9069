//! What a sector may hold: zeros, data of a write, or a sector of which a write changed some bytes.

use crate::content::{data_code, fill_sector, sector_code, SECTOR};

/// A value of a sector; small and comparable. Its bytes depend on volume and sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(u64);

const PATCH: u64 = 1 << 63;

impl Value {
    /// Zeros.
    pub const ZERO: Value = Value(0);

    /// The sector as this write made it.
    pub fn write(id: u64) -> Value {
        Value(id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Patch {
    base: Value,
    from: u16,
    to: u16,
    by: Value,
}

/// Values that are not whole sectors of one write.
#[derive(Default)]
pub(super) struct Patches(Vec<Patch>);

impl Patches {
    /// `base` with its bytes from `from` to `to` as `by` has them.
    pub(super) fn patch(&mut self, base: Value, from: usize, to: usize, by: Value) -> Value {
        if from == 0 && to == SECTOR {
            return by;
        }
        let patch = Patch { base, from: from as u16, to: to as u16, by };
        let at = self.0.iter().rposition(|p| *p == patch).unwrap_or_else(|| {
            self.0.push(patch);
            self.0.len() - 1
        });
        Value(PATCH | at as u64)
    }

    /// The code of a value, if it has one.
    pub(super) fn code(&self, value: Value, volume: usize, sector: u64) -> Option<u64> {
        match value {
            Value::ZERO => Some(0),
            Value(v) if v & PATCH != 0 => None,
            Value(write) => Some(data_code(write, volume, sector)),
        }
    }

    /// The bytes of a value.
    pub(super) fn bytes(&self, value: Value, volume: usize, sector: u64) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        match self.code(value, volume, sector) {
            Some(code) => fill_sector(&mut out, code),
            None => {
                let p = self.0[(value.0 & !PATCH) as usize];
                out = self.bytes(p.base, volume, sector);
                let by = self.bytes(p.by, volume, sector);
                let at = p.from as usize..p.to as usize;
                out[at.clone()].copy_from_slice(&by[at]);
            }
        }
        out
    }

    /// Whether a sector that was read has this value. `code` is what the bytes show, found once for many values.
    pub(super) fn matches(&self, value: Value, volume: usize, sector: u64, bytes: &[u8], code: Option<u64>) -> bool {
        match self.code(value, volume, sector) {
            Some(want) => code == Some(want),
            None => bytes == self.bytes(value, volume, sector),
        }
    }

    /// A value in words.
    pub(super) fn describe(&self, value: Value) -> String {
        match value {
            Value::ZERO => "zeros".into(),
            Value(v) if v & PATCH != 0 => {
                let p = self.0[(v & !PATCH) as usize];
                format!("{} with bytes {}..{} of {}", self.describe(p.base), p.from, p.to, self.describe(p.by))
            }
            Value(write) => format!("write {write}"),
        }
    }
}

/// The code of the bytes of a sector, if they have one.
pub(super) fn code_of(bytes: &[u8]) -> Option<u64> {
    sector_code(bytes)
}

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bimetal_volume::backend::{Backend, Extent, Piece, Pieces, Wanted, WriteFlags};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::error::Error;
use bimetal_volume::units::BLOCK;

use super::check_range;

/// Bytes of one piece of memory: 32 blocks, one bit each in its mask.
const PART: u64 = 32 * BLOCK;

#[derive(Clone)]
struct Part {
    bytes: Box<[u8]>,
    /// Blocks that hold data. The others are zero bytes.
    valid: u32,
}

/// A volume in memory, sparse: blocks that were never written, or were trimmed, are zeros and take (almost) no room.
/// Parts with an even number show as fast, odd ones as slow, and the heat counts up with the parts, so that a client
/// has something to see.
#[derive(Clone)]
pub struct Memory {
    size: u64,
    read_only: bool,
    parts: Rc<RefCell<Vec<Option<Part>>>>,
    changes: Rc<Cell<u64>>,
    arrivals: Rc<Cell<u64>>,
    present: Rc<Cell<u64>>,
}

/// A range cut at the borders of parts: number of the part, offset in it, bytes, bytes before it in the range.
fn cut(offset: u64, len: u64) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let mut at = offset;
    let end = offset + len;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let take = (PART - at % PART).min(end - at);
            let piece = ((at / PART) as usize, (at % PART) as usize, take as usize, (at - offset) as usize);
            at += take;
            piece
        })
    })
}

/// Mask of the blocks that the range touches (`whole`: that lie entirely inside it).
fn blocks(from: usize, len: usize, whole: bool) -> u32 {
    let block = BLOCK as usize;
    let (first, end) =
        if whole { (from.div_ceil(block), (from + len) / block) } else { (from / block, (from + len).div_ceil(block)) };
    (first..end).fold(0, |mask, i| mask | 1 << i)
}

impl Memory {
    /// A writable volume of `size` bytes, all zeros.
    pub fn new(size: u64) -> Memory {
        let parts = vec![None; size.div_ceil(PART) as usize];
        let parts = Rc::new(RefCell::new(parts));
        Memory {
            size,
            read_only: false,
            parts,
            changes: Rc::default(),
            arrivals: Rc::default(),
            present: Rc::default(),
        }
    }

    /// The same volume, not writable.
    #[must_use]
    pub fn as_read_only(&self) -> Memory {
        Memory { read_only: true, ..self.clone() }
    }

    fn check_write(&self, offset: u64, len: u64) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        check_range(offset, len, self.size)
    }

    /// Zeroes the range; blocks wholly inside it hold nothing afterwards, unless they are to be kept.
    fn zero(&self, offset: u64, len: u64, whole_blocks_only: bool, keep: bool) {
        self.changes.set(self.changes.get() + 1);
        let mut parts = self.parts.borrow_mut();
        for (index, from, len, _) in cut(offset, len) {
            let Some(part) = &mut parts[index] else { continue };
            let gone = blocks(from, len, true);
            if whole_blocks_only {
                for i in (0..32).filter(|i| gone >> i & 1 != 0) {
                    part.bytes[i * BLOCK as usize..(i + 1) * BLOCK as usize].fill(0);
                }
            } else {
                part.bytes[from..from + len].fill(0);
            }
            if !keep {
                part.valid &= !gone;
            }
            if part.valid == 0 {
                parts[index] = None;
            }
        }
    }
}

impl Backend for Memory {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn sector_size(&self) -> u32 {
        4096
    }

    fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn arrive(&self) -> u64 {
        self.arrivals.set(self.arrivals.get() + 1);
        self.present.set(self.present.get() + 1);
        self.arrivals.get()
    }

    fn arrivals(&self) -> u64 {
        self.arrivals.get()
    }

    fn depart(&self) {
        self.present.set(self.present.get() - 1);
    }

    fn present(&self) -> u64 {
        self.present.get()
    }

    async fn read(&self, offset: u64, len: u64) -> Result<Pieces, Error> {
        check_range(offset, len, self.size)?;
        let parts = self.parts.borrow();
        let mut pieces = Pieces::new();
        for (index, from, len, done) in cut(offset, len) {
            match (&parts[index], pieces.last_mut()) {
                (Some(part), _) => {
                    let mut buf = BufMut::with_phase(len, offset + done as u64);
                    buf.copy_from_slice(&part.bytes[from..from + len]);
                    pieces.push(Piece::Data(buf.freeze()));
                }
                (None, Some(Piece::Zero(n))) => *n += len as u64,
                (None, _) => pieces.push(Piece::Zero(len as u64)),
            }
        }
        Ok(pieces)
    }

    async fn write_while(&self, offset: u64, data: Buf, _flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.check_write(offset, data.len() as u64)?;
        if !wanted() {
            return Err(Error::Stopping);
        }
        self.changes.set(self.changes.get() + 1);
        let mut parts = self.parts.borrow_mut();
        for (index, from, len, done) in cut(offset, data.len() as u64) {
            let empty = || Part { bytes: vec![0; PART as usize].into_boxed_slice(), valid: 0 };
            let part = parts[index].get_or_insert_with(empty);
            part.bytes[from..from + len].copy_from_slice(&data[done..done + len]);
            part.valid |= blocks(from, len, false);
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn trim_while(&self, offset: u64, len: u64, _flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.check_write(offset, len)?;
        if !wanted() {
            return Err(Error::Stopping);
        }
        self.zero(offset, len, true, false);
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.check_write(offset, len)?;
        if !wanted() {
            return Err(Error::Stopping);
        }
        self.zero(offset, len, false, flags.no_hole);
        Ok(())
    }

    async fn cache(&self, offset: u64, len: u64, _wanted: Wanted<'_>) -> Result<(), Error> {
        check_range(offset, len, self.size)
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, Error> {
        check_range(offset, len, self.size)?;
        let parts = self.parts.borrow();
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let index = (at / PART) as usize;
            let unit = if parts[index].is_some() { BLOCK } else { PART };
            let take = (unit - at % unit).min(end - at);
            let data = parts[index].as_ref().is_some_and(|p| p.valid >> (at % PART / BLOCK) & 1 != 0);
            let (tier, heat) = if data { (1 + (index % 2) as u8, (index % 16) as u8) } else { (0, 0) };
            let full = extents.len() >= max.max(1);
            match extents.last_mut() {
                Some(e) if (e.data, e.tier, e.heat) == (data, tier, heat) => e.len += take,
                _ if full => break,
                _ => extents.push(Extent { len: take, data, tier, heat }),
            }
            at += take;
        }
        Ok(extents)
    }
}

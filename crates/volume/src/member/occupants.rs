//! Which chunk lives in each slot of a fast member.

use crate::units::{ChunkId, SlotIndex};

/// Per slot the complement of its chunk's number. Nobody is 0, so that the system need not give memory for slots of a
/// large member that were never used.
pub(crate) struct Occupants(Vec<u32>);

impl Occupants {
    /// Nobody lives in any of `slots` slots.
    pub(crate) fn new(slots: u64) -> Occupants {
        Occupants(vec![0; slots as usize])
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The chunk in a slot of this member.
    #[inline]
    pub(crate) fn get(&self, slot: SlotIndex) -> Option<ChunkId> {
        match self.0[slot as usize] {
            0 => None,
            chunk => Some(ChunkId(u64::from(!chunk))),
        }
    }

    pub(crate) fn set(&mut self, slot: SlotIndex, chunk: Option<ChunkId>) {
        self.0[slot as usize] = chunk.map_or(0, |c| !(c.0 as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_chunk_and_nobody_are_told_apart() {
        let mut o = Occupants::new(3);
        o.set(0, Some(ChunkId(0)));
        o.set(2, Some(ChunkId(u64::from(u32::MAX) - 1)));
        assert_eq!([0, 1, 2].map(|s| o.get(s)), [Some(ChunkId(0)), None, Some(ChunkId(u64::from(u32::MAX) - 1))]);
        o.set(0, None);
        assert_eq!((o.get(0), o.len()), (None, 3));
    }
}

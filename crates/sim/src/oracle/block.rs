//! The histories of the sectors of a 4 KiB block.

use super::history::History;
use super::value::Value;
use super::BEGINNING;
use crate::content::SECTORS;

/// The sectors of a block; those of most blocks were always written together.
pub(super) enum Block {
    /// All sectors share one history.
    Whole(History),
    Split(Box<[History; SECTORS]>),
}

/// What nobody has written to.
pub(super) fn fresh() -> History {
    History::new(BEGINNING, Value::ZERO)
}

impl Block {
    pub(super) fn histories_mut(&mut self) -> &mut [History] {
        match self {
            Block::Whole(h) => std::slice::from_mut(h),
            Block::Split(all) => &mut all[..],
        }
    }

    pub(super) fn split(&mut self) -> &mut [History; SECTORS] {
        if let Block::Whole(h) = self {
            *self = Block::Split(Box::new(std::array::from_fn(|_| h.clone())));
        }
        match self {
            Block::Split(all) => all,
            Block::Whole(_) => unreachable!("just split"),
        }
    }

    pub(super) fn split_at(&mut self, sector: u64) -> &mut History {
        &mut self.split()[(sector % SECTORS as u64) as usize]
    }

    pub(super) fn history(&self, sector: usize) -> &History {
        match self {
            Block::Whole(h) => h,
            Block::Split(all) => &all[sector],
        }
    }
}

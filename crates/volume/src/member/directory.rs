//! The page directory of a member in memory: what generation each of its pages has on it, and on which side.

use bimetal_format::directory::{self as raw, Expected, DIRECTORIES_PER_ROOT, PAGES_PER_DIRECTORY};
use bimetal_format::layout::{directory_blocks, root_blocks};
use bimetal_format::BlockError;

use super::Member;
use crate::buf::BufMut;
use crate::env::{Device, DeviceError};
use crate::sparse::Sparse;

pub(crate) struct Directory {
    /// Per page.
    pub(crate) pages: Sparse<Expected>,
    /// Per directory block.
    pub(crate) blocks: Vec<Expected>,
    /// The root blocks.
    pub(crate) root: Expected,
}

/// What a checkpoint changes in a directory: nothing before all of it is on the member. Pages and blocks in order.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) pages: Vec<(u32, Expected)>,
    pub(crate) blocks: Vec<(u32, Expected)>,
    pub(crate) root: Expected,
}

/// The directory block that names a page.
pub(crate) fn block_of(page: u32) -> usize {
    page as usize / PAGES_PER_DIRECTORY
}

/// Why a directory could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("page directory: {0}")]
    Device(#[from] DeviceError),
    #[error("page directory: {0}")]
    Block(#[from] BlockError),
}

impl Directory {
    /// Nothing was ever written.
    pub(crate) fn empty(pages: u64) -> Directory {
        Directory {
            pages: Sparse::new(pages),
            blocks: vec![Expected::default(); directory_blocks(pages) as usize],
            root: Expected::default(),
        }
    }

    /// What block `b` names once these of its pages have changed.
    pub(crate) fn block_with(&self, b: usize, changed: &[(u32, Expected)]) -> Vec<Expected> {
        let first = b * PAGES_PER_DIRECTORY;
        let end = self.pages.len().min(first + PAGES_PER_DIRECTORY);
        let mut content: Vec<Expected> = (first..end).map(|page| self.pages.get(page)).collect();
        for (page, expected) in changed {
            content[*page as usize - first] = *expected;
        }
        content
    }

    /// What a checkpoint has written is current.
    pub(crate) fn change(&mut self, changes: Changes) {
        changes.pages.into_iter().for_each(|(page, expected)| self.pages.set(page as usize, expected));
        changes.blocks.into_iter().for_each(|(b, expected)| self.blocks[b as usize] = expected);
        self.root = changes.root;
    }

    /// The side that may be overwritten: the one that is not current.
    pub(crate) fn other_side(current: Expected) -> u8 {
        if current.is_some() {
            1 - current.side()
        } else {
            0
        }
    }
}

impl<D: Device> Member<D> {
    /// Reads the directory that the label names, by `read`, which gets the places of blocks.
    pub(crate) async fn load_directory(
        &self,
        read: impl AsyncFn(u64) -> Result<BufMut, DeviceError>,
    ) -> Result<Directory, DirectoryError> {
        let (generation, side) = {
            let label = self.label.borrow();
            (label.root_generation, label.root_side)
        };
        let mut d = Directory::empty(self.layout.pages);
        if generation == 0 {
            return Ok(d);
        }
        d.root = Expected::new(generation, side);
        for index in 0..root_blocks(self.layout.pages) {
            let place = self.layout.root_block(index, side);
            let buf = read(place).await?;
            let rows = raw::decode_root(&buf, index, generation, &self.salt(place))?;
            let first = index as usize * DIRECTORIES_PER_ROOT;
            let wanted = (d.blocks.len() - first).min(DIRECTORIES_PER_ROOT);
            if rows.len() != wanted {
                return Err(BlockError::Field("count").into());
            }
            d.blocks[first..first + wanted].copy_from_slice(&rows);
        }
        for index in 0..d.blocks.len() {
            let expected = d.blocks[index];
            if !expected.is_some() {
                continue;
            }
            let place = self.layout.directory_block(index as u64, expected.side());
            let buf = read(place).await?;
            let rows = raw::decode_directory(&buf, index as u64, expected.generation(), &self.salt(place))?;
            let first = index * PAGES_PER_DIRECTORY;
            let wanted = (d.pages.len() - first).min(PAGES_PER_DIRECTORY);
            if rows.len() != wanted {
                return Err(BlockError::Field("count").into());
            }
            rows.iter().enumerate().for_each(|(i, row)| d.pages.set(first + i, *row));
        }
        Ok(d)
    }
}

//! What the mount shows: one directory with a file per volume. It never changes while it is mounted.

use bimetal_volume::backend::Backend;
use bimetal_volume::units::BLOCK;

use crate::nbd::Export;

use super::wire::{Attr, DIRECTORY, REGULAR, ROOT};
use super::Terms;

/// Something that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Root,
    /// The file of so many in the list.
    File(usize),
}

impl Node {
    pub(super) fn number(self) -> u64 {
        match self {
            Node::Root => ROOT,
            Node::File(index) => ROOT + 1 + index as u64,
        }
    }
}

/// The files of a mount.
pub(super) struct Tree<B> {
    files: Vec<Export<B>>,
    terms: Terms,
}

impl<B: Backend> Tree<B> {
    pub(super) fn new(files: Vec<Export<B>>, terms: Terms) -> Tree<B> {
        Tree { files, terms }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Export<B>> {
        self.files.iter()
    }

    /// What has this number.
    pub(super) fn node(&self, number: u64) -> Option<Node> {
        match number.checked_sub(ROOT)? {
            0 => Some(Node::Root),
            n => usize::try_from(n - 1).ok().filter(|i| *i < self.files.len()).map(Node::File),
        }
    }

    /// The file with this number.
    pub(super) fn file(&self, number: u64) -> Option<&Export<B>> {
        match self.node(number)? {
            Node::File(index) => self.files.get(index),
            Node::Root => None,
        }
    }

    /// What has this name in the directory.
    pub(super) fn find(&self, name: &[u8]) -> Option<Node> {
        match name {
            b"." | b".." => Some(Node::Root),
            _ => self.files.iter().position(|f| f.name.as_bytes() == name).map(Node::File),
        }
    }

    pub(super) fn attributes(&self, node: Node) -> Attr {
        let (size, mode, nlink) = match node {
            Node::Root => (0, DIRECTORY | 0o700, 2),
            Node::File(index) => {
                let file = &self.files[index];
                let rights = if file.read_only { 0o400 } else { 0o600 };
                (file.backend.size(), REGULAR | rights, 1)
            }
        };
        Attr {
            ino: node.number(),
            size,
            blocks: size / 512,
            times: [self.terms.since; 3],
            times_nsec: [0; 3],
            mode,
            nlink,
            uid: self.terms.uid,
            gid: self.terms.gid,
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        }
    }
}

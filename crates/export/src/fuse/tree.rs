//! What the mount shows: one directory with a file per volume. Files come, go and change their names with the volumes;
//! a file keeps its number.

use std::cell::RefCell;
use std::rc::Rc;

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
    /// By number; of one that is gone the place stays empty, so that its number means no other.
    files: RefCell<Vec<Option<Rc<Export<B>>>>>,
    terms: Terms,
}

impl<B: Backend> Tree<B> {
    pub(super) fn new(files: Vec<Export<B>>, terms: Terms) -> Tree<B> {
        Tree { files: RefCell::new(files.into_iter().map(|f| Some(Rc::new(f))).collect()), terms }
    }

    /// Adds a file.
    pub(super) fn add(&self, file: Export<B>) {
        self.files.borrow_mut().push(Some(Rc::new(file)));
    }

    /// Gives a file another name.
    pub(super) fn rename(&self, name: &str, new: &str) {
        for file in self.files.borrow_mut().iter_mut().flatten().filter(|f| f.name == name) {
            *file = Rc::new(Export { name: new.to_owned(), ..Export::clone(file) });
        }
    }

    /// Takes a file away; whoever has it open gets ENOENT.
    pub(super) fn remove(&self, name: &str) {
        for place in self.files.borrow_mut().iter_mut() {
            place.take_if(|f| f.name == name);
        }
    }

    /// All files, in the order in which they came.
    pub(super) fn files(&self) -> Vec<(Node, Rc<Export<B>>)> {
        let files = self.files.borrow();
        let shown = files.iter().enumerate().filter_map(|(i, f)| Some((Node::File(i), f.clone()?)));
        shown.collect()
    }

    /// The file at a place of the list.
    pub(super) fn at(&self, index: usize) -> Option<Rc<Export<B>>> {
        self.files.borrow().get(index).cloned().flatten()
    }

    /// What has this number.
    pub(super) fn node(&self, number: u64) -> Option<Node> {
        match number.checked_sub(ROOT)? {
            0 => Some(Node::Root),
            n => usize::try_from(n - 1).ok().filter(|i| self.at(*i).is_some()).map(Node::File),
        }
    }

    /// What has this name in the directory.
    pub(super) fn find(&self, name: &[u8]) -> Option<Node> {
        let named = |f: &Option<Rc<Export<B>>>| f.as_ref().is_some_and(|f| f.name.as_bytes() == name);
        match name {
            b"." | b".." => Some(Node::Root),
            _ => self.files.borrow().iter().position(named).map(Node::File),
        }
    }

    pub(super) fn attributes(&self, node: Node) -> Attr {
        let file = match node {
            Node::Root => None,
            Node::File(index) => self.at(index),
        };
        let (size, mode, nlink) = match file {
            None => (0, DIRECTORY | 0o700, 2),
            Some(file) => {
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

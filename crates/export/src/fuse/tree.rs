//! What the mount shows: one directory with a file per volume. Files come, go and change their names with the volumes;
//! a file keeps its number.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bimetal_volume::backend::Backend;
use bimetal_volume::options::Uuid;
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

/// The inode number (`st_ino`) of the file of a volume: whoever has opened a name can tell by it which volume that is.
/// Zero if the UUID has none to give.
pub fn inode_of(volume: &Uuid) -> u64 {
    let start: [u8; 8] = volume[..8].try_into().expect("8 of 16 bytes");
    // Programs that count with signs see no other number.
    u64::from_be_bytes(start) >> 1
}

/// A file of a mount.
struct File<B> {
    export: Rc<Export<B>>,
    /// How often it is open.
    opened: Cell<u64>,
    /// The count of changes when it was last looked at, and since when it was so.
    seen: Cell<(u64, Duration)>,
}

impl<B: Backend> File<B> {
    /// A file that counts as changed at this time since 1970.
    fn new(export: Export<B>, changed: Duration) -> File<B> {
        let seen = Cell::new((export.backend.changes(), changed));
        File { export: Rc::new(export), opened: Cell::new(0), seen }
    }

    /// When it was changed last, by whatever client, since 1970: the time at which that is first seen. So it is later than every time
    /// that was told before the change, which is all that backups go by, and costs a change no look at a clock.
    fn changed(&self) -> Duration {
        let (changes, last) = self.seen.get();
        let now = self.export.backend.changes();
        if now == changes {
            return last;
        }
        // Also where the clock was set back.
        let time = since_1970().max(last + Duration::from_nanos(1));
        self.seen.set((now, time));
        time
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The files of a mount.
pub(super) struct Tree<B> {
    /// By number; of one that is gone the place stays empty, so that its number means no other.
    files: RefCell<Vec<Option<File<B>>>>,
    terms: Terms,
}

impl<B: Backend> Tree<B> {
    pub(super) fn new(files: Vec<Export<B>>, terms: Terms) -> Tree<B> {
        Tree {
            files: RefCell::new(
                files.into_iter().map(|f| Some(File::new(f, Duration::from_secs(terms.since)))).collect(),
            ),
            terms,
        }
    }

    /// Adds the file of a volume that has none yet.
    pub(super) fn add(&self, file: Export<B>) {
        let mut files = self.files.borrow_mut();
        if files.iter().flatten().all(|f| f.export.uuid != file.uuid) {
            files.push(Some(File::new(file, since_1970())));
        }
    }

    /// Gives the file of a volume another name.
    pub(super) fn rename(&self, uuid: &Uuid, new: &str) {
        for file in self.files.borrow_mut().iter_mut().flatten().filter(|f| f.export.uuid == *uuid) {
            file.export = Rc::new(Export { name: new.to_owned(), ..Export::clone(&file.export) });
        }
    }

    /// Takes the file of a volume away; whoever has it open gets ENOENT.
    pub(super) fn remove(&self, uuid: &Uuid) {
        for place in self.files.borrow_mut().iter_mut() {
            place.take_if(|f| f.export.uuid == *uuid);
        }
    }

    /// A file was opened.
    pub(super) fn open(&self, index: usize) {
        self.count(index, |n| n + 1);
    }

    /// A file that was open is open no more. False if it was not.
    pub(super) fn release(&self, index: usize) -> bool {
        self.count(index, |n| n.saturating_sub(1)) > 0
    }

    /// How often a file was open before.
    fn count(&self, index: usize, change: impl Fn(u64) -> u64) -> u64 {
        let files = self.files.borrow();
        let Some(Some(file)) = files.get(index) else { return 0 };
        file.opened.replace(change(file.opened.get()))
    }

    /// How often the file of a volume is open.
    pub(super) fn opened(&self, uuid: &Uuid) -> u64 {
        let files = self.files.borrow();
        files.iter().flatten().find(|f| f.export.uuid == *uuid).map_or(0, |f| f.opened.get())
    }

    /// Whether a file is open.
    pub(super) fn is_open(&self) -> bool {
        self.files.borrow().iter().flatten().any(|f| f.opened.get() > 0)
    }

    /// All files, in the order in which they came.
    pub(super) fn files(&self) -> Vec<(Node, Rc<Export<B>>)> {
        let files = self.files.borrow();
        let shown = files.iter().enumerate().filter_map(|(i, f)| Some((Node::File(i), f.as_ref()?.export.clone())));
        shown.collect()
    }

    /// The file at a place of the list.
    pub(super) fn at(&self, index: usize) -> Option<Rc<Export<B>>> {
        self.files.borrow().get(index)?.as_ref().map(|f| f.export.clone())
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
        let named = |f: &Option<File<B>>| f.as_ref().is_some_and(|f| f.export.name.as_bytes() == name);
        match name {
            b"." | b".." => Some(Node::Root),
            _ => self.files.borrow().iter().position(named).map(Node::File),
        }
    }

    /// Size, mode and the rest of what `stat` tells.
    pub(super) fn attributes(&self, node: Node) -> Attr {
        let files = self.files.borrow();
        let file = match node {
            Node::Root => None,
            Node::File(index) => files.get(index).and_then(Option::as_ref),
        };
        let since = Duration::from_secs(self.terms.since);
        let changed = file.map_or(since, File::changed);
        let (ino, size, mode, nlink) = match file.map(|f| &f.export) {
            None => (node.number(), 0, DIRECTORY | 0o700, 2),
            Some(file) => {
                let rights = if file.read_only { 0o400 } else { 0o600 };
                (inode(node, file), file.backend.size(), REGULAR | rights, 1)
            }
        };
        let times = [since, changed, changed];
        Attr {
            ino,
            size,
            blocks: size / 512,
            times: times.map(|t| t.as_secs()),
            times_nsec: times.map(|t| t.subsec_nanos()),
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

/// What is shown as the number of a file.
pub(super) fn inode<B>(node: Node, file: &Export<B>) -> u64 {
    match inode_of(&file.uuid) {
        0 => node.number(),
        number => number,
    }
}

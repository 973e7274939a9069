//! Answers as bytes.

use bimetal_host::fuse::{Answer, MAX_TRANSFER};
use bimetal_volume::units::BLOCK;
use zerocopy::IntoBytes;

use super::tree::{inode, Node, Tree};
use super::wire::*;

/// How long the kernel may believe names and sizes, in seconds: not at all, since a name can be another volume's in the
/// next moment, and whoever opened it would write to the wrong one.
const VALID: u64 = 0;
/// Requests beside those somebody waits for (asynchronous direct I/O) that the kernel hands over at a time, of all files: more than
/// the loop devices of some disks that stand still have.
const MAX_BACKGROUND: u16 = 1024;
/// Pages of a transfer where the kernel does not let us say how many.
const PAGES_UNASKED: usize = 32;

/// Begins an answer: what follows is counted when it is complete.
pub(super) fn begin(answer: &mut Answer, unique: u64) {
    answer.clear();
    answer.head.extend_from_slice(OutHeader { len: 0, error: 0, unique }.as_bytes());
}

/// Completes an answer by its length.
pub(super) fn finish(answer: &mut Answer) {
    let len = answer.head.len() as u64 + answer.data.iter().map(|p| p.len()).sum::<u64>();
    answer.head[..4].copy_from_slice(&(len as u32).to_ne_bytes());
}

/// Makes an error of an answer that was begun.
pub(super) fn fail(answer: &mut Answer, errno: i32) {
    answer.data.clear();
    answer.head.truncate(size_of::<OutHeader>());
    answer.head[4..8].copy_from_slice(&(-errno).to_ne_bytes());
}

/// Adds a structure.
pub(super) fn put(answer: &mut Answer, part: &(impl IntoBytes + zerocopy::Immutable)) {
    answer.head.extend_from_slice(part.as_bytes());
}

/// What is agreed on with a kernel that offers `flags`.
pub(super) fn init(flags: u32, minor: u32, page_size: usize) -> InitOut {
    use init_flag::{ASYNC_DIO, ASYNC_READ, BIG_WRITES, MAX_PAGES, PARALLEL_DIROPS};
    let flags = flags & (ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL_DIROPS | MAX_PAGES);
    let most = (MAX_TRANSFER / page_size).max(1);
    let pages = if flags & MAX_PAGES != 0 { most } else { most.min(PAGES_UNASKED) };
    InitOut {
        major: MAJOR,
        minor: minor.min(MINOR),
        max_readahead: 0,
        flags,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write: (pages * page_size).min(MAX_TRANSFER) as u32,
        time_gran: 1,
        max_pages: pages as u16,
        map_alignment: 0,
        flags2: 0,
        unused: [0; 7],
    }
}

/// The answer to a name that was found.
pub(super) fn entry(node: Node, attr: Attr) -> EntryOut {
    EntryOut {
        nodeid: node.number(),
        generation: 0,
        entry_valid: VALID,
        attr_valid: VALID,
        entry_valid_nsec: 0,
        attr_valid_nsec: 0,
        attr,
    }
}

/// The answer to GETATTR.
pub(super) fn attributes(attr: Attr) -> AttrOut {
    AttrOut { attr_valid: VALID, attr_valid_nsec: 0, dummy: 0, attr }
}

/// The answer to STATFS. Loop devices take their discard granularity from the block size.
pub(super) fn statfs<B: bimetal_volume::backend::Backend>(tree: &Tree<B>) -> StatfsOut {
    let files = tree.files();
    let sizes = files.iter().map(|(_, f)| f.backend.size() / BLOCK);
    StatfsOut {
        blocks: sizes.sum(),
        bfree: 0,
        bavail: 0,
        files: files.len() as u64 + 1,
        ffree: 0,
        bsize: BLOCK as u32,
        namelen: 255,
        frsize: BLOCK as u32,
        padding: 0,
        spare: [0; 6],
    }
}

/// Adds the entries of the directory from number `from` on, as many as fit into `size` bytes.
pub(super) fn directory<B: bimetal_volume::backend::Backend>(
    answer: &mut Answer,
    tree: &Tree<B>,
    from: u64,
    size: usize,
) {
    let dots = [(".", Node::Root, Node::Root.number()), ("..", Node::Root, Node::Root.number())];
    let shown = tree.files();
    let files = shown.iter().map(|(node, f)| (f.name.as_str(), *node, inode(*node, f)));
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let mut left = size.min(MAX_TRANSFER);
    for (number, (name, node, ino)) in dots.into_iter().chain(files).enumerate().skip(from) {
        let len = (size_of::<Dirent>() + name.len()).next_multiple_of(8);
        if len > left {
            return;
        }
        left -= len;
        let kind = if matches!(node, Node::Root) { DIRECTORY } else { REGULAR } >> 12;
        put(answer, &Dirent { ino, off: number as u64 + 1, namelen: name.len() as u32, kind });
        answer.head.extend_from_slice(name.as_bytes());
        let padded = answer.head.len().next_multiple_of(8);
        answer.head.resize(padded, 0);
    }
}

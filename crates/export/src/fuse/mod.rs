//! The FUSE export: a directory with one file per volume, over any [`Channel`], any [`Backend`] behind it.
//!
//! A mount has one *receiver* and one task per request in flight:
//! - the receiver (`receive`) takes requests, reads each once (`request`), and answers at once what needs no I/O
//!   (`answer`);
//! - a request that does I/O (`execute`) asks the backend and sends its answer itself: each leaves alone, whole.
//!
//! Rules:
//! 1. Files are opened for direct I/O: nothing of a volume is cached on this side of the kernel, and writes of many
//!    go on side by side.
//! 2. A WRITE through a file that was opened with O_DSYNC or O_SYNC is durable before its answer; FSYNC is a flush.
//! 3. A request counts as in flight from its arrival until its answer was sent. What does no I/O is answered at once; for the rest each
//!    file has room of its own, and what finds none waits (`room`). Beyond the limits of that none is received.
//! 4. What a request says of lengths and numbers is believed only as far as it was checked. What is not known is
//!    answered with ENOSYS, which the kernel takes as a wish not to be asked again.
//! 5. The kernel is never allowed to remember a name or a size, and the number of a file (`st_ino`) is made from the UUID
//!    of its volume ([`inode_of`]): names move from volume to volume.
//! 6. No request is cancelled: INTERRUPT is left unanswered, and the request ends by itself. A zeroing that may take hours is not
//!    waited for by a stop: it ends between two steps, with ESHUTDOWN.

mod answer;
mod channel;
mod execute;
mod fuzz;
mod receive;
mod reply;
mod request;
mod room;
mod tree;
mod wire;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::buf::BufMut;
use bimetal_volume::options::Uuid;

use crate::load::Share;
use crate::nbd::Export;
use crate::runtime::{timeout, Runtime};
use crate::signal::Signal;
use crate::stats::{Kind, RequestStats};

pub use channel::Channel;
pub use fuzz::{broken_kernel_stream, fuzz_fuse};
use reply::begin;
use room::Room;
pub use tree::inode_of;
use tree::Tree;

/// Request areas and answers kept for later; more are given back to the allocator.
const SPARE_AREAS: usize = 16;
const SPARE_ANSWERS: usize = 64;

/// What a mount is to look like.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes of a page of the kernel.
    pub page_size: usize,
    /// Owner of all files; nobody else may open them.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When the mount was made, in seconds since 1970: files count as changed then, and later when they are.
    pub since: u64,
}

/// What a mount takes at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests in flight that do I/O, beyond those that are each file's own.
    pub requests: usize,
    /// Bytes of their payload, beyond those that are each file's own. A single larger request is served alone.
    pub bytes: u64,
    /// Of these, requests that each file may have in flight whatever others do.
    pub own_requests: usize,
    /// The same for bytes of payload.
    pub own_bytes: u64,
    /// Requests that wait for room.
    pub waiting_requests: usize,
    /// Bytes that these have brought with them, exceeded by at most one request.
    pub waiting_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            requests: 1024,
            bytes: 64 << 20,
            own_requests: 16,
            own_bytes: 1 << 20,
            waiting_requests: 1024,
            waiting_bytes: 256 << 20,
        }
    }
}

impl Limits {
    fn own(&self) -> Share {
        Share { requests: self.own_requests, bytes: self.own_bytes }
    }
}

/// The state of a mount.
#[derive(Clone)]
pub struct Status {
    /// Requests answered, those about names and attributes included.
    pub answered: u64,
    /// Requests refused before they reached a volume: malformed, not allowed, not known.
    pub refused: u64,
    /// Requests in flight.
    pub in_flight: usize,
    /// Counters of requests that reached a volume, in the order of [`Kind::ALL`].
    pub requests: [RequestStats; Kind::ALL.len()],
    /// It was unmounted, or closed.
    pub ended: bool,
}

/// A mount that is served. Cloning gives another handle; with the last one and the last request the channel closes.
pub struct Server<R: Runtime, B: Backend, C: Channel>(Rc<Shared<R, B, C>>);

impl<R: Runtime, B: Backend, C: Channel> Clone for Server<R, B, C> {
    fn clone(&self) -> Self {
        Server(self.0.clone())
    }
}

/// What all tasks of a mount share.
struct Shared<R, B, C> {
    runtime: R,
    channel: C,
    tree: Tree<B>,
    terms: Terms,
    room: Room,
    /// INIT was answered.
    agreed: Cell<bool>,
    /// What comes from now on is refused.
    stopping: Cell<bool>,
    /// Nothing more is received.
    ended: Cell<bool>,
    /// Received and not answered.
    requests: Cell<usize>,
    /// A request was answered.
    done: Signal,
    /// Nothing more is received.
    closed: Signal,
    areas: RefCell<Vec<BufMut>>,
    #[expect(clippy::vec_box, reason = "the boxes are what is kept: the ring holds one while an answer is under way")]
    answers: RefCell<Vec<Box<channel::Answer>>>,
    answered: Cell<u64>,
    refused: Cell<u64>,
    counters: RefCell<[RequestStats; Kind::ALL.len()]>,
}

impl<R: Runtime, B: Backend, C: Channel> Server<R, B, C> {
    /// Serves `channel` in tasks of its own until it is unmounted or [closed](Server::close).
    pub fn start(runtime: R, channel: C, files: Vec<Export<B>>, terms: Terms, limits: Limits) -> Server<R, B, C> {
        let shared = Rc::new(Shared {
            runtime,
            channel,
            tree: Tree::new(files, terms),
            terms,
            room: Room::new(limits),
            agreed: Cell::new(false),
            stopping: Cell::new(false),
            ended: Cell::new(false),
            requests: Cell::new(0),
            done: Signal::default(),
            closed: Signal::default(),
            areas: RefCell::default(),
            answers: RefCell::default(),
            answered: Cell::new(0),
            refused: Cell::new(0),
            counters: RefCell::default(),
        });
        shared.runtime.spawn(receive::receive(shared.clone()));
        Server(shared)
    }

    /// Refuses all that comes from now on with ESHUTDOWN, and what waits for room. Waits until everything that was taken before is
    /// answered, but not longer than `limit`. Says whether all was.
    pub async fn finish(&self, limit: Duration) -> bool {
        self.0.stopping.set(true);
        self.0.refuse_waiting();
        let idle = self.0.done.wait_until(|| self.0.requests.get() == 0);
        timeout(&self.0.runtime, limit, idle).await.is_some()
    }

    /// Shows one more file, unless that of its volume is shown already.
    pub fn add(&self, file: Export<B>) {
        self.0.tree.add(file);
    }

    /// Gives the file of a volume another name.
    pub fn rename(&self, uuid: &Uuid, new: &str) {
        self.0.tree.rename(uuid, new);
    }

    /// Takes the file of a volume away; requests to it get errors from now on.
    pub fn remove(&self, uuid: &Uuid) {
        self.0.tree.remove(uuid);
    }

    /// How often the file of a volume is open.
    pub fn opened(&self, uuid: &Uuid) -> u64 {
        self.0.tree.opened(uuid)
    }

    /// Whether a file is open.
    pub fn is_open(&self) -> bool {
        self.0.tree.is_open()
    }

    /// Receives nothing more.
    pub fn close(&self) {
        self.0.end();
    }

    /// The state of the mount.
    pub fn status(&self) -> Status {
        let shared = &self.0;
        Status {
            answered: shared.answered.get(),
            refused: shared.refused.get(),
            in_flight: shared.requests.get(),
            requests: shared.counters.borrow().clone(),
            ended: shared.ended.get(),
        }
    }
}

impl<R: Runtime, B: Backend, C: Channel> Shared<R, B, C> {
    fn end(self: &Rc<Self>) {
        self.ended.set(true);
        self.refuse_waiting();
        self.closed.notify();
        self.done.notify();
    }

    /// Counts a request in.
    fn count_in(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// Counts it out.
    fn count_out(&self) {
        self.requests.set(self.requests.get() - 1);
        self.done.notify();
    }

    /// Whether work that may take hours is to go on. A stop does not wait for it, and after the end nobody learns of it.
    fn waits_for_long_work(&self) -> bool {
        !self.stopping.get() && !self.ended.get()
    }

    fn take_area(&self) -> BufMut {
        self.areas.borrow_mut().pop().unwrap_or_else(channel::request_area)
    }

    fn keep_area(&self, area: BufMut) {
        let mut areas = self.areas.borrow_mut();
        if areas.len() < SPARE_AREAS {
            areas.push(area);
        }
    }

    /// An empty answer to the request with this number.
    fn answer_to(&self, unique: u64) -> Box<channel::Answer> {
        let mut answer = self.answers.borrow_mut().pop().unwrap_or_default();
        begin(&mut answer, unique);
        answer
    }

    /// Sends an answer. If the kernel does not want it any more, or is gone, nobody waits for it.
    async fn send(&self, mut answer: Box<channel::Answer>) {
        reply::finish(&mut answer);
        let (mut answer, _result) = self.channel.send(answer).await;
        self.answered.set(self.answered.get() + 1);
        answer.clear();
        let mut answers = self.answers.borrow_mut();
        if answers.len() < SPARE_ANSWERS {
            answers.push(answer);
        }
    }
}

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bimetal_volume::buf::BufMut;

use crate::conn::{Conn, Part};

/// One direction of a stream.
#[derive(Default)]
struct Lane {
    bytes: RefCell<VecDeque<u8>>,
    capacity: usize,
    /// Most bytes that one receive gives.
    receive_max: usize,
    /// Nothing more will come.
    ended: Cell<bool>,
    /// Nobody will take anything.
    broken: Cell<bool>,
    /// Nothing is given out, though it is there; and each receive takes a turn of the others, once that was so.
    held: Cell<bool>,
    paced: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Lane {
    fn wake(&self) {
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wait(&self, waker: &Waker) {
        self.wakers.borrow_mut().push(waker.clone());
    }

    fn end(&self) {
        self.ended.set(true);
        self.wake();
    }

    fn break_off(&self) {
        self.broken.set(true);
        self.end();
    }

    async fn put(&self, mut bytes: &[u8]) -> io::Result<()> {
        poll_fn(|cx| loop {
            if self.broken.get() || self.ended.get() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            if bytes.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let mut queue = self.bytes.borrow_mut();
            let n = bytes.len().min(self.capacity - queue.len());
            if n == 0 {
                self.wait(cx.waker());
                return Poll::Pending;
            }
            queue.extend(&bytes[..n]);
            bytes = &bytes[n..];
            drop(queue);
            self.wake();
        })
        .await
    }

    async fn get(&self, room: &mut [u8]) -> io::Result<usize> {
        let mut waits = self.paced.get();
        poll_fn(|cx| {
            if std::mem::take(&mut waits) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.broken.get() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let mut queue = self.bytes.borrow_mut();
            if queue.is_empty() && self.ended.get() && !self.held.get() {
                return Poll::Ready(Ok(0));
            }
            if queue.is_empty() || self.held.get() {
                self.wait(cx.waker());
                return Poll::Pending;
            }
            let n = room.len().min(queue.len()).min(self.receive_max);
            for (place, byte) in room.iter_mut().zip(queue.drain(..n)) {
                *place = byte;
            }
            drop(queue);
            self.wake();
            Poll::Ready(Ok(n))
        })
        .await
    }
}

/// One end of a stream in memory.
#[derive(Clone)]
pub struct PipeConn {
    incoming: Rc<Lane>,
    outgoing: Rc<Lane>,
}

/// Two connected ends. Each direction holds `capacity` bytes, after which a sender waits; one receive gives at most
/// `receive_max` bytes, so that a test decides where frames are torn.
pub fn pipe(capacity: usize, receive_max: usize) -> (PipeConn, PipeConn) {
    let lane = || Rc::new(Lane { capacity: capacity.max(1), receive_max: receive_max.max(1), ..Lane::default() });
    let (a, b) = (lane(), lane());
    (PipeConn { incoming: a.clone(), outgoing: b.clone() }, PipeConn { incoming: b, outgoing: a })
}

impl PipeConn {
    /// Whether what arrives is not read yet, as in a socket with much in it. That the other end sends no more is seen all the same. Later
    /// it is read piece by piece, beside other work.
    pub fn hold(&self, yes: bool) {
        self.incoming.held.set(yes);
        self.incoming.paced.set(true);
        self.incoming.wake();
    }

    async fn wait_until(&self, is_so: impl Fn() -> bool) {
        poll_fn(|cx| {
            if is_so() {
                return Poll::Ready(());
            }
            self.outgoing.wait(cx.waker());
            self.incoming.wait(cx.waker());
            Poll::Pending
        })
        .await;
    }
}

impl Conn for PipeConn {
    async fn recv(&self, mut buf: BufMut, range: Range<usize>) -> (BufMut, io::Result<usize>) {
        let result = self.incoming.get(&mut buf[range]).await;
        (buf, result)
    }

    async fn send(&self, parts: Vec<Part>) -> (Vec<Part>, io::Result<()>) {
        let mut result = Ok(());
        for part in &parts {
            result = match part {
                Part::Bytes(bytes) => self.outgoing.put(bytes).await,
                Part::Buf(buf) => self.outgoing.put(buf).await,
                Part::Zero(n) => self.outgoing.put(&vec![0; *n]).await,
            };
            if result.is_err() {
                break;
            }
        }
        (parts, result)
    }

    async fn hung_up(&self) {
        self.wait_until(|| self.outgoing.broken.get() || self.incoming.broken.get()).await;
    }

    async fn half_closed(&self) {
        self.wait_until(|| self.outgoing.broken.get() || self.incoming.ended.get()).await;
    }

    fn end_sending(&self) {
        self.outgoing.end();
    }

    fn close(&self) {
        self.outgoing.end();
        self.incoming.break_off();
    }
}

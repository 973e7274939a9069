//! Answers on their way out: what gathers while a send is under way leaves with the next one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use bimetal_volume::buf::Buf;

use crate::conn::Part;

use crate::load::Share;

/// Room for the headers between two pieces of data.
const HEAD_BYTES: usize = 64;
/// Vectors for headers that are kept, and the largest of them.
const SPARE_HEADS: usize = 256;
const MAX_SPARE: usize = 16 << 10;

/// Answers that wait to be sent.
#[derive(Default)]
pub(super) struct Outbox(RefCell<Inner>);

#[derive(Default)]
struct Inner {
    parts: Vec<Part>,
    /// Headers that follow the last part.
    head: Vec<u8>,
    /// What the waiting answers occupy.
    share: Share,
    sender: Option<Waker>,
    state: State,
    spare_parts: Vec<Part>,
    spare_heads: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// Nothing will be added; the sender ends when all is sent.
    Finished,
    /// The stream is broken: nothing can be sent.
    Dead,
}

/// What one send carries.
pub(super) struct Batch {
    pub(super) parts: Vec<Part>,
    pub(super) share: Share,
}

/// Adds one answer.
pub(super) struct Writer<'a>(&'a mut Inner);

impl Writer<'_> {
    /// Where headers are appended.
    pub(super) fn head(&mut self) -> &mut Vec<u8> {
        &mut self.0.head
    }

    /// Data, after all that was added so far.
    pub(super) fn data(&mut self, buf: Buf) {
        self.0.close_head();
        self.0.parts.push(Part::Buf(buf));
    }

    /// Zero bytes, after all that was added so far.
    pub(super) fn zeros(&mut self, n: usize) {
        self.0.close_head();
        self.0.parts.push(Part::Zero(n));
    }
}

impl Inner {
    fn close_head(&mut self) {
        if !self.head.is_empty() {
            let next = self.spare_heads.pop().unwrap_or_else(|| Vec::with_capacity(HEAD_BYTES));
            self.parts.push(Part::Bytes(std::mem::replace(&mut self.head, next)));
        }
    }

    fn take(&mut self) -> Option<Batch> {
        self.close_head();
        if self.parts.is_empty() {
            return None;
        }
        let next = std::mem::take(&mut self.spare_parts);
        Some(Batch { parts: std::mem::replace(&mut self.parts, next), share: std::mem::take(&mut self.share) })
    }
}

impl Outbox {
    /// Adds an answer that `write` composes, and what its request occupied. Gives that back at once if the stream is
    /// broken and the answer is dropped.
    #[must_use]
    pub(super) fn push(&self, share: Share, write: impl FnOnce(&mut Writer<'_>)) -> Share {
        let mut inner = self.0.borrow_mut();
        if inner.state == State::Dead {
            return share;
        }
        write(&mut Writer(&mut inner));
        inner.share.add(share);
        if let Some(sender) = inner.sender.take() {
            sender.wake();
        }
        Share::default()
    }

    /// The next batch; `None` when there is none left and none will come.
    pub(super) async fn next(&self) -> Option<Batch> {
        poll_fn(|cx| {
            let mut inner = self.0.borrow_mut();
            match (inner.take(), inner.state) {
                (Some(batch), _) => Poll::Ready(Some(batch)),
                (None, State::Open) => {
                    inner.sender = Some(cx.waker().clone());
                    Poll::Pending
                }
                (None, State::Finished | State::Dead) => Poll::Ready(None),
            }
        })
        .await
    }

    /// Takes a batch back after it was sent: its vectors are used again.
    pub(super) fn recycle(&self, mut parts: Vec<Part>) {
        let mut inner = self.0.borrow_mut();
        for part in parts.drain(..) {
            if let Part::Bytes(mut head) = part {
                if inner.spare_heads.len() < SPARE_HEADS && head.capacity() <= MAX_SPARE {
                    head.clear();
                    inner.spare_heads.push(head);
                }
            }
        }
        inner.spare_parts = parts;
    }

    /// Nothing more will be added.
    pub(super) fn finish(&self) {
        self.end(State::Finished);
    }

    /// The stream is broken. Says what the answers that are dropped occupied.
    #[must_use]
    pub(super) fn kill(&self) -> Share {
        self.end(State::Dead);
        let dropped = self.0.borrow_mut().take();
        dropped.map_or(Share::default(), |batch| batch.share)
    }

    fn end(&self, state: State) {
        let mut inner = self.0.borrow_mut();
        if inner.state != State::Dead {
            inner.state = state;
        }
        if let Some(sender) = inner.sender.take() {
            sender.wake();
        }
    }
}

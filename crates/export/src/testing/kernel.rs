use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bimetal_volume::buf::BufMut;

use bimetal_host::fuse::Answer;

use crate::fuse::Channel;

/// The kernel's end of a FUSE mount: requests as bytes, and what was answered. Cloning gives another handle.
#[derive(Clone, Default)]
pub struct Kernel(Rc<Inner>);

#[derive(Default)]
struct Inner {
    requests: RefCell<VecDeque<Vec<u8>>>,
    answers: RefCell<Vec<Vec<u8>>>,
    /// Receives that fail.
    failures: RefCell<VecDeque<io::ErrorKind>>,
    gone: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Kernel {
    /// Asks something. What is longer than the largest request is cut off.
    pub fn ask(&self, request: Vec<u8>) {
        self.0.requests.borrow_mut().push_back(request);
        self.wake();
    }

    /// Fails one receive.
    pub fn fail(&self, kind: io::ErrorKind) {
        self.0.failures.borrow_mut().push_back(kind);
        self.wake();
    }

    /// Asks nothing more, as after an unmount; what was asked is still received.
    pub fn unmount(&self) {
        self.0.gone.set(true);
        self.wake();
    }

    /// What was answered since the last call.
    pub fn answers(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.answers.borrow_mut())
    }

    /// Waits for one more answer.
    pub async fn answer(&self) -> Vec<u8> {
        poll_fn(|cx| {
            let mut answers = self.0.answers.borrow_mut();
            if !answers.is_empty() {
                return Poll::Ready(answers.remove(0));
            }
            self.0.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Channel for Kernel {
    async fn receive(&self, mut area: BufMut) -> (BufMut, io::Result<usize>) {
        let result = poll_fn(|cx| match self.try_receive(&mut area) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.0.waiting.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
            result => Poll::Ready(result),
        })
        .await;
        (area, result)
    }

    fn try_receive(&self, area: &mut [u8]) -> io::Result<usize> {
        if let Some(kind) = self.0.failures.borrow_mut().pop_front() {
            return Err(kind.into());
        }
        match self.0.requests.borrow_mut().pop_front() {
            Some(request) => {
                let len = request.len().min(area.len());
                area[..len].copy_from_slice(&request[..len]);
                Ok(len)
            }
            None if self.0.gone.get() => Err(io::ErrorKind::Other.into()),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    async fn ended(&self) {
        poll_fn(|cx| match self.0.gone.get() && self.0.requests.borrow().is_empty() {
            true => Poll::Ready(()),
            false => {
                self.0.waiting.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }

    async fn send(&self, answer: Box<Answer>) -> (Box<Answer>, io::Result<()>) {
        self.0.answers.borrow_mut().push(answer.to_bytes());
        self.wake();
        (answer, Ok(()))
    }
}

//! Emulated disks: a real file that is as slow as a modelled disk, in real time.
//!
//! The data goes to the file at once; the answer is held back until the model has finished the request too. So a
//! request takes the longer of the two, and one whose future is dropped still reaches the file. A write cache is not
//! modelled: a write is answered when the modelled head has written it.

mod head;
mod pipe;
mod spec;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::rc::Rc;
use std::task::{Poll, Waker};

use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{DeviceError, DeviceTraits, Env, Instant};

use super::file::FileDevice;
use crate::reactor::HostEnv;
use head::HeadModel;
use pipe::PipeModel;
pub use spec::ModelSpec;

/// A file behind a model. Cloning gives another handle.
#[derive(Clone)]
pub struct EmulatedDevice {
    file: FileDevice,
    model: Rc<Running>,
    rotational: bool,
}

enum Running {
    Head(Rc<HeadDisk>),
    Pipe(HostEnv, RefCell<PipeModel>),
}

/// A disk with a head, and the requests that wait for it.
struct HeadDisk {
    env: HostEnv,
    model: RefCell<HeadModel>,
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
    serving: Cell<bool>,
}

/// A request in the queue of the disk.
struct Ticket {
    arrival: Instant,
    offset: u64,
    bytes: u64,
    skips: Cell<u32>,
    done: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl EmulatedDevice {
    /// Puts `file` behind the model of `spec`. The whole file stands for the whole disk, from its outer to its inner
    /// edge, unless the spec names a capacity.
    pub fn new(env: &HostEnv, file: FileDevice, spec: &ModelSpec) -> EmulatedDevice {
        precise_timers();
        let model = match spec.build(file.size()) {
            spec::Model::Pipe(model) => Running::Pipe(env.clone(), RefCell::new(model)),
            spec::Model::Head(model) => Running::Head(Rc::new(HeadDisk {
                env: env.clone(),
                model: RefCell::new(model),
                waiting: RefCell::default(),
                serving: Cell::new(false),
            })),
        };
        EmulatedDevice { file, model: Rc::new(model), rotational: spec.rotational() }
    }

    pub(crate) fn file(&self) -> &FileDevice {
        &self.file
    }

    pub(crate) fn traits(&self) -> DeviceTraits {
        let below = self.file.traits();
        // A disk of that time with a head takes no discards.
        DeviceTraits { discard: below.discard && !self.rotational, rotational: self.rotational }
    }

    pub(crate) async fn read(&self, offset: u64, buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        let modelled = self.model.begin(offset, buf.len() as u64, false);
        let result = self.file.read(offset, buf).await;
        modelled.await;
        result
    }

    pub(crate) async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        let modelled = self.model.begin(offset, buf.len() as u64, true);
        let result = self.file.write(offset, buf).await;
        modelled.await;
        result
    }

    pub(crate) async fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        if self.rotational {
            return Err(DeviceError::Unsupported);
        }
        self.file.discard(offset, len).await
    }
}

impl Running {
    /// Gives a request to the model at once; the future ends when the model has finished it.
    fn begin(&self, offset: u64, bytes: u64, write: bool) -> impl Future<Output = ()> {
        let (sleep, ticket) = match self {
            Running::Pipe(env, model) => {
                let end = model.borrow_mut().finish(env.now().0, bytes, write);
                (Some(env.sleep_until(Instant(end))), None)
            }
            Running::Head(disk) => (None, Some(disk.enqueue(offset, bytes))),
        };
        async move {
            if let Some(sleep) = sleep {
                sleep.await;
            }
            if let Some(ticket) = ticket {
                ticket.wait().await;
            }
        }
    }
}

impl HeadDisk {
    fn enqueue(self: &Rc<Self>, offset: u64, bytes: u64) -> Rc<Ticket> {
        let ticket = Rc::new(Ticket {
            arrival: self.env.now(),
            offset,
            bytes,
            skips: Cell::new(0),
            done: Cell::new(false),
            waker: RefCell::new(None),
        });
        self.waiting.borrow_mut().push_back(ticket.clone());
        if !self.serving.replace(true) {
            let disk = self.clone();
            self.env.spawn(async move { disk.serve().await });
        }
        ticket
    }

    /// Serves what waits, one after another, until nothing does.
    async fn serve(&self) {
        while let Some(ticket) = self.take_next() {
            let end = self.model.borrow_mut().serve(ticket.arrival.0, ticket.offset, ticket.bytes);
            self.env.sleep_until(Instant(end)).await;
            ticket.done.set(true);
            if let Some(waker) = ticket.waker.borrow_mut().take() {
                waker.wake();
            }
        }
        self.serving.set(false);
    }

    fn take_next(&self) -> Option<Rc<Ticket>> {
        let mut waiting = self.waiting.borrow_mut();
        let places = waiting.iter().map(|t| (t.offset, t.skips.get()));
        let chosen = head::choose(&self.model.borrow(), places)?;
        let ticket = waiting.remove(chosen);
        for passed in waiting.iter().take(chosen) {
            passed.skips.set(passed.skips.get() + 1);
        }
        ticket
    }
}

impl Ticket {
    async fn wait(&self) {
        poll_fn(|cx| {
            if self.done.get() {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Lets this thread's timers fire on time; by default the kernel may add 50 us, which is much for an SSD.
fn precise_timers() {
    // SAFETY: takes integers only; a failure leaves the timers as they are.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

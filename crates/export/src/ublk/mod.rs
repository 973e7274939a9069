//! The ublk export: a volume as `/dev/ublkbN`, served on the group's thread without a socket between.
//!
//! One task per tag takes requests ([`queue`]), asks the backend ([`request`]), and hands the answer over together with
//! the wish for the next request. [`device`] makes devices, takes over those of a daemon that died, and removes them.
//!
//! Rules:
//! 1. Every change is answered only when the death of the daemon cannot undo it (`WriteFlags::outlives`): the kernel
//!    gives the next daemon what this one has not answered, and nothing else.
//! 2. A request that cannot be answered because the group stops is left to the next daemon, not failed. So is what a stop finds of a
//!    long zeroing.
//! 3. A device that was taken over after a loss never says again that anything is durable: a FLUSH that succeeds would be a lie (the data are
//!    gone, and no sync brings them back), and one that fails may be asked by somebody who does not look at the result.
//! 4. Nothing that the kernel says is trusted to be in range.

pub mod device;
pub mod queue;
mod request;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use bimetal_host::ublk::{IoDesc, Kind};
use bimetal_volume::backend::Backend;
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Instant;

use crate::runtime::Runtime;
use crate::signal::Signal;
pub use device::Device;
pub use queue::Queue;

/// A pause before the kernel is given an answer again that it had no memory for.
const PAUSE: Duration = Duration::from_millis(10);

/// What a served queue tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// When it began.
    pub since: Instant,
    /// Requests answered, failed ones included.
    pub requests: u64,
    /// Requests answered with an error.
    pub failed: u64,
    /// Requests taken and not yet answered.
    pub in_flight: u64,
    /// Bytes of their ranges.
    pub bytes_in_flight: u64,
}

struct Shared {
    status: Cell<Status>,
    /// Tags whose task has not ended.
    tags: Cell<u16>,
    /// With which errno the kernel refused to give the first request of a tag.
    refused: Cell<Option<i32>>,
    leaving: Cell<bool>,
    /// What its client was told was written may be lost.
    lost: bool,
    changed: Signal,
}

/// A queue that is being served. Cloning gives another handle.
#[derive(Clone)]
pub struct Serving(Rc<Shared>);

impl Serving {
    /// Serves all tags of `queue` from `backend`, in tasks of their own, until the device goes. The wish for the first
    /// request of each tag is queued when this returns. If what the client was told was written may be `lost`, no FLUSH and no FUA write
    /// succeeds.
    pub fn begin<R: Runtime, Q: Queue, B: Backend>(runtime: &R, queue: &Q, backend: &B, lost: bool) -> Serving {
        backend.arrive();
        let since = runtime.now();
        let status = Status { since, requests: 0, failed: 0, in_flight: 0, bytes_in_flight: 0 };
        let serving = Serving(Rc::new(Shared {
            status: Cell::new(status),
            tags: Cell::new(queue.depth()),
            refused: Cell::default(),
            leaving: Cell::default(),
            lost,
            changed: Signal::default(),
        }));
        for tag in 0..queue.depth() {
            let (clock, shared) = (runtime.clone(), serving.0.clone());
            let (queue, backend) = (queue.clone(), backend.clone());
            let mut life = Box::pin(async move {
                serve(&clock, &shared, &queue, &backend, tag).await;
                // Whoever waits for the end wants the queue closed.
                drop(queue);
                shared.tags.set(shared.tags.get() - 1);
                if shared.tags.get() == 0 {
                    backend.depart();
                }
                shared.changed.notify();
            });
            // The executor polls it again, with a waker of its own.
            if life.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                runtime.spawn(life);
            }
        }
        serving
    }

    /// The state of the queue.
    pub fn status(&self) -> Status {
        self.0.status.get()
    }

    /// Why the kernel does not want this process to serve the queue, as an errno, if it does not.
    pub fn refused(&self) -> Option<i32> {
        self.0.refused.get()
    }

    /// Whether the device is gone.
    pub fn is_over(&self) -> bool {
        self.0.tags.get() == 0
    }

    /// Waits until the device is gone, that is until the kernel has ended all tags.
    pub async fn ended(&self) {
        self.0.changed.wait_until(|| self.is_over()).await;
    }

    /// Takes no more requests: what comes waits for the next daemon. Returns when what was taken is answered or left.
    pub async fn leave(&self) {
        self.0.leaving.set(true);
        self.0.changed.wait_until(|| self.0.status.get().in_flight == 0).await;
    }
}

impl Shared {
    /// Whether this request has to fail, though it could be carried out (invariant 3).
    fn must_not_promise(&self, desc: &IoDesc) -> bool {
        self.lost && (desc.kind() == Kind::Flush || desc.fua())
    }

    fn begun(&self, bytes: u64) {
        let s = self.status.get();
        self.status.set(Status { in_flight: s.in_flight + 1, bytes_in_flight: s.bytes_in_flight + bytes, ..s });
    }

    fn over(&self, bytes: u64, answer: Option<i32>) {
        let s = self.status.get();
        self.status.set(Status {
            requests: s.requests + u64::from(answer.is_some()),
            failed: s.failed + u64::from(answer.is_some_and(|a| a < 0)),
            in_flight: s.in_flight - 1,
            bytes_in_flight: s.bytes_in_flight - bytes,
            ..s
        });
        if self.leaving.get() {
            self.changed.notify();
        }
    }
}

/// Whether the kernel could not take an answer now, and would later.
fn passes(errno: i32) -> bool {
    const EINTR: i32 = -4;
    const EAGAIN: i32 = -11;
    const ENOMEM: i32 = -12;
    matches!(errno, EINTR | EAGAIN | ENOMEM)
}

/// The life of a tag.
async fn serve<R: Runtime, Q: Queue, B: Backend>(runtime: &R, shared: &Shared, queue: &Q, backend: &B, tag: u16) {
    let max = queue.max_bytes();
    let mut buf = BufMut::new(max);
    let mut answer = None;
    loop {
        let (back, next) = queue.exchange(tag, answer, buf).await;
        let desc = match next {
            Ok(desc) => desc,
            // Whoever asked would wait for the answer for ever. The first wish has to be made at once or not at all.
            Err(errno) if answer.is_some() && passes(errno) => {
                runtime.sleep(PAUSE).await;
                buf = back;
                continue;
            }
            Err(errno) => {
                if answer.is_none() {
                    shared.refused.set(Some(errno));
                }
                return;
            }
        };
        if shared.leaving.get() {
            return;
        }
        let bytes = u64::from(desc.nr_sectors) << 9;
        shared.begun(bytes);
        let (after, result) = match shared.must_not_promise(&desc) {
            true => (back, Some(-request::EIO)),
            false => request::perform(backend, &desc, back, max, &|| !shared.leaving.get()).await,
        };
        shared.over(bytes, result);
        if result.is_none() {
            return;
        }
        (buf, answer) = (after, result);
    }
}

//! One thread, one io_uring, one executor: the loop that runs a group.
//!
//! A turn of the loop runs the ready tasks, which queue their requests in memory shared with the kernel; then one
//! `io_uring_enter` hands all of them over and waits if nothing else is to be done; then completions wake their tasks.
//! No other thread takes part.

mod alarm;
mod blocking;
pub(crate) mod clock;
mod gather;
mod ops;
mod random;
mod setup;
mod spin;
mod timers;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bimetal_task::Executor;
use bimetal_volume::env::{Env, Instant};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{opcode, squeue, IoUring};

use crate::device::HostDevice;
use gather::{Kind, Moment};
pub(crate) use ops::Keep;
use ops::{Finished, Ops};
pub use setup::SetupError;

/// Tasks run between two looks at the kernel.
const TASKS_PER_TURN: usize = 256;
/// `user_data` of requests whose completion interests nobody.
const NOBODY: u64 = u64::MAX;
/// `user_data` of alarms.
const ALARM: u64 = u64::MAX - 1;
/// How often a kernel that does not take all requests at once is asked again.
const HAND_OVER_TRIES: usize = 64;
/// How long the end of the reactor waits for requests that the kernel still has.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) struct Core {
    ring: RefCell<IoUring>,
    ops: RefCell<Ops>,
    timers: RefCell<timers::Timers>,
    executor: Executor,
    random: RefCell<random::Pool>,
    /// Written by other threads that woke a task, so that a wait in the kernel ends.
    wake_file: Rc<OwnedFd>,
    wake_armed: Cell<bool>,
    alarm: alarm::Alarm,
    spin: RefCell<spin::Spin>,
    gather: gather::Gather,
}

impl Core {
    fn new() -> Result<Core, SetupError> {
        let ring = setup::ring()?;
        // SAFETY: eventfd takes two integers and touches no memory of ours.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if raw < 0 {
            return Err(SetupError::Limits(io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let wake_file: Arc<OwnedFd> = Arc::new(unsafe { OwnedFd::from_raw_fd(raw) });
        let ours = wake_file.try_clone().map_err(SetupError::Limits)?;
        let executor = Executor::with_remote_wake(move || {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the buffer is valid for its 8 bytes. A failure means that the counter is full, so that the
            // reader is woken anyway.
            let _ = unsafe { libc::write(wake_file.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        });
        Ok(Core {
            ring: RefCell::new(ring),
            ops: RefCell::new(Ops::new()),
            timers: RefCell::default(),
            executor,
            random: RefCell::default(),
            wake_file: Rc::new(ours),
            wake_armed: Cell::new(false),
            alarm: alarm::Alarm::default(),
            spin: RefCell::default(),
            gather: gather::Gather::default(),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is valid for the call; CLOCK_MONOTONIC always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
        Instant(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    /// Queues a request.
    ///
    /// # Safety
    /// All memory that `entry` points to is owned by `keep`, does not move with it, and its file by `file`.
    pub(crate) unsafe fn start(
        self: &Rc<Self>,
        entry: squeue::Entry,
        keep: Keep,
        file: Option<Rc<OwnedFd>>,
        on_drop: OnDrop,
    ) -> Op {
        let works = on_drop == OnDrop::Finish && !matches!(keep, Keep::Parked(_));
        let kind = if works { Kind::Works } else { Kind::Patient };
        let index = self.ops.borrow_mut().insert(keep, file, works);
        self.push(&entry.user_data(u64::from(index)), kind);
        Op { core: self.clone(), index, on_drop, done: false }
    }

    /// Queues an entry, and hands over what is queued if that is due.
    fn push(&self, entry: &squeue::Entry, kind: Kind) {
        loop {
            {
                let mut ring = self.ring.borrow_mut();
                // SAFETY: what the entry points to lives in the slab until its completion arrives (contract of
                // `start`); cancel requests point to nothing.
                if unsafe { ring.submission().push(entry) }.is_ok() {
                    if self.gather.queued(kind, self.moment(), || self.executor.has_ready()) {
                        // What the kernel does not take now waits for the end of the turn.
                        let _later = self.submit(&mut ring, 0);
                    }
                    return;
                }
            }
            self.enter(Wait::No);
            self.reap();
        }
    }

    fn moment(&self) -> Moment {
        let ops = self.ops.borrow();
        Moment { working: ops.working(), commands: ops.parked() > 0 }
    }

    /// Hands over what is queued, and waits for so many completions.
    fn submit(&self, ring: &mut IoUring, completions: usize) -> io::Result<usize> {
        self.gather.handed_over();
        ring.submit_and_wait(completions)
    }

    /// One turn: tasks, submission, completions. Sleeps in the kernel when nothing is ready and not `ended`.
    fn turn(self: &Rc<Self>, ended: impl Fn() -> bool) {
        self.arm_wake();
        self.gather.begin();
        self.executor.run_ready(TASKS_PER_TURN);
        self.ring_timers();
        if ended() || self.executor.has_ready() {
            self.enter(Wait::No);
        } else {
            self.wait();
        }
        self.reap();
    }

    /// Wakes those whose time has come, and sees to it that the loop wakes for the next.
    fn ring_timers(&self) {
        let earliest = self.timers.borrow().earliest();
        let Some(at) = earliest else { return };
        let now = self.now();
        if at <= now {
            self.timers.borrow_mut().fire(now);
        }
        let next = self.timers.borrow().earliest();
        if let Some(entry) = next.and_then(|at| self.alarm.set(at, now)) {
            self.push(&entry, Kind::Patient);
        }
    }

    /// Hands queued requests to the kernel, and waits for a completion: looks for it first, if that is likely to help.
    fn wait(&self) {
        let looking = self.spin.borrow().begin();
        let begun = self.now();
        if looking.is_some() {
            self.enter(Wait::No);
            while self.ring.borrow_mut().completion().is_empty() && self.now().since(begun) < spin::LIMIT {
                std::hint::spin_loop();
                self.take_work();
            }
        }
        drop(looking);
        self.enter(Wait::Forever);
        self.spin.borrow_mut().waited(self.now().since(begun));
    }

    /// Has the kernel make completions of what it has done, if it says that there is something.
    fn take_work(&self) {
        let due = self.ring.borrow_mut().submission().taskrun();
        if due {
            self.enter(Wait::No);
        }
    }

    /// Hands queued requests to the kernel, and waits for a completion as told.
    fn enter(&self, wait: Wait) {
        let mut ring = self.ring.borrow_mut();
        let wait = if ring.completion().is_empty() { wait } else { Wait::No };
        let result = match wait {
            Wait::No => {
                let queue = ring.submission();
                if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
                    return;
                }
                drop(queue);
                self.submit(&mut ring, 0)
            }
            Wait::Forever => self.submit(&mut ring, 1),
            Wait::For(d) => {
                let limit = Timespec::new().sec(d.as_secs()).nsec(d.subsec_nanos());
                self.gather.handed_over();
                ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            }
        };
        let Err(error) = result else { return };
        match error.raw_os_error() {
            // The time is over, a signal came, or completions must be taken first: the next turn goes on.
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
            // A kernel short of memory may have some in a moment.
            Some(libc::ENOMEM) => std::thread::sleep(Duration::from_millis(1)),
            _ => panic!("io_uring_enter failed in a way that cannot happen: {error}"),
        }
    }

    /// Takes all completions that have arrived.
    fn reap(&self) {
        let mut ring = self.ring.borrow_mut();
        let mut ops = self.ops.borrow_mut();
        for completion in ring.completion() {
            match completion.user_data() {
                NOBODY => continue,
                ALARM => {
                    self.alarm.rang();
                    continue;
                }
                _ => {}
            }
            match ops.complete(completion.user_data() as u32, completion.result()) {
                Finished::Wake(Some(waker)) => waker.wake(),
                Finished::Wake(None) => {}
                Finished::Unwanted { keep, file, result } => {
                    drop_result(&keep, result);
                    drop((keep, file));
                }
            }
        }
    }

    /// Reads the wake file for ever, so that a wake-up from another thread is a completion like any other.
    fn arm_wake(self: &Rc<Self>) {
        if self.wake_armed.replace(true) {
            return;
        }
        let core = self.clone();
        self.executor.spawn(async move {
            loop {
                let mut area = Box::new([0u8; 8]);
                let (at, file) = (area.as_mut_ptr(), core.wake_file.clone());
                let entry = opcode::Read::new(Fd(file.as_raw_fd()), at, 8).build();
                // SAFETY: the area is boxed and handed over together with the file.
                let op = unsafe { core.start(entry, Keep::Bytes(area), Some(file), OnDrop::Cancel) };
                if op.await.0 < 0 {
                    return;
                }
            }
        });
    }

    /// Ends all tasks and waits for what the kernel still has.
    fn close(&self) {
        self.executor.drop_tasks();
        let end = self.now().plus(DRAIN);
        loop {
            let left = end.since(self.now());
            if self.ops.borrow().in_flight() == 0 {
                return;
            }
            if left.is_zero() || self.ops.borrow().ending() == 0 {
                // The kernel may still write there: memory that is never used again is the lesser evil.
                std::mem::forget(self.ops.borrow_mut().take_all());
                return;
            }
            self.enter(Wait::For(left));
            self.reap();
        }
    }
}

/// Closes a file that nobody will take.
fn drop_result(keep: &Keep, result: i32) {
    if matches!(keep, Keep::NewFile) && result >= 0 {
        // SAFETY: the kernel made this descriptor for us, and nobody else has seen it.
        drop(unsafe { OwnedFd::from_raw_fd(result) });
    }
}

#[derive(Clone, Copy)]
enum Wait {
    No,
    Forever,
    For(Duration),
}

/// What becomes of an operation whose future is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// It runs to its end.
    Finish,
    /// It is cancelled: it might wait for ever.
    Cancel,
}

/// The future of an operation: its result (a negative errno on failure) and what it owned.
pub(crate) struct Op {
    core: Rc<Core>,
    index: u32,
    on_drop: OnDrop,
    done: bool,
}

impl Future for Op {
    type Output = (i32, Keep);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(i32, Keep)> {
        let result = self.core.ops.borrow_mut().poll(self.index, cx.waker());
        match result {
            Some(result) => {
                self.done = true;
                Poll::Ready(result)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (pending, unwanted) = self.core.ops.borrow_mut().abandon(self.index);
        if let Some((keep, result)) = unwanted {
            drop_result(&keep, result);
        }
        if pending && self.on_drop == OnDrop::Cancel {
            self.core.push(&opcode::AsyncCancel::new(u64::from(self.index)).build().user_data(NOBODY), Kind::Patient);
        }
    }
}

/// Owner of a thread's ring and tasks. Dropping it drops all tasks and waits for requests in flight.
pub struct Reactor {
    env: HostEnv,
}

impl Reactor {
    /// Makes the ring of this thread.
    pub fn new() -> Result<Reactor, SetupError> {
        Ok(Reactor { env: HostEnv { core: Rc::new(Core::new()?) } })
    }

    /// The environment that runs on this reactor.
    pub fn env(&self) -> HostEnv {
        self.env.clone()
    }

    /// Runs `main` and all tasks until `main` ends. Other tasks stay where they are until the next call.
    pub fn block_on<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.env.core.executor.spawn(async move {
            let value = main.await;
            *slot.borrow_mut() = Some(value);
        });
        loop {
            self.env.core.turn(|| result.borrow().is_some());
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.env.core.close();
    }
}

/// The world of a group on Linux: devices and sockets on one ring. Cloning gives another handle.
#[derive(Clone)]
pub struct HostEnv {
    core: Rc<Core>,
}

impl HostEnv {
    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// Completes at `at`, or at once if that is past.
    pub fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + 'static {
        timers::Sleep::until(self.core.clone(), at)
    }

    /// What `future` gives, or `None` if it has not ended after `d`; it is dropped then.
    pub async fn timeout<T>(&self, d: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut limit = std::pin::pin!(self.sleep_until(self.core.now().plus(d)));
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// Gives the kernel all queued requests now, on this thread, instead of at the end of the turn. False if it does not
    /// take them all.
    pub fn hand_over(&self) -> bool {
        for _ in 0..HAND_OVER_TRIES {
            if self.core.ring.borrow_mut().submission().is_empty() {
                return true;
            }
            self.core.enter(Wait::No);
            self.core.reap();
        }
        self.core.ring.borrow_mut().submission().is_empty()
    }

    /// Tasks that have not ended, one of the reactor's own included.
    pub fn live_tasks(&self) -> usize {
        self.core.executor.live_tasks()
    }

    /// Runs a blocking call on a thread of its own. For rare things without an asynchronous form (a discard by ioctl, a
    /// name look-up); never for data. If the future is dropped the call runs to its end unseen.
    pub fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + 'static {
        blocking::run(call)
    }
}

impl Env for HostEnv {
    type Device = HostDevice;

    fn now(&self) -> Instant {
        self.core.now()
    }

    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static {
        self.sleep_until(self.core.now().plus(d))
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.core.executor.spawn(task);
    }

    fn random(&self) -> u64 {
        self.core.random.borrow_mut().next()
    }

    fn unix_seconds(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
    }
}

#[cfg(test)]
mod tests;

//! An environment in memory: devices without latency, and a clock that jumps. For tests of plain behaviour; crashes and
//! faults are the simulator's.

mod waits;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bimetal_task::Executor;
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Answering, Device, DeviceError, DeviceTraits, Env, Instant};

const BLOCK: usize = 4096;

struct Timer(u64, u64, Waker);

impl PartialEq for Timer {
    fn eq(&self, o: &Timer) -> bool {
        (self.0, self.1) == (o.0, o.1)
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, o: &Timer) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Timer {
    fn cmp(&self, o: &Timer) -> std::cmp::Ordering {
        (o.0, o.1).cmp(&(self.0, self.1))
    }
}

#[derive(Default)]
struct Shared {
    now: Cell<u64>,
    serial: Cell<u64>,
    random: Cell<u64>,
    polls: Cell<u64>,
    timers: RefCell<BinaryHeap<Timer>>,
}

/// Tasks, clock and randomness in memory.
#[derive(Clone)]
pub(crate) struct MemoryEnv {
    tasks: Executor,
    shared: Rc<Shared>,
}

impl MemoryEnv {
    pub(crate) fn new() -> MemoryEnv {
        MemoryEnv { tasks: Executor::new(), shared: Rc::default() }
    }

    /// Runs `main` to its end; time jumps when nothing is ready.
    pub(crate) fn block_on<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        let out: Rc<RefCell<Option<T>>> = Rc::default();
        let result = out.clone();
        self.tasks.spawn(async move {
            let value = main.await;
            *result.borrow_mut() = Some(value);
        });
        loop {
            for _ in 0..1000 {
                if !self.tasks.run_ready(1) {
                    break;
                }
                self.shared.polls.set(self.shared.polls.get() + 1);
            }
            if let Some(v) = out.borrow_mut().take() {
                return v;
            }
            if !self.tasks.has_ready() {
                let Timer(at, _, waker) = self.shared.timers.borrow_mut().pop().expect("deadlock: nothing is ready");
                self.shared.now.set(self.shared.now.get().max(at));
                waker.wake();
            }
        }
    }

    /// How often a task had its turn.
    pub(crate) fn polls(&self) -> u64 {
        self.shared.polls.get()
    }

    /// The daemon dies: every task is dropped.
    pub(crate) fn kill(&self) {
        self.tasks.drop_tasks();
    }
}

struct Sleep {
    shared: Rc<Shared>,
    at: u64,
    /// Whom the timer wakes: there is one, however often it is looked at.
    wakes: Option<Waker>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.now.get() >= self.at {
            return Poll::Ready(());
        }
        if self.wakes.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.wakes = Some(cx.waker().clone());
        let serial = self.shared.serial.get();
        self.shared.serial.set(serial + 1);
        self.shared.timers.borrow_mut().push(Timer(self.at, serial, cx.waker().clone()));
        Poll::Pending
    }
}

impl Env for MemoryEnv {
    type Device = MemoryDevice;

    fn now(&self) -> Instant {
        Instant(self.shared.now.get())
    }

    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static {
        Sleep { shared: self.shared.clone(), at: self.shared.now.get() + d.as_nanos() as u64, wakes: None }
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(task);
    }

    fn random(&self) -> u64 {
        let mut x = self.shared.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.shared.random.set(x);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }
}

/// A block of this byte, written alone, waits if the device is told to hold it.
pub(crate) const HELD: u8 = 0xed;

/// A sparse device in memory. Fresh blocks hold 0xA5, never zeros.
#[derive(Clone)]
pub(crate) struct MemoryDevice {
    pub(crate) size: u64,
    pub(crate) blocks: Rc<RefCell<BTreeMap<u64, Box<[u8]>>>>,
    pub(crate) writes: Rc<Cell<u64>>,
    pub(crate) discarded: Rc<Cell<u64>>,
    pub(crate) syncs: Rc<Cell<u64>>,
    /// Discards fail with this errno, if it is none of 0.
    pub(crate) discard_fails: Rc<Cell<i32>>,
    pub(crate) failed_discards: Rc<Cell<u64>>,
    /// A discard takes so long.
    pub(crate) discard_takes: Rc<Cell<Duration>>,
    /// Discards are never answered.
    pub(crate) discard_hangs: Rc<Cell<bool>>,
    /// Writes that still arrive; those after them fail.
    pub(crate) writes_left: Rc<Cell<u64>>,
    /// Requests that are still answered; those after them never are.
    pub(crate) answers_left: Rc<Cell<u64>>,
    /// What was never written cannot be read.
    pub(crate) holes_fail: Rc<Cell<bool>>,
    /// Blocks that take no write.
    pub(crate) bad: Rc<RefCell<std::collections::BTreeSet<u64>>>,
    /// Blocks whose next read fails.
    pub(crate) misread: Rc<RefCell<std::collections::BTreeSet<u64>>>,
    /// Blocks whose reads fail so many times more.
    pub(crate) unread: Rc<RefCell<BTreeMap<u64, u32>>>,
    /// Reads that failed.
    pub(crate) failed_reads: Rc<Cell<u64>>,
    /// Writes to slots wait until this time.
    pub(crate) hold_until: Rc<Cell<Instant>>,
    /// And so long.
    pub(crate) hold_for: Rc<Cell<Duration>>,
    /// A read takes from half of this to one and a half times, by its place, and a thousandth of it for each block; the device has
    /// one head.
    pub(crate) read_takes: Rc<Cell<Duration>>,
    pub(crate) head_free: Rc<Cell<Instant>>,
    /// A sync takes so long.
    pub(crate) sync_takes: Rc<Cell<Duration>>,
    /// Syncs fail.
    pub(crate) syncs_fail: Rc<Cell<bool>>,
    /// The next sync takes so much longer: the device sleeps.
    pub(crate) wakes_up_in: Rc<Cell<Duration>>,
    /// So long does a write take.
    pub(crate) write_takes: Rc<Cell<Duration>>,
    /// Bytes of writes that are under way, and the most that ever were.
    pub(crate) being_written: Rc<Cell<(usize, usize)>>,
    /// The connection is lost: every request fails.
    pub(crate) lost: Rc<Cell<bool>>,
    /// It answers nothing until this time.
    pub(crate) stands_until: Rc<Cell<Instant>>,
    /// What it has to answer.
    pub(crate) waits: waits::Waits,
    /// The clock for that.
    pub(crate) env: Option<MemoryEnv>,
}

impl MemoryDevice {
    pub(crate) fn new(size: u64) -> MemoryDevice {
        MemoryDevice {
            size,
            blocks: Rc::default(),
            writes: Rc::default(),
            discarded: Rc::default(),
            syncs: Rc::default(),
            discard_fails: Rc::default(),
            failed_discards: Rc::default(),
            discard_takes: Rc::default(),
            discard_hangs: Rc::default(),
            writes_left: Rc::new(Cell::new(u64::MAX)),
            answers_left: Rc::new(Cell::new(u64::MAX)),
            holes_fail: Rc::default(),
            bad: Rc::default(),
            misread: Rc::default(),
            unread: Rc::default(),
            failed_reads: Rc::default(),
            hold_for: Rc::default(),
            hold_until: Rc::default(),
            read_takes: Rc::default(),
            head_free: Rc::default(),
            sync_takes: Rc::default(),
            syncs_fail: Rc::default(),
            wakes_up_in: Rc::default(),
            write_takes: Rc::default(),
            being_written: Rc::default(),
            lost: Rc::default(),
            stands_until: Rc::default(),
            waits: Default::default(),
            env: None,
        }
    }

    /// Waits for the head, and moves it.
    async fn seek(&self, offset: u64, blocks: u64) {
        let takes = self.read_takes.get();
        let Some(env) = self.env.as_ref().filter(|_| !takes.is_zero()) else { return };
        let far = (offset / BLOCK as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let takes = takes / 2 + takes * (far % 1000) as u32 / 1000 + takes * blocks as u32 / 1000;
        let end = self.head_free.get().max(env.now()).plus(takes);
        self.head_free.set(end);
        env.sleep(end.since(env.now())).await;
    }

    fn connected(&self) -> Result<(), DeviceError> {
        match self.lost.get() {
            true => Err(DeviceError::Disconnected),
            false => Ok(()),
        }
    }

    /// Completes when the device answers again.
    async fn answers(&self) {
        while let Some(env) = self.env.as_ref().filter(|env| env.now() < self.stands_until.get()) {
            env.sleep(self.stands_until.get().since(env.now())).await;
        }
        match self.answers_left.get() {
            0 => std::future::pending().await,
            n => self.answers_left.set(n - 1),
        }
    }
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn traits(&self) -> DeviceTraits {
        DeviceTraits { discard: true, rotational: false }
    }

    async fn read(&self, offset: u64, mut buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        assert!(offset % BLOCK as u64 == 0 && buf.len() % BLOCK == 0 && offset + buf.len() as u64 <= self.size);
        let _waits = self.waits.begin(self.env.as_ref());
        self.answers().await;
        self.seek(offset, (buf.len() / BLOCK) as u64).await;
        if let Err(lost) = self.connected() {
            return (buf, Err(lost));
        }
        let blocks = self.blocks.borrow();
        for (i, b) in buf.chunks_exact_mut(BLOCK).enumerate() {
            let block = offset / BLOCK as u64 + i as u64;
            let unread = self.unread.borrow_mut().get_mut(&block).is_some_and(|left| {
                let fails = *left > 0;
                *left = left.saturating_sub(1);
                fails
            });
            if unread || self.misread.borrow_mut().remove(&block) {
                self.failed_reads.set(self.failed_reads.get() + 1);
                return (buf, Err(DeviceError::Io(5)));
            }
            match blocks.get(&block) {
                Some(data) => b.copy_from_slice(data),
                None if self.holes_fail.get() => {
                    self.failed_reads.set(self.failed_reads.get() + 1);
                    return (buf, Err(DeviceError::Io(5)));
                }
                None => b.fill(0xa5),
            }
        }
        (buf, Ok(()))
    }

    async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        assert!(offset % BLOCK as u64 == 0 && buf.len() % BLOCK == 0 && buf.is_aligned());
        assert!(offset >= 64 << 10 && offset + buf.len() as u64 <= self.size - (1 << 20), "forbidden zone");
        let _waits = self.waits.begin(self.env.as_ref());
        if let Some(env) = self.env.as_ref().filter(|_| buf.len() == BLOCK && buf.iter().all(|b| *b == HELD)) {
            env.sleep(self.hold_until.get().since(env.now()).max(self.hold_for.get())).await;
        }
        if let Some(env) = self.env.as_ref().filter(|_| !self.write_takes.get().is_zero()) {
            let (now, most) = self.being_written.get();
            self.being_written.set((now + buf.len(), most.max(now + buf.len())));
            env.sleep(self.write_takes.get()).await;
            let (now, most) = self.being_written.get();
            self.being_written.set((now - buf.len(), most));
        }
        self.answers().await;
        self.connected()?;
        match self.writes_left.get() {
            0 => return Err(DeviceError::Io(5)),
            n => self.writes_left.set(n - 1),
        }
        let first = offset / BLOCK as u64;
        if self.bad.borrow().range(first..first + (buf.len() / BLOCK) as u64).next().is_some() {
            return Err(DeviceError::Io(5));
        }
        self.writes.set(self.writes.get() + 1);
        let mut blocks = self.blocks.borrow_mut();
        for (i, b) in buf.chunks_exact(BLOCK).enumerate() {
            blocks.insert(offset / BLOCK as u64 + i as u64, b.into());
        }
        Ok(())
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        let _waits = self.waits.begin(self.env.as_ref());
        let takes = self.sync_takes.get() + self.wakes_up_in.take();
        if let Some(env) = self.env.as_ref().filter(|_| !takes.is_zero()) {
            env.sleep(takes).await;
        }
        self.answers().await;
        self.connected()?;
        if self.syncs_fail.get() {
            return Err(DeviceError::Io(5));
        }
        self.syncs.set(self.syncs.get() + 1);
        Ok(())
    }

    fn is_lost(&self) -> bool {
        self.lost.get()
    }

    fn answering(&self) -> Answering {
        self.waits.answering()
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let _waits = self.waits.begin(self.env.as_ref());
        if self.discard_hangs.get() {
            std::future::pending::<()>().await;
        }
        if let Some(env) = self.env.as_ref().filter(|_| !self.discard_takes.get().is_zero()) {
            env.sleep(self.discard_takes.get()).await;
        }
        self.connected()?;
        if self.discard_fails.get() != 0 {
            self.failed_discards.set(self.failed_discards.get() + 1);
            return Err(DeviceError::Io(self.discard_fails.get()));
        }
        self.discarded.set(self.discarded.get() + len);
        let mut blocks = self.blocks.borrow_mut();
        for b in offset / BLOCK as u64..(offset + len) / BLOCK as u64 {
            blocks.remove(&b);
        }
        Ok(())
    }
}

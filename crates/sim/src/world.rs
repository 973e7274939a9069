//! Virtual time, the queue of coming events, crash points, and the trace of a run.
//!
//! Terms: *sequence* numbers order everything that happens in a run, also at equal time. A *crash point* is a moment at
//! which the machine or the daemon may die: when a request reaches a device, when a device answers, when a client is
//! answered. Nothing that happens after the chosen point has any effect or is believed by the oracle.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::disk::Op;
use crate::prng::{mix, Prng};

/// One-shot notice between an event and the future that waits for it.
#[derive(Default)]
pub struct Signal {
    fired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    /// Fires: wakes who waits.
    pub fn fire(&self) {
        self.fired.set(true);
        if let Some(w) = self.waker.borrow_mut().take() {
            w.wake();
        }
    }

    /// Ready once fired.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.fired.get() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// What happens at an event.
pub enum Action {
    /// A timer ends.
    Timer(Rc<Signal>),
    /// A device request takes its next step.
    Device(Rc<Op>),
}

struct Event {
    time: u64,
    order: u64,
    action: Action,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        (other.time, other.order).cmp(&(self.time, self.order))
    }
}

/// When a crash happens: after so many finished steps and then so many crash points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    /// Steps that clients have finished.
    pub steps: u64,
    /// Crash points passed since then.
    pub events: u64,
}

/// Faults that were injected, by kind. Kept over a whole run; users compare two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Reads that failed.
    pub reads: u64,
    /// Writes and discards that failed.
    pub writes: u64,
    /// Failed writes that may take effect later.
    pub late: u64,
    /// Syncs that failed.
    pub syncs: u64,
    /// Of the reads and writes those of metadata.
    pub metadata: u64,
    /// Of these the writes.
    pub metadata_writes: u64,
    /// Writes of headers that failed: they latch nothing.
    pub header_writes: u64,
    /// Syncs, and reads and writes of metadata, that failed on each disk: what may latch a group, and put data in doubt.
    pub grave: [u64; MOST_DISKS],
}

/// More disks than a run has.
pub const MOST_DISKS: usize = 16;

impl Injected {
    /// What may latch a group.
    pub fn grave(&self) -> u64 {
        self.syncs + self.metadata
    }
}

struct State {
    now: Cell<u64>,
    sequence: Cell<u64>,
    events: RefCell<BinaryHeap<Event>>,
    prng: RefCell<Prng>,
    trace: Cell<u64>,
    log: Cell<bool>,
    armed: Cell<Option<CrashPoint>>,
    points: Cell<u64>,
    crashed: Cell<bool>,
    injected: Cell<Injected>,
    stood_still: Cell<bool>,
    /// Disks below this number are members, or may become some.
    members: Cell<usize>,
    /// By volume: writes from this number on must not reach a member as plaintext.
    secret_from: RefCell<Vec<u64>>,
    /// The first plaintext that did.
    leak: RefCell<Option<String>>,
}

/// Handle to the state that all parts of a run share.
#[derive(Clone)]
pub struct World(Rc<State>);

impl World {
    /// A world at time zero.
    pub fn new(prng: Prng) -> World {
        World(Rc::new(State {
            now: Cell::new(0),
            sequence: Cell::new(1),
            events: RefCell::default(),
            prng: RefCell::new(prng),
            trace: Cell::new(0),
            log: Cell::new(false),
            armed: Cell::new(None),
            points: Cell::new(0),
            crashed: Cell::new(false),
            injected: Cell::default(),
            stood_still: Cell::default(),
            members: Cell::new(0),
            secret_from: RefCell::new(vec![u64::MAX; crate::scenario::MAX_VOLUMES]),
            leak: RefCell::default(),
        }))
    }

    /// Nanoseconds since the start of the run.
    pub fn now(&self) -> u64 {
        self.0.now.get()
    }

    /// The next sequence number. They grow by two, so that there is always one between two.
    pub fn sequence(&self) -> u64 {
        let n = self.0.sequence.get() + 2;
        self.0.sequence.set(n);
        n
    }

    /// Draws from the world's stream.
    pub fn random<T>(&self, draw: impl FnOnce(&mut Prng) -> T) -> T {
        draw(&mut self.0.prng.borrow_mut())
    }

    /// Prints the trace to stderr from now on.
    pub fn set_log(&self, on: bool) {
        self.0.log.set(on);
    }

    /// Adds a fact to the trace: its hash, and its words if they are printed.
    pub fn note(&self, a: u64, b: u64, words: impl FnOnce() -> String) {
        let hash = mix(self.0.trace.get() ^ mix(a ^ mix(b ^ mix(self.now()))));
        self.0.trace.set(hash);
        if self.0.log.get() {
            eprintln!("{:>12.3} ms  #{:<5} {}", self.now() as f64 / 1e6, self.0.points.get(), words());
        }
    }

    /// Hash of everything noted so far.
    pub fn trace(&self) -> u64 {
        self.0.trace.get()
    }

    /// Counts an injected fault.
    pub fn inject(&self, count: impl FnOnce(&mut Injected)) {
        let mut i = self.0.injected.get();
        count(&mut i);
        self.0.injected.set(i);
    }

    /// A disk begins to stand still: no request fails by that, but the group may go on without the disk.
    pub fn stand_still(&self) {
        self.0.stood_still.set(true);
    }

    /// Whether any disk has failed a request so far, or stood still.
    pub fn was_a_disk_ill(&self) -> bool {
        self.0.stood_still.get() || self.injected() != Injected::default()
    }

    /// Faults injected so far.
    pub fn injected(&self) -> Injected {
        self.0.injected.get()
    }

    /// Disks below this number are members, or may become some.
    pub fn set_members(&self, count: usize) {
        self.0.members.set(count);
    }

    /// What writes from this number on put into a volume is not to reach a member as it is.
    pub fn keep_secret(&self, volume: usize, from: u64) {
        let from_before = &mut self.0.secret_from.borrow_mut()[volume];
        *from_before = (*from_before).min(from);
    }

    /// A disk is sent this.
    pub fn see(&self, disk: usize, codes: impl Iterator<Item = u64>) {
        if disk >= self.0.members.get() || self.0.leak.borrow().is_some() {
            return;
        }
        let secret = self.0.secret_from.borrow();
        let leaks = |code: &u64| crate::content::writer_of(*code).is_some_and(|(v, write)| write >= secret[v]);
        if let Some(code) = codes.into_iter().find(leaks) {
            let what = crate::content::describe(code);
            *self.0.leak.borrow_mut() =
                Some(format!("plaintext of a volume that has a family was sent to disk {disk}: {what}"));
        }
    }

    /// The first plaintext that reached a member and must not.
    pub fn leak(&self) -> Option<String> {
        self.0.leak.borrow().clone()
    }

    /// Begins a new life of the daemon: no events, and a crash at this point.
    pub fn restart(&self, crash: Option<CrashPoint>) {
        self.0.events.borrow_mut().clear();
        self.0.armed.set(crash);
        self.0.points.set(0);
        self.0.crashed.set(false);
    }

    /// A client finished a step.
    pub fn step_done(&self) {
        if let Some(c) = self.0.armed.get() {
            self.0.armed.set(Some(CrashPoint { steps: c.steps.saturating_sub(1), ..c }));
        }
    }

    /// A moment at which the crash may happen; true if all is over.
    pub fn crash_point(&self) -> bool {
        if self.0.crashed.get() {
            return true;
        }
        self.0.points.set(self.0.points.get() + 1);
        if let Some(c) = self.0.armed.get().filter(|c| c.steps == 0) {
            if c.events == 0 {
                self.0.crashed.set(true);
                return true;
            }
            self.0.armed.set(Some(CrashPoint { events: c.events - 1, ..c }));
        }
        false
    }

    /// Whether the crash has happened.
    pub fn crashed(&self) -> bool {
        self.0.crashed.get()
    }

    /// Crash points passed since the restart.
    pub fn points(&self) -> u64 {
        self.0.points.get()
    }

    /// The end of a run: events hold what they concern, and that the world.
    pub fn forget_events(&self) {
        let events = std::mem::take(&mut *self.0.events.borrow_mut());
        drop(events);
    }

    /// Makes something happen `delay` nanoseconds from now.
    pub fn after(&self, delay: u64, action: Action) {
        let event = Event { time: self.now().saturating_add(delay), order: self.sequence(), action };
        self.0.events.borrow_mut().push(event);
    }

    /// Lets time jump to the next event and carries it out; false if there is none.
    pub fn advance(&self) -> bool {
        loop {
            let Some(event) = self.0.events.borrow_mut().pop() else { return false };
            match event.action {
                // Nobody waits any more: time does not move for it.
                Action::Timer(signal) if Rc::strong_count(&signal) == 1 => continue,
                Action::Timer(signal) => {
                    self.0.now.set(event.time);
                    signal.fire();
                }
                Action::Device(op) => {
                    self.0.now.set(event.time);
                    op.step();
                }
            }
            return true;
        }
    }

    /// Completes after `nanos`.
    pub fn sleep(&self, nanos: u64) -> Sleep {
        let signal = Rc::new(Signal::default());
        self.after(nanos, Action::Timer(signal.clone()));
        Sleep(signal)
    }
}

/// Future of [`World::sleep`].
pub struct Sleep(Rc<Signal>);

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(cx)
    }
}

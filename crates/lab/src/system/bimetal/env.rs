//! The engine's environment in virtual time: a clock, timers, devices, tasks.
//!
//! Made for speed and repeatability: ready tasks run in the order in which they became ready, and everything happens on
//! one thread. (The simulator's environment shuffles them, to find faults.)
//!
//! - *Event*: something that a future waits for. Its time is known for a timer; a device's model knows the next of its own.
//!
//! 1. Time moves only when no task is ready, and never beyond the next event.
//! 2. Events of one time happen in a fixed order: devices as they were added, then timers as they were set.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bimetal_sim::prng::Prng;
use bimetal_task::Executor;
use bimetal_volume::env::{Env, Instant};

use super::device::{Device, Port};
use super::waiting::Waiting;

/// Polls at one moment of virtual time after which the engine counts as spinning.
const MOST_POLLS_AT_ONCE: u64 = 100_000_000;
/// Tasks run before the clock's owner looks again.
const TURN: usize = 64;
/// Seconds since 1970 at time zero.
const EPOCH: u64 = 1_800_000_000;

struct State {
    now: Cell<u64>,
    polls_now: Cell<u64>,
    tasks: Executor,
    prng: RefCell<Prng>,
    waiting: RefCell<Waiting>,
    /// Time, order of setting, number of the event.
    timers: RefCell<BinaryHeap<Reverse<(u64, u64, u32)>>>,
    timers_set: Cell<u64>,
    ports: RefCell<Vec<Rc<Port>>>,
}

/// A handle to clock, timers, devices and tasks.
#[derive(Clone)]
pub(super) struct LabEnv(Rc<State>);

impl LabEnv {
    /// Time zero, without devices or tasks.
    pub(super) fn new(seed: u64) -> LabEnv {
        LabEnv(Rc::new(State {
            now: Cell::new(0),
            polls_now: Cell::new(0),
            tasks: Executor::new(),
            prng: RefCell::new(Prng::new(seed)),
            waiting: RefCell::default(),
            timers: RefCell::default(),
            timers_set: Cell::new(0),
            ports: RefCell::default(),
        }))
    }

    /// The time in ns.
    pub(super) fn time(&self) -> u64 {
        self.0.now.get()
    }

    /// The time becomes `at`, which is not before it.
    pub(super) fn set_time(&self, at: u64) {
        debug_assert!(at >= self.time(), "time goes backwards");
        self.0.now.set(at);
        self.0.polls_now.set(0);
    }

    /// The device's events are this clock's from now on.
    pub(super) fn add(&self, port: Rc<Port>) {
        self.0.ports.borrow_mut().push(port);
    }

    /// An event to come, and the future that waits for it.
    pub(super) fn event(&self) -> (u32, Event) {
        let n = self.0.waiting.borrow_mut().open();
        (n, Event { env: Some(self.clone()), n })
    }

    /// The event has happened.
    pub(super) fn happen(&self, n: u32) {
        let waker = self.0.waiting.borrow_mut().happen(n);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Runs some ready tasks; false if none was ready.
    pub(super) fn run_ready(&self) -> bool {
        let polls = self.0.polls_now.get() + TURN as u64;
        assert!(polls < MOST_POLLS_AT_ONCE, "the engine spins at {} ns", self.time());
        self.0.polls_now.set(polls);
        self.0.tasks.run_ready(TURN)
    }

    /// Moves the clock to the next event, and lets it happen; false if there is none until `until`.
    pub(super) fn advance(&self, until: u64) -> bool {
        let ports = self.0.ports.borrow();
        let of_ports = ports.iter().filter_map(|p| p.next_event()).min();
        let next = of_ports.into_iter().chain(self.next_timer()).min();
        let Some(at) = next.filter(|at| *at <= until) else { return false };
        self.set_time(at.max(self.time()));
        for port in ports.iter() {
            port.complete(self);
        }
        self.ring();
        true
    }

    /// When the next timer ends that somebody waits for.
    fn next_timer(&self) -> Option<u64> {
        let mut timers = self.0.timers.borrow_mut();
        while let Some(Reverse((at, _, n))) = timers.peek().copied() {
            if !self.0.waiting.borrow().is_abandoned(n) {
                return Some(at);
            }
            timers.pop();
            self.0.waiting.borrow_mut().happen(n);
        }
        None
    }

    /// Timers that are due end.
    fn ring(&self) {
        while self.next_timer().is_some_and(|at| at <= self.time()) {
            let timer = self.0.timers.borrow_mut().pop();
            if let Some(Reverse((_, _, n))) = timer {
                self.happen(n);
            }
        }
    }

    /// Drops all tasks where they stand.
    pub(super) fn end(&self) {
        self.0.tasks.drop_tasks();
    }
}

impl Env for LabEnv {
    type Device = Device;

    fn now(&self) -> Instant {
        Instant(self.time())
    }

    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static {
        let order = self.0.timers_set.get();
        self.0.timers_set.set(order + 1);
        let at = self.now().plus(d).0;
        let (n, event) = self.event();
        self.0.timers.borrow_mut().push(Reverse((at, order, n)));
        event
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.tasks.spawn(task);
    }

    fn random(&self) -> u64 {
        self.0.prng.borrow_mut().next()
    }

    fn unix_seconds(&self) -> u64 {
        EPOCH + self.time() / 1_000_000_000
    }
}

/// Ready when the event has happened.
pub(super) struct Event {
    /// Absent once the event was seen.
    env: Option<LabEnv>,
    n: u32,
}

impl Future for Event {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(env) = &self.env else { return Poll::Ready(()) };
        let seen = env.0.waiting.borrow_mut().poll(self.n, cx);
        if seen.is_ready() {
            self.env = None;
        }
        seen
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(env) = &self.env {
            env.0.waiting.borrow_mut().abandon(self.n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(env: &LabEnv, until: u64) {
        while env.run_ready() || env.advance(until) {}
    }

    #[test]
    fn timers_end_in_order_of_time_then_of_setting() {
        let env = LabEnv::new(1);
        let seen: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
        for (name, ns) in [(0, 30), (1, 10), (2, 30), (3, 0)] {
            let (env_of_task, seen) = (env.clone(), seen.clone());
            env.spawn(async move {
                env_of_task.sleep(Duration::from_nanos(ns)).await;
                seen.borrow_mut().push((env_of_task.time(), name));
            });
        }
        run(&env, 20);
        assert_eq!(*seen.borrow(), [(0, 3), (10, 1)]);
        run(&env, 30);
        assert_eq!(*seen.borrow(), [(0, 3), (10, 1), (30, 0), (30, 2)]);
    }

    #[test]
    fn time_does_not_move_for_a_dropped_timer() {
        let env = LabEnv::new(1);
        drop(env.sleep(Duration::from_secs(1)));
        assert!(!env.advance(u64::MAX));
        assert_eq!(env.time(), 0);
        // Its number is used again.
        let (n, event) = env.event();
        assert_eq!(n, 0);
        env.happen(n);
        drop(event);
        assert_eq!(env.event().0, 0);
    }
}

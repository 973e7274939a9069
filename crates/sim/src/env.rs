//! The engine's environment in the simulator, and the loop that drives it.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bimetal_task::Executor;
use bimetal_volume::env::{Env, Instant};

use crate::disk::SimDisk;
use crate::world::World;

/// Polls at one moment of virtual time after which the run counts as spinning.
const MAX_POLLS_AT_ONCE: u64 = 300_000;
/// Polls in one [`SimEnv::run`].
const MAX_POLLS: u64 = 30_000_000;

/// One life of the daemon: its tasks, on a world that outlives it.
#[derive(Clone)]
pub struct SimEnv {
    world: World,
    tasks: Executor,
}

/// How a [`SimEnv::run`] ended.
#[derive(Debug)]
pub enum Ended<T> {
    /// The future is ready.
    Done(T),
    /// The crash point was reached.
    Crashed,
    /// It will never be ready, or not in the time it has: what happened instead.
    Hung(String),
}

impl SimEnv {
    /// A fresh process on this world.
    pub fn new(world: &World) -> SimEnv {
        SimEnv { world: world.clone(), tasks: Executor::new() }
    }

    /// Runs tasks and lets time pass until `main` is ready, for at most `limit` of virtual time.
    pub fn run<T: 'static>(&self, limit: Duration, main: impl Future<Output = T> + 'static) -> Ended<T> {
        let deadline = self.world.now() + limit.as_nanos() as u64;
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let out = result.clone();
        self.tasks.spawn(async move {
            let value = main.await;
            *out.borrow_mut() = Some(value);
        });
        let (mut polls, mut polls_now) = (0, 0);
        loop {
            while self
                .tasks
                .run_one_with(|n| if n == 1 { 0 } else { self.world.random(|p| p.below(n as u64)) as usize })
            {
                polls_now += 1;
                if self.world.crashed() {
                    return Ended::Crashed;
                }
                if let Some(value) = result.borrow_mut().take() {
                    return Ended::Done(value);
                }
                if polls_now > MAX_POLLS_AT_ONCE {
                    return Ended::Hung(format!("livelock: {polls_now} polls without progress of time"));
                }
            }
            polls += polls_now;
            polls_now = 0;
            if polls > MAX_POLLS {
                return Ended::Hung(format!("livelock: {polls} polls"));
            }
            if !self.world.advance() {
                return Ended::Hung("deadlock: nothing is ready, no device request or timer is outstanding".into());
            }
            if self.world.crashed() {
                return Ended::Crashed;
            }
            if self.world.now() > deadline {
                return Ended::Hung(format!("not done after {limit:?} of virtual time"));
            }
        }
    }

    /// The process dies: all its tasks are dropped where they stand.
    pub fn kill(&self) {
        self.tasks.drop_tasks();
    }
}

impl Env for SimEnv {
    type Device = SimDisk;

    fn now(&self) -> Instant {
        Instant(self.world.now())
    }

    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static {
        self.world.sleep(d.as_nanos() as u64)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(task);
    }

    fn random(&self) -> u64 {
        self.world.random(|p| p.next())
    }

    fn unix_seconds(&self) -> u64 {
        1_800_000_000 + self.world.now() / 1_000_000_000
    }
}

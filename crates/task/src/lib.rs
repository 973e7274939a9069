//! A small single-threaded executor.
//!
//! It only keeps the list of tasks that are ready, and runs them; when to run, when to wait and for what is up to the
//! owner (the io_uring reactor, or the simulator with its virtual time). The owner also chooses the order: the host
//! takes tasks first in, first out, the simulator lets a seeded generator choose ([`Executor::run_one_with`]).
//!
//! Wakers may be used from any thread; tasks live and die on the thread that spawned them. Tasks usually own handles of
//! the executor, so it does not end by itself: its owner calls [`Executor::drop_tasks`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use async_task::{Runnable, Task};

/// Called when a task was woken by another thread, which the owner may have to be told.
type RemoteWake = Box<dyn Fn() + Send + Sync>;

thread_local! {
    /// A number per thread, cheaper to read than `std::thread::current`.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

fn this_thread() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // During the end of a thread the number may be gone; 0 is nobody's.
    THREAD
        .try_with(|t| {
            if t.get() == 0 {
                t.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            t.get()
        })
        .unwrap_or(0)
}

/// What wakers reach: the tasks that became ready since the executor last looked.
struct Woken {
    ready: Mutex<VecDeque<Runnable>>,
    owner: u64,
    remote_wake: Option<RemoteWake>,
}

impl Woken {
    fn push(&self, task: Runnable) {
        // A panic while the lock is held cannot leave the queue half changed.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(task);
        if this_thread() != self.owner {
            if let Some(wake) = &self.remote_wake {
                wake();
            }
        }
    }
}

/// Handles of all live tasks, so that they can be dropped together.
#[derive(Default)]
struct Live {
    tasks: RefCell<Vec<Option<Task<()>>>>,
    free: RefCell<Vec<usize>>,
    count: Cell<usize>,
}

/// Takes a task off the list of live ones when its future ends or is dropped.
struct Registration {
    live: Rc<Live>,
    index: usize,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let task = self.live.tasks.borrow_mut()[self.index].take();
        self.live.free.borrow_mut().push(self.index);
        self.live.count.set(self.live.count.get() - 1);
        if let Some(task) = task {
            task.detach();
        }
    }
}

/// Runs tasks on the thread that made it. Cloning gives another handle.
#[derive(Clone)]
pub struct Executor {
    woken: Arc<Woken>,
    /// Ready tasks taken over from `woken`, oldest first.
    ready: Rc<RefCell<VecDeque<Runnable>>>,
    live: Rc<Live>,
}

impl Default for Executor {
    fn default() -> Executor {
        Executor::new()
    }
}

impl Executor {
    /// An executor without tasks, owned by this thread.
    pub fn new() -> Executor {
        Executor::build(None)
    }

    /// An executor that calls `wake` each time a task becomes ready through another thread, so that an owner who sleeps
    /// in the kernel can be woken.
    pub fn with_remote_wake(wake: impl Fn() + Send + Sync + 'static) -> Executor {
        Executor::build(Some(Box::new(wake)))
    }

    fn build(remote_wake: Option<RemoteWake>) -> Executor {
        let woken = Woken { ready: Mutex::new(VecDeque::new()), owner: this_thread(), remote_wake };
        Executor { woken: Arc::new(woken), ready: Rc::default(), live: Rc::default() }
    }

    /// Adds a task. It does not run before the next `run_...`.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let live = &self.live;
        let index = live.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut tasks = live.tasks.borrow_mut();
            tasks.push(None);
            tasks.len() - 1
        });
        live.count.set(live.count.get() + 1);
        let registration = Registration { live: live.clone(), index };
        let woken = self.woken.clone();
        let (runnable, task) = async_task::spawn_local(
            async move {
                let _registration = registration;
                future.await;
            },
            move |task| woken.push(task),
        );
        live.tasks.borrow_mut()[index] = Some(task);
        runnable.schedule();
    }

    /// Runs ready tasks, oldest first, at most `limit` of them; says whether any ran.
    pub fn run_ready(&self, limit: usize) -> bool {
        for done in 0..limit {
            if !self.run_oldest() {
                return done > 0;
            }
        }
        limit > 0
    }

    fn run_oldest(&self) -> bool {
        let next = self.ready.borrow_mut().pop_front();
        let next = next.or_else(|| {
            self.take_over();
            self.ready.borrow_mut().pop_front()
        });
        let Some(task) = next else { return false };
        task.run();
        true
    }

    /// Runs one ready task: the one at index `choose(count)` among the `count` ready ones, oldest first. `choose` is
    /// not asked when none is ready; then nothing runs and the answer is false. Too large an index means the last.
    pub fn run_one_with(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        self.take_over();
        let task = {
            let mut ready = self.ready.borrow_mut();
            if ready.is_empty() {
                return false;
            }
            let index = choose(ready.len()).min(ready.len() - 1);
            ready.remove(index).expect("index is below the length")
        };
        task.run();
        true
    }

    /// Whether a task is ready to run.
    pub fn has_ready(&self) -> bool {
        self.take_over();
        !self.ready.borrow().is_empty()
    }

    /// Tasks that were spawned and have not ended.
    pub fn live_tasks(&self) -> usize {
        self.live.count.get()
    }

    /// Drops all tasks where they stand, also those spawned meanwhile by their destructors. Not to be called from
    /// within a task.
    pub fn drop_tasks(&self) {
        loop {
            let tasks: Vec<Task<()>> = self.live.tasks.borrow_mut().iter_mut().filter_map(Option::take).collect();
            // Dropping the handle cancels the task: it is queued once more, and its future dies with that entry.
            drop(tasks);
            self.take_over();
            let ready = std::mem::take(&mut *self.ready.borrow_mut());
            if ready.is_empty() {
                return;
            }
            drop(ready);
        }
    }

    fn take_over(&self) {
        let mut woken = self.woken.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ready = self.ready.borrow_mut();
        if ready.is_empty() {
            std::mem::swap(&mut *ready, &mut *woken);
        } else {
            ready.append(&mut woken);
        }
    }
}

#[cfg(test)]
mod tests;

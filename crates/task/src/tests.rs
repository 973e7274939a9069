use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::*;

/// Gives way once.
async fn yield_now() {
    let mut first = true;
    poll_fn(|cx| {
        if std::mem::take(&mut first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// Sets a flag when dropped.
struct Flag(Rc<Cell<u32>>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn runs_in_order_and_counts_live_tasks() {
    let ex = Executor::new();
    let log = Rc::new(RefCell::new(Vec::new()));
    for name in 0..3 {
        let log = log.clone();
        ex.spawn(async move {
            log.borrow_mut().push(name);
            yield_now().await;
            log.borrow_mut().push(name + 10);
        });
    }
    assert_eq!(ex.live_tasks(), 3);
    assert!(ex.run_ready(100));
    assert_eq!(*log.borrow(), [0, 1, 2, 10, 11, 12]);
    assert_eq!(ex.live_tasks(), 0);
    assert!(!ex.run_ready(100), "nothing is left");
}

#[test]
fn limit_is_kept() {
    let ex = Executor::new();
    let ran = Rc::new(Cell::new(0));
    for _ in 0..5 {
        let ran = ran.clone();
        ex.spawn(async move { ran.set(ran.get() + 1) });
    }
    assert!(ex.run_ready(2));
    assert_eq!(ran.get(), 2);
    assert!(ex.has_ready());
}

#[test]
fn caller_chooses_the_next_task() {
    let ex = Executor::new();
    let log = Rc::new(RefCell::new(Vec::new()));
    for name in 0..4 {
        let log = log.clone();
        ex.spawn(async move { log.borrow_mut().push(name) });
    }
    let mut counts = Vec::new();
    while ex.run_one_with(|n| {
        counts.push(n);
        n - 1
    }) {}
    assert_eq!(*log.borrow(), [3, 2, 1, 0]);
    assert_eq!(counts, [4, 3, 2, 1]);
}

#[test]
fn dropping_tasks_drops_waiting_and_ready_ones() {
    let ex = Executor::new();
    let drops = Rc::new(Cell::new(0));
    let kept: Rc<RefCell<Option<Waker>>> = Rc::default();
    {
        let (flag, kept) = (Flag(drops.clone()), kept.clone());
        ex.spawn(async move {
            let _flag = flag;
            poll_fn::<(), _>(|cx| {
                *kept.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
        });
    }
    ex.run_ready(10);
    let flag = Flag(drops.clone());
    ex.spawn(async move {
        let _flag = flag;
    });
    ex.drop_tasks();
    assert_eq!((drops.get(), ex.live_tasks()), (2, 0));
    kept.borrow_mut().take().expect("was polled").wake();
    assert!(!ex.has_ready(), "waking a dead task does nothing");
}

#[test]
fn a_task_spawned_by_a_destructor_dies_too() {
    struct Spawner(Executor, Rc<Cell<u32>>);
    impl Drop for Spawner {
        fn drop(&mut self) {
            let flag = Flag(self.1.clone());
            self.0.spawn(async move {
                let _flag = flag;
                std::future::pending::<()>().await;
            });
        }
    }
    let ex = Executor::new();
    let drops = Rc::new(Cell::new(0));
    let spawner = Spawner(ex.clone(), drops.clone());
    ex.spawn(async move {
        let _spawner = spawner;
        std::future::pending::<()>().await;
    });
    ex.run_ready(10);
    ex.drop_tasks();
    assert_eq!((drops.get(), ex.live_tasks()), (1, 0));
}

#[test]
fn another_thread_wakes_and_is_announced() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let announced = Arc::new(AtomicU32::new(0));
    let counter = announced.clone();
    let ex = Executor::with_remote_wake(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let waker: Rc<RefCell<Option<Waker>>> = Rc::default();
    let done = Rc::new(Cell::new(false));
    let (slot, flag) = (waker.clone(), done.clone());
    ex.spawn(async move {
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            *slot.borrow_mut() = Some(cx.waker().clone());
            if polls == 1 {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        flag.set(true);
    });
    ex.run_ready(10);
    assert_eq!(announced.load(Ordering::SeqCst), 0);
    let waker = waker.borrow_mut().take().expect("was polled");
    std::thread::spawn(move || waker.wake()).join().expect("no panic");
    assert_eq!(announced.load(Ordering::SeqCst), 1);
    ex.run_ready(10);
    assert!(done.get());
}

use super::*;
use bimetal_volume::buf::BufMut;
use std::sync::atomic::AtomicBool;
use std::time::Instant as Wall;

#[test]
fn timers_fire_in_order_and_not_early() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let log = Rc::new(RefCell::new(Vec::new()));
    let seen = log.clone();
    let start = Wall::now();
    reactor.block_on(async move {
        for ms in [30u64, 10, 20] {
            let (env2, log) = (env.clone(), log.clone());
            env.spawn(async move {
                env2.sleep(Duration::from_millis(ms)).await;
                log.borrow_mut().push(ms);
            });
        }
        env.sleep(Duration::from_millis(40)).await;
    });
    assert_eq!(*seen.borrow(), [10, 20, 30]);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(40) && took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_timer_given_up_keeps_no_other_from_its_time() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let start = Wall::now();
    reactor.block_on(async move {
        for ms in 1..20u64 {
            // The shorter one is gone before it is due; what is left must still wake the loop, again and again.
            let short = env.sleep(Duration::from_micros(ms * 100));
            let mut short = Box::pin(short);
            std::future::poll_fn(|cx| {
                let _ = short.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
            drop(short);
            env.sleep(Duration::from_millis(ms)).await;
        }
    });
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(190) && took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_blocking_call_wakes_the_loop() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let value = reactor.block_on(async move { env.blocking(|| 6 * 7).await.expect("ran") });
    assert_eq!(value, 42);
}

#[test]
fn more_requests_than_the_ring_holds() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let done = Rc::new(Cell::new(0));
    let count = done.clone();
    reactor.block_on(async move {
        for _ in 0..10_000 {
            let (env2, count) = (env.clone(), count.clone());
            env.spawn(async move {
                // SAFETY: a NOP points to nothing.
                let op = unsafe { env2.core().start(opcode::Nop::new().build(), Keep::None, None, OnDrop::Finish) };
                assert_eq!(op.await.0, 0);
                count.set(count.get() + 1);
            });
        }
        while count.get() < 10_000 {
            env.sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(done.get(), 10_000);
}

/// Queues `n` requests that the kernel ends at once, in one turn; what is queued after each. They have ended then.
async fn queued_after_each(env: &HostEnv, n: usize, keep: impl Fn() -> Keep) -> Vec<usize> {
    let mut queued = Vec::new();
    let mut ops = Vec::new();
    for _ in 0..n {
        // SAFETY: a NOP points to nothing.
        ops.push(unsafe { env.core().start(opcode::Nop::new().build(), keep(), None, OnDrop::Finish) });
        queued.push(env.core().ring.borrow_mut().submission().len());
    }
    for op in ops {
        assert_eq!(op.await.0, 0);
    }
    queued
}

#[test]
fn requests_go_to_the_kernel_in_fours_within_a_turn_and_a_lone_one_at_its_end() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        env.sleep(Duration::from_millis(1)).await;
        for _ in 0..2 {
            assert_eq!(queued_after_each(&env, 1, || Keep::None).await, [1]);
            assert_eq!(queued_after_each(&env, 9, || Keep::None).await, [1, 2, 3, 0, 1, 2, 3, 0, 1]);
        }
    });
}

#[test]
fn batches_grow_within_a_turn_where_requests_come_by_commands_and_begin_anew_with_the_next() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        env.sleep(Duration::from_millis(1)).await;
        for _ in 0..2 {
            // SAFETY: a NOP points to nothing.
            let command = unsafe {
                env.core().start(opcode::Nop::new().build(), Keep::Parked(BufMut::new(4096)), None, OnDrop::Finish)
            };
            let queued = queued_after_each(&env, 24, || Keep::None).await;
            let batches: Vec<usize> = (0..24).filter(|i| queued[*i] == 0).map(|i| i + 1).collect();
            assert_eq!(batches, [8, 24], "eight, then sixteen: {queued:?}");
            command.await;
        }
    });
}

#[test]
fn a_loop_that_stays_awake_hears_timers_and_other_threads() {
    static MINE: AtomicBool = AtomicBool::new(false);
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let core = env.core().clone();
    stay_awake(&env, &MINE);
    let short = async move {
        for _ in 0..200 {
            env.sleep(Duration::from_micros(5)).await;
        }
        // These are longer than it stays awake, and end in another thread.
        for i in 0..200u64 {
            let done = env.blocking(move || std::thread::sleep(Duration::from_micros(i))).await;
            done.expect("ran");
            env.sleep(Duration::from_micros(5)).await;
        }
    };
    let start = Wall::now();
    reactor.block_on(short);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let env = reactor.env();
    reactor.block_on(async move {
        for _ in 0..8 {
            env.sleep(Duration::from_millis(3)).await;
        }
    });
    assert!(core.spin.borrow().begin().is_none(), "long waits put it to sleep");
}

/// Has the loop stay awake, whatever the loops of other tests do.
fn stay_awake(env: &HostEnv, turns: &'static AtomicBool) {
    let mut spin = spin::Spin::beside(turns);
    (0..100).for_each(|_| spin.waited(Duration::ZERO));
    *env.core().spin.borrow_mut() = spin;
}

/// Processor time of this thread so far.
fn used() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for the call; every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[test]
fn a_loop_that_stayed_awake_sleeps_when_nothing_comes() {
    static MINE: AtomicBool = AtomicBool::new(false);
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    stay_awake(&env, &MINE);
    let before = used();
    reactor.block_on(async move { env.sleep(Duration::from_millis(400)).await });
    let took = used() - before;
    assert!(took < Duration::from_millis(100), "{took:?} of processor time while nothing was to be done");
}

#[test]
fn random_numbers_differ() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let mut seen: Vec<u64> = (0..100).map(|_| env.random()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 100);
}

#[test]
fn dropping_the_reactor_ends_waiting_tasks() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let flag = Rc::new(());
    let weak = Rc::downgrade(&flag);
    let inner = env.clone();
    reactor.block_on(async move {
        let env = inner.clone();
        inner.spawn(async move {
            let _flag = flag;
            env.sleep(Duration::from_secs(3600)).await;
        });
        inner.sleep(Duration::from_millis(1)).await;
    });
    assert!(weak.upgrade().is_some());
    drop(reactor);
    assert!(weak.upgrade().is_none());
}

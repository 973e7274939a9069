//! Devices that are taken over after a loss: who is told, when, and how often.

use super::*;
use crate::runtime::timeout;

fn fua(start: u64) -> IoDesc {
    IoDesc::new(Kind::Write, start, 8, true, false)
}

fn flush() -> IoDesc {
    plain(Kind::Flush, u64::MAX, 0)
}

/// Serves after a loss, and says when it is settled.
fn serve_after_loss(runtime: &TestRuntime, queue: &Fake, probe: &Probe) -> Rc<Cell<bool>> {
    let serving = Serving::begin(runtime, queue, probe, true);
    let (told, clock) = (Rc::new(Cell::new(false)), runtime.clone());
    let set = told.clone();
    runtime.spawn(async move {
        serving.told_of_loss(&clock).await;
        set.set(true);
    });
    settle(runtime);
    told
}

#[test]
fn after_a_loss_the_first_flush_fails_and_the_next_succeeds() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(2), Probe::new());
    let told = serve_after_loss(&runtime, &queue, &probe);
    queue.ask(0, plain(Kind::Read, 0, 8));
    queue.write(0, plain(Kind::Write, 0, 8), 1);
    settle(&runtime);
    assert_eq!((queue.answers(0), told.get()), (vec![4096, 4096], false), "what promises nothing is carried out");
    queue.ask(1, flush());
    settle(&runtime);
    assert_eq!(queue.answers(1), [EIO]);
    assert!(told.get(), "the kernel has it, though nothing more was asked");
    queue.ask(1, flush());
    queue.ask(0, flush());
    queue.write(0, fua(0), 1);
    settle(&runtime);
    assert_eq!((queue.answers(1), queue.answers(0)), (vec![EIO, 0], vec![4096, 4096, 0, 4096]));
}

#[test]
fn a_fua_write_fails_once_too_and_settles_nothing() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    let told = serve_after_loss(&runtime, &queue, &probe);
    queue.write(0, fua(0), 1);
    queue.write(0, fua(0), 1);
    settle(&runtime);
    assert_eq!((queue.answers(0), told.get()), (vec![EIO, 4096], false));
    queue.ask(0, flush());
    queue.ask(0, flush());
    queue.ask(0, IoDesc::new(Kind::WriteZeroes, 0, 8, true, false));
    settle(&runtime);
    assert_eq!((queue.answers(0), told.get()), (vec![EIO, 4096, EIO, 0, 0], true));
}

#[test]
fn an_answer_that_the_kernel_has_not_taken_settles_nothing() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    let serving = Serving::begin(&runtime, &queue, &probe, true);
    queue.ask(0, flush());
    // It has no memory for the answer, for longer than an answer is taken to need.
    (0..150).for_each(|_| queue.give(0, Next::End(-12)));
    let clock = runtime.clone();
    let seen = runtime.block_on(async move {
        Runtime::sleep(&clock, Duration::from_millis(1200)).await;
        timeout(&clock, Duration::ZERO, serving.told_of_loss(&clock)).await.is_some()
    });
    assert_eq!(seen, Some(false));
    settle(&runtime);
    assert_eq!(queue.answers(0), vec![EIO; 151]);
}

#[test]
fn the_end_of_the_device_tells_nobody() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(2), Probe::new());
    let told = serve_after_loss(&runtime, &queue, &probe);
    queue.end();
    settle(&runtime);
    assert!(!told.get());
}

#[test]
fn without_a_loss_no_flush_fails() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    queue.write(0, fua(0), 1);
    queue.ask(0, flush());
    serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [4096, 0]);
}

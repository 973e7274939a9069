//! Devices that are taken over after a loss promise nothing any more.

use super::*;

fn fua(start: u64) -> IoDesc {
    IoDesc::new(Kind::Write, start, 8, true, false)
}

fn flush() -> IoDesc {
    plain(Kind::Flush, u64::MAX, 0)
}

/// One error may be swallowed: file systems flush without looking at the result as well.
#[test]
fn after_a_loss_every_flush_and_every_fua_write_fails() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(2), Probe::new());
    Serving::begin(&runtime, &queue, &probe, true);
    for _ in 0..3 {
        queue.ask(1, flush());
        queue.write(1, fua(0), 1);
        queue.ask(1, IoDesc::new(Kind::WriteZeroes, 0, 8, true, false));
    }
    settle(&runtime);
    assert_eq!(queue.answers(1), [EIO; 9]);
    queue.ask(0, plain(Kind::Read, 0, 8));
    queue.write(0, plain(Kind::Write, 0, 8), 1);
    settle(&runtime);
    assert_eq!(queue.answers(0), [4096, 4096], "what promises nothing is carried out");
}

#[test]
fn without_a_loss_no_flush_fails() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    queue.write(0, fua(0), 1);
    queue.ask(0, flush());
    serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [4096, 0]);
}

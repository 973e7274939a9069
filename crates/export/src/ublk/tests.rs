//! Requests of a queue in memory against volumes in memory: one named test per behaviour.

mod loss;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bimetal_host::ublk::{IoDesc, Kind};
use bimetal_volume::backend::{Extent, Pieces, Wanted, WriteFlags};
use bimetal_volume::buf::Buf;
use bimetal_volume::error::Error;

use super::*;
use crate::backends::Memory;
use crate::testing::TestRuntime;

const SIZE: u64 = 8 << 20;
const MAX: usize = 64 << 10;
const ENODEV: i32 = -19;
const EIO: i32 = -5;
const EINVAL: i32 = -22;
const ENOSPC: i32 = -28;
const EROFS: i32 = -30;
const EOPNOTSUPP: i32 = -95;

/// What a tag is given next.
enum Next {
    /// A request, with the data of a write.
    Request(IoDesc, Vec<u8>),
    /// The device goes.
    End(i32),
}

#[derive(Default)]
struct Tag {
    next: VecDeque<Next>,
    /// Answers, with the front of the buffer as it was handed over.
    answers: Vec<(i32, Vec<u8>)>,
    waker: Option<Waker>,
}

/// A queue in memory.
#[derive(Clone)]
struct Fake {
    depth: u16,
    tags: Rc<RefCell<BTreeMap<u16, Tag>>>,
}

impl Fake {
    fn new(depth: u16) -> Fake {
        Fake { depth, tags: Rc::default() }
    }

    fn give(&self, tag: u16, next: Next) {
        let mut tags = self.tags.borrow_mut();
        let tag = tags.entry(tag).or_default();
        tag.next.push_back(next);
        if let Some(waker) = tag.waker.take() {
            waker.wake();
        }
    }

    fn ask(&self, tag: u16, desc: IoDesc) {
        self.give(tag, Next::Request(desc, Vec::new()));
    }

    fn write(&self, tag: u16, desc: IoDesc, byte: u8) {
        self.give(tag, Next::Request(desc, vec![byte; desc.nr_sectors as usize * 512]));
    }

    fn end(&self) {
        (0..self.depth).for_each(|tag| self.give(tag, Next::End(ENODEV)));
    }

    fn answers(&self, tag: u16) -> Vec<i32> {
        let tags = self.tags.borrow();
        tags.get(&tag).map_or_else(Vec::new, |t| t.answers.iter().map(|a| a.0).collect())
    }

    /// The data of the last answer of a tag.
    fn data(&self, tag: u16, len: usize) -> Vec<u8> {
        self.tags.borrow()[&tag].answers.last().expect("an answer").1[..len].to_vec()
    }
}

impl Queue for Fake {
    fn depth(&self) -> u16 {
        self.depth
    }

    fn max_bytes(&self) -> usize {
        MAX
    }

    async fn exchange(&self, tag: u16, answer: Option<i32>, mut buf: BufMut) -> (BufMut, Result<IoDesc, i32>) {
        assert_eq!((buf.len(), buf.as_ptr() as usize % 4096), (MAX, 0), "a whole, page-aligned buffer");
        if let Some(answer) = answer {
            let mut tags = self.tags.borrow_mut();
            tags.entry(tag).or_default().answers.push((answer, buf.to_vec()));
        }
        let next = poll_fn(|cx| {
            let mut tags = self.tags.borrow_mut();
            let tag = tags.entry(tag).or_default();
            match tag.next.pop_front() {
                Some(next) => Poll::Ready(next),
                None => {
                    tag.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        match next.await {
            Next::Request(desc, data) => {
                let len = data.len().min(MAX);
                buf[..len].copy_from_slice(&data[..len]);
                (buf, Ok(desc))
            }
            Next::End(errno) => (buf, Err(errno)),
        }
    }
}

/// A volume in memory that notes flags, fails on demand and can be held.
#[derive(Clone)]
struct Probe {
    memory: Memory,
    log: Rc<RefCell<Vec<String>>>,
    fail: Rc<RefCell<Option<Error>>>,
    held: Rc<Cell<bool>>,
    released: Rc<Signal>,
    /// What was written, still held by somebody.
    kept: Rc<RefCell<Vec<Buf>>>,
}

impl Probe {
    fn new() -> Probe {
        Probe {
            memory: Memory::new(SIZE),
            log: Rc::default(),
            fail: Rc::default(),
            held: Rc::default(),
            released: Rc::default(),
            kept: Rc::default(),
        }
    }

    async fn enter(&self, what: String) -> Result<(), Error> {
        self.log.borrow_mut().push(what);
        self.released.wait_until(|| !self.held.get()).await;
        self.fail.borrow().clone().map_or(Ok(()), Err)
    }
}

fn words(flags: WriteFlags) -> String {
    let named = [(flags.fua, " fua"), (flags.no_hole, " no_hole"), (flags.outlives, " outlives")];
    named.into_iter().filter(|n| n.0).map(|n| n.1).collect()
}

impl Backend for Probe {
    fn size(&self) -> u64 {
        SIZE
    }
    fn read_only(&self) -> bool {
        false
    }
    fn sector_size(&self) -> u32 {
        512
    }
    async fn read(&self, offset: u64, len: u64) -> Result<Pieces, Error> {
        self.enter(format!("read {offset} {len}")).await?;
        self.memory.read(offset, len).await
    }
    async fn write_while(&self, offset: u64, data: Buf, flags: WriteFlags, _wanted: Wanted<'_>) -> Result<(), Error> {
        assert_eq!(data.as_ptr() as u64 % 4096, offset % 4096, "whole blocks lie on pages");
        self.kept.borrow_mut().push(data.clone());
        self.enter(format!("write {offset} {}{}", data.len(), words(flags))).await?;
        self.memory.write(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), Error> {
        self.enter("flush".into()).await
    }
    async fn trim_while(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.enter(format!("trim {offset} {len}{}", words(flags))).await?;
        if !wanted() {
            return Err(Error::Stopping);
        }
        self.memory.trim(offset, len, flags).await
    }
    async fn write_zeroes(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.enter(format!("zero {offset} {len}{}", words(flags))).await?;
        if !wanted() {
            return Err(Error::Stopping);
        }
        self.memory.write_zeroes(offset, len, flags, wanted).await
    }
    async fn cache(&self, _offset: u64, _len: u64, _wanted: Wanted<'_>) -> Result<(), Error> {
        Ok(())
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, Error> {
        self.memory.extents(offset, len, max)
    }
}

fn plain(kind: Kind, start: u64, sectors: u32) -> IoDesc {
    IoDesc::new(kind, start, sectors, false, false)
}

/// Serves until nothing is left to do, and gives the handle of the queue.
fn serve<B: Backend>(runtime: &TestRuntime, queue: &Fake, backend: &B) -> Serving {
    let serving = Serving::begin(runtime, queue, backend, false);
    settle(runtime);
    serving
}

fn settle(runtime: &TestRuntime) {
    assert_eq!(runtime.block_on(std::future::pending::<()>()), None);
}

#[test]
fn every_tag_wishes_for_a_request_before_anything_else_runs() {
    let (runtime, queue) = (TestRuntime::new(), Fake::new(3));
    // The tasks have not had their turn: whoever begins may be without a capability until the wishes are handed over.
    let serving = Serving::begin(&runtime, &queue, &Memory::new(SIZE), false);
    assert_eq!(queue.tags.borrow().len(), 3);
    queue.ask(1, plain(Kind::Read, 0, 8));
    settle(&runtime);
    assert_eq!((queue.answers(0), queue.answers(1)), (vec![], vec![4096]));
    queue.end();
    settle(&runtime);
    assert!(serving.is_over());
}

#[test]
fn who_has_a_device_is_counted_until_its_last_tag_has_ended() {
    let (runtime, queue, volume) = (TestRuntime::new(), Fake::new(3), Memory::new(SIZE));
    let serving = Serving::begin(&runtime, &queue, &volume, false);
    settle(&runtime);
    assert_eq!((volume.arrivals(), volume.present()), (1, 1));
    queue.end();
    settle(&runtime);
    assert!(serving.is_over());
    assert_eq!((volume.arrivals(), volume.present()), (1, 0));
}

#[test]
fn an_answer_the_kernel_has_no_memory_for_is_given_again() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(2), Probe::new());
    queue.write(0, plain(Kind::Write, 0, 8), 7);
    for errno in [-12, -11, -4] {
        queue.give(0, Next::End(errno));
    }
    queue.ask(0, plain(Kind::Read, 0, 8));
    let serving = serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [4096; 5], "the write's four times, then the read's");
    assert_eq!(queue.data(0, 4096), [7; 4096]);
    assert_eq!(serving.status().requests, 2);
    // The first wish is another matter: whoever makes the device is told.
    queue.give(1, Next::End(-12));
    settle(&runtime);
    assert_eq!(serving.refused(), Some(-12));
    queue.end();
    settle(&runtime);
    assert!(serving.is_over());
}

#[test]
fn what_was_written_is_read() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(2), Probe::new());
    queue.write(0, plain(Kind::Write, 8, 16), 7);
    let serving = serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [8192]);
    probe.kept.borrow_mut().clear();
    queue.ask(1, plain(Kind::Read, 0, 32));
    settle(&runtime);
    assert_eq!(queue.answers(1), [16384]);
    let data = queue.data(1, 16384);
    let is = |from: usize, to: usize, byte: u8| data[from..to].iter().all(|b| *b == byte);
    assert!(is(0, 4096, 0) && is(4096, 12288, 7) && is(12288, 16384, 0), "holes are zeros, also over old content");
    assert_eq!((serving.status().requests, serving.status().failed, serving.status().in_flight), (2, 0, 0));
}

#[test]
fn old_content_of_a_buffer_never_reaches_a_reader() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    queue.write(0, plain(Kind::Write, 0, 16), 9);
    queue.ask(0, plain(Kind::Read, 1024, 16));
    serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [8192, 8192]);
    assert_eq!(queue.data(0, 8192), vec![0; 8192]);
}

#[test]
fn every_change_is_to_outlive_the_daemon_and_flags_are_passed_on() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    queue.write(0, IoDesc::new(Kind::Write, 8, 8, true, false), 1);
    queue.write(0, plain(Kind::Write, 1, 2), 1);
    queue.ask(0, plain(Kind::Flush, u64::MAX, 0));
    queue.ask(0, plain(Kind::Discard, 16, 8));
    queue.ask(0, IoDesc::new(Kind::WriteZeroes, 8, 8, true, true));
    queue.ask(0, plain(Kind::WriteZeroes, 1, 1));
    serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [4096, 1024, 0, 0, 0, 0]);
    assert_eq!(
        *probe.log.borrow(),
        [
            "write 4096 4096 fua outlives",
            "write 512 1024 outlives",
            "flush",
            "trim 8192 4096 outlives",
            "zero 4096 4096 fua no_hole outlives",
            "zero 512 512 outlives",
        ]
    );
}

#[test]
fn a_buffer_that_somebody_keeps_is_not_used_again() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    queue.write(0, plain(Kind::Write, 0, 8), 1);
    queue.write(0, plain(Kind::Write, 8, 8), 2);
    serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [4096, 4096]);
    let kept = probe.kept.borrow();
    assert!(kept[0].iter().all(|b| *b == 1) && kept[1].iter().all(|b| *b == 2));
}

#[test]
fn errors_of_the_backend_become_errnos() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    let serving = serve(&runtime, &queue, &probe);
    let cases = [
        (Error::Lost, EIO),
        (Error::Latched("a sync failed".into()), EIO),
        (Error::NoSpace, ENOSPC),
        (Error::ReadOnly, EROFS),
    ];
    for (i, (error, errno)) in cases.into_iter().enumerate() {
        *probe.fail.borrow_mut() = Some(error);
        for desc in [plain(Kind::Read, 0, 8), plain(Kind::Flush, 0, 0), plain(Kind::Discard, 0, 8)] {
            queue.ask(0, desc);
        }
        queue.write(0, plain(Kind::Write, 0, 8), 1);
        settle(&runtime);
        assert_eq!(queue.answers(0)[i * 4..], [errno; 4]);
    }
    assert_eq!(serving.status().failed, 16);
}

#[test]
fn what_is_out_of_range_or_unknown_is_refused() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    let end = SIZE / 512;
    for kind in [Kind::Read, Kind::Write, Kind::Discard, Kind::WriteZeroes] {
        queue.ask(0, plain(kind, end - 4, 8));
        queue.ask(0, plain(kind, u64::MAX / 512 + 1, 8));
        queue.ask(0, plain(kind, u64::MAX / 512, 8));
    }
    serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [EINVAL; 12]);
    queue.ask(0, plain(Kind::Read, 0, MAX as u32 / 512 + 1));
    queue.ask(0, plain(Kind::Write, 0, u32::MAX));
    queue.ask(0, plain(Kind::Other(4), 0, 8));
    queue.ask(0, plain(Kind::Other(255), 0, 8));
    settle(&runtime);
    assert_eq!(queue.answers(0)[12..], [EINVAL, EINVAL, EOPNOTSUPP, EOPNOTSUPP]);
}

#[test]
fn requests_of_no_length_do_nothing() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    for kind in [Kind::Read, Kind::Write, Kind::Discard, Kind::WriteZeroes] {
        queue.ask(0, plain(kind, 8, 0));
    }
    serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [0; 4]);
}

#[test]
fn the_largest_request_fits_and_the_last_sector_is_there() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    queue.write(0, plain(Kind::Write, (SIZE - MAX as u64) / 512, MAX as u32 / 512), 3);
    queue.ask(0, plain(Kind::Read, SIZE / 512 - 1, 1));
    serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), [MAX as i32, 512]);
    assert_eq!(queue.data(0, 512), vec![3; 512]);
}

#[test]
fn a_read_only_volume_refuses_changes() {
    let (runtime, queue) = (TestRuntime::new(), Fake::new(1));
    queue.write(0, plain(Kind::Write, 0, 8), 1);
    queue.ask(0, plain(Kind::Discard, 0, 8));
    queue.ask(0, plain(Kind::Read, 0, 8));
    serve(&runtime, &queue, &Memory::new(SIZE).as_read_only());
    assert_eq!(queue.answers(0), [EROFS, EROFS, 4096]);
}

#[test]
fn tags_are_served_side_by_side() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(3), Probe::new());
    probe.held.set(true);
    (0..3).for_each(|tag| queue.ask(tag, plain(Kind::Read, 0, 8)));
    let serving = serve(&runtime, &queue, &probe);
    assert_eq!((serving.status().in_flight, serving.status().bytes_in_flight), (3, 12288));
    probe.held.set(false);
    probe.released.notify();
    settle(&runtime);
    assert_eq!((serving.status().in_flight, serving.status().bytes_in_flight), (0, 0));
    assert_eq!([0, 1, 2].map(|tag| queue.answers(tag)), [vec![4096], vec![4096], vec![4096]]);
}

#[test]
fn who_leaves_answers_what_was_taken_and_nothing_else() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(2), Probe::new());
    probe.held.set(true);
    queue.ask(0, plain(Kind::Read, 0, 8));
    let serving = serve(&runtime, &queue, &probe);
    let (leaver, left) = (serving.clone(), Rc::new(Cell::new(false)));
    let note = left.clone();
    runtime.spawn(async move {
        leaver.leave().await;
        note.set(true);
    });
    settle(&runtime);
    assert!(!left.get(), "one is under way");
    queue.ask(1, plain(Kind::Read, 0, 8));
    probe.held.set(false);
    probe.released.notify();
    settle(&runtime);
    assert!(left.get());
    assert_eq!((queue.answers(0), queue.answers(1)), (vec![4096], vec![]));
    assert_eq!(probe.log.borrow().len(), 1, "what came later was not begun");
}

/// A zeroing of gigabytes takes minutes, and the next daemon begins it again.
#[test]
fn who_leaves_does_not_wait_for_the_end_of_a_zeroing() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    probe.held.set(true);
    queue.ask(0, IoDesc::new(Kind::WriteZeroes, 0, (SIZE >> 9) as u32, false, true));
    let serving = serve(&runtime, &queue, &probe);
    let leaver = serving.clone();
    runtime.spawn(async move { leaver.leave().await });
    settle(&runtime);
    probe.held.set(false);
    probe.released.notify();
    settle(&runtime);
    assert_eq!((queue.answers(0), probe.log.borrow().len()), (vec![], 1));
    assert_eq!((serving.status().requests, serving.status().in_flight), (0, 0));
}

#[test]
fn a_group_that_stops_leaves_requests_to_the_next_daemon() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(1), Probe::new());
    *probe.fail.borrow_mut() = Some(Error::Stopping);
    queue.ask(0, plain(Kind::Flush, 0, 0));
    let serving = serve(&runtime, &queue, &probe);
    assert_eq!(queue.answers(0), Vec::<i32>::new());
    assert_eq!((serving.status().requests, serving.status().in_flight), (0, 0));
}

#[test]
fn the_end_of_the_device_ends_all_tags_and_closes_the_queue() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(4), Probe::new());
    let serving = serve(&runtime, &queue, &probe);
    assert_eq!(Rc::strong_count(&queue.tags), 5);
    queue.end();
    let waiter = serving.clone();
    assert_eq!(runtime.block_on(async move { waiter.ended().await }), Some(()));
    assert_eq!(Rc::strong_count(&queue.tags), 1, "nobody holds the queue");
}

#[test]
fn a_kernel_that_refuses_the_first_wish_is_noticed() {
    let (runtime, queue, probe) = (TestRuntime::new(), Fake::new(2), Probe::new());
    queue.give(1, Next::End(EINVAL));
    let serving = serve(&runtime, &queue, &probe);
    assert_eq!(serving.refused(), Some(EINVAL));
    let (queue, probe) = (Fake::new(1), Probe::new());
    queue.ask(0, plain(Kind::Flush, 0, 0));
    queue.end();
    assert_eq!(serve(&runtime, &queue, &probe).refused(), None, "an end later is none");
}

#[test]
fn tags_of_devices_name_the_volume() {
    let (a, b) = (device::tag_of(&[1; 16]), device::tag_of(&[2; 16]));
    assert_eq!(a, 0xb17a_0101_0101_0101);
    assert_ne!(a, b);
}

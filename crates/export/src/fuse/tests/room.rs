//! A file whose disk stands still, and the others.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use bimetal_volume::backend::{Extent, Pieces, Wanted};
use bimetal_volume::buf::Buf;
use bimetal_volume::error::Error;

use super::*;
use crate::runtime::Runtime;
use crate::signal::Signal;

const MIB: u64 = 1 << 20;
/// Size of the volumes.
const LARGE: u64 = 128 * MIB;
/// Numbers of the files.
const FILMS: u64 = 2;
const ROOT_DISK: u64 = 3;

/// A volume that can stand still.
#[derive(Clone)]
struct Disk {
    memory: Memory,
    still: Rc<Cell<bool>>,
    moves: Rc<Signal>,
}

impl Disk {
    fn new() -> Disk {
        Disk { memory: Memory::new(LARGE), still: Rc::default(), moves: Rc::default() }
    }

    async fn turn(&self) {
        self.moves.wait_until(|| !self.still.get()).await;
    }

    fn go_on(&self) {
        self.still.set(false);
        self.moves.notify();
    }
}

impl Backend for Disk {
    fn size(&self) -> u64 {
        LARGE
    }
    fn read_only(&self) -> bool {
        false
    }
    fn sector_size(&self) -> u32 {
        4096
    }
    async fn read(&self, offset: u64, len: u64) -> Result<Pieces, Error> {
        self.turn().await;
        self.memory.read(offset, len).await
    }
    async fn write_while(&self, offset: u64, data: Buf, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        assert!(data.is_aligned(), "whole blocks lie on pages");
        self.turn().await;
        self.memory.write_while(offset, data, flags, wanted).await
    }
    async fn flush(&self) -> Result<(), Error> {
        self.turn().await;
        Ok(())
    }
    async fn trim_while(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.memory.trim_while(offset, len, flags, wanted).await
    }
    async fn write_zeroes(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.memory.write_zeroes(offset, len, flags, wanted).await
    }
    async fn cache(&self, _offset: u64, _len: u64, _wanted: Wanted<'_>) -> Result<(), Error> {
        Ok(())
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, Error> {
        self.memory.extents(offset, len, max)
    }
}

type DiskServer = Server<TestRuntime, Disk, Kernel>;

/// Runs `test` against files of two volumes, of which the first stands still.
fn with_still<F: Future<Output = ()> + 'static>(limits: Limits, test: impl FnOnce(Kernel, DiskServer, Disk) -> F) {
    let (runtime, kernel, films) = (TestRuntime::new(), Kernel::default(), Disk::new());
    let file = |uuid, name: &str, backend| {
        let (name, description) = (name.into(), String::new());
        Export { uuid, name, description, backend, read_only: false }
    };
    let files = vec![file([1; 16], "films", films.clone()), file([2; 16], "root", Disk::new())];
    let server = Server::start(runtime.clone(), kernel.clone(), files, terms(), limits);
    films.still.set(true);
    let main = test(kernel.clone(), server.clone(), films);
    let room = server.clone();
    let finished = runtime.block_on(async move {
        ask(&kernel, init(1, MINOR)).await.expect("agreed");
        main.await;
        assert!(room.finish(Duration::from_secs(1)).await && room.0.room.is_idle(), "room is given back");
        room.close();
    });
    assert!(finished.is_some(), "an answer is missing");
    runtime.drop_tasks();
}

fn write_of(unique: u64, node: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    request(opcode::WRITE, unique, node, &[transfer(offset, data.len() as u32, 0).as_bytes(), data])
}

/// Which requests were answered next, and with which errno.
async fn answers(kernel: &Kernel, count: u64) -> Vec<(u64, i32)> {
    let mut answered = Vec::new();
    for _ in 0..count {
        let answer = kernel.answer().await;
        let (head, _) = OutHeader::read_from_prefix(&answer).expect("a head");
        answered.push((head.unique, -head.error));
    }
    answered
}

#[test]
fn a_file_whose_disk_stands_still_stops_no_other() {
    const WRITES: u64 = 70;
    with_still(Limits::default(), |kernel, server, films| async move {
        for i in 0..WRITES {
            kernel.ask(write_of(100 + i, FILMS, i * MIB, &vec![i as u8; MIB as usize]));
        }
        let found = ask(&kernel, request(opcode::GETATTR, 21, FILMS, &[&[0; 16]])).await.expect("it needs no disk");
        assert_eq!(AttrOut::read_from_bytes(&found).expect("attributes").attr.size, LARGE);
        assert_eq!(write(&kernel, ROOT_DISK, 0, &[7; MIB as usize]).await, Ok(MIB as u32));
        assert_eq!(read(&kernel, ROOT_DISK, 0, MIB as u32).await, Ok(vec![7; MIB as usize]));
        let status = server.status();
        assert_eq!(status.in_flight as u64, WRITES, "all were received");
        films.go_on();
        let all: Vec<_> = (0..WRITES).map(|i| (100 + i, 0)).collect();
        assert_eq!(answers(&kernel, WRITES).await, all);
        for i in 0..WRITES {
            assert_eq!(read(&kernel, FILMS, i * MIB, MIB as u32).await, Ok(vec![i as u8; MIB as usize]));
        }
    });
}

/// What waits occupies memory.
#[test]
fn only_so_much_waits() {
    let few = Limits { requests: 2, own_requests: 1, waiting_requests: 3, ..Limits::default() };
    let little = Limits { bytes: 8192, own_bytes: 4096, waiting_bytes: 3 * 4096, ..Limits::default() };
    for limits in [few, little] {
        with_still(limits, |kernel, server, films| async move {
            for i in 0..20 {
                kernel.ask(write_of(i, FILMS, i * 4096, &[1; 4096]));
            }
            server.0.runtime.sleep(Duration::from_micros(1)).await;
            assert_eq!(server.status().in_flight, 6, "one is the file's own, two have what all share, three wait");
            films.go_on();
            assert_eq!(answers(&kernel, 20).await, (0..20).map(|i| (i, 0)).collect::<Vec<_>>());
        });
    }
}

#[test]
fn what_all_share_is_had_in_the_order_of_arrival() {
    let one = Limits { requests: 1, own_requests: 0, ..Limits::default() };
    with_still(one, |kernel, _, films| async move {
        for (unique, node) in [(5, FILMS), (6, ROOT_DISK), (7, FILMS), (8, ROOT_DISK), (9, FILMS)] {
            kernel.ask(request(opcode::FSYNC, unique, node, &[&[0; 16]]));
        }
        ask(&kernel, request(opcode::GETATTR, 21, FILMS, &[&[0; 16]])).await.expect("all were received");
        films.go_on();
        assert_eq!(answers(&kernel, 5).await, (5..10).map(|unique| (unique, 0)).collect::<Vec<_>>());
    });
}

#[test]
fn what_waits_for_room_is_refused_by_a_stop_and_at_the_end_of_the_mount() {
    for by_stop in [true, false] {
        let one = Limits { requests: 1, own_requests: 0, ..Limits::default() };
        with_still(one, move |kernel, server, films| async move {
            for i in 0..3 {
                kernel.ask(write_of(i, FILMS, i * MIB, &[1; 20 << 10]));
            }
            server.0.runtime.sleep(Duration::from_micros(1)).await;
            match by_stop {
                true => assert!(!server.finish(Duration::from_millis(1)).await, "one was begun"),
                false => kernel.unmount(),
            }
            assert_eq!(answers(&kernel, 2).await, [(1, errno::ESHUTDOWN), (2, errno::ESHUTDOWN)]);
            films.go_on();
            // Of a mount that has ended, what has not been written yet is not written either.
            assert_eq!(answers(&kernel, 1).await, [(0, if by_stop { 0 } else { errno::ESHUTDOWN })]);
            for i in 1..3 {
                let there = films.memory.read(i * MIB, 4096).await.expect("read");
                assert!(matches!(&there[..], [Piece::Zero(4096)]), "nothing was written");
            }
        });
    }
}

/// Nothing is received while too much waits, by which a receiver learns of the end: of `umount -f`, for one.
#[test]
fn the_end_of_a_mount_is_noticed_also_when_too_much_waits() {
    let limits = Limits { requests: 1, own_requests: 0, waiting_requests: 2, ..Limits::default() };
    with_still(limits, |kernel, server, films| async move {
        for i in 0..3 {
            kernel.ask(write_of(i, FILMS, i * MIB, &[1; 20 << 10]));
        }
        server.0.runtime.sleep(Duration::from_micros(1)).await;
        kernel.unmount();
        server.0.runtime.sleep(Duration::from_secs(5)).await;
        assert!(server.status().ended);
        // By the next mount: written, and flushed.
        let next = BufMut::copy_of(&[9; 4096]).freeze();
        films.memory.write(0, next, WriteFlags::default()).await.expect("written");
        films.go_on();
        server.0.runtime.sleep(Duration::from_secs(5)).await;
        let there = bimetal_volume::gather(&films.memory.read(0, 4096).await.expect("read"));
        assert_eq!(there[0], 9);
    });
}

//! The protocol byte by byte, over a volume in memory.

mod room;

use std::io::ErrorKind;
use std::time::Duration;

use bimetal_host::fuse::MAX_TRANSFER;
use bimetal_volume::backend::{Backend, Piece, WriteFlags};
use bimetal_volume::buf::BufMut;
use zerocopy::{FromBytes, IntoBytes};

use crate::backends::Memory;
use crate::nbd::Export;
use crate::testing::{Kernel, TestRuntime};

use super::execute::{Payload, Work};
use super::fuzz::{files, init, request, terms, transfer};
use super::wire::*;
use super::{Limits, Server};

const SIZE: u64 = 1 << 20;
/// Numbers of the two files.
const MAIN: u64 = 2;
const FIXED: u64 = 3;

type TestServer = Server<TestRuntime, Memory, Kernel>;

/// Runs `test` against a server that has agreed with the kernel.
fn with_server<F: std::future::Future<Output = ()> + 'static>(test: impl FnOnce(Kernel, TestServer) -> F) {
    let (runtime, kernel) = (TestRuntime::new(), Kernel::default());
    let server = Server::start(runtime.clone(), kernel.clone(), files(SIZE), terms(), Limits::default());
    let test = test(kernel.clone(), server.clone());
    let finished = runtime.block_on(async move {
        let agreed = ask(&kernel, init(1, MINOR)).await.expect("agreed");
        assert_eq!(agreed.len(), 64);
        test.await;
        server.close();
    });
    assert!(finished.is_some(), "an answer is missing");
    runtime.drop_tasks();
}

/// One request, one answer: its body or its errno.
async fn ask(kernel: &Kernel, bytes: Vec<u8>) -> Result<Vec<u8>, i32> {
    let unique = InHeader::read_from_prefix(&bytes).map_or(0, |(head, _)| head.unique);
    kernel.ask(bytes);
    let answer = kernel.answer().await;
    let (head, body) = OutHeader::read_from_prefix(&answer).expect("a head");
    assert_eq!((head.unique, head.len as usize), (unique, answer.len()));
    if head.error == 0 {
        Ok(body.to_vec())
    } else {
        assert!(body.is_empty());
        Err(-head.error)
    }
}

async fn read(kernel: &Kernel, node: u64, offset: u64, size: u32) -> Result<Vec<u8>, i32> {
    ask(kernel, request(opcode::READ, 10, node, &[transfer(offset, size, 0).as_bytes()])).await
}

async fn write(kernel: &Kernel, node: u64, offset: u64, data: &[u8]) -> Result<u32, i32> {
    let head = transfer(offset, data.len() as u32, 0);
    let body = ask(kernel, request(opcode::WRITE, 11, node, &[head.as_bytes(), data])).await?;
    Ok(WriteOut::read_from_bytes(&body).expect("a size").size)
}

async fn allocate(kernel: &Kernel, node: u64, offset: u64, length: u64, mode: u32) -> Result<(), i32> {
    let body = FallocateIn { fh: 0, offset, length, mode, padding: 0 };
    ask(kernel, request(opcode::FALLOCATE, 12, node, &[body.as_bytes()])).await.map(|body| assert!(body.is_empty()))
}

async fn seek(kernel: &Kernel, offset: u64, whence: u32) -> Result<u64, i32> {
    let body = LseekIn { fh: 0, offset, whence, padding: 0 };
    let found = ask(kernel, request(opcode::LSEEK, 13, MAIN, &[body.as_bytes()])).await?;
    Ok(u64::from_ne_bytes(found.try_into().expect("eight bytes")))
}

async fn set(kernel: &Kernel, valid: u32, size: u64) -> Result<AttrOut, i32> {
    let body = SetattrIn { valid, padding: 0, fh: 0, size };
    let body = ask(kernel, request(opcode::SETATTR, 14, MAIN, &[body.as_bytes(), &[0; 64]])).await?;
    Ok(AttrOut::read_from_bytes(&body).expect("attributes"))
}

#[test]
fn a_kernel_without_memory_for_a_moment_does_not_end_the_mount() {
    with_server(|kernel, _| async move {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::Interrupted, ErrorKind::OutOfMemory] {
            kernel.fail(kind);
        }
        assert_eq!(write(&kernel, MAIN, 0, &[7; 4096]).await, Ok(4096));
        kernel.fail(ErrorKind::OutOfMemory);
        assert_eq!(read(&kernel, MAIN, 0, 4096).await, Ok(vec![7; 4096]));
    });
}

#[test]
fn init_is_negotiated_within_bounds() {
    let (runtime, kernel) = (TestRuntime::new(), Kernel::default());
    let server = Server::start(runtime.clone(), kernel.clone(), files(SIZE), terms(), Limits::default());
    let finished = runtime.block_on(async move {
        assert_eq!(read(&kernel, MAIN, 0, 1).await, Err(errno::EIO), "nothing before INIT");
        assert_eq!(ask(&kernel, init(2, 30)).await, Err(errno::EPROTO), "too old");
        let newer = InitIn { major: 8, minor: 0, max_readahead: 0, flags: 0 };
        let answer = ask(&kernel, request(opcode::INIT, 3, 0, &[newer.as_bytes()])).await.expect("our version");
        assert_eq!(InitOut::read_from_bytes(&answer).expect("whole").major, 7);
        let short = ask(&kernel, request(opcode::INIT, 4, 0, &[&[0; 15]])).await;
        assert_eq!(short, Err(errno::EINVAL));
        let agreed = ask(&kernel, init(5, 99)).await.expect("agreed");
        let agreed = InitOut::read_from_bytes(&agreed).expect("whole");
        assert_eq!((agreed.major, agreed.minor), (7, MINOR), "not more than is known here");
        assert_eq!((agreed.max_write as usize, agreed.max_pages), (MAX_TRANSFER, 256));
        assert_eq!(agreed.flags & !0x448021, 0, "only what is wanted");
        assert_eq!(ask(&kernel, init(6, MINOR)).await, Err(errno::EIO), "once");
        server.close();
    });
    assert!(finished.is_some());
    runtime.drop_tasks();
    let plain = super::reply::init(0, 31, 4096);
    assert_eq!((plain.max_write, plain.max_pages), (32 * 4096, 32), "a kernel that does not count pages");
    let large = super::reply::init(u32::MAX, 38, 64 << 10);
    assert_eq!((large.max_write as usize, large.max_pages), (MAX_TRANSFER, 16), "larger pages, fewer of them");
}

#[test]
fn names_and_attributes() {
    with_server(|kernel, _| async move {
        let lookup = |node: u64, name: &'static [u8]| request(opcode::LOOKUP, 20, node, &[name]);
        let found = ask(&kernel, lookup(ROOT, b"main\0")).await.expect("there");
        let found = EntryOut::read_from_bytes(&found).expect("an entry");
        assert_eq!((found.nodeid, found.attr.size, found.attr.mode), (MAIN, SIZE, REGULAR | 0o600));
        assert_eq!((found.attr.uid, found.attr.gid, found.attr.times[1]), (7, 8, 9));
        let fixed = ask(&kernel, lookup(ROOT, b"fixed\0")).await.expect("there");
        assert_eq!(EntryOut::read_from_bytes(&fixed).expect("an entry").attr.mode, REGULAR | 0o400);
        assert_eq!(ask(&kernel, lookup(ROOT, b"other\0")).await, Err(errno::ENOENT));
        assert_eq!(ask(&kernel, lookup(ROOT, b"main")).await, Err(errno::EINVAL), "no end");
        assert_eq!(ask(&kernel, lookup(MAIN, b"main\0")).await, Err(errno::ENOTDIR));
        assert_eq!(ask(&kernel, lookup(99, b"main\0")).await, Err(errno::ENOENT));
        for (node, mode) in [(ROOT, DIRECTORY | 0o700), (MAIN, REGULAR | 0o600)] {
            let attr = ask(&kernel, request(opcode::GETATTR, 21, node, &[&[0; 16]])).await.expect("there");
            assert_eq!(AttrOut::read_from_bytes(&attr).expect("attributes").attr.mode, mode);
        }
        for node in [0, 4, u64::MAX] {
            assert_eq!(ask(&kernel, request(opcode::GETATTR, 22, node, &[&[0; 16]])).await, Err(errno::ENOENT));
        }
        assert_eq!(set(&kernel, 1 << 5, 0).await.expect("times").attr.size, SIZE);
        assert_eq!(set(&kernel, set_flag::SIZE, SIZE).await.expect("as it is").attr.size, SIZE);
        assert_eq!(set(&kernel, set_flag::SIZE, 0).await.err(), Some(errno::EPERM), "a volume is not cut off");
        assert_eq!(set(&kernel, set_flag::MODE, 0).await.err(), Some(errno::EPERM));
        let said = ask(&kernel, request(opcode::STATFS, 23, ROOT, &[])).await.expect("a file system");
        let said = StatfsOut::read_from_bytes(&said).expect("whole");
        assert_eq!((said.bsize, said.blocks), (4096, 2 * SIZE / 4096));
    });
}

/// Backups go by it.
#[test]
fn whatever_changes_a_volume_changes_the_time_of_its_file() {
    with_server(|kernel, server| async move {
        let volume = Memory::new(SIZE);
        let (uuid, name) = ([3; 16], "third".into());
        server.add(Export { uuid, name, description: String::new(), backend: volume.clone(), read_only: false });
        let times = async || {
            let attr = ask(&kernel, request(opcode::GETATTR, 21, 4, &[&[0; 16]])).await.expect("there");
            let attr = AttrOut::read_from_bytes(&attr).expect("attributes").attr;
            assert_eq!((attr.times[1], attr.times_nsec[1]), (attr.times[2], attr.times_nsec[2]), "both");
            (attr.times[1], attr.times_nsec[1])
        };
        let at_first = times().await;
        assert!(at_first.0 > 1_700_000_000 && times().await == at_first, "nothing was changed");
        assert_eq!(read(&kernel, 4, 0, 4).await.as_deref(), Ok(&[0; 4][..]));
        assert_eq!(times().await, at_first, "it was read only");
        assert_eq!(write(&kernel, 4, 0, b"data").await, Ok(4));
        let written = times().await;
        assert!(written > at_first && times().await == written);
        // By another client of the volume.
        volume.trim(0, 4096, WriteFlags::default()).await.expect("trimmed");
        assert!(times().await > written);
    });
}

#[test]
fn files_come_go_and_change_their_names_and_a_number_means_one_file_for_ever() {
    with_server(|kernel, server| async move {
        let number = async |name: &'static [u8]| {
            let found = ask(&kernel, request(opcode::LOOKUP, 20, ROOT, &[name])).await?;
            Ok(EntryOut::read_from_bytes(&found).expect("an entry").nodeid)
        };
        let new = |volume: u8, name: &str| Export {
            uuid: [volume; 16],
            name: name.into(),
            description: String::new(),
            backend: Memory::new(SIZE),
            read_only: false,
        };
        let (third, fourth) = ([3; 16], [4; 16]);
        server.add(new(3, "third"));
        server.add(new(3, "again"));
        assert_eq!(number(b"again\0").await, Err(errno::ENOENT), "a volume has one file");
        assert_eq!(number(b"third\0").await, Ok(4));
        assert_eq!(write(&kernel, 4, 0, b"data").await, Ok(4));
        server.rename(&third, "last");
        assert_eq!(number(b"third\0").await, Err(errno::ENOENT));
        assert_eq!(number(b"last\0").await, Ok(4));
        assert_eq!(read(&kernel, 4, 0, 4).await.as_deref(), Ok(&b"data"[..]));
        server.remove(&third);
        assert_eq!(number(b"last\0").await, Err(errno::ENOENT));
        assert_eq!(read(&kernel, 4, 0, 4).await, Err(errno::ENOENT), "whoever has it open");
        server.add(new(4, "last"));
        assert_eq!(number(b"last\0").await, Ok(5), "another file, another number");
        assert_eq!(read(&kernel, 4, 0, 4).await, Err(errno::ENOENT));
        let found = ask(&kernel, request(opcode::LOOKUP, 20, ROOT, &[b"last\0"])).await.expect("there");
        let found = EntryOut::read_from_bytes(&found).expect("an entry");
        assert_eq!(found.attr.ino, super::inode_of(&fourth), "by which the volume is known");
        assert_eq!((found.entry_valid, found.attr_valid), (0, 0), "and nothing is to be remembered");
        assert_eq!(number(b"main\0").await, Ok(MAIN));
    });
}

#[test]
fn who_has_a_file_open_is_counted() {
    with_server(|kernel, server| async move {
        let main = super::fuzz::files(SIZE)[0].uuid;
        let open = |node| request(opcode::OPEN, 24, node, &[&[0; 8]]);
        let release = |node| request(opcode::RELEASE, 25, node, &[&[0; 24]]);
        assert_eq!(server.opened(&main), 0);
        ask(&kernel, open(MAIN)).await.expect("opened");
        ask(&kernel, open(MAIN)).await.expect("opened");
        ask(&kernel, open(FIXED)).await.expect("opened");
        assert_eq!(server.opened(&main), 2);
        let volume = &server.0.tree.at(0).expect("a file").backend;
        assert_eq!(volume.arrivals(), 3, "both files are of one volume");
        ask(&kernel, release(MAIN)).await.expect("released");
        assert_eq!(server.opened(&main), 1);
        ask(&kernel, release(MAIN)).await.expect("released");
        ask(&kernel, release(MAIN)).await.expect("once too often");
        assert_eq!((server.opened(&main), server.opened(&[9; 16])), (0, 0));
        assert_eq!(volume.present(), 1, "the other file is still open");
    });
}

#[test]
fn directories_are_listed_in_parts() {
    with_server(|kernel, _| async move {
        let list = |offset, size| request(opcode::READDIR, 30, ROOT, &[transfer(offset, size, 0).as_bytes()]);
        let names = |mut body: &[u8]| {
            let mut found = Vec::new();
            while let Ok((entry, rest)) = Dirent::read_from_prefix(body) {
                let len = entry.namelen as usize;
                found.push((String::from_utf8_lossy(&rest[..len]).into_owned(), entry.ino, entry.off));
                body = &body[(24 + len).next_multiple_of(8)..];
            }
            assert!(body.is_empty());
            found
        };
        let all = names(&ask(&kernel, list(0, 4096)).await.expect("listed"));
        let expected = [(".", ROOT, 1), ("..", ROOT, 2), ("main", MAIN, 3), ("fixed", FIXED, 4)];
        assert_eq!(all, expected.map(|(name, ino, off)| (name.to_owned(), ino, off)));
        let mut parts = Vec::new();
        loop {
            let part = names(&ask(&kernel, list(parts.len() as u64, 40)).await.expect("listed"));
            assert!(part.len() <= 1);
            if part.is_empty() {
                break;
            }
            parts.extend(part);
        }
        assert_eq!(parts, all);
        assert_eq!(ask(&kernel, list(u64::MAX, 4096)).await, Ok(vec![]));
        assert_eq!(ask(&kernel, list(0, 0)).await, Ok(vec![]));
        let opened = ask(&kernel, request(opcode::OPENDIR, 31, ROOT, &[&[0; 8]])).await.expect("opened");
        assert_eq!(opened.len(), 16);
        let wrong = request(opcode::READDIR, 32, MAIN, &[transfer(0, 4096, 0).as_bytes()]);
        assert_eq!(ask(&kernel, wrong).await, Err(errno::ENOTDIR));
    });
}

#[test]
fn files_are_opened_for_direct_io_and_fixed_ones_only_to_read() {
    with_server(|kernel, _| async move {
        let open = |node, flags: u32| request(opcode::OPEN, 40, node, &[&flags.to_ne_bytes(), &[0; 4]]);
        let opened = ask(&kernel, open(MAIN, 2)).await.expect("opened");
        let flags = OpenOut::read_from_bytes(&opened).expect("whole").open_flags;
        assert_eq!(flags, open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES | open_flag::NOFLUSH);
        assert!(ask(&kernel, open(FIXED, 0)).await.is_ok());
        for flags in [1, 2, 3] {
            assert_eq!(ask(&kernel, open(FIXED, flags)).await, Err(errno::EROFS));
        }
        assert_eq!(ask(&kernel, open(ROOT, 0)).await, Err(errno::EISDIR));
        assert_eq!(write(&kernel, FIXED, 0, &[1]).await, Err(errno::EROFS));
        assert_eq!(allocate(&kernel, FIXED, 0, 4096, 3).await, Err(errno::EROFS));
    });
}

#[test]
fn data_comes_back_and_ends_with_the_volume() {
    with_server(|kernel, server| async move {
        assert_eq!(read(&kernel, MAIN, 0, 5000).await, Ok(vec![0; 5000]));
        // Small, unaligned, and as large as it gets.
        let large: Vec<u8> = (0..SIZE).map(|i| (i / 512) as u8).collect();
        assert_eq!(write(&kernel, MAIN, 0, &large).await, Ok(SIZE as u32));
        assert_eq!(read(&kernel, MAIN, 0, SIZE as u32).await, Ok(large.clone()));
        assert_eq!(write(&kernel, MAIN, 1000, b"small").await, Ok(5));
        assert_eq!(write(&kernel, MAIN, 512, &[7; 20_000]).await, Ok(20_000));
        let back = read(&kernel, FIXED, 0, 32 << 10).await.expect("read");
        assert_eq!(
            (&back[..512], &back[512..20_512], &back[20_512..]),
            (&large[..512], &[7; 20_000][..], &large[20_512..32 << 10])
        );
        assert_eq!(read(&kernel, MAIN, SIZE - 10, 100).await, Ok(large[large.len() - 10..].to_vec()));
        for offset in [SIZE, SIZE + 1, u64::MAX] {
            assert_eq!(read(&kernel, MAIN, offset, 100).await, Ok(vec![]));
            assert_eq!(write(&kernel, MAIN, offset, b"x").await, Err(errno::ENOSPC));
        }
        assert_eq!(write(&kernel, MAIN, SIZE - 3, b"abcdef").await, Ok(3), "as much as fits");
        assert_eq!(read(&kernel, MAIN, SIZE - 3, 3).await, Ok(b"abc".to_vec()));
        assert_eq!(write(&kernel, MAIN, 0, &[]).await, Ok(0));
        assert_eq!(read(&kernel, MAIN, 0, MAX_TRANSFER as u32 + 1).await, Err(errno::EINVAL));
        assert_eq!(read(&kernel, ROOT, 0, 1).await, Err(errno::EISDIR));
        let synced = request(opcode::FSYNC, 50, MAIN, &[&[0; 16]]);
        assert_eq!(ask(&kernel, synced).await, Ok(vec![]));
        let status = server.status();
        assert!(status.in_flight == 0 && server.0.room.is_idle());
        assert!(status.answered > 15 && status.refused == 5, "{} {}", status.answered, status.refused);
    });
}

#[test]
fn holes_and_zeros_are_exact() {
    const PUNCH: u32 = alloc_mode::PUNCH_HOLE | alloc_mode::KEEP_SIZE;
    with_server(|kernel, _| async move {
        assert_eq!(write(&kernel, MAIN, 0, &[9; 65_536]).await, Ok(65_536));
        assert_eq!(allocate(&kernel, MAIN, 4096, 8192, PUNCH).await, Ok(()));
        assert_eq!(seek(&kernel, 0, SEEK_HOLE).await, Ok(4096), "whole blocks hold nothing");
        assert_eq!(seek(&kernel, 4096, SEEK_DATA).await, Ok(12_288));
        assert_eq!(allocate(&kernel, MAIN, 20_000, 1000, PUNCH).await, Ok(()));
        let back = read(&kernel, MAIN, 19_999, 1002).await.expect("read");
        assert_eq!(
            (back[0], &back[1..1001], back[1001]),
            (9, &[0; 1000][..], 9),
            "a part of a block is zeroed exactly"
        );
        assert_eq!(allocate(&kernel, MAIN, 32_768, 4096, alloc_mode::ZERO_RANGE).await, Ok(()));
        assert_eq!(read(&kernel, MAIN, 32_768, 4096).await, Ok(vec![0; 4096]));
        assert_eq!(seek(&kernel, 16_384, SEEK_HOLE).await, Ok(65_536), "zeros keep their room");
        assert_eq!(allocate(&kernel, MAIN, 0, SIZE, 0).await, Ok(()), "it has all its space");
        assert_eq!(allocate(&kernel, MAIN, 0, SIZE + 1, 0).await, Err(errno::ENOSPC));
        assert_eq!(allocate(&kernel, MAIN, SIZE, 1, alloc_mode::KEEP_SIZE).await, Err(errno::ENOSPC));
        assert_eq!(allocate(&kernel, MAIN, SIZE - 4096, 1 << 40, PUNCH).await, Ok(()), "only what is there");
        assert_eq!(allocate(&kernel, MAIN, SIZE, 4096, PUNCH).await, Ok(()));
        assert_eq!(allocate(&kernel, MAIN, 1, u64::MAX, PUNCH).await, Err(errno::EINVAL));
        assert_eq!(allocate(&kernel, MAIN, 0, 0, PUNCH).await, Err(errno::EINVAL));
        for mode in [alloc_mode::PUNCH_HOLE, 8, 32, 64, 19, u32::MAX] {
            assert_eq!(allocate(&kernel, MAIN, 0, 4096, mode).await, Err(errno::EOPNOTSUPP), "mode {mode}");
        }
        assert_eq!(read(&kernel, MAIN, 0, 4096).await, Ok(vec![9; 4096]), "untouched");
    });
}

#[test]
fn seeking_ends_with_the_volume() {
    with_server(|kernel, _| async move {
        assert_eq!(seek(&kernel, 0, SEEK_DATA).await, Err(errno::ENXIO));
        assert_eq!(seek(&kernel, 0, SEEK_HOLE).await, Ok(0));
        assert_eq!(write(&kernel, MAIN, SIZE - 4096, &[1; 4096]).await, Ok(4096));
        assert_eq!(seek(&kernel, 0, SEEK_DATA).await, Ok(SIZE - 4096));
        assert_eq!(seek(&kernel, SIZE - 1, SEEK_HOLE).await, Ok(SIZE), "the end is a hole");
        assert_eq!(seek(&kernel, SIZE, SEEK_DATA).await, Err(errno::ENXIO));
        assert_eq!(seek(&kernel, 0, 0).await, Err(errno::EINVAL));
    });
}

#[test]
fn what_is_unknown_or_wrong_is_refused_and_farewells_are_not() {
    with_server(|kernel, _| async move {
        for unknown in
            [5, 6, 8, 9, 10, 11, 12, 13, 21, 22, 23, 24, 25, 30, 31, 34, 35, 37, 39, 40, 44, 45, 47, 50, 51, 4096]
        {
            assert_eq!(ask(&kernel, request(unknown, 60, MAIN, &[&[0; 128]])).await, Err(errno::ENOSYS), "{unknown}");
        }
        for short in [opcode::READ, opcode::OPEN, opcode::FALLOCATE, opcode::LSEEK, opcode::SETATTR, opcode::READDIR] {
            assert_eq!(ask(&kernel, request(short, 61, MAIN, &[&[0; 7]])).await, Err(errno::EINVAL), "{short}");
        }
        let head = transfer(0, 100, 0);
        for len in [0, 99, 101] {
            let wrong = request(opcode::WRITE, 62, MAIN, &[head.as_bytes(), &vec![0; len]]);
            assert_eq!(ask(&kernel, wrong).await, Err(errno::EINVAL), "a payload of {len} for 100");
        }
        let mut lies = request(opcode::GETATTR, 63, MAIN, &[&[0; 16]]);
        lies[0] += 1;
        assert_eq!(ask(&kernel, lies).await, Err(errno::EIO), "a length that is not that of the message");
        let mut extended = request(opcode::LOOKUP, 64, ROOT, &[b"main\0\0\0\0", &[1; 16]]);
        extended[36] = 2;
        assert!(ask(&kernel, extended.clone()).await.is_ok(), "extensions are passed over");
        extended[36] = 200;
        assert_eq!(ask(&kernel, extended).await, Err(errno::EINVAL));
        for (opcode, body) in
            [(opcode::FORGET, 8), (opcode::BATCH_FORGET, 8), (opcode::INTERRUPT, 8), (opcode::FORGET, 0)]
        {
            kernel.ask(request(opcode, 65, MAIN, &[&vec![0; body]]));
        }
        kernel.ask(vec![1; 39]);
        kernel.ask(Vec::new());
        // Nothing of these is answered: the next answer belongs to the next request.
        for farewell in [opcode::RELEASE, opcode::RELEASEDIR, opcode::DESTROY] {
            assert_eq!(ask(&kernel, request(farewell, 66, MAIN, &[&[0; 24]])).await, Ok(vec![]));
        }
    });
}

#[test]
fn many_at_a_time_are_all_answered() {
    with_server(|kernel, _| async move {
        for i in 0..200 {
            kernel.ask(request(opcode::READ, 1000 + i, MAIN, &[transfer(i * 4096, 4096, 0).as_bytes()]));
        }
        let mut numbers = Vec::new();
        for _ in 0..200 {
            let answer = kernel.answer().await;
            assert_eq!(answer.len(), 16 + 4096);
            numbers.push(OutHeader::read_from_prefix(&answer).expect("a head").0.unique);
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1000..1200));
    });
}

/// What was taken before is done, but for what may take hours.
#[test]
fn a_stop_does_not_wait_for_the_end_of_a_zeroing() {
    with_server(|kernel, server| async move {
        write(&kernel, MAIN, 0, &[1; 8192]).await.expect("written");
        let file = 0;
        let write = Work::Write {
            file,
            offset: 4096,
            len: 4096,
            durable: false,
            payload: Payload { data: BufMut::copy_of(&[2; 4096]).freeze(), area: None },
        };
        let zero = Work::Zero { file, offset: 0, len: 8192, keep: true };
        server.0.stopping.set(true);
        for (work, error) in [(write, 0), (zero, -errno::ESHUTDOWN)] {
            server.0.admit(server.0.answer_to(99), work);
            let answer = kernel.answer().await;
            let (head, _) = OutHeader::read_from_prefix(&answer).expect("a head");
            assert_eq!((head.unique, head.error), (99, error));
        }
        server.0.stopping.set(false);
        assert_eq!(read(&kernel, MAIN, 0, 8192).await, Ok([[1; 4096], [2; 4096]].concat()));
    });
}

/// `umount -f` of a mount that hangs, for one: the same place may have been written anew by the time its turn has come.
#[test]
fn nothing_is_written_for_a_mount_that_has_ended() {
    with_server(|kernel, server| async move {
        write(&kernel, MAIN, 0, &[1; 8192]).await.expect("written");
        let file = 0;
        let payload = Payload { data: BufMut::copy_of(&[2; 4096]).freeze(), area: None };
        let write = Work::Write { file, offset: 0, len: 4096, durable: false, payload };
        let zero = Work::Zero { file, offset: 0, len: 4096, keep: true };
        let trim = Work::Zero { file, offset: 4096, len: 4096, keep: false };
        server.0.ended.set(true);
        for work in [write, zero, trim] {
            server.0.admit(server.0.answer_to(99), work);
            let answer = kernel.answer().await;
            assert_eq!(OutHeader::read_from_prefix(&answer).expect("a head").0.error, -errno::ESHUTDOWN);
        }
        let backend = &server.0.tree.at(file).expect("a file").backend;
        let pieces = backend.read(0, 8192).await.expect("read");
        assert!(matches!(&pieces[..], [Piece::Data(d)] if d[..] == [1; 8192]));
    });
}

#[test]
fn a_stop_refuses_work_but_not_farewells_and_the_end_of_the_mount_ends_the_server() {
    with_server(|kernel, server| async move {
        assert!(server.finish(Duration::from_secs(1)).await);
        assert_eq!(read(&kernel, MAIN, 0, 1).await, Err(errno::ESHUTDOWN));
        assert_eq!(write(&kernel, MAIN, 0, b"x").await, Err(errno::ESHUTDOWN));
        assert!(ask(&kernel, request(opcode::RELEASE, 70, MAIN, &[&[0; 24]])).await.is_ok());
        kernel.unmount();
        server.0.closed.wait_until(|| server.0.ended.get()).await;
        assert!(server.status().ended);
    });
}

//! Requests of a kernel gone mad.

use zerocopy::{FromBytes, IntoBytes};

use crate::backends::Memory;
use crate::nbd::Export;
use crate::testing::{Kernel, TestRuntime};

use super::wire::*;
use super::{Limits, Server, Terms};

/// Size of the volumes, in bytes.
const SIZE: u64 = 4 << 20;
/// Longest request, in bytes.
const LONGEST: usize = 8 << 10;

pub(super) fn terms() -> Terms {
    Terms { page_size: 4096, uid: 7, gid: 8, since: 9 }
}

/// A writable file `main`, and `fixed` of the same volume, which is not.
pub(super) fn files(size: u64) -> Vec<Export<Memory>> {
    let memory = Memory::new(size);
    // They begin with zeros: files of such volumes have small numbers.
    let uuid = |n| [0, 0, 0, 0, 0, 0, 0, 0, n, 0, 0, 0, 0, 0, 0, 0];
    let file = |n, name: &str, backend, read_only| Export {
        uuid: uuid(n),
        name: name.into(),
        description: String::new(),
        backend,
        read_only,
    };
    vec![file(1, "main", memory.clone(), false), file(2, "fixed", memory.as_read_only(), true)]
}

/// A request as the kernel would send it.
pub(super) fn request(opcode: u32, unique: u64, nodeid: u64, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let head = InHeader { len, opcode, unique, nodeid, uid: 0, gid: 0, pid: 1, total_extlen: 0, padding: 0 };
    [head.as_bytes(), &body].concat()
}

pub(super) fn init(unique: u64, minor: u32) -> Vec<u8> {
    let flags = u32::MAX;
    request(opcode::INIT, unique, 0, &[InitIn { major: MAJOR, minor, max_readahead: 0, flags }.as_bytes(), &[0; 48]])
}

/// READ, WRITE and READDIR.
pub(super) fn transfer(offset: u64, size: u32, flags: u32) -> TransferIn {
    TransferIn { fh: 0, offset, size, transfer_flags: 0, lock_owner: 0, flags, padding: 0 }
}

/// Gives requests to a server and expects an answer to each that wants one, well formed, and an end. The first byte
/// says whether INIT comes first and whether lengths are made right; then, again and again, two bytes of length and a
/// request.
pub fn fuzz_fuse(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let (runtime, kernel) = (TestRuntime::new(), Kernel::default());
    let limits = Limits {
        requests: 4,
        bytes: 16 << 10,
        own_requests: 1,
        own_bytes: 4 << 10,
        waiting_requests: 4,
        waiting_bytes: 8 << 10,
    };
    let server = Server::start(runtime.clone(), kernel.clone(), files(SIZE), terms(), limits);
    let mut expected = Vec::new();
    if choice & 1 == 0 {
        kernel.ask(init(1, MINOR));
        expected.push(1);
    }
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(after.len()).min(LONGEST);
        let (bytes, after) = after.split_at(len);
        rest = after;
        let mut bytes = bytes.to_vec();
        if choice & 2 == 0 && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        }
        if let Ok((head, _)) = InHeader::read_from_prefix(&bytes) {
            if !matches!(head.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
                expected.push(head.unique);
            }
        }
        kernel.ask(bytes);
    }
    kernel.unmount();
    let waiting = server.clone();
    let finished = runtime.block_on(async move {
        waiting.0.closed.wait_until(|| waiting.0.ended.get()).await;
        assert!(waiting.finish(std::time::Duration::from_secs(10)).await, "a request is not answered");
    });
    assert!(finished.is_some(), "the server hangs");
    assert!(server.status().in_flight == 0 && server.0.room.is_idle(), "the server lost count");
    let mut answered: Vec<u64> = kernel.answers().iter().map(|a| check_answer(a)).collect();
    answered.sort_unstable();
    expected.sort_unstable();
    assert_eq!(answered, expected, "one answer to each request that wants one");
    runtime.drop_tasks();
}

/// What the kernel wants of an answer. Gives its number.
fn check_answer(bytes: &[u8]) -> u64 {
    let (head, body) = OutHeader::read_from_prefix(bytes).expect("an answer has a head");
    assert_eq!(head.len as usize, bytes.len());
    assert!((-511..=0).contains(&head.error), "error {}", head.error);
    assert!(head.error == 0 || body.is_empty(), "an error has no body");
    head.unique
}

/// Valid requests with, most often, some bits changed.
pub fn broken_kernel_stream(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % n.max(1)
    };
    let mut stream = vec![if random(8) == 0 { random(4) as u8 } else { 0 }];
    for unique in 2..2 + random(12) {
        let (node, offset) = (1 + random(4), random(SIZE + 8192) >> (random(4) * 3));
        let len = random(3) * 4096 + random(2) * random(600);
        let mut bytes = match random(10) {
            0 => request(opcode::LOOKUP, unique, node, &[&b"main\0fixed\0x"[random(6) as usize..]]),
            1 => request(opcode::OPEN, unique, node, &[&(random(3) as u32).to_ne_bytes(), &[0; 4]]),
            2 | 3 => request(opcode::READ, unique, node, &[transfer(offset, len as u32, 0).as_bytes()]),
            4 | 5 => {
                let flags = random(2) as u32 * O_DSYNC;
                let data = vec![unique as u8; (len as usize).min(LONGEST - 80)];
                request(opcode::WRITE, unique, node, &[transfer(offset, data.len() as u32, flags).as_bytes(), &data])
            }
            6 => request(opcode::READDIR, unique, node, &[transfer(random(5), random(200) as u32, 0).as_bytes()]),
            7 => {
                let body = FallocateIn { fh: 0, offset, length: len, mode: random(32) as u32, padding: 0 };
                request(opcode::FALLOCATE, unique, node, &[body.as_bytes()])
            }
            8 => {
                let body = LseekIn { fh: 0, offset, whence: random(6) as u32, padding: 0 };
                request(opcode::LSEEK, unique, node, &[body.as_bytes()])
            }
            _ => request(random(53) as u32, unique, node, &[&[random(256) as u8; 120][..random(120) as usize]]),
        };
        for _ in 0..random(4) * random(2) {
            let at = random(bytes.len().min(120) as u64) as usize;
            bytes[at] ^= 1 << random(8);
        }
        stream.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        stream.extend_from_slice(&bytes);
    }
    stream
}

//! At a steady load a request allocates nothing, from its first byte to the last of its answer: engine, reactor and
//! server together, on a real group of two files.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bimetal_export::{Export, Limits, Server};
use bimetal_host::device::{Access, HostDevice};
use bimetal_host::net::Stream;
use bimetal_host::{HostEnv, Reactor};
use bimetal_volume::env::Env;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier};
use bimetal_volume::{Group, Volume};

const MIB: u64 = 1 << 20;
/// Requests in flight.
const DEPTH: usize = 16;
/// Requests until everything has its size, and then those that are counted.
const WARM: usize = 20_000;
const COUNTED: usize = 10_000;
/// Part of the volume that is used: on the fast tier, with every block written.
const AREA: u64 = 8 * MIB;
/// What the group does once in a while (commits, its clocks, a plan of the mover) may allocate: far less than once for
/// a hundred requests.
const MOST: u64 = COUNTED as u64 / 100;

#[test]
fn a_request_allocates_nothing() {
    // Less than the client asks for at a time: it waits for room again and again.
    let little = Limits { own_requests: 0, own_bytes: 0, bytes: 4 * 4096, ..Limits::default() };
    let loads = [
        ("reads", 0, Limits::default()),
        ("writes", 1, Limits::default()),
        ("reads and writes", 3, Limits::default()),
        ("with little room", 3, little),
    ];
    let seen = loads.map(|(name, write_every, limits)| (name, serve_and_count(write_every, limits)));
    assert!(seen.iter().all(|(_, n)| *n <= MOST), "allocations for {COUNTED} requests: {seen:?}");
}

/// Serves a load, every so many requests of which is a write (0: none); allocations of the server's thread during the
/// counted part.
fn serve_and_count(write_every: usize, limits: Limits) -> u64 {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let answered = Arc::new(AtomicUsize::new(0));
    let client = {
        let answered = answered.clone();
        std::thread::spawn(move || load(theirs, write_every, &answered))
    };
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let (group, server) = {
        let (env, dir) = (env.clone(), dir.path().to_owned());
        reactor.block_on(async move {
            let (group, volume) = group(&env, &dir).await;
            let export = Export {
                uuid: [1; 16],
                name: "main".into(),
                description: String::new(),
                backend: volume,
                read_only: false,
            };
            let server = Server::new(env.clone(), vec![export], limits);
            server.serve(Stream::from_fd(&env, ours.into(), "test"), "test".into());
            (group, server)
        })
    };
    let run_until = |requests: usize| {
        let (env, answered) = (env.clone(), answered.clone());
        reactor.block_on(async move {
            while answered.load(Ordering::Relaxed) < requests {
                env.sleep(Duration::from_millis(1)).await;
            }
        });
    };
    run_until(WARM);
    let counted = allocation_counter::measure(|| run_until(WARM + COUNTED));
    run_until(usize::MAX);
    client.join().expect("the client ends in peace");
    reactor.block_on(async move {
        server.stop().await;
        group.stop().await.expect("an orderly stop");
    });
    counted.count_total
}

async fn group(env: &HostEnv, dir: &Path) -> (Group<HostEnv>, Volume<HostEnv>) {
    let mut members = Vec::new();
    for (name, tier, size) in [("fast", Tier::Fast, 64 * MIB), ("slow", Tier::Slow, 128 * MIB)] {
        let path = dir.join(name);
        std::fs::File::create(&path).and_then(|f| f.set_len(size)).expect("a sparse file");
        let locator = path.to_str().expect("utf-8").parse().expect("a locator");
        members.push((HostDevice::open(env, &locator, Access::SERVE).await.expect("the file opens"), tier));
    }
    let options = CreateOptions {
        name: "test".into(),
        volumes: vec![NewVolume { name: "main".into(), size: None, placement: Placement::Auto }],
        sector_size: 4096,
        reserve: None,
        journal_blocks: None,
    };
    let devices = members.iter().map(|(d, _)| d.clone()).collect();
    Group::create(env, members, &options).await.expect("creation");
    let group = Group::open(env.clone(), devices, OpenOptions::default()).await.expect("the group opens");
    let volume = group.volume("main").expect("made at creation");
    (group, volume)
}

/// An NBD client that allocates nothing either, and knows nothing but simple replies.
fn load(mut socket: UnixStream, write_every: usize, answered: &AtomicUsize) {
    negotiate(&mut socket);
    let mut block = [7u8; 28 + 4096];
    for i in 0..AREA / 4096 {
        send(&mut socket, &mut block, true, i, i * 4096);
        receive(&mut socket, &mut block, 0);
    }
    let mut state = 1u64;
    let mut write = [false; DEPTH];
    let mut next = |socket: &mut UnixStream, block: &mut [u8], write: &mut [bool; DEPTH], n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let slot = n % DEPTH;
        write[slot] = write_every != 0 && n % write_every == 0;
        send(socket, block, write[slot], slot as u64, (state >> 33) % (AREA / 4096) * 4096);
    };
    // In groups, all of which are answered before the next: an answer's slot is then free.
    for n in 0..(WARM + COUNTED + 1000) / DEPTH {
        for i in 0..DEPTH {
            next(&mut socket, &mut block, &mut write, n * DEPTH + i);
        }
        for _ in 0..DEPTH {
            let mut head = [0u8; 16];
            socket.read_exact(&mut head).expect("an answer");
            assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
            let slot = u64::from_be_bytes(head[8..].try_into().expect("8 bytes")) as usize;
            if !write[slot] {
                socket.read_exact(&mut block[28..]).expect("data");
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    answered.store(usize::MAX, Ordering::Relaxed);
    send_head(&mut block, 2, 0, 0, 0);
    socket.write_all(&block[..28]).expect("a farewell");
}

fn negotiate(socket: &mut UnixStream) {
    let mut greeting = [0u8; 18];
    socket.read_exact(&mut greeting).expect("a greeting");
    socket.write_all(&3u32.to_be_bytes()).expect("flags");
    socket.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04main").expect("an option");
    let mut answer = [0u8; 10];
    socket.read_exact(&mut answer).expect("size and flags");
}

fn send_head(block: &mut [u8], command: u16, cookie: u64, offset: u64, len: u32) {
    block[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
    block[4..6].copy_from_slice(&[0, 0]);
    block[6..8].copy_from_slice(&command.to_be_bytes());
    block[8..16].copy_from_slice(&cookie.to_be_bytes());
    block[16..24].copy_from_slice(&offset.to_be_bytes());
    block[24..28].copy_from_slice(&len.to_be_bytes());
}

fn send(socket: &mut UnixStream, block: &mut [u8], write: bool, cookie: u64, offset: u64) {
    send_head(block, u16::from(write), cookie, offset, 4096);
    let len = if write { 28 + 4096 } else { 28 };
    socket.write_all(&block[..len]).expect("the server takes it");
}

fn receive(socket: &mut UnixStream, block: &mut [u8], data: usize) {
    socket.read_exact(&mut block[..16 + data]).expect("an answer");
    assert_eq!(block[4..8], [0; 4], "an error");
}

use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bimetal_nbd::consts::{opt, rep, reply_flag, reply_type, server_flag};
use bimetal_nbd::handshake::{encode_option_reply, Greeting, OptionHeader};
use bimetal_nbd::option::Info;
use bimetal_nbd::reply::Chunk;
use bimetal_nbd::request::{HeaderStyle, Request};
use bimetal_volume::env::Env;

mod asleep;
mod lease;
mod readers;
mod rivals;
mod unsent;

use super::*;
use crate::net::{Listener, Part};
use crate::reactor::Reactor;

/// For servers whose answers are looked at: a lock would ask them first.
const UNLOCKED: Access = Access { write: true, lock: false, ask: false };

/// An nbdkit that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts nbdkit on a socket in `dir`; `None`, with words, if there is none here.
fn nbdkit(dir: &Path, args: &[&str]) -> Option<(Server, NbdLocator)> {
    let socket = dir.join("s.sock");
    let child = Command::new("nbdkit").args(["-f", "-U"]).arg(&socket).args(args).stderr(Stdio::null()).spawn();
    let Ok(child) = child else {
        eprintln!("skipped: nbdkit is not installed");
        return None;
    };
    let server = Server(child);
    for _ in 0..3000 {
        // It is there a moment before it listens.
        if UnixStream::connect(&socket).is_ok() {
            return Some((server, NbdLocator { server: NbdServer::Unix(socket), export: String::new() }));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nbdkit {args:?} did not start");
}

fn pattern(seed: u64, len: usize) -> Buf {
    let mut buf = BufMut::new(len);
    for (i, byte) in buf.iter_mut().enumerate() {
        *byte = (seed as usize * 31 + i / 512 * 7 + i) as u8;
    }
    buf.freeze()
}

fn run(args: &[&str], test: impl AsyncFnOnce(HostEnv, NbdLocator, Server) + 'static) {
    let dir = tempfile::tempdir().expect("temp dir");
    let Some((server, locator)) = nbdkit(dir.path(), args) else { return };
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move { test(env, locator, server).await });
}

#[test]
fn many_requests_in_flight_read_what_was_written() {
    run(&["memory", "64M"], async |env, locator, _server| {
        let device = NbdDevice::open(&env, &locator, Access::SERVE).await.expect("opens");
        assert_eq!(device.size(), 64 << 20);
        assert!(device.traits().discard);
        let left = Rc::new(Cell::new(64));
        for i in 0..64u64 {
            let (device, left) = (device.clone(), left.clone());
            env.spawn(async move {
                let len = 4096 << (i % 7);
                let data = pattern(i, len);
                device.write(i << 20, data.clone()).await.expect("written");
                let (back, result) = device.read(i << 20, BufMut::new(len)).await;
                result.expect("read");
                assert!(*back == *data, "block {i}");
                left.set(left.get() - 1);
            });
        }
        while left.get() > 0 {
            env.sleep(Duration::from_millis(1)).await;
        }
        device.sync().await.expect("flushed");
        device.discard(1 << 20, 1 << 20).await.expect("trimmed");
        let (back, result) = device.read(1 << 20, BufMut::new(8192)).await;
        result.expect("read");
        assert!(back.iter().all(|b| *b == 0), "the memory plugin zeroes what is trimmed");
    });
}

#[test]
fn requests_larger_than_the_server_takes_are_split() {
    run(
        &[
            "--filter=blocksize-policy",
            "memory",
            "64M",
            "blocksize-minimum=512",
            "blocksize-preferred=4096",
            "blocksize-maximum=64K",
            "blocksize-error-policy=error",
        ],
        async |env, locator, _server| {
            let device = NbdDevice::open(&env, &locator, Access::SERVE).await.expect("opens");
            let data = pattern(3, 1 << 20);
            device.write(4096, data.clone()).await.expect("written in parts");
            let (back, result) = device.read(4096, BufMut::new(1 << 20)).await;
            result.expect("read in parts");
            assert!(*back == *data);
        },
    );
}

#[test]
fn a_server_without_flush_or_with_too_large_blocks_is_refused_in_words() {
    run(
        &["eval", "get_size=echo 1048576", "pread=head -c $3 /dev/zero", "pwrite=cat >/dev/null"],
        async |env, locator, _server| {
            let error = NbdDevice::open(&env, &locator, Access::SERVE).await.err().expect("refused").to_string();
            assert!(error.contains("FLUSH"), "{error}");
            let device = NbdDevice::open(&env, &locator, Access::PEEK).await.expect("reading is fine");
            let (_, result) = device.read(0, BufMut::new(4096)).await;
            result.expect("read");
            device.sync().await.expect("a group that is only read syncs its members, too");
        },
    );
    let policy = [
        "--filter=blocksize-policy",
        "memory",
        "64M",
        "blocksize-minimum=65536",
        "blocksize-preferred=65536",
        "blocksize-maximum=1M",
    ];
    run(&policy, async |env, locator, _server| {
        let error = NbdDevice::open(&env, &locator, Access::SERVE).await.err().expect("refused").to_string();
        assert!(error.contains("65536"), "{error}");
    });
}

#[test]
fn a_read_only_export_is_refused_for_writing() {
    run(&["-r", "memory", "1M"], async |env, locator, _server| {
        let error = NbdDevice::open(&env, &locator, Access::SERVE).await.err().expect("refused").to_string();
        assert!(error.contains("read-only"), "{error}");
    });
}

#[test]
fn errors_of_the_server_come_through() {
    let script = [
        "eval",
        "get_size=echo 1048576",
        "can_write=exit 0",
        "can_flush=exit 0",
        "flush=exit 0",
        "pread=echo EIO broken >&2; exit 1",
        "pwrite=cat >/dev/null; echo ENOSPC full >&2; exit 1",
    ];
    run(&script, async |env, locator, _server| {
        let device = NbdDevice::open(&env, &locator, UNLOCKED).await.expect("opens");
        let (_, result) = device.read(0, BufMut::new(4096)).await;
        assert_eq!(result, Err(DeviceError::Io(libc::EIO)));
        assert_eq!(device.write(0, pattern(0, 4096)).await, Err(DeviceError::RemoteNoSpace));
        assert!(!DeviceError::RemoteNoSpace.to_string().contains("file system"));
        device.sync().await.expect("the connection goes on");
    });
}

#[test]
fn a_lost_server_fails_what_is_in_flight_and_all_that_follows() {
    run(&["--filter=delay", "memory", "1M", "delay-read=30"], async |env, locator, server| {
        let device = NbdDevice::open(&env, &locator, UNLOCKED).await.expect("opens");
        let reading = device.clone();
        let failed = Rc::new(Cell::new(false));
        let flag = failed.clone();
        env.spawn(async move {
            let (buf, result) = reading.read(0, BufMut::new(4096)).await;
            assert_eq!((buf.len(), result), (4096, Err(DeviceError::Disconnected)));
            flag.set(true);
        });
        env.sleep(Duration::from_millis(50)).await;
        drop(server);
        // The server would answer after 30 s; the end of the connection comes first.
        while !failed.get() {
            env.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(device.write(0, pattern(0, 4096)).await, Err(DeviceError::Disconnected));
        assert_eq!(device.sync().await, Err(DeviceError::Disconnected));
        let lost = device.answering().lost.expect("a reason");
        assert!(lost.contains("closed the connection") || lost.contains("reset"), "{lost}");
    });
}

/// The half of a server in memory, up to the first request.
async fn shake_hands(stream: &Stream) -> Input {
    let mut input = Input::new(stream.clone());
    let mut out = Greeting { flags: server_flag::FIXED_NEWSTYLE }.encode().to_vec();
    let said = async |out: &mut Vec<u8>| stream.send(vec![Part::Bytes(std::mem::take(out))]).await.1.expect("sent");
    said(&mut out).await;
    input.take(4).await.expect("flags");
    for _ in 0..2 {
        let header = OptionHeader::decode(&input.array().await.expect("an option")).expect("an option");
        input.take_vec(header.len as usize).await.expect("its data");
        if header.option == opt::GO {
            let flags = export_flag::HAS_FLAGS | export_flag::SEND_FLUSH | export_flag::SEND_TRIM;
            encode_option_reply(opt::GO, rep::INFO, &Info::Export { size: 1 << 20, flags }.encode(), &mut out);
        }
        encode_option_reply(header.option, rep::ACK, &[], &mut out);
        said(&mut out).await;
    }
    input
}

/// A server in memory that answers the first read with these chunks: where each begins and how long it is, a hole or data.
async fn serve_chunks(stream: Stream, chunks: &[(u64, u32, bool)]) {
    let mut input = shake_hands(&stream).await;
    let mut out = Vec::new();
    let request = input.take(HeaderStyle::Structured.request_size()).await.expect("a read");
    let request = Request::decode(HeaderStyle::Structured, request).expect("a read");
    for (i, (offset, len, hole)) in chunks.iter().enumerate() {
        let flags = if i + 1 == chunks.len() { reply_flag::DONE } else { 0 };
        let (kind, payload) = if *hole { (reply_type::OFFSET_HOLE, 12) } else { (reply_type::OFFSET_DATA, 8 + len) };
        Chunk { flags, kind, cookie: request.cookie, offset: 0, len: payload }.encode(false, &mut out);
        out.extend_from_slice(&(request.offset + offset).to_be_bytes());
        match hole {
            true => out.extend_from_slice(&len.to_be_bytes()),
            false => out.extend(std::iter::repeat_n(7, *len as usize)),
        }
    }
    stream.send(vec![Part::Bytes(out)]).await.1.expect("sent");
    // To the end of the connection.
    let _ = input.take(1).await;
}

/// A server in memory that answers these commands, without data, and no others.
async fn serve_some(stream: Stream, answered: &[u16]) {
    let mut input = shake_hands(&stream).await;
    while let Ok(head) = input.take(HeaderStyle::Structured.request_size()).await {
        let request = Request::decode(HeaderStyle::Structured, head).expect("a request");
        if answered.contains(&request.command) {
            let mut out = Vec::new();
            let none = reply_type::NONE;
            Chunk { flags: reply_flag::DONE, kind: none, cookie: request.cookie, offset: 0, len: 0 }
                .encode(false, &mut out);
            stream.send(vec![Part::Bytes(out)]).await.1.expect("sent");
        }
    }
}

/// What is done with a device whose server answers only these commands, and for which there is so much patience, in milliseconds.
fn beside_silence(
    answered: &'static [u16],
    [first, later]: [u64; 2],
    test: impl AsyncFnOnce(HostEnv, NbdDevice) + 'static,
) {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let dir = tempfile::tempdir().expect("temp dir");
    let socket = dir.path().join("s");
    let listener = Listener::bind_unix(&env, &socket, 0o600).expect("bound");
    reactor.block_on(async move {
        env.spawn(async move { serve_some(listener.accept().await.expect("a client"), answered).await });
        let locator = NbdLocator { server: NbdServer::Unix(socket), export: String::new() };
        let patience = Patience { first: Duration::from_millis(first), later: Duration::from_millis(later) };
        let device = NbdDevice::open_with(&env, &locator, UNLOCKED, patience).await.expect("opens");
        test(env, device).await;
    });
}

#[test]
fn a_server_that_shakes_hands_and_answers_nothing_is_given_up() {
    beside_silence(&[], [60, 600_000], async |env, device| {
        let begun = env.now();
        let (buf, result) = device.read(0, BufMut::new(4096)).await;
        assert_eq!((buf.len(), result), (4096, Err(DeviceError::Disconnected)));
        assert!(env.now().since(begun) >= Duration::from_millis(60));
        let lost = device.answering().lost.expect("lost");
        assert!(lost.contains("does not answer reads"), "{lost}");
        assert!(device.is_lost());
        assert_eq!(device.sync().await, Err(DeviceError::Disconnected));
    });
}

#[test]
fn a_slow_flush_is_waited_for_as_long_as_anything_is_answered() {
    beside_silence(&[cmd::TRIM], [300, 300], async |env, device| {
        let (flushing, flushed) = (device.clone(), Rc::new(Cell::new(None)));
        let told = flushed.clone();
        device.discard(0, 4096).await.expect("trimmed");
        env.spawn(async move { told.set(Some(flushing.sync().await)) });
        // Patience and grace are 600 ms together.
        for _ in 0..20 {
            env.sleep(Duration::from_millis(50)).await;
            device.discard(0, 4096).await.expect("trimmed");
        }
        let answering = device.answering();
        assert_eq!((flushed.get(), answering.waiting, answering.lost), (None, 1, None));
        let waited = env.now().since(answering.oldest.expect("the flush"));
        assert!(waited >= Duration::from_secs(1) && answering.silent_since > answering.oldest);
        while flushed.get().is_none() {
            env.sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(flushed.get(), Some(Err(DeviceError::Disconnected)));
        let lost = device.answering().lost.expect("lost");
        assert!(lost.contains("does not answer flushes"), "{lost}");
    });
}

#[test]
fn silence_counts_only_while_something_waits() {
    beside_silence(&[cmd::FLUSH], [80, 80], async |env, device| {
        device.sync().await.expect("flushed");
        env.sleep(Duration::from_millis(300)).await;
        assert_eq!(device.answering(), Answering::default());
        device.sync().await.expect("the connection has lasted");
    });
}

#[test]
fn who_gives_a_server_up_says_why() {
    beside_silence(&[], [600_000, 600_000], async |env, device| {
        let reading = device.clone();
        let failed = Rc::new(Cell::new(None));
        let flag = failed.clone();
        env.spawn(async move { flag.set(Some(reading.read(0, BufMut::new(4096)).await.1)) });
        env.sleep(Duration::from_millis(5)).await;
        assert_eq!(device.answering().waiting, 1);
        device.give_up("nobody waits");
        while failed.get().is_none() {
            env.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(failed.get(), Some(Err(DeviceError::Disconnected)));
        assert_eq!(device.answering().lost.as_deref(), Some("nobody waits"));
        assert_eq!(device.answering().waiting, 0);
    });
}

/// What reading 8 KiB gives when it is answered with these chunks.
fn read_chunks(chunks: &'static [(u64, u32, bool)]) -> Result<Vec<u8>, DeviceError> {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let dir = tempfile::tempdir().expect("temp dir");
    let socket = dir.path().join("s");
    let listener = Listener::bind_unix(&env, &socket, 0o600).expect("bound");
    reactor.block_on(async move {
        env.spawn(async move { serve_chunks(listener.accept().await.expect("a client"), chunks).await });
        let locator = NbdLocator { server: NbdServer::Unix(socket), export: String::new() };
        let device = NbdDevice::open(&env, &locator, UNLOCKED).await.expect("opens");
        let (buf, result) = device.read(4096, BufMut::new(8192)).await;
        result.map(|()| buf.to_vec())
    })
}

#[test]
fn chunks_of_a_read_come_in_any_order() {
    let data = read_chunks(&[(6000, 2192, false), (0, 4096, false), (4096, 1904, true)]).expect("a whole answer");
    assert!(data[..4096].iter().chain(&data[6000..]).all(|b| *b == 7) && data[4096..6000].iter().all(|b| *b == 0));
}

#[test]
fn chunks_of_a_read_that_overlap_or_leave_gaps_are_no_answer() {
    let answers: [&[(u64, u32, bool)]; 4] = [
        &[(0, 4096, false), (0, 4096, false)],
        &[(0, 4096, true), (2048, 4096, false)],
        &[(0, 4096, false), (4097, 4095, false)],
        &[(0, 8192, false), (8191, 1, true)],
    ];
    for chunks in answers {
        assert_eq!(read_chunks(chunks), Err(DeviceError::Disconnected), "{chunks:?}");
    }
}

#[test]
fn a_missing_server_is_named() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let locator = NbdLocator { server: NbdServer::Unix("/nonexistent/s".into()), export: "x".into() };
        let error = NbdDevice::open(&env, &locator, Access::SERVE).await.err().expect("refused");
        assert!(matches!(error, OpenError::NoServer { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("/nonexistent/s") && error.contains("connection failed"), "{error}");
    });
}

#[test]
fn only_who_listens_nowhere_is_no_server() {
    let of = |errno| HandshakeError::of_connecting(std::io::Error::from_raw_os_error(errno));
    for errno in [libc::ENOENT, libc::ENOTDIR, libc::ECONNREFUSED] {
        assert!(matches!(of(errno), HandshakeError::Nobody(_)), "{errno}");
    }
    for errno in [libc::EACCES, libc::EMFILE, libc::ETIMEDOUT, libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ECONNRESET]
    {
        assert!(matches!(of(errno), HandshakeError::Io(_)), "{errno}");
    }
    let no_address = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    assert!(matches!(HandshakeError::of_connecting(no_address), HandshakeError::Io(_)));
}

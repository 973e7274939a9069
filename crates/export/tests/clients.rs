//! Real clients against the server over a unix socket. A tool that is not installed is skipped in words.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bimetal_export::backends::Memory;
use bimetal_export::{Export, Limits, Server};
use bimetal_host::net::Listener;
use bimetal_host::{HostEnv, Reactor};
use bimetal_volume::env::Env;

const SIZE: u64 = 64 << 20;

/// A server in a thread of its own with the exports `main` and `main-ro`, both of the same volume in memory.
struct Served {
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Served {
    fn start() -> Served {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, wait) = mpsc::channel();
        let (path, stop_asked) = (dir.path().join("nbd.sock"), stop.clone());
        let thread = std::thread::spawn(move || {
            let reactor = Reactor::new().expect("io_uring");
            let env = reactor.env();
            reactor.block_on(serve(env, path, ready, stop_asked))
        });
        wait.recv_timeout(Duration::from_secs(10)).expect("the server listens");
        Served { dir, stop, thread: Some(thread) }
    }

    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.dir.path().join("nbd.sock").display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Stops the server; says how many requests failed in it.
    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("stopped once").join().expect("the server ends in peace")
    }
}

async fn serve(env: HostEnv, path: PathBuf, ready: mpsc::Sender<()>, stop: Arc<AtomicBool>) -> u64 {
    let backend = Memory::new(SIZE);
    let export = |name: &str| Export {
        uuid: [name.len() as u8; 16],
        name: name.to_owned(),
        description: "for tests".to_owned(),
        backend: backend.clone(),
        read_only: name.ends_with("-ro"),
    };
    let server = Server::new(env.clone(), vec![export("main"), export("main-ro")], Limits::default());
    let listener = Listener::bind_unix(&env, &path, 0o600).expect("a socket");
    let accepting = server.clone();
    env.spawn(async move {
        while let Ok(stream) = listener.accept().await {
            let peer = stream.peer().to_owned();
            accepting.serve(stream, peer);
        }
    });
    ready.send(()).expect("the test waits");
    while !stop.load(Ordering::Relaxed) {
        env.sleep(Duration::from_millis(5)).await;
    }
    server.stop().await;
    assert_eq!(server.in_flight(), (0, 0));
    server.status().requests.iter().map(|r| r.failed).sum()
}

/// Whether the tool is there; says so if not.
fn have(tool: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|p| std::env::split_paths(&p).any(|d| d.join(tool).is_file()));
    if !found {
        eprintln!("skipped: {tool} is not installed");
    }
    found
}

fn run(tool: &str, args: &[&str]) -> Output {
    Command::new(tool).args(args).output().unwrap_or_else(|e| panic!("{tool}: {e}"))
}

/// Runs a tool that must succeed; gives what it prints.
fn succeed(tool: &str, args: &[&str]) -> String {
    let output = run(tool, args);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool} {args:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is text")
}

/// A file of numbers that do not repeat soon, with holes.
fn write_sample(path: &Path) {
    let mut bytes = vec![0u8; SIZE as usize];
    let mut x = 1u64;
    for (i, block) in bytes.chunks_exact_mut(4096).enumerate().filter(|(i, _)| i % 64 < 40) {
        for word in block.chunks_exact_mut(8) {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i as u64 | 1);
            word.copy_from_slice(&x.to_le_bytes());
        }
    }
    std::fs::write(path, bytes).expect("a sample");
}

#[test]
fn nbdinfo_sees_exports_and_contexts() {
    if !have("nbdinfo") || !have("qemu-io") {
        return;
    }
    let served = Served::start();
    let listed = succeed("nbdinfo", &["--list", &served.uri("")]);
    assert!(listed.contains("export=\"main\"") && listed.contains("export=\"main-ro\""), "{listed}");
    let info = succeed("nbdinfo", &[&served.uri("main")]);
    for line in ["bimetal:heat", "can_multi_conn: true", "can_fast_zero: true", "block_size_preferred: 4096"] {
        assert!(info.contains(line), "{line} is missing:\n{info}");
    }
    assert!(succeed("nbdinfo", &[&served.uri("main-ro")]).contains("is_read_only: true"));
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 7 128k 256k", &served.uri("main")]);
    let columns = |context: &str| -> Vec<[u64; 3]> {
        let map = succeed("nbdinfo", &[&format!("--map={context}"), &served.uri("main")]);
        let numbers = map.lines().map(|l| l.split_whitespace().take(3).map(|n| n.parse().expect("a number")));
        numbers.map(|mut n| [n.next(), n.next(), n.next()].map(|n| n.expect("three columns"))).collect()
    };
    const K: u64 = 1 << 10;
    let rest = [384 * K, SIZE - 384 * K];
    assert_eq!(columns("base:allocation"), [[0, 128 * K, 3], [128 * K, 256 * K, 0], [rest[0], rest[1], 3]]);
    let parts = [[0, 128 * K, 0], [128 * K, 128 * K, 2], [256 * K, 128 * K, 1], [rest[0], rest[1], 0]];
    assert_eq!(columns("bimetal:tier"), parts);
    let heat = [[0, 128 * K, 0], [128 * K, 128 * K, 1], [256 * K, 128 * K, 2], [rest[0], rest[1], 0]];
    assert_eq!(columns("bimetal:heat"), heat);
    assert_eq!(served.stop(), 0);
}

#[test]
fn nbdcopy_goes_in_and_out_on_four_connections() {
    if !have("nbdcopy") {
        return;
    }
    let served = Served::start();
    let (sample, back) = (served.path("sample"), served.path("back"));
    write_sample(&sample);
    let uri = served.uri("main");
    succeed("nbdcopy", &["--connections=4", "--flush", text(&sample), &uri]);
    succeed("nbdcopy", &["--connections=4", &uri, text(&back)]);
    assert!(std::fs::read(&sample).expect("sample") == std::fs::read(&back).expect("copy"), "the copy differs");
    assert_eq!(served.stop(), 0);
}

#[test]
fn qemu_img_converts_and_compares() {
    if !have("qemu-img") {
        return;
    }
    let served = Served::start();
    let sample = served.path("sample");
    write_sample(&sample);
    let uri = served.uri("main");
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&sample), &uri]);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&sample), &uri]);
    let qcow = served.path("back.qcow2");
    succeed("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, text(&qcow)]);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", text(&sample), text(&qcow)]);
    assert_eq!(served.stop(), 0);
}

#[test]
fn qemu_io_writes_at_odd_offsets() {
    if !have("qemu-io") {
        return;
    }
    let served = Served::start();
    let uri = served.uri("main");
    let script = [
        "write -P 0x11 0 64k",
        "write -P 0x22 513 1000",
        "write -f -P 0x33 4095 2",
        "read -P 0x11 0 513",
        "read -P 0x22 513 1000",
        "read -P 0x33 4095 2",
        "read -P 0x11 4097 1000",
        "write -z 8191 4099",
        "read -P 0 8191 4099",
        "read -P 0x11 8000 191",
        "write -z -u 16k 8k",
        "read -P 0 16k 8k",
        "discard 32k 8k",
        "read -P 0 32k 8k",
        "write -P 0x44 3M 5M",
        "read -P 0x44 3145729 5242879",
        "aio_write -P 0x55 9M 1M",
        "aio_write -P 0x66 10485760 3",
        "aio_flush",
        "read -P 0x66 10485760 3",
        "flush",
    ];
    let mut args = vec!["-f", "raw"];
    args.extend(script.iter().flat_map(|c| ["-c", c]));
    args.push(&uri);
    let printed = succeed("qemu-io", &args);
    assert!(!printed.contains("verification failed"), "{printed}");
    assert_eq!(served.stop(), 0);
}

#[test]
fn fio_verifies_mixed_sizes_with_trims() {
    if !have("fio") {
        return;
    }
    let served = Served::start();
    let uri = format!("--uri={}", served.uri("main"));
    let common = ["--name=mixed", "--ioengine=nbd", &uri, "--size=48m", "--iodepth=16", "--randseed=7"];
    let mixed = ["--rw=randwrite", "--bsrange=512-256k", "--bs_unaligned=0", "--blockalign=512", "--verify=crc32c"];
    succeed("fio", &[&common[..], &mixed[..]].concat());
    let trims = ["--rw=randtrimwrite", "--bs=4k", "--verify=crc32c", "--do_verify=1"];
    let printed = succeed("fio", &[&common[..], &trims[..]].concat());
    assert!(printed.contains("err= 0"), "{printed}");
    assert_eq!(served.stop(), 0);
}

#[test]
fn nbdsh_checks_the_edges() {
    if !have("nbdsh") {
        return;
    }
    let served = Served::start();
    let check = "
import errno, os
def refused(number, call):
    try:
        call()
    except nbd.Error as e:
        assert e.errno == errno.errorcode[number], (e.errno, errno.errorcode[number])
    else:
        raise AssertionError('not refused: ' + errno.errorcode[number])
h.set_strict_mode(0)
h.connect_uri(os.environ['URI'])
size = h.get_size()
h.pwrite(b'abc', size - 3)
assert h.pread(3, size - 3) == bytearray(b'abc')
refused(errno.ENOSPC, lambda: h.pwrite(b'abcd', size - 3))
refused(errno.EINVAL, lambda: h.pread(4, size - 3))
refused(errno.ENOTSUP, lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO)
h.trim(4096, 0, nbd.CMD_FLAG_FUA)
h.cache(size, 0)
h.flush()
chunks = []
h.pwrite(b'x' * 4096, 1 << 20)
h.pread_structured(1 << 20, (1 << 20) - 65536, lambda b, o, s, e: chunks.append((len(b), o, s)), nbd.CMD_FLAG_DF)
assert len(chunks) == 1, chunks
refused(errno.EINVAL, lambda: h.pread(3, 0, 1 << 9))
r = nbd.NBD()
r.set_strict_mode(0)
r.connect_uri(os.environ['URI_RO'])
refused(errno.EPERM, lambda: r.pwrite(b'abc', 0))
refused(errno.EPERM, lambda: r.zero(4096, 0))
assert r.pread(3, size - 3) == bytearray(b'abc'), 'multi-conn'
s = nbd.NBD()
s.set_request_structured_replies(False)
s.connect_uri(os.environ['URI'])
assert not s.get_structured_replies_negotiated()
assert s.pread(2 << 20, 0)[1 << 20] == ord('x')
# Many requests at once, answered in whatever order.
buffers = [nbd.Buffer(4096) for _ in range(200)]
cookies = [h.aio_pread(b, 1 << 20) for b in buffers]
while h.aio_in_flight() > 0:
    h.poll(-1)
assert all(h.aio_command_completed(c) for c in cookies)
assert all(b.to_bytearray() == b'x' * 4096 for b in buffers)
h.shutdown()
";
    // The bindings belong to the system's Python, whatever other one comes first.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("nbdsh")
        .args(["-c", check])
        .env("PATH", path)
        .env("URI", served.uri("main"))
        .env("URI_RO", served.uri("main-ro"))
        .output()
        .expect("nbdsh runs");
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("No module named") {
        eprintln!("skipped: the Python bindings of libnbd are not installed");
        return;
    }
    assert!(output.status.success(), "{words}");
    assert_eq!(served.stop(), 0);
}

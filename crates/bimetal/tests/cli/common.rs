//! The real program in a folder of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const MIB: u64 = 1 << 20;

/// A folder with configuration, run state and files.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

/// What a command did.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A sparse file.
    pub(crate) fn file(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        std::fs::File::create(&path).expect("file").set_len(size).expect("size");
        path
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_bimetal"));
        c.args(args);
        self.here(c)
    }

    /// A program that runs here.
    pub(crate) fn here(&self, mut c: Command) -> Command {
        c.current_dir(self.dir.path()).stdin(Stdio::null());
        c.env("BIMETAL_CONFIG_DIR", self.path("etc")).env("BIMETAL_RUN_DIR", self.path("run"));
        c.env_remove("NOTIFY_SOCKET");
        c
    }

    pub(crate) fn run(&self, args: &[&str]) -> Done {
        done(self.command(args).output().expect("the program starts"))
    }

    /// Runs and expects success.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let d = self.run(args);
        assert_eq!(d.code, 0, "bimetal {args:?}: {}{}", d.out, d.err);
        d.out
    }

    /// Runs with `--json` and expects success and a document of schema 1.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = args.to_vec();
        all.push("--json");
        let document: serde_json::Value = serde_json::from_str(&self.ok(&all)).expect("JSON");
        assert_eq!(document["schema"], 1, "{document}");
        document
    }

    /// Runs and expects failure `code` and every one of `words` in the message.
    pub(crate) fn refused(&self, args: &[&str], code: i32, words: &[&str]) {
        let d = self.run(args);
        assert_eq!(d.code, code, "bimetal {args:?}: {}{}", d.out, d.err);
        for word in words {
            assert!(d.err.contains(word), "bimetal {args:?} does not say '{word}': {}", d.err);
        }
    }

    /// A group `tank` on two small files.
    pub(crate) fn tank(&self) {
        self.tank_of(&[]);
    }

    /// A group `tank` of these volumes (as `create --volume` takes them) on two small files; what `create` says.
    pub(crate) fn tank_of(&self, volumes: &[&str]) -> serde_json::Value {
        self.file("fast.img", 48 * MIB);
        self.file("slow.img", 96 * MIB);
        let mut args = vec!["create", "tank", "--fast", "fast.img", "--slow", "slow.img"];
        args.extend(volumes.iter().flat_map(|v| ["--volume", v]));
        self.json(&args)
    }

    /// Starts `bimetal serve ARGS` and waits until it serves.
    pub(crate) fn serve(&self, args: &[&str]) -> Daemon {
        self.start(self.command(&[&["serve"], args].concat()))
    }

    fn start(&self, mut command: Command) -> Daemon {
        let log = std::fs::File::create(self.path("serve.log")).expect("log");
        let mut child = command.stderr(log).stdout(Stdio::null()).spawn().expect("the program starts");
        let begun = Instant::now();
        let log = || std::fs::read_to_string(self.path("serve.log")).unwrap_or_default();
        while !log().contains("\nserving ") && !log().starts_with("serving ") {
            assert!(child.try_wait().expect("child").is_none(), "the daemon ended: {}", log());
            assert!(begun.elapsed() < Duration::from_secs(30), "the daemon does not serve: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Daemon { child }
    }

    /// What the program says to standard error until it ends, or for so long.
    pub(crate) fn run_for(&self, args: &[&str], time: Duration) -> String {
        let log = std::fs::File::create(self.path("run.log")).expect("log");
        let child = self.command(args).stderr(log).stdout(Stdio::null()).spawn().expect("the program starts");
        let mut child = Daemon { child };
        let begun = Instant::now();
        while child.child.try_wait().expect("child").is_none() && begun.elapsed() < time {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(child);
        std::fs::read_to_string(self.path("run.log")).expect("read")
    }

    /// Asks the control API: what the daemon says until it closes.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(self.socket("control.sock")).expect("control socket");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}", body.len());
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("serve.log")).unwrap_or_default()
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.path("run/tank").join(name)
    }
}

pub(crate) fn done(out: Output) -> Done {
    Done {
        code: out.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&out.stdout).into_owned(),
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

/// A running daemon; killed at the latest when the test ends.
pub(crate) struct Daemon {
    pub(crate) child: Child,
}

impl Daemon {
    /// Waits for its end and gives its exit code.
    pub(crate) fn wait(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("child") {
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("signal");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a scan has found of a group. Block devices are looked at, and other tests have theirs.
pub(crate) fn scanned<'a>(found: &'a serde_json::Value, group: &str) -> Option<&'a serde_json::Value> {
    found["groups"].as_array().expect("a list").iter().find(|g| g["group"] == group)
}

/// All bytes of a file, holes included, as one number.
pub(crate) fn checksum(path: &Path) -> u64 {
    let bytes = std::fs::read(path).expect("file");
    bytes.chunks(8).fold(bytes.len() as u64, |sum, word| {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        (sum.rotate_left(5) ^ u64::from_le_bytes(eight)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// The kernel's list of mounts. Names in it may be of any bytes.
pub(crate) fn mounts() -> String {
    String::from_utf8_lossy(&std::fs::read("/proc/self/mounts").expect("mounts")).into_owned()
}

pub(crate) fn installed(tool: &str) -> bool {
    let found = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|d| Path::new(d).join(tool).exists());
    if !found {
        eprintln!("skipped: {tool} is not installed");
    }
    found
}

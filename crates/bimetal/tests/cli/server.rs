//! NBD servers that members are behind.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Place;

/// An NBD server; it ends with the test.
pub(crate) struct Server(Child);

impl Server {
    /// One with this plugin on the socket `NAME.sock`.
    pub(crate) fn with<S: AsRef<std::ffi::OsStr>>(p: &Place, name: &str, plugin: &[S]) -> Server {
        let socket = p.path(&format!("{name}.sock"));
        // One that was killed leaves it.
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(&socket).args(plugin).stderr(Stdio::null());
        let server = Server(command.spawn().expect("nbdkit starts"));
        until(|| UnixStream::connect(&socket).is_ok(), "nbdkit listens");
        server
    }

    /// One of the file `NAME.img`.
    pub(crate) fn of(p: &Place, name: &str) -> Server {
        Server::with(p, name, &["file", &p.path(&format!("{name}.img")).display().to_string()])
    }

    /// One of the file `NAME.img` that takes one connection at a time, and has others wait.
    pub(crate) fn one_at_a_time(p: &Place, name: &str) -> Server {
        let socket = p.path(&format!("{name}.sock"));
        let mut command = Command::new("qemu-nbd");
        command.args(["--persistent", "--format", "raw", "--socket"]).arg(&socket).arg(p.path(&format!("{name}.img")));
        let server = Server(command.stderr(Stdio::null()).spawn().expect("qemu-nbd starts"));
        until(|| UnixStream::connect(&socket).is_ok(), "qemu-nbd listens");
        server
    }

    /// One of the file `NAME.img`, made so large: `before_read` is a piece of shell before each read, where `$3` is its length and `$4` its
    /// place, `flush` one for each sync.
    pub(crate) fn with_faults(p: &Place, name: &str, size: u64, before_read: &str, flush: &str) -> Server {
        let file = p.file(&format!("{name}.img"), size);
        let file = file.display();
        let script = [
            "eval".into(),
            format!("get_size=echo {size}"),
            format!(
                "pread={before_read} dd if={file} skip=$4 count=$3 bs=64k iflag=skip_bytes,count_bytes status=none"
            ),
            format!("pwrite=dd of={file} seek=$4 bs=64k oflag=seek_bytes conv=notrunc status=none"),
            "can_write=exit 0".into(),
            "can_flush=exit 0".into(),
            format!("flush={flush}"),
        ];
        Server::with(p, name, &script)
    }

    pub(crate) fn stand_still(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.0.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("signal");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a member on the socket `NAME.sock` is called.
pub(crate) fn locator(p: &Place, name: &str) -> String {
    format!("nbd+unix:///?socket={}", p.path(&format!("{name}.sock")).display())
}

pub(crate) fn until(condition: impl Fn() -> bool, what: &str) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! `fusermount3`: mounts for those who are not root.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::attach::tools::find;

const PROGRAM: &str = "fusermount3";

/// Mounts on `folder` and gives the open device.
pub(super) fn mount(folder: &Path, options: &str) -> Result<OwnedFd, String> {
    let program =
        find(PROGRAM).ok_or("only root may mount without fusermount3 (package fuse3), which is not installed")?;
    let (ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let fd = theirs.as_raw_fd();
    let mut command = Command::new(program);
    command.arg("-o").arg(options).arg("--").arg(folder).env("_FUSE_COMMFD", fd.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only one system call is made, which may be made there.
    unsafe {
        command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let child = command.spawn().map_err(|e| format!("{PROGRAM} cannot be started: {e}"))?;
    drop(theirs);
    let received = receive_file(&ours);
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(words(&output.stderr, &output.status.to_string()));
    }
    let file = received.map_err(|e| format!("{PROGRAM} gave no device: {e}"))?;
    // SAFETY: takes a descriptor that is open, and integers.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error().to_string());
    }
    Ok(file)
}

/// Unmounts `folder`, `lazily` although it is in use.
pub(super) fn unmount(folder: &Path, lazily: bool) -> io::Result<()> {
    let program = find(PROGRAM).ok_or_else(|| io::Error::other("fusermount3 is not installed"))?;
    let how = if lazily { "-uz" } else { "-u" };
    let output = Command::new(program).arg(how).arg("--").arg(folder).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = words(&output.stderr, &output.status.to_string());
    let busy = why.contains("busy");
    Err(if busy { io::Error::new(io::ErrorKind::ResourceBusy, why) } else { io::Error::other(why) })
}

fn words(stderr: &[u8], status: &str) -> String {
    let text = String::from_utf8_lossy(stderr);
    match text.trim() {
        "" => format!("{PROGRAM} ended with {status}"),
        text => text.to_owned(),
    }
}

/// Takes the descriptor that comes with one byte.
fn receive_file(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 1];
    let mut control = [0u64; 8];
    let mut piece = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // SAFETY: a msghdr of zeros is the empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: all that the header points to is valid for the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the header was filled in by the kernel and its control area lives.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if first.is_null() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: not null, so it points to a whole header inside the control area.
    let head = unsafe { &*first };
    if head.cmsg_level != libc::SOL_SOCKET || head.cmsg_type != libc::SCM_RIGHTS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: a message of this kind carries at least one descriptor; it may lie unaligned.
    let fd = unsafe { libc::CMSG_DATA(first).cast::<libc::c_int>().read_unaligned() };
    // SAFETY: the descriptor was made for us by the kernel, and nobody else has seen it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

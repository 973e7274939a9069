//! Unix sockets whose listener may stand still. A connection that finds its queue full waits there until it goes on, for ever perhaps: so
//! nothing here waits.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Connects to a unix socket at once. `WouldBlock` where somebody listens whose queue is full.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let (address, len) = address(path)?;
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for us just now.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: the address outlives the call, and is at least so long.
    if unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: zeros are a value of it.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    // The kernel wants an end, and takes a first zero for another kind of name.
    if bytes.is_empty() || bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this path cannot be a socket's"));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, byte) in address.sun_path.iter_mut().zip(bytes) {
        *to = *byte as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

/// Whether a process has this unix socket. One that stands still has it, too.
pub fn is_listened_at(path: &Path) -> io::Result<bool> {
    match connect_at_once(path) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(false),
        // Its queue is full; or it is a socket of another kind, which only a living one is known to be.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EPROTOTYPE)) => Ok(true),
        Err(e) => Err(e),
    }
}

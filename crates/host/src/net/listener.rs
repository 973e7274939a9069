//! Listening sockets.

use std::fs::Metadata;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use io_uring::{opcode, types::Fd};

use super::{give_up_on_the_dead, is_listened_at, Stream};
use crate::reactor::{HostEnv, Keep, OnDrop};

/// A listening socket. A unix socket's file is removed with the last handle.
#[derive(Clone)]
pub struct Listener {
    env: HostEnv,
    inner: Rc<Inner>,
}

struct Inner {
    file: Rc<OwnedFd>,
    /// The file to remove at the end, and its device and number.
    path: Option<(PathBuf, (u64, u64))>,
    /// For TCP: where it listens.
    address: Option<SocketAddr>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.remove_file();
    }
}

impl Inner {
    fn remove_file(&self) {
        let Some((path, own)) = &self.path else { return };
        // It may have been removed meanwhile, and be another's by now.
        if number(path).is_ok_and(|there| there == *own) {
            // Nothing can be done about an error here.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What tells a file from others of its name.
fn number(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Why no socket can take the place of what is there.
fn why_taken(path: &Path, found: &Metadata) -> Option<String> {
    if !found.file_type().is_socket() {
        return Some("exists and is no socket".into());
    }
    match is_listened_at(path) {
        Ok(false) => None,
        Ok(true) => Some("is in use: a process listens there".into()),
        Err(e) => Some(format!("exists, and whether a process listens there is not known ({e})")),
    }
}

impl Listener {
    /// Listens on a unix socket whose file gets the permissions `mode`. A socket file that nobody listens on any more
    /// is replaced; one that somebody has, and any other file, is left alone (`AddrInUse`).
    pub fn bind_unix(env: &HostEnv, path: &Path, mode: u32) -> io::Result<Listener> {
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if let Some(why) = why_taken(path, &found) {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{} {why}", path.display())));
            }
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        let file = (path.to_owned(), number(path)?);
        Ok(Listener::wrap(env, listener.into(), Some(file), None))
    }

    /// Removes a unix socket's file now: nobody connects any more. It is left alone if it is another's by now.
    pub fn remove_file(&self) {
        self.inner.remove_file();
    }

    /// Listens on an address; port 0 takes a free one.
    pub fn bind_tcp(env: &HostEnv, address: SocketAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Listener::wrap(env, listener.into(), None, Some(address)))
    }

    fn wrap(env: &HostEnv, fd: OwnedFd, path: Option<(PathBuf, (u64, u64))>, address: Option<SocketAddr>) -> Listener {
        Listener { env: env.clone(), inner: Rc::new(Inner { file: Rc::new(fd), path, address }) }
    }

    /// Where a TCP listener listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.address
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<Stream> {
        loop {
            let file = self.inner.file.clone();
            let entry = opcode::Accept::new(Fd(file.as_raw_fd()), std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build();
            // SAFETY: the entry points to no memory, and the file is handed over.
            let op = unsafe { self.env.core().start(entry, Keep::NewFile, Some(file), OnDrop::Cancel) };
            let (result, _) = op.await;
            if result >= 0 {
                // SAFETY: the kernel made this descriptor for us just now.
                match self.accepted(unsafe { OwnedFd::from_raw_fd(result) }) {
                    Ok(stream) => return Ok(stream),
                    // The connection is gone already, and concerns nobody else.
                    Err(_) => continue,
                }
            }
            match -result {
                // The connection was gone before it was taken, or a signal came.
                libc::ECONNABORTED | libc::EINTR | libc::EAGAIN => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    fn accepted(&self, fd: OwnedFd) -> io::Result<Stream> {
        if self.inner.address.is_none() {
            let mut stream = Stream::wrap(&self.env, fd, String::new());
            let peer = match stream.peer_pid() {
                Some(pid) => format!("pid {pid}"),
                None => "unix socket".to_owned(),
            };
            stream.peer = peer.into();
            return Ok(stream);
        }
        let stream = std::net::TcpStream::from(fd);
        stream.set_nodelay(true)?;
        give_up_on_the_dead(&stream)?;
        let peer = stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |a| a.to_string());
        Ok(Stream::wrap(&self.env, stream.into(), peer))
    }
}

//! Where the API listens.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{bail, Context, Result};
use bimetal_host::net::is_listened_at;

use super::exports;
use crate::paths;

/// The socket of the API, and the way to it from its usual place. Both vanish with this.
pub(super) struct ControlSockets<'a> {
    path: &'a Path,
    /// What tells it from others of its name.
    number: (u64, u64),
    usual: &'a Path,
}

impl<'a> ControlSockets<'a> {
    /// Listens at `path`, which [`clear`] has cleared.
    pub(super) fn bind(path: &'a Path, usual: &'a Path) -> Result<(UnixListener, ControlSockets<'a>)> {
        let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
        let number = number(path).with_context(|| format!("{} is gone already", path.display()))?;
        let sockets = ControlSockets { path, number, usual };
        paths::share_socket(path)?;
        if path != usual {
            lead_to(path, usual)?;
        }
        Ok((listener, sockets))
    }
}

impl Drop for ControlSockets<'_> {
    fn drop(&mut self) {
        // The path is what somebody typed: it may have been removed meanwhile, and be another daemon's by now.
        if number(self.path).is_ok_and(|there| there == self.number) {
            let _ = std::fs::remove_file(self.path);
        }
        // In the folder of the group, whose lock is held.
        if self.usual != self.path {
            let _ = std::fs::remove_file(self.usual);
        }
    }
}

fn number(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Where to listen: the usual place if that is what somebody has named in other words (`/var/run` is `/run`).
pub(super) fn place(wanted: PathBuf, usual: &Path) -> PathBuf {
    match (in_full(&wanted), in_full(usual)) {
        (Some(a), Some(b)) if a == b => usual.to_owned(),
        _ => wanted,
    }
}

/// A path without links and dots in its folder. The file need not be there.
fn in_full(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

/// Removes what an earlier daemon has left at the place of a control socket, and nothing else: the path is what somebody
/// typed.
pub(super) fn clear(path: &Path, usual: &Path) -> Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    // In the folder of the group, whose lock is held, nobody listens any more; a link there led to a socket elsewhere.
    let is_socket = found.file_type().is_socket();
    let why = match is_socket {
        true if path == usual || is_dead(path)? => None,
        false if path == usual && found.is_symlink() => None,
        true => Some("is in use: a process listens there"),
        false => Some("exists and is no socket"),
    };
    if let Some(why) = why {
        bail!("{} {why}; choose another path for --control", path.display());
    }
    std::fs::remove_file(path).with_context(|| format!("cannot remove the old socket {}", path.display()))
}

/// Whether nobody listens there. The kernel lets go of a killed daemon's socket a moment after its process is gone.
fn is_dead(socket: &Path) -> Result<bool> {
    let end = Instant::now() + exports::BUSY_PATIENCE;
    loop {
        let listened = is_listened_at(socket);
        let unknown = || format!("{}: whether a process listens there is not known", socket.display());
        match listened.with_context(unknown)? {
            false => return Ok(true),
            true if Instant::now() > end => return Ok(false),
            true => std::thread::sleep(exports::BUSY_PAUSE),
        }
    }
}

/// A socket elsewhere is found in its usual place too: by `status`, `stop` and `attach`.
fn lead_to(control: &Path, usual: &Path) -> Result<()> {
    let control = std::path::absolute(control)?;
    let _ = std::fs::remove_file(usual);
    std::os::unix::fs::symlink(&control, usual)
        .with_context(|| format!("cannot make {} lead to {}", usual.display(), control.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_that_is_another_daemons_by_now_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, usual) = (dir.path().join("elsewhere.sock"), dir.path().join("control.sock"));
        let (_listener, sockets) = ControlSockets::bind(&path, &usual).expect("bound");
        std::fs::remove_file(&path).expect("removed");
        let _other = UnixListener::bind(&path).expect("another's");
        drop(sockets);
        assert!(UnixStream::connect(&path).is_ok() && usual.symlink_metadata().is_err());

        let (_listener, sockets) = ControlSockets::bind(&usual, &usual).expect("bound");
        drop(sockets);
        assert!(usual.symlink_metadata().is_err(), "its own goes");
    }
}

//! A volume as a block device `/dev/...`, by the best means this machine has.
//!
//! ublk comes first where the kernel has it, but only the daemon can make its devices ([`crate::ublk`]). Then the
//! kernel's NBD client: nothing but a socket stands between the kernel and the daemon. Where its module is missing,
//! the daemon shows the volume as a file in a FUSE mount, and a loop device with direct I/O makes a block device of it.
//! Everything here blocks and belongs into a command, never into the daemon: a daemon that waits for its own volume
//! never wakes up.

mod fuse;
mod kernel_nbd;
pub(crate) mod loop_device;
pub(crate) mod tools;

use std::path::PathBuf;

use crate::locator::NbdLocator;

/// How a volume becomes a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A ublk device, which only the daemon itself can make ([`crate::ublk`]).
    Ublk,
    /// The kernel's NBD client.
    Nbd,
    /// A FUSE file under a loop device.
    Fuse,
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Via::Ublk => "ublk",
            Via::Nbd => "nbd",
            Via::Fuse => "fuse",
        })
    }
}

/// What is to be attached.
#[derive(Clone)]
pub struct Request<'a> {
    /// Where the daemon exports the volume.
    pub export: NbdLocator,
    /// Has the daemon show the volume as a file in a FUSE mount, and gives its path; or says why it cannot.
    pub show_file: &'a dyn Fn() -> Result<PathBuf, String>,
    /// Number (`st_ino`) and bytes of that file: one with others is not that of the volume.
    pub inode: u64,
    /// See `inode`.
    pub size: u64,
    /// No writes.
    pub read_only: bool,
    /// Logical sector of the block device, in bytes.
    pub sector_size: u32,
    /// The wanted way; `None` takes the best but ublk.
    pub via: Option<Via>,
    /// Why it is not done by ublk, if that was thought of.
    pub not_by_ublk: Option<String>,
}

/// An attached volume, with all that [`detach`] needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// How it was done.
    pub via: Via,
    /// The block device.
    pub device: PathBuf,
    /// The daemon's FUSE mount, if that is the way.
    pub mount_dir: Option<PathBuf>,
    /// The process that serves it besides the daemon, if there is one.
    pub helper_pid: Option<u32>,
    /// Why this way was taken, in words.
    pub why: String,
}

/// Why a volume could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Only root may make block devices.
    #[error(
        "attaching needs root, because only root may make block devices; run it with sudo, or use the volume \
             through any NBD client ({uri})"
    )]
    NotRoot {
        /// How to reach the volume without.
        uri: String,
    },
    /// A way cannot be gone here.
    #[error("{via} cannot be used here: {why}")]
    Unavailable {
        /// The way.
        via: Via,
        /// What is missing, and how to get it.
        why: String,
    },
    /// No way can be gone here.
    #[error("no way to make a block device on this machine.\n  by ublk: {ublk}\n  by nbd: {nbd}\n  by fuse: {fuse}")]
    NoWay {
        /// Why not by ublk.
        ublk: String,
        /// Why not by the kernel's NBD client.
        nbd: String,
        /// Why not by FUSE.
        fuse: String,
    },
    /// The device is in use.
    #[error("{device} is in use: {by}", device = device.display())]
    InUse {
        /// The device.
        device: PathBuf,
        /// By whom, and what to do.
        by: String,
    },
    /// A step failed.
    #[error("{step}: {why}")]
    Step {
        /// What was tried.
        step: String,
        /// What was said.
        why: String,
    },
}

impl AttachError {
    fn step(step: impl Into<String>, why: impl std::fmt::Display) -> AttachError {
        AttachError::Step { step: step.into(), why: why.to_string() }
    }
}

/// Makes a block device of a volume. What was begun is taken back when a step fails.
pub fn attach(request: &Request<'_>) -> Result<Attached, AttachError> {
    if !tools::is_root() {
        return Err(AttachError::NotRoot { uri: request.export.to_string() });
    }
    match request.via {
        Some(Via::Nbd) => {
            kernel_nbd::available().map_err(|why| AttachError::Unavailable { via: Via::Nbd, why })?;
            kernel_nbd::attach(request, "you asked for it".into())
        }
        Some(Via::Fuse) => {
            fuse::available().map_err(|why| AttachError::Unavailable { via: Via::Fuse, why })?;
            fuse::attach(request, "you asked for it".into())
        }
        Some(Via::Ublk) => {
            Err(AttachError::Unavailable { via: Via::Ublk, why: "only the daemon of the group can make it".into() })
        }
        None => best(request),
    }
}

/// A loop device that shows the volume already, from the mount `folder`, though nobody has written it down: whoever made it was killed
/// before, or made it by hand. Refused if it is not what [`attach`] would make. For commands only: it asks the daemon.
pub fn find_made(request: &Request<'_>, folder: &std::path::Path) -> Result<Option<Attached>, AttachError> {
    fuse::find_made(request, folder)
}

/// Whether any device of the kernel's NBD client is connected, to whatever server.
pub fn is_any_connected() -> bool {
    kernel_nbd::is_any_connected()
}

/// Devices of the kernel's NBD client that these clients of a server have connected, each with its client. Clients are known by their
/// processes, as the server counts them: this is for the process that serves. What is not certain is left out.
pub fn connected_by(clients: &[u32]) -> Vec<(u32, Attached)> {
    kernel_nbd::connected_by(clients)
}

/// Takes a device of the kernel's NBD client for one that was made as requested. Refused if it is not what [`attach`] would make: two
/// devices of a volume would each have a page cache.
pub fn adopt(request: &Request<'_>, connected: Attached) -> Result<Attached, AttachError> {
    let Some(flaw) = kernel_nbd::flaw(&connected.device, request) else {
        let why = "this device of the kernel's NBD client was there already, though not written down".into();
        return Ok(Attached { why, ..connected });
    };
    let by = format!(
        "it shows this volume already, was made by somebody else, and {flaw}; a second device would have a page cache of its own. \
         Release it first: umount what is mounted from it, then bimetal detach {}",
        connected.device.display()
    );
    Err(AttachError::InUse { device: connected.device, by })
}

/// Whether an attached device surely shows another volume than that whose file has this number, or a part of it: it was let go by
/// hand, and made anew. For commands only: it asks the daemon.
pub fn shows_another(attached: &Attached, inode: u64) -> bool {
    attached.via == Via::Fuse && fuse::shows_another(&attached.device, inode)
}

/// By the kernel's NBD client, or else by FUSE; says what is wrong with the better ways.
fn best(request: &Request) -> Result<Attached, AttachError> {
    let ublk = request.not_by_ublk.as_ref();
    let not_by_ublk = ublk.map_or_else(String::new, |why| format!("ublk cannot be used here: {why}; "));
    let nbd = match kernel_nbd::available() {
        Ok(()) => {
            let why = format!("{not_by_ublk}the kernel's NBD client is the shortest way that is left");
            return kernel_nbd::attach(request, why);
        }
        Err(nbd) => nbd,
    };
    let no_ublk = ublk.cloned().unwrap_or_else(|| "not asked for".into());
    fuse::available().map_err(|fuse| AttachError::NoWay { ublk: no_ublk, nbd: nbd.clone(), fuse })?;
    fuse::attach(request, format!("{not_by_ublk}the kernel's NBD client cannot be used here: {nbd}"))
}

/// Which ways can be gone on this machine, each with the reason if not.
pub fn ways() -> [(Via, Result<(), String>); 3] {
    let ublk = crate::ublk::available().map_err(|e| e.to_string());
    [(Via::Ublk, ublk), (Via::Nbd, kernel_nbd::available()), (Via::Fuse, fuse::available())]
}

/// Whether the device is not the one that was attached any more: that went away by itself (a daemon that died, a restart),
/// and the kernel has given its number to somebody else.
pub fn is_anothers(attached: &Attached) -> bool {
    match attached.via {
        // Their tags say whose they are, and only the driver tells those.
        Via::Ublk => false,
        Via::Nbd => kernel_nbd::is_anothers(attached),
        Via::Fuse => fuse::is_anothers(attached),
    }
}

/// Has the block device take the size that its volume has by now, in bytes. False if it keeps the one that it had: ublk and
/// the kernel's NBD client are told of none.
pub fn follow_size(attached: &Attached, size: u64) -> Result<bool, AttachError> {
    match attached.via {
        Via::Fuse if !is_anothers(attached) => fuse::follow_size(attached, size),
        Via::Fuse | Via::Ublk | Via::Nbd => Ok(false),
    }
}

/// Takes the block device away again. Refused while it is mounted or otherwise in use. Steps that were done before, or
/// by someone else, are no errors.
pub fn detach(attached: &Attached) -> Result<(), AttachError> {
    if !tools::is_root() {
        return Err(AttachError::Step { step: "detaching".into(), why: "this needs root; run it with sudo".into() });
    }
    if is_anothers(attached) {
        return Ok(());
    }
    if let Some(used) = crate::probe::usage::of(&attached.device) {
        return Err(AttachError::InUse { device: attached.device.clone(), by: used.to_string() });
    }
    if let Some(over) = crate::probe::loops::stacked_on(&attached.device) {
        let by = format!("the loop device {0} is made of it; take that away first (losetup -d {0})", over.display());
        return Err(AttachError::InUse { device: attached.device.clone(), by });
    }
    match attached.via {
        Via::Ublk => Err(AttachError::step(attached.device.display().to_string(), "only its daemon can take it away")),
        Via::Nbd => kernel_nbd::detach(attached),
        Via::Fuse => fuse::detach(attached),
    }
}

/// Whether a process is alive.
pub fn is_alive(pid: u32) -> bool {
    // A process that has ended and was not waited for yet is a zombie: gone for our purpose.
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// Whether a process has ended as a whole and only its parent has not heard of it: its last thread is in its end, and has closed
/// what they had open.
pub(crate) fn has_ended(pid: u32) -> bool {
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map(Iterator::count);
    matches!(state(pid), Some('Z' | 'X')) && threads().is_ok_and(|threads| threads <= 1)
}

/// What `/proc` says of a process: `R` runs, `S` sleeps, `Z` has ended.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Whether a process with this number is there, seen from this one's namespace: also where `/proc` hides it (`hidepid`). What is no
/// process number at all says nothing, and may be there.
pub(crate) fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else { return true };
    // SAFETY: it takes numbers only, and signal 0 is none: whether one could be sent is all that is asked.
    let asked = unsafe { libc::kill(pid, 0) };
    asked == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// When a process began, in the kernel's ticks since the boot: with the process id this is a process, the id alone is given
/// away again. `None` if there is no such process.
pub fn began(pid: u32) -> Option<u64> {
    began_by(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The same from the text of a `stat` file. The name of the process, in parentheses, may hold anything.
fn began_by(stat: &str) -> Option<u64> {
    const FIELD: usize = 22;
    const FIELDS_BEFORE: usize = 3;
    stat.rsplit_once(')')?.1.split_whitespace().nth(FIELD - FIELDS_BEFORE)?.parse().ok()
}

#[cfg(test)]
mod tests;

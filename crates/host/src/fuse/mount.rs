//! Mounting, unmounting, and what a daemon that died has left.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::ground::LINKS;
use super::helper;
use crate::attach::tools::{find, is_root, run};
use crate::probe::mounts::{self, Mount};

/// What `/proc/mounts` says of our mounts.
pub(crate) const TYPE: &str = "fuse.bimetal";
const SUBTYPE: &str = "bimetal";
const DEVICE: &str = "/dev/fuse";

/// Why nothing could be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no FUSE.
    #[error("there is no /dev/fuse (kernel module fuse, or a container without it)")]
    NoFuse,
    /// Something is mounted there.
    #[error(
        "{folder}: something is mounted there already ({what}); unmount it, or take another folder",
        folder = folder.display()
    )]
    Taken {
        /// The folder.
        folder: PathBuf,
        /// Type of the file system.
        what: String,
    },
    /// Something is in the folder.
    #[error(
        "{folder} is not empty: what is in it would be hidden for as long as the volumes are shown there, member files too; take a folder \
         of its own",
        folder = folder.display()
    )]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder cannot be used.
    #[error("{folder}: {source}", folder = folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What was said.
        source: io::Error,
    },
    /// The kernel or `fusermount3` refused.
    #[error("mounting on {folder}: {why}", folder = folder.display())]
    Refused {
        /// The folder.
        folder: PathBuf,
        /// What was said.
        why: String,
    },
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fashion {
    /// Only if no file is open.
    IfUnused,
    /// Nobody finds it any more; who has files open keeps them for as long as the device lives.
    Lazily,
}

/// Mounts on `folder`, which is made if it is missing, and gives the open device. Whoever looks into the folder waits
/// until it is served. It must be empty. `name` stands for the device in `/proc/mounts`. A dead mount that is in the way is removed
/// first. Blocks.
pub fn mount(folder: &Path, name: &str) -> Result<OwnedFd, MountError> {
    let at = |source| MountError::Folder { folder: folder.to_owned(), source };
    remove_dead(folder).map_err(at)?;
    fs::create_dir_all(folder).map_err(at)?;
    let folder = &*free(folder)?;
    let refused = |why| MountError::Refused { folder: folder.to_owned(), why };
    if !is_root() {
        let options = format!("fsname={name},subtype={SUBTYPE},nosuid,nodev,noatime");
        return helper::mount(folder, &options).map_err(refused);
    }
    let device = open_device()?;
    mount_as_root(&device, folder, name).map_err(|e| refused(e.to_string()))?;
    Ok(device.into())
}

/// Whether volumes could be [mounted](mount) on `folder`, as far as can be said beforehand. A dead mount in the way is removed. Blocks.
pub fn look(folder: &Path) -> Result<(), MountError> {
    remove_dead(folder).map_err(|source| MountError::Folder { folder: folder.to_owned(), source })?;
    match fs::symlink_metadata(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => free(folder).map(drop),
    }
}

/// The true path of an empty folder on which nothing is mounted.
fn free(folder: &Path) -> Result<PathBuf, MountError> {
    let at = |source| MountError::Folder { folder: folder.to_owned(), source };
    // What is mounted on a link lies on the folder behind it.
    let folder = true_path(folder).map_err(at)?;
    if let Some(what) = mounted(&folder).map_err(at)? {
        return Err(MountError::Taken { folder, what });
    }
    if !fs::metadata(&folder).map_err(at)?.is_dir() {
        return Err(at(io::ErrorKind::NotADirectory.into()));
    }
    if fs::read_dir(&folder).map_err(at)?.next().is_some() {
        return Err(MountError::NotEmpty { folder });
    }
    Ok(folder)
}

fn open_device() -> Result<File, MountError> {
    let open = || OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
    let opened = open().or_else(|first| {
        // Opening it loads the module on most systems, but not without its node.
        let loaded = find("modprobe").is_some_and(|m| run(std::process::Command::new(m).args(["-q", "fuse"])).is_ok());
        if loaded {
            open()
        } else {
            Err(first)
        }
    });
    opened.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => MountError::NoFuse,
        _ => MountError::Folder { folder: DEVICE.into(), source },
    })
}

fn mount_as_root(device: &File, folder: &Path, name: &str) -> io::Result<()> {
    let (uid, gid) = super::owner();
    let options = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    let (name, kind, options) = (CString::new(name)?, CString::new(TYPE)?, CString::new(options)?);
    let path = c_path(folder)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME;
    // SAFETY: all strings are valid for the call.
    let rc = unsafe { libc::mount(name.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Unmounts. `ResourceBusy` when files are open and it was only to be done if unused. Blocks.
pub fn unmount(folder: &Path, fashion: Fashion) -> io::Result<()> {
    let lazily = fashion == Fashion::Lazily;
    if !is_root() {
        return helper::unmount(folder, lazily);
    }
    let path = c_path(folder)?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path is a valid string for the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The number of the file system of ours that is mounted on `folder`, as the kernel shows it. Never blocks.
pub fn number_of(folder: &Path) -> Option<String> {
    let found = mounted_on(&true_path(folder).ok()?).ok()??;
    (found.kind == TYPE).then_some(found.number)
}

/// [Unmounts](unmount) the file system with this number, and nothing else that may be mounted on `folder` now: `NotFound`
/// then.
pub fn unmount_only(folder: &Path, number: &str, fashion: Fashion) -> io::Result<()> {
    if number_of(folder).as_deref() != Some(number) {
        return Err(io::ErrorKind::NotFound.into());
    }
    unmount(&true_path(folder)?, fashion)
}

/// Removes mounts on `folder` whose daemon has died, and says whether there was one. One that lives, or is somebody
/// else's, stays. Blocks, for as long as a living daemon there takes to answer.
pub fn remove_dead(folder: &Path) -> io::Result<bool> {
    let Ok(real) = true_path(folder) else { return Ok(false) };
    let mut found = false;
    while mounted(&real)?.as_deref() == Some(TYPE) && is_dead(&real)? {
        unmount(&real, Fashion::Lazily)?;
        found = true;
    }
    Ok(found)
}

/// Whether volumes of ours are shown in `folder`, by a daemon that lives or died. Never blocks.
pub fn is_mounted(folder: &Path) -> bool {
    let found = true_path(folder).and_then(|real| mounted(&real));
    found.is_ok_and(|kind| kind.as_deref() == Some(TYPE))
}

/// Whether nobody serves the mount any more: the kernel then fails every question.
fn is_dead(folder: &Path) -> io::Result<bool> {
    let path = c_path(folder)?;
    // SAFETY: a statfs of zeros is valid, and both pointers are for the call.
    let rc = unsafe {
        let mut said: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &raw mut said)
    };
    Ok(rc < 0 && matches!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)))
}

/// The path of a mount as the kernel shows it, also by the name of a link to it. Only folders above are looked up: of a dead mount
/// nothing can be asked.
pub fn true_path(folder: &Path) -> io::Result<PathBuf> {
    let mut folder = std::path::absolute(folder)?;
    for _ in 0..=LINKS {
        let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else { return fs::canonicalize(folder) };
        let above = fs::canonicalize(above)?;
        let here = above.join(name);
        if mounted(&here).is_ok_and(|found| found.is_some()) {
            return Ok(here);
        }
        let Ok(target) = fs::read_link(&here) else { return Ok(here) };
        folder = above.join(target);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Type of the uppermost file system on exactly `folder`.
fn mounted(folder: &Path) -> io::Result<Option<String>> {
    Ok(mounted_on(folder)?.map(|found| found.kind))
}

/// What is mounted on a folder.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    /// Of the file system: no other that is mounted now has it.
    number: String,
    kind: String,
}

fn mounted_on(folder: &Path) -> io::Result<Option<Mounted>> {
    Ok(topmost(mounts::all()?, folder))
}

fn topmost(mounts: Vec<Mount>, folder: &Path) -> Option<Mounted> {
    let found = mounts.into_iter().rev().find(|mount| mount.place == folder);
    found.map(|mount| Mounted { number: mount.number.to_string(), kind: mount.kind })
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_encoded_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uppermost_mount_counts() {
        let text = "\
30 1 0:26 / /run rw - tmpfs tmpfs rw
40 30 0:50 / /run/a\\040b rw,nosuid shared:9 master:1 - ext4 /dev/x rw
41 40 0:51 / /run/a\\040b rw - fuse.bimetal tank rw,user_id=0
";
        let found = |number: &str, kind: &str| Some(Mounted { number: number.into(), kind: kind.into() });
        let topmost = |path: &str| topmost(mounts::parse(text.as_bytes()), Path::new(path));
        assert_eq!(topmost("/run/a b"), found("0:51", TYPE));
        assert_eq!(topmost("/run"), found("0:26", "tmpfs"));
        assert_eq!(topmost("/run/a"), None);
    }

    #[test]
    fn a_link_leads_to_its_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let here = fs::canonicalize(dir.path()).expect("a path");
        fs::create_dir(here.join("real")).expect("a folder");
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, here.join(name)).expect("a link");
        link(Path::new("real"), "one");
        link(&here.join("one"), "two");
        link(Path::new("loop"), "loop");
        link(Path::new("missing"), "dangling");
        for name in ["real", "one", "two", "real/../two"] {
            assert_eq!(true_path(&here.join(name)).expect("found"), here.join("real"), "{name}");
        }
        assert_eq!(true_path(&here.join("dangling")).expect("where it would be"), here.join("missing"));
        assert!(true_path(&here.join("loop")).is_err());
    }

    #[test]
    fn what_is_not_mounted_is_not_dead() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(!is_mounted(dir.path()));
        assert!(!remove_dead(dir.path()).expect("looked"));
        assert!(!remove_dead(&dir.path().join("no/such")).expect("looked"));
    }
}

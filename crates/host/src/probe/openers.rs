//! Whether a process has a file open, by whatever name: a hard link, or a bind mount in a container. The list of open files shows the
//! name only by which each was opened.
//!
//! Told apart by the numbers of file system and file that the kernel knows without asking anybody. Only a file that has both is
//! looked at, and lies where the wanted one lies: what is dead elsewhere is not waited for.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::mounts::{self, Mount};
use super::sysfs::DeviceNumber;

/// A file that is looked for among those that are open.
pub struct Wanted {
    mount: u64,
    number: Option<DeviceNumber>,
    inode: u64,
    /// Device and inode as its file system tells them, which may count on their own.
    place: (u64, u64),
    /// What this process sees mounted.
    mounts: Vec<Mount>,
}

impl Wanted {
    /// The file of this name. Asks its file system.
    pub fn new(path: &Path) -> io::Result<Wanted> {
        let file = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
        let meta = file.metadata()?;
        let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let (mount, inode) = numbers(&told).ok_or_else(|| io::Error::other("the kernel does not number open files"))?;
        let mounts = mounts::all()?;
        let number = number_of(&mounts, mount);
        Ok(Wanted { mount, number, inode, place: (meta.dev(), meta.ino()), mounts })
    }

    /// Whether it is what a process has open as this number.
    pub fn is_open_as(&self, process: u32, number: &str) -> bool {
        let told = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).unwrap_or_default();
        let Some((mount, _)) = numbers(&told).filter(|(_, inode)| *inode == self.inode) else { return false };
        self.lies_on(process, mount) && self.is_at(Path::new(&format!("/proc/{process}/fd/{number}")))
    }

    /// Whether a mount that a process knows is one of the same file system.
    fn lies_on(&self, process: u32, mount: u64) -> bool {
        let theirs = || number_of(&mounts::of_process(process).unwrap_or_default(), mount);
        let number = || number_of(&self.mounts, mount).or_else(theirs);
        mount == self.mount || (self.number.is_some() && number() == self.number)
    }

    /// On some file systems (btrfs) several files have the same number. What cannot be told apart may be the one.
    fn is_at(&self, link: &Path) -> bool {
        match fs::metadata(link) {
            Ok(meta) => (meta.dev(), meta.ino()) == self.place,
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        }
    }
}

fn number_of(mounts: &[Mount], id: u64) -> Option<DeviceNumber> {
    mounts.iter().find(|mount| mount.id == id).map(|mount| mount.number)
}

/// The numbers of mount and file, by the text in `fdinfo`.
fn numbers(fdinfo: &str) -> Option<(u64, u64)> {
    let field = |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((field("mnt_id:")?, field("ino:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_another_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let (one, two, other) = (dir.path().join("one"), dir.path().join("two"), dir.path().join("other"));
        fs::write(&one, "").expect("a file");
        fs::write(&other, "").expect("a file");
        fs::hard_link(&one, &two).expect("a hard link");
        let open = File::open(&two).expect("opened");
        let is_open = |path: &Path| {
            let wanted = Wanted::new(path).expect("numbers");
            wanted.is_open_as(std::process::id(), &open.as_raw_fd().to_string())
        };
        assert!(is_open(&one) && is_open(&two));
        assert!(!is_open(&other));
    }

    #[test]
    fn the_numbers_of_an_open_file_are_read() {
        let told = "pos:\t0\nflags:\t02\nmnt_id:\t27\nino:\t1043\nlock:\t1: FLOCK\n";
        assert_eq!(numbers(told), Some((27, 1043)));
        assert_eq!(numbers("pos:\t0\nmnt_id:\t27\n"), None);
    }
}

//! Who uses a block device: mount points, swap, devices stacked on it, programs that have it open.
//!
//! What only the device itself can tell is asked by another process ([`beside`]), so that the daemon that serves it may ask,
//! too.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bimetal_host::attach::AttachError;
use bimetal_host::probe::loops;
use bimetal_host::probe::mounts::{self, Mount};
use bimetal_host::probe::openers::Wanted;

use crate::api::Attachment;
use crate::beside;

/// Everything that holds `device` or one of its partitions, in words. Empty when nobody does, or it is gone.
pub(crate) fn of(device: &str) -> Vec<String> {
    let Ok(meta) = std::fs::metadata(device) else { return Vec::new() };
    if !meta.file_type().is_block_device() {
        return Vec::new();
    }
    let rdev = meta.rdev();
    let number = format!("{}:{}", major(rdev), minor(rdev));
    let sys = PathBuf::from(format!("/sys/dev/block/{number}"));
    let mut found = Vec::new();
    collect(&number, device, &sys, &mut found);
    for entry in std::fs::read_dir(&sys).into_iter().flatten().flatten() {
        if !entry.path().join("partition").exists() {
            continue;
        }
        let number = std::fs::read_to_string(entry.path().join("dev")).unwrap_or_default();
        let name = format!("/dev/{}", entry.file_name().to_string_lossy());
        collect(number.trim(), &name, &entry.path(), &mut found);
    }
    found.dedup();
    found
}

/// Why a device is not taken away: somebody uses it, who is told of in these words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InUse(pub(crate) String);

/// Whether something failed because a device is in use, also by somebody whom another look would not find.
pub(crate) fn is_in_use(error: &anyhow::Error) -> bool {
    let by_kernel = |error: &AttachError| matches!(error, AttachError::InUse { .. });
    error.is::<InUse>() || error.downcast_ref().is_some_and(by_kernel)
}

/// Everybody who uses a device.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// In words.
    pub(crate) all: Vec<String>,
    /// Somebody holds it, as opposed to a program that has it open and may close it in the next moment.
    pub(crate) held: bool,
}

impl Users {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Those who hold `device`, and the programs that have it open. If there are none to be seen the device itself is asked, which
/// may take seconds.
pub(crate) fn users(device: &str) -> Users {
    let mut all = of(device);
    let mut held = !all.is_empty();
    all.extend(openers(device));
    if all.is_empty() {
        all.extend(beside::hidden_holder(device));
        held = !all.is_empty();
    }
    Users { all, held }
}

/// Who keeps a stop waiting that would take all these devices away, as far as that can be seen from here. A device is used by whoever
/// has it open: what such a one has written may be in the page cache only.
pub(crate) fn of_all(attachments: Vec<Attachment>) -> Vec<String> {
    let users = |a: Attachment| {
        let open = openers(&a.device);
        a.held_by.into_iter().chain(open)
    };
    attachments.into_iter().flat_map(users).collect()
}

/// The same of those who cannot be seen from here. May take seconds for each device.
pub(crate) fn hidden_of_all(attachments: &[Attachment]) -> Vec<String> {
    let ours = attachments.iter().filter(|a| !crate::commands::detach::is_anothers(a));
    ours.filter_map(|a| beside::hidden_holder(&a.device)).collect()
}

/// Processes that have `device` or one of its partitions open, in words, as far as this process may see them. But for the helper of
/// the kernel's NBD client, if it is an older one that stays and keeps the device open.
pub(crate) fn openers(device: &str) -> Vec<String> {
    let helper = nbd_client_of(device);
    let found = processes(|name| is_device(name, Path::new(device))).into_iter();
    found.filter(|pid| Some(*pid) != helper).map(|pid| has_open(device, pid)).collect()
}

/// The process that has connected a device of the kernel's NBD client, as the kernel knows it, if that is there still; other devices
/// name none. A newer client ends at once, and its number may be anybody's.
fn nbd_client_of(device: &str) -> Option<u32> {
    let name = Path::new(device).file_name()?;
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let pid: u32 = read(Path::new("/sys/block").join(name).join("pid"))?.trim().parse().ok()?;
    let program = read(format!("/proc/{pid}/comm").into())?;
    (program.trim() == "nbd-client").then_some(pid)
}

/// Processes that have a file of exactly this name open, in words. By the name only.
pub(crate) fn with_open_name(path: &str) -> Vec<String> {
    processes(|name| name == Path::new(path)).into_iter().map(|pid| has_open(path, pid)).collect()
}

/// Other processes that have a file or block device open, or a partition of it, in words, as far as this process may see
/// them: root sees all. May ask the file system that `path` lies on.
pub(crate) fn others_with_open(path: &Path) -> Vec<String> {
    let found = processes_with_open(path);
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string();
    found.into_iter().map(|pid| has_open(&place, pid)).collect()
}

/// The same by their ids.
pub(crate) fn processes_with_open(path: &Path) -> Vec<u32> {
    let Ok(path) = path.canonicalize() else { return Vec::new() };
    let block = std::fs::metadata(&path).is_ok_and(|m| m.file_type().is_block_device());
    // Where the kernel tells no numbers the name has to do.
    let wanted = if block { None } else { Wanted::new(&path).ok() };
    let by_number = |file: &OpenFile| wanted.as_ref().is_some_and(|w| w.is_open_as(file.process, &file.number));
    let mut found = open_in(|file| match block {
        true => is_device(&file.name, &path),
        // What is no file, a pipe for one, has a name that is no path.
        false => file.name == path || (file.name.is_absolute() && by_number(file)),
    });
    found.retain(|pid| *pid != std::process::id());
    found
}

fn has_open(device: &str, pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{device} is open in process {pid} ('{}')", String::from_utf8_lossy(&name).trim())
}

/// What a process has open.
struct OpenFile {
    process: u32,
    /// Its number there.
    number: String,
    /// As it was called when it was opened.
    name: PathBuf,
}

impl OpenFile {
    fn new(process: u32, fd: &std::fs::DirEntry) -> Option<OpenFile> {
        let name = std::fs::read_link(fd.path()).ok()?;
        Some(OpenFile { process, number: fd.file_name().into_string().ok()?, name })
    }
}

/// Processes that have a file of such a name open. By the names only: to ask the files would ask those who serve them.
fn processes(is_it: impl Fn(&Path) -> bool) -> Vec<u32> {
    open_in(|file| is_it(&file.name))
}

/// Processes that have such a file open.
fn open_in(is_it: impl Fn(&OpenFile) -> bool) -> Vec<u32> {
    let has = |pid: &u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|fd| OpenFile::new(*pid, &fd)).any(|file| is_it(&file))
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<u32> = all.filter_map(|p| p.file_name().to_str()?.parse().ok()).filter(|pid| has(pid)).collect();
    found.sort_unstable();
    found
}

/// Whether a name is that of the device or of a partition of it: `sda1` of `sda`, `loop1p1` of `loop1`.
fn is_device(name: &Path, device: &Path) -> bool {
    let (name, device) = (name.as_os_str().as_bytes(), device.as_os_str().as_bytes());
    let Some(rest) = name.strip_prefix(device) else { return false };
    let number = match device.last().is_some_and(u8::is_ascii_digit) {
        true => rest.strip_prefix(b"p"),
        false => Some(rest),
    };
    rest.is_empty() || number.is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit))
}

fn collect(number: &str, device: &str, sys: &Path, found: &mut Vec<String>) {
    // A device of which it cannot be seen may be in use.
    let hidden = |e: std::io::Error| vec![format!("{device} may be in use ({e})")];
    let words = |mounts: Vec<Mount>| {
        mounted_at(&mounts, number, device).into_iter().map(|at| format!("{device} is mounted at {at}")).collect()
    };
    found.extend(mounts::all().map_or_else(hidden, words));
    let swap = |all: Vec<PathBuf>| {
        all.iter().filter(|s| **s == Path::new(device)).map(|_| format!("{device} is used as swap")).collect()
    };
    found.extend(mounts::swaps().map_or_else(hidden, swap));
    for holder in std::fs::read_dir(sys.join("holders")).into_iter().flatten().flatten() {
        found.push(format!("{device} is used by {}", holder.file_name().to_string_lossy()));
    }
    // The kernel names no holder for these, nor has a process the device open.
    let stacked = loops::made_of(Path::new(device)).into_iter().map(|over| over.display().to_string());
    found.extend(stacked.map(|over| below_loop_device(device, &over)));
}

/// The words for a device or file that a loop device is made of: who uses that is to let go first.
pub(crate) fn below_loop_device(device: &str, over: &str) -> String {
    let users = of(over).join(", ");
    let how = if users.is_empty() { format!("losetup -d {over} takes that away") } else { users };
    format!("{device} is below the loop device {over} ({how})")
}

/// Mount points in a folder, and the folder itself if it is one.
pub(crate) fn mounts_below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let points = mounts::all()?.into_iter().map(|mount| mount.place);
    Ok(points.filter(|at| at.starts_with(folder)).collect())
}

/// Mount points of a device, by number or, for file systems with numbers of their own (btrfs), by source.
fn mounted_at(mounts: &[Mount], number: &str, device: &str) -> Vec<String> {
    let of_it = mounts.iter().filter(|m| m.number.to_string() == number || m.source == Path::new(device));
    let mut points: Vec<String> = of_it.map(|mount| mount.place.display().to_string()).collect();
    points.dedup();
    points
}

fn major(dev: u64) -> u64 {
    (dev >> 8) & 0xfff | (dev >> 32) & !0xfff
}

fn minor(dev: u64) -> u64 {
    dev & 0xff | (dev >> 12) & !0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &[u8] = b"\
21 1 0:99 / /n\xff rw - tmpfs none rw
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 22 7:3 / /mnt/my\\040disk rw - ext4 /dev/loop3 rw
91 22 0:55 /@ /btr rw - btrfs /dev/loop4 rw
";

    #[test]
    fn mount_points_are_found_by_number_and_by_source() {
        let mounted_at = |number: &str, device: &str| mounted_at(&mounts::parse(INFO), number, device);
        assert_eq!(mounted_at("7:3", "/dev/loop3"), ["/mnt/my disk"]);
        assert_eq!(mounted_at("7:4", "/dev/loop4"), ["/btr"]);
        assert!(mounted_at("7:5", "/dev/loop5").is_empty());
    }

    #[test]
    fn a_device_and_its_partitions_are_told_from_others() {
        let is_device = |name: &str, device: &str| is_device(Path::new(name), Path::new(device));
        assert!(is_device("/dev/ublkb1", "/dev/ublkb1") && is_device("/dev/ublkb1p2", "/dev/ublkb1"));
        for other in
            ["/dev/ublkb12", "/dev/ublkb1p", "/dev/ublkb1px", "/dev/ublkc1", "/dev/ublkb", "/dev/ublkb1 (deleted)"]
        {
            assert!(!is_device(other, "/dev/ublkb1"), "{other}");
        }
        assert!(is_device("/dev/sda", "/dev/sda") && is_device("/dev/sda12", "/dev/sda"));
        assert!(!is_device("/dev/sdab", "/dev/sda") && !is_device("/dev/sdab1", "/dev/sda"));
    }

    #[test]
    fn a_program_that_has_something_open_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().display().to_string();
        let found = openers(&path);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&format!("process {} (", std::process::id())), "{found:?}");
        assert!(others_with_open(file.path()).is_empty(), "this process is no other");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(file.reopen().expect("opened again"))
            .spawn()
            .expect("sleep starts");
        // It has the name of this program until it runs its own.
        let others = others_with_open(file.path());
        let link = file.path().with_extension("link");
        std::fs::hard_link(file.path(), &link).expect("a hard link");
        let by_another_name = others_with_open(&link);
        std::fs::remove_file(&link).expect("removed");
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(others.len() == 1 && others[0].contains(&format!("process {} (", child.id())), "{others:?}");
        assert_eq!(by_another_name.len(), 1, "{by_another_name:?}");
        drop(file);
        assert!(openers(&path).is_empty());
    }

    #[test]
    fn a_file_has_no_holder() {
        assert!(of("/proc/self/status").is_empty());
    }
}

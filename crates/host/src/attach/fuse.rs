//! A loop device over a file that the daemon shows in its own FUSE mount.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::tools::{find, run};
use super::{loop_device, AttachError, Attached, Request, Via};
use crate::fuse::{is_mounted, true_path};
use crate::probe::loops;

/// Whether it can be used here, or why not.
pub(super) fn available() -> Result<(), String> {
    // What a loop device does is only told there: whether it works with direct I/O, and what lies below it.
    if !Path::new("/sys/block").exists() {
        return Err("sysfs is not mounted (mount -t sysfs sysfs /sys)".into());
    }
    for (path, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        if Path::new(path).exists() {
            continue;
        }
        let loaded = find("modprobe").is_some_and(|m| run(Command::new(m).args(["-q", module])).is_ok());
        if !loaded || !Path::new(path).exists() {
            return Err(format!("there is no {path} (kernel module {module})"));
        }
    }
    Ok(())
}

/// Has the daemon show its files, and puts a loop device over that of the volume.
pub(super) fn attach(request: &Request<'_>, why: String) -> Result<Attached, AttachError> {
    let file =
        (request.show_file)().map_err(|why| AttachError::step("asking the daemon for the volume as a file", why))?;
    let folder = file.parent().unwrap_or(&file).to_owned();
    if !is_mounted(&folder) {
        let why =
            "the daemon has mounted it, but it cannot be seen from here: the daemon runs in a mount namespace of \
                   its own (a container, or a hardened unit; see packaging/README.md)";
        return Err(AttachError::step(folder.display().to_string(), why));
    }
    let backing = open_volume(&file, request)?;
    let device = loop_device::over(&backing, &file, request.sector_size, request.read_only)?;
    Ok(Attached { via: Via::Fuse, device, mount_dir: Some(folder), helper_pid: None, why })
}

/// A loop device over the volume's file in the mount `folder`, by whomever it was made: the number of the file says so, its name may
/// have been another's then. Two would each have a page cache, so one that is not as good as one of ours is refused.
pub(super) fn find_made(request: &Request<'_>, folder: &Path) -> Result<Option<Attached>, AttachError> {
    let Ok(real) = true_path(folder) else { return Ok(None) };
    let here = loops::all_named().into_iter().filter(|(_, file)| file.parent() == Some(&*real));
    let mut of_volume = here.map(|(device, _)| device).filter(|device| inode(device) == Some(request.inode));
    let Some(device) = of_volume.next() else { return Ok(None) };
    if let Some(flaw) = loop_device::flaw(&device, request.size, request.read_only) {
        let name = device.display();
        let by = format!(
            "it shows this volume already, was made by somebody else, and {flaw}; a second device would have a page cache of \
             its own. Release it first: umount what is mounted from it, then losetup -d {name}"
        );
        return Err(AttachError::InUse { device, by });
    }
    let why = "this loop device over the volume's file was there already, though not written down".into();
    Ok(Some(Attached { via: Via::Fuse, device, mount_dir: Some(folder.to_owned()), helper_pid: None, why }))
}

/// Whether a loop device surely shows another file than that with this number, or a part of it only. Asks the daemon.
pub(super) fn shows_another(device: &Path, wanted: u64) -> bool {
    inode(device).is_some_and(|found| found != wanted || !loop_device::is_whole(device))
}

/// The number of the file below a loop device, if anybody can be asked for it.
fn inode(device: &Path) -> Option<u64> {
    loop_device::place(device).map(|place| match place {
        loop_device::Place::File((_, inode)) => inode,
        // No file of ours has that number.
        loop_device::Place::Device(_) => 0,
    })
}

/// Opens the file, and makes sure of the volume: its name may have become another's meanwhile.
fn open_volume(file: &Path, request: &Request<'_>) -> Result<File, AttachError> {
    let fail = |error: io::Error| AttachError::step(format!("opening {}", file.display()), error);
    let opened = OpenOptions::new().read(true).write(!request.read_only).open(file).map_err(fail)?;
    let found = opened.metadata().map_err(fail)?;
    if (found.ino(), found.len()) == (request.inode, request.size) {
        return Ok(opened);
    }
    let why = format!(
        "this is not the volume that was meant: it has number {} and {} bytes instead of {} and {}. Volumes were changed \
         at the same time; try again",
        found.ino(),
        found.len(),
        request.inode,
        request.size
    );
    Err(AttachError::step(file.display().to_string(), why))
}

/// Has the loop device take the size of the volume, which is this by now. False if the device is none of the volume's.
pub(super) fn follow_size(attached: &Attached, size: u64) -> Result<bool, AttachError> {
    let Some(file) = loop_device::backing_file(&attached.device).filter(|file| is_ours(attached, file)) else {
        return Ok(false);
    };
    // The kernel learns the size of the file when somebody asks for it.
    let found = fs::metadata(&file).map_err(|e| AttachError::step(file.display().to_string(), e))?.len();
    if found != size {
        let why =
            format!("it has {found} bytes instead of {size}; the volume was changed again, or its name is another's");
        return Err(AttachError::step(file.display().to_string(), why));
    }
    loop_device::take_size(&attached.device, size)?;
    Ok(true)
}

/// Takes the loop device away. The mount is the daemon's affair.
pub(super) fn detach(attached: &Attached) -> Result<(), AttachError> {
    let file = loop_device::backing_file(&attached.device);
    if file.is_some_and(|file| is_ours(attached, &file)) {
        loop_device::detach(&attached.device)?;
    }
    Ok(())
}

/// Whether the loop device was surely given to another file meanwhile. A path without a folder may belong to a mount that
/// cannot be seen from here.
pub(super) fn is_anothers(attached: &Attached) -> bool {
    let other = |file: &Path| !is_ours(attached, file) && file.parent() != Some(Path::new("/"));
    loop_device::backing_file(&attached.device).is_some_and(|file| other(&file))
}

fn is_ours(attached: &Attached, file: &Path) -> bool {
    match &attached.mount_dir {
        Some(folder) => file.starts_with(folder) || is_orphan(file),
        None => true,
    }
}

/// Whether the mount of a file was removed: its path then begins there. What has that path is something else, as `/home`
/// is for a volume `home`.
fn is_orphan(file: &Path) -> bool {
    let is_other = match fs::symlink_metadata(file) {
        Ok(found) => !found.is_file(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    file.parent() == Some(Path::new("/")) && is_other
}

#[cfg(test)]
mod tests {
    use super::is_orphan;
    use std::path::Path;

    #[test]
    fn the_file_of_a_mount_that_is_gone_is_known_whatever_has_its_path() {
        assert!(is_orphan(Path::new("/no-such-file")));
        assert!(is_orphan(Path::new("/proc")), "a folder is below no loop device");
        for other in ["/proc/self/stat", "/no/such-file"] {
            assert!(!is_orphan(Path::new(other)), "{other}");
        }
    }
}

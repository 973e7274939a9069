//! Loop devices with direct I/O.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::tools::wait_until;
use super::AttachError;
use crate::probe::sysfs::{self, number, DeviceNumber};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4c07;
const LOOP_SET_DIRECT_IO: libc::Ioctl = 0x4c08;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// How often the free device may be snatched by another program, or still be on its way out of another's hands.
const TRIES: u32 = 200;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
/// How long the kernel may take to let a device go.
const PATIENCE: Duration = Duration::from_secs(10);

/// `struct loop_info64` of the kernel.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of the kernel.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

/// Puts a free loop device over `file`.
#[cfg(test)]
pub(crate) fn attach(file: &Path, sector_size: u32, read_only: bool) -> Result<PathBuf, AttachError> {
    let backing = OpenOptions::new().read(true).write(!read_only).open(file);
    let backing = backing.map_err(|e| AttachError::step(format!("opening {}", file.display()), e))?;
    over(&backing, file, sector_size, read_only)
}

/// Puts a free loop device over `backing`, which was opened as `file`.
pub(super) fn over(backing: &File, file: &Path, sector_size: u32, read_only: bool) -> Result<PathBuf, AttachError> {
    let fail = |step: &str, error: io::Error| AttachError::step(format!("{step} for {}", file.display()), error);
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control");
    let control = control.map_err(|e| fail("opening /dev/loop-control", e))?;
    for _ in 0..TRIES {
        // SAFETY: takes no argument.
        let free = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if free < 0 {
            return Err(fail("finding a free loop device", io::Error::last_os_error()));
        }
        let device = PathBuf::from(format!("/dev/loop{free}"));
        match OpenOptions::new().read(true).write(!read_only).open(&device) {
            Ok(opened) => match configure(&opened, backing, sector_size, read_only) {
                Ok(()) => return check(device, free),
                // Another program was faster.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(fail("setting up a loop device", error)),
            },
            // The kernel is still taking the last file out of it.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {}
            Err(error) => return Err(fail("opening a free loop device", error)),
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    Err(AttachError::step("setting up a loop device", "other programs take them all; try again"))
}

fn configure(device: &File, backing: &File, sector_size: u32, read_only: bool) -> io::Result<()> {
    // SAFETY: both structures are plain integers, for which zeros are valid.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = backing.as_raw_fd() as u32;
    config.block_size = sector_size;
    config.info.flags = LO_FLAGS_DIRECT_IO | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    // SAFETY: the pointer is to a loop_config, valid for the call.
    if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Without direct I/O every block would be in memory twice, and memory pressure could block the daemon.
fn check(device: PathBuf, number_of_loop: i32) -> Result<PathBuf, AttachError> {
    if number(Path::new(&format!("/sys/block/loop{number_of_loop}/loop/dio"))) == Some(1) {
        return Ok(device);
    }
    detach(&device)?;
    Err(AttachError::step(device.display().to_string(), "the kernel does not grant direct I/O on the FUSE file"))
}

/// Has a loop device take the size that its file has by now, in bytes. What has it open sees that.
pub(super) fn take_size(device: &Path, size: u64) -> Result<(), AttachError> {
    let opened = File::open(device).map_err(|e| AttachError::step(device.display().to_string(), e))?;
    // SAFETY: takes no argument.
    if unsafe { libc::ioctl(opened.as_raw_fd(), LOOP_SET_CAPACITY) } < 0 {
        let error = io::Error::last_os_error();
        return Err(AttachError::step(format!("giving {} its new size", device.display()), error));
    }
    let name = device.file_name().unwrap_or_default();
    let found = number(&Path::new("/sys/block").join(name).join("size")).map(|sectors| sectors * 512);
    match found == Some(size) {
        true => Ok(()),
        false => Err(AttachError::step(device.display().to_string(), "the kernel does not take the new size")),
    }
}

/// Takes the file out of a loop device and waits until the kernel has let it go. By then the device may show another file: who
/// is given a free number takes the one that was let go last.
pub(crate) fn detach(device: &Path) -> Result<(), AttachError> {
    let Some(file) = backing_file(device) else { return Ok(()) };
    let opened = File::open(device).map_err(|e| AttachError::step(device.display().to_string(), e))?;
    // SAFETY: takes no argument.
    if unsafe { libc::ioctl(opened.as_raw_fd(), LOOP_CLR_FD) } < 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENXIO) {
            return Err(AttachError::step(format!("releasing {}", device.display()), error));
        }
    }
    drop(opened);
    if wait_until(PATIENCE, || backing_file(device).as_ref() != Some(&file)) {
        return Ok(());
    }
    let by = "some program has it open (fuser -v shows which); it is released when that program ends".into();
    Err(AttachError::InUse { device: device.to_owned(), by })
}

/// Whether a loop device shows its file from the first byte to the last.
pub(super) fn is_whole(device: &Path) -> bool {
    let is_zero = |what: &str| told(device, what).is_none_or(|value| value == 0);
    is_zero("loop/offset") && is_zero("loop/sizelimit")
}

/// What keeps a loop device that somebody else has made from being as good as one that is made [here](over), if anything does. Direct
/// I/O is switched on where it is off.
pub(super) fn flaw(device: &Path, size: u64, read_only: bool) -> Option<&'static str> {
    if !is_whole(device) {
        return Some("it shows a part of the volume only");
    }
    if told(device, "size") != Some(size / 512) {
        return Some("it does not have the volume's size");
    }
    if told(device, "ro") != Some(read_only.into()) {
        return Some(if read_only { "it may be written" } else { "it is read-only" });
    }
    if told(device, "loop/autoclear") == Some(1) {
        return Some("it goes away with whoever uses it now");
    }
    (!has_direct_io(device)).then_some("the kernel does not give it direct I/O")
}

/// A number that the kernel tells of a device.
fn told(device: &Path, what: &str) -> Option<u64> {
    number(&Path::new("/sys/block").join(device.file_name()?).join(what))
}

fn has_direct_io(device: &Path) -> bool {
    if told(device, "loop/dio") == Some(1) {
        return true;
    }
    let Ok(opened) = File::open(device) else { return false };
    let on: libc::c_ulong = 1;
    // SAFETY: takes a number.
    unsafe { libc::ioctl(opened.as_raw_fd(), LOOP_SET_DIRECT_IO, on) == 0 }
}

/// The file below a loop device.
pub(super) fn backing_file(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    sysfs::backing_file(&Path::new("/sys/block").join(name))
}

/// What is below a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file: its device and inode.
    File((u64, u64)),
    /// A block device.
    Device(DeviceNumber),
}

/// What is below a loop device; `None` to those who may not open it. Asks the file system of the file.
pub(crate) fn place(device: &Path) -> Option<Place> {
    let opened = File::open(device).ok()?;
    // SAFETY: the structure is plain integers, for which zeros are valid.
    let mut info: LoopInfo = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one loop_info64 to the pointer, which is valid for the call.
    let done = unsafe { libc::ioctl(opened.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) } == 0;
    // Of a file the kernel gives its own device both times.
    let is_node = info.rdevice != 0 && info.rdevice != info.device;
    done.then(|| match is_node {
        true => Place::Device(DeviceNumber::new(info.rdevice)),
        false => Place::File((info.device, info.inode)),
    })
}

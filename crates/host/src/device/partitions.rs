//! What the kernel takes for partitions of a disk. It reads the table when it is told to, and goes on showing partitions of a table
//! that was erased: each looks like a device of its own, and shows what the disk is used for by now.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use crate::probe::sysfs::DeviceNumber;
use crate::probe::usage;

/// Programs that look at each new partition for a moment get that moment.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// Has the kernel read the partition table of an open disk anew. Not possible while a partition is open.
pub(super) fn read_table(disk: &File) -> io::Result<()> {
    let folder = DeviceNumber::new(disk.metadata()?.rdev()).folder();
    if usage::partitions(&folder).is_empty() {
        return Ok(());
    }
    let mut tries = 1..=TRIES;
    loop {
        let asked = ask(disk);
        let busy = asked.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy);
        match tries.next() {
            Some(_) if busy => thread::sleep(PAUSE),
            _ => return asked,
        }
    }
}

fn ask(disk: &File) -> io::Result<()> {
    // `BLKRRPART`, which libc does not know.
    const READ_TABLE: libc::Ioctl = 0x125f;
    // SAFETY: the descriptor is open, and the request takes no argument.
    match unsafe { libc::ioctl(disk.as_raw_fd(), READ_TABLE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

//! `/dev/fuse` on the ring: mounting, and requests and answers as bytes. What they mean is the export's affair.
//!
//! A request arrives whole in one read, and an answer leaves whole in one write. The kernel wants room for the largest
//! write each time, so a [request area](request_area) has it, laid out so that the payload of a WRITE begins on a page.
//!
//! Rules:
//! 1. One receive waits at a time. Each request would wake all that wait, and the ring would in the end move those
//!    that go away empty to threads of its own. What else is there already is taken without waiting.
//! 2. Mounting and unmounting may touch the mounted files. They block, so they run beside the group's thread, never
//!    on it: a daemon that waits for its own volume never wakes up.

mod answer;
mod ground;
mod helper;
mod mount;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use bimetal_volume::buf::{BufMut, PAGE};
use bimetal_volume::env::Env;
use io_uring::{opcode, types::Fd};

use crate::reactor::{HostEnv, Keep, OnDrop};

/// A pause before it is looked again whether a connection has ended.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
pub use answer::Answer;
pub use ground::device_below;
pub(crate) use mount::TYPE as MOUNT_TYPE;
pub use mount::{
    is_mounted, look, mount, number_of, remove_dead, true_path, unmount, unmount_only, Fashion, MountError,
};

/// Bytes before the payload of a WRITE: the head of a request and the fixed part of a WRITE.
pub const WRITE_HEAD: usize = 80;
/// Most bytes of one READ or WRITE.
pub const MAX_TRANSFER: usize = 1 << 20;

/// Memory for one request. Byte [`WRITE_HEAD`], where the payload of a WRITE begins, is the first of a page.
pub fn request_area() -> BufMut {
    BufMut::with_phase(WRITE_HEAD + MAX_TRANSFER, (PAGE - WRITE_HEAD) as u64)
}

/// Bytes of a page of the kernel, in which it counts how much one request may carry.
pub fn page_size() -> usize {
    // SAFETY: takes an integer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(PAGE)
}

/// User and group of this process, to whom the mounted files belong.
pub fn owner() -> (u32, u32) {
    // SAFETY: these take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// An open `/dev/fuse` that belongs to a mount. Cloning gives another handle; with the last one the mount dies.
#[derive(Clone)]
pub struct Device {
    env: HostEnv,
    file: Rc<OwnedFd>,
}

impl Device {
    /// Takes over what [`mount`] gave.
    pub fn new(env: &HostEnv, file: OwnedFd) -> Device {
        Device { env: env.clone(), file: Rc::new(file) }
    }

    /// Waits for a request, receives it into `area` and gives it back with the number of bytes; `ENODEV` when it was
    /// unmounted.
    pub async fn receive(&self, mut area: BufMut) -> (BufMut, io::Result<usize>) {
        let entry = opcode::Read::new(Fd(self.file.as_raw_fd()), area.as_mut_ptr(), area.len() as u32).build();
        // SAFETY: the memory of `area` does not move with it; it is handed over together with the file.
        let op = unsafe { self.env.core().start(entry, Keep::Read(area), Some(self.file.clone()), OnDrop::Cancel) };
        let (result, keep) = op.await;
        let Keep::Read(area) = keep else { unreachable!("an operation gives back what it was given") };
        (area, usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
    }

    /// Receives a request if one is there; otherwise `WouldBlock`.
    pub fn try_receive(&self, area: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the pointer and the length are those of `area`. The file was opened with O_NONBLOCK.
        let got = unsafe { libc::read(self.file.as_raw_fd(), area.as_mut_ptr().cast(), area.len()) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// Completes when the kernel has ended the connection (`umount -f`, for one), whether anything is received or not.
    pub async fn ended(&self) {
        loop {
            // An end is told of without being asked for.
            let entry = opcode::PollAdd::new(Fd(self.file.as_raw_fd()), libc::POLLERR as u32).build();
            // SAFETY: the entry points to no memory, and the file is handed over.
            let op = unsafe { self.env.core().start(entry, Keep::None, Some(self.file.clone()), OnDrop::Cancel) };
            let (result, _) = op.await;
            if result > 0 && result & i32::from(libc::POLLERR | libc::POLLHUP) != 0 {
                return;
            }
            self.env.sleep(LOOK_AGAIN).await;
        }
    }

    /// Sends an answer and gives it back, to be used again. The kernel refuses one to a request that it has given up
    /// (`ENOENT`), which harms nobody.
    pub async fn send(&self, mut answer: Box<Answer>) -> (Box<Answer>, io::Result<()>) {
        let pieces = answer.list();
        let entry = opcode::Writev::new(Fd(self.file.as_raw_fd()), pieces.as_ptr(), pieces.len() as u32).build();
        let keep = Keep::Answer(answer);
        // SAFETY: the list and all it points to are owned by the boxed answer, which is handed over.
        let op = unsafe { self.env.core().start(entry, keep, Some(self.file.clone()), OnDrop::Finish) };
        let (result, keep) = op.await;
        let Keep::Answer(answer) = keep else { unreachable!("an operation gives back what it was given") };
        (answer, if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) })
    }
}

#[cfg(test)]
mod tests;

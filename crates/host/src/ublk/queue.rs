//! The queue of a device: requests come from the kernel, answers go back, on the ring of the group's thread.
//!
//! 1. Each tag has one buffer. With FETCH, and then with each COMMIT_AND_FETCH, it belongs to the kernel until the next
//!    request of the tag is there: the answer to a read is taken out of it, the data of a write are put into it.
//! 2. A tag has one command under way at a time, and only the thread that made the first one makes the others.
//! 3. Commands end with a request, with an error when the device goes, or with the ring.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use bimetal_volume::buf::BufMut;
use io_uring::{opcode, types::Fd};

use super::abi::{self, IoCmd, IoDesc};
use super::{DeviceId, Found, UblkError};
use crate::reactor::{HostEnv, Keep, OnDrop};

/// The open queue of a device. Cloning gives another handle.
#[derive(Clone)]
pub struct Queue {
    env: HostEnv,
    file: Rc<OwnedFd>,
    descriptors: Rc<Descriptors>,
    depth: u16,
    max_bytes: usize,
}

/// The requests, as the kernel shows them: one per tag.
struct Descriptors {
    at: *mut libc::c_void,
    len: usize,
}

impl Queue {
    /// Opens the queue of a device. Only one process can have it open.
    pub fn open(env: &HostEnv, device: &Found) -> Result<Queue, UblkError> {
        let path = device.id.queue_path();
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|source| UblkError::Queue { path: path.clone(), source })?;
        let descriptors = Descriptors::map(&file, device.depth).map_err(|source| UblkError::Queue { path, source })?;
        Ok(Queue {
            env: env.clone(),
            file: Rc::new(file.into()),
            descriptors: Rc::new(descriptors),
            depth: device.depth,
            max_bytes: device.max_bytes as usize,
        })
    }

    /// Tags: requests that may be under way.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Bytes of the largest read or write, which is the size of each tag's buffer.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Gives the kernel the buffer of `tag`, with the answer to its last request (bytes done, or a negative errno), and
    /// waits for the next. An error is the errno with which the device says that there will be none.
    pub async fn exchange(&self, tag: u16, answer: Option<i32>, mut buf: BufMut) -> (BufMut, Result<IoDesc, i32>) {
        assert!(tag < self.depth && buf.len() >= self.max_bytes, "a buffer per tag, large enough for every request");
        let op = if answer.is_some() { abi::COMMIT_AND_FETCH_REQ } else { abi::FETCH_REQ };
        let cmd = IoCmd { q_id: 0, tag, result: answer.unwrap_or(0), addr: buf.as_mut_ptr() as u64 };
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), op).cmd(cmd.bytes()).build();
        // SAFETY: the command points to `buf`, which has room for the largest request and whose pages do not move with
        // it; it is handed over together with the file.
        let op = unsafe { self.env.core().start(entry, Keep::Parked(buf), Some(self.file.clone()), OnDrop::Finish) };
        let (result, keep) = op.await;
        let Keep::Parked(buf) = keep else { unreachable!("an operation gives back what it was given") };
        match result {
            0.. => (buf, Ok(self.descriptors.get(tag))),
            errno => (buf, Err(errno)),
        }
    }
}

impl Descriptors {
    fn map(file: &File, depth: u16) -> io::Result<Descriptors> {
        let len = abi::descriptors_len(depth);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is touched.
        let at = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Descriptors { at, len })
    }

    /// The request of a tag whose command has just completed.
    fn get(&self, tag: u16) -> IoDesc {
        let at = self.at.cast::<IoDesc>();
        assert!((usize::from(tag) + 1) * size_of::<IoDesc>() <= self.len, "the map holds every tag");
        // SAFETY: inside the mapping. The kernel wrote it before it completed the command, and writes it again only
        // after the next one; it is plain integers, for which every content is valid.
        unsafe { at.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nobody has a reference into it.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

impl DeviceId {
    pub(super) fn queue_path(self) -> std::path::PathBuf {
        format!("/dev/ublkc{}", self.0).into()
    }
}

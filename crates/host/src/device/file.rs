//! Files and block devices with O_DIRECT.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Answering, DeviceError, DeviceTraits, Env};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};

use super::allocate;
use super::error::from_errno;
use super::partitions;
use super::rest::Rest;
use super::waits::Waits;
use super::{Access, OpenError};
use crate::probe::sysfs::{BlockQueue, DeviceNumber};
use crate::probe::{loops, usage};
use crate::reactor::{HostEnv, Keep, OnDrop};

/// Unit of direct I/O.
const BLOCK: usize = 4096;
/// Most bytes in one request to the kernel; it takes at most 2 GiB less a page.
const MAX_REQUEST: usize = 1 << 30;
/// Most bytes in one discard by ioctl, which cannot be interrupted.
const MAX_DISCARD: u64 = 1 << 30;

/// A file or block device. Cloning gives another handle.
#[derive(Clone)]
pub struct FileDevice {
    inner: Rc<Inner>,
}

struct Inner {
    env: HostEnv,
    /// Locks, where asked for, hang on this open file.
    file: Rc<OwnedFd>,
    path: PathBuf,
    /// Bytes when it was opened.
    size: u64,
    block_device: bool,
    sector_sizes: (u32, u32),
    rotational: bool,
    discard: Cell<bool>,
    waits: Waits,
}

/// Whether what is at a path is what was opened. A block device has many names; a file may have others, too.
fn leads_to(path: &Path, opened: &Metadata) -> io::Result<bool> {
    let there = match std::fs::metadata(path) {
        Ok(there) => there,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(false),
        Err(e) => return Err(e),
    };
    Ok(match opened.file_type().is_block_device() {
        true => there.file_type().is_block_device() && there.rdev() == opened.rdev(),
        false => (there.dev(), there.ino()) == (opened.dev(), opened.ino()),
    })
}

/// What opening a file or block device has found.
struct Found {
    file: File,
    size: u64,
    block_device: bool,
    queue: Option<BlockQueue>,
}

impl Found {
    /// Opens a file or block device. Blocks, for as long as the file system it lies on takes.
    fn open(path: &Path, access: Access) -> Result<Found, OpenError> {
        let meta = std::fs::metadata(path).map_err(|e| explain(path, access, e))?;
        let block_device = check_kind(path, &meta)?;
        let (file, is_direct) = open_direct(path, access, block_device)?;
        if access.lock && !block_device {
            lock(&file, path, access.write)?;
            // The kernel itself takes no lock.
            let user = if access.write { usage::kernel_use(path) } else { None };
            if let Some(by) = user {
                return Err(OpenError::Busy { path: path.to_owned(), by });
            }
        }
        // A claim on a loop device keeps nobody from what it is made of.
        let opened = file.metadata().map_err(|e| explain(path, access, e))?;
        let asks = access.lock && block_device;
        let below = asks.then(|| loops::holder_below(DeviceNumber::new(opened.rdev()), access.write)).flatten();
        if let Some(by) = below {
            return Err(OpenError::Busy { path: path.to_owned(), by });
        }
        if !is_direct {
            read_anew(&file).map_err(|e| explain(path, access, e))?;
        }
        let size = size_of_file(&file, block_device).map_err(|e| explain(path, access, e))?;
        Ok(Found { file, size, block_device, queue: BlockQueue::of(&meta) })
    }
}

impl FileDevice {
    /// Opens a file or block device. Beside the group's thread: the file system may hang, and one that this process
    /// serves itself would wait for that thread.
    pub async fn open(env: &HostEnv, path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        let here = path.to_owned();
        let found = env.blocking(move || Found::open(&here, access)).await;
        let found = found.map_err(|source| OpenError::Io { path: path.to_owned(), source })??;
        Ok(FileDevice::of(env, path, access, found))
    }

    /// The same on this thread.
    #[cfg(test)]
    pub(crate) fn open_here(env: &HostEnv, path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        Ok(FileDevice::of(env, path, access, Found::open(path, access)?))
    }

    fn of(env: &HostEnv, path: &Path, access: Access, found: Found) -> FileDevice {
        let Found { file, size, block_device, queue } = found;
        let discard = access.write && (!block_device || queue.as_ref().is_some_and(|q| q.discard));
        let inner = Inner {
            env: env.clone(),
            file: Rc::new(file.into()),
            path: path.to_owned(),
            size,
            block_device,
            sector_sizes: queue.as_ref().filter(|_| block_device).map_or((512, 4096), |q| q.sector_sizes),
            rotational: queue.as_ref().is_some_and(|q| q.rotational),
            discard: Cell::new(discard),
            waits: Waits::default(),
        };
        FileDevice { inner: Rc::new(inner) }
    }

    /// A device over any open file.
    #[cfg(test)]
    pub(crate) fn for_test(env: &HostEnv, file: OwnedFd, size: u64) -> FileDevice {
        let inner = Inner {
            env: env.clone(),
            file: Rc::new(file),
            path: PathBuf::new(),
            size,
            block_device: false,
            sector_sizes: (512, 4096),
            rotational: false,
            discard: Cell::new(false),
            waits: Waits::default(),
        };
        FileDevice { inner: Rc::new(inner) }
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Whether its path still leads to what was opened.
    pub(super) async fn is_at_its_path(&self) -> io::Result<bool> {
        let (path, file) = (self.inner.path.clone(), self.inner.file.try_clone()?);
        self.inner.env.blocking(move || leads_to(&path, &File::from(file).metadata()?)).await?
    }

    pub(crate) fn size(&self) -> u64 {
        self.inner.size / BLOCK as u64 * BLOCK as u64
    }

    /// What lies behind its last whole block.
    pub(super) async fn rest(&self) -> Result<Vec<u8>, DeviceError> {
        let read = match self.place_of_rest() {
            Ok(None) => return Ok(Vec::new()),
            Ok(Some(rest)) => self.inner.env.blocking(move || rest.read()).await.and_then(|read| read),
            Err(error) => Err(error),
        };
        read.map_err(|error| from_errno(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Replaces that, durably.
    pub(super) async fn put_rest(&self, content: Vec<u8>) -> Result<(), DeviceError> {
        let written = match self.place_of_rest() {
            Ok(None) => return Ok(()),
            Ok(Some(rest)) => self.inner.env.blocking(move || rest.write(&content)).await.and_then(|written| written),
            Err(error) => Err(error),
        };
        written.map_err(|error| from_errno(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Has the kernel read the partition table anew, if it can.
    pub(super) async fn read_partitions_anew(&self) {
        let file = self.inner.file.try_clone().map(File::from);
        if let (true, Ok(file)) = (self.inner.block_device, file) {
            // Whoever takes a partition that stays is told of what is on the disk.
            let _ = self.inner.env.blocking(move || partitions::read_table(&file)).await;
        }
    }

    /// Takes room for a range.
    pub(super) async fn allocate(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        if self.inner.block_device {
            return Ok(());
        }
        let gone = |e: io::Error| from_errno(e.raw_os_error().unwrap_or(libc::EIO));
        let file = self.inner.file.try_clone().map_err(gone)?;
        self.inner.env.blocking(move || allocate::allocate(&file, offset, len)).await.map_err(gone)?
    }

    fn place_of_rest(&self) -> io::Result<Option<Rest>> {
        let (offset, len) = (self.size(), (self.inner.size - self.size()) as usize);
        (len > 0).then(|| Ok(Rest { file: self.inner.file.try_clone()?, offset, len })).transpose()
    }

    pub(crate) fn sector_sizes(&self) -> (u32, u32) {
        self.inner.sector_sizes
    }

    pub(crate) fn answering(&self) -> Answering {
        self.inner.waits.answering()
    }

    pub(crate) fn traits(&self) -> DeviceTraits {
        DeviceTraits { discard: self.inner.discard.get(), rotational: self.inner.rotational }
    }

    pub(crate) async fn read(&self, offset: u64, mut buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        let mut done = 0;
        while done < buf.len() {
            let part = &mut buf[done..];
            let len = part.len().min(MAX_REQUEST) as u32;
            let entry = opcode::Read::new(self.fd(), part.as_mut_ptr(), len).offset(offset + done as u64).build();
            let (result, keep) = self.run(entry, Keep::Read(buf)).await;
            let Keep::Read(back) = keep else { unreachable!("an operation gives back what it was given") };
            buf = back;
            match usize::try_from(result) {
                Ok(n) if done + n == buf.len() => break,
                Ok(n) => match self.after_short_read(offset, &mut buf, done + n, n) {
                    Ok(next) => done = next,
                    Err(error) => return (buf, Err(error)),
                },
                Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => {}
                Err(_) => return (buf, Err(from_errno(-result))),
            }
        }
        (buf, Ok(()))
    }

    /// Where a read goes on that has come to `have`, `n` bytes further than before.
    fn after_short_read(&self, offset: u64, buf: &mut BufMut, have: usize, n: usize) -> Result<usize, DeviceError> {
        if offset + have as u64 >= self.inner.size {
            // Behind the end of a file there are zeros.
            buf[have..].fill(0);
            return Ok(buf.len());
        }
        // Direct I/O goes on at a whole block. Without progress the file was cut short below us.
        let next = have / BLOCK * BLOCK;
        if next + n <= have {
            return Err(DeviceError::Io(libc::EIO));
        }
        Ok(next)
    }

    pub(crate) async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        let mut done = 0;
        let mut buf = buf;
        while done < buf.len() {
            let part = &buf[done..];
            let len = part.len().min(MAX_REQUEST) as u32;
            let entry = opcode::Write::new(self.fd(), part.as_ptr(), len).offset(offset + done as u64).build();
            let (result, keep) = self.run(entry, Keep::Write(buf)).await;
            let Keep::Write(back) = keep else { unreachable!("an operation gives back what it was given") };
            buf = back;
            match usize::try_from(result) {
                Ok(n) if done + n == buf.len() => break,
                Ok(n) => {
                    let next = (done + n) / BLOCK * BLOCK;
                    if next <= done {
                        return Err(DeviceError::Io(libc::EIO));
                    }
                    done = next;
                }
                Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => {}
                Err(_) => return Err(from_errno(-result)),
            }
        }
        Ok(())
    }

    pub(crate) async fn sync(&self) -> Result<(), DeviceError> {
        loop {
            let entry = opcode::Fsync::new(self.fd()).flags(FsyncFlags::DATASYNC).build();
            match self.run(entry, Keep::None).await.0 {
                // A sync that was interrupted has synced nothing, and may be asked again; any other failure may not.
                errno if errno == -libc::EINTR => {}
                errno if errno < 0 => return Err(from_errno(-errno)),
                _ => return Ok(()),
            }
        }
    }

    pub(crate) async fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        if !self.inner.discard.get() {
            return Err(DeviceError::Unsupported);
        }
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let part = (end - at).min(MAX_DISCARD);
            let result = if self.inner.block_device {
                self.discard_blocks(at, part).await
            } else {
                self.punch_hole(at, part).await
            };
            match result {
                Ok(()) => at += part,
                Err(DeviceError::Unsupported) => {
                    self.inner.discard.set(false);
                    return Err(DeviceError::Unsupported);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        loop {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let entry = opcode::Fallocate::new(self.fd(), len).offset(offset).mode(mode).build();
            match self.run(entry, Keep::None).await.0 {
                errno if errno == -libc::EINTR || errno == -libc::EAGAIN => {}
                errno if errno < 0 => return Err(from_errno(-errno)),
                _ => return Ok(()),
            }
        }
    }

    async fn discard_blocks(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let gone = |e: io::Error| DeviceError::Io(e.raw_os_error().unwrap_or(libc::EIO));
        let file = self.inner.file.try_clone().map_err(gone)?;
        let call = move || {
            let range = [offset, len];
            // SAFETY: BLKDISCARD reads two u64 from the pointer, which is valid for the call.
            let rc = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
            if rc < 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
            }
            Ok(())
        };
        let _in_flight = self.inner.waits.begin(|| self.inner.env.now());
        self.inner.env.blocking(call).await.map_err(gone)?.map_err(from_errno)
    }

    fn fd(&self) -> Fd {
        Fd(self.inner.file.as_raw_fd())
    }

    async fn run(&self, entry: squeue::Entry, keep: Keep) -> (i32, Keep) {
        let _in_flight = self.inner.waits.begin(|| self.inner.env.now());
        // SAFETY: the callers build `entry` over memory of `keep`, whose pages do not move with it.
        let op = unsafe { self.inner.env.core().start(entry, keep, Some(self.inner.file.clone()), OnDrop::Finish) };
        op.await
    }
}

/// `_IO(0x12, 119)`
const BLKDISCARD: libc::Ioctl = 0x1277;
/// `_IOR(0x12, 114, size_t)`
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;

fn check_kind(path: &Path, meta: &Metadata) -> Result<bool, OpenError> {
    let kind = meta.file_type();
    let wrong = if kind.is_file() {
        return Ok(false);
    } else if kind.is_block_device() {
        return Ok(true);
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a pipe"
    };
    Err(OpenError::WrongKind { path: path.to_owned(), kind: wrong })
}

/// The file, and whether the page cache stands aside.
fn open_direct(path: &Path, access: Access, block_device: bool) -> Result<(File, bool), OpenError> {
    // On block devices O_EXCL keeps mounts, swap, RAID and other members out, also for a reader.
    let exclusive = if block_device && access.lock { libc::O_EXCL } else { 0 };
    let open = |flags| OpenOptions::new().read(true).write(access.write).custom_flags(flags | exclusive).open(path);
    match open(libc::O_DIRECT) {
        // Some file systems know no direct I/O; the page cache then stands between, and sync still holds.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => open(0).map(|file| (file, false)),
        other => other.map(|file| (file, true)),
    }
    .map_err(|e| explain(path, access, e))
}

/// Empties the page cache of a file: after a sync that failed, before us, it may show what the disk does not hold.
fn read_anew(file: &File) -> io::Result<()> {
    let synced = file.sync_data();
    // SAFETY: takes integers. It is advice: what is still dirty stays.
    let _advice = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    match synced {
        // A file system that is never written has nothing to sync.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EROFS)) => Ok(()),
        // The kernel tells of it once, and we are the one who was told.
        other => other.inspect_err(|_| super::sync_failed()),
    }
}

fn explain(path: &Path, access: Access, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => OpenError::Missing { path },
        Some(libc::EACCES | libc::EPERM) => {
            OpenError::Denied { path, how: if access.write { "write" } else { "read" } }
        }
        Some(libc::EBUSY) => {
            let by = crate::probe::usage::holder(&path).unwrap_or_else(|| "another program or the kernel".into());
            OpenError::Busy { path, by }
        }
        Some(libc::EROFS) => OpenError::ReadOnly { path },
        _ => OpenError::Io { path, source },
    }
}

/// Takes a lock that lives as long as the open file.
fn lock(file: &File, path: &Path, alone: bool) -> Result<(), OpenError> {
    let how = if alone { libc::LOCK_EX } else { libc::LOCK_SH };
    // SAFETY: takes two integers.
    if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    let path = path.to_owned();
    if source.raw_os_error() == Some(libc::EWOULDBLOCK) {
        let by = crate::probe::usage::lock_holder(&path).unwrap_or_else(|| "another program that has locked it".into());
        return Err(OpenError::Busy { path, by });
    }
    Err(OpenError::Io { path, source })
}

fn size_of_file(file: &File, block_device: bool) -> io::Result<u64> {
    if !block_device {
        return Ok(file.metadata()?.size());
    }
    let mut size = 0u64;
    // SAFETY: BLKGETSIZE64 writes one u64 to the pointer, which is valid for the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(size)
}

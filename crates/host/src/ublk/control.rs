//! Control commands: a ring of their own with 128-byte entries, one command at a time. All of them block, so none is
//! for the thread of a group, with two exceptions that never wait: [`Control::info`] and [`Control::begin_recovery`].

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue, IoUring};

use super::abi::{self, CtrlCmd, DevInfo, Params};
use super::{DeviceId, Features, Found, Limits, State, UblkError, CONTROL};

/// The queue of a command that is not about one.
const NO_QUEUE: u16 = u16::MAX;
/// "Any free number."
const ANY: u32 = u32::MAX;
/// How often, and how long apart, a kernel that has no memory is asked again: a second in all.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// A way to the driver's control device.
pub struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    /// A command was given to the kernel, or is still to be, and its end will never be known. No other follows.
    lost: bool,
}

impl Control {
    /// Opens it. Fails with words where the driver is missing, too old, or out of reach.
    pub fn open() -> Result<Control, UblkError> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => UblkError::Missing,
            io::ErrorKind::PermissionDenied => UblkError::Denied,
            _ => UblkError::Control(e),
        })?;
        let ring = IoUring::builder().build(2).map_err(UblkError::Control)?;
        Ok(Control { ring, file, lost: false })
    }

    /// What the driver can do. It must be able to hand a device from one daemon to the next.
    pub fn features(&mut self) -> Result<Features, UblkError> {
        // SAFETY: any eight bytes are a u64.
        let result = unsafe { self.exchange(abi::GET_FEATURES, ANY, 0u64, size_of::<u64>()) };
        let wanted = abi::F_USER_RECOVERY | abi::F_USER_RECOVERY_REISSUE | abi::F_CMD_IOCTL_ENCODE;
        match result.map_err(|e| e.raw_os_error()) {
            Ok(features) if features & wanted == wanted => Ok(Features(features)),
            Err(Some(libc::EPERM | libc::EACCES)) => Err(UblkError::Denied),
            _ => Err(UblkError::TooOld),
        }
    }

    /// Makes a device that nobody can use yet, with `tag` to know it by, and gives its number.
    pub fn add(&mut self, limits: &Limits, tag: u64) -> Result<DeviceId, UblkError> {
        if limits.depth == 0 || limits.depth > abi::MAX_QUEUE_DEPTH {
            return Err(UblkError::Depth(limits.depth));
        }
        limits.check()?;
        let info = DevInfo {
            nr_hw_queues: 1,
            queue_depth: limits.depth,
            max_io_buf_bytes: limits.max_bytes,
            dev_id: ANY,
            ublksrv_pid: std::process::id() as i32,
            flags: abi::F_USER_RECOVERY | abi::F_USER_RECOVERY_REISSUE | abi::F_CMD_IOCTL_ENCODE,
            ublksrv_flags: tag,
            ..DevInfo::default()
        };
        // SAFETY: it consists of integers only.
        let result = unsafe { self.exchange(abi::ADD_DEV, ANY, info, size_of::<DevInfo>()) };
        let info = result.map_err(|e| UblkError::command("making a device", None, e))?;
        Ok(DeviceId(info.dev_id))
    }

    /// Says how large the device is and what it takes. Before its start.
    pub fn set_limits(&mut self, id: DeviceId, limits: &Limits) -> Result<(), UblkError> {
        // SAFETY: it consists of integers only, and is as long at least.
        let result = unsafe { self.exchange(abi::SET_PARAMS, id.0, limits.params(), abi::PARAMS_LEN) };
        result.map(drop).map_err(|e| UblkError::command("setting its limits", Some(id), e))
    }

    /// Shows the block device. Without [`super::Untrusted`] at the first FETCH this waits until the kernel has looked
    /// for partitions.
    pub fn start(&mut self, id: DeviceId) -> Result<(), UblkError> {
        self.simple(abi::START_DEV, id, "starting it", u64::from(std::process::id()))
    }

    /// Takes the block device away. What is not answered by then, and what still comes, fails.
    pub fn stop(&mut self, id: DeviceId) -> Result<(), UblkError> {
        self.simple(abi::STOP_DEV, id, "stopping it", 0)
    }

    /// Forgets a device. Returns when its number is free: when no process has its queue open.
    pub fn delete(&mut self, id: DeviceId) -> Result<(), UblkError> {
        match self.simple(abi::DEL_DEV, id, "removing it", 0) {
            Err(UblkError::Command { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            other => other,
        }
    }

    /// Forgets a stopped device, and does not wait for those who have it open still: it is gone when they let go. Before
    /// Linux 6.9 there is no such command, and this waits for them.
    pub fn delete_later(&mut self, id: DeviceId) -> Result<(), UblkError> {
        match self.simple(abi::DEL_DEV_ASYNC, id, "removing it", 0) {
            Err(UblkError::Command { source, .. }) if source.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            Err(UblkError::Command { source, .. }) if is_unknown(&source) => self.delete(id),
            other => other,
        }
    }

    /// The device is to be taken over from a dead process. False: that process is not gone yet; try again.
    pub fn begin_recovery(&mut self, id: DeviceId) -> Result<bool, UblkError> {
        match self.simple(abi::START_USER_RECOVERY, id, "taking it over", 0) {
            Ok(()) => Ok(true),
            Err(UblkError::Command { source, .. }) if source.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            // Begun before, by a process that died before it asked for requests.
            Err(UblkError::Command { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => Ok(true),
            Err(other) => Err(other),
        }
    }

    /// The queue is served again: requests flow.
    pub fn end_recovery(&mut self, id: DeviceId) -> Result<(), UblkError> {
        self.simple(abi::END_USER_RECOVERY, id, "serving it again", u64::from(std::process::id()))
    }

    /// What the driver knows of a device; `None` if there is no such device.
    pub fn info(&mut self, id: DeviceId) -> Result<Option<Found>, UblkError> {
        // SAFETY: it consists of integers only.
        match unsafe { self.exchange(abi::GET_DEV_INFO, id.0, DevInfo::default(), size_of::<DevInfo>()) } {
            Ok(info) => Ok(Some(found(id, &info))),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(e) => Err(UblkError::command("asking for it", Some(id), e)),
        }
    }

    /// All devices of the machine, by number, but for those of users without rights (`UBLK_F_UNPRIVILEGED_DEV`): the kernel tells of
    /// them to whoever names their file only, root too, and none of ours is one.
    pub fn devices(&mut self) -> Result<Vec<Found>, UblkError> {
        let mut all = Vec::new();
        for n in numbers() {
            all.extend(unless_unprivileged(self.info(DeviceId(n)))?);
        }
        Ok(all)
    }

    /// Whether the machine has devices at all, as far as one can see without the control device.
    pub fn are_there_devices() -> bool {
        !numbers().is_empty()
    }

    fn simple(&mut self, op: u32, id: DeviceId, step: &'static str, data: u64) -> Result<(), UblkError> {
        let cmd = CtrlCmd { dev_id: id.0, queue_id: NO_QUEUE, data, ..CtrlCmd::default() };
        // SAFETY: the command points to nothing.
        unsafe { self.run(op, cmd) }.map_err(|e| UblkError::command(step, Some(id), e))
    }

    /// Carries out a command with a buffer that the kernel reads or writes, and gives the buffer as it is then. `len` is
    /// what the kernel is told of its size.
    ///
    /// # Safety
    /// Whatever bytes are in the first `len` of a `T`, it is valid; and `len` is at most its size.
    unsafe fn exchange<T: 'static>(&mut self, op: u32, dev_id: u32, buffer: T, len: usize) -> io::Result<T> {
        let buffer = Box::into_raw(Box::new(buffer));
        let cmd = CtrlCmd { dev_id, queue_id: NO_QUEUE, len: len as u16, addr: buffer as u64, ..CtrlCmd::default() };
        // SAFETY: the buffer lives until the command is done; if that is not known it is never freed, see below.
        let result = unsafe { self.run(op, cmd) };
        if self.lost {
            // The kernel may write to it one day.
            return result.and(Err(lost()));
        }
        // SAFETY: the pointer is from `into_raw`, and the kernel is done with it.
        let buffer = unsafe { Box::from_raw(buffer) };
        result.map(|()| *buffer)
    }

    /// Carries out a command and waits for it. With an error that leaves [`lost`](Control::lost) set nobody knows whether
    /// the kernel has the command still.
    ///
    /// # Safety
    /// `cmd.addr` is null or points to `cmd.len` bytes that the kernel may read and write until this returns, and for
    /// ever if `lost` is set then.
    unsafe fn run(&mut self, op: u32, cmd: CtrlCmd) -> io::Result<()> {
        if self.lost {
            return Err(lost());
        }
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), op).cmd(cmd.bytes()).build();
        // SAFETY: the entry holds the command by value; what it points to lives for as long as the kernel may have it.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
        let mut tries = 0;
        loop {
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    0.. => Ok(()),
                    errno => Err(io::Error::from_raw_os_error(-errno)),
                };
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
                // A kernel short of memory may have some in a moment.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN)) && tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(e) => {
                    self.lost = true;
                    return Err(e);
                }
            }
        }
    }
}

/// The numbers of all devices, ascending.
fn numbers() -> Vec<u32> {
    let entries = std::fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
    let names = entries.filter_map(|e| e.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(|n| n.strip_prefix("ublkc")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn lost() -> io::Error {
    io::Error::other("the kernel took no more commands from this program, and one of them has no answer")
}

/// Whether the driver does not know the command. Its first versions had an errno of their own for that.
fn is_unknown(error: &io::Error) -> bool {
    const ENOTSUPP: i32 = 524;
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | ENOTSUPP))
}

fn found(id: DeviceId, info: &DevInfo) -> Found {
    let state = match info.state {
        abi::S_DEV_LIVE => State::Live,
        abi::S_DEV_QUIESCED => State::Quiesced,
        _ => State::Dead,
    };
    let pid = u32::try_from(info.ublksrv_pid).ok().filter(|pid| *pid > 0);
    Found { id, state, pid, tag: info.ublksrv_flags, depth: info.queue_depth, max_bytes: info.max_io_buf_bytes }
}

impl Limits {
    /// Refuses what the kernel would refuse without words.
    fn check(&self) -> Result<(), UblkError> {
        if ![512, 4096].contains(&self.sector_size) {
            return Err(UblkError::Sector(self.sector_size));
        }
        if self.max_bytes < 4096 || !self.max_bytes.is_multiple_of(4096) || self.max_bytes > MAX_BYTES {
            return Err(UblkError::Size(self.max_bytes));
        }
        Ok(())
    }

    fn params(&self) -> Params {
        let read_only = if self.read_only { abi::ATTR_READ_ONLY } else { 0 };
        Params {
            len: abi::PARAMS_LEN as u32,
            types: abi::PARAM_TYPE_BASIC | if self.read_only { 0 } else { abi::PARAM_TYPE_DISCARD },
            basic: abi::ParamBasic {
                attrs: abi::ATTR_VOLATILE_CACHE | abi::ATTR_FUA | read_only,
                logical_bs_shift: self.sector_size.trailing_zeros() as u8,
                physical_bs_shift: self.block_size.trailing_zeros() as u8,
                io_opt_shift: self.optimal.trailing_zeros() as u8,
                io_min_shift: self.block_size.trailing_zeros() as u8,
                max_sectors: self.max_bytes >> 9,
                dev_sectors: self.size >> 9,
                ..abi::ParamBasic::default()
            },
            discard: abi::ParamDiscard {
                discard_granularity: self.block_size,
                max_discard_sectors: MAX_ZEROED >> 9,
                max_write_zeroes_sectors: MAX_ZEROED >> 9,
                max_discard_segments: 1,
                ..abi::ParamDiscard::default()
            },
            tail: 0,
        }
    }
}

/// Most bytes of one read or write.
const MAX_BYTES: u32 = 32 << 20;
/// Most bytes that one request discards or zeroes: what the block layer's 32-bit lengths hold, in whole MiB.
const MAX_ZEROED: u32 = 0xfff0_0000;

/// What was found of a device that may be an unprivileged one.
fn unless_unprivileged(found: Result<Option<Found>, UblkError>) -> Result<Option<Found>, UblkError> {
    match found {
        Err(UblkError::Command { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_the_kernel_does_not_tell_of_hides_no_other() {
        let failed = |errno| Err(UblkError::command("asking for it", None, io::Error::from_raw_os_error(errno)));
        assert!(unless_unprivileged(failed(libc::EINVAL)).is_ok_and(|found| found.is_none()));
        assert!(unless_unprivileged(failed(libc::EIO)).is_err());
    }

    fn limits() -> Limits {
        Limits {
            size: 1 << 30,
            sector_size: 512,
            block_size: 4096,
            optimal: 128 << 10,
            read_only: false,
            max_bytes: 256 << 10,
            depth: 128,
        }
    }

    #[test]
    fn a_kernel_that_takes_no_commands_is_an_error_and_no_panic() {
        let null = File::options().read(true).write(true).open("/dev/null").expect("there is one");
        let Ok(ring) = IoUring::builder().build(2) else { return eprintln!("skipped: no io_uring here") };
        // SAFETY: both descriptors are open, and the ring's stays one: it leads to something that is no ring.
        assert!(unsafe { libc::dup2(null.as_raw_fd(), ring.as_raw_fd()) } >= 0);
        let mut control = Control { ring, file: null, lost: false };
        let id = DeviceId(3);
        assert!(control.info(id).expect_err("no ring").to_string().contains("/dev/ublkb3: asking for it failed"));
        let again = control.stop(id).expect_err("no ring").to_string();
        assert!(again.contains("one of them has no answer"), "{again}");
    }

    #[test]
    fn limits_become_shifts_and_sectors() {
        let p = limits().params();
        let b = p.basic;
        assert_eq!((b.logical_bs_shift, b.physical_bs_shift, b.io_min_shift, b.io_opt_shift), (9, 12, 12, 17));
        assert_eq!((b.max_sectors, b.dev_sectors), (512, 1 << 21));
        assert_eq!(b.attrs, abi::ATTR_VOLATILE_CACHE | abi::ATTR_FUA);
        assert_eq!((p.len, p.types), (60, 3));
        assert_eq!((p.discard.discard_granularity, p.discard.max_discard_segments), (4096, 1));
        let p = Limits { read_only: true, sector_size: 4096, ..limits() }.params();
        assert_eq!((p.types, p.basic.logical_bs_shift), (1, 12));
        assert_eq!(p.basic.attrs & abi::ATTR_READ_ONLY, abi::ATTR_READ_ONLY);
    }

    #[test]
    fn limits_beyond_what_is_possible_are_refused_in_words() {
        assert!(limits().check().is_ok());
        for (bad, words) in [
            (Limits { sector_size: 1024, ..limits() }, "1024"),
            (Limits { sector_size: 0, ..limits() }, "512 or 4096"),
            (Limits { max_bytes: 0, ..limits() }, "4096"),
            (Limits { max_bytes: 64 << 20, ..limits() }, "MiB"),
            (Limits { max_bytes: 5000, ..limits() }, "5000"),
        ] {
            let said = bad.check().expect_err("refused").to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}

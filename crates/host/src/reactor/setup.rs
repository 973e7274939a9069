//! Making the ring, and saying in words why it cannot be made.

use std::io;

use io_uring::IoUring;

/// Submission entries. More requests than this in one turn of the loop cost one more system call.
const SUBMISSION_ENTRIES: u32 = 256;
/// Completion entries; the kernel keeps what does not fit, so this bounds nothing but memory.
const COMPLETION_ENTRIES: u32 = 4096;

/// Why no io_uring could be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The administrator switched it off.
    #[error(
        "io_uring is switched off on this machine (sysctl kernel.io_uring_disabled = {value}); \
         run `sysctl kernel.io_uring_disabled=0` as root{group}"
    )]
    Disabled {
        /// The value of the switch.
        value: u32,
        /// A further way out where there is one.
        group: &'static str,
    },
    /// A sandbox forbids it.
    #[error(
        "io_uring is forbidden here, most likely by the seccomp profile of a container; run outside of it, or with \
         a profile that allows io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Forbidden,
    /// The kernel has none, or an old one.
    #[error("this kernel lacks the io_uring that is needed (Linux 6.1 or later): {0}")]
    Unsupported(#[source] io::Error),
    /// Not enough lockable memory, or file descriptors.
    #[error("io_uring could not be set up: {0}; raise the limits on locked memory and open files (ulimit -l, -n)")]
    Limits(#[source] io::Error),
    /// Anything else.
    #[error("io_uring could not be set up: {0}")]
    Other(#[source] io::Error),
}

/// Makes the ring of one thread: completions are delivered when that thread enters the kernel, never by an interrupt
/// of its work.
pub(super) fn ring() -> Result<IoUring, SetupError> {
    IoUring::builder()
        .setup_cqsize(COMPLETION_ENTRIES)
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_single_issuer()
        .build(SUBMISSION_ENTRIES)
        .map_err(explain)
}

fn explain(error: io::Error) -> SetupError {
    let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    let value = switch.and_then(|s| s.trim().parse::<u32>().ok()).unwrap_or(0);
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if value == 1 => {
            SetupError::Disabled { value, group: ", or join the group named by kernel.io_uring_group" }
        }
        Some(libc::EPERM | libc::EACCES) if value != 0 => SetupError::Disabled { value, group: "" },
        Some(libc::EPERM | libc::EACCES) => SetupError::Forbidden,
        Some(libc::ENOSYS | libc::EINVAL) => SetupError::Unsupported(error),
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => SetupError::Limits(error),
        _ => SetupError::Other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let old = explain(io::Error::from_raw_os_error(libc::ENOSYS)).to_string();
        assert!(old.contains("6.1"), "{old}");
        let limits = explain(io::Error::from_raw_os_error(libc::ENOMEM)).to_string();
        assert!(limits.contains("ulimit"), "{limits}");
    }
}

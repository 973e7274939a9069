//! What a process does that serves a block device to its own machine (invariant I9).
//!
//! When memory is short the kernel writes dirty pages to get some, perhaps to our volume. If serving that write needed
//! memory itself, nobody would ever move again: so the daemon is locked in memory and marked as an I/O flusher.

use std::io;

/// Missing in the libc crate; `linux/prctl.h`.
pub(crate) const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// What could not be had, in words for the log. The daemon runs without; the risks are said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hygiene {
    /// One sentence each.
    pub warnings: Vec<String>,
    /// All memory is locked.
    pub locked: bool,
    /// Marked as an I/O flusher.
    pub io_flusher: bool,
}

/// What to do at the start of the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Lock all memory, now and later.
    pub lock_memory: bool,
    /// Write a core file after a crash. A core holds data of volumes.
    pub core_dumps: bool,
}

/// Prepares this process for serving. Call it once, before memory is needed in quantity.
pub fn prepare(wanted: Wanted) -> Hygiene {
    let mut done = Hygiene::default();
    raise_limit(libc::RLIMIT_NOFILE);
    if wanted.lock_memory {
        raise_limit(libc::RLIMIT_MEMLOCK);
        match lock_memory() {
            Ok(()) => done.locked = true,
            Err(error) => done.warnings.push(format!(
                "memory is not locked ({error}): under memory pressure the daemon may be swapped out and stall; \
                 run as root, or set LimitMEMLOCK=infinity in the unit"
            )),
        }
    }
    // SAFETY: takes integers only.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } == 0 {
        done.io_flusher = true;
    } else {
        done.warnings.push(format!(
            "not marked as an I/O flusher ({}): do not mount volumes on this same machine under heavy memory pressure; \
             run as root, or with the capability CAP_SYS_RESOURCE, to get rid of this",
            io::Error::last_os_error()
        ));
    }
    if !wanted.core_dumps {
        // SAFETY: takes integers only. A failure leaves core files to the system's settings.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    }
    done
}

/// Prepares the process of a command that holds passphrases and keys for a moment: they are in no core dump, no other
/// process of the same user reads them, and as far as this process may lock its memory they are not swapped out.
pub fn guard_secrets() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // What is not possible is not: a command that refused to work would help nobody.
    // SAFETY: takes integers, and a pointer to an rlimit that is valid for the call.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::setrlimit(libc::RLIMIT_CORE, &none);
    }
    raise_limit(libc::RLIMIT_MEMLOCK);
    let _swapped_at_worst = lock_memory();
}

/// Locks all memory. Under a limit that could not be raised this is not tried: a daemon whose later allocations fail is
/// worse than one that may be swapped.
fn lock_memory() -> io::Result<()> {
    let limit = limit(libc::RLIMIT_MEMLOCK)?;
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root && limit.rlim_cur != libc::RLIM_INFINITY {
        return Err(io::Error::other(format!("the limit is {} KiB", limit.rlim_cur >> 10)));
    }
    // SAFETY: takes flags only.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn limit(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to an rlimit, valid for the call.
    if unsafe { libc::getrlimit(resource, &mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

/// Raises a limit as far as this process may. A failure leaves it as it was.
fn raise_limit(resource: libc::__rlimit_resource_t) {
    let Ok(found) = limit(resource) else { return };
    let set = |cur, max| {
        let wanted = libc::rlimit { rlim_cur: cur, rlim_max: max };
        // SAFETY: the pointer is to an rlimit, valid for the call.
        unsafe { libc::setrlimit(resource, &wanted) == 0 }
    };
    if resource == libc::RLIMIT_MEMLOCK && set(libc::RLIM_INFINITY, libc::RLIM_INFINITY) {
        return;
    }
    set(found.rlim_max, found.rlim_max);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_said() {
        let done = prepare(Wanted { lock_memory: false, core_dumps: true });
        assert!(!done.locked);
        assert_eq!(done.io_flusher, done.warnings.is_empty(), "{done:?}");
        let files = limit(libc::RLIMIT_NOFILE).expect("known");
        assert_eq!(files.rlim_cur, files.rlim_max);
    }
}

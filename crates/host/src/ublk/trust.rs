//! Keeping the kernel from looking for partitions when a device is started.
//!
//! The driver looks for them while it starts a device, with the device locked. If the daemon dies in the middle, the
//! reads wait for the next daemon, the dead one's process for the reads, and the next daemon for the members that the
//! process still has open: for ever. The driver does not look on devices whose server it does not trust, that is one
//! without `CAP_SYS_ADMIN` when it asks for its first requests. (`partx -a` makes partitions known all the same.)

const CAP_SYS_ADMIN: u32 = 21;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// While it lives this thread makes no use of `CAP_SYS_ADMIN`. It belongs to the thread that made it.
pub struct Untrusted {
    before: [Set; 2],
    /// Not to be sent to another thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Untrusted {
    /// Lays the capability down; `None` if the kernel does not allow that.
    pub fn begin() -> Option<Untrusted> {
        let before = get()?;
        let mut without = before;
        without[0].effective &= !(1 << CAP_SYS_ADMIN);
        set(&without).then_some(Untrusted { before, _here: std::marker::PhantomData })
    }
}

impl Drop for Untrusted {
    fn drop(&mut self) {
        // It is still permitted, so this cannot fail.
        set(&self.before);
    }
}

fn get() -> Option<[Set; 2]> {
    let header = Header { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut sets = [Set::default(); 2];
    // SAFETY: this version of the call reads a header and writes two sets, both valid for the call.
    let rc = unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
    (rc == 0).then_some(sets)
}

fn set(sets: &[Set; 2]) -> bool {
    let header = Header { version: CAPABILITY_VERSION_3, pid: 0 };
    // SAFETY: this version of the call reads a header and two sets, both valid for the call. It changes this thread
    // only.
    unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_laid_down_and_taken_up_again() {
        let has = || get().expect("known")[0].effective & 1 << CAP_SYS_ADMIN != 0;
        let before = has();
        let untrusted = Untrusted::begin().expect("laying down is always allowed");
        assert!(!has());
        drop(untrusted);
        assert_eq!(has(), before);
    }
}

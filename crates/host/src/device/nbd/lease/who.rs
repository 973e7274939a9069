//! Who a holder is, and whether one is known to be gone.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bimetal_format::lease::Lease;
use bimetal_volume::env::Env;

use crate::attach;
use crate::reactor::HostEnv;

/// The leases that this process holds, by their nonces.
static HELD: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

pub(in crate::device::nbd) fn held() -> MutexGuard<'static, BTreeSet<u64>> {
    // The set is whole at any time.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process as a holder, with a nonce of its own.
pub(in crate::device::nbd) fn of_this_process(env: &HostEnv) -> Lease {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot: Vec<u8> = boot.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (byte, digits) in id.iter_mut().zip(boot.chunks_exact(2)) {
        *byte = std::str::from_utf8(digits).ok().and_then(|d| u8::from_str_radix(d, 16).ok()).unwrap_or(0);
    }
    let process = std::process::id();
    let began = if is_proc_ours() { attach::began(process) } else { None };
    Lease {
        group: [0; 16],
        nonce: env.random(),
        boot: id,
        namespace: namespace().unwrap_or(0),
        process,
        began: began.unwrap_or(0),
    }
}

/// What must be the same for two processes to know each other by their numbers and beginnings: the namespace of process numbers and,
/// as the upper half if it is not the first one, that of the times that `/proc` shows. `None` if that is not known.
fn namespace() -> Option<u64> {
    const FIRST_OF_TIME: u64 = 0xefff_fffa;
    let processes = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    let time = match std::fs::metadata("/proc/self/ns/time") {
        Ok(time) => Some(time.ino()).filter(|time| *time != FIRST_OF_TIME),
        // A kernel that knows none.
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(_) => return None,
    };
    Some(processes ^ time.unwrap_or(0) << 32)
}

/// Whether `/proc` numbers processes as this one's namespace does: a container may have been entered without its mounts.
fn is_proc_ours() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NStgid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

/// Whether a holder can be known to be gone, seen from another one, which is this process.
pub(super) fn is_gone(holder: &Lease, from: &Lease) -> bool {
    is_gone_by(holder, from, attach::began)
}

/// The same by what `/proc` shows: it may hide a process that lives.
pub(in crate::device::nbd) fn is_gone_by(holder: &Lease, from: &Lease, began: impl Fn(u32) -> Option<u64>) -> bool {
    if holder.is_mark() {
        return true;
    }
    if !is_of_one_machine(holder, from) {
        return false;
    }
    if holder.process == from.process && holder.began == from.began {
        return !held().contains(&holder.nonce);
    }
    // Another process may have its number by now. A number stays as long as the parent has not heard of the end, as in a container where
    // nobody waits for orphans.
    let known = holder.began != 0 && from.began != 0;
    let is_another = || began(holder.process).is_some_and(|began| began != holder.began);
    !attach::exists(holder.process) || known && (is_another() || attach::has_ended(holder.process))
}

/// Whether two know each other by their numbers and beginnings. What is 0 is not known.
fn is_of_one_machine(holder: &Lease, from: &Lease) -> bool {
    let same = (holder.boot, holder.namespace) == (from.boot, from.namespace);
    same && from.boot != [0; 16] && from.namespace != 0
}

/// Whether a holder is known to be there, seen from this process.
pub(super) fn is_here(holder: &Lease, own: &Lease) -> bool {
    let seen = holder.began != 0 && own.began != 0 && attach::began(holder.process) == Some(holder.began);
    is_of_one_machine(holder, own) && seen && !is_gone(holder, own)
}

/// Who serves a member, in words, and what to do.
pub(super) fn in_use(holder: Option<&Lease>, own: &Lease) -> String {
    let by = match holder {
        Some(h) if (h.boot, h.namespace) != (own.boot, own.namespace) => {
            format!("process {} of another machine or container", h.process)
        }
        Some(h) if (h.process, h.began) == (own.process, own.began) => "this very command, by another name".into(),
        Some(h) => format!("process {}", h.process),
        None => "somebody who does not say who it is".into(),
    };
    format!("{by}, which serves it; stop that first (two that serve one member destroy what is on it)")
}

//! What a process of its own does with a block device: `bimetal flush`.
//!
//! To open a device, to write out its page cache, even to close it may mean to wait for it. The daemon must not wait for a
//! device that it serves, and a command is to end: so another process does it, and is waited for with a limit.
//!
//! That process also says whether somebody *holds* the device whom nobody sees from here: a file system that is mounted in
//! another namespace (a container) or that was unmounted lazily is in none of the lists in `/proc`, and no process has
//! the device open for it. The kernel gives a device to one holder at a time (`O_EXCL`).

use std::os::unix::fs::FileTypeExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_host::probe::usage::open_alone;

use crate::cli;

/// The helper's exit code for a device that somebody holds.
const HELD: u8 = 16;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long it may take to find out whether a device is held.
const LOOKING: Duration = Duration::from_secs(5);
/// Who holds a device for a moment only, as another look does, is no user of it.
const MOMENT: Duration = Duration::from_secs(1);

/// What the helper is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Only to find out whether somebody holds the device.
    Look,
    /// To write out what the page cache holds for it, unless somebody holds it.
    Flush,
    /// To write that out in any case.
    FlushShared,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Somebody holds the device.
    Held,
}

/// Helpers that did not end in time, and their devices.
static LATE: Mutex<Vec<(String, Child)>> = Mutex::new(Vec::new());

/// Has it done, and waits so long. An error of the device itself was told to whoever wrote, and is none here.
pub(crate) fn ask(device: &str, work: Work, limit: Duration) -> Result<Outcome> {
    refuse_while_late(device)?;
    let mut child = start(device, work)?;
    let end = Instant::now() + limit;
    loop {
        match child.try_wait()? {
            Some(status) if status.code() == Some(i32::from(HELD)) => return Ok(Outcome::Held),
            Some(_) => return Ok(Outcome::Done),
            None if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
            None => break,
        }
    }
    // It ends by this unless it waits in the kernel, and is not waited for before its end.
    let _ = child.kill();
    LATE.lock().unwrap_or_else(PoisonError::into_inner).push((device.to_string(), child));
    bail!("{device} does not answer within {} s: its daemon, or a device below, may hang; see dmesg", limit.as_secs())
}

/// One process at most waits for a device that hangs, however often it is asked for.
fn refuse_while_late(device: &str) -> Result<()> {
    let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
    late.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
    if late.iter().any(|(of, _)| of == device) {
        bail!("{device} still does not answer: its daemon, or a device below, may hang; see dmesg");
    }
    Ok(())
}

fn start(device: &str, work: Work) -> Result<Child> {
    // The program that runs, also when its file was replaced by a newer one.
    let mut command = Command::new("/proc/self/exe");
    command.args(["flush", device]);
    match work {
        Work::Look => _ = command.arg("--look"),
        Work::Flush => {}
        Work::FlushShared => _ = command.arg("--shared"),
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env_remove("NOTIFY_SOCKET");
    command.spawn().with_context(|| format!("no process can be started that looks at {device}"))
}

/// Who holds a device without being seen from here, in words. What cannot be found out counts as held.
pub(crate) fn hidden_holder(device: &str) -> Option<String> {
    if !is_block_device(device) {
        return None;
    }
    let end = Instant::now() + MOMENT;
    loop {
        match ask(device, Work::Look, LOOKING) {
            Ok(Outcome::Done) => return None,
            Ok(Outcome::Held) if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
            Ok(Outcome::Held) => return Some(held(device)),
            Err(error) => return Some(format!("it cannot be found out who uses {device} ({error:#})")),
        }
    }
}

/// The words for a device that is held by whom nobody can see from here.
pub(crate) fn held(device: &str) -> String {
    format!(
        "{device} is in use where it cannot be seen from here: its file system is mounted in a container (or another mount \
         namespace), or was unmounted lazily while a program still works in it"
    )
}

fn is_block_device(device: &str) -> bool {
    std::fs::metadata(device).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// The helper itself.
pub(crate) fn run(args: &cli::Flush) -> Result<ExitCode> {
    let device = &args.device;
    let file = match args.shared {
        true => Some(std::fs::File::open(device)),
        false => open_alone(device).transpose(),
    };
    let Some(file) = file else { return Ok(ExitCode::from(HELD)) };
    let file = file.with_context(|| format!("{} cannot be opened", device.display()))?;
    if !args.look {
        file.sync_all().with_context(|| format!("{} cannot be written out", device.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_block_device_is_held_by_nobody() {
        assert_eq!(hidden_holder("/dev/null"), None);
        assert_eq!(hidden_holder("/no/such-device"), None);
    }

    #[test]
    fn one_process_at_most_waits_for_a_device_that_hangs() {
        let device = "/dev/hanging";
        let child = Command::new("sleep").arg("1000").spawn().expect("a process");
        LATE.lock().expect("whole").push((device.into(), child));
        let refused = ask(device, Work::Look, LOOKING).expect_err("refused").to_string();
        assert!(refused.contains("still does not answer"), "{refused}");
        let mut late = LATE.lock().expect("whole");
        for (_, child) in late.iter_mut() {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
        drop(late);
        refuse_while_late(device).expect("it has ended");
    }
}

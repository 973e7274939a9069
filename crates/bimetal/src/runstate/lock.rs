//! The lock of a group: one daemon serves it, or one command has it for itself. Who only reads members takes none: each member keeps
//! writers out by itself while it is open.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::open_rw;
use crate::paths;

/// Who looks whether a daemon lives holds the lock for a moment, too.
const LOCK_PATIENCE: Duration = Duration::from_millis(300);
/// Most commands have the group for a moment only: nobody is refused for that.
const COMMAND_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// As much of a command is told as says which one it is.
const COMMAND_MAX: usize = 200;

/// Held for as long as a daemon lives, or a command that needs the group for itself. The kernel lets go when the process ends, however it
/// ends.
pub(crate) struct Lock {
    name: String,
    file: File,
}

/// Takes the lock of group `name`, for a daemon.
pub(crate) fn lock(name: &str) -> Result<Lock> {
    lock_as(name, None)
}

/// The same for a command, which is named to those who come meanwhile.
pub(crate) fn lock_for_command(name: &str) -> Result<Lock> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let line = words.collect::<Vec<_>>().join(" ");
    let shown = line.chars().map(|c| if c.is_control() { '?' } else { c }).take(COMMAND_MAX).collect();
    lock_as(name, Some(shown))
}

fn lock_as(name: &str, command: Option<String>) -> Result<Lock> {
    let mut text = format!("{}\n", std::process::id());
    text.extend(command.map(|line| format!("{line}\n")));
    loop {
        let lock = lock_once(name)?;
        if lock.is_in_place() {
            // At once: who reads half of it would take a command for a daemon.
            let written = lock.file.set_len(0).and_then(|()| lock.file.write_all_at(text.as_bytes(), 0));
            written.with_context(|| format!("cannot write {}", lock_file(name).display()))?;
            return Ok(lock);
        }
    }
}

impl Lock {
    /// Whether the file is still the one that others would lock: its last holder may have taken it away.
    fn is_in_place(&self) -> bool {
        let number = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let here = std::fs::metadata(lock_file(&self.name)).map(number);
        here.is_ok_and(|here| self.file.metadata().map(number).is_ok_and(|own| own == here))
    }

    /// Whether group `name` is known here by nothing but this lock.
    fn is_all(&self) -> bool {
        let configured = paths::config_file(&self.name).map_or(true, |path| path.exists());
        let entries = std::fs::read_dir(paths::run_dir(&self.name)).into_iter().flatten().flatten();
        !configured && entries.map(|e| e.file_name()).eq(["lock"])
    }
}

impl Drop for Lock {
    /// A name that was mistyped leaves nothing.
    fn drop(&mut self) {
        if self.is_in_place() && self.is_all() {
            // Who waits for the lock makes both anew.
            let _ = std::fs::remove_file(lock_file(&self.name));
            let _ = std::fs::remove_dir(paths::run_dir(&self.name));
        }
        // Nobody takes the next holder for this one before it has said who it is.
        let _ = self.file.set_len(0);
    }
}

pub(super) fn lock_file(name: &str) -> PathBuf {
    paths::run_dir(name).join("lock")
}

fn lock_once(name: &str) -> Result<Lock> {
    paths::make_run_dir(name)?;
    let path = lock_file(name);
    let mut file = open_rw(&path)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { name: name.to_owned(), file }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("cannot lock {}", path.display())),
        }
        let mut text = String::new();
        let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
        let holder = Holder::of(&text);
        if begun.elapsed() >= holder.patience() {
            bail!("{}", holder.words(name));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// Who holds the lock of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its process id, or nothing if it has only begun.
    pub(crate) process: String,
    /// What it was called by if it is no daemon.
    pub(crate) command: Option<String>,
}

impl Holder {
    fn of(text: &str) -> Holder {
        let mut lines = text.lines().map(|line| line.trim().to_owned());
        Holder { process: lines.next().unwrap_or_default(), command: lines.next() }
    }

    pub(crate) fn is_daemon(&self) -> bool {
        self.command.is_none()
    }

    /// One that has only begun may be either.
    fn is_known_daemon(&self) -> bool {
        self.is_daemon() && !self.process.is_empty()
    }

    /// How long it is waited for.
    fn patience(&self) -> Duration {
        if self.is_known_daemon() {
            LOCK_PATIENCE
        } else {
            COMMAND_PATIENCE
        }
    }

    /// Why nobody else can have the group now.
    pub(crate) fn words(&self, name: &str) -> String {
        let process = &self.process;
        match &self.command {
            None => {
                format!("group '{name}' is already being served (process {process}); see `bimetal status {name}`")
            }
            Some(command) => format!(
                "group '{name}' is not served, but `bimetal {command}` (process {process}) has it for itself; try again when that has ended"
            ),
        }
    }
}

/// Who holds the lock of group `name`.
pub(crate) fn holder(name: &str) -> Option<Holder> {
    let mut file = File::open(lock_file(name)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.read_to_string(&mut text).ok()?;
            Some(Holder::of(&text))
        }
        _ => None,
    }
}

/// The same for who needs the group: a command that has it is waited for a while.
pub(crate) fn holder_for_long(name: &str) -> Option<Holder> {
    let begun = Instant::now();
    loop {
        let holder = holder(name)?;
        if holder.is_known_daemon() || begun.elapsed() >= holder.patience() {
            return Some(holder);
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// Its process id, whether it is a daemon or a command.
pub(crate) fn locked_by(name: &str) -> Option<String> {
    holder(name).map(|holder| holder.process)
}

/// Refuses what needs the members for itself.
pub(crate) fn refuse_served(name: &str) -> Result<()> {
    match holder_for_long(name) {
        None => Ok(()),
        Some(daemon) if daemon.is_daemon() => {
            bail!("group '{name}' is being served; stop it first: bimetal stop {name}")
        }
        Some(command) => bail!("{}", command.words(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_from_a_daemon() {
        let of = |text: &str| Holder::of(text).words("tank");
        for daemon in ["4711", "4711\n"] {
            assert!(of(daemon).contains("is already being served (process 4711)"), "{}", of(daemon));
        }
        let said = of("4711\nrepair tank\n");
        assert!(said.contains("`bimetal repair tank` (process 4711) has it for itself"), "{said}");
        assert_eq!(Holder::of(""), Holder { process: String::new(), command: None });
    }
}

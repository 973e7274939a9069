//! Small things that attaching needs: programs, waiting, privileges.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::AttachError;

/// Where programs are besides `PATH`, which for users often lacks the last two.
const FOLDERS: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The path of a program, if it is installed.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = listed.into_iter().chain(FOLDERS.iter().map(PathBuf::from));
    all.map(|folder| folder.join(program)).find(|p| p.is_file())
}

/// Runs a program to its end; its words on failure.
pub(crate) fn run(command: &mut Command) -> Result<(), AttachError> {
    let step = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|e| AttachError::step(step.as_str(), e))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.trim();
    let why = if words.is_empty() { output.status.to_string() } else { words.to_owned() };
    Err(AttachError::step(step, why))
}

/// Has a program be killed when this thread ends: what it makes afterwards nobody would know of.
pub(super) fn ends_with_us(command: &mut Command) -> &mut Command {
    let end = || {
        // SAFETY: takes numbers only.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only one system call is made, which may be made there.
    unsafe { command.pre_exec(end) }
}

/// Asks `done` again and again until it says so or `limit` has passed.
pub(super) fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

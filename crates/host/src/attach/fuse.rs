//! A FUSE file by `nbdfuse`, and a loop device over it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::tools::{alive, find, is_mount_point, run, wait_until};
use super::{loop_device, AttachError, Attached, Request, Via};

/// Name of the file in the mount.
const FILE: &str = "volume";
/// How long nbdfuse may take to show the file, or to end.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whether it can be used here, or why not.
pub(super) fn available() -> Result<(), String> {
    if find("nbdfuse").is_none() {
        return Err("nbdfuse is not installed (apt install libnbd-bin)".into());
    }
    // What a loop device does is only told there: whether it works with direct I/O, and what lies below it.
    if !Path::new("/sys/block").exists() {
        return Err("sysfs is not mounted (mount -t sysfs sysfs /sys)".into());
    }
    for (path, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        if Path::new(path).exists() {
            continue;
        }
        let loaded = find("modprobe").is_some_and(|m| run(Command::new(m).args(["-q", module])).is_ok());
        if !loaded || !Path::new(path).exists() {
            return Err(format!("there is no {path} (kernel module {module})"));
        }
    }
    Ok(())
}

/// Mounts the FUSE file and puts a loop device over it.
pub(super) fn attach(request: &Request, why: String) -> Result<Attached, AttachError> {
    let named = |e| AttachError::step(request.mount_dir.display().to_string(), e);
    fs::create_dir_all(&request.mount_dir).map_err(named)?;
    // The kernel tells mounts and files below loop devices by their true paths.
    let folder = &fs::canonicalize(&request.mount_dir).map_err(named)?;
    if is_mount_point(folder) {
        let by = "something is mounted there already; detach it first".into();
        return Err(AttachError::InUse { device: folder.clone(), by });
    }
    let mut helper = start(request, folder)?;
    let result = wait_for_file(&mut helper, folder)
        .map_err(|why| AttachError::step(format!("nbdfuse for {}", request.export), why))
        .and_then(|file| loop_device::attach(&file, request.sector_size, request.read_only));
    match result {
        Ok(device) => {
            Ok(Attached { via: Via::Fuse, device, mount_dir: Some(folder.clone()), helper_pid: Some(helper.id()), why })
        }
        Err(error) => {
            // The first error is the one to tell; this only tidies up.
            let _ = unmount(folder);
            let _ = helper.kill();
            let _ = helper.wait();
            let _ = fs::remove_file(folder.with_extension("log"));
            let _ = fs::remove_dir(folder);
            Err(error)
        }
    }
}

/// Starts nbdfuse in a session of its own, so that the end of a terminal does not end it.
fn start(request: &Request, folder: &Path) -> Result<Child, AttachError> {
    let program = find("nbdfuse").ok_or_else(|| AttachError::step("nbdfuse", "not installed"))?;
    let log = folder.with_extension("log");
    let log = fs::File::create(&log).map_err(|e| AttachError::step(log.display().to_string(), e))?;
    let mut command = Command::new(program);
    if request.read_only {
        command.arg("-r");
    }
    command.arg(folder.join(FILE)).arg(request.export.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // SAFETY: between fork and exec only system calls are made, which may be made there. The helper serves a block
    // device: it is marked as an I/O flusher so that it never waits for its own device when memory is short. A failure of
    // that (an old kernel, no privilege) is no reason to go without the device.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            libc::prctl(crate::hygiene::PR_SET_IO_FLUSHER, 1, 0, 0, 0);
            Ok(())
        });
    }
    command.spawn().map_err(|e| AttachError::step("starting nbdfuse", e))
}

fn wait_for_file(helper: &mut Child, folder: &Path) -> Result<PathBuf, String> {
    let file = folder.join(FILE);
    let mut ended = None;
    let there = wait_until(PATIENCE, || {
        ended = helper.try_wait().ok().flatten();
        ended.is_some() || is_mount_point(folder) && file.exists()
    });
    if there && ended.is_none() {
        return Ok(file);
    }
    let log = fs::read_to_string(folder.with_extension("log")).unwrap_or_default();
    Err(match (log.trim(), ended) {
        ("", Some(status)) => format!("it ended with {status}"),
        ("", None) => "it does not show the file in time; does the daemon answer?".into(),
        (words, _) => words.trim_start_matches("nbdfuse: ").to_owned(),
    })
}

/// Takes the loop device and the mount away, and waits for nbdfuse to end: it flushes before.
pub(super) fn detach(attached: &Attached) -> Result<(), AttachError> {
    let Some(folder) = &attached.mount_dir else {
        return loop_device::detach(&attached.device);
    };
    // The loop device may have been given to another file meanwhile.
    if loop_device::backing_file(&attached.device).is_some_and(|file| file.starts_with(folder)) {
        loop_device::detach(&attached.device)?;
    }
    unmount(folder)?;
    if let Some(pid) = attached.helper_pid {
        if !wait_until(PATIENCE, || !alive(pid)) {
            return Err(AttachError::step("nbdfuse", format!("process {pid} does not end; does the daemon answer?")));
        }
    }
    // Left over files harm nobody.
    let _ = fs::remove_file(folder.with_extension("log"));
    let _ = fs::remove_dir(folder);
    Ok(())
}

/// The loop device lets go of the file a little after it says so: try again for a while.
fn unmount(folder: &Path) -> Result<(), AttachError> {
    if !is_mount_point(folder) {
        return Ok(());
    }
    let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes())
        .map_err(|e| AttachError::step(folder.display().to_string(), e))?;
    let mut last = None;
    let gone = wait_until(PATIENCE, || {
        // SAFETY: the path is a valid string for the call.
        if unsafe { libc::umount2(path.as_ptr(), 0) } == 0 {
            return true;
        }
        last = Some(io::Error::last_os_error());
        !is_mount_point(folder)
    });
    match (gone, last) {
        (true, _) | (false, None) => Ok(()),
        (false, Some(error)) => Err(AttachError::step(format!("unmounting {}", folder.display()), error)),
    }
}

//! The kernel's NBD client, set up by `nbd-client`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::tools::{find, run, wait_until};
use super::{AttachError, Attached, Request, Via};
use crate::locator::NbdServer;
use crate::probe::sysfs::{line, number};

/// How long a device may take to appear or go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether it can be used here, or why not.
pub(super) fn available() -> Result<(), String> {
    if find("nbd-client").is_none() {
        return Err("nbd-client is not installed (apt install nbd-client)".into());
    }
    if Path::new("/sys/module/nbd").exists() {
        return Ok(());
    }
    let modprobe = find("modprobe").ok_or("the kernel module nbd is not loaded, and there is no modprobe")?;
    run(Command::new(modprobe).args(["-q", "nbd"])).map_err(|_| "this kernel has no nbd module".to_owned())?;
    Ok(())
}

/// Attaches to a free device.
pub(super) fn attach(request: &Request<'_>, why: String) -> Result<Attached, AttachError> {
    let program = find("nbd-client").ok_or_else(|| AttachError::step("nbd-client", "not installed"))?;
    for name in free_devices() {
        let device = PathBuf::from("/dev").join(&name);
        let mut command = Command::new(&program);
        match &request.export.server {
            NbdServer::Unix(path) => command.arg("-unix").arg(path),
            NbdServer::Tcp(host, port) => command.arg(host).arg(port.to_string()),
        };
        command.arg(&device).args(["-name", &request.export.export]);
        command.args(["-block-size", &request.sector_size.to_string()]);
        if request.read_only {
            command.arg("-readonly");
        }
        match run(&mut command) {
            Ok(()) => {}
            // Someone else was faster; take the next one.
            Err(_) if size(&name) > 0 => continue,
            Err(error) => return Err(error),
        }
        if !wait_until(PATIENCE, || size(&name) > 0) {
            return Err(AttachError::step(device.display().to_string(), "the kernel does not show the device"));
        }
        let helper_pid = served_by(&name);
        return Ok(Attached { via: Via::Nbd, device, mount_dir: None, helper_pid, why });
    }
    Err(AttachError::Unavailable {
        via: Via::Nbd,
        why: "all /dev/nbd devices are in use; load the module with more (modprobe nbd nbds_max=64)".into(),
    })
}

/// Whether the device is connected by another process than the one that was written down: it went away, and the kernel
/// gave its number to somebody else.
pub(super) fn is_anothers(attached: &Attached) -> bool {
    let name = name_of(attached);
    size(&name) > 0 && differs(attached.helper_pid, served_by(&name))
}

/// Whether both are known, and not the same. Earlier versions may have written none down.
fn differs(recorded: Option<u32>, now: Option<u32>) -> bool {
    recorded.zip(now).is_some_and(|(recorded, now)| recorded != now)
}

/// Ends the connection of a device, if it is the one that was made.
pub(super) fn detach(attached: &Attached) -> Result<(), AttachError> {
    let name = name_of(attached);
    if size(&name) == 0 || is_anothers(attached) {
        return Ok(());
    }
    let program = find("nbd-client").ok_or_else(|| AttachError::step("nbd-client", "not installed"))?;
    run(Command::new(program).arg("-d").arg(&attached.device))?;
    if !wait_until(PATIENCE, || size(&name) == 0) {
        let by = "the kernel keeps the device; find out who has it open (fuser -v)".into();
        return Err(AttachError::InUse { device: attached.device.clone(), by });
    }
    Ok(())
}

fn name_of(attached: &Attached) -> String {
    attached.device.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The process that has connected a device, as the kernel knows it.
fn served_by(name: &str) -> Option<u32> {
    line(&folder(name).join("pid"))?.parse().ok()
}

fn folder(name: &str) -> PathBuf {
    Path::new("/sys/block").join(name)
}

/// Sectors of a device; zero while it is not connected.
fn size(name: &str) -> u64 {
    number(&folder(name).join("size")).unwrap_or(0)
}

/// Names of unused devices, lowest number first.
fn free_devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    let mut free: Vec<(u32, String)> = names
        .filter_map(|name| Some((name.strip_prefix("nbd")?.parse().ok()?, name)))
        .filter(|(_, name)| size(name) == 0 && !folder(name).join("pid").exists())
        .collect();
    free.sort();
    free.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::differs;

    #[test]
    fn only_a_connection_that_is_known_to_be_another_is_somebody_elses() {
        assert!(differs(Some(7), Some(8)));
        for (recorded, now) in [(Some(7), Some(7)), (None, Some(8)), (Some(7), None), (None, None)] {
            assert!(!differs(recorded, now), "{recorded:?} {now:?}");
        }
    }
}

//! The kernel's NBD client, set up by `nbd-client`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::tools::{ends_with_us, find, run, wait_until};
use super::{AttachError, Attached, Request, Via};
use crate::locator::NbdServer;
use crate::probe::sysfs::{line, number};

/// Where the kernel shows block devices.
const DEVICES: &str = "/sys/block";
/// Number of the first namespace of process ids: the kernel counts those that it shows there by it.
const FIRST_NAMESPACE: u64 = 0xefff_fffc;
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
        match run(ends_with_us(&mut command)) {
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
    Path::new(DEVICES).join(name)
}

/// Sectors of a device; zero while it is not connected.
fn size(name: &str) -> u64 {
    number(&folder(name).join("size")).unwrap_or(0)
}

/// Names of unused devices, lowest number first.
fn free_devices() -> Vec<String> {
    let all = names_in(Path::new(DEVICES)).into_iter();
    all.filter(|name| size(name) == 0 && !folder(name).join("pid").exists()).collect()
}

/// Names of all devices of the kernel's NBD client in a folder like `/sys/block`, lowest number first.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    let mut all: Vec<(u32, String)> =
        names.filter_map(|name| Some((name.strip_prefix("nbd")?.parse().ok()?, name))).collect();
    all.sort();
    all.into_iter().map(|(_, name)| name).collect()
}

/// Whether any device is connected to anything.
pub(super) fn is_any_connected() -> bool {
    !connected_in(Path::new(DEVICES)).is_empty()
}

/// See [`connected_by`](super::connected_by).
pub(super) fn connected_by(clients: &[u32]) -> Vec<(u32, Attached)> {
    let namespace = std::fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino());
    if namespace.is_ok_and(|number| number != FIRST_NAMESPACE) {
        // The clients are counted otherwise than by the kernel: another's device could be taken for one of theirs.
        return Vec::new();
    }
    let attached = |(pid, name): (u32, String)| {
        let device = Path::new("/dev").join(name);
        (pid, Attached { via: Via::Nbd, device, mount_dir: None, helper_pid: Some(pid), why: String::new() })
    };
    made_by(clients, &connected_in(Path::new(DEVICES)), is_left_to_the_kernel).into_iter().map(attached).collect()
}

/// Devices that are connected, each with the process that did it, in a folder like `/sys/block`.
fn connected_in(folder: &Path) -> Vec<(u32, String)> {
    let connected = |name: String| {
        let own = folder.join(&name);
        number(&own.join("size")).filter(|sectors| *sectors > 0)?;
        Some((line(&own.join("pid"))?.parse().ok()?, name))
    };
    names_in(folder).into_iter().filter_map(connected).collect()
}

/// Which of the connected devices these clients have made. Two devices of one process tell of neither whose it is: numbers of processes
/// are given away again.
fn made_by(clients: &[u32], connected: &[(u32, String)], is_kernels: impl Fn(u32) -> bool) -> Vec<(u32, String)> {
    let is_only = |pid: u32| connected.iter().filter(|(other, _)| *other == pid).count() == 1;
    let made = connected.iter().filter(|(pid, _)| clients.contains(pid) && is_only(*pid) && is_kernels(*pid));
    made.cloned().collect()
}

/// Whether a connection that this process has made is the kernel's now: the process has ended, or is of the only kind that hands its
/// connection over. Any other program may have got the number of one that connected a device long ago, to whatever server.
fn is_left_to_the_kernel(pid: u32) -> bool {
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    program.map_or_else(|_| !super::exists(pid), |name| name.trim() == "nbd-client")
}

/// What keeps a connected device from being as good as one that is made [here](attach), if anything does.
pub(super) fn flaw(device: &Path, request: &Request<'_>) -> Option<&'static str> {
    flaw_in(&Path::new(DEVICES).join(device.file_name()?), request)
}

/// The same by the folder of the device.
fn flaw_in(folder: &Path, request: &Request<'_>) -> Option<&'static str> {
    let told = |what: &str| number(&folder.join(what));
    if told("size") != Some(request.size / 512) {
        return Some("it does not have the volume's size");
    }
    if told("ro") != Some(request.read_only.into()) {
        return Some(if request.read_only { "it may be written" } else { "it is read-only" });
    }
    (told("queue/logical_block_size") != Some(request.sector_size.into())).then_some("its sectors are not the volume's")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locator::NbdLocator;

    #[test]
    fn only_a_connection_that_is_known_to_be_another_is_somebody_elses() {
        assert!(differs(Some(7), Some(8)));
        for (recorded, now) in [(Some(7), Some(7)), (None, Some(8)), (Some(7), None), (None, None)] {
            assert!(!differs(recorded, now), "{recorded:?} {now:?}");
        }
    }

    /// A folder like `/sys/block` with these devices: their names, sectors, and the processes that have connected them.
    fn devices(all: &[(&str, u64, Option<u32>)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, sectors, pid) in all {
            let own = dir.path().join(name);
            let lines = [("size", *sectors), ("ro", 0), ("queue/logical_block_size", 4096)];
            std::fs::create_dir_all(own.join("queue")).expect("a folder");
            for (what, value) in lines.into_iter().chain(pid.map(|pid| ("pid", pid.into()))) {
                std::fs::write(own.join(what), format!("{value}\n")).expect("written");
            }
        }
        dir
    }

    #[test]
    fn a_device_is_a_clients_only_if_it_is_the_only_one_of_its_process() {
        let sys = devices(&[
            ("nbd10", 8, Some(7)),
            ("nbd2", 8, Some(8)),
            ("nbd3", 8, Some(9)),
            ("nbd4", 8, Some(9)),
            ("nbd0", 0, Some(6)),
            ("nbd1", 8, None),
            ("sda", 8, Some(7)),
            ("nbdx", 8, Some(7)),
        ]);
        let of = |pid: u32, name: &str| (pid, name.to_owned());
        let connected = connected_in(sys.path());
        assert_eq!(connected, [of(8, "nbd2"), of(9, "nbd3"), of(9, "nbd4"), of(7, "nbd10")]);
        assert_eq!(made_by(&[7, 6, 5, 7], &connected, |_| true), [of(7, "nbd10")], "one client, two connections");
        assert_eq!(made_by(&[9, 8], &connected, |_| true), [of(8, "nbd2")], "one of the two of process 9 is another's");
        assert_eq!(made_by(&[7, 8], &connected, |pid| pid != 7), [of(8, "nbd2")], "process 7 is another client");
        assert!(made_by(&[], &connected, |_| true).is_empty());
        assert!(connected_in(&sys.path().join("missing")).is_empty());
    }

    #[test]
    fn the_connection_of_a_program_that_lives_is_its_own() {
        assert!(!is_left_to_the_kernel(std::process::id()), "this is no nbd-client");
        let mut child = Command::new("true").spawn().expect("a process");
        child.wait().expect("it ends");
        assert!(is_left_to_the_kernel(child.id()));
    }

    #[test]
    fn a_device_that_is_not_what_would_be_made_is_not_adopted() {
        let sys = devices(&[("nbd0", 16, Some(7))]);
        let request = |size, read_only, sector_size| Request {
            export: NbdLocator { server: NbdServer::Unix("/nowhere".into()), export: String::new() },
            show_file: &|| Err(String::new()),
            inode: 0,
            size,
            read_only,
            sector_size,
            via: None,
            not_by_ublk: None,
        };
        let flaw =
            |size, read_only, sector_size| flaw_in(&sys.path().join("nbd0"), &request(size, read_only, sector_size));
        assert_eq!(flaw(8192, false, 4096), None);
        for (other, words) in [
            (flaw(4096, false, 4096), "size"),
            (flaw(8192, true, 4096), "may be written"),
            (flaw(8192, false, 512), "sectors"),
        ] {
            assert!(other.is_some_and(|said| said.contains(words)), "{other:?}");
        }
    }
}

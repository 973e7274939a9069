//! Devices of the kernel's NBD client that are connected to this daemon. Who attaches writes them down, but may be killed before that;
//! then no command would find the device, and a stop would pull it away from under a file system. The daemon knows its clients by their
//! processes, and the kernel by which process a device was connected.

use std::time::{Duration, Instant};

use bimetal_host::attach;
use tokio::sync::oneshot;

use super::shared::{Ask, Shared, Snapshot};
use crate::api::Attachment;
use crate::commands::detach::{record, DaemonProcess};
use crate::config::uuid_text;
use crate::runstate;

/// How long the keeper waits for the group's thread to say who is connected.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Shared {
    /// Block devices made from this group, with their holders, and those that nobody has written down.
    pub(crate) async fn all_attachments(&self) -> anyhow::Result<Vec<Attachment>> {
        // As a rule there is none on the machine.
        let snapshot = if attach::is_any_connected() { self.snapshot().await } else { None };
        self.attachments_beside(snapshot.as_ref())
    }

    /// The same for the keeper, which waits.
    pub(super) fn wait_for_all_attachments(&self) -> anyhow::Result<Vec<Attachment>> {
        let snapshot = if attach::is_any_connected() { self.wait_for_snapshot() } else { None };
        self.attachments_beside(snapshot.as_ref())
    }

    /// The same at the moment of this snapshot. Without one nobody knows of those that are connected.
    pub(super) fn attachments_beside(&self, snapshot: Option<&Snapshot>) -> anyhow::Result<Vec<Attachment>> {
        let found = snapshot.map(connected).unwrap_or_default();
        runstate::attachments_beside(&self.facts.group, &found)
    }

    fn wait_for_snapshot(&self) -> Option<Snapshot> {
        let (sender, mut receiver) = oneshot::channel();
        if !self.ask(Ask::Snapshot(sender)) {
            return None;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            match receiver.try_recv() {
                Ok(snapshot) => return Some(snapshot),
                Err(oneshot::error::TryRecvError::Empty) if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
                Err(_) => return None,
            }
        }
    }
}

/// The devices that are connected, as they would have been written down.
fn connected(snapshot: &Snapshot) -> Vec<Attachment> {
    let clients: Vec<(u32, &str)> =
        snapshot.clients.iter().filter_map(|c| Some((c.process()?, c.export.as_str()))).collect();
    let processes: Vec<u32> = clients.iter().map(|(pid, _)| *pid).collect();
    let record_of = |(pid, attached)| {
        let name = only_export(pid, &clients)?;
        let volume = snapshot.status.volumes.iter().find(|v| v.name == name)?;
        Some(record(name, &uuid_text(&volume.uuid), &attached, DaemonProcess::own()))
    };
    attach::connected_by(&processes).into_iter().filter_map(record_of).collect()
}

/// The export that a process is connected to. Of one that is connected to several it cannot be told which of them its device shows.
fn only_export<'a>(pid: u32, clients: &[(u32, &'a str)]) -> Option<&'a str> {
    let mut exports = clients.iter().filter(|(other, _)| *other == pid).map(|(_, export)| *export);
    let first = exports.next()?;
    exports.all(|export| export == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::only_export;

    #[test]
    fn the_device_of_a_process_that_is_connected_to_two_volumes_is_of_neither() {
        let clients = [(7, "a"), (8, "b"), (7, "a"), (9, "a"), (9, "b")];
        assert_eq!(only_export(7, &clients), Some("a"));
        assert_eq!(only_export(8, &clients), Some("b"));
        assert_eq!(only_export(9, &clients), None);
        assert_eq!(only_export(6, &clients), None);
    }
}

//! Files of volumes that somebody has open, as a stop wants to know of them: who has one open gets errors when the daemon ends.
//!
//! That one is open only the group's thread knows. Who has it open is looked up beside that thread, by names alone: to ask a
//! file anything would be to ask this daemon.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bimetal_host::probe::loops;
use bimetal_volume::options::Uuid;
use tokio::sync::oneshot;

use super::shared::{Ask, Shared, SILENT};
use crate::api::Attachment;
use crate::config::uuid_text;
use crate::holders;

/// How long the keeper waits for the group's thread to say which are open.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who wishes a stop is told of users that are known by then.
const GLANCE: Duration = Duration::from_secs(1);
/// How long the kernel may take to let go of a file whose loop device was just taken away.
const RELEASE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A file that is open.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    /// The name of its volume.
    pub(super) volume: String,
    pub(super) uuid: Uuid,
    /// As the kernel shows it.
    pub(super) path: PathBuf,
    /// How often it is open.
    pub(super) opens: u64,
}

impl OpenFile {
    /// Those who have it open, in words. Each attached device has it open once: these have users of their own.
    fn users(&self, attached: &[Attachment]) -> Vec<String> {
        let over = loops::made_of(&self.path);
        let uuid = uuid_text(&self.uuid);
        let is_device = |a: &&Attachment| {
            let here = over.iter().any(|device| *device == Path::new(&a.device));
            a.via == "fuse" && (here || a.is_of_volume(&self.volume, &uuid))
        };
        let devices: Vec<&str> = attached.iter().filter(is_device).map(|a| a.device.as_str()).collect();
        if self.opens <= devices.len() as u64 {
            return Vec::new();
        }
        let path = self.path.display().to_string();
        let others = over.iter().map(|device| device.display().to_string());
        let others = others.filter(|device| !devices.contains(&device.as_str()));
        let mut users: Vec<String> = others.map(|device| holders::below_loop_device(&path, &device)).collect();
        users.extend(holders::with_open_name(&path));
        if users.is_empty() {
            users.push(format!("{path} is open (fuser -v shows where, losetup a loop device)"));
        }
        users
    }
}

/// Who has one of these open, besides attached devices, in words.
fn users_of(files: &[OpenFile], attached: &[Attachment]) -> Vec<String> {
    files.iter().flat_map(|file| file.users(attached)).collect()
}

impl Shared {
    /// Who has files of volumes open, for whoever wishes a stop: as far as the group's thread says it at once.
    pub(super) async fn glance_at_files(&self) -> Vec<String> {
        let (sender, receiver) = oneshot::channel();
        if !self.ask(Ask::OpenFiles(sender)) {
            return Vec::new();
        }
        let found = tokio::time::timeout(GLANCE, receiver).await;
        let Ok(Ok(files)) = found else { return Vec::new() };
        self.attachments().map_or_else(|_| Vec::new(), |attached| users_of(&files, &attached))
    }

    /// Who has files of volumes open, in words, for the keeper. Without an answer they may be open.
    pub(super) fn users_of_files(&self) -> Vec<String> {
        let Some(files) = self.open_files() else { return vec![SILENT.into()] };
        self.attachments().map_or_else(|error| vec![format!("{error:#}")], |attached| users_of(&files, &attached))
    }

    /// The same, when all devices were taken away: the kernel lets go of their files a moment later.
    pub(super) fn users_of_files_that_stay(&self) -> Vec<String> {
        let end = Instant::now() + RELEASE;
        loop {
            let users = self.users_of_files();
            if users.is_empty() || self.is_forced() || Instant::now() >= end {
                return users;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Files that are open; `None` if the group's thread does not say so in time. A stop that is forced does not care.
    fn open_files(&self) -> Option<Vec<OpenFile>> {
        let (sender, mut receiver) = oneshot::channel();
        if !self.ask(Ask::OpenFiles(sender)) {
            return None;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            match receiver.try_recv() {
                Ok(files) => return Some(files),
                Err(oneshot::error::TryRecvError::Empty) if self.is_forced() => return Some(Vec::new()),
                Err(oneshot::error::TryRecvError::Empty) if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attached_device_has_its_file_open_once() {
        let file = |opens| OpenFile { volume: "main".into(), uuid: [7; 16], path: "/no/such/main".into(), opens };
        let device = |volume: &str, uuid: [u8; 16], via: &str| Attachment {
            volume: volume.into(),
            device: "/dev/no-such".into(),
            via: via.into(),
            held_by: Vec::new(),
            volume_uuid: uuid_text(&uuid),
            handle: serde_json::Value::Null,
        };
        let of_main = [device("before", [7; 16], "fuse")];
        assert!(users_of(&[file(1)], &of_main).is_empty());
        let said = users_of(&[file(2)], &of_main);
        assert!(said.len() == 1 && said[0].contains("/no/such/main is open"), "{said:?}");
        for other in [device("main", [8; 16], "fuse"), device("main", [7; 16], "nbd")] {
            assert_eq!(users_of(&[file(1)], &[other]).len(), 1);
        }
    }
}

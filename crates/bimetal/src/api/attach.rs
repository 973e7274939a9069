//! Volumes as block devices of this machine, and as files.

use serde::{Deserialize, Serialize};

/// Answer to `POST /v1/files`: the volumes are files in this folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FilesShown {
    pub(crate) schema: u32,
    pub(crate) folder: String,
}

/// A block device made by `bimetal attach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) volume: String,
    /// `/dev/...`.
    pub(crate) device: String,
    /// `ublk`, `nbd` or `fuse`.
    pub(crate) via: String,
    /// Who holds it: mount points, swap, devices stacked on it. Filled when asked for, not stored.
    #[serde(default)]
    pub(crate) held_by: Vec<String>,
    /// UUID of the volume: another may have the name now. Empty in records of earlier versions.
    #[serde(default)]
    pub(crate) volume_uuid: String,
    /// What is needed to take it down, by the means that made it.
    #[serde(default)]
    pub(crate) handle: serde_json::Value,
}

impl Attachment {
    /// Whether both are of the same volume.
    pub(crate) fn is_of(&self, other: &Attachment) -> bool {
        self.is_of_volume(&other.volume, &other.volume_uuid)
    }

    /// Whether both were written down for the same attachment: the kernel gives a device that was taken away to the next who wants one.
    pub(crate) fn is_same(&self, other: &Attachment) -> bool {
        self.device == other.device && self.via == other.via && self.is_of(other) && self.handle == other.handle
    }

    /// Whether this is of the volume with this UUID, or with this name where no UUID was written down.
    pub(crate) fn is_of_volume(&self, name: &str, uuid: &str) -> bool {
        match self.volume_uuid.is_empty() || uuid.is_empty() {
            true => self.volume == name,
            false => self.volume_uuid == uuid,
        }
    }
}

/// Answer to `GET /v1/attachments`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Attachments {
    pub(crate) schema: u32,
    pub(crate) attachments: Vec<Attachment>,
}

/// `POST /v1/attach` and `POST /v1/detach`: a volume as a ublk device of the daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct VolumeRequest {
    pub(crate) volume: String,
    /// The volume's UUID, if it is known: the name may be another's by then. For `detach` it counts instead of the name; `attach` is
    /// refused if they are not of one volume.
    #[serde(default)]
    pub(crate) volume_uuid: String,
    /// Detach although somebody uses it: they get errors, and what was not yet written is lost.
    #[serde(default)]
    pub(crate) force: bool,
}

/// Answer to both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachAnswer {
    pub(crate) schema: u32,
    /// The device that is there now, if there is one.
    pub(crate) device: Option<String>,
    /// Why none can be had on this machine.
    #[serde(default)]
    pub(crate) why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_volume_with_the_same_device_is_another_attachment() {
        let of = |volume: &str, uuid: &str, pid: u32| Attachment {
            volume: volume.into(),
            device: "/dev/nbd0".into(),
            via: "nbd".into(),
            held_by: Vec::new(),
            volume_uuid: uuid.into(),
            handle: serde_json::json!({ "helper_pid": pid }),
        };
        let a = of("a", "1111", 7);
        assert!(a.is_same(&Attachment { held_by: vec!["/mnt".into()], ..a.clone() }));
        assert!(a.is_same(&of("renamed", "1111", 7)));
        assert!(!a.is_same(&of("b", "2222", 7)), "another volume");
        assert!(!a.is_same(&of("a", "1111", 8)), "attached anew");
    }
}

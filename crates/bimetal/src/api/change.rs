//! Changes of volumes, members and families, and the jobs that carry them out.

use bimetal_volume::units;
use serde::{Deserialize, Serialize};

use super::Checked;

/// `POST /v1/volumes`: a change of the volumes. The answer is a [`Job`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum VolumeChange {
    /// A new volume.
    Create {
        name: String,
        /// Bytes; all that is left without.
        #[serde(default)]
        size_bytes: Option<u64>,
        /// `auto`, `fast-only` or `slow-only`.
        #[serde(default)]
        placement: Placement,
        /// The family whose key encrypts it; it must be unlocked.
        #[serde(default)]
        family: Option<String>,
    },
    /// It joins a family, and what it holds is encrypted in the background. The job ends when that has begun.
    Encrypt {
        name: String,
        /// Of the volume that is meant, see `Delete`.
        #[serde(default)]
        uuid: Option<String>,
        family: String,
    },
    /// Another size.
    Resize {
        name: String,
        size_bytes: u64,
        /// Shrink although clients use it.
        #[serde(default)]
        force: bool,
    },
    /// Another name.
    Rename {
        name: String,
        new_name: String,
        /// Although clients use it. Daemons of before know no such field.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Away with it.
    Delete {
        name: String,
        /// Of the volume that is meant: its name may have become another's.
        #[serde(default)]
        uuid: Option<String>,
        /// Although clients use it.
        #[serde(default)]
        force: bool,
    },
}

impl VolumeChange {
    /// The UUID of the volume that is meant, if it is said.
    pub(crate) fn uuid(&self) -> Option<&str> {
        match self {
            VolumeChange::Encrypt { uuid, .. } | VolumeChange::Delete { uuid, .. } => uuid.as_deref(),
            _ => None,
        }
    }

    /// The name that the volume has before the change, or gets.
    pub(crate) fn name(&self) -> &str {
        match self {
            VolumeChange::Create { name, .. }
            | VolumeChange::Encrypt { name, .. }
            | VolumeChange::Resize { name, .. }
            | VolumeChange::Rename { name, .. }
            | VolumeChange::Delete { name, .. } => name,
        }
    }
}

/// Where the chunks of a volume may live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Placement {
    #[default]
    Auto,
    FastOnly,
    SlowOnly,
}

/// `POST /v1/members`: a change of the members. The answer is a [`Job`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum MemberChange {
    /// A new member; everything on its device is lost.
    Add {
        /// Where it is; a path is absolute.
        locator: String,
        tier: Tier,
        /// Although it belongs to another group.
        #[serde(default)]
        force: bool,
    },
    /// A member is to leave: nothing new is put on it, and what is there goes to others. The job ends when that has begun;
    /// the status tells how much is left.
    Evacuate {
        /// Its index, which is never given to another.
        member: u8,
        /// Only tell what would be moved, and whether it fits.
        #[serde(default)]
        dry_run: bool,
    },
    /// A member that was to leave stays.
    Keep { member: u8 },
    /// Take a member out that is leaving and empty; its label is erased.
    Remove { member: u8 },
}

/// Tier of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    Fast,
    Slow,
}

impl From<units::Tier> for Tier {
    fn from(tier: units::Tier) -> Tier {
        match tier {
            units::Tier::Fast => Tier::Fast,
            units::Tier::Slow => Tier::Slow,
        }
    }
}

impl From<Tier> for units::Tier {
    fn from(tier: Tier) -> units::Tier {
        match tier {
            Tier::Fast => units::Tier::Fast,
            Tier::Slow => units::Tier::Slow,
        }
    }
}

/// `POST /v1/families`: a change of the families. The answer is a [`Job`].
///
/// Keys are never part of it: `key` names a FIFO in the run-state folder of the group, which belongs to whoever asks and
/// from which the daemon reads the 32 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum FamilyChange {
    /// A new family, unlocked.
    Create {
        name: String,
        /// Also that of its header.
        uuid: String,
        key: String,
        /// LUKS2, in hexadecimal digits.
        header: String,
    },
    /// Its volumes can be read and written from now on.
    Unlock { name: String, key: String },
    /// They cannot any more; the key leaves memory.
    Lock {
        name: String,
        /// Of the family that is meant, see `Delete`.
        #[serde(default)]
        uuid: Option<String>,
        /// Although somebody uses them.
        #[serde(default)]
        force: bool,
    },
    /// Another header. The key proves that it is a wish of somebody who can open the family.
    Header {
        name: String,
        key: String,
        /// The header that the new one was made from, which must still be there; without: whatever is there.
        #[serde(default)]
        before: Option<String>,
        header: String,
    },
    /// Another name.
    Rename { name: String, new_name: String },
    /// Away with one that has no volumes.
    Delete {
        name: String,
        /// Of the family that is meant: its name may have become another's.
        #[serde(default)]
        uuid: Option<String>,
    },
}

/// `GET /v1/families/NAME/header`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FamilyHeader {
    pub(crate) schema: u32,
    pub(crate) family: String,
    pub(crate) uuid: String,
    /// LUKS2, in hexadecimal digits.
    pub(crate) header: Option<String>,
    /// Why there is none: no member has it whole.
    #[serde(default)]
    pub(crate) lost: Option<String>,
}

/// `GET /v1/jobs/N`, and the answer to what begins one: work that may take longer than a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) schema: u32,
    pub(crate) job: u64,
    pub(crate) done: bool,
    /// Why it failed, if it did.
    pub(crate) error: Option<String>,
    /// Size of the volume after a change that gives it one; of a new member the bytes for data.
    pub(crate) size_bytes: Option<u64>,
    /// After a member was added, or is to leave: bytes that volumes can grow by.
    #[serde(default)]
    pub(crate) room_bytes: Option<u64>,
    /// The member that was added, or taken out.
    #[serde(default)]
    pub(crate) member: Option<ChangedMember>,
    /// Of a member that is to leave: bytes in use on it.
    #[serde(default)]
    pub(crate) used_bytes: Option<u64>,
    /// Why the label of a member that was taken out could not be erased, if it could not.
    #[serde(default)]
    pub(crate) not_erased: Option<String>,
    /// Why the place of a member that was taken out is not free: what is there now is another one's.
    #[serde(default)]
    pub(crate) not_free: Option<String>,
    /// Why no configuration says where a member is that was added, and what follows.
    #[serde(default)]
    pub(crate) not_noted: Option<String>,
    /// What a check found.
    #[serde(default)]
    pub(crate) checked: Option<Checked>,
    /// How far it is, and of how much, where that is known: map pages.
    #[serde(default)]
    pub(crate) over: Option<(u64, u64)>,
}

/// A member that has just been added, or taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedMember {
    pub(crate) index: u8,
    pub(crate) uuid: String,
    pub(crate) locator: String,
}

//! Which volume a mounted file system lies on, and where on it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use bimetal_host::extents::{mounted_at, Mounted};
use bimetal_host::probe::sysfs::DeviceNumber;

use super::ask::State;
use crate::runstate;

/// File systems that give their files' places as those of the device below. (In btrfs, bcachefs and ZFS they are of an
/// address space of its own.)
const KNOWN: [&str; 5] = ["ext2", "ext3", "ext4", "xfs", "f2fs"];

/// A mounted file system on a volume.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) volume: String,
    /// First byte of the file system on the volume.
    pub(super) offset: u64,
}

/// The place of the file system that is mounted at `folder`, which must lie on a volume of the group.
pub(super) fn of(group: &str, folder: &Path, state: &State) -> Result<Place> {
    let mounted = mounted_at(folder).with_context(|| format!("--files '{}'", folder.display()))?;
    if !KNOWN.contains(&mounted.kind.as_str()) {
        bail!(
            "'{}' is a file system of the kind {}, which does not say where on the device a file lies; this works for {}",
            folder.display(), mounted.kind, KNOWN.join(", ")
        );
    }
    let Some((volume, offset)) = volume_of(group, &mounted, state)? else {
        bail!(
            "what is mounted at '{}' lies on device {}, which is no attached volume of group '{group}' \
             (nor a partition of one); attach it with `bimetal attach {group}/VOLUME` and mount that",
            folder.display(),
            mounted.device
        );
    };
    Ok(Place { folder: folder.canonicalize()?, volume, offset })
}

/// The volume that the device below shows, and where on it the file system begins.
fn volume_of(group: &str, mounted: &Mounted, state: &State) -> Result<Option<(String, u64)>> {
    let is_it = |device: &str| std::fs::metadata(device).is_ok_and(|m| DeviceNumber::new(m.rdev()) == mounted.device);
    if let Some(a) = runstate::attachments(group)?.into_iter().find(|a| is_it(&a.device)) {
        return Ok(Some((a.volume, mounted.offset)));
    }
    Ok(of_loop(mounted, state))
}

/// The same for a loop device that somebody has made over the volume's file.
fn of_loop(mounted: &Mounted, state: &State) -> Option<(String, u64)> {
    let (file, start) = mounted.backing.as_ref()?;
    let folder = Path::new(state.folder.as_deref()?);
    let volume = file.strip_prefix(folder).ok()?.to_str()?.to_owned();
    state.volumes.iter().any(|v| v.name == volume).then_some((volume, start + mounted.offset))
}

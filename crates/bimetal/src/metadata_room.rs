//! Room for the metadata of members that are files with holes. The file system below may be full when the map has to be written: the
//! group would take no more writes then, and not start again before there is room. Slots are another matter: without room for new
//! data only those who bring new data get errors.

use bimetal_format::label::Label;
use bimetal_format::layout::{default_journal_blocks, label_b, pages_for, Layout, LABEL_A};
use bimetal_host::{HostDevice, Locator};
use bimetal_volume::env::{Device, DeviceError};

use crate::log;
use crate::size::approx;

const MIB: u64 = 1 << 20;

/// Takes it on a device that is to be a member of a new group with `total` bytes in all. Of a size that is no member's, none.
pub(crate) async fn of_new(device: &HostDevice, total: u64, volumes: usize) -> Result<(), NoRoom> {
    let size = device.size();
    match Layout::plan(size, pages_for(total, volumes as u64), default_journal_blocks(size)) {
        Ok(layout) => take(device, layout.slots, size).await,
        Err(_) => Ok(()),
    }
}

/// Takes it on a member, and warns where there is none.
pub(crate) async fn warn_of(name: &str, device: &HostDevice, label: Option<&Label>) {
    let Some(layout) = label.and_then(|l| Layout::from_zones(&l.zones, l.device_size).ok()) else { return };
    let size = label.map_or(device.size(), |l| l.device_size).min(device.size());
    if let Err(e) = take(device, layout.slots, size).await {
        log::warn(&format!(
            "there is no room for {} of metadata of {name}: {}. If the file system below it is full when they are written, the group \
             takes no more writes; free some of it",
            approx(e.bytes),
            e.source
        ));
    }
}

/// Why there is none.
pub(crate) struct NoRoom {
    bytes: u64,
    source: DeviceError,
}

/// The same as an error of `create`.
pub(crate) fn refusal(locator: &Locator, why: &NoRoom) -> anyhow::Error {
    anyhow::anyhow!(
        "there is no room for {} of metadata in {locator}: {}; free some of the file system, or make the file elsewhere. Nothing was \
         written",
        approx(why.bytes),
        why.source
    )
}

/// Slots begin at `slots`; what follows the last one begins with the second label.
async fn take(device: &HostDevice, slots: u64, size: u64) -> Result<(), NoRoom> {
    let (head, tail) = ((LABEL_A, slots - LABEL_A), (label_b(size), MIB));
    let bytes = head.1 + tail.1;
    for (offset, len) in [head, tail] {
        device.allocate(offset, len).await.map_err(|source| NoRoom { bytes, source })?;
    }
    Ok(())
}

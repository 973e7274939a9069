//! Room for the metadata of members that are files with holes. The file system below may be full when the map has to be written: the
//! group would take no more writes then, and not start again before there is room. Slots are another matter: without room for new
//! data only those who bring new data get errors.

use bimetal_format::layout::{label_b, Layout, LABEL_A};
use bimetal_host::HostDevice;
use bimetal_volume::env::DeviceError;

use crate::log;
use crate::members::{self, Members};
use crate::size::approx;

const MIB: u64 = 1 << 20;

/// Why it cannot be taken.
#[derive(Debug, thiserror::Error)]
#[error("there is no room below it for {} of metadata ({source})", approx(*.bytes))]
pub(crate) struct NoRoom {
    bytes: u64,
    source: DeviceError,
}

/// Before a start that writes. A member that is a copy made with holes has none of it, and one that was made by an earlier version. What has
/// it already is not touched. Where there is none the start goes on: it may be that none is needed.
pub(crate) async fn at_start(members: &Members) {
    for m in members.opened.iter().filter(|m| m.label.is_some()) {
        if let Err(e) = of_member(&m.device).await {
            log::warn(&format!(
                "{}: {e}. If it is full when they are written, the group takes no more writes, and does not start again before there is \
                 room: free some of that file system",
                m.locator
            ));
        }
    }
}

/// Takes it on a member. Slots follow most of its metadata; what follows them begins with the second label.
async fn of_member(device: &HostDevice) -> Result<(), NoRoom> {
    let label = members::read_label(device).await.ok().and_then(Result::ok);
    match label.and_then(|l| Some((Layout::from_zones(&l.zones, l.device_size).ok()?, l.device_size))) {
        Some((layout, size)) => of_layout(device, &layout, size).await,
        None => Ok(()),
    }
}

/// The same on a device that is to become a member of this layout, before anything is written to it, or is one, and had so many bytes when it was laid out.
pub(crate) async fn of_layout(device: &HostDevice, layout: &Layout, size: u64) -> Result<(), NoRoom> {
    let (head, tail) = ((LABEL_A, layout.slots - LABEL_A), (label_b(size), MIB));
    for (offset, len) in [head, tail] {
        let taken = device.allocate(offset, len).await;
        taken.map_err(|source| NoRoom { bytes: head.1 + tail.1, source })?;
    }
    Ok(())
}

//! Room for the metadata of members that are files with holes. The file system below may be full when the map has to be written: the
//! group would take no more writes then, and not start again before there is room. Slots are another matter: without room for new
//! data only those who bring new data get errors.

use bimetal_format::layout::{label_b, Layout, LABEL_A};
use bimetal_host::HostDevice;
use bimetal_volume::env::{Device, DeviceError};

use crate::members;
use crate::size::approx;

const MIB: u64 = 1 << 20;

/// Why it cannot be taken.
#[derive(Debug, thiserror::Error)]
#[error("there is no room below it for {} of metadata ({source})", approx(*.bytes))]
pub(crate) struct NoRoom {
    bytes: u64,
    source: DeviceError,
}

/// Takes it on a device that has just become a member. Slots follow most of its metadata; what follows them begins with the second
/// label.
pub(crate) async fn of_member(device: &HostDevice) -> Result<(), NoRoom> {
    let label = members::read_label(device).await.ok().and_then(Result::ok);
    let layout = label.and_then(|l| Layout::from_zones(&l.zones, l.device_size).ok());
    let Some(layout) = layout else { return Ok(()) };
    let (head, tail) = ((LABEL_A, layout.slots - LABEL_A), (label_b(device.size()), MIB));
    for (offset, len) in [head, tail] {
        let taken = device.allocate(offset, len).await;
        taken.map_err(|source| NoRoom { bytes: head.1 + tail.1, source })?;
    }
    Ok(())
}

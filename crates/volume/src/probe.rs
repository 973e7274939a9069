//! What a device says of itself, without opening a group: for scanning.

use bimetal_format::label::{is_name, Label, LabelError, LABEL_SIZE};
use bimetal_format::layout::{label_b, LABEL_A};

use crate::buf::BufMut;
use crate::env::{Device, DeviceError};
use crate::member::label::read_labels;
pub use crate::member::label::Apart;
pub use crate::recovery::{voices, Voice};

/// Reads the label of a device: `Ok(Err(..))` says why it is no usable member.
pub async fn probe<D: Device>(device: &D) -> Result<Result<Label, LabelError>, DeviceError> {
    let found = read_labels(device).await?;
    let reason = found.reason();
    Ok(found.newest.ok_or(reason))
}

/// What tells that a member is not whole: it was cut off and has been given its size again, or is a copy that ended early.
pub async fn not_whole<D: Device>(device: &D) -> Result<Option<Apart>, DeviceError> {
    Ok(read_labels(device).await?.apart)
}

/// Overwrites both labels, so that the device is no member any more, and what it holds of the keys of families.
pub async fn wipe<D: Device>(device: &D) -> Result<(), DeviceError> {
    let label = probe(device).await?.ok();
    wipe_laid_out(device, label.as_ref()).await
}

/// The same for a device that was laid out as `label` says, whether or not that was written to it.
pub(crate) async fn wipe_laid_out<D: Device>(device: &D, label: Option<&Label>) -> Result<(), DeviceError> {
    let mut places = vec![LABEL_A, label_b(device.size())];
    if let Some(label) = label {
        places.push(label_b(label.device_size));
        // First: with its labels gone nothing would tell where they lie.
        if let Some(keys) = label.layout().keys {
            for side in keys.sides {
                device.write(side, BufMut::zeroed(keys.len as usize).freeze()).await?;
            }
            device.sync().await?;
        }
    }
    places.dedup();
    for place in places.into_iter().filter(|p| p + LABEL_SIZE as u64 <= device.size()) {
        device.write(place, BufMut::zeroed(LABEL_SIZE).freeze()).await?;
    }
    device.sync().await
}

/// Whether `name` is a legal name of a group or volume.
pub fn is_legal_name(name: &str) -> bool {
    is_name(name)
}

//! Step 1: who are these devices?

use bimetal_format::label::{Label, LabelError};

use super::OpenError;
use crate::env::Device;
use crate::member::label::read_labels;
use crate::mutant::{self, Mutant};

/// A device and the label found on it.
pub(crate) struct Found<D> {
    pub(crate) device: D,
    pub(crate) label: Label,
    /// Position in the caller's list.
    pub(crate) position: usize,
    /// The label place whose copy is damaged or older.
    pub(crate) weaker: usize,
    /// What was wrong with one of its two labels.
    pub(crate) problems: Vec<String>,
}

/// Devices with labels, and those without, each with its position and why.
pub(crate) struct Identified<D> {
    pub(crate) found: Vec<Found<D>>,
    pub(crate) unusable: Vec<(usize, LabelError)>,
}

/// Syncs each device and reads its labels. The sync comes first: a daemon that died may have left data in the device's
/// cache, which a power cut would take away after we had based decisions on it (C7.1).
pub(crate) async fn identify<D: Device>(devices: Vec<D>) -> Result<Identified<D>, OpenError> {
    if devices.is_empty() {
        return Err(OpenError::NoDevices);
    }
    let mut found = Vec::with_capacity(devices.len());
    let mut unusable = Vec::new();
    for (position, device) in devices.into_iter().enumerate() {
        let fail = |source| OpenError::Device { device: position, source };
        if !mutant::on(Mutant::C7NoFirstSync) {
            device.sync().await.map_err(fail)?;
        }
        let labels = read_labels(&device).await.map_err(fail)?;
        let (reason, weaker) = (labels.reason(), labels.weaker);
        let Some(label) = labels.newest else {
            unusable.push((position, reason));
            continue;
        };
        if device.size() < label.device_size {
            return Err(OpenError::Shrunk { device: position, size: device.size(), expected: label.device_size });
        }
        let damaged = labels.problems.iter().filter(|(_, e)| !matches!(e, LabelError::NotALabel));
        let problems =
            damaged.map(|(place, e)| format!("member {}: label at byte {place}: {e}", label.member)).collect();
        found.push(Found { device, label, position, weaker, problems });
    }
    Ok(Identified { found, unusable })
}

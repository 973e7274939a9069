//! Step 1: who are these devices?

use bimetal_format::label::{Label, LabelError};

use super::OpenError;
use crate::env::{Device, DeviceError};
use crate::member::label::{read_labels, Apart};
use crate::mutant::{self, Mutant};
use crate::wait;

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
    /// It has no sound label: it was recognised by what else is on it, for a repair.
    pub(crate) recognised: bool,
    /// By its two labels it is not whole.
    pub(crate) apart: Option<Apart>,
    /// Why its FLUSH has failed: what is read from it may not be durable.
    pub(crate) unflushed: Option<DeviceError>,
}

/// Why nobody can say which member a device is, or why it cannot be that member.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("{0}")]
    Label(LabelError),
    #[error("{0}")]
    Device(DeviceError),
    /// For a start that writes: what it builds upon would not be durable.
    #[error(
        "its FLUSH fails ({0}), so that nothing written to it is known to last, and no start writes with it. It can be read: rescue, check \
         and a read-only start use it. See to cable, controller, power or server; else copy it to a sound device (ddrescue), and give \
         that one in its place"
    )]
    Unflushed(DeviceError),
    #[error("it has {size} bytes, but had {expected} bytes when it joined the group")]
    Shrunk { size: u64, expected: u64 },
    /// Without its labels, and a repair cannot tell which of two it is.
    #[error("by what is on it beside labels it is member {member}, and so is another device; disconnect the one that is a copy")]
    Doubled { member: u8 },
    /// Without its labels, and the members with labels know nothing of when it was used last.
    #[error(
        "by what is on it beside labels it is member {member}, and was in use after all that the members with labels know: these are older \
         copies, and what their maps say of it is not so any more; bring the members that were used with it"
    )]
    Later { member: u8 },
    /// A loop or network device that nothing is connected to, or a drive without its medium.
    #[error("it has no size at this moment; see whether it is connected")]
    Empty,
}

impl Unusable {
    /// The refusal of a start that may have needed this device.
    pub(super) fn refusal(self, device: usize) -> OpenError {
        match self {
            Unusable::Label(source) => OpenError::Label { device, source },
            Unusable::Device(source) => OpenError::Device { device, source },
            Unusable::Unflushed(why) => OpenError::Unflushed { device, why },
            Unusable::Empty | Unusable::Doubled { .. } | Unusable::Later { .. } => {
                OpenError::Label { device, source: LabelError::NotALabel }
            }
            Unusable::Shrunk { size, expected } => OpenError::Shrunk { device, size, expected },
        }
    }

    /// Whether a newer version of this program could use it: then it is not lost, and nothing is done without it.
    pub(super) fn is_newer(&self) -> bool {
        matches!(self, Unusable::Label(why) if why.is_newer())
    }
}

/// Devices with labels, and those without, each with its position, why, and itself if it answers.
pub(crate) struct Identified<D> {
    pub(crate) found: Vec<Found<D>>,
    pub(crate) unusable: Vec<(usize, Unusable, Option<D>)>,
}

impl<D> Identified<D> {
    /// Positions of the devices that fail at this moment, lack something of their size, or come twice, and what is the matter: all that they
    /// held may be there another time.
    pub(super) fn failed(&self) -> Vec<(usize, String)> {
        let passes = |why: &Unusable| !matches!(why, Unusable::Label(_));
        self.unusable
            .iter()
            .filter(|(_, why, _)| passes(why))
            .map(|(position, why, _)| (*position, why.to_string()))
            .collect()
    }

    /// Positions of devices without labels that hold what a member holds, and are not taken for it: which of two it is nobody knows, or it
    /// was in use after all that the others know.
    pub(super) fn held_back(&self) -> Vec<usize> {
        let proven = |why: &Unusable| matches!(why, Unusable::Later { .. } | Unusable::Doubled { .. });
        self.unusable.iter().filter(|(_, why, _)| proven(why)).map(|(position, ..)| *position).collect()
    }
}

/// Syncs each device and reads its labels. The sync comes first: a daemon that died may have left data in the device's
/// cache, which a power cut would take away after we had based decisions on it (C7.1). A device that fails at this may be
/// one that the group does not need. One whose sync alone fails can be read, and is used unless the start `writes`: whoever only reads
/// bases nothing on it.
pub(crate) async fn identify<D: Device>(devices: Vec<D>, writes: bool) -> Result<Identified<D>, OpenError> {
    if devices.is_empty() {
        return Err(OpenError::NoDevices);
    }
    let mut found = Vec::with_capacity(devices.len());
    let mut unusable = Vec::new();
    // Side by side: disks that sleep do not wake up in turn.
    let each = devices.into_iter().enumerate().map(|(position, device)| identify_one(device, position, writes));
    for (position, one) in wait::all(each.collect()).await.into_iter().enumerate() {
        match one {
            Ok(f) => found.push(f),
            Err((why, device)) => unusable.push((position, why, device)),
        }
    }
    Ok(Identified { found, unusable })
}

async fn identify_one<D: Device>(device: D, position: usize, writes: bool) -> Result<Found<D>, (Unusable, Option<D>)> {
    let synced = match mutant::on(Mutant::C7NoFirstSync) {
        true => Ok(()),
        false => device.sync().await,
    };
    let Err(failed) = synced else { return read_one(device, position).await };
    match read_one(device, position).await {
        Ok(f) if !writes && !mutant::on(Mutant::UnflushedUnread) => Ok(Found { unflushed: Some(failed), ..f }),
        Ok(_) => Err((Unusable::Unflushed(failed), None)),
        Err(_) => Err((Unusable::Device(failed), None)),
    }
}

async fn read_one<D: Device>(device: D, position: usize) -> Result<Found<D>, (Unusable, Option<D>)> {
    if device.size() == 0 {
        return Err((Unusable::Empty, None));
    }
    let labels = match read_labels(&device).await {
        Ok(labels) => labels,
        Err(e) => return Err((Unusable::Device(e), Some(device))),
    };
    let (reason, weaker, apart) = (labels.reason(), labels.weaker, labels.apart);
    let Some(label) = labels.newest else { return Err((Unusable::Label(reason), Some(device))) };
    if device.size() < label.device_size {
        return Err((Unusable::Shrunk { size: device.size(), expected: label.device_size }, None));
    }
    let damaged = labels.problems.iter().filter(|(_, e)| !matches!(e, LabelError::NotALabel));
    let problems = damaged.map(|(place, e)| format!("member {}: label at byte {place}: {e}", label.member)).collect();
    Ok(Found { device, label, position, weaker, problems, recognised: false, apart, unflushed: None })
}

//! Label flips: the one moment at which a new tail, directory or epoch becomes current on a member.

use bimetal_format::label::{Label, LabelError, LABEL_SIZE};
use bimetal_format::layout::{label_b, LABEL_A};

use super::{Member, WriteFor};
use crate::buf::BufMut;
use crate::env::{Device, DeviceError};
use crate::mutant::{self, Mutant};

impl<D: Device> Member<D> {
    /// Makes `label` current: first copy, sync, second copy, sync. Its sequence is set here. The caller holds `meta`.
    ///
    /// The copy that is damaged or older is written first: a crash before the first sync leaves the other one, which is
    /// whole.
    pub(crate) async fn flip(&self, mut label: Label) -> Result<(), DeviceError> {
        label.sequence = self.label.borrow().sequence + 1;
        let places = [LABEL_A, label_b(label.device_size)];
        let first = self.weaker_label.get();
        for at in [first, 1 - first] {
            let place = places[at];
            let bytes = BufMut::copy_of(&label.encode(place)).freeze();
            self.write(place, bytes, WriteFor::Engine).await?;
            if !mutant::on(Mutant::C5LabelNotSynced) && !mutant::on(Mutant::C7NoFirstSync) {
                self.sync_all().await?;
            }
            // Should the next write fail, this is the good one.
            self.weaker_label.set(1 - at);
        }
        self.weaker_label.set(0);
        *self.label.borrow_mut() = label;
        Ok(())
    }
}

/// What the two label places of a device hold.
pub(crate) struct FoundLabels {
    /// The label that counts, if any place has a sound one.
    pub(crate) newest: Option<Label>,
    /// What is wrong with each place.
    pub(crate) problems: Vec<(u64, LabelError)>,
    /// The place (0 or 1) whose copy is damaged, or older than the other.
    pub(crate) weaker: usize,
}

impl FoundLabels {
    /// The most telling reason why there is no label: a damaged one says more than none.
    pub(crate) fn reason(&self) -> LabelError {
        let told = self.problems.iter().map(|(_, e)| e).find(|e| !matches!(e, LabelError::NotALabel));
        told.cloned().unwrap_or(LabelError::NotALabel)
    }
}

/// Reads both labels of a device.
pub(crate) async fn read_labels<D: Device>(device: &D) -> Result<FoundLabels, DeviceError> {
    let mut found = FoundLabels { newest: None, problems: Vec::new(), weaker: 0 };
    let mut sequences = [0; 2];
    let mut last_error = None;
    for (i, place) in [LABEL_A, label_b(device.size())].into_iter().enumerate() {
        if place + LABEL_SIZE as u64 > device.size() {
            found.problems.push((place, LabelError::NotALabel));
            continue;
        }
        let (buf, result) = device.read(place, BufMut::new(LABEL_SIZE)).await;
        if let Err(e) = result {
            last_error = Some(e);
            found.problems.push((place, LabelError::Checksum));
            continue;
        }
        let label = Label::decode(&buf, place);
        sequences[i] = label.as_ref().map_or(0, |l| l.sequence);
        match label {
            Ok(l) if found.newest.as_ref().is_none_or(|n| l.sequence > n.sequence) => found.newest = Some(l),
            Ok(_) => {}
            Err(e) => found.problems.push((place, e)),
        }
    }
    found.weaker = usize::from(sequences[1] < sequences[0]);
    match (&found.newest, last_error) {
        (None, Some(e)) => Err(e),
        _ => Ok(found),
    }
}

//! Label flips: the one moment at which a new tail, directory or epoch becomes current on a member.

use std::fmt;

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

    /// Writes the copy of the label anew that the next flip comes to last, as it is there: a cache may show it though it never came to the
    /// medium. If it did not, the flip would leave copies that are more than one apart when it is cut off, which looks like a device that
    /// is not whole. Where the other copy is damaged this one stays untouched: it is all that there is.
    pub(crate) async fn label_anew(&self) -> Result<(), DeviceError> {
        let places = [LABEL_A, label_b(self.label.borrow().device_size)];
        let first = self.weaker_label.get();
        let (Some(_), Some(last)) = (self.sound_label(places[first]).await, self.sound_label(places[1 - first]).await)
        else {
            return Ok(());
        };
        self.write(places[1 - first], last.freeze(), WriteFor::Engine).await?;
        self.sync_all().await
    }

    async fn sound_label(&self, place: u64) -> Option<BufMut> {
        let bytes = self.read(place, BufMut::new(LABEL_SIZE)).await.ok()?;
        Label::decode(&bytes, place).is_ok().then_some(bytes)
    }

    /// Has `label`, which is to be flipped, tell up to where the journal is durable now (C6), whose newest commit is `generation`.
    pub(crate) fn promise_journal(&self, label: &mut Label, generation: u64) {
        label.generation = generation;
        label.journal_end = label.journal_end.max(self.journal.borrow().durable.sequence);
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
    /// One of the two cannot be of what the device is otherwise.
    pub(crate) apart: Option<Apart>,
}

/// A device that is not whole: what lies behind one of its two labels is not what it has lain there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The byte of that label.
    pub place: u64,
    what: Beside,
}

/// What is where the other label should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// Nothing but zeros, though it was written: the device was cut off and grew again, or a copy of it ended early.
    Zeros,
    /// Its own from before, by more than a flip that was cut off can explain: a copy was made over an older one, and ended early.
    Older,
    /// That of another member: a copy was made over that one, and ended early.
    Others,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place;
        let (part, first, second) = match place {
            LABEL_A => ("first", "second", "first"),
            _ => ("last", "first", "second"),
        };
        match self.what {
            Beside::Zeros => write!(
                f,
                "a whole {first} label, and only zeros where its {second} one was, at byte {place}: it was cut off and has been given its \
                 size again, or is a copy that ended early. What lay in its {part} part is not in it, and would read as zeros"
            ),
            Beside::Older => write!(
                f,
                "a whole {first} label, and a much older one where its {second} one is, at byte {place}: it is a copy that was made over an \
                 older one and ended early, or a device that loses writes it has confirmed. What is in its {part} part is old, and would \
                 read as if it were not"
            ),
            Beside::Others => write!(
                f,
                "a whole {first} label, and that of another member where its {second} one was, at byte {place}: it is a copy that was made \
                 over a former member and ended early. What is in its {part} part is that one's"
            ),
        }
    }
}

impl FoundLabels {
    /// The most telling reason why there is no label: one of a newer version is whole, and a damaged one says more than none.
    pub(crate) fn reason(&self) -> LabelError {
        let why = || self.problems.iter().map(|(_, e)| e);
        let told = why().find(|e| e.is_newer()).or_else(|| why().find(|e| !matches!(e, LabelError::NotALabel)));
        told.cloned().unwrap_or(LabelError::NotALabel)
    }
}

/// Reads both labels of a device. The second lies where the device ended when it was laid out, which the first one says; if that one is
/// damaged, what it says of it may be too, and the second may be where the device ends now.
pub(crate) async fn read_labels<D: Device>(device: &D) -> Result<FoundLabels, DeviceError> {
    let mut found = FoundLabels { newest: None, problems: Vec::new(), weaker: 0, apart: None };
    let first = read_label(device, LABEL_A).await;
    // A device that was laid out with more has become smaller, which is told by its size.
    let (end, laid_out) = (label_b(device.size()), first.laid_out.map_or(device.size(), |l| l.min(device.size())));
    let mut second = read_label(device, label_b(laid_out)).await;
    if first.outcome.is_err() && second.outcome.is_err() && second.place != end {
        let at_end = read_label(device, end).await;
        if at_end.outcome.is_ok() {
            second = at_end;
        }
    }
    let sequence = |l: &ReadLabel| l.outcome.as_ref().map_or(0, |l| l.sequence);
    found.apart = apart(&first, &second);
    let is_others = matches!(found.apart, Some(Apart { what: Beside::Others, .. }));
    found.weaker = usize::from(is_others || sequence(&second) < sequence(&first));
    // A newer version has begun a flip and was cut off, or the other place could not be read: what it knows is what counts. Its copy has
    // the right checksum: rot does not look like that.
    let newer = first.counts_before(&second) || second.counts_before(&first);
    let unread = second.unread.or(first.unread).filter(|_| !newer);
    for (place, outcome) in [(first.place, first.outcome), (second.place, second.outcome)] {
        match outcome {
            Ok(l) if !newer && found.newest.as_ref().is_none_or(|n| is_same(n, &l) && l.sequence > n.sequence) => {
                found.newest = Some(l);
            }
            Ok(_) => {}
            Err(e) => found.problems.push((place, e)),
        }
    }
    match (&found.newest, unread) {
        (None, Some(e)) => Err(e),
        _ => Ok(found),
    }
}

/// Whether both are there, and cannot both be of this device as it is. Of the two the weaker one is written first, and synced: so they are
/// one apart at most, and once the first is another than that with which the device was made, the second is there too.
fn apart(first: &ReadLabel, second: &ReadLabel) -> Option<Apart> {
    let at = |l: &ReadLabel, what| Some(Apart { place: l.place, what });
    match (&first.outcome, &second.outcome) {
        (Ok(a), Ok(b)) if !is_same(a, b) => at(second, Beside::Others),
        (Ok(a), Ok(b)) if a.sequence > b.sequence.saturating_add(1) => at(second, Beside::Older),
        (Ok(a), Ok(b)) if b.sequence > a.sequence.saturating_add(1) => at(first, Beside::Older),
        (Ok(a), Err(_)) if second.is_zeros && a.sequence > MADE_WITH => at(second, Beside::Zeros),
        _ => None,
    }
}

/// Whether two labels are of one member.
fn is_same(a: &Label, b: &Label) -> bool {
    let uuid = |l: &Label| l.members.get(l.member as usize).map(|m| m.uuid);
    a.group == b.group && uuid(a) == uuid(b)
}

/// The sequence of the label with which a device becomes a member.
const MADE_WITH: u64 = 1;

/// What is where a label should be.
struct ReadLabel {
    place: u64,
    outcome: Result<Label, LabelError>,
    /// The size of the device that it was written for, if it says so much though it may be damaged.
    laid_out: Option<u64>,
    /// Its sequence, if it says so much.
    sequence: Option<u64>,
    /// Why the place could not be read.
    unread: Option<DeviceError>,
    /// It was read, and is nothing but zeros.
    is_zeros: bool,
}

impl ReadLabel {
    /// Whether it is one of a newer version, and not known to be older than the other copy. Where another version of the format has the
    /// sequence this program does not know.
    fn counts_before(&self, other: &ReadLabel) -> bool {
        match (&self.outcome, &other.outcome) {
            (Err(LabelError::Features(_)), Ok(sound)) => self.sequence.is_none_or(|own| own >= sound.sequence),
            (Err(why), _) => why.is_newer(),
            (Ok(_), _) => false,
        }
    }
}

async fn read_label<D: Device>(device: &D, place: u64) -> ReadLabel {
    if place.checked_add(LABEL_SIZE as u64).is_none_or(|end| end > device.size()) {
        let outcome = Err(LabelError::NotALabel);
        return ReadLabel { place, outcome, laid_out: None, sequence: None, unread: None, is_zeros: false };
    }
    let (buf, result) = device.read(place, BufMut::new(LABEL_SIZE)).await;
    match result {
        Err(e) => {
            let outcome = Err(LabelError::Checksum);
            ReadLabel { place, outcome, laid_out: None, sequence: None, unread: Some(e), is_zeros: false }
        }
        Ok(()) => {
            let (laid_out, sequence) = (Label::device_size_unchecked(&buf), Label::sequence_unchecked(&buf));
            let is_zeros = buf.iter().all(|byte| *byte == 0);
            ReadLabel { place, outcome: Label::decode(&buf, place), laid_out, sequence, unread: None, is_zeros }
        }
    }
}

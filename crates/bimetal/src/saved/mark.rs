//! What stands in both places of a member's label while metadata is written back to it. It is no label, so the group does not
//! start; and it tells the next `restore` which member this is and that the same file was permitted here before.

use bimetal_format::block::crc32c;
use bimetal_format::label::LABEL_SIZE;
use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_format::BLOCK;
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::Device;

/// Its first bytes.
const MAGIC: &[u8; 16] = b"BIMETAL RESTORE\n";
/// Magic, three UUIDs, checksum: less than any sector, so that it is never torn.
const LEN: usize = 68;

/// UUID of a member, and how large its device was when it was laid out.
pub(crate) type LaidOut = ([u8; 16], u64);

/// The mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// UUID of the group.
    pub(crate) group: [u8; 16],
    /// UUID of the member.
    pub(crate) member: [u8; 16],
    /// The file that is being written back.
    pub(crate) file: [u8; 16],
}

impl Mark {
    /// The bytes that take the place of a label.
    pub(super) fn encode(&self) -> Buf {
        let mut place = BufMut::zeroed(LABEL_SIZE);
        let fields = [MAGIC, &self.group, &self.member, &self.file];
        for (field, to) in fields.into_iter().zip(place.chunks_exact_mut(16)) {
            to.copy_from_slice(field);
        }
        let crc = crc32c(&place[..LEN - 4]);
        place[LEN - 4..LEN].copy_from_slice(&crc.to_le_bytes());
        place.freeze()
    }

    fn decode(bytes: &[u8]) -> Option<Mark> {
        let (fields, crc) = bytes.get(..LEN)?.split_at(LEN - 4);
        let mut fields_of_16 = fields.chunks_exact(16).map(|f| <[u8; 16]>::try_from(f).unwrap_or_default());
        let sound = crc == crc32c(fields).to_le_bytes() && fields_of_16.next()? == *MAGIC;
        let mark = Mark { group: fields_of_16.next()?, member: fields_of_16.next()?, file: fields_of_16.next()? };
        sound.then_some(mark)
    }

    /// The mark of a device, if it carries one. A place that cannot be read has none.
    pub(crate) async fn of<D: Device>(device: &D) -> Option<Mark> {
        Mark::of_one_of(device, &[]).await
    }

    /// The same of a device that may be one of these members (UUID, and size when it was laid out) and have grown since: its second place
    /// is where it was, and nothing on the device tells of that if the first one is lost.
    pub(crate) async fn of_one_of<D: Device>(device: &D, members: &[LaidOut]) -> Option<Mark> {
        let places = [LABEL_A, label_b(device.size())].map(|place| (place, None));
        let grown = members.iter().map(|(uuid, size)| (label_b(*size), Some(*uuid)));
        for (place, whose) in places.into_iter().chain(grown) {
            if place.checked_add(BLOCK as u64).is_none_or(|end| end > device.size()) {
                continue;
            }
            let (content, read) = device.read(place, BufMut::new(BLOCK)).await;
            let mark = read.ok().and_then(|()| Mark::decode(&content));
            // What lies there on another member is data.
            if let Some(mark) = mark.filter(|mark| whose.is_none_or(|uuid| uuid == mark.member)) {
                return Some(mark);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_format::label::{Label, LabelError};

    #[test]
    fn a_mark_reads_back_and_is_no_label() {
        let mark = Mark { group: [1; 16], member: [2; 16], file: [3; 16] };
        let bytes = mark.encode();
        assert_eq!(Mark::decode(&bytes), Some(mark));
        assert_eq!(Label::decode(&bytes, LABEL_A), Err(LabelError::NotALabel));
        for at in 0..LEN {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1;
            assert_eq!(Mark::decode(&flipped), None, "byte {at}");
        }
        assert_eq!(Mark::decode(&bytes[..LEN - 1]), None);
    }
}

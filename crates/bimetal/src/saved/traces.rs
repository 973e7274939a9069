//! Whose metadata lies on a device that carries no label. The checksum of each block says of which member of which group it is, and where
//! it lies; so a device that holds one where the saved label has it is that member, or a copy of it, of whatever time.

use bimetal_format::label::Label;
use bimetal_format::layout::ZoneKind;
use bimetal_format::{journal, page, Salt};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Device;

use super::{BLOCK, PIECE};

/// Whether the device holds a sound block of the journal or of the map of the member with this label. What cannot be read says nothing.
pub(crate) async fn has_traces_of<D: Device>(device: &D, label: &Label) -> bool {
    for kind in [ZoneKind::Journal, ZoneKind::Map] {
        for zone in label.zones.iter().filter(|z| z.kind == kind) {
            if zone.offset + zone.len <= device.size() && has_block(device, label, zone.offset, zone.len).await {
                return true;
            }
        }
    }
    false
}

async fn has_block<D: Device>(device: &D, label: &Label, offset: u64, len: u64) -> bool {
    for start in (offset..offset + len).step_by(PIECE as usize) {
        let (content, read) = device.read(start, BufMut::new(PIECE.min(offset + len - start) as usize)).await;
        let is_own = |(place, bytes): (u64, &[u8])| {
            let salt = Salt { group: label.group, member: label.member, place };
            journal::decode(bytes, &salt).is_ok() || page::decode(bytes, &salt).is_ok()
        };
        let mut blocks = (start..).step_by(BLOCK as usize).zip(content.chunks_exact(BLOCK as usize));
        if read.is_ok() && blocks.any(is_own) {
            return true;
        }
    }
    false
}

//! Erases what a device carried before it is made a member by force. File systems, RAID and the rest are recognised by a few
//! bytes, most of them where the engine never writes: a member that kept them would look like what it was, and whatever mounts
//! it destroys the group.
//!
//! The places are those where the system looks (libblkid and our own detector): the first MiB and the last two, without the
//! labels, which the engine erases itself, the few that lie among the zones, and what is left behind the last whole block.

use bimetal_format::label::LABEL_SIZE;
use bimetal_format::layout::{label_b, LABEL_A, ZONES_START};
use bimetal_format::BLOCK;
use bimetal_host::HostDevice;
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Device, DeviceError};

/// Bytes read at a time.
const PIECE: u64 = 64 << 10;

/// Signatures among the zones: where they may stand, and how they begin. The second header of LUKS2, and VMFS.
const AMONG_ZONES: [(u64, &[u8]); 4] = [
    (1 << 20, b"SKUL\xba\xbe"),
    (2 << 20, b"SKUL\xba\xbe"),
    (4 << 20, b"SKUL\xba\xbe"),
    (2 << 20, b"\x5e\xf1\xab\x2f"),
];

/// What stood where zeros are now.
pub(crate) struct Erased {
    pieces: Vec<(u64, Buf)>,
    /// Behind the last whole block.
    rest: Vec<u8>,
}

/// Erases what a device is recognised by, and syncs. It must not be in use.
pub(crate) async fn erase(device: &HostDevice) -> Result<Erased, DeviceError> {
    let mut pieces = Vec::new();
    for offset in places(device.size()) {
        let len = PIECE.min(device.size() - offset);
        let content = read(device, offset, len).await?;
        // What is zero stays as it is: a hole stays a hole.
        if content.iter().any(|b| *b != 0) {
            pieces.push((offset, content.freeze()));
        }
    }
    for (offset, magic) in AMONG_ZONES {
        if offset + BLOCK as u64 > device.size() {
            continue;
        }
        let content = read(device, offset, BLOCK as u64).await?;
        if content.starts_with(magic) {
            pieces.push((offset, content.freeze()));
        }
    }
    for (offset, content) in &pieces {
        device.write(*offset, BufMut::zeroed(content.len()).freeze()).await?;
    }
    let rest = erase_rest(device).await?;
    device.sync().await?;
    // Partitions of a table that is gone would look like free devices.
    device.read_partitions_anew().await;
    Ok(Erased { pieces, rest })
}

impl Erased {
    /// Puts everything back: the device did not become a member after all.
    pub(crate) async fn undo(self, device: &HostDevice) -> Result<(), DeviceError> {
        for (offset, content) in self.pieces {
            device.write(offset, content).await?;
        }
        device.put_rest(self.rest).await?;
        device.sync().await?;
        device.read_partitions_anew().await;
        Ok(())
    }
}

/// Zeros behind the last whole block. What was there.
pub(crate) async fn erase_rest(device: &HostDevice) -> Result<Vec<u8>, DeviceError> {
    let rest = device.rest().await?;
    if rest.iter().any(|b| *b != 0) {
        device.put_rest(vec![0; rest.len()]).await?;
    }
    Ok(rest)
}

/// Where pieces of [`PIECE`] bytes, or up to the end of the device, are erased.
fn places(size: u64) -> Vec<u64> {
    let label = LABEL_SIZE as u64;
    let (first, second) = (LABEL_A, label_b(size));
    let head = (0..ZONES_START).step_by(PIECE as usize).filter(|at| !(first..first + label).contains(at));
    let tail = (second + label..size).step_by(PIECE as usize);
    // On a device that is too small for a member they overlap, and go beyond its end.
    head.chain(tail.filter(|at| *at >= ZONES_START)).filter(|at| *at < size).collect()
}

async fn read(device: &HostDevice, offset: u64, len: u64) -> Result<BufMut, DeviceError> {
    let (content, result) = device.read(offset, BufMut::new(len as usize)).await;
    result.map(|()| content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_host::device::Access;
    use bimetal_host::{Locator, Reactor};

    #[test]
    fn all_outside_labels_and_zones_is_erased_and_can_be_put_back() {
        let (size, rest) = ((16 << 20) + 4096, 1536);
        let mut before: Vec<u8> = (0..size + rest).map(|i| (i % 251) as u8 + 1).collect();
        before[4 << 20..(4 << 20) + 6].copy_from_slice(b"SKUL\xba\xbe");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &before).expect("written");
        let reactor = Reactor::new().expect("a ring");
        let (env, at) = (reactor.env(), Locator::Path(file.path().to_owned()));
        let (zeros, after) = reactor.block_on(async move {
            let device = HostDevice::open(&env, &at, Access::SERVE).await.expect("opened");
            let erased = erase(&device).await.expect("erased");
            let zeros = std::fs::read(at.path().expect("a path")).expect("read");
            erased.undo(&device).await.expect("put back");
            (zeros, std::fs::read(at.path().expect("a path")).expect("read"))
        });
        assert!(after == before);
        let second = label_b(size as u64) as usize;
        let kept = [64 << 10..128 << 10, 1 << 20..4 << 20, (4 << 20) + 4096..second + LABEL_SIZE];
        for (i, byte) in zeros.iter().enumerate() {
            let stays = kept.iter().any(|range| range.contains(&i));
            assert_eq!(*byte, if stays { before[i] } else { 0 }, "byte {i}");
        }
    }

    #[test]
    fn small_devices_have_places_too() {
        for size in [0, 4096, 65_536, 1 << 20, 2 << 20, (3 << 20) + 4096, 1 << 30] {
            let places = places(size);
            assert!(places.iter().all(|at| *at < size), "{size}: {places:?}");
            assert!(places.windows(2).all(|w| w[0] < w[1]), "{size}: {places:?}");
        }
    }
}

//! Blocks of a checkpoint on their way to the member and back.

use bimetal_format::block::hash;

use crate::buf::{Buf, BufMut};
use crate::env::{Device, DeviceError};
use crate::member::{Member, WriteFor};
use crate::mutant::{self, Mutant};
use crate::units::BLOCK;
use crate::wait;

/// Blocks written or read back side by side.
const BATCH: usize = 256;
/// Blocks of which so many lie in between are read back together, and so many reads, of 1 MiB at most, are on their way
/// at a time.
const BRIDGE: u64 = 32;
const READS: usize = 16;

/// A block of a checkpoint that was written, to be read back: its place and the hash of its content.
pub(super) struct Written {
    place: u64,
    hash: u64,
}

/// Writes blocks, neighbours in one request: a disk that seeks to each of them stands still for whatever else it has to
/// do.
pub(super) async fn write_all<D: Device>(
    m: &Member<D>,
    mut images: Vec<(u64, Buf)>,
    written: &mut Vec<Written>,
) -> Result<(), DeviceError> {
    images.sort_unstable_by_key(|(place, _)| *place);
    for part in images.chunks(BATCH) {
        let runs = part.chunk_by(|a, b| a.0 + BLOCK == b.0);
        let writes = runs.map(|run| m.write(run[0].0, joined(run), WriteFor::Engine)).collect();
        wait::all(writes).await.into_iter().collect::<Result<(), _>>()?;
        written.extend(part.iter().map(|(place, content)| Written { place: *place, hash: hash(content) }));
    }
    Ok(())
}

fn joined(run: &[(u64, Buf)]) -> Buf {
    if let [(_, one)] = run {
        return one.clone();
    }
    let mut all = BufMut::new(run.len() * BLOCK as usize);
    for (block, (_, content)) in all.chunks_exact_mut(BLOCK as usize).zip(run) {
        block.copy_from_slice(content);
    }
    all.freeze()
}

/// C5.2: a side is trusted only after it was synced and read back equal. A difference counts as a failed write. What
/// lies between blocks near each other is read with them: that takes less time than a seek.
pub(super) async fn read_back<D: Device>(m: &Member<D>, blocks: &[Written]) -> Result<(), DeviceError> {
    let (near, most) = (BRIDGE * BLOCK, BATCH as u64 * BLOCK);
    for part in blocks.chunks(BATCH) {
        let mut runs: Vec<&[Written]> = Vec::new();
        for run in part.chunk_by(|a, b| a.place < b.place && b.place - a.place <= near) {
            runs.extend(run.chunk_by(|a, b| a.place / most == b.place / most));
        }
        for together in runs.chunks(READS) {
            let checks = together.iter().map(|run| check_run(m, run)).collect();
            wait::all(checks).await.into_iter().collect::<Result<(), _>>()?;
        }
    }
    Ok(())
}

/// Reads a run with what lies in between; if that fails, because something in between cannot be read, each block by
/// itself.
async fn check_run<D: Device>(m: &Member<D>, run: &[Written]) -> Result<(), DeviceError> {
    const EIO: i32 = 5;
    let equal = |block: &[u8], w: &Written| match hash(block) == w.hash || mutant::on(Mutant::C5NotReadBack) {
        true => Ok(()),
        false => Err(DeviceError::Io(EIO)),
    };
    let (first, last) = (run[0].place, run[run.len() - 1].place);
    let size = BLOCK as usize;
    if let Ok(got) = m.read(first, BufMut::new((last - first) as usize + size)).await {
        return run.iter().try_for_each(|w| equal(&got[(w.place - first) as usize..][..size], w));
    }
    for w in run {
        equal(&m.read(w.place, BufMut::new(size)).await?, w)?;
    }
    Ok(())
}

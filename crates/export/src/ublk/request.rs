//! One request: the backend is asked, the answer is bytes done or an errno.

use bimetal_host::ublk::{IoDesc, Kind};
use bimetal_volume::backend::{Backend, Piece, Wanted, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::error::Error;
use bimetal_volume::units::BLOCK;

pub(super) const EIO: i32 = 5;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// A range in bytes.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    len: u64,
}

/// Carries out a request whose data are, or are to be, at the front of `buf`, which is `max` bytes long. Gives a buffer
/// of that length back, and the answer; `None` if it is to be left to the next daemon, as a discard or zeroing is that is not `wanted` to
/// its end here.
pub(super) async fn perform<B: Backend>(
    backend: &B,
    desc: &IoDesc,
    buf: BufMut,
    max: usize,
    wanted: Wanted<'_>,
) -> (BufMut, Option<i32>) {
    // A flush has no range: the kernel's says sector -1.
    let start = if desc.kind() == Kind::Flush { 0 } else { desc.start_sector };
    let Some(offset) = start.checked_mul(512) else { return (buf, Some(-EINVAL)) };
    let range = Range { offset, len: u64::from(desc.nr_sectors) * 512 };
    let flags = WriteFlags { fua: desc.fua(), no_hole: desc.keep(), outlives: true };
    let transfers = matches!(desc.kind(), Kind::Read | Kind::Write);
    if transfers && range.len > max as u64 {
        return (buf, Some(-EINVAL));
    }
    let (buf, result) = match desc.kind() {
        Kind::Read => read(backend, range, buf).await,
        Kind::Write => write(backend, range, buf, flags).await,
        Kind::Flush => (buf, backend.flush().await),
        Kind::Discard => (buf, backend.trim_while(range.offset, range.len, flags, wanted).await),
        Kind::WriteZeroes => (buf, backend.write_zeroes(range.offset, range.len, flags, wanted).await),
        Kind::Other(_) => return (buf, Some(-EOPNOTSUPP)),
    };
    let answer = match result {
        Ok(()) if transfers => Some(range.len as i32),
        Ok(()) => Some(0),
        Err(Error::Stopping) => None,
        Err(error) => Some(-error.errno().abs()),
    };
    (buf, answer)
}

async fn read<B: Backend>(backend: &B, range: Range, mut buf: BufMut) -> (BufMut, Result<(), Error>) {
    let pieces = match backend.read(range.offset, range.len).await {
        Ok(pieces) => pieces,
        Err(error) => return (buf, Err(error)),
    };
    if pieces.iter().map(Piece::len).sum::<u64>() != range.len {
        // The rest of the buffer is not the client's to see.
        return (buf, Err(wrong_length()));
    }
    let mut at = 0;
    for piece in &pieces {
        let len = piece.len() as usize;
        match piece {
            Piece::Data(data) => buf[at..at + len].copy_from_slice(data),
            Piece::Zero(_) => buf[at..at + len].fill(0),
        }
        at += len;
    }
    (buf, Ok(()))
}

/// Hands the buffer itself to the backend where its blocks lie as the backend wants them.
async fn write<B: Backend>(backend: &B, range: Range, buf: BufMut, flags: WriteFlags) -> (BufMut, Result<(), Error>) {
    let len = range.len as usize;
    if !range.offset.is_multiple_of(BLOCK) {
        let mut copy = BufMut::with_phase(len, range.offset);
        copy.copy_from_slice(&buf[..len]);
        return (buf, backend.write(range.offset, copy.freeze(), flags).await);
    }
    let max = buf.len();
    let whole = buf.freeze();
    let result = backend.write(range.offset, whole.slice(0, len), flags).await;
    // Someone who still looks at what was written keeps it.
    (whole.try_unfreeze().unwrap_or_else(|_| BufMut::new(max)), result)
}

fn wrong_length() -> Error {
    Error::Device { member: u8::MAX, source: bimetal_volume::env::DeviceError::Io(EIO) }
}

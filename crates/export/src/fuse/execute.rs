//! One request on a volume, and its answer.

use std::rc::Rc;

use bimetal_host::fuse::{Answer, MAX_TRANSFER};
use bimetal_volume::backend::{Backend, Piece, Wanted, WriteFlags};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::error::Error;
use bimetal_volume::units::BLOCK;

use crate::load::Share;
use crate::runtime::{yield_now, Runtime};
use crate::stats::Kind;

use super::reply::{self, fail, put};
use super::wire::{errno, WriteOut};
use super::{Channel, Shared};

/// How much of a volume is looked through for data or a hole before others have their turn.
const SEEK_STEP: u64 = 1 << 30;

/// What a volume is asked. `file` is its number in the list; ranges lie inside of the volume.
pub(super) enum Work {
    Read {
        file: usize,
        offset: u64,
        len: u64,
    },
    Write {
        file: usize,
        offset: u64,
        len: u64,
        durable: bool,
        payload: Payload,
    },
    Flush {
        file: usize,
    },
    /// The range reads as zeros; `keep`: with room kept for it.
    Zero {
        file: usize,
        offset: u64,
        len: u64,
        keep: bool,
    },
    Seek {
        file: usize,
        offset: u64,
        size: u64,
        data: bool,
    },
}

/// The data of a WRITE.
pub(super) struct Payload {
    pub(super) data: Buf,
    /// The area it came in, if it is still there.
    pub(super) area: Option<Buf>,
}

impl Payload {
    pub(super) fn none() -> Payload {
        Payload { data: BufMut::new(0).freeze(), area: None }
    }

    /// Bytes it occupies: an area counts as the largest payload.
    fn bytes(&self) -> u64 {
        self.area.as_ref().map_or(self.data.len(), |_| MAX_TRANSFER) as u64
    }

    /// Leaves the area it came in, which is given back: what waits occupies no more than itself.
    fn leave_area(&mut self) -> Option<Buf> {
        let area = self.area.take()?;
        self.data = BufMut::copy_of(&self.data).freeze();
        Some(area)
    }
}

impl Work {
    /// What it occupies when it is under way.
    pub(super) fn share(&self) -> Share {
        match self {
            Work::Read { len, .. } => Share::of(*len),
            _ => Share::of(self.brought()),
        }
    }

    /// Bytes that it has brought with it, which it occupies from the beginning.
    pub(super) fn brought(&self) -> u64 {
        match self {
            Work::Write { payload, .. } => payload.bytes(),
            _ => 0,
        }
    }

    pub(super) fn file(&self) -> usize {
        match self {
            Work::Read { file, .. }
            | Work::Write { file, .. }
            | Work::Flush { file }
            | Work::Zero { file, .. }
            | Work::Seek { file, .. } => *file,
        }
    }

    /// Its kind in the statistics, and the bytes of its range.
    fn kind(&self) -> (Kind, u64) {
        match self {
            Work::Read { len, .. } => (Kind::Read, *len),
            Work::Write { len, .. } => (Kind::Write, *len),
            Work::Flush { .. } => (Kind::Flush, 0),
            Work::Zero { len, keep: true, .. } => (Kind::WriteZeroes, *len),
            Work::Zero { len, .. } => (Kind::Trim, *len),
            Work::Seek { .. } => (Kind::BlockStatus, 0),
        }
    }
}

/// Does the work, for which there is room, and sends the answer.
async fn execute<R: Runtime, B: Backend, C: Channel>(shared: Rc<Shared<R, B, C>>, mut answer: Box<Answer>, work: Work) {
    let began = shared.runtime.now();
    let (file, share, (kind, range)) = (work.file(), work.share(), work.kind());
    let result = match shared.tree.at(file) {
        Some(file) => shared.perform(&file.backend, work, &mut answer).await,
        None => Err(errno::EIO),
    };
    {
        let latency = shared.runtime.now().since(began);
        let counters = &mut shared.counters.borrow_mut()[kind as usize];
        counters.answered += 1;
        counters.failed += u64::from(result.is_err());
        counters.bytes += range;
        counters.latency.record(latency);
    }
    if let Err(errno) = result {
        fail(&mut answer, errno);
    }
    shared.send(answer).await;
    shared.room.give_back(file, share);
    while let Some((answer, work)) = shared.room.next() {
        shared.start(answer, work);
    }
    shared.count_out();
}

/// The errno for an error of the engine.
fn errno_of(error: &Error) -> i32 {
    error.errno().abs()
}

impl<R: Runtime, B: Backend, C: Channel> Shared<R, B, C> {
    /// Starts work that was just received, or lets it wait for room.
    pub(super) fn admit(self: &Rc<Self>, answer: Box<Answer>, mut work: Work) {
        self.count_in();
        if self.room.take(&work) {
            return self.start(answer, work);
        }
        if let Work::Write { payload, .. } = &mut work {
            self.reclaim(payload.leave_area());
        }
        self.room.wait(answer, work);
    }

    fn start(self: &Rc<Self>, answer: Box<Answer>, work: Work) {
        self.runtime.spawn(execute(self.clone(), answer, work));
    }

    /// Refuses what waits for room: it has not begun, and need not any more.
    pub(super) fn refuse_waiting(self: &Rc<Self>) {
        while let Some((mut answer, _)) = self.room.give_up() {
            reply::fail(&mut answer, errno::ESHUTDOWN);
            self.send_later(answer);
            self.count_out();
        }
    }

    async fn perform(&self, backend: &B, work: Work, answer: &mut Answer) -> Result<(), i32> {
        match work {
            Work::Read { offset, len, .. } => {
                answer.data = backend.read(offset, len).await.map_err(|e| errno_of(&e))?;
                // The kernel would take a short answer for the end of the file.
                let whole = answer.data.iter().map(Piece::len).sum::<u64>() == len;
                return if whole { Ok(()) } else { Err(errno::EIO) };
            }
            Work::Write { offset, len, durable, payload, .. } => {
                let flags = WriteFlags { fua: durable, ..WriteFlags::default() };
                // A stop waits for it; who gave the mount up (`umount -f`) was told of an error, and may have written here again.
                let writes: Wanted<'_> = &|| !self.ended.get();
                let result = match len {
                    0 => Ok(()),
                    len => backend.write_while(offset, payload.data.slice(0, len as usize), flags, writes).await,
                };
                drop(payload.data);
                self.reclaim(payload.area);
                result.map_err(|e| errno_of(&e))?;
                put(answer, &WriteOut { size: len as u32, padding: 0 });
            }
            Work::Flush { .. } => backend.flush().await.map_err(|e| errno_of(&e))?,
            Work::Zero { offset, len, keep, .. } => {
                zero(backend, offset, len, keep, &|| self.waits_for_long_work()).await.map_err(|e| errno_of(&e))?;
            }
            Work::Seek { offset, size, data, .. } => {
                let found = seek(backend, offset, size, data).await.map_err(|e| errno_of(&e))?;
                put(answer, &found.ok_or(errno::ENXIO)?);
            }
        }
        Ok(())
    }
}

/// Forgets whole blocks; what is not a matter of whole blocks is zeroed exactly, because whoever punches a hole, a loop
/// device among them, wants to read zeros afterwards.
async fn zero(backend: &impl Backend, offset: u64, len: u64, keep: bool, wanted: Wanted<'_>) -> Result<(), Error> {
    let flags = WriteFlags { no_hole: keep, ..WriteFlags::default() };
    if !keep && (offset | len) % BLOCK == 0 {
        return backend.trim_while(offset, len, flags, wanted).await;
    }
    backend.write_zeroes(offset, len, flags, wanted).await
}

/// The first byte from `offset` on that is data, or in a hole; the end of the volume counts as a hole.
async fn seek(backend: &impl Backend, offset: u64, size: u64, data: bool) -> Result<Option<u64>, Error> {
    const EXTENTS: usize = 64;
    let mut at = offset;
    while at < size {
        let mut covered = 0;
        for extent in backend.extents(at, SEEK_STEP.min(size - at), EXTENTS)? {
            if extent.data == data {
                return Ok(Some(at + covered));
            }
            covered += extent.len;
        }
        if covered == 0 {
            // A backend that says nothing of the rest.
            break;
        }
        at += covered;
        yield_now().await;
    }
    Ok((!data).then_some(size))
}

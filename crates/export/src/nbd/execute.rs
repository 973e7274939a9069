//! One request: the backend is asked, the answer goes to the outbox.

use bimetal_nbd::consts::{cmd, errno, reply_flag, reply_type};
use bimetal_nbd::reply::{encode_error, encode_simple, encode_status, status_size, Chunk, StatusExtent, DATA_PREFIX};
use bimetal_nbd::request::{HeaderStyle, Request, StatusFilter};
use bimetal_volume::backend::{Backend, Piece, Pieces, Wanted};
use bimetal_volume::buf::Buf;
use bimetal_volume::env::Instant;
use bimetal_volume::error::Error;
use bimetal_volume::units::BLOCK;

use crate::runtime::Runtime;

use super::add_one;
use super::outbox::Writer;
use super::transmission::Session;
use super::validate::{Op, Refusal, MAX_STATUS_EXTENTS};
use crate::load::Share;

/// Enough to find out how far one extent reaches for a context that merges neighbours.
const ONE_STATUS_EXTENTS: usize = 256;

/// A request that was taken.
pub(super) struct Work {
    pub(super) request: Request,
    pub(super) op: Op,
    /// What it occupies until its answer was sent.
    pub(super) share: Share,
    pub(super) payload: Option<Buf>,
    pub(super) filter: Option<StatusFilter>,
    /// When it was complete here.
    pub(super) began: Instant,
}

/// What a successful request has to say.
enum Answer {
    Done,
    Data(Pieces),
    /// Per context: its number and what it says.
    Status(Vec<(u32, Vec<StatusExtent>)>),
}

/// The errno of the protocol for an error of the engine.
fn wire_errno(error: &Error) -> u32 {
    const EROFS: u32 = 30;
    match error.errno().unsigned_abs() {
        EROFS | errno::EPERM => errno::EPERM,
        known @ (errno::ENOMEM
        | errno::EINVAL
        | errno::ENOSPC
        | errno::EOVERFLOW
        | errno::ENOTSUP
        | errno::ESHUTDOWN) => known,
        _ => errno::EIO,
    }
}

/// Executes one request and queues its answer.
pub(super) async fn execute<R: Runtime, B: Backend>(session: &Session<R, B>, mut work: Work) {
    let result = session.perform(&mut work).await;
    let shared = &session.shared;
    if let Some(kind) = work.op.kind() {
        let latency = shared.runtime.now().since(work.began);
        let stats = &mut shared.counters.requests.borrow_mut()[kind as usize];
        stats.answered += 1;
        stats.failed += u64::from(result.is_err());
        stats.bytes += work.op.range_len();
        stats.latency.record(latency);
    }
    match result {
        Ok(answer) => session.answer(&work, answer),
        Err(error) => {
            let words = error.to_string();
            session.answer_failed(&work.request, work.share, wire_errno(&error), &words);
        }
    }
}

impl<R: Runtime, B: Backend> Session<R, B> {
    async fn perform(&self, work: &mut Work) -> Result<Answer, Error> {
        let (backend, wanted): (_, Wanted<'_>) = (&self.backend, &|| self.waits_for_long_work());
        let writes: Wanted<'_> = &|| self.waits_for_writes();
        match work.op {
            Op::Nothing => {}
            Op::Read { offset, len, .. } => return backend.read(offset, len).await.map(Answer::Data),
            Op::Write { offset, flags, .. } => {
                // The reader starts a write only together with its payload.
                if let Some(data) = work.payload.take() {
                    backend.write_while(offset, data, flags, writes).await?;
                }
            }
            Op::Flush => backend.flush().await?,
            Op::Trim { offset, len, flags } if self.cuts_blocks(offset, len) => {
                backend.write_zeroes(offset, len, flags, wanted).await?
            }
            Op::Trim { offset, len, flags } => backend.trim_while(offset, len, flags, wanted).await?,
            Op::WriteZeroes { offset, len, flags } => backend.write_zeroes(offset, len, flags, wanted).await?,
            Op::Cache { offset, len } => backend.cache(offset, len, wanted).await?,
            Op::BlockStatus { offset, len, one_extent, .. } => {
                return self.status(offset, len, one_extent, work.filter.as_ref()).map(Answer::Status)
            }
        }
        Ok(Answer::Done)
    }

    /// Whether a TRIM ends inside of blocks on a volume whose sectors are smaller than these. It then zeroes exactly
    /// its range: clients make TRIM of hole punching (nbdfuse does), with which a loop device means to *zero* sectors.
    fn cuts_blocks(&self, offset: u64, len: u64) -> bool {
        u64::from(self.backend.sector_size()) < BLOCK && (offset | len) % BLOCK != 0
    }

    fn status(
        &self,
        offset: u64,
        len: u64,
        one_extent: bool,
        filter: Option<&StatusFilter>,
    ) -> Result<Vec<(u32, Vec<StatusExtent>)>, Error> {
        let max = if one_extent { ONE_STATUS_EXTENTS } else { MAX_STATUS_EXTENTS };
        let extents = self.backend.extents(offset, len, max)?;
        let wanted = |id: u32| filter.is_none_or(|f| f.ids.contains(&id));
        let mut told = Vec::new();
        for context in self.terms.contexts.iter().filter(|c| wanted(c.id())) {
            let mut described = context.describe(&extents, len);
            if described.is_empty() {
                // The protocol has no answer for a backend that says nothing.
                return Err(Error::OutOfRange { offset, len, size: self.terms.size });
            }
            if one_extent {
                described.truncate(1);
            }
            told.push((context.id(), described));
        }
        Ok(told)
    }

    /// Queues the answer to a request that succeeded.
    fn answer(&self, work: &Work, answer: Answer) {
        let Work { request, share, .. } = work;
        match answer {
            Answer::Data(pieces) => self.answer_read(work, &pieces),
            Answer::Done => self.push(*share, |w| match (self.terms.style, request.command) {
                // A read is never answered by a simple reply once there are chunks, not even one of no bytes.
                (HeaderStyle::Extended, _) | (HeaderStyle::Structured, cmd::READ) => {
                    self.chunk(w, request, reply_type::NONE, 0, true);
                }
                _ => encode_simple(request.cookie, 0, w.head()),
            }),
            Answer::Status(contexts) => self.push(*share, |w| {
                let extended = self.terms.style == HeaderStyle::Extended;
                let kind = if extended { reply_type::BLOCK_STATUS_EXT } else { reply_type::BLOCK_STATUS };
                for (i, (id, extents)) in contexts.iter().enumerate() {
                    let len = status_size(extended, extents.len());
                    self.chunk(w, request, kind, len, i + 1 == contexts.len());
                    encode_status(extended, *id, extents, w.head());
                }
            }),
        }
    }

    fn answer_read(&self, work: &Work, pieces: &Pieces) {
        let Op::Read { offset, len, one_chunk } = work.op else { return };
        let (request, share) = (&work.request, work.share);
        if pieces.iter().map(Piece::len).sum::<u64>() != len {
            // Sent as it is, it would put the stream out of step.
            return self.answer_failed(request, share, errno::EIO, "the volume gave a wrong number of bytes");
        }
        self.push(share, |w| {
            if self.terms.style == HeaderStyle::Simple {
                encode_simple(request.cookie, 0, w.head());
                pieces.iter().for_each(|piece| put_data(w, piece));
            } else if one_chunk && pieces.len() > 1 {
                self.chunk(w, request, reply_type::OFFSET_DATA, len as u32 + DATA_PREFIX as u32, true);
                w.head().extend_from_slice(&offset.to_be_bytes());
                pieces.iter().for_each(|piece| put_data(w, piece));
            } else {
                self.put_chunks(w, request, offset, pieces);
            }
        });
    }

    /// A chunk per piece: zeros cost only a header.
    fn put_chunks(&self, w: &mut Writer<'_>, request: &Request, mut offset: u64, pieces: &Pieces) {
        let last = pieces.iter().rposition(|p| !p.is_empty()).unwrap_or(0);
        for (i, piece) in pieces.iter().enumerate() {
            match piece {
                piece if piece.is_empty() => continue,
                Piece::Data(buf) => {
                    let len = (buf.len() + DATA_PREFIX) as u32;
                    self.chunk(w, request, reply_type::OFFSET_DATA, len, i == last);
                    w.head().extend_from_slice(&offset.to_be_bytes());
                    w.data(buf.clone());
                }
                Piece::Zero(n) => {
                    self.chunk(w, request, reply_type::OFFSET_HOLE, 12, i == last);
                    w.head().extend_from_slice(&offset.to_be_bytes());
                    w.head().extend_from_slice(&(*n as u32).to_be_bytes());
                }
            }
            offset += piece.len();
        }
    }

    /// Queues the answer to a request that never reached the backend.
    pub(super) fn answer_refused(&self, request: &Request, share: Share, refusal: Refusal) {
        self.answer_failed(request, share, refusal.errno, refusal.why);
    }

    fn answer_failed(&self, request: &Request, share: Share, errno: u32, why: &str) {
        self.push(share, |w| {
            if self.terms.style == HeaderStyle::Simple {
                return encode_simple(request.cookie, errno, w.head());
            }
            let mut payload = Vec::with_capacity(6 + why.len());
            let len = encode_error(errno, why, &mut payload);
            self.chunk(w, request, reply_type::ERROR, len, true);
            w.head().extend_from_slice(&payload);
        });
    }

    fn chunk(&self, w: &mut Writer<'_>, request: &Request, kind: u16, len: u32, done: bool) {
        let flags = if done { reply_flag::DONE } else { 0 };
        let chunk = Chunk { flags, kind, cookie: request.cookie, offset: request.offset, len };
        chunk.encode(self.terms.style == HeaderStyle::Extended, w.head());
    }

    fn push(&self, share: Share, write: impl FnOnce(&mut Writer<'_>)) {
        add_one(&self.peer.answered);
        let dropped = self.outbox.push(share, write);
        self.give_back(dropped);
    }
}

fn put_data(w: &mut Writer<'_>, piece: &Piece) {
    match piece {
        Piece::Data(buf) => w.data(buf.clone()),
        Piece::Zero(n) => w.zeros(*n as usize),
    }
}

//! Answers in: what comes from a server, and to which request it belongs. Nothing that it says is taken on trust.

use std::ops::Range;

use bimetal_nbd::consts::{errno, reply_type};
use bimetal_nbd::reply::{Chunk, Payload, ReplyHeader, DATA_PREFIX, MAGIC_SIZE};
use bimetal_nbd::request::HeaderStyle;
use bimetal_volume::env::DeviceError;

use super::super::input::Input;
use super::super::patience::Broken;
use super::Client;

/// Most payload of a chunk that is not data, in bytes: an error with its message.
const MAX_SMALL_CHUNK: u32 = 8192;

impl Client {
    /// Follows the answers until the connection ends.
    pub(super) async fn receive(&self, mut input: Input) -> Result<std::convert::Infallible, Broken> {
        loop {
            let magic: [u8; MAGIC_SIZE] =
                input.peek(MAGIC_SIZE).await?.try_into().map_err(|_| Broken::Peer("short head"))?;
            let size = ReplyHeader::size(self.style, magic)?;
            match ReplyHeader::decode(self.style, input.take(size).await?)? {
                ReplyHeader::Simple { cookie, error } => self.simple_reply(&mut input, cookie, error).await?,
                ReplyHeader::Chunk(chunk) => self.chunk(&mut input, &chunk).await?,
            }
        }
    }

    /// The slot of a request in flight.
    fn find(&self, cookie: u64) -> Result<usize, Broken> {
        let index = (cookie & u64::from(u32::MAX)) as usize;
        let pending = self.pending.borrow();
        let slot = pending.get(index).filter(|s| u64::from(s.turn) == cookie >> 32);
        let open = slot.and_then(|s| s.request.as_ref()).is_some_and(|r| r.done.is_none());
        if !open {
            return Err(Broken::Peer("an answer to a request that was not made"));
        }
        Ok(index)
    }

    async fn simple_reply(&self, input: &mut Input, cookie: u64, error: u32) -> Result<(), Broken> {
        let index = self.find(cookie)?;
        if error != 0 {
            self.answer(index, Err(device_error(error)));
            return Ok(());
        }
        let all = self.pending.borrow()[index].request.as_ref().and_then(|r| r.target.as_ref().map(|t| t.1.clone()));
        if let Some(range) = all {
            if self.style == HeaderStyle::Structured {
                return Err(Broken::Peer("a simple reply to a read after structured ones were agreed on"));
            }
            self.fill(input, index, range).await?;
        }
        self.answer(index, Ok(()));
        Ok(())
    }

    async fn chunk(&self, input: &mut Input, chunk: &Chunk) -> Result<(), Broken> {
        let index = self.find(chunk.cookie)?;
        if chunk.kind == reply_type::OFFSET_DATA {
            let len = (chunk.len as usize).checked_sub(DATA_PREFIX).filter(|n| *n > 0);
            let len = len.ok_or(Broken::Peer("a data chunk without data"))?;
            let offset = u64::from_be_bytes(input.array().await?);
            let range = self.place(index, offset, len)?;
            self.fill(input, index, range).await?;
        } else {
            if chunk.len > MAX_SMALL_CHUNK {
                return Err(Broken::Peer("a chunk is too long"));
            }
            let bytes = input.take_vec(chunk.len as usize).await?;
            self.small_chunk(index, chunk, &bytes)?;
        }
        if chunk.is_done() {
            let result = self.verdict(index)?;
            self.answer(index, result);
        }
        Ok(())
    }

    fn small_chunk(&self, index: usize, chunk: &Chunk, bytes: &[u8]) -> Result<(), Broken> {
        match Payload::decode(chunk, bytes)? {
            Payload::None => {}
            Payload::Hole { offset, len } => {
                let range = self.place(index, offset, len as usize)?;
                let mut pending = self.pending.borrow_mut();
                let target = pending[index].request.as_mut().and_then(|r| r.target.as_mut());
                let (buf, _) = target.ok_or(Broken::Peer("a hole for a request that reads nothing"))?;
                buf[range].fill(0);
            }
            Payload::Error { error, .. } => {
                let mut pending = self.pending.borrow_mut();
                if let Some(request) = &mut pending[index].request {
                    request.error.get_or_insert(device_error(error));
                }
            }
            Payload::Status { .. } => return Err(Broken::Peer("a block status that was not asked for")),
        }
        Ok(())
    }

    /// The part of the target that `len` bytes at `offset` of the export belong to.
    fn place(&self, index: usize, offset: u64, len: usize) -> Result<Range<usize>, Broken> {
        let mut pending = self.pending.borrow_mut();
        let request = pending[index].request.as_mut().ok_or(Broken::Peer("no such request"))?;
        let (_, whole) = request.target.as_ref().ok_or(Broken::Peer("data for a request that reads nothing"))?;
        let beyond = Broken::Peer("data beyond what was asked for");
        let Some(from) = offset.checked_sub(request.offset).filter(|f| *f <= whole.len() as u64) else {
            return Err(beyond);
        };
        let start = whole.start + from as usize;
        if len > whole.end - start {
            return Err(beyond);
        }
        if !request.arrived.add(from as usize..from as usize + len) {
            // What it lacks elsewhere would be old memory.
            return Err(Broken::Peer("the same part of a read twice"));
        }
        Ok(start..start + len)
    }

    /// Receives into the target of a request, which is taken out meanwhile.
    async fn fill(&self, input: &mut Input, index: usize, range: Range<usize>) -> Result<(), Broken> {
        let target = self.pending.borrow_mut()[index].request.as_mut().and_then(|r| r.target.take());
        let (buf, whole) = target.ok_or(Broken::Peer("data for a request that reads nothing"))?;
        let (buf, result) = input.fill(buf, range).await;
        if let Some(request) = &mut self.pending.borrow_mut()[index].request {
            request.target = Some((buf, whole));
        }
        Ok(result?)
    }

    /// The result of a request whose last chunk has come.
    fn verdict(&self, index: usize) -> Result<Result<(), DeviceError>, Broken> {
        let pending = self.pending.borrow();
        let request = pending[index].request.as_ref().ok_or(Broken::Peer("no such request"))?;
        if let Some(error) = request.error {
            return Ok(Err(error));
        }
        match &request.target {
            Some((_, whole)) if !request.arrived.is_all(whole.len()) => Err(Broken::Peer("an answer with gaps")),
            _ => Ok(Ok(())),
        }
    }
}

fn device_error(error: u32) -> DeviceError {
    match error {
        errno::ENOSPC => DeviceError::RemoteNoSpace,
        errno::ENOTSUP => DeviceError::Unsupported,
        errno::ESHUTDOWN => DeviceError::Disconnected,
        other => DeviceError::Io(i32::try_from(other).unwrap_or(libc::EIO)),
    }
}

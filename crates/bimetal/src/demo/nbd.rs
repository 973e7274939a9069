//! A small blocking NBD client: what the demo needs to use a volume as any other program would.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_nbd::consts::{client_flag, cmd, opt, rep, reply_type};
use bimetal_nbd::handshake::{encode_option, Greeting, OptionReplyHeader};
use bimetal_nbd::option::{Info, InfoRequest, MetaContext, MetaRequest};
use bimetal_nbd::reply::{Chunk, Payload, ReplyHeader, DATA_PREFIX, MAGIC_SIZE};
use bimetal_nbd::request::{HeaderStyle, Request};

const STYLE: HeaderStyle = HeaderStyle::Structured;
const TIER_CONTEXT: &str = "bimetal:tier";
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to an export.
pub(crate) struct Nbd {
    stream: UnixStream,
    /// Bytes.
    pub(crate) size: u64,
    next_cookie: u64,
    /// Requests sent and not yet answered, with the place of a read's data: export offset and length.
    open: HashMap<u64, (u64, u64)>,
}

impl Nbd {
    /// Connects to `export` of the server behind `socket`.
    pub(crate) fn connect(socket: &Path, export: &str) -> Result<Nbd> {
        let stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut nbd = Nbd { stream, size: 0, next_cookie: 1, open: HashMap::new() };
        nbd.handshake(export).context("NBD handshake")?;
        Ok(nbd)
    }

    fn handshake(&mut self, export: &str) -> Result<()> {
        Greeting::decode(&self.take()?)?;
        let flags = client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES;
        self.stream.write_all(&flags.to_be_bytes())?;
        self.option(opt::STRUCTURED_REPLY, &[], |_, _| Ok(()))?;
        let contexts = MetaRequest { export, queries: vec![TIER_CONTEXT] }.encode();
        let mut tiers = false;
        self.option(opt::SET_META_CONTEXT, &contexts, |kind, data| {
            tiers |= kind == rep::META_CONTEXT && MetaContext::decode(data)?.name == TIER_CONTEXT;
            Ok(())
        })?;
        if !tiers {
            bail!("the server has no context {TIER_CONTEXT}");
        }
        let go = InfoRequest { name: export, wanted: Vec::new() }.encode();
        let mut found = 0;
        self.option(opt::GO, &go, |_, data| {
            if let Info::Export { size, .. } = Info::decode(data)? {
                found = size;
            }
            Ok(())
        })?;
        self.size = found;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn take_vec(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends an option; `each` sees every answer but the final acknowledgement.
    fn option(&mut self, option: u32, data: &[u8], mut each: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        let mut frame = Vec::new();
        encode_option(option, data, &mut frame);
        self.stream.write_all(&frame)?;
        loop {
            let head = OptionReplyHeader::decode(&self.take()?)?;
            let data = self.take_vec(head.len as usize)?;
            if head.is_error() {
                bail!("option {option} is refused ({}): {}", head.kind, String::from_utf8_lossy(&data));
            }
            if head.kind == rep::ACK {
                return Ok(());
            }
            each(head.kind, &data)?;
        }
    }

    /// Requests without an answer yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.open.len()
    }

    fn send(&mut self, command: u16, offset: u64, len: u64, payload: &[u8]) -> Result<()> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut head = Vec::with_capacity(HeaderStyle::Structured.request_size());
        Request { flags: 0, command, cookie, offset, len }.encode(STYLE, &mut head)?;
        self.stream.write_all(&head)?;
        self.stream.write_all(payload)?;
        self.open.insert(cookie, (offset, len));
        Ok(())
    }

    /// Begins a write.
    pub(crate) fn begin_write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.send(cmd::WRITE, offset, data.len() as u64, data)
    }

    /// Begins a read; its data comes with [`Nbd::finish_one`].
    pub(crate) fn begin_read(&mut self, offset: u64, len: u64) -> Result<()> {
        self.send(cmd::READ, offset, len, &[])
    }

    /// Waits for any one request; for a read, gives its offset and data.
    pub(crate) fn finish_one(&mut self) -> Result<(u64, Vec<u8>)> {
        let mut data: Vec<u8> = Vec::new();
        loop {
            let (cookie, chunk) = self.reply_head()?;
            let Some(&(start, len)) = self.open.get(&cookie) else { bail!("the server answers what nobody asked") };
            let Some(chunk) = chunk else {
                self.open.remove(&cookie);
                return Ok((start, data));
            };
            if data.is_empty() && matches!(chunk.kind, reply_type::OFFSET_DATA | reply_type::OFFSET_HOLE) {
                data = vec![0; len as usize];
            }
            self.take_chunk(&chunk, start, &mut data)?;
            // A server may mix the chunks of several answers; ours sends those of one together.
            if chunk.is_done() {
                self.open.remove(&cookie);
                return Ok((start, data));
            }
        }
    }

    /// The next head: cookie, and the chunk unless it is a simple reply.
    fn reply_head(&mut self) -> Result<(u64, Option<Chunk>)> {
        let magic: [u8; MAGIC_SIZE] = self.take()?;
        let size = ReplyHeader::size(STYLE, magic)?;
        let mut bytes = magic.to_vec();
        bytes.extend(self.take_vec(size - MAGIC_SIZE)?);
        match ReplyHeader::decode(STYLE, &bytes)? {
            ReplyHeader::Simple { cookie, error: 0 } => Ok((cookie, None)),
            ReplyHeader::Simple { error, .. } => bail!("the server reports error {error}"),
            ReplyHeader::Chunk(chunk) => Ok((chunk.cookie, Some(chunk))),
        }
    }

    fn take_chunk(&mut self, chunk: &Chunk, start: u64, data: &mut [u8]) -> Result<()> {
        if chunk.kind == reply_type::OFFSET_DATA && chunk.len as usize >= DATA_PREFIX {
            let offset = u64::from_be_bytes(self.take()?);
            let from = offset.checked_sub(start).context("data outside the request")? as usize;
            let len = chunk.len as usize - DATA_PREFIX;
            let part = data.get_mut(from..from + len).context("data outside the request")?;
            return Ok(self.stream.read_exact(part)?);
        }
        let bytes = self.take_vec(chunk.len as usize)?;
        match Payload::decode(chunk, &bytes)? {
            Payload::Error { error, message, .. } => bail!("the server reports error {error}: {message}"),
            _ => Ok(()),
        }
    }

    /// Makes everything that was answered durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.send(cmd::FLUSH, 0, 0, &[])?;
        while self.in_flight() > 0 {
            self.finish_one()?;
        }
        Ok(())
    }

    /// Reads one range.
    pub(crate) fn read(&mut self, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.begin_read(offset, len)?;
        Ok(self.finish_one()?.1)
    }

    /// Bytes of a range that lie on the fast and on the slow tier.
    pub(crate) fn tiers(&mut self, offset: u64, len: u64) -> Result<(u64, u64)> {
        let (mut fast, mut slow) = (0, 0);
        let mut at = 0;
        while at < len {
            let mut step = 0;
            for (extent, tier) in self.tier_extents(offset + at, len - at)? {
                let extent = extent.min(len - at - step);
                step += extent;
                match tier {
                    1 | 3 => fast += extent,
                    2 => slow += extent,
                    _ => {}
                }
            }
            if step == 0 {
                bail!("the server describes nothing");
            }
            at += step;
        }
        Ok((fast, slow))
    }

    fn tier_extents(&mut self, offset: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        self.send(cmd::BLOCK_STATUS, offset, len, &[])?;
        let mut out = Vec::new();
        loop {
            let (cookie, chunk) = self.reply_head()?;
            let Some(chunk) = chunk else { bail!("the server does not describe the range") };
            let bytes = self.take_vec(chunk.len as usize)?;
            match Payload::decode(&chunk, &bytes)? {
                Payload::Status { extents, .. } => out.extend(extents.iter().map(|e| (e.len, e.status))),
                Payload::Error { error, message, .. } => bail!("the server reports error {error}: {message}"),
                Payload::None | Payload::Hole { .. } => {}
            }
            if chunk.is_done() {
                self.open.remove(&cookie);
                return Ok(out);
            }
        }
    }
}

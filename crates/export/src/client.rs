//! A plain NBD client over any [`Conn`]: for tests, demonstrations and measurements. Requests may be sent ahead
//! ([`Client::submit`]); answers are collected by cookie in any order.

use std::collections::HashMap;
use std::io;

use bimetal_nbd::consts::{client_flag, cmd, cmd_flag, export_flag, info, opt, rep, reply_type, server_flag};
use bimetal_nbd::handshake::{encode_option, ExportNameReply, Greeting, OptionReplyHeader};
use bimetal_nbd::option::{decode_text, Info, InfoRequest, ListedExport, MetaContext, MetaRequest};
use bimetal_nbd::reply::{Chunk, Payload, ReplyHeader, StatusExtent, DATA_PREFIX, MAGIC_SIZE};
use bimetal_nbd::request::{HeaderStyle, Request, StatusFilter};
use bimetal_nbd::WireError;
use bimetal_volume::buf::{Buf, BufMut};

use crate::conn::{Conn, Part};

/// Why a client could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The stream failed or ended.
    #[error("the connection failed: {0}")]
    Stream(#[from] io::Error),
    /// The server broke the protocol.
    #[error("the server broke the protocol: {0}")]
    Wire(#[from] WireError),
    /// The server said something that does not belong here.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The server refused an option.
    #[error("the server refused option {option}: {words} (code {kind:#x})")]
    Refused {
        /// The option.
        option: u32,
        /// [`bimetal_nbd::consts::rep`].
        kind: u32,
        /// What the server says.
        words: String,
    },
    /// The server failed a request.
    #[error("the request failed with errno {errno}: {words}")]
    Failed {
        /// [`bimetal_nbd::consts::errno`].
        errno: u32,
        /// What the server says; may be empty.
        words: String,
    },
}

/// What a client asks for when it connects.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// Export; empty for the default one.
    pub export: String,
    /// Headers that are asked for; the server may know less.
    pub style: HeaderStyle,
    /// Metadata contexts to select.
    pub contexts: Vec<String>,
    /// Use the old `EXPORT_NAME` in place of `GO`.
    pub export_name: bool,
}

/// A finished answer.
#[derive(Debug, Default)]
pub struct Reply {
    /// The bytes of a read.
    pub data: Vec<u8>,
    /// Bytes of it that came as holes.
    pub hole_bytes: u64,
    /// Chunks that carried content.
    pub content_chunks: usize,
    /// What a BLOCK_STATUS said, by context number.
    pub status: HashMap<u32, Vec<StatusExtent>>,
    error: Option<(u32, String)>,
    /// Bytes of content received, to find gaps.
    received: u64,
}

struct Expected {
    command: u16,
    offset: u64,
    reply: Reply,
}

/// A connected client.
pub struct Client<C> {
    conn: C,
    buf: Option<BufMut>,
    start: usize,
    end: usize,
    style: HeaderStyle,
    /// Size of the export in bytes.
    pub size: u64,
    /// [`export_flag`].
    pub flags: u16,
    /// Name, description and block sizes that the server told.
    pub infos: Vec<String>,
    /// Smallest, preferred and largest block.
    pub block_sizes: Option<(u32, u32, u32)>,
    /// Selected contexts by name.
    pub contexts: HashMap<String, u32>,
    next_cookie: u64,
    waiting: HashMap<u64, Expected>,
    finished: HashMap<u64, Reply>,
}

const BUFFER: usize = 64 << 10;

impl<C: Conn> Client<C> {
    /// Exchanges greetings. Options can be sent next.
    pub async fn greet(conn: C) -> Result<Client<C>, ClientError> {
        let mut client = Client {
            conn,
            buf: Some(BufMut::new(BUFFER)),
            start: 0,
            end: 0,
            style: HeaderStyle::Simple,
            size: 0,
            flags: 0,
            infos: Vec::new(),
            block_sizes: None,
            contexts: HashMap::new(),
            next_cookie: 1,
            waiting: HashMap::new(),
            finished: HashMap::new(),
        };
        let greeting = Greeting::decode(&client.array().await?)?;
        let no_zeroes = greeting.flags & server_flag::NO_ZEROES != 0;
        let flags = client_flag::FIXED_NEWSTYLE | if no_zeroes { client_flag::NO_ZEROES } else { 0 };
        client.send(vec![Part::Bytes(flags.to_be_bytes().to_vec())]).await?;
        Ok(client)
    }

    /// Connects to an export.
    pub async fn connect(conn: C, options: &ClientOptions) -> Result<Client<C>, ClientError> {
        let mut client = Client::greet(conn).await?;
        client.ask_for_style(options.style).await?;
        if !options.contexts.is_empty() && client.style != HeaderStyle::Simple {
            let names: Vec<&str> = options.contexts.iter().map(String::as_str).collect();
            for (name, id) in client.meta(opt::SET_META_CONTEXT, &options.export, &names).await? {
                client.contexts.insert(name, id);
            }
        }
        if options.export_name {
            client.export_name(&options.export).await?;
        } else {
            client.info(opt::GO, &options.export).await?;
        }
        Ok(client)
    }

    /// The headers in force.
    pub fn style(&self) -> HeaderStyle {
        self.style
    }

    /// The transport.
    pub fn conn(&self) -> &C {
        &self.conn
    }

    async fn ask_for_style(&mut self, style: HeaderStyle) -> Result<(), ClientError> {
        if style == HeaderStyle::Extended && self.simple_option(opt::EXTENDED_HEADERS).await.is_ok() {
            self.style = HeaderStyle::Extended;
        } else if style >= HeaderStyle::Structured && self.simple_option(opt::STRUCTURED_REPLY).await.is_ok() {
            self.style = HeaderStyle::Structured;
        }
        Ok(())
    }

    /// Sends an option without data, which the server must acknowledge.
    pub async fn simple_option(&mut self, option: u32) -> Result<(), ClientError> {
        self.option(option, &[]).await.map(|_| ())
    }

    /// Sends an option, and collects the answers up to the final one.
    pub async fn option(&mut self, option: u32, data: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
        let mut out = Vec::new();
        encode_option(option, data, &mut out);
        self.send(vec![Part::Bytes(out)]).await?;
        let mut answers = Vec::new();
        loop {
            let header = OptionReplyHeader::decode(&self.array().await?)?;
            let data = self.vec(header.len as usize).await?;
            if header.option != option {
                return Err(ClientError::Protocol("an answer to an option that was not sent"));
            }
            if header.is_error() {
                let words = decode_text(&data).unwrap_or("").to_owned();
                return Err(ClientError::Refused { option, kind: header.kind, words });
            }
            if header.kind == rep::ACK {
                return Ok(answers);
            }
            if answers.len() > 100_000 {
                return Err(ClientError::Protocol("answers to an option without end"));
            }
            answers.push((header.kind, data));
        }
    }

    /// Names and descriptions of all exports.
    pub async fn list(&mut self) -> Result<Vec<(String, String)>, ClientError> {
        let answers = self.option(opt::LIST, &[]).await?;
        let mut exports = Vec::new();
        for (kind, data) in &answers {
            if *kind != rep::SERVER {
                return Err(ClientError::Protocol("a list of something else than exports"));
            }
            let listed = ListedExport::decode(data)?;
            exports.push((listed.name.to_owned(), listed.description.to_owned()));
        }
        Ok(exports)
    }

    /// `INFO` or `GO`.
    pub async fn info(&mut self, option: u32, export: &str) -> Result<(), ClientError> {
        let wanted = vec![info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
        let request = InfoRequest { name: export, wanted }.encode();
        let mut described = false;
        self.infos.clear();
        for (kind, data) in self.option(option, &request).await? {
            if kind != rep::INFO {
                return Err(ClientError::Protocol("an answer that is no information"));
            }
            match Info::decode(&data)? {
                Info::Export { size, flags } => {
                    (self.size, self.flags) = (size, flags);
                    described = true;
                }
                Info::Name(text) | Info::Description(text) => self.infos.push(text.to_owned()),
                Info::BlockSize { min, preferred, max } => self.block_sizes = Some((min, preferred, max)),
                Info::Other(_) => {}
            }
        }
        if !described || self.flags & export_flag::HAS_FLAGS == 0 {
            return Err(ClientError::Protocol("an export without size and flags"));
        }
        Ok(())
    }

    async fn export_name(&mut self, export: &str) -> Result<(), ClientError> {
        let mut out = Vec::new();
        encode_option(opt::EXPORT_NAME, export.as_bytes(), &mut out);
        self.send(vec![Part::Bytes(out)]).await?;
        let reply = ExportNameReply::decode(&self.array().await?)?;
        (self.size, self.flags) = (reply.size, reply.flags);
        Ok(())
    }

    /// `LIST_META_CONTEXT` or `SET_META_CONTEXT`: names and numbers.
    pub async fn meta(
        &mut self,
        option: u32,
        export: &str,
        queries: &[&str],
    ) -> Result<Vec<(String, u32)>, ClientError> {
        let request = MetaRequest { export, queries: queries.to_vec() }.encode();
        let mut contexts = Vec::new();
        for (kind, data) in self.option(option, &request).await? {
            if kind != rep::META_CONTEXT {
                return Err(ClientError::Protocol("an answer that is no metadata context"));
            }
            let context = MetaContext::decode(&data)?;
            contexts.push((context.name.to_owned(), context.id));
        }
        Ok(contexts)
    }

    /// Sends a request without waiting for its answer; gives its cookie. With extended headers a payload's flag and
    /// length are filled in.
    pub async fn submit(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        len: u64,
        payload: Option<Buf>,
    ) -> Result<u64, ClientError> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut request = Request { flags, command, cookie, offset, len };
        if let (Some(payload), HeaderStyle::Extended) = (&payload, self.style) {
            request.flags |= cmd_flag::PAYLOAD_LEN;
            request.len = payload.len() as u64;
        }
        let mut head = Vec::with_capacity(Request::EXTENDED_SIZE);
        request.encode(self.style, &mut head)?;
        let mut reply = Reply::default();
        if command == cmd::READ {
            reply.data = vec![0; len as usize];
        }
        self.waiting.insert(cookie, Expected { command, offset, reply });
        let mut parts = vec![Part::Bytes(head)];
        parts.extend(payload.map(Part::Buf));
        self.send(parts).await?;
        Ok(cookie)
    }

    /// The answer to a request.
    pub async fn collect(&mut self, cookie: u64) -> Result<Reply, ClientError> {
        loop {
            if let Some(reply) = self.finished.remove(&cookie) {
                return match reply.error {
                    Some((errno, words)) => Err(ClientError::Failed { errno, words }),
                    None => Ok(reply),
                };
            }
            self.receive_reply().await?;
        }
    }

    /// Reads a range.
    pub async fn read(&mut self, offset: u64, len: u64, flags: u16) -> Result<Reply, ClientError> {
        let cookie = self.submit(cmd::READ, flags, offset, len, None).await?;
        self.collect(cookie).await
    }

    /// Writes at an offset.
    pub async fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> Result<(), ClientError> {
        let payload = BufMut::copy_of(data).freeze();
        let cookie = self.submit(cmd::WRITE, flags, offset, data.len() as u64, Some(payload)).await?;
        self.collect(cookie).await.map(|_| ())
    }

    /// Any request without payload.
    pub async fn command(&mut self, command: u16, flags: u16, offset: u64, len: u64) -> Result<Reply, ClientError> {
        let cookie = self.submit(command, flags, offset, len, None).await?;
        self.collect(cookie).await
    }

    /// BLOCK_STATUS that names the contexts it wants; extended headers only.
    pub async fn filtered_status(&mut self, offset: u64, len: u64, ids: Vec<u32>) -> Result<Reply, ClientError> {
        let payload = BufMut::copy_of(&StatusFilter { len, ids }.encode()).freeze();
        let cookie = self.submit(cmd::BLOCK_STATUS, 0, offset, 0, Some(payload)).await?;
        self.collect(cookie).await
    }

    /// Says goodbye. The server closes when all is answered.
    pub async fn disconnect(&mut self) -> Result<(), ClientError> {
        let mut head = Vec::new();
        Request { flags: 0, command: cmd::DISC, cookie: 0, offset: 0, len: 0 }.encode(self.style, &mut head)?;
        self.send(vec![Part::Bytes(head)]).await
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, parts: Vec<Part>) -> Result<(), ClientError> {
        Ok(self.conn.send(parts).await.1?)
    }

    async fn receive_reply(&mut self) -> Result<(), ClientError> {
        self.fill(MAGIC_SIZE).await?;
        let magic = self.bytes().first_chunk().ok_or(WireError::Short { what: "reply" })?;
        let size = ReplyHeader::size(self.style, *magic)?;
        let head = self.vec(size).await?;
        match ReplyHeader::decode(self.style, &head)? {
            ReplyHeader::Simple { cookie, error } => self.simple_reply(cookie, error).await,
            ReplyHeader::Chunk(chunk) => self.chunk(chunk).await,
        }
    }

    async fn simple_reply(&mut self, cookie: u64, error: u32) -> Result<(), ClientError> {
        let mut expected = self.waiting.remove(&cookie).ok_or(ClientError::Protocol("an unknown cookie"))?;
        if error != 0 {
            expected.reply.error = Some((error, String::new()));
        } else if expected.command == cmd::READ {
            if self.style != HeaderStyle::Simple {
                return Err(ClientError::Protocol("a simple reply to a read"));
            }
            let len = expected.reply.data.len();
            expected.reply.data = self.vec(len).await?;
            expected.reply.content_chunks = 1;
        }
        self.finished.insert(cookie, expected.reply);
        Ok(())
    }

    async fn chunk(&mut self, chunk: Chunk) -> Result<(), ClientError> {
        let mut expected = self.waiting.remove(&chunk.cookie).ok_or(ClientError::Protocol("an unknown cookie"))?;
        if self.style == HeaderStyle::Extended && chunk.offset != expected.offset {
            return Err(ClientError::Protocol("a chunk with the offset of another request"));
        }
        let payload = self.vec(chunk.len as usize).await?;
        expected.take_chunk(&chunk, &payload)?;
        if !chunk.is_done() {
            self.waiting.insert(chunk.cookie, expected);
            return Ok(());
        }
        let reply = expected.reply;
        if reply.error.is_none() && expected.command == cmd::READ && reply.received != reply.data.len() as u64 {
            return Err(ClientError::Protocol("an answer that does not cover the range"));
        }
        self.finished.insert(chunk.cookie, reply);
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        self.buf.as_ref().map_or(&[], |b| &b[self.start..self.end])
    }

    /// Waits until `n` bytes are there, at most [`BUFFER`].
    async fn fill(&mut self, n: usize) -> Result<(), ClientError> {
        while self.end - self.start < n {
            let lost = || io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection");
            let mut buf = self.buf.take().ok_or_else(lost)?;
            buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let (buf, result) = self.conn.recv(buf, self.end..BUFFER).await;
            self.buf = Some(buf);
            match result? {
                0 => return Err(lost().into()),
                got => self.end += got.min(BUFFER - self.end),
            }
        }
        Ok(())
    }

    async fn array<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        self.fill(N).await?;
        let array = *self.bytes().first_chunk().ok_or(WireError::Short { what: "message" })?;
        self.start += N;
        Ok(array)
    }

    async fn vec(&mut self, mut n: usize) -> Result<Vec<u8>, ClientError> {
        let mut out = Vec::with_capacity(n.min(BUFFER));
        while n > 0 {
            self.fill(1).await?;
            let take = n.min(self.end - self.start);
            out.extend_from_slice(&self.bytes()[..take]);
            self.start += take;
            n -= take;
        }
        Ok(out)
    }
}

impl Expected {
    fn take_chunk(&mut self, chunk: &Chunk, payload: &[u8]) -> Result<(), ClientError> {
        let reply = &mut self.reply;
        if chunk.kind == reply_type::OFFSET_DATA {
            let prefix = payload.first_chunk::<DATA_PREFIX>().ok_or(WireError::Short { what: "data chunk" })?;
            let data = &payload[DATA_PREFIX..];
            place(self.offset, u64::from_be_bytes(*prefix), data.len() as u64, reply)?.copy_from_slice(data);
            return Ok(());
        }
        match Payload::decode(chunk, payload)? {
            Payload::None => {}
            Payload::Hole { offset, len } => {
                place(self.offset, offset, len.into(), reply)?.fill(0);
                reply.hole_bytes += u64::from(len);
            }
            Payload::Status { id, extents } => {
                if reply.status.insert(id, extents).is_some() {
                    return Err(ClientError::Protocol("a context was described twice"));
                }
            }
            Payload::Error { error, message, .. } => reply.error = Some((error, message.to_owned())),
        }
        Ok(())
    }
}

/// Where content at `offset` goes in the answer to a read from `from` on.
fn place(from: u64, offset: u64, len: u64, reply: &mut Reply) -> Result<&mut [u8], ClientError> {
    reply.received += len;
    reply.content_chunks += 1;
    let outside = ClientError::Protocol("content outside of the range asked for");
    let Some(start) = offset.checked_sub(from) else { return Err(outside) };
    match start.checked_add(len) {
        Some(end) if len > 0 && end <= reply.data.len() as u64 => Ok(&mut reply.data[start as usize..end as usize]),
        _ => Err(outside),
    }
}

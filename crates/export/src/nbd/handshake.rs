//! Options, until the client has chosen an export.

use std::io;
use std::rc::Rc;

use bimetal_nbd::consts::{client_flag, export_flag, info, opt, rep, server_flag, MAX_PAYLOAD};
use bimetal_nbd::handshake::{encode_option_reply, ExportNameReply, Greeting, OptionHeader};
use bimetal_nbd::option::{decode_text, Info, InfoRequest, ListedExport, MetaContext, MetaRequest};
use bimetal_nbd::request::HeaderStyle;
use bimetal_volume::backend::Backend;
use bimetal_volume::error::Error;

use crate::conn::{Conn, Part};
use crate::runtime::Runtime;

use super::contexts::Context;
use super::peer::Peer;
use super::receiver::Receiver;
use super::validate::Terms;
use super::{Export, Shared, PREFERRED_BLOCK};

/// An option of this size is still skipped to be answered; a client that announces more is closed.
const MAX_SKIPPED: u32 = 1 << 20;

/// What the client has chosen.
pub(super) struct Chosen<B, C> {
    pub(super) export: Rc<Export<B>>,
    pub(super) terms: Terms,
    pub(super) receiver: Receiver<C>,
}

struct Negotiation<'a, R, B, C> {
    shared: &'a Rc<Shared<R, B>>,
    conn: &'a C,
    receiver: Receiver<C>,
    style: HeaderStyle,
    no_zeroes: bool,
    /// Contexts selected for an export.
    contexts: Option<(Rc<Export<B>>, Vec<Context>)>,
    out: Vec<u8>,
}

/// What follows after an option.
enum Next<B> {
    Option,
    Close,
    Begin(Rc<Export<B>>),
}

/// Negotiates until the client has chosen an export. `None`: the connection is to be closed.
pub(super) async fn negotiate<R: Runtime, B: Backend, C: Conn>(
    shared: &Rc<Shared<R, B>>,
    conn: &C,
    peer: &Peer,
) -> Option<Chosen<B, C>> {
    let mut n = Negotiation {
        shared,
        conn,
        receiver: Receiver::new(conn.clone()),
        style: HeaderStyle::Simple,
        no_zeroes: false,
        contexts: None,
        out: Vec::new(),
    };
    let export = n.run(peer).await.ok().flatten()?;
    let terms = n.terms(&export);
    Some(Chosen { export, terms, receiver: n.receiver })
}

impl<R: Runtime, B: Backend, C: Conn> Negotiation<'_, R, B, C> {
    async fn run(&mut self, peer: &Peer) -> io::Result<Option<Rc<Export<B>>>> {
        let greeting = Greeting { flags: server_flag::FIXED_NEWSTYLE | server_flag::NO_ZEROES };
        self.out.extend_from_slice(&greeting.encode());
        self.send().await?;
        self.receiver.fill(4).await?;
        let flags = self.receiver.bytes().first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
        self.receiver.consume(4);
        if flags & !(client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES) != 0 {
            return Ok(None);
        }
        self.no_zeroes = flags & client_flag::NO_ZEROES != 0;
        loop {
            match self.one_option().await? {
                Next::Option => self.send().await?,
                Next::Close => {
                    self.send().await?;
                    return Ok(None);
                }
                Next::Begin(export) => {
                    // From here on it is a client of the export: whoever renames or removes that must find it.
                    *peer.export.borrow_mut() = Some(export.name.clone());
                    self.send().await?;
                    return Ok(Some(export));
                }
            }
        }
    }

    async fn send(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.conn.send(vec![Part::Bytes(std::mem::take(&mut self.out))]).await.1
    }

    async fn one_option(&mut self) -> io::Result<Next<B>> {
        self.receiver.fill(OptionHeader::SIZE).await?;
        let header = self.receiver.bytes().first_chunk().map(OptionHeader::decode);
        let Some(Ok(header)) = header else { return Ok(Next::Close) };
        self.receiver.consume(OptionHeader::SIZE);
        if !header.is_small() {
            if header.len > MAX_SKIPPED || header.option == opt::EXPORT_NAME {
                return Ok(Next::Close);
            }
            self.receiver.skip(header.len.into()).await?;
            self.reply(header.option, rep::ERR_TOO_BIG, b"the option is too long");
            return Ok(Next::Option);
        }
        let len = header.len as usize;
        self.receiver.fill(len).await?;
        let data = self.receiver.bytes()[..len].to_vec();
        self.receiver.consume(len);
        if self.shared.stopping.get() {
            self.reply(header.option, rep::ERR_SHUTDOWN, b"the server is stopping");
            return Ok(Next::Close);
        }
        Ok(self.answer(header.option, &data))
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        encode_option_reply(option, kind, data, &mut self.out);
    }

    fn ack(&mut self, option: u32) -> Next<B> {
        self.reply(option, rep::ACK, &[]);
        Next::Option
    }

    fn refuse(&mut self, option: u32, kind: u32, why: &str) -> Next<B> {
        self.reply(option, kind, why.as_bytes());
        Next::Option
    }

    fn answer(&mut self, option: u32, data: &[u8]) -> Next<B> {
        let bare = matches!(option, opt::LIST | opt::STRUCTURED_REPLY | opt::EXTENDED_HEADERS | opt::STARTTLS);
        if bare && !data.is_empty() {
            return self.refuse(option, rep::ERR_INVALID, "the option takes no data");
        }
        match option {
            opt::EXPORT_NAME => self.export_name(data),
            opt::ABORT => {
                self.reply(option, rep::ACK, &[]);
                Next::Close
            }
            opt::LIST => self.list(),
            opt::INFO | opt::GO => self.info(option, data),
            opt::STRUCTURED_REPLY if self.style == HeaderStyle::Extended => {
                self.refuse(option, rep::ERR_EXT_HEADER_REQD, "extended headers are in force")
            }
            opt::STRUCTURED_REPLY => {
                self.style = HeaderStyle::Structured;
                self.ack(option)
            }
            opt::EXTENDED_HEADERS if self.style == HeaderStyle::Extended => {
                self.refuse(option, rep::ERR_INVALID, "extended headers are in force already")
            }
            opt::EXTENDED_HEADERS => {
                self.style = HeaderStyle::Extended;
                self.ack(option)
            }
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => self.meta(option, data),
            opt::STARTTLS => self.refuse(option, rep::ERR_POLICY, "this server has no TLS"),
            _ => self.refuse(option, rep::ERR_UNSUP, "the option is not known"),
        }
    }

    /// An export by name; the empty name stands for the only one.
    fn find(&self, name: &str) -> Option<Rc<Export<B>>> {
        let exports = self.shared.exports.borrow();
        match &exports[..] {
            [only] if name.is_empty() => Some(only.clone()),
            all => all.iter().find(|e| e.name == name).cloned(),
        }
    }

    fn terms(&self, export: &Rc<Export<B>>) -> Terms {
        let Export { backend, read_only, .. } = &**export;
        let contexts = match &self.contexts {
            Some((of, contexts)) if Rc::ptr_eq(of, export) => contexts.clone(),
            _ => Vec::new(),
        };
        Terms { size: backend.size(), read_only: *read_only || backend.read_only(), style: self.style, contexts }
    }

    fn export_name(&mut self, data: &[u8]) -> Next<B> {
        // This option cannot say no but by closing, and has no room for extended headers.
        let found = decode_text(data).ok().and_then(|name| self.find(name));
        match found {
            Some(export) if self.style != HeaderStyle::Extended && !export.backend.is_locked() => {
                let terms = self.terms(&export);
                let reply = ExportNameReply { size: terms.size, flags: abilities(&terms) };
                reply.encode(!self.no_zeroes, &mut self.out);
                Next::Begin(export)
            }
            _ => Next::Close,
        }
    }

    fn list(&mut self) -> Next<B> {
        let exports = self.shared.exports.borrow().clone();
        for export in exports {
            let listed = ListedExport { name: &export.name, description: &export.description };
            self.reply(opt::LIST, rep::SERVER, &listed.encode());
        }
        self.ack(opt::LIST)
    }

    fn info(&mut self, option: u32, data: &[u8]) -> Next<B> {
        let request = match InfoRequest::decode(data) {
            Ok(request) => request,
            Err(e) => return self.refuse(option, rep::ERR_INVALID, &e.to_string()),
        };
        let Some(export) = self.find(request.name) else {
            return self.refuse(option, rep::ERR_UNKNOWN, &self.unknown(request.name));
        };
        if export.backend.is_locked() {
            // Its first request would fail with a number; here there is room for words.
            let why = format!("export {} is locked: {}", export.name, Error::Locked);
            return self.refuse(option, rep::ERR_POLICY, &why);
        }
        let terms = self.terms(&export);
        let Export { name, description, .. } = &*export;
        let mut told = vec![
            Info::Export { size: terms.size, flags: abilities(&terms) },
            Info::BlockSize { min: 1, preferred: PREFERRED_BLOCK, max: MAX_PAYLOAD },
        ];
        if request.wanted.contains(&info::NAME) {
            told.push(Info::Name(name));
        }
        if request.wanted.contains(&info::DESCRIPTION) && !description.is_empty() {
            told.push(Info::Description(description));
        }
        for one in told {
            self.reply(option, rep::INFO, &one.encode());
        }
        self.reply(option, rep::ACK, &[]);
        if option == opt::GO {
            Next::Begin(export)
        } else {
            Next::Option
        }
    }

    fn unknown(&self, name: &str) -> String {
        if name.is_empty() {
            let exports = self.shared.exports.borrow();
            let names: Vec<&str> = exports.iter().map(|e| e.name.as_str()).collect();
            return format!("name one of the exports: {}", names.join(", "));
        }
        format!("there is no export named {name}")
    }

    fn meta(&mut self, option: u32, data: &[u8]) -> Next<B> {
        let set = option == opt::SET_META_CONTEXT;
        if set {
            // Whatever comes now replaces what was selected, also when it fails.
            self.contexts = None;
        }
        if self.style == HeaderStyle::Simple {
            return self.refuse(option, rep::ERR_INVALID, "structured replies or extended headers must come first");
        }
        let request = match MetaRequest::decode(data) {
            Ok(request) => request,
            Err(e) => return self.refuse(option, rep::ERR_INVALID, &e.to_string()),
        };
        let Some(export) = self.find(request.export) else {
            return self.refuse(option, rep::ERR_UNKNOWN, &self.unknown(request.export));
        };
        let all = !set && request.queries.is_empty();
        let wanted = |c: &Context, q: &str| if set { c.is_selected_by(q) } else { c.is_listed_by(q) };
        let matches = |c: &Context| all || request.queries.iter().any(|q| wanted(c, q));
        let found: Vec<Context> = Context::ALL.into_iter().filter(matches).collect();
        for context in &found {
            let id = if set { context.id() } else { 0 };
            self.reply(option, rep::META_CONTEXT, &MetaContext { id, name: context.name() }.encode());
        }
        if set {
            self.contexts = Some((export, found));
        }
        self.ack(option)
    }
}

/// Transmission flags of an export under these terms.
fn abilities(terms: &Terms) -> u16 {
    use export_flag as f;
    let mut flags = f::HAS_FLAGS | f::SEND_FLUSH | f::SEND_FUA | f::CAN_MULTI_CONN | f::SEND_CACHE;
    flags |= if terms.read_only { f::READ_ONLY } else { f::SEND_TRIM | f::SEND_WRITE_ZEROES | f::SEND_FAST_ZERO };
    if terms.style >= HeaderStyle::Structured {
        flags |= f::SEND_DF;
    }
    if terms.style == HeaderStyle::Extended && !terms.contexts.is_empty() {
        flags |= f::BLOCK_STATUS_PAYLOAD;
    }
    flags
}

//! From the greeting to the chosen export.

use std::io;

use bimetal_nbd::consts::{client_flag, export_flag, info, opt, rep, server_flag};
use bimetal_nbd::handshake::{encode_option, Greeting, OptionReplyHeader};
use bimetal_nbd::option::{decode_text, Info, InfoRequest};
use bimetal_nbd::request::HeaderStyle;
use bimetal_nbd::WireError;

use super::input::Input;
use crate::net::{Part, Stream};

/// Most answers to one option.
const MAX_ANSWERS: usize = 64;

/// What was agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Export {
    pub(super) size: u64,
    /// [`export_flag`].
    pub(super) flags: u16,
    /// Smallest request, in bytes.
    pub(super) min_block: u32,
    /// Largest payload, in bytes.
    pub(super) max_payload: u32,
    pub(super) style: HeaderStyle,
}

impl Export {
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Why no export could be had, in words.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// It is certain that nobody listens there.
    #[error("the connection failed: {0}")]
    Nobody(io::Error),
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the server does not speak fixed newstyle NBD: {0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Refused(String),
}

impl HandshakeError {
    /// Why there is no connection. Only where nobody listens is there no server: one that cannot be reached, or that does not let us in,
    /// may have all that it ever had.
    pub(super) fn of_connecting(error: io::Error) -> HandshakeError {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ECONNREFUSED) => HandshakeError::Nobody(error),
            _ => HandshakeError::Io(error),
        }
    }
}

/// Chooses the export named `name`.
pub(super) async fn negotiate(stream: &Stream, input: &mut Input, name: &str) -> Result<Export, HandshakeError> {
    let greeting = Greeting::decode(&input.array().await?)?;
    let mut flags = client_flag::FIXED_NEWSTYLE;
    if greeting.flags & server_flag::NO_ZEROES != 0 {
        flags |= client_flag::NO_ZEROES;
    }
    send(stream, flags.to_be_bytes().to_vec()).await?;

    send_option(stream, opt::STRUCTURED_REPLY, &[]).await?;
    let (kind, _) = answer(input, opt::STRUCTURED_REPLY).await?;
    let style = if kind == rep::ACK { HeaderStyle::Structured } else { HeaderStyle::Simple };

    let request = InfoRequest { name, wanted: vec![info::BLOCK_SIZE] };
    send_option(stream, opt::GO, &request.encode()).await?;
    let mut export = Export { size: 0, flags: 0, min_block: 1, max_payload: 32 << 20, style };
    for _ in 0..MAX_ANSWERS {
        let (kind, data) = answer(input, opt::GO).await?;
        match kind {
            rep::ACK if export.flags & export_flag::HAS_FLAGS != 0 => return Ok(export),
            rep::ACK => return Err(HandshakeError::Refused("the server did not tell the size of the export".into())),
            rep::INFO => match Info::decode(&data)? {
                Info::Export { size, flags } => (export.size, export.flags) = (size, flags),
                Info::BlockSize { min, max, .. } => {
                    (export.min_block, export.max_payload) = (min.max(1), max.min(32 << 20));
                }
                _ => {}
            },
            error => return Err(refusal(error, name, &data)),
        }
    }
    Err(HandshakeError::Refused("the server does not come to an end with its answers".into()))
}

async fn send(stream: &Stream, bytes: Vec<u8>) -> io::Result<()> {
    stream.send(vec![Part::Bytes(bytes)]).await.1
}

async fn send_option(stream: &Stream, option: u32, data: &[u8]) -> io::Result<()> {
    let mut out = Vec::new();
    encode_option(option, data, &mut out);
    send(stream, out).await
}

/// Kind and data of the next answer, which must be to `option`.
async fn answer(input: &mut Input, option: u32) -> Result<(u32, Vec<u8>), HandshakeError> {
    let header = OptionReplyHeader::decode(&input.array().await?)?;
    if header.option != option {
        return Err(HandshakeError::Refused("the server answers a question that was not asked".into()));
    }
    let data = input.take_vec(header.len as usize).await?;
    Ok((header.kind, data))
}

fn refusal(kind: u32, name: &str, data: &[u8]) -> HandshakeError {
    let said = match decode_text(data) {
        Ok(text) if !text.is_empty() => format!(" (the server says: {text})"),
        _ => String::new(),
    };
    HandshakeError::Refused(match kind {
        rep::ERR_UNKNOWN => format!("there is no export named '{name}' on this server{said}"),
        rep::ERR_TLS_REQD => format!("the server wants TLS, which is not supported here; use a tunnel{said}"),
        rep::ERR_UNSUP => format!("the server is too old: it does not know NBD_OPT_GO{said}"),
        rep::ERR_POLICY => format!("the server does not allow it{said}"),
        rep::ERR_SHUTDOWN => format!("the server is shutting down{said}"),
        kind => format!("the server refuses with error {:#x}{said}", kind & !rep::ERR_FLAG),
    })
}

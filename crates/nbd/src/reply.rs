//! Replies of the transmission phase.

use crate::consts::{
    reply_flag, reply_type, EXTENDED_REPLY_MAGIC, MAX_EXTENTS, MAX_PAYLOAD, MAX_STRING, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC,
};
use crate::reader::Reader;
use crate::request::HeaderStyle;
use crate::WireError;

/// The head of a reply, of any of the three kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A whole answer; after a successful read the bytes asked for follow.
    Simple {
        /// The request answered.
        cookie: u64,
        /// Zero, or [`crate::consts::errno`].
        error: u32,
    },
    /// One chunk of an answer; `len` bytes of payload follow.
    Chunk(Chunk),
}

/// The head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// [`reply_flag`].
    pub flags: u16,
    /// [`reply_type`].
    pub kind: u16,
    /// The request answered.
    pub cookie: u64,
    /// The offset of the request; on the wire only with extended headers, else zero.
    pub offset: u64,
    /// Bytes of payload.
    pub len: u32,
}

/// Bytes of a simple reply.
pub const SIMPLE_SIZE: usize = 16;
/// Bytes of a structured chunk's head.
pub const STRUCTURED_SIZE: usize = 20;
/// Bytes of an extended chunk's head.
pub const EXTENDED_SIZE: usize = 32;
/// Bytes of every reply that tell its kind.
pub const MAGIC_SIZE: usize = 4;
/// Largest payload of a chunk: data with its offset, or a full list of extents.
pub const MAX_CHUNK: u32 =
    if MAX_PAYLOAD + 8 > 8 + 16 * MAX_EXTENTS as u32 { MAX_PAYLOAD + 8 } else { 8 + 16 * MAX_EXTENTS as u32 };

impl ReplyHeader {
    /// How many bytes the head has that begins with `magic`; an error if that kind was not agreed on.
    pub fn size(style: HeaderStyle, magic: [u8; MAGIC_SIZE]) -> Result<usize, WireError> {
        match (u32::from_be_bytes(magic), style) {
            (SIMPLE_REPLY_MAGIC, HeaderStyle::Simple | HeaderStyle::Structured) => Ok(SIMPLE_SIZE),
            (STRUCTURED_REPLY_MAGIC, HeaderStyle::Structured) => Ok(STRUCTURED_SIZE),
            (EXTENDED_REPLY_MAGIC, HeaderStyle::Extended) => Ok(EXTENDED_SIZE),
            (found, _) => Err(WireError::Magic { what: "reply", found: found.into() }),
        }
    }

    /// From the first bytes of a reply, of which there must be [`ReplyHeader::size`].
    pub fn decode(style: HeaderStyle, bytes: &[u8]) -> Result<ReplyHeader, WireError> {
        let magic = bytes.first_chunk().ok_or(WireError::Short { what: "reply" })?;
        let size = ReplyHeader::size(style, *magic)?;
        let mut r = Reader::new("reply", &bytes[MAGIC_SIZE..]);
        if size == SIMPLE_SIZE {
            let error = r.u32()?;
            return Ok(ReplyHeader::Simple { cookie: r.u64()?, error });
        }
        let (flags, kind, cookie) = (r.u16()?, r.u16()?, r.u64()?);
        let (offset, len) = match size {
            EXTENDED_SIZE => (r.u64()?, r.u64()?),
            _ => (0, r.u32()?.into()),
        };
        if len > MAX_CHUNK.into() {
            return Err(WireError::TooLong { what: "reply chunk", len, max: MAX_CHUNK.into() });
        }
        Ok(ReplyHeader::Chunk(Chunk { flags, kind, cookie, offset, len: len as u32 }))
    }
}

/// Appends a simple reply to `out`.
pub fn encode_simple(cookie: u64, error: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
}

impl Chunk {
    /// Whether it is the last one of its answer.
    pub fn is_done(&self) -> bool {
        self.flags & reply_flag::DONE != 0
    }

    /// Whether it tells of an error.
    pub fn is_error(&self) -> bool {
        self.kind & reply_type::ERROR_FLAG != 0
    }

    /// Appends the head to `out`, in the extended form if `extended`, else in the structured one.
    pub fn encode(&self, extended: bool, out: &mut Vec<u8>) {
        let magic = if extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
        out.extend_from_slice(&magic.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        if extended {
            out.extend_from_slice(&self.offset.to_be_bytes());
            out.extend_from_slice(&u64::from(self.len).to_be_bytes());
        } else {
            out.extend_from_slice(&self.len.to_be_bytes());
        }
    }
}

/// The payload of a chunk. Data is left out: it may be long, and is best received in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// So many zero bytes at an offset.
    Hole {
        /// First byte, from the start of the export.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Extents of a context.
    Status {
        /// The context.
        id: u32,
        /// Its extents, in order; at least one.
        extents: Vec<StatusExtent>,
    },
    /// The request failed.
    Error {
        /// [`crate::consts::errno`].
        error: u32,
        /// For people; may be empty.
        message: &'a str,
        /// Where it failed, if the server knows.
        offset: Option<u64>,
    },
}

/// One extent of a block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusExtent {
    /// Bytes.
    pub len: u64,
    /// What the context says of them.
    pub status: u64,
}

/// Bytes of the offset in front of the data in an `OFFSET_DATA` chunk.
pub const DATA_PREFIX: usize = 8;

impl<'a> Payload<'a> {
    /// From the payload of `chunk`, which is not one of `OFFSET_DATA`.
    pub fn decode(chunk: &Chunk, bytes: &'a [u8]) -> Result<Payload<'a>, WireError> {
        let mut r = Reader::new("reply chunk", bytes);
        let payload = match chunk.kind {
            reply_type::NONE => Payload::None,
            reply_type::OFFSET_HOLE => Payload::Hole { offset: r.u64()?, len: r.u32()? },
            reply_type::BLOCK_STATUS => decode_status(&mut r, 8)?,
            reply_type::BLOCK_STATUS_EXT => decode_status(&mut r, 16)?,
            kind if kind & reply_type::ERROR_FLAG != 0 => return decode_error(kind, &mut r),
            kind => return Err(WireError::Value { what: "type of reply chunk", found: kind.into() }),
        };
        r.end()?;
        Ok(payload)
    }
}

fn decode_status<'a>(r: &mut Reader<'a>, size: usize) -> Result<Payload<'a>, WireError> {
    let id = r.u32()?;
    let told = if size == 16 { Some(r.u32()? as usize) } else { None };
    let count = r.rest().len() / size;
    if count == 0 || count > MAX_EXTENTS || told.is_some_and(|told| told != count) {
        return Err(WireError::Value { what: "number of extents", found: told.unwrap_or(count) as u64 });
    }
    let mut extents = Vec::with_capacity(count);
    for _ in 0..count {
        let (len, status) = match size {
            16 => (r.u64()?, r.u64()?),
            _ => (r.u32()?.into(), r.u32()?.into()),
        };
        if len == 0 {
            return Err(WireError::Value { what: "length of an extent", found: 0 });
        }
        extents.push(StatusExtent { len, status });
    }
    Ok(Payload::Status { id, extents })
}

fn decode_error<'a>(kind: u16, r: &mut Reader<'a>) -> Result<Payload<'a>, WireError> {
    let (error, len) = (r.u32()?, r.u16()?);
    if error == 0 {
        return Err(WireError::Value { what: "errno of an error chunk", found: 0 });
    }
    let message = r.text(len.into())?;
    let offset = if kind == reply_type::ERROR_OFFSET { Some(r.u64()?) } else { None };
    // Other kinds of errors may end with fields that we do not know.
    if kind == reply_type::ERROR || kind == reply_type::ERROR_OFFSET {
        r.end()?;
    }
    Ok(Payload::Error { error, message, offset })
}

/// Appends the payload of an `ERROR` chunk to `out`, and says how long it is. Long messages are cut.
pub fn encode_error(error: u32, message: &str, out: &mut Vec<u8>) -> u32 {
    let mut end = message.len().min(MAX_STRING);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&(end as u16).to_be_bytes());
    out.extend_from_slice(&message.as_bytes()[..end]);
    6 + end as u32
}

/// Bytes of the payload of a block status chunk with so many extents.
pub fn status_size(extended: bool, extents: usize) -> u32 {
    let bytes = if extended { 8 + 16 * extents } else { 4 + 8 * extents };
    bytes as u32
}

/// Appends the payload of a block status chunk to `out`. With compact headers the lengths are cut to 32 bits, at a
/// multiple of 4096; the caller ends the list with an extent that is.
pub fn encode_status(extended: bool, id: u32, extents: &[StatusExtent], out: &mut Vec<u8>) {
    out.extend_from_slice(&id.to_be_bytes());
    if extended {
        out.extend_from_slice(&(extents.len() as u32).to_be_bytes());
    }
    for extent in extents {
        if extended {
            out.extend_from_slice(&extent.len.to_be_bytes());
            out.extend_from_slice(&extent.status.to_be_bytes());
        } else {
            out.extend_from_slice(&extent.short_len().to_be_bytes());
            out.extend_from_slice(&(extent.status as u32).to_be_bytes());
        }
    }
}

impl StatusExtent {
    /// The length as a compact header holds it.
    pub fn short_len(&self) -> u32 {
        u32::try_from(self.len).unwrap_or(!4095)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: u16, len: u32) -> Chunk {
        Chunk { flags: reply_flag::DONE, kind, cookie: 7, offset: 0, len }
    }

    #[test]
    fn heads_survive_a_round_trip() {
        let mut out = Vec::new();
        encode_simple(5, 28, &mut out);
        assert_eq!(out.len(), SIMPLE_SIZE);
        let expected = ReplyHeader::Simple { cookie: 5, error: 28 };
        assert_eq!(ReplyHeader::decode(HeaderStyle::Structured, &out), Ok(expected));
        assert!(ReplyHeader::decode(HeaderStyle::Extended, &out).is_err(), "not agreed on");
        for (extended, style, offset) in [(false, HeaderStyle::Structured, 0), (true, HeaderStyle::Extended, 1 << 40)] {
            let head = Chunk { offset, ..chunk(reply_type::OFFSET_DATA, 4104) };
            let mut out = Vec::new();
            head.encode(extended, &mut out);
            assert_eq!(ReplyHeader::decode(style, &out), Ok(ReplyHeader::Chunk(head)));
            assert!(ReplyHeader::decode(HeaderStyle::Simple, &out).is_err());
            assert!(ReplyHeader::decode(style, &out[..out.len() - 1]).is_err());
        }
    }

    #[test]
    fn a_long_chunk_is_refused() {
        let mut out = Vec::new();
        chunk(reply_type::OFFSET_DATA, MAX_CHUNK + 1).encode(true, &mut out);
        assert!(matches!(ReplyHeader::decode(HeaderStyle::Extended, &out), Err(WireError::TooLong { .. })));
    }

    #[test]
    fn status_survives_a_round_trip() {
        let extents = vec![StatusExtent { len: 4096, status: 3 }, StatusExtent { len: 8192, status: 0 }];
        for (extended, kind) in [(false, reply_type::BLOCK_STATUS), (true, reply_type::BLOCK_STATUS_EXT)] {
            let mut out = Vec::new();
            encode_status(extended, 4, &extents, &mut out);
            assert_eq!(out.len() as u32, status_size(extended, 2));
            let head = chunk(kind, out.len() as u32);
            assert_eq!(Payload::decode(&head, &out), Ok(Payload::Status { id: 4, extents: extents.clone() }));
            out.push(0);
            assert!(Payload::decode(&head, &out).is_err(), "a byte too many");
        }
    }

    #[test]
    fn errors_carry_their_words() {
        let mut out = Vec::new();
        let len = encode_error(5, &"ü".repeat(4000), &mut out);
        assert_eq!(len as usize, out.len());
        let Ok(Payload::Error { error: 5, message, offset: None }) =
            Payload::decode(&chunk(reply_type::ERROR, len), &out)
        else {
            panic!("not an error chunk");
        };
        assert_eq!(message.len(), MAX_STRING);
        out[..4].fill(0);
        assert!(Payload::decode(&chunk(reply_type::ERROR, len), &out).is_err(), "an error without errno");
    }
}

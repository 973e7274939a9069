//! Requests of the transmission phase.

use crate::consts::{cmd, cmd_flag, EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC};
use crate::reader::Reader;
use crate::WireError;

/// Which headers the two sides agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeaderStyle {
    /// 28-byte requests, simple replies only.
    #[default]
    Simple,
    /// 28-byte requests; reads are answered by chunks, all else by chunks or simple replies.
    Structured,
    /// 32-byte requests with 64-bit lengths; only extended chunks in reply.
    Extended,
}

impl HeaderStyle {
    /// Bytes of a request header.
    pub const fn request_size(self) -> usize {
        match self {
            HeaderStyle::Simple | HeaderStyle::Structured => Request::COMPACT_SIZE,
            HeaderStyle::Extended => Request::EXTENDED_SIZE,
        }
    }
}

/// The head of a request. A payload follows if [`Request::payload_len`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`crate::consts::cmd_flag`].
    pub flags: u16,
    /// [`crate::consts::cmd`].
    pub command: u16,
    /// The client's name for the request, repeated in the answer.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range, or of the payload.
    pub len: u64,
}

impl Request {
    /// Bytes of a compact request.
    pub const COMPACT_SIZE: usize = 28;
    /// Bytes of an extended request.
    pub const EXTENDED_SIZE: usize = 32;

    /// Appends the header to `out`. A compact header holds 32 bits of length; more is an error of the caller.
    pub fn encode(&self, style: HeaderStyle, out: &mut Vec<u8>) -> Result<(), WireError> {
        let extended = style == HeaderStyle::Extended;
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        let short = u32::try_from(self.len);
        if let (false, Err(_)) = (extended, short) {
            return Err(WireError::TooLong { what: "compact request", len: self.len, max: u32::MAX.into() });
        }
        out.extend_from_slice(&magic.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.command.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        match (extended, short) {
            (false, Ok(len)) => out.extend_from_slice(&len.to_be_bytes()),
            _ => out.extend_from_slice(&self.len.to_be_bytes()),
        }
        Ok(())
    }

    /// From the first [`HeaderStyle::request_size`] bytes of `bytes`.
    pub fn decode(style: HeaderStyle, bytes: &[u8]) -> Result<Request, WireError> {
        let mut r = Reader::new("request", bytes);
        let extended = style == HeaderStyle::Extended;
        let magic = r.u32()?;
        if magic != if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC } {
            return Err(WireError::Magic { what: "request", found: magic.into() });
        }
        let (flags, command, cookie, offset) = (r.u16()?, r.u16()?, r.u64()?, r.u64()?);
        let len = if extended { r.u64()? } else { r.u32()?.into() };
        Ok(Request { flags, command, cookie, offset, len })
    }

    /// Bytes of payload that follow the header.
    pub fn payload_len(&self, style: HeaderStyle) -> u64 {
        let carries = match style {
            HeaderStyle::Extended => self.flags & cmd_flag::PAYLOAD_LEN != 0,
            HeaderStyle::Simple | HeaderStyle::Structured => self.command == cmd::WRITE,
        };
        if carries {
            self.len
        } else {
            0
        }
    }
}

/// Payload of `BLOCK_STATUS` with extended headers: only these contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFilter {
    /// Bytes of the range.
    pub len: u64,
    /// Wanted contexts.
    pub ids: Vec<u32>,
}

impl StatusFilter {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.len.to_be_bytes().to_vec();
        for id in &self.ids {
            out.extend_from_slice(&id.to_be_bytes());
        }
        out
    }

    /// From the payload.
    pub fn decode(bytes: &[u8]) -> Result<StatusFilter, WireError> {
        let mut r = Reader::new("block status filter", bytes);
        let len = r.u64()?;
        let count = r.rest().len() / 4;
        if count > crate::consts::MAX_ITEMS {
            let max = crate::consts::MAX_ITEMS as u64;
            return Err(WireError::TooLong { what: "block status filter", len: count as u64, max });
        }
        let ids = (0..count).map(|_| r.u32()).collect::<Result<Vec<_>, _>>()?;
        r.end()?;
        Ok(StatusFilter { len, ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_survive_a_round_trip() {
        let request = Request { flags: 1, command: cmd::WRITE, cookie: u64::MAX - 1, offset: 1 << 50, len: 4096 };
        for style in [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended] {
            let mut out = Vec::new();
            request.encode(style, &mut out).expect("fits");
            assert_eq!(out.len(), style.request_size());
            assert_eq!(Request::decode(style, &out), Ok(request));
            assert_eq!(Request::decode(style, &out[..out.len() - 1]), Err(WireError::Short { what: "request" }));
        }
    }

    #[test]
    fn a_compact_header_has_no_room_for_64_bits() {
        let request = Request { flags: 0, command: cmd::TRIM, cookie: 1, offset: 0, len: 1 << 32 };
        assert!(matches!(request.encode(HeaderStyle::Simple, &mut Vec::new()), Err(WireError::TooLong { .. })));
        let mut out = Vec::new();
        request.encode(HeaderStyle::Extended, &mut out).expect("fits");
        assert_eq!(Request::decode(HeaderStyle::Extended, &out), Ok(request));
        assert!(matches!(Request::decode(HeaderStyle::Simple, &out), Err(WireError::Magic { .. })));
    }

    #[test]
    fn payload_depends_on_the_style() {
        let mut request = Request { flags: 0, command: cmd::WRITE, cookie: 1, offset: 0, len: 10 };
        assert_eq!(request.payload_len(HeaderStyle::Simple), 10);
        assert_eq!(request.payload_len(HeaderStyle::Extended), 0);
        request = Request { flags: cmd_flag::PAYLOAD_LEN, command: cmd::TRIM, ..request };
        assert_eq!(request.payload_len(HeaderStyle::Structured), 0);
        assert_eq!(request.payload_len(HeaderStyle::Extended), 10);
    }

    #[test]
    fn a_filter_survives_a_round_trip() {
        let filter = StatusFilter { len: 1 << 40, ids: vec![1, 3] };
        assert_eq!(StatusFilter::decode(&filter.encode()), Ok(filter.clone()));
        assert!(StatusFilter::decode(&filter.encode()[..13]).is_err());
        assert!(StatusFilter::decode(&[0; 4096]).is_err());
    }
}

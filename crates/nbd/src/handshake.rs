//! The greeting, and the frames that carry options and their answers.

use crate::consts::{
    server_flag, GREETING_MAGIC, MAX_OPTION_DATA, MAX_OPTION_REPLY, OLDSTYLE_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC,
};
use crate::reader::Reader;
use crate::WireError;

/// The server's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// [`crate::consts::server_flag`].
    pub flags: u16,
}

impl Greeting {
    /// Bytes on the wire.
    pub const SIZE: usize = 18;

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
        out[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        out[16..].copy_from_slice(&self.flags.to_be_bytes());
        out
    }

    /// From bytes. An oldstyle server, or one without fixed newstyle, is refused.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<Greeting, WireError> {
        let mut r = Reader::new("greeting", bytes);
        let magic = r.u64()?;
        if magic != GREETING_MAGIC {
            return Err(WireError::Magic { what: "greeting", found: magic });
        }
        let style = r.u64()?;
        if style == OLDSTYLE_MAGIC {
            return Err(WireError::Magic { what: "oldstyle greeting", found: style });
        }
        if style != OPTION_MAGIC {
            return Err(WireError::Magic { what: "newstyle greeting", found: style });
        }
        let flags = r.u16()?;
        if flags & server_flag::FIXED_NEWSTYLE == 0 {
            return Err(WireError::Value { what: "handshake flags without fixed newstyle", found: flags.into() });
        }
        Ok(Greeting { flags })
    }
}

/// The head of an option; `len` bytes of data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// [`crate::consts::opt`].
    pub option: u32,
    /// Bytes that follow. Not limited by the decoder: a server that skips a long one can answer `ERR_TOO_BIG`.
    pub len: u32,
}

impl OptionHeader {
    /// Bytes on the wire.
    pub const SIZE: usize = 16;

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        out[8..12].copy_from_slice(&self.option.to_be_bytes());
        out[12..].copy_from_slice(&self.len.to_be_bytes());
        out
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<OptionHeader, WireError> {
        let mut r = Reader::new("option", bytes);
        let magic = r.u64()?;
        if magic != OPTION_MAGIC {
            return Err(WireError::Magic { what: "option", found: magic });
        }
        Ok(OptionHeader { option: r.u32()?, len: r.u32()? })
    }

    /// Whether the data may be kept in memory.
    pub fn is_small(&self) -> bool {
        self.len <= MAX_OPTION_DATA
    }
}

/// Appends a whole option to `out`.
pub fn encode_option(option: u32, data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&OptionHeader { option, len: data.len() as u32 }.encode());
    out.extend_from_slice(data);
}

/// The head of an answer to an option; `len` bytes of data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that is answered.
    pub option: u32,
    /// [`crate::consts::rep`].
    pub kind: u32,
    /// Bytes that follow.
    pub len: u32,
}

impl OptionReplyHeader {
    /// Bytes on the wire.
    pub const SIZE: usize = 20;

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        out[8..12].copy_from_slice(&self.option.to_be_bytes());
        out[12..16].copy_from_slice(&self.kind.to_be_bytes());
        out[16..].copy_from_slice(&self.len.to_be_bytes());
        out
    }

    /// From bytes. A length beyond [`MAX_OPTION_REPLY`] is refused.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<OptionReplyHeader, WireError> {
        let mut r = Reader::new("answer to an option", bytes);
        let magic = r.u64()?;
        if magic != OPTION_REPLY_MAGIC {
            return Err(WireError::Magic { what: "answer to an option", found: magic });
        }
        let header = OptionReplyHeader { option: r.u32()?, kind: r.u32()?, len: r.u32()? };
        if header.len > MAX_OPTION_REPLY {
            let (len, max) = (header.len.into(), MAX_OPTION_REPLY.into());
            return Err(WireError::TooLong { what: "answer to an option", len, max });
        }
        Ok(header)
    }

    /// Whether the option failed.
    pub fn is_error(&self) -> bool {
        self.kind & crate::consts::rep::ERR_FLAG != 0
    }
}

/// Appends a whole answer to `out`.
pub fn encode_option_reply(option: u32, kind: u32, data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&OptionReplyHeader { option, kind, len: data.len() as u32 }.encode());
    out.extend_from_slice(data);
}

/// The server's answer to `EXPORT_NAME`, the only option that is not answered by a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportNameReply {
    /// Size of the export in bytes.
    pub size: u64,
    /// [`crate::consts::export_flag`].
    pub flags: u16,
}

impl ExportNameReply {
    /// Bytes on the wire without the padding.
    pub const SIZE: usize = 10;
    /// Zero bytes that follow unless both sides agreed on `NO_ZEROES`.
    pub const PADDING: usize = 124;

    /// Appends it to `out`, with the padding if it is wanted.
    pub fn encode(&self, padding: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.size.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        if padding {
            out.resize(out.len() + Self::PADDING, 0);
        }
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<ExportNameReply, WireError> {
        let mut r = Reader::new("answer to EXPORT_NAME", bytes);
        Ok(ExportNameReply { size: r.u64()?, flags: r.u16()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_a_round_trip() {
        let g = Greeting { flags: 3 };
        assert_eq!(Greeting::decode(&g.encode()), Ok(g));
        let o = OptionHeader { option: 7, len: 99 };
        assert_eq!(OptionHeader::decode(&o.encode()), Ok(o));
        let r = OptionReplyHeader { option: 7, kind: 1 << 31 | 6, len: 4 };
        assert_eq!(OptionReplyHeader::decode(&r.encode()), Ok(r));
        assert!(r.is_error());
    }

    #[test]
    fn other_styles_are_refused() {
        let mut old = Greeting { flags: 3 }.encode();
        old[8..16].copy_from_slice(&OLDSTYLE_MAGIC.to_be_bytes());
        assert!(matches!(Greeting::decode(&old), Err(WireError::Magic { what: "oldstyle greeting", .. })));
        assert!(matches!(Greeting::decode(&Greeting { flags: 2 }.encode()), Err(WireError::Value { .. })));
    }

    #[test]
    fn a_long_answer_is_refused() {
        let r = OptionReplyHeader { option: 7, kind: 3, len: MAX_OPTION_REPLY + 1 };
        assert!(matches!(OptionReplyHeader::decode(&r.encode()), Err(WireError::TooLong { .. })));
    }
}

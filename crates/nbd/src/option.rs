//! What options and their answers carry.

use crate::consts::{info, MAX_ITEMS};
use crate::reader::Reader;
use crate::WireError;

/// Data of `INFO` and `GO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// Which export; empty for the default one.
    pub name: &'a str,
    /// Wanted besides size and flags: [`crate::consts::info`].
    pub wanted: Vec<u16>,
}

impl<'a> InfoRequest<'a> {
    /// From the data of the option.
    pub fn decode(data: &'a [u8]) -> Result<InfoRequest<'a>, WireError> {
        let mut r = Reader::new("information request", data);
        let len = r.u32()? as usize;
        let name = r.text(len)?;
        let count = r.u16()?;
        check_items("information request", count.into())?;
        let mut wanted = Vec::with_capacity(count.into());
        for _ in 0..count {
            wanted.push(r.u16()?);
        }
        r.end()?;
        Ok(InfoRequest { name, wanted })
    }

    /// As data of the option.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(6 + self.name.len() + 2 * self.wanted.len());
        put_text(self.name, &mut out);
        out.extend_from_slice(&(self.wanted.len() as u16).to_be_bytes());
        for kind in &self.wanted {
            out.extend_from_slice(&kind.to_be_bytes());
        }
        out
    }
}

/// Data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// Which export; empty for the default one.
    pub export: &'a str,
    /// Names of contexts, or patterns.
    pub queries: Vec<&'a str>,
}

impl<'a> MetaRequest<'a> {
    /// From the data of the option.
    pub fn decode(data: &'a [u8]) -> Result<MetaRequest<'a>, WireError> {
        let mut r = Reader::new("metadata query", data);
        let len = r.u32()? as usize;
        let export = r.text(len)?;
        let count = r.u32()?;
        check_items("metadata query", count.into())?;
        let mut queries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let len = r.u32()? as usize;
            queries.push(r.text(len)?);
        }
        r.end()?;
        Ok(MetaRequest { export, queries })
    }

    /// As data of the option.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(self.export, &mut out);
        out.extend_from_slice(&(self.queries.len() as u32).to_be_bytes());
        for query in &self.queries {
            put_text(query, &mut out);
        }
        out
    }
}

/// Data of an `INFO` answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Info<'a> {
    /// Size and abilities.
    Export {
        /// Bytes.
        size: u64,
        /// [`crate::consts::export_flag`].
        flags: u16,
    },
    /// The export's own name.
    Name(&'a str),
    /// Text for people.
    Description(&'a str),
    /// Block sizes in bytes.
    BlockSize {
        /// Requests are multiples of it.
        min: u32,
        /// Requests are fastest at multiples of it.
        preferred: u32,
        /// Largest payload.
        max: u32,
    },
    /// A kind this code does not know.
    Other(u16),
}

impl<'a> Info<'a> {
    /// From the data of the answer.
    pub fn decode(data: &'a [u8]) -> Result<Info<'a>, WireError> {
        let mut r = Reader::new("information on an export", data);
        let decoded = match r.u16()? {
            info::EXPORT => Info::Export { size: r.u64()?, flags: r.u16()? },
            info::NAME => return Ok(Info::Name(r.rest_as_text()?)),
            info::DESCRIPTION => return Ok(Info::Description(r.rest_as_text()?)),
            info::BLOCK_SIZE => Info::BlockSize { min: r.u32()?, preferred: r.u32()?, max: r.u32()? },
            other => return Ok(Info::Other(other)),
        };
        r.end()?;
        Ok(decoded)
    }

    /// As data of the answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        match self {
            Info::Export { size, flags } => {
                out.extend_from_slice(&info::EXPORT.to_be_bytes());
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(&flags.to_be_bytes());
            }
            Info::Name(text) => {
                out.extend_from_slice(&info::NAME.to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Info::Description(text) => {
                out.extend_from_slice(&info::DESCRIPTION.to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Info::BlockSize { min, preferred, max } => {
                out.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
                for size in [min, preferred, max] {
                    out.extend_from_slice(&size.to_be_bytes());
                }
            }
            Info::Other(kind) => out.extend_from_slice(&kind.to_be_bytes()),
        }
        out
    }
}

/// Data of a `META_CONTEXT` answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaContext<'a> {
    /// Number of the context in block status replies; zero in lists.
    pub id: u32,
    /// Name of the context.
    pub name: &'a str,
}

impl<'a> MetaContext<'a> {
    /// From the data of the answer.
    pub fn decode(data: &'a [u8]) -> Result<MetaContext<'a>, WireError> {
        let mut r = Reader::new("metadata context", data);
        Ok(MetaContext { id: r.u32()?, name: r.rest_as_text()? })
    }

    /// As data of the answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.id.to_be_bytes().to_vec();
        out.extend_from_slice(self.name.as_bytes());
        out
    }
}

/// Data of a `SERVER` answer: one export of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedExport<'a> {
    /// Its name.
    pub name: &'a str,
    /// Text for people.
    pub description: &'a str,
}

impl<'a> ListedExport<'a> {
    /// From the data of the answer.
    pub fn decode(data: &'a [u8]) -> Result<ListedExport<'a>, WireError> {
        let mut r = Reader::new("export list", data);
        let len = r.u32()? as usize;
        Ok(ListedExport { name: r.text(len)?, description: r.rest_as_text()? })
    }

    /// As data of the answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(self.name, &mut out);
        out.extend_from_slice(self.description.as_bytes());
        out
    }
}

/// The name in the data of `EXPORT_NAME`, or the text of an error answer.
pub fn decode_text(data: &[u8]) -> Result<&str, WireError> {
    Reader::new("text", data).rest_as_text()
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn check_items(what: &'static str, count: u64) -> Result<(), WireError> {
    if count > MAX_ITEMS as u64 {
        return Err(WireError::TooLong { what, len: count, max: MAX_ITEMS as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_survive_a_round_trip() {
        let go = InfoRequest { name: "main", wanted: vec![3, 1] };
        assert_eq!(InfoRequest::decode(&go.encode()), Ok(go));
        let meta = MetaRequest { export: "", queries: vec!["base:allocation", "bimetal:"] };
        assert_eq!(MetaRequest::decode(&meta.encode()), Ok(meta));
        for info in [
            Info::Export { size: 1 << 40, flags: 5 },
            Info::Name("main"),
            Info::Description("a volume"),
            Info::BlockSize { min: 1, preferred: 4096, max: 32 << 20 },
            Info::Other(77),
        ] {
            assert_eq!(Info::decode(&info.encode()), Ok(info));
        }
        let context = MetaContext { id: 9, name: "bimetal:heat" };
        assert_eq!(MetaContext::decode(&context.encode()), Ok(context));
        let listed = ListedExport { name: "main", description: "" };
        assert_eq!(ListedExport::decode(&listed.encode()), Ok(listed));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut data = InfoRequest { name: "main", wanted: vec![3] }.encode();
        data[3] = 200;
        assert_eq!(InfoRequest::decode(&data), Err(WireError::Short { what: "information request" }));
        data[0] = 0xff;
        assert!(matches!(InfoRequest::decode(&data), Err(WireError::TooLong { .. })));
        let mut data = MetaRequest { export: "", queries: vec![] }.encode();
        data.push(0);
        assert!(matches!(MetaRequest::decode(&data), Err(WireError::Trailing { extra: 1, .. })));
        data[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(MetaRequest::decode(&data), Err(WireError::TooLong { .. })));
    }

    #[test]
    fn names_are_text() {
        assert!(matches!(decode_text(b"a\0b"), Err(WireError::Text { .. })));
        assert!(matches!(decode_text(b"\xff"), Err(WireError::Text { .. })));
        assert_eq!(decode_text("grün".as_bytes()), Ok("grün"));
    }
}

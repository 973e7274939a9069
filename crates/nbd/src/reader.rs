//! A cursor that never reads past the end.

use crate::consts::MAX_STRING;
use crate::WireError;

/// Takes big-endian values from the front of a part named `what`.
pub(crate) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Short { what: self.what })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        if len > self.rest.len() {
            return Err(WireError::Short { what: self.what });
        }
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(head)
    }

    /// A string of `len` bytes under the protocol's rules for strings.
    pub(crate) fn text(&mut self, len: usize) -> Result<&'a str, WireError> {
        if len > MAX_STRING {
            return Err(WireError::TooLong { what: self.what, len: len as u64, max: MAX_STRING as u64 });
        }
        check_text(self.what, self.bytes(len)?)
    }

    /// All that is left, as a string.
    pub(crate) fn rest_as_text(&mut self) -> Result<&'a str, WireError> {
        self.text(self.rest.len())
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The part must end here.
    pub(crate) fn end(&self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(WireError::Trailing { what: self.what, extra }),
        }
    }
}

fn check_text<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a str, WireError> {
    match std::str::from_utf8(bytes) {
        Ok(s) if !s.contains('\0') => Ok(s),
        _ => Err(WireError::Text { what }),
    }
}

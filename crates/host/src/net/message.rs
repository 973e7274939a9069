//! A vectored message: parts of several owners, sent as one run of bytes.

use std::ptr;

use bimetal_volume::buf::{Buf, PAGE};

/// One part of what is sent.
#[derive(Debug)]
pub enum Part {
    /// Headers and other small things.
    Bytes(Vec<u8>),
    /// Data, without a copy.
    Buf(Buf),
    /// So many zero bytes.
    Zero(usize),
}

impl Part {
    /// Bytes it stands for.
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(b) => b.len(),
            Part::Buf(b) => b.len(),
            Part::Zero(n) => *n,
        }
    }

    /// Whether it stands for no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[repr(align(4096))]
struct ZeroPages([u8; ZEROS]);

const ZEROS: usize = 16 * PAGE;
static ZERO: ZeroPages = ZeroPages([0; ZEROS]);

/// Most pieces in one call; the kernel's limit is 1024.
const MAX_PIECES: usize = 512;

/// What one `sendmsg` refers to, at a fixed place in memory.
pub(crate) struct Message {
    parts: Vec<Part>,
    /// The first part that is not fully sent.
    part: usize,
    /// Bytes of it that are sent.
    sent: usize,
    pieces: Vec<libc::iovec>,
    header: libc::msghdr,
}

impl Message {
    pub(crate) fn new() -> Box<Message> {
        // SAFETY: a msghdr of zeros is the empty one: null pointers and zero lengths.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Message { parts: Vec::new(), part: 0, sent: 0, pieces: Vec::new(), header })
    }

    /// Begins to send other parts.
    pub(crate) fn begin(&mut self, parts: Vec<Part>) {
        (self.parts, self.part, self.sent) = (parts, 0, 0);
    }

    /// Lists what is to be sent next; false when nothing is left.
    pub(crate) fn prepare(&mut self) -> bool {
        self.pieces.clear();
        let mut skip = self.sent;
        for part in &self.parts[self.part..] {
            if self.pieces.len() >= MAX_PIECES {
                break;
            }
            match part {
                Part::Bytes(b) => push(&mut self.pieces, &b[skip..]),
                Part::Buf(b) => push(&mut self.pieces, &b[skip..]),
                Part::Zero(n) => push_zeros(&mut self.pieces, n - skip),
            }
            skip = 0;
        }
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len() as _;
        !self.pieces.is_empty()
    }

    /// The header for the kernel; valid while the box is neither changed nor dropped.
    pub(crate) fn header(&self) -> *const libc::msghdr {
        ptr::from_ref(&self.header)
    }

    /// Notes that `n` more bytes are sent.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
        while let Some(part) = self.parts.get(self.part) {
            if self.sent < part.len() {
                break;
            }
            self.sent -= part.len();
            self.part += 1;
        }
    }

    /// The parts, which are no longer referred to.
    pub(crate) fn take_parts(&mut self) -> Vec<Part> {
        self.pieces.clear();
        std::mem::take(&mut self.parts)
    }
}

/// Adds a piece of memory that the kernel will only read.
pub(crate) fn push(pieces: &mut Vec<libc::iovec>, bytes: &[u8]) {
    if !bytes.is_empty() {
        // The kernel only reads through this pointer.
        pieces.push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
    }
}

/// Adds zero bytes, as many as fit into one call.
pub(crate) fn push_zeros(pieces: &mut Vec<libc::iovec>, mut n: usize) {
    while n > 0 && pieces.len() < MAX_PIECES {
        let len = n.min(ZEROS);
        push(pieces, &ZERO.0[..len]);
        n -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_volume::buf::BufMut;

    #[test]
    fn partial_sends_go_on_where_they_stopped() {
        let parts = vec![
            Part::Bytes(b"header".to_vec()),
            Part::Bytes(Vec::new()),
            Part::Buf(BufMut::copy_of(b"payload").freeze()),
            Part::Zero(3),
        ];
        let mut m = Message::new();
        m.begin(parts);
        let mut left = Vec::new();
        while m.prepare() {
            left.push(m.pieces.iter().map(|p| p.iov_len).sum::<usize>());
            m.advance(5);
        }
        assert_eq!(left, [16, 11, 6, 1]);
    }

    #[test]
    fn long_runs_of_zeros_take_several_calls() {
        let mut m = Message::new();
        m.begin(vec![Part::Zero(ZEROS * (MAX_PIECES + 2) + 5)]);
        assert!(m.prepare());
        assert_eq!(m.pieces.len(), MAX_PIECES);
        m.advance(ZEROS * MAX_PIECES);
        assert!(m.prepare());
        assert_eq!(m.pieces.iter().map(|p| p.iov_len).sum::<usize>(), 2 * ZEROS + 5);
        m.advance(2 * ZEROS + 5);
        assert!(!m.prepare());
    }
}

//! Bytes from the server: a small buffer for heads, and large payloads received in place.

use std::io;
use std::ops::Range;

use bimetal_volume::buf::BufMut;

use crate::net::Stream;

/// Enough for many heads and a few small payloads in one receive; of a large payload at most this is copied.
const BUFFER: usize = 16 << 10;

/// The receiving side of a connection.
pub(super) struct Input {
    stream: Stream,
    buf: Option<BufMut>,
    filled: Range<usize>,
}

impl Input {
    pub(super) fn new(stream: Stream) -> Input {
        Input { stream, buf: Some(BufMut::new(BUFFER)), filled: 0..0 }
    }

    /// The next `n` bytes (at most [`BUFFER`]), which are then taken.
    pub(super) async fn take(&mut self, n: usize) -> io::Result<&[u8]> {
        self.need(n).await?;
        let start = self.filled.start;
        self.filled.start += n;
        Ok(&self.held()[start..start + n])
    }

    /// The next `n` bytes as an array, which are then taken.
    pub(super) async fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.take(N).await?;
        bytes.try_into().map_err(|_| io::ErrorKind::UnexpectedEof.into())
    }

    /// The next `n` bytes, which stay.
    pub(super) async fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        self.need(n).await?;
        let start = self.filled.start;
        Ok(&self.held()[start..start + n])
    }

    /// The next `n` bytes, however many.
    pub(super) async fn take_vec(&mut self, n: usize) -> io::Result<Vec<u8>> {
        let (buf, result) = self.fill(BufMut::new(n), 0..n).await;
        result?;
        Ok(buf.to_vec())
    }

    /// Fills `target[range]` with the next bytes.
    pub(super) async fn fill(&mut self, mut target: BufMut, mut range: Range<usize>) -> (BufMut, io::Result<()>) {
        let have = self.filled.len().min(range.len());
        let from = self.filled.start;
        target[range.start..range.start + have].copy_from_slice(&self.held()[from..from + have]);
        self.filled.start += have;
        range.start += have;
        self.stream.recv_all(target, range).await
    }

    async fn need(&mut self, n: usize) -> io::Result<()> {
        if n > BUFFER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a head is too long"));
        }
        while self.filled.len() < n {
            let mut buf = self.buf.take().unwrap_or_else(|| BufMut::new(BUFFER));
            if self.filled.start + n > BUFFER || self.filled.is_empty() {
                buf.copy_within(self.filled.clone(), 0);
                self.filled = 0..self.filled.len();
            }
            let end = self.filled.end;
            let (buf, result) = self.stream.recv(buf, end..BUFFER).await;
            self.buf = Some(buf);
            match result? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.filled.end += n,
            }
        }
        Ok(())
    }

    fn held(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }
}

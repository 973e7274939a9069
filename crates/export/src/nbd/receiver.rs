//! The receiving half of a connection: a buffer in which many requests may arrive together.

use std::io;

use bimetal_volume::buf::BufMut;

use crate::conn::Conn;

/// Bytes taken from the stream at a time.
const BUFFER: usize = 64 << 10;
/// After a payload of this size the next receive is kept short: what follows is probably another large payload, which
/// is better received in place than copied.
const LARGE_PAYLOAD: usize = 32 << 10;
const SHORT_RECEIVE: usize = 4 << 10;

/// Bytes received and not yet used.
pub(super) struct Receiver<C> {
    conn: C,
    /// Out only while a receive is under way.
    buf: Option<BufMut>,
    start: usize,
    end: usize,
    next_receive: usize,
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection")
}

impl<C: Conn> Receiver<C> {
    pub(super) fn new(conn: C) -> Receiver<C> {
        Receiver { conn, buf: Some(BufMut::new(BUFFER)), start: 0, end: 0, next_receive: BUFFER }
    }

    /// What is there.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buf.as_ref().map_or(&[], |b| &b[self.start..self.end])
    }

    /// Drops the first `n` bytes of what is there.
    pub(super) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
    }

    /// Waits until `n` bytes are there; at most [`BUFFER`].
    pub(super) async fn fill(&mut self, n: usize) -> io::Result<()> {
        debug_assert!(n <= BUFFER);
        while self.end - self.start < n {
            let mut buf = self.buf.take().ok_or_else(closed)?;
            if self.start == self.end || self.start + n > BUFFER {
                buf.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let room = (BUFFER - self.end).min(self.next_receive.max(n));
            self.next_receive = BUFFER;
            let (buf, result) = self.conn.recv(buf, self.end..self.end + room).await;
            self.buf = Some(buf);
            match result? {
                0 => return Err(closed()),
                got => self.end += got.min(room),
            }
        }
        Ok(())
    }

    /// Fills `payload` with the next bytes, the most of them without a copy.
    pub(super) async fn take(&mut self, mut payload: BufMut) -> io::Result<BufMut> {
        let len = payload.len();
        let mut done = len.min(self.end - self.start);
        payload[..done].copy_from_slice(&self.bytes()[..done]);
        self.consume(done);
        if done < len {
            let result;
            (payload, result) = receive_all(&self.conn, payload, &mut done).await;
            result?;
        }
        if len >= LARGE_PAYLOAD {
            self.next_receive = SHORT_RECEIVE;
        }
        Ok(payload)
    }

    /// Drops the next `n` bytes.
    pub(super) async fn skip(&mut self, mut n: u64) -> io::Result<()> {
        while n > 0 {
            self.fill(1).await?;
            let step = n.min((self.end - self.start) as u64);
            self.consume(step as usize);
            n -= step;
        }
        Ok(())
    }
}

async fn receive_all(conn: &impl Conn, mut buf: BufMut, done: &mut usize) -> (BufMut, io::Result<()>) {
    let len = buf.len();
    while *done < len {
        let result;
        (buf, result) = conn.recv(buf, *done..len).await;
        match result {
            Ok(0) => return (buf, Err(closed())),
            Ok(got) => *done = (*done + got).min(len),
            Err(e) => return (buf, Err(e)),
        }
    }
    (buf, Ok(()))
}

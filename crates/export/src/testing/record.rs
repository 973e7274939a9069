use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use bimetal_volume::buf::BufMut;

use super::PipeConn;
use crate::conn::{Conn, Part};

/// A stream that remembers what passed through it.
#[derive(Clone)]
pub struct RecordingConn {
    inner: PipeConn,
    /// Bytes received.
    pub received: Rc<RefCell<Vec<u8>>>,
    /// Bytes sent.
    pub sent: Rc<RefCell<Vec<u8>>>,
}

impl RecordingConn {
    /// Records what passes through `inner`.
    pub fn new(inner: PipeConn) -> RecordingConn {
        RecordingConn { inner, received: Rc::default(), sent: Rc::default() }
    }
}

impl Conn for RecordingConn {
    async fn recv(&self, buf: BufMut, range: Range<usize>) -> (BufMut, io::Result<usize>) {
        let start = range.start;
        let (buf, result) = self.inner.recv(buf, range).await;
        if let Ok(n) = result {
            self.received.borrow_mut().extend_from_slice(&buf[start..start + n]);
        }
        (buf, result)
    }

    async fn send(&self, parts: Vec<Part>) -> (Vec<Part>, io::Result<()>) {
        for part in &parts {
            let mut sent = self.sent.borrow_mut();
            match part {
                Part::Bytes(bytes) => sent.extend_from_slice(bytes),
                Part::Buf(buf) => sent.extend_from_slice(buf),
                Part::Zero(n) => {
                    let len = sent.len();
                    sent.resize(len + n, 0);
                }
            }
        }
        self.inner.send(parts).await
    }

    async fn hung_up(&self) {
        self.inner.hung_up().await;
    }

    async fn half_closed(&self) {
        self.inner.half_closed().await;
    }

    fn end_sending(&self) {
        self.inner.end_sending();
    }

    fn close(&self) {
        self.inner.close();
    }
}

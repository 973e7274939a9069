//! The transport of an export: a stream of bytes with owned buffers, as io_uring wants them.

use std::future::Future;
use std::io;
use std::ops::Range;

pub use bimetal_host::net::Part;
use bimetal_host::net::{Stream, Way};
use bimetal_volume::buf::BufMut;

/// A connected stream. Cloning gives another handle; one receive and one send may be under way at a time.
pub trait Conn: Clone + 'static {
    /// Receives at least one byte into `range` of `buf`, and says how many; zero at the end of the stream.
    fn recv(&self, buf: BufMut, range: Range<usize>) -> impl Future<Output = (BufMut, io::Result<usize>)>;

    /// Sends all parts, in order, and gives them back.
    fn send(&self, parts: Vec<Part>) -> impl Future<Output = (Vec<Part>, io::Result<()>)>;

    /// Completes when the peer is gone for good: it neither sends nor receives any more. What it sent before need not have
    /// been received. It may never complete, and be dropped.
    fn hung_up(&self) -> impl Future<Output = ()>;

    /// Completes when the peer sends no more, whether it still receives or not: over TCP no more is seen of one that has closed
    /// the connection, until something is sent to it. What it sent before need not have been received. It may never complete,
    /// and be dropped.
    fn half_closed(&self) -> impl Future<Output = ()>;

    /// Tells the peer that nothing more will be sent; receiving goes on.
    fn end_sending(&self);

    /// Ends both directions: a receive or send under way ends soon, with an error or as at the end of the stream.
    fn close(&self);
}

impl Conn for Stream {
    async fn recv(&self, buf: BufMut, range: Range<usize>) -> (BufMut, io::Result<usize>) {
        Stream::recv(self, buf, range).await
    }

    async fn send(&self, parts: Vec<Part>) -> (Vec<Part>, io::Result<()>) {
        Stream::send(self, parts).await
    }

    async fn hung_up(&self) {
        Stream::hung_up(self).await;
    }

    async fn half_closed(&self) {
        Stream::half_closed(self).await;
    }

    fn end_sending(&self) {
        // Fails only when the peer is gone already.
        let _ = self.shutdown(Way::Write);
    }

    fn close(&self) {
        // As above.
        let _ = self.shutdown(Way::Both);
    }
}

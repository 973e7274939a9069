//! The transport of an export: a stream of bytes with owned buffers, as io_uring wants them.

use std::future::Future;
use std::io;
use std::ops::Range;

use bimetal_volume::buf::{Buf, BufMut};

/// A piece of what is sent.
#[derive(Debug)]
pub enum Part {
    /// Headers and other small things.
    Bytes(Vec<u8>),
    /// Data of a volume.
    Buf(Buf),
    /// So many zero bytes.
    Zero(usize),
}

/// A connected stream. Cloning gives another handle; one receive and one send may be under way at a time.
pub trait Conn: Clone + 'static {
    /// Receives at least one byte into `range` of `buf`, and says how many; zero at the end of the stream.
    fn recv(&self, buf: BufMut, range: Range<usize>) -> impl Future<Output = (BufMut, io::Result<usize>)>;

    /// Sends all parts, in order. Gives the vector back, emptied, to be used again.
    fn send(&self, parts: Vec<Part>) -> impl Future<Output = (Vec<Part>, io::Result<()>)>;

    /// Tells the peer that nothing more will be sent; receiving goes on.
    fn end_sending(&self);

    /// Ends both directions: a receive or send under way ends soon, with an error or as at the end of the stream.
    fn close(&self);
}

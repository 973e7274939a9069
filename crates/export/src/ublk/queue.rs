//! Where requests come from: the kernel's queue, or one in memory for tests.

use std::future::Future;

use bimetal_host::ublk;
use bimetal_host::ublk::IoDesc;
use bimetal_volume::buf::BufMut;

/// A queue of requests. Cloning gives another handle.
pub trait Queue: Clone + 'static {
    /// Tags: requests that may be under way.
    fn depth(&self) -> u16;
    /// Bytes of the largest read or write.
    fn max_bytes(&self) -> usize;
    /// Gives back the buffer of `tag` with the answer to its last request (bytes done, or a negative errno), and waits
    /// for the next. An error is the errno with which there will be none.
    fn exchange(
        &self,
        tag: u16,
        answer: Option<i32>,
        buf: BufMut,
    ) -> impl Future<Output = (BufMut, Result<IoDesc, i32>)>;
}

impl Queue for ublk::Queue {
    fn depth(&self) -> u16 {
        ublk::Queue::depth(self)
    }

    fn max_bytes(&self) -> usize {
        ublk::Queue::max_bytes(self)
    }

    async fn exchange(&self, tag: u16, answer: Option<i32>, buf: BufMut) -> (BufMut, Result<IoDesc, i32>) {
        ublk::Queue::exchange(self, tag, answer, buf).await
    }
}

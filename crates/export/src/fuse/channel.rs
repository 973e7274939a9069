//! The transport: whole requests and whole answers.

use std::future::Future;
use std::io;

use bimetal_host::fuse::Device;
pub(super) use bimetal_host::fuse::{request_area, Answer};
use bimetal_volume::buf::BufMut;

/// An open `/dev/fuse`, or what stands for it in tests. Cloning gives another handle.
pub trait Channel: Clone + 'static {
    /// Waits for a request, receives it into a [`request_area`], and says how many bytes it has. Any error but
    /// `Interrupted`, `NotFound` (a request was given up) and `OutOfMemory` means that none will ever come.
    fn receive(&self, area: BufMut) -> impl Future<Output = (BufMut, io::Result<usize>)>;

    /// The same if a request is there already; `WouldBlock` if not.
    fn try_receive(&self, area: &mut [u8]) -> io::Result<usize>;

    /// Completes when no request will ever come. It says so also to who receives none.
    fn ended(&self) -> impl Future<Output = ()>;

    /// Sends an answer and gives it back, to be used again.
    fn send(&self, answer: Box<Answer>) -> impl Future<Output = (Box<Answer>, io::Result<()>)>;
}

impl Channel for Device {
    async fn receive(&self, area: BufMut) -> (BufMut, io::Result<usize>) {
        Device::receive(self, area).await
    }

    fn try_receive(&self, area: &mut [u8]) -> io::Result<usize> {
        Device::try_receive(self, area)
    }

    async fn ended(&self) {
        Device::ended(self).await;
    }

    async fn send(&self, answer: Box<Answer>) -> (Box<Answer>, io::Result<()>) {
        Device::send(self, answer).await
    }
}

//! Taking requests off the channel: one is waited for, and what has gathered behind it is taken at once.

use std::future::{poll_fn, Future};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::buf::BufMut;

use crate::runtime::{yield_now, Runtime};

use super::{Channel, Shared};

/// Requests taken before those that were taken have their turn.
const BURST: usize = 16;

/// A pause before the kernel is asked again after it had no memory.
const PAUSE: Duration = Duration::from_millis(10);

/// The receiver: to the end of the mount.
pub(super) async fn receive<R: Runtime, B: Backend, C: Channel>(shared: Rc<Shared<R, B, C>>) {
    while shared.receive_some().await {}
    shared.end();
}

impl<R: Runtime, B: Backend, C: Channel> Shared<R, B, C> {
    /// Waits for a request, and takes it and what is behind it. False at the end.
    async fn receive_some(self: &Rc<Self>) -> bool {
        let Some((area, result)) = self.receive_one().await else { return false };
        let mut found = self.found(area, result);
        for _ in 1..BURST {
            if found != Found::Request || self.room.is_full() {
                break;
            }
            let mut area = self.take_area();
            let result = self.channel.try_receive(&mut area);
            found = self.found(area, result);
        }
        match found {
            Found::Request => yield_now().await,
            Found::Failure => self.runtime.sleep(PAUSE).await,
            Found::Nothing | Found::End => {}
        }
        found != Found::End
    }

    /// Waits for a request, if there is room for what waits; `None` when the mount is closed meanwhile.
    async fn receive_one(&self) -> Option<(BufMut, io::Result<usize>)> {
        if self.room.is_full() && !self.is_there_room().await {
            return None;
        }
        let mut receiving = pin!(self.channel.receive(self.take_area()));
        let mut closed = pin!(self.closed.wait_until(|| self.ended.get()));
        poll_fn(|cx| match closed.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => receiving.as_mut().poll(cx).map(Some),
        })
        .await
    }

    /// Waits for room for what waits; false at the end of the mount, which a receive would tell of otherwise: what was begun before
    /// that must not go on for as long as nothing is received.
    async fn is_there_room(&self) -> bool {
        let mut room = pin!(self.done.wait_until(|| !self.room.is_full() || self.ended.get()));
        let mut end = pin!(self.channel.ended());
        poll_fn(|cx| match room.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => end.as_mut().poll(cx).map(|()| false),
        })
        .await
    }

    fn found(self: &Rc<Self>, area: BufMut, result: io::Result<usize>) -> Found {
        match result {
            Ok(len) if len <= area.len() => {
                self.accept(area, len);
                Found::Request
            }
            Ok(_) => Found::End,
            Err(error) => {
                self.keep_area(area);
                match error.kind() {
                    ErrorKind::WouldBlock => Found::Nothing,
                    // Given up by whoever asked, before it was here.
                    ErrorKind::Interrupted | ErrorKind::NotFound => Found::Request,
                    // It says nothing of the mount, and what was asked is still there.
                    ErrorKind::OutOfMemory => Found::Failure,
                    _ => Found::End,
                }
            }
        }
    }
}

/// What a receive has found.
#[derive(PartialEq, Eq)]
enum Found {
    Request,
    Nothing,
    /// An error that passes.
    Failure,
    /// The end.
    End,
}

//! Taking requests off the channel.
//!
//! One receiver leads: it takes requests until there is none, and then waits. When it finds the next one at once, requests
//! come faster than one by one; with each that is found a *helper* is called in, so that a burst is taken by few entries
//! into the kernel. The first helper that finds nothing sends all of them away.

use std::future::{poll_fn, Future};
use std::io::ErrorKind;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bimetal_volume::backend::Backend;

use crate::runtime::Runtime;

use super::{Channel, Shared};

/// What a receive has found.
#[derive(PartialEq, Eq)]
enum Found {
    Request,
    Nothing,
    /// The end.
    End,
}

/// The first receiver: to the end of the mount.
pub(super) async fn lead<R: Runtime, B: Backend, C: Channel>(shared: Rc<Shared<R, B, C>>) {
    let mut in_a_row = 0;
    loop {
        match shared.receive().await {
            Found::Request => {
                in_a_row += 1;
                if in_a_row > 1 {
                    shared.call_helper();
                }
            }
            Found::Nothing => {
                in_a_row = 0;
                if !shared.wait_for_request().await {
                    return shared.end();
                }
            }
            Found::End => return shared.end(),
        }
    }
}

/// The other receivers.
pub(super) async fn help<R: Runtime, B: Backend, C: Channel>(shared: Rc<Shared<R, B, C>>, number: usize) {
    loop {
        shared.called[number].wait_until(|| shared.helpers.get() > number || shared.ended.get()).await;
        match shared.receive().await {
            Found::Request => shared.call_helper(),
            Found::Nothing => shared.helpers.set(0),
            Found::End => return shared.end(),
        }
    }
}

impl<R: Runtime, B: Backend, C: Channel> Shared<R, B, C> {
    fn call_helper(&self) {
        let next = self.helpers.get();
        if let Some(helper) = self.called.get(next) {
            self.helpers.set(next + 1);
            helper.notify();
        }
    }

    /// Takes one request, as soon as there is room for it, and sees to its answer.
    async fn receive(self: &Rc<Self>) -> Found {
        self.done.wait_until(|| self.has_room() || self.ended.get()).await;
        if self.ended.get() {
            return Found::End;
        }
        let (area, result) = self.channel.receive(self.take_area()).await;
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
                    _ => Found::End,
                }
            }
        }
    }

    /// Waits for a request; false when none will come.
    async fn wait_for_request(&self) -> bool {
        let mut ready = pin!(self.channel.ready());
        let mut ended = pin!(self.closed.wait_until(|| self.ended.get()));
        poll_fn(|cx| {
            if ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            ready.as_mut().poll(cx).map(|result| result.is_ok())
        })
        .await
    }
}

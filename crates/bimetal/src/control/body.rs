//! The body of a request comes in time, or the request is refused: a client that stops in the middle of one holds a place that others
//! wait for.
//!
//! When it has come to its end there is one more turn before anything is done: whoever asked may have gone long since, while this process
//! stood still, and has been told that nothing came of it. In that turn the connection is found to be at its end, too, and all is dropped.

use std::future::Future;
use std::pin::{pin, Pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use hyper::body::{Frame, SizeHint};
use tokio::time::{sleep, Sleep};

use super::BODY_TIMEOUT;

/// So long the runtime waits for the kernel's news of all connections.
const TURN: Duration = Duration::from_millis(1);

/// A body that fails when it has not come to its end for [`BODY_TIMEOUT`], and whose end comes a turn later.
struct InTime {
    body: Body,
    /// From when on it was first waited for.
    end: Option<Pin<Box<Sleep>>>,
    /// The turn after its end.
    turn: Option<Pin<Box<Sleep>>>,
}

/// Limits how long the body of a request may take.
pub(super) async fn in_time(request: Request) -> Request {
    request.map(|body| Body::new(InTime { body, end: None, turn: None }))
}

impl HttpBody for InTime {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = pin!(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) {
            let turn = self.turn.get_or_insert_with(|| Box::pin(sleep(TURN)));
            return turn.as_mut().poll(cx).map(|()| None);
        }
        if frame.is_ready() {
            return frame;
        }
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(BODY_TIMEOUT)));
        end.as_mut().poll(cx).map(|()| Some(Err(axum::Error::new("the rest of the request did not come"))))
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! A connection as the rest of the server sees it.

use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::time::Duration;

use bimetal_volume::env::Instant;

use crate::conn::Conn;
use crate::signal::Signal;
use crate::stats::{ConnectionStatus, Phase};

use crate::load::Load;

/// A send or receive, to which the client does its part. Looking at the clock each time would cost more than it is worth:
/// who wants to know how long one takes looks at it again and again.
#[derive(Default)]
pub(super) struct Exchange {
    /// Beginnings and ends; odd while one is under way.
    steps: Cell<u64>,
    /// Those that were seen last, and when they were seen first.
    seen: Cell<(u64, Instant)>,
}

impl Exchange {
    pub(super) fn begin(&self) {
        self.steps.set(self.steps.get() | 1);
    }

    pub(super) fn end(&self) {
        self.steps.set((self.steps.get() | 1) + 1);
    }

    /// For how long the one that is under way, if any, has been seen.
    fn took(&self, now: Instant) -> Duration {
        let steps = self.steps.get();
        if self.seen.get().0 != steps {
            self.seen.set((steps, now));
        }
        if steps % 2 == 1 {
            now.since(self.seen.get().1)
        } else {
            Duration::ZERO
        }
    }
}

/// What is known of a connection whatever its transport.
pub(super) struct Peer {
    pub(super) id: u64,
    name: String,
    pub(super) export: RefCell<Option<String>>,
    pub(super) phase: Cell<Phase>,
    since: Instant,
    pub(super) answered: Cell<u64>,
    pub(super) load: Load,
    pub(super) sending: Exchange,
    /// Of a payload.
    pub(super) receiving: Exchange,
    close: Box<dyn Fn()>,
    /// The client is there no more, so that nobody can be told of anything.
    pub(super) gone: Cell<bool>,
    /// It took its leave: what it had asked for before is carried out, if nobody else comes meanwhile.
    pub(super) took_leave: Cell<bool>,
    /// It sends no more. It may wait for its answers, or be gone.
    pub(super) half_closed: Cell<bool>,
    /// The server stops: refuse new requests, end when the rest is answered.
    pub(super) stopping: Cell<bool>,
    pub(super) stop_begun: Signal,
}

impl Peer {
    pub(super) fn new(id: u64, name: String, since: Instant, load: Load, close: Box<dyn Fn()>) -> Peer {
        Peer {
            id,
            name,
            export: RefCell::default(),
            phase: Cell::new(Phase::Handshake),
            since,
            answered: Cell::new(0),
            load,
            sending: Exchange::default(),
            receiving: Exchange::default(),
            close,
            gone: Cell::new(false),
            took_leave: Cell::new(false),
            half_closed: Cell::new(false),
            stopping: Cell::new(false),
            stop_begun: Signal::default(),
        }
    }

    /// Ends the stream at once, and the wait for room.
    pub(super) fn close(&self) {
        (self.close)();
        self.load.close();
    }

    /// The server stops. A client that is still negotiating has nothing to lose.
    pub(super) fn begin_stop(&self) {
        self.stopping.set(true);
        if self.phase.get() == Phase::Handshake {
            self.close();
        }
        // First a request that waits for room is refused, and only when that was sent is the stream ended.
        self.load.notify();
        self.stop_begun.notify();
    }

    /// What `future` gives. Notices if the client hangs up meanwhile, or sends no more.
    pub(super) async fn minding<T>(&self, conn: &impl Conn, future: impl Future<Output = T>) -> T {
        let (mut future, mut closing, mut leaving) = (pin!(future), pin!(conn.half_closed()), pin!(conn.hung_up()));
        poll_fn(|cx| {
            let value = future.as_mut().poll(cx);
            if value.is_ready() {
                return value;
            }
            // Who has hung up sends no more, either: as long as a client is there one question is enough.
            self.half_closed.set(self.half_closed.get() || closing.as_mut().poll(cx).is_ready());
            if self.half_closed.get() && !self.gone.get() && leaving.as_mut().poll(cx).is_ready() {
                self.gone.set(true);
                // It may end with that.
                return future.as_mut().poll(cx);
            }
            value
        })
        .await
    }

    /// What `future` gives. Notices if the client sends no more, which is so as soon as the end of its stream is there: what came before
    /// that may not have been read. Whether it is gone is not asked: it may have taken its leave, which is not read yet either.
    pub(super) async fn noticing_its_end<T>(&self, conn: &impl Conn, future: impl Future<Output = T>) -> T {
        let (mut future, mut closing) = (pin!(future), pin!(conn.half_closed()));
        poll_fn(|cx| {
            if !self.half_closed.get() && closing.as_mut().poll(cx).is_ready() {
                self.half_closed.set(true);
            }
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Whether work that may take hours is to go on. It need not when nobody learns of it, and a stop does not wait for it.
    pub(super) fn waits_for_long_work(&self) -> bool {
        !self.gone.get() && !self.stopping.get()
    }

    /// For how long the client has been seen at what it has to do for a send or receive.
    pub(super) fn turn_took(&self, now: Instant) -> Duration {
        self.sending.took(now).max(self.receiving.took(now))
    }

    /// Why it is cut off, for people.
    pub(super) fn words_of_cut_off(&self, now: Instant) -> String {
        let (sending, receiving) = (self.sending.took(now), self.receiving.took(now));
        let (what, took) = if sending >= receiving {
            ("has not read its answers", sending)
        } else {
            ("has not sent the data of a write", receiving)
        };
        format!(
            "NBD: the client at {} of export {} was cut off: it {what} for {} s, and others wait for the memory that its {} \
             requests ({} KiB) occupy; connect it again",
            self.name,
            self.export.borrow().as_deref().unwrap_or("none"),
            took.as_secs(),
            self.load.requests(),
            self.load.bytes() >> 10,
        )
    }

    pub(super) fn status(&self, now: Instant) -> ConnectionStatus {
        ConnectionStatus {
            id: self.id,
            peer: self.name.clone(),
            export: self.export.borrow().clone(),
            phase: self.phase.get(),
            age: now.since(self.since),
            requests: self.answered.get(),
            in_flight: self.load.requests(),
            bytes_in_flight: self.load.bytes(),
        }
    }
}

//! A connection as the rest of the server sees it.

use std::cell::{Cell, RefCell};

use bimetal_volume::env::Instant;

use crate::signal::Signal;
use crate::stats::{ConnectionStatus, Phase};

use super::load::Load;

/// What is known of a connection whatever its transport.
pub(super) struct Peer {
    pub(super) id: u64,
    name: String,
    pub(super) export: RefCell<Option<String>>,
    pub(super) phase: Cell<Phase>,
    since: Instant,
    pub(super) answered: Cell<u64>,
    pub(super) load: Load,
    close: Box<dyn Fn()>,
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
            close,
            stopping: Cell::new(false),
            stop_begun: Signal::default(),
        }
    }

    /// Ends the stream at once.
    pub(super) fn close(&self) {
        (self.close)();
    }

    /// The server stops. A client that is still negotiating has nothing to lose.
    pub(super) fn begin_stop(&self) {
        self.stopping.set(true);
        if self.phase.get() == Phase::Handshake {
            self.close();
        }
        self.stop_begun.notify();
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

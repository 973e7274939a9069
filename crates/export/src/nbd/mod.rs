//! The NBD server: fixed newstyle over any [`Conn`], any [`Backend`] behind it.
//!
//! One connection has two tasks and one task per request in flight:
//! - the *reader* (`transmission`) takes requests off the stream, checks each once (`validate`) and starts it;
//! - a *request* (`execute`) asks the backend and puts its answer into the outbox;
//! - the *sender* (`outbox`) sends all that has gathered there with one vectored send, one at a time.
//!
//! Rules:
//! 1. A request counts as in flight from its header until its answer was handed to the kernel, so that a client that
//!    does not read its answers stops being read from (`load`). It then stops no other: each connection has a little room
//!    of its own, and who holds the rest for too long is cut off (`room`).
//! 2. A payload is received into a buffer of its own, laid out as the backend wants it; only what arrived together with
//!    a header is copied.
//! 3. Stopping: what was taken is answered, what comes later is refused with ESHUTDOWN, then the stream is ended. A zeroing that may
//!    take hours is not waited for: it ends between two steps, with ESHUTDOWN. So it does when the client is gone, or sends no
//!    more and is not the only one: whether it is gone cannot always be seen.
//! 4. Nothing that a client sends ends more than its own connection.

mod contexts;
mod execute;
mod handshake;
mod outbox;
mod peer;
mod receiver;
mod room;
mod transmission;
mod validate;
mod workers;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::options::Uuid;

use crate::conn::Conn;
use crate::runtime::{timeout, Runtime};
use crate::signal::Signal;
use crate::stats::{Kind, Phase, RequestStats, ServerStatus};

use crate::load::{Load, Pool, Share};
use peer::Peer;

/// Preferred block size that is announced, in bytes.
pub const PREFERRED_BLOCK: u32 = 4096;

/// A volume under a name.
#[derive(Clone, Debug)]
pub struct Export<B> {
    /// Which volume it is: names can be given to others.
    pub uuid: Uuid,
    /// What clients ask for.
    pub name: String,
    /// For people who list the exports; may be empty.
    pub description: String,
    /// What serves it.
    pub backend: B,
    /// Refuse writes even if the backend takes them.
    pub read_only: bool,
}

/// What a server takes at most.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections; more are closed at once.
    pub connections: usize,
    /// A client that has not chosen an export by then is closed.
    pub handshake: Duration,
    /// Requests in flight per connection.
    pub requests_per_connection: usize,
    /// Bytes of payload in flight per connection. A single larger request is served alone.
    pub bytes_per_connection: u64,
    /// Of these, requests that each connection may have in flight whatever others do.
    pub own_requests: usize,
    /// The same for bytes of payload.
    pub own_bytes: u64,
    /// Requests in flight of all connections, beyond those that are each one's own.
    pub requests: usize,
    /// Bytes of payload in flight of all connections, beyond those that are each one's own. A single larger request is
    /// served alone.
    pub bytes: u64,
    /// How long `stop` waits for clients that do not read their answers or do not hang up.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            handshake: Duration::from_secs(30),
            requests_per_connection: 1024,
            bytes_per_connection: 64 << 20,
            own_requests: 16,
            own_bytes: 1 << 20,
            requests: 8192,
            bytes: 256 << 20,
            grace: Duration::from_secs(10),
        }
    }
}

/// An NBD server. Cloning gives another handle.
pub struct Server<R: Runtime, B: Backend>(Rc<Shared<R, B>>);

impl<R: Runtime, B: Backend> Clone for Server<R, B> {
    fn clone(&self) -> Self {
        Server(self.0.clone())
    }
}

/// Tells people.
type Warn = Box<dyn Fn(&str)>;

/// What all connections of a server share.
struct Shared<R, B> {
    runtime: R,
    exports: RefCell<Vec<Rc<Export<B>>>>,
    limits: Limits,
    pool: Rc<Pool>,
    /// Whether somebody looks after clients that keep others waiting.
    watching: Cell<bool>,
    /// Who is told of what people should know.
    warn: RefCell<Option<Warn>>,
    counters: Counters,
    peers: RefCell<BTreeMap<u64, Rc<Peer>>>,
    stopping: Cell<bool>,
    /// Workers of all connections that wait for a request.
    idle_workers: Rc<Cell<usize>>,
    /// A connection ended.
    ended: Signal,
}

#[derive(Default)]
struct Counters {
    accepted: Cell<u64>,
    turned_away: Cell<u64>,
    refused: Cell<u64>,
    cut_off: Cell<u64>,
    requests: RefCell<[RequestStats; Kind::ALL.len()]>,
}

fn add_one(cell: &Cell<u64>) -> u64 {
    let before = cell.get();
    cell.set(before + 1);
    before
}

/// Clients that have left before they were answered, for each connection that may be there: each holds memory for its requests.
const LEFT_PER_CONNECTION: usize = 2;

impl<R, B> Shared<R, B> {
    /// What a new connection may have in flight.
    fn load(&self) -> Load {
        let limits = &self.limits;
        let max = Share { requests: limits.requests_per_connection, bytes: limits.bytes_per_connection };
        let own = Share { requests: limits.own_requests, bytes: limits.own_bytes };
        Load::new(max, own, &self.pool)
    }

    /// Whether no connection is taken any more. Clients that have left, while what they asked for is still under way, hold a place of
    /// their own: a member that does not answer must not keep out those who want something of another.
    fn is_full(&self) -> bool {
        let peers = self.peers.borrow();
        let left = peers.values().filter(|p| p.phase.get() == Phase::Ending).count();
        let limit = self.limits.connections;
        peers.len() - left >= limit || left >= LEFT_PER_CONNECTION.saturating_mul(limit)
    }

    fn warn(&self, words: &str) {
        if let Some(warn) = &*self.warn.borrow() {
            warn(words);
        }
    }
}

impl<R: Runtime, B: Backend> Server<R, B> {
    /// A server of these exports. The names should differ; of two equal ones the first is served.
    pub fn new(runtime: R, exports: Vec<Export<B>>, limits: Limits) -> Server<R, B> {
        let pool = Pool::new(limits.requests, limits.bytes);
        Server(Rc::new(Shared {
            runtime,
            exports: RefCell::new(exports.into_iter().map(Rc::new).collect()),
            limits,
            pool,
            watching: Cell::new(false),
            warn: RefCell::default(),
            counters: Counters::default(),
            peers: RefCell::default(),
            stopping: Cell::new(false),
            idle_workers: Rc::default(),
            ended: Signal::default(),
        }))
    }

    /// Serves a connection in tasks of its own, and returns at once. `peer` names it in `status`. If there are too many
    /// connections, or the server is stopping, it is closed.
    pub fn serve(&self, conn: impl Conn, peer: String) {
        let shared = &self.0;
        if shared.stopping.get() || shared.is_full() {
            if add_one(&shared.counters.turned_away) == 0 && !shared.stopping.get() {
                shared.warn("a client is turned away, because there are too many connections; `status` lists them, and counts those");
            }
            conn.close();
            return;
        }
        let id = add_one(&shared.counters.accepted);
        let closer = conn.clone();
        let close = Box::new(move || closer.close());
        let peer = Rc::new(Peer::new(id, peer, shared.runtime.now(), shared.load(), close));
        shared.peers.borrow_mut().insert(id, peer.clone());
        let shared = shared.clone();
        self.0.runtime.spawn(async move {
            let choosing = handshake::negotiate(&shared, &conn, &peer);
            let chosen = timeout(&shared.runtime, shared.limits.handshake, choosing).await;
            if let Some(chosen) = chosen.flatten() {
                transmission::run(&shared, conn.clone(), peer.clone(), chosen).await;
            }
            conn.close();
            shared.peers.borrow_mut().remove(&peer.id);
            shared.ended.notify();
        });
    }

    /// Says to `warn` what people should know.
    pub fn warn_by(&self, warn: impl Fn(&str) + 'static) {
        *self.0.warn.borrow_mut() = Some(Box::new(warn));
    }

    /// Orderly stop: takes no more connections and requests, answers what was taken, ends the streams. Returns when
    /// every connection has ended; those that linger longer than the grace time are cut off.
    pub async fn stop(&self) {
        let shared = &self.0;
        shared.stopping.set(true);
        for peer in shared.peers.borrow().values() {
            peer.begin_stop();
        }
        let all_ended = || shared.peers.borrow().is_empty();
        if timeout(&shared.runtime, shared.limits.grace, shared.ended.wait_until(all_ended)).await.is_some() {
            return;
        }
        let lingering: Vec<Rc<Peer>> = shared.peers.borrow().values().cloned().collect();
        for peer in lingering {
            peer.close();
        }
        shared.ended.wait_until(all_ended).await;
    }

    /// Serves one more export from now on.
    pub fn add_export(&self, export: Export<B>) {
        self.0.exports.borrow_mut().push(Rc::new(export));
    }

    /// Gives an export another name; connections to it go on.
    pub fn rename_export(&self, uuid: &Uuid, new: &str) {
        let peers = self.peers_of(uuid);
        for e in self.0.exports.borrow_mut().iter_mut().filter(|e| e.uuid == *uuid) {
            *e = Rc::new(Export { name: new.to_owned(), ..Export::clone(e) });
        }
        for peer in peers {
            *peer.export.borrow_mut() = Some(new.to_owned());
        }
    }

    /// Serves an export no longer: new clients do not find it, and the connections to it are ended as at a stop.
    pub async fn remove_export(&self, uuid: &Uuid) {
        let shared = &self.0;
        let peers = self.peers_of(uuid);
        shared.exports.borrow_mut().retain(|e| e.uuid != *uuid);
        peers.iter().for_each(|p| p.begin_stop());
        let ended = || peers.iter().all(|p| !shared.peers.borrow().contains_key(&p.id));
        if timeout(&shared.runtime, shared.limits.grace, shared.ended.wait_until(ended)).await.is_none() {
            peers.iter().for_each(|p| p.close());
            shared.ended.wait_until(ended).await;
        }
    }

    /// Connections to an export.
    pub fn connections_to(&self, uuid: &Uuid) -> usize {
        self.peers_of(uuid).len()
    }

    fn peers_of(&self, uuid: &Uuid) -> Vec<Rc<Peer>> {
        let exports = self.0.exports.borrow();
        let name = exports.iter().find(|e| e.uuid == *uuid).map(|e| e.name.as_str());
        let peers = self.0.peers.borrow();
        peers.values().filter(|p| name.is_some() && p.export.borrow().as_deref() == name).cloned().collect()
    }

    /// The state of the server.
    pub fn status(&self) -> ServerStatus {
        let shared = &self.0;
        let now = shared.runtime.now();
        ServerStatus {
            connections: shared.peers.borrow().values().map(|p| p.status(now)).collect(),
            accepted: shared.counters.accepted.get(),
            turned_away: shared.counters.turned_away.get(),
            refused: shared.counters.refused.get(),
            cut_off: shared.counters.cut_off.get(),
            requests: shared.counters.requests.borrow().clone(),
            stopping: shared.stopping.get(),
        }
    }

    /// Requests in flight on all connections, and the bytes of their payloads.
    pub fn in_flight(&self) -> (usize, u64) {
        let peers = self.0.peers.borrow();
        peers.values().fold((0, 0), |(n, bytes), p| (n + p.load.requests(), bytes + p.load.bytes()))
    }

    /// Connections that are there now.
    pub fn connections(&self) -> usize {
        self.0.peers.borrow().len()
    }
}

//! Waiting for room, and clients that keep others from theirs.
//!
//! 1. A reader that waits for shared room ends the wait when its client hangs up, its connection is closed or the server
//!    stops; it then stands in nobody's way.
//! 2. Shared room is in the hands of a client while that has to read answers or send a payload. One that takes very long
//!    for it, while another waits, is cut off. The other has its own room meanwhile (`load`), which is enough for requests
//!    of the usual size; the time is long, since a slow network is no fault.

use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::env::Instant;

use crate::conn::Conn;
use crate::runtime::Runtime;

use super::peer::Peer;
use super::transmission::Session;
use super::{add_one, Shared};
use crate::load::Share;

/// What came of asking for room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Taken,
    /// The server stops, or serves the export no longer. Room for a refusal was taken.
    Stopping,
    /// The client has gone, or was cut off.
    Gone,
}

/// Clients are looked at so often while somebody waits for room.
const LOOK: Duration = Duration::from_secs(1);
/// Whoever waits this long may have others cut off.
const PATIENCE: Duration = Duration::from_secs(10);
/// A client may take so long for one send or receive, and a second more for each MiB that it occupies.
const TURN: Duration = Duration::from_secs(30);

fn turn(bytes: u64) -> Duration {
    TURN + Duration::from_secs(bytes >> 20)
}

impl<R: Runtime, B: Backend> Session<R, B> {
    /// Takes room for a request, waiting for it if need be.
    pub(super) async fn take_room<C: Conn>(&self, conn: &C, share: Share) -> Room {
        if self.peer.load.try_take(share) {
            return Room::Taken;
        }
        self.wait_for_room(conn, share).await
    }

    async fn wait_for_room<C: Conn>(&self, conn: &C, share: Share) -> Room {
        let Peer { id, load, stopping, .. } = &*self.peer;
        // What the client has sent is still taken when it has hung up; but nobody waits for its long zeroings in that case.
        if !self.peer.minding(conn, load.wait_below_limit(share)).await {
            return Room::Gone;
        }
        if load.try_take(share) {
            return Room::Taken;
        }
        watch(&self.shared);
        let mut taking = pin!(load.take(share, *id, self.shared.runtime.now(), || stopping.get()));
        let taken = poll_fn(|cx| match taking.as_mut().poll(cx) {
            Poll::Ready(taken) => Poll::Ready(Some(taken)),
            Poll::Pending if self.peer.gone.get() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        match self.peer.minding(conn, taken).await {
            Some(true) => Room::Taken,
            Some(false) if stopping.get() && !load.is_closed() => {
                load.take_anyway(Share::of(0));
                Room::Stopping
            }
            _ => Room::Gone,
        }
    }
}

/// Looks after the clients for as long as somebody waits for room.
fn watch<R: Runtime, B: Backend>(shared: &Rc<Shared<R, B>>) {
    if shared.watching.replace(true) {
        return;
    }
    let (runtime, server) = (shared.runtime.clone(), Rc::downgrade(shared));
    shared.runtime.spawn(async move {
        loop {
            runtime.sleep(LOOK).await;
            let Some(shared) = server.upgrade() else { return };
            let Some((waiter, since)) = shared.pool.first_waiter() else {
                return shared.watching.set(false);
            };
            cut_off_slow(&shared, waiter, since);
        }
    });
}

/// Cuts off who takes too long while `waiter` waits for shared room.
fn cut_off_slow<R, B>(shared: &Shared<R, B>, waiter: u64, since: Instant)
where
    R: Runtime,
{
    let now = shared.runtime.now();
    // All are looked at, to know how long each takes for what it does now.
    let slow = |p: &&Rc<Peer>| p.turn_took(now) >= turn(p.load.bytes());
    let slow: Vec<Rc<Peer>> = shared.peers.borrow().values().filter(slow).cloned().collect();
    if now.since(since) < PATIENCE {
        return;
    }
    for peer in slow.iter().filter(|p| p.id != waiter && p.load.is_beyond_its_own() && !p.load.is_closed()) {
        add_one(&shared.counters.cut_off);
        shared.warn(&peer.words_of_cut_off(now));
        peer.close();
    }
}

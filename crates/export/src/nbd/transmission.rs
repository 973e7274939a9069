//! The transmission phase of one connection: the reader, the sender, and their end.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bimetal_nbd::consts::{cmd, errno, MAX_PAYLOAD};
use bimetal_nbd::request::{Request, StatusFilter};
use bimetal_volume::backend::Backend;
use bimetal_volume::buf::{Buf, BufMut};

use crate::conn::Conn;
use crate::runtime::{timeout, Runtime};
use crate::signal::Signal;
use crate::stats::Phase;

use super::execute::Work;
use super::handshake::Chosen;
use super::outbox::Outbox;
use super::peer::Peer;
use super::receiver::Receiver;
use super::room::Room;
use super::validate::{refuse, validate, Op, Refusal, Terms};
use super::workers::{hand_over, Workers};
use super::{add_one, Shared};
use crate::load::Share;

/// How long a client may take to hang up after its stream was ended, before it is cut off.
const HANG_UP: Duration = Duration::from_secs(1);

/// What the tasks of a connection share.
pub(super) struct Session<R, B> {
    pub(super) shared: Rc<Shared<R, B>>,
    pub(super) peer: Rc<Peer>,
    pub(super) backend: B,
    pub(super) terms: Terms,
    pub(super) outbox: Outbox,
    pub(super) workers: Workers,
    /// How many had come to the export when this client did, itself included.
    arrivals: u64,
    /// Whether nobody else was there then.
    came_alone: bool,
    sender_ended: Cell<bool>,
    reader_ended: Cell<bool>,
    ended: Signal,
}

impl<R: Runtime, B: Backend> Session<R, B> {
    /// Whether a write is to go on. Of a client that is dead it is not: where it waited, the next client may have written, and may
    /// have been told that this is durable. One that took its leave wants it carried out.
    pub(super) fn waits_for_writes(&self) -> bool {
        (!self.peer.gone.get() || self.peer.took_leave.get()) && self.has_its_way()
    }

    /// The same for work that may take hours.
    pub(super) fn waits_for_long_work(&self) -> bool {
        self.peer.waits_for_long_work() && self.has_its_way()
    }

    /// Whether nobody can have written in the place of this client. Once it sends no more it may be gone, which cannot always be
    /// seen: from then on it has its way only until somebody else comes. The kernel's client takes its leave, too, when it is
    /// detached from what hangs, and has failed all by then. Without a leave it must have been alone as well: of what one of its
    /// connections has not answered that client asks another, which may have been there before.
    fn has_its_way(&self) -> bool {
        let nobody_came = self.backend.arrivals() == self.arrivals;
        match self.peer.took_leave.get() {
            true => nobody_came,
            false => !self.peer.half_closed.get() || self.came_alone && nobody_came,
        }
    }

    /// Gives back what a request occupied.
    pub(super) fn give_back(&self, share: Share) {
        if share != Share::default() {
            self.peer.load.give_back(share);
        }
    }
}

/// Serves requests until the client leaves, breaks the protocol, or the server stops. Everything taken is answered
/// before this returns.
pub(super) async fn run<R: Runtime, B: Backend, C: Conn>(
    shared: &Rc<Shared<R, B>>,
    conn: C,
    peer: Rc<Peer>,
    chosen: Chosen<B, C>,
) {
    let session = Rc::new(Session {
        shared: shared.clone(),
        came_alone: chosen.export.backend.present() == 0,
        arrivals: chosen.export.backend.arrive(),
        backend: chosen.export.backend.clone(),
        terms: chosen.terms,
        peer,
        outbox: Outbox::default(),
        workers: Workers::new(&shared.idle_workers),
        sender_ended: Cell::new(false),
        reader_ended: Cell::new(false),
        ended: Signal::default(),
    });
    session.peer.phase.set(Phase::Transmission);
    shared.runtime.spawn(send_answers(session.clone(), conn.clone()));
    shared.runtime.spawn(end_at_stop(session.clone(), conn.clone()));
    // Whatever ended the stream, an error or the client's wish, what was taken is still answered.
    let ended = session.peer.noticing_its_end(&conn, read_requests(&session, &conn, chosen.receiver)).await;
    session.peer.phase.set(Phase::Ending);
    match ended {
        Ok(()) => {}
        // Whether it still waits for its answers is not known.
        Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => session.peer.half_closed.set(true),
        Err(_) => session.peer.gone.set(true),
    }
    session.peer.minding(&conn, session.peer.load.wait_until_idle()).await;
    session.workers.end();
    session.outbox.finish();
    session.reader_ended.set(true);
    session.ended.notify();
    // Lets `end_at_stop` go.
    session.peer.stop_begun.notify();
    session.ended.wait_until(|| session.sender_ended.get()).await;
    session.backend.depart();
}

/// The reader: takes requests off the stream as long as there is room for them.
async fn read_requests<R: Runtime, B: Backend, C: Conn>(
    session: &Rc<Session<R, B>>,
    conn: &C,
    mut receiver: Receiver<C>,
) -> io::Result<()> {
    let style = session.terms.style;
    loop {
        receiver.fill(style.request_size()).await?;
        let Ok(request) = Request::decode(style, receiver.bytes()) else {
            // The stream is out of step; nothing that follows can be understood.
            return Ok(());
        };
        receiver.consume(style.request_size());
        if request.command == cmd::DISC {
            session.peer.took_leave.set(true);
            return Ok(());
        }
        let payload_len = request.payload_len(style);
        if payload_len > MAX_PAYLOAD.into() {
            return Ok(());
        }
        if !take_request(session, conn, &mut receiver, request, payload_len).await? {
            return Ok(());
        }
    }
}

/// Takes one request, with its payload. False if there was no room for it before the connection ended.
async fn take_request<R: Runtime, B: Backend, C: Conn>(
    session: &Rc<Session<R, B>>,
    conn: &C,
    receiver: &mut Receiver<C>,
    request: Request,
    payload_len: u64,
) -> io::Result<bool> {
    let stopping = || refuse(errno::ESHUTDOWN, "the server is stopping");
    let mut checked = validate(&request, &session.terms);
    let mut share = Share::of(checked.as_ref().map_or(0, Op::memory).max(payload_len));
    match session.take_room(conn, share).await {
        Room::Taken => {}
        Room::Stopping => (checked, share) = (stopping(), Share::of(0)),
        Room::Gone => return Ok(false),
    }
    let received = match payload_len {
        0 => Ok(None),
        _ => receive_payload(session, receiver, &request, payload_len, checked.is_ok()).await,
    };
    let payload = match received {
        Ok(payload) => payload,
        Err(e) => {
            session.give_back(share);
            return Err(e);
        }
    };
    if session.peer.stopping.get() {
        checked = stopping();
    }
    match checked.and_then(|op| with_filter(session, &request, op, payload.as_ref())) {
        Ok((op, filter)) => {
            let began = session.shared.runtime.now();
            let work = Work { request, op, share, payload, filter, began };
            hand_over(session, work);
        }
        Err(refusal) => {
            add_one(&session.shared.counters.refused);
            session.answer_refused(&request, share, refusal);
        }
    }
    Ok(true)
}

/// Receives a payload, or only skips it.
async fn receive_payload<R: Runtime, B: Backend, C: Conn>(
    session: &Session<R, B>,
    receiver: &mut Receiver<C>,
    request: &Request,
    len: u64,
    wanted: bool,
) -> io::Result<Option<Buf>> {
    session.peer.receiving.begin();
    let received = match wanted {
        true => receiver.take(BufMut::with_phase(len as usize, request.offset)).await.map(Some),
        false => receiver.skip(len).await.map(|()| None),
    };
    session.peer.receiving.end();
    Ok(received?.map(BufMut::freeze))
}

/// Checks the payload of a BLOCK_STATUS that names the contexts it wants, and fills in what only the payload says.
fn with_filter<R: Runtime, B: Backend>(
    session: &Session<R, B>,
    request: &Request,
    op: Op,
    payload: Option<&Buf>,
) -> Result<(Op, Option<StatusFilter>), Refusal> {
    let Op::BlockStatus { one_extent, filtered: true, .. } = op else { return Ok((op, None)) };
    let filter = payload.and_then(|p| StatusFilter::decode(p).ok());
    let Some(filter) = filter else { return refuse(errno::EINVAL, "the list of contexts is malformed") };
    let known = |id: &u32| session.terms.contexts.iter().any(|c| c.id() == *id);
    let doubled = |(i, id): (usize, &u32)| filter.ids[..i].contains(id);
    if filter.ids.is_empty() || !filter.ids.iter().all(known) || filter.ids.iter().enumerate().any(doubled) {
        return refuse(errno::EINVAL, "a context that was not negotiated, none, or one twice");
    }
    let inner =
        Request { len: filter.len, flags: request.flags & !bimetal_nbd::consts::cmd_flag::PAYLOAD_LEN, ..*request };
    match validate(&inner, &session.terms)? {
        Op::BlockStatus { offset, len, .. } => {
            Ok((Op::BlockStatus { offset, len, one_extent, filtered: true }, Some(filter)))
        }
        _ => refuse(errno::EINVAL, "the status of no bytes"),
    }
}

/// The sender: everything that has gathered leaves together; never two sends at a time.
async fn send_answers<R: Runtime, B: Backend, C: Conn>(session: Rc<Session<R, B>>, conn: C) {
    while let Some(batch) = session.outbox.next().await {
        session.peer.sending.begin();
        let (parts, result) = conn.send(batch.parts).await;
        session.peer.sending.end();
        session.outbox.recycle(parts);
        if result.is_err() {
            session.give_back(session.outbox.kill());
            session.peer.gone.set(true);
            // Wakes the reader.
            session.peer.close();
        }
        session.give_back(batch.share);
    }
    session.sender_ended.set(true);
    session.ended.notify();
}

/// When the server stops: waits until what was taken is answered, ends the stream, and gives the client a moment to
/// hang up. Closing at once could destroy answers that it has not read yet.
async fn end_at_stop<R: Runtime, B: Backend, C: Conn>(session: Rc<Session<R, B>>, conn: C) {
    let peer = &session.peer;
    peer.stop_begun.wait_until(|| peer.stopping.get() || session.reader_ended.get()).await;
    if session.reader_ended.get() {
        return;
    }
    peer.load.wait_until_idle().await;
    conn.end_sending();
    let hung_up = session.ended.wait_until(|| session.reader_ended.get());
    let _ = timeout(&session.shared.runtime, HANG_UP, hung_up).await;
    peer.close();
}

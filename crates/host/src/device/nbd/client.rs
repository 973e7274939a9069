//! The transmission phase: requests out, answers in ([`receive`]).
//!
//! What changes the member is *bound* to its lease: it waits in a queue of its own, and is begun only while the lease is fresh. The
//! process may stand still anywhere, or the way to the server be cut, for instance between a write's first byte and its last, and
//! somebody else have the member when it goes on: before every piece that the kernel takes it is asked whether that can be. No look can
//! be sent in the middle of a write, so what is begun may be finished for a little longer, as long as nobody can have the member. The
//! kernel asks nobody: what it has taken it sends when the way is good again. So a connection on which it may still have something bound
//! by then is given up, and that dropped. One on which only looks and reads wait stays: they do no harm, however late.
//! Requests in flight have no order among each other, and a FLUSH is only owed for writes that were answered, so what is not bound may
//! overtake. What is read, or made durable, is believed only if nobody else can have had the member by then: an answer that is looked at
//! later waits for a look.

mod receive;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bimetal_nbd::consts::cmd;
use bimetal_nbd::request::{HeaderStyle, Request};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Answering, DeviceError, Env, Instant};

use super::super::waits::answering;
use super::covered::Covered;
use super::input::Input;
use super::lease::Held;
use super::patience::{Broken, Patience};
use crate::net::{Part, Sent, Stream, Unsent, Way};
use crate::reactor::clock::BootInstant;
use crate::reactor::HostEnv;

/// Bound requests are sent as one up to the first with which they are so many bytes: between two of them a look has its turn.
const BATCH: usize = 1 << 20;

/// Whether a request may be sent, or its answer be believed, without the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// It is what a holder becomes one by; or it changes nothing, and is only sent.
    Nothing,
    Lease,
}

/// One connection.
pub(super) struct Client {
    env: HostEnv,
    stream: Stream,
    style: HeaderStyle,
    pending: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    /// What is to be sent next, in order.
    outgoing: RefCell<Vec<Part>>,
    /// The same of what only the holder of the lease may send.
    bound: RefCell<VecDeque<Part>>,
    /// How many bytes the kernel has been given, in all...
    handed: Cell<u64>,
    /// ... and up to the end of the last of what is bound.
    handed_bound: Cell<u64>,
    /// Of a device that was opened to be served.
    pub(super) lease: OnceCell<Held>,
    /// Who has an answer, and waits for a look at the lease.
    await_look: RefCell<Vec<Waker>>,
    sending: Cell<bool>,
    patience: Patience,
    /// When the last whole answer came, if one has.
    answered: Cell<Option<Instant>>,
    /// A task looks whether the server is silent for too long.
    watched: Cell<bool>,
    /// Why the connection is of no use any more, once it is not.
    lost: OnceCell<String>,
    ending: Cell<bool>,
}

/// A place for a request; its number and turn make the cookie, so that a late answer hits nobody else.
#[derive(Default)]
struct Slot {
    turn: u32,
    request: Option<Pending>,
}

/// A request that was sent.
struct Pending {
    command: u16,
    since: Instant,
    /// Where a read goes: the buffer, and the part of it that is asked for.
    target: Option<(BufMut, Range<usize>)>,
    offset: u64,
    /// What of a read has arrived in chunks.
    arrived: Covered,
    /// The first error a chunk told of.
    error: Option<DeviceError>,
    done: Option<Result<(), DeviceError>>,
    waker: Option<Waker>,
    /// Nobody waits any more; the answer only frees the slot.
    abandoned: bool,
}

impl Client {
    pub(super) fn start(
        env: &HostEnv,
        stream: Stream,
        input: Input,
        style: HeaderStyle,
        patience: Patience,
    ) -> Rc<Client> {
        let client = Rc::new(Client {
            env: env.clone(),
            stream,
            style,
            pending: RefCell::default(),
            free: RefCell::default(),
            outgoing: RefCell::default(),
            bound: RefCell::default(),
            handed: Cell::default(),
            handed_bound: Cell::default(),
            lease: OnceCell::new(),
            await_look: RefCell::default(),
            sending: Cell::new(false),
            patience,
            answered: Cell::default(),
            watched: Cell::new(false),
            lost: OnceCell::new(),
            ending: Cell::new(false),
        });
        let receiver = client.clone();
        env.spawn(async move {
            let Err(why) = receiver.receive(input).await;
            receiver.lose(&why);
        });
        client
    }

    /// Reads into `buf[range]`.
    pub(super) async fn read(
        self: &Rc<Self>,
        needs: Needs,
        offset: u64,
        buf: BufMut,
        range: Range<usize>,
    ) -> (BufMut, Result<(), DeviceError>) {
        if self.is_lost() {
            return (buf, Err(DeviceError::Disconnected));
        }
        let (len, size) = (range.len() as u64, buf.len());
        let waiting = self.begin(Needs::Nothing, cmd::READ, offset, len, Some((buf, range)), None);
        let (target, result) = waiting.finish().await;
        let result = self.vouched_for(needs, result).await;
        // After a loss the buffer may still be where the receiver writes to; the caller gets another of its size.
        (target.unwrap_or_else(|| BufMut::new(size)), result)
    }

    /// Writes `data`.
    pub(super) async fn write(self: &Rc<Self>, needs: Needs, offset: u64, data: Buf) -> Result<(), DeviceError> {
        if self.is_lost() {
            return Err(DeviceError::Disconnected);
        }
        self.begin(needs, cmd::WRITE, offset, data.len() as u64, None, Some(data)).finish().await.1
    }

    /// A request that carries nothing either way.
    pub(super) async fn simple(self: &Rc<Self>, command: u16, offset: u64, len: u64) -> Result<(), DeviceError> {
        if self.is_lost() {
            return Err(DeviceError::Disconnected);
        }
        let needs = if command == cmd::TRIM { Needs::Lease } else { Needs::Nothing };
        let result = self.begin(needs, command, offset, len, None, None).finish().await.1;
        self.vouched_for(Needs::Lease, result).await
    }

    /// What an answer is worth: a success only if nobody else can have had the member by now. Where that is not known, because this
    /// process or the server stood still, a look has to find it.
    async fn vouched_for(&self, needs: Needs, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        let answered = BootInstant::now();
        let Some(held) = self.lease.get().filter(|_| needs == Needs::Lease && result.is_ok()) else { return result };
        poll_fn(|cx| {
            if self.is_lost() {
                return Poll::Ready(Err(DeviceError::Disconnected));
            }
            if held.may_finish(answered) {
                return Poll::Ready(Ok(()));
            }
            self.await_look.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Somebody has looked at the lease: what waits for that goes on, if it may.
    pub(super) fn looked(self: &Rc<Self>) {
        self.wake_answers();
        self.go_on();
    }

    fn wake_answers(&self) {
        self.await_look.take().into_iter().for_each(Waker::wake);
    }

    /// Says farewell; what is in flight is lost.
    pub(super) fn disconnect(self: &Rc<Self>) {
        self.ending.set(true);
        if !self.is_lost() {
            if !self.waits() {
                // Nothing but the farewell can be unsent; an error costs the server a line of its log.
                let _ = self.stream.set_unsent(Unsent::Sent);
            }
            self.queue(Needs::Nothing, Request { flags: 0, command: cmd::DISC, cookie: 0, offset: 0, len: 0 }, None);
        }
    }

    fn begin(
        self: &Rc<Self>,
        needs: Needs,
        command: u16,
        offset: u64,
        len: u64,
        target: Option<(BufMut, Range<usize>)>,
        data: Option<Buf>,
    ) -> Waiting {
        let arrived = Covered::default();
        let request = Pending {
            command,
            since: self.env.now(),
            target,
            offset,
            arrived,
            error: None,
            done: None,
            waker: None,
            abandoned: false,
        };
        let mut pending = self.pending.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            pending.push(Slot::default());
            pending.len() - 1
        });
        let slot = &mut pending[index];
        slot.turn = slot.turn.wrapping_add(1);
        slot.request = Some(request);
        let cookie = u64::from(slot.turn) << 32 | index as u64;
        drop(pending);
        self.watch();
        self.queue(needs, Request { flags: 0, command, cookie, offset, len }, data);
        Waiting { client: self.clone(), index }
    }

    fn queue(self: &Rc<Self>, needs: Needs, request: Request, data: Option<Buf>) {
        // Compact headers hold 32 bits of length, and no request here is longer.
        let encode = |head: &mut Vec<u8>| request.encode(self.style, head).expect("requests are split below 4 GiB");
        match needs {
            Needs::Nothing => {
                let mut outgoing = self.outgoing.borrow_mut();
                // Heads that follow one another are sent as one piece.
                if !matches!(outgoing.last(), Some(Part::Bytes(_))) {
                    outgoing.push(Part::Bytes(Vec::with_capacity(64)));
                }
                let Some(Part::Bytes(head)) = outgoing.last_mut() else { unreachable!("just pushed") };
                encode(head);
                outgoing.extend(data.map(Part::Buf));
            }
            Needs::Lease => {
                let mut head = Vec::with_capacity(64);
                encode(&mut head);
                let mut bound = self.bound.borrow_mut();
                bound.push_back(Part::Bytes(head));
                bound.extend(data.map(Part::Buf));
            }
        }
        self.go_on();
    }

    /// Sees to it that what is queued is sent as far as it may be.
    fn go_on(self: &Rc<Self>) {
        if !self.sending.replace(true) {
            let client = self.clone();
            self.env.spawn(async move { client.send().await });
        }
    }

    /// Sends what is queued until nothing is that may be sent.
    async fn send(&self) {
        let mut spare = Vec::new();
        while !self.is_lost() {
            let parts = std::mem::replace(&mut *self.outgoing.borrow_mut(), std::mem::take(&mut spare));
            if !parts.is_empty() {
                let bytes = total(&parts);
                let result;
                (spare, result) = self.stream.send(parts).await;
                spare.clear();
                match result {
                    Ok(()) => self.handed.set(self.handed.get() + bytes),
                    Err(error) => self.lose(&error.into()),
                }
            }
            // After the farewell nothing is said.
            let sent = !self.ending.get() && self.send_bound().await;
            if !sent && self.outgoing.borrow().is_empty() {
                break;
            }
        }
        self.sending.set(false);
        if self.ending.get() {
            // An error means that the connection has ended already.
            let _ = self.stream.shutdown(Way::Both);
        }
    }

    /// Whether a request was sent that has no answer.
    fn waits(&self) -> bool {
        self.pending.borrow().iter().filter_map(|s| s.request.as_ref()).any(|r| r.done.is_none())
    }

    /// Sends some of what is bound to the lease; false if nothing can be.
    async fn send_bound(&self) -> bool {
        let fresh = || self.lease.get().is_none_or(|held| held.is_fresh(BootInstant::now()));
        let parts = if fresh() { self.next_bound() } else { Vec::new() };
        if parts.is_empty() {
            return false;
        }
        let begun = || self.lease.get().is_none_or(|held| held.may_finish(BootInstant::now()));
        let may = |is_begun: bool| if is_begun { begun() } else { fresh() };
        let bytes = total(&parts);
        let (parts, sent) = self.stream.send_while(parts, may).await;
        match sent {
            Sent::All => {
                self.handed.set(self.handed.get() + bytes);
                self.handed_bound.set(self.handed.get());
                return true;
            }
            // A connection that was lost meanwhile has no queue.
            Sent::Nothing if !self.is_lost() => {
                let mut bound = self.bound.borrow_mut();
                parts.into_iter().rev().for_each(|part| bound.push_front(part));
            }
            Sent::Nothing => {}
            Sent::Part => self.lose(&Broken::HalfSent),
            Sent::Failed(error) => self.lose(&error.into()),
        }
        false
    }

    /// Nobody may wait any longer for what is bound to arrive. Gives the connection up if some of it may still have to. What is half
    /// given to the kernel is not counted, which errs on the safe side; if it is bound, that send ends the connection itself.
    pub(super) fn drop_late(&self) {
        let arrived = self.handed.get().saturating_sub(self.stream.unacknowledged());
        if arrived < self.handed_bound.get() {
            self.lose(&Broken::Unsent);
        }
    }

    #[cfg(test)]
    pub(super) fn unacknowledged(&self) -> u64 {
        self.stream.unacknowledged()
    }

    /// The first whole requests among the bound ones: one, or as many as make a batch.
    fn next_bound(&self) -> Vec<Part> {
        let mut bound = self.bound.borrow_mut();
        let mut bytes = 0;
        let whole = bound.iter().position(|part| {
            let full = bytes >= BATCH && matches!(part, Part::Bytes(_));
            bytes += part.len();
            full
        });
        let count = whole.unwrap_or(bound.len());
        bound.drain(..count).collect()
    }

    /// Whether nothing can be asked any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_lost() || self.ending.get()
    }

    /// Why every request fails from now on, if so.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// How the server answers.
    pub(super) fn answering(&self) -> Answering {
        let pending = self.pending.borrow();
        let open = pending.iter().filter_map(|s| s.request.as_ref()).filter(|r| r.done.is_none());
        let answered = self.answered.get().unwrap_or_default();
        Answering { lost: self.lost().map(str::to_owned), ..answering(open.map(|r| r.since), answered) }
    }

    /// Sees to it that a server which is silent for too long is given up, as long as something waits for it.
    fn watch(self: &Rc<Self>) {
        if self.watched.replace(true) {
            return;
        }
        let (client, env) = (Rc::downgrade(self), self.env.clone());
        self.env.spawn(async move {
            let mut was_due = false;
            while let Some(sleep) = client.upgrade().and_then(|c| c.look(&mut was_due)) {
                env.sleep(sleep).await;
            }
        });
    }

    /// Gives the server up if it is due for the second time; else after what time to look again, if anything waits.
    fn look(&self, was_due: &mut bool) -> Option<Duration> {
        let (answering, has_answered) = (self.answering(), self.answered.get().is_some());
        let due = self.patience.due(&answering, has_answered).filter(|_| !self.is_lost());
        let Some(due) = due else {
            self.watched.set(false);
            return None;
        };
        let now = self.env.now();
        if now < due {
            *was_due = false;
            return Some(due.since(now));
        }
        if !std::mem::replace(was_due, true) {
            return Some(self.patience.grace());
        }
        self.lose(&Broken::Silent { command: self.oldest_command(), silent: self.patience.limit(has_answered) });
        None
    }

    /// What was asked first, of what waits.
    fn oldest_command(&self) -> u16 {
        let pending = self.pending.borrow();
        let open = pending.iter().filter_map(|s| s.request.as_ref()).filter(|r| r.done.is_none());
        open.min_by_key(|r| r.since).map_or(cmd::READ, |r| r.command)
    }

    /// The connection is of no use any more: fails everything in flight, and all that follows. What the kernel has not sent by now is not
    /// sent: who has the member next, this very process for one, may have written there by the time the way to the server is good again.
    pub(super) fn lose(&self, why: &Broken) {
        // What ends a connection first is the reason; the rest follows from it.
        let _known = self.lost.set(why.to_string());
        self.outgoing.borrow_mut().clear();
        self.bound.borrow_mut().clear();
        self.stream.abort();
        let slots = self.pending.borrow().len();
        for index in 0..slots {
            self.complete(index, Err(DeviceError::Disconnected));
        }
        self.wake_answers();
    }

    /// The whole answer of a request is there.
    fn answer(&self, index: usize, result: Result<(), DeviceError>) {
        self.answered.set(Some(self.env.now()));
        self.complete(index, result);
    }

    fn complete(&self, index: usize, result: Result<(), DeviceError>) {
        let mut pending = self.pending.borrow_mut();
        let Some(request) = &mut pending[index].request else { return };
        if request.abandoned {
            pending[index].request = None;
            self.free.borrow_mut().push(index);
            return;
        }
        if request.done.is_none() {
            request.done = Some(result);
            if let Some(waker) = request.waker.take() {
                waker.wake();
            }
        }
    }
}

fn total(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Someone who waits for an answer.
struct Waiting {
    client: Rc<Client>,
    index: usize,
}

impl Waiting {
    async fn finish(self) -> (Option<BufMut>, Result<(), DeviceError>) {
        let result = poll_fn(|cx| {
            let mut pending = self.client.pending.borrow_mut();
            let Some(request) = &mut pending[self.index].request else {
                return Poll::Ready(Err(DeviceError::Disconnected));
            };
            match request.done {
                Some(result) => Poll::Ready(result),
                None => {
                    request.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        let target = self.client.pending.borrow_mut()[self.index].request.as_mut().and_then(|r| r.target.take());
        (target.map(|(buf, _)| buf), result)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut pending = self.client.pending.borrow_mut();
        let Some(request) = &mut pending[self.index].request else { return };
        if request.done.is_some() {
            pending[self.index].request = None;
            self.client.free.borrow_mut().push(self.index);
        } else {
            request.abandoned = true;
        }
    }
}

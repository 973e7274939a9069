//! The lock of a member behind a server (FORMAT.md, "The lease"): no kernel keeps a second daemon away from it, whether on this
//! machine or on another, and two that serve one group destroy it. Whoever opens such a member where its file or block device is asks
//! the same holder ([`ask_here`]).
//!
//! Terms: the *holder* is who opened the member to serve it. It *looks* at the lease every two seconds; what it finds is its own, or a
//! *challenge*, another's.
//!
//! 1. Nothing is written to a device that bears no label: it may be anybody's. What becomes a member while it is open gets a lease
//!    then.
//! 2. A challenger waits longer ([`PATIENCE`]) than a holder may go on without having seen its own ([`TERM`]), and by more than a
//!    write may take. Of a member whose label is clean a holder can only be *starting*, or at its end: these have shorter times of their
//!    own, the one until the label is not clean any more, the other from before it sends the label that is. Whoever took it for clean
//!    looks again before the member is its.
//! 3. A holder writes and trims only while it has seen its own within its term; a daemon that was stopped and wakes asks first. That
//!    is asked when a write is begun to be sent. What is begun it finishes within [`FINISH`], which is less than a challenger's
//!    patience, asked before every piece that the kernel takes ([`Client`](super::client::Client)); else it gives the connection up. A
//!    machine's sleep counts: others do not sleep with it. A challenger's patience does not count its own: the holder may sleep with it.
//!    What the kernel has been given it sends whenever it can, for a quarter of an hour after the way to the server was cut: if some may
//!    be there yet after [`FINISH`], the connection is given up as well, and that dropped ([`end_in_time`]). One with nothing but looks
//!    and reads under way stays, so that an outage costs no member that nobody writes to.
//!    What it reads, and what it is told of a FLUSH, counts if it has seen its own within [`FINISH`] when the answer is there; else it
//!    waits for a look that finds it.
//! 4. A holder that finds a challenge takes the lease back if it has seen its own within its term, else it gives the member up for
//!    good: somebody may be writing there. What it takes back, and what it cannot read and writes anew, counts as seen if that succeeds
//!    within the term: whoever challenges has not waited long enough by then. Nobody challenges twice with one lease: who is found
//!    again after two answers holds the member, too, by whatever mistake, and the holder gives it up. So of two one stays; at once
//!    goes who had taken the other for gone, so that it is the first one that stays.
//!    A lease of one who still *asks* says so ([`Lease::asks`]): whatever has become of him, nobody knows from it whether the one before
//!    is gone, which may not have looked since. The outcome is waited for, as long as for an answer, before anybody else asks.
//! 5. Who only reads holds no lease. It asks as one does who opens the device itself, but names nobody, leaves a *mark*, and believes
//!    what it reads only if that was there less long ago than whoever takes a free lease waits ([`SETTLE`]), else it looks again
//!    ([`reader`]). Others who read leave the mark where it is. Who meets one who reads asks anew. Whoever comes to write takes the mark
//!    away and waits that long, also who opens the device itself: that one writes no lease, and without the mark no reader would ever
//!    hear of it.
//! 6. It may stand still between any two steps. What it has seen is as old as the look's beginning, the term counts at the end; and a
//!    lease that was taken back too late, from one who serves, is no sign before that one has had the time to take it back.

mod challenge;
mod held;
mod reader;
mod who;

use std::rc::Rc;
use std::time::Duration;

use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::{self, LABEL_A};
use bimetal_format::lease::Lease;
use bimetal_format::BLOCK;
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{DeviceError, Env};
use challenge::beside_readers;
pub(super) use challenge::{ask, challenge};
pub(super) use held::Held;
pub use reader::WRITER_CAME;
pub(super) use reader::{begin_to_read, Reader};
#[cfg(test)]
pub(super) use who::{held, is_gone_by, of_this_process};

use super::client::{Client, Needs};
use super::NbdDevice;
use crate::device::file::FileDevice;
use crate::device::OpenError;
use crate::reactor::clock::BootInstant;
use crate::reactor::HostEnv;

/// Tests do not have the time that networks need.
const SECOND: u64 = if cfg!(test) { 50 } else { 1000 };

/// Between two looks at the lease, and at a device that bears no label yet.
const LOOK: Duration = Duration::from_millis(2 * SECOND);
const LOOK_FOR_LABEL: Duration = Duration::from_millis(5 * SECOND);
/// How long a holder goes on without having seen its own lease, and how long one that is starting, or at its end.
const TERM: Duration = Duration::from_millis(10 * SECOND);
const TERM_OF_START: Duration = Duration::from_millis(3 * SECOND);
/// So long after it took its lease back whoever stood still meanwhile trusts in having it: another holder looks twice.
const COUNTED_AFTER: Duration = Duration::from_millis(4 * SECOND);
/// How long a challenger waits for the answer of each, and between its looks. Another machine takes a member over once in a while,
/// and a short outage is not to cost a connection: so it is long. The kernel tries again at ever longer intervals what was not
/// acknowledged, in a local network some 25 s after the first time and then some 51 s: what an outage of 25 s holds up is there in time.
const PATIENCE: Duration = Duration::from_millis(45 * SECOND);
const PATIENCE_WITH_START: Duration = Duration::from_millis(5 * SECOND);
const LOOK_FOR_ANSWER: Duration = Duration::from_millis(SECOND / 2);
/// So long whoever takes a lease that nobody holds waits for others who do the same. Who needs half of it to read and write the block
/// waits like a challenger.
const SETTLE: Duration = Duration::from_millis(if cfg!(test) { 40 } else { 500 });

/// So long after a holder has seen its own, and one that is starting, what it has begun to send may be finished: nobody can have the
/// member before a challenger's patience ends.
const FINISH: Duration = Duration::from_millis(43 * SECOND);
const FINISH_OF_START: Duration = Duration::from_millis(4 * SECOND);

/// What a lease lies on.
pub(super) trait Ground {
    fn size(&self) -> u64;
    async fn read(&self, offset: u64, buf: BufMut) -> (BufMut, Result<(), DeviceError>);
    /// Writes past [`Held::is_fresh`]: this is what a holder becomes one by.
    async fn put(&self, offset: u64, data: Buf) -> Result<(), DeviceError>;
}

impl Ground for NbdDevice {
    fn size(&self) -> u64 {
        NbdDevice::size(self)
    }

    async fn read(&self, offset: u64, buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        self.read_as(Needs::Nothing, offset, buf).await
    }

    async fn put(&self, offset: u64, data: Buf) -> Result<(), DeviceError> {
        self.handle.client.write(Needs::Nothing, offset, data).await
    }
}

impl Ground for FileDevice {
    fn size(&self) -> u64 {
        FileDevice::size(self)
    }

    async fn read(&self, offset: u64, buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        FileDevice::read(self, offset, buf).await
    }

    async fn put(&self, offset: u64, data: Buf) -> Result<(), DeviceError> {
        self.write(offset, data).await
    }
}

/// Why a lease was not taken, in words.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotTaken {
    /// Somebody has it.
    #[error("{0}")]
    InUse(String),
    /// Somebody only reads it, and says so in this moment.
    #[error("somebody who has begun to read it in this moment; try again")]
    Reader,
    #[error("the label cannot be read: {0}")]
    Label(DeviceError),
    #[error("the block that says who serves the member failed: {0}")]
    Block(DeviceError),
}

impl NotTaken {
    pub(super) fn of(self, locator: String) -> OpenError {
        match self {
            NotTaken::InUse(by) => OpenError::Held { locator, by },
            NotTaken::Reader => OpenError::Held { locator, by: self.to_string() },
            other => OpenError::Unread { locator, why: other.to_string() },
        }
    }
}

/// Takes the lease of a device that was opened to be served.
pub(super) async fn take(env: &HostEnv, device: &NbdDevice) -> Result<(), NotTaken> {
    let label = label_of(device).await.map_err(NotTaken::Label)?;
    let place = label.as_ref().and_then(|l| place_in(device, l));
    let mine = match place {
        None => Held::new(env, label.as_ref(), None),
        Some(place) => beside_readers(async || take_at(env, device, label.as_ref(), place).await).await?,
    };
    hold(env, device, mine);
    watch(env, device);
    Ok(())
}

async fn take_at(env: &HostEnv, device: &NbdDevice, label: Option<&Label>, place: u64) -> Result<Held, NotTaken> {
    let mine = Held::new(env, label, Some(place));
    let own = mine.own.get();
    let taken = challenge(env, device, &own, place).await?;
    mine.seen.set(taken.seen);
    mine.took_for_gone.set(taken.from_gone);
    // Should somebody have come since that look, one of the two finds the other's.
    write(device, place, &own).await.map_err(NotTaken::Block)?;
    Ok(mine)
}

/// From here on what the device is asked is bound to this lease.
pub(super) fn hold(env: &HostEnv, device: &NbdDevice, mine: Held) {
    // Nobody else has a handle yet.
    let _ = device.handle.client.lease.set(mine);
    end_in_time(env, device);
}

/// Asks who may serve, by a server, what was opened here to be served, as a challenger there does. Nobody is asked where nobody
/// was. A disk that sleeps is waited for: whoever has it through a server may read it from that one's memory
/// meanwhile. Labels that cannot be read are for others to say; of a block that can be neither read nor written a holder gives the
/// member up. The block is empty afterwards: the kernel's lock keeps others out here, and the next start has nobody to wait for.
pub(in crate::device) async fn ask_here(env: &HostEnv, device: &FileDevice) -> Result<(), OpenError> {
    ask(env, device).await.map_err(|e| e.of(device.path().display().to_string()))
}

/// Refuses what was opened here to be read only while somebody on this machine serves it by a server. Who may do so elsewhere cannot be
/// asked, for that takes a write.
pub(in crate::device) async fn look_here(env: &HostEnv, device: &FileDevice) -> Result<(), OpenError> {
    let label = label_of(device).await.ok().flatten();
    let Some(place) = label.and_then(|l| place_in(device, &l)) else { return Ok(()) };
    let asked = reader::known_to_serve(env, device, place).await;
    asked.map_err(|e| e.of(device.path().display().to_string()))
}

/// Looks at the lease until the device is closed or lost.
fn watch(env: &HostEnv, device: &NbdDevice) {
    let (env, handle) = (env.clone(), Rc::downgrade(&device.handle));
    env.clone().spawn(async move {
        let mut wait = Duration::ZERO;
        loop {
            env.sleep(wait).await;
            let Some(handle) = handle.upgrade().filter(|h| !h.client.is_over()) else { return };
            let device = NbdDevice { handle };
            let Some(held) = device.handle.client.lease.get() else { return };
            look(&device, held).await;
            wait = if held.place.get().is_some() { LOOK } else { LOOK_FOR_LABEL };
        }
    });
}

/// Sees to it, until the connection has ended, that nothing bound to the lease is sent by the kernel once somebody else may have the
/// member. How long that takes may change meanwhile, to [`FINISH_OF_START`] at least.
fn end_in_time(env: &HostEnv, device: &NbdDevice) {
    let (env, client) = (env.clone(), Rc::downgrade(&device.handle.client));
    env.clone().spawn(async move {
        while let Some(wait) = client.upgrade().and_then(|client| end_if_late(&client)) {
            env.sleep(wait).await;
        }
    });
}

/// After what time to look again, unless the connection has ended.
fn end_if_late(client: &Client) -> Option<Duration> {
    let (held, now) = (client.lease.get()?, BootInstant::now());
    if !held.may_finish(now) {
        client.drop_late();
    }
    let left = FINISH_OF_START.saturating_sub(now.since(held.seen.get()));
    (!client.is_lost()).then_some(left.max(LOOK_FOR_ANSWER))
}

/// Looks once; what waits for the lease goes on if it is there.
pub(super) async fn look(device: &NbdDevice, held: &Held) {
    match held.place.get() {
        Some(place) => look_at(device, held, place).await,
        None => begin(device, held).await,
    }
    device.handle.client.looked();
}

async fn look_at(device: &NbdDevice, held: &Held, place: u64) {
    let began = BootInstant::now();
    let own = held.own.get();
    if held.may_have_begun() && label_of(device).await.is_ok_and(|l| l.is_some_and(|l| !l.clean)) {
        held.has_begun();
    }
    let found = read(device, place).await;
    // It may have stood still since the look began.
    let in_term = held.is_within_term(BootInstant::now());
    match found {
        Ok(Some(found)) if found.nonce == own.nonce => held.found(began),
        Ok(Some(found)) if held.yields_to(found.nonce) => device.give_up(
            "another daemon serves the member at the same time, and one of the two must leave: find out which they are, and why one \
             took the other for gone (two that serve one member destroy what is on it; `bimetal check` tells)",
        ),
        Ok(found) if in_term => {
            let began = BootInstant::now();
            let written = write(device, place, &own).await.is_ok();
            held.was_taken_back(began, written, BootInstant::now());
            found.filter(|_| written).into_iter().for_each(|found| held.has_answered(found.nonce));
        }
        Ok(_) => device.give_up("another daemon has taken the member over, because this one stood still for too long"),
        Err(DeviceError::Disconnected) => {}
        Err(_) => match write(device, place, &own).await {
            Ok(()) if in_term => held.seen.set(began),
            _ if in_term => {}
            _ => device.give_up("the block that says who serves the member can be neither read nor written"),
        },
    }
}

/// A device that bore no label when it was opened may bear one now, written by this process.
async fn begin(device: &NbdDevice, held: &Held) {
    let Ok(Some(label)) = label_of(device).await else { return };
    let Some(place) = place_in(device, &label) else { return };
    let own = Lease { group: label.group, ..held.own.get() };
    let began = BootInstant::now();
    if write(device, place, &own).await.is_ok() {
        held.own.set(own);
        held.seen.set(began);
        held.place.set(Some(place));
    }
}

/// What the holder is about to put in a range: nothing where it trims. If that is a label, or in its place, challengers will find it.
pub(super) fn note_labels(device: &NbdDevice, offset: u64, len: u64, data: Option<&[u8]>) {
    let Some(held) = device.handle.client.lease.get() else { return };
    for place in [LABEL_A, layout::label_b(device.size())] {
        if offset < place + LABEL_SIZE as u64 && place < offset + len {
            let from = place.checked_sub(offset).map(|from| from as usize);
            let bytes = data.zip(from).and_then(|(data, from)| data.get(from..));
            let label = bytes.and_then(|bytes| Label::decode(bytes, place).ok());
            held.marks(label.is_some_and(|l| !l.clean));
        }
    }
}

/// Where the lease lies, if there is room for it.
fn place_in(device: &impl Ground, label: &Label) -> Option<u64> {
    let place = layout::lease(label.device_size);
    (place + BLOCK as u64 <= device.size()).then_some(place)
}

pub(super) async fn label_of(device: &impl Ground) -> Result<Option<Label>, DeviceError> {
    let mut failed = None;
    for place in [LABEL_A, layout::label_b(device.size())] {
        if place + LABEL_SIZE as u64 > device.size() {
            return Ok(None);
        }
        let (bytes, result) = device.read(place, BufMut::new(LABEL_SIZE)).await;
        match result.map(|()| Label::decode(&bytes, place)) {
            Ok(Ok(label)) => return Ok(Some(label)),
            Ok(Err(_)) => {}
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(None), Err)
}

async fn read(device: &impl Ground, place: u64) -> Result<Option<Lease>, DeviceError> {
    let (block, result) = device.read(place, BufMut::new(BLOCK)).await;
    result.map(|()| Lease::decode(&block))
}

async fn write(device: &impl Ground, place: u64, lease: &Lease) -> Result<(), DeviceError> {
    device.put(place, block_of(lease).freeze()).await
}

pub(super) fn block_of(lease: &Lease) -> BufMut {
    let mut block = BufMut::zeroed(BLOCK);
    lease.encode(&mut block);
    block
}

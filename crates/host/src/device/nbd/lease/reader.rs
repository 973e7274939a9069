//! Who only reads a member takes no lease: several may, and a writer is not to wait for them. It asks whether somebody serves the member
//! when it opens it, leaves a mark, and believes nothing that it reads later than somebody can have come to write.

use std::cell::Cell;
use std::time::Duration;

use bimetal_format::label::Label;
use bimetal_format::lease::Lease;
use bimetal_volume::env::{DeviceError, Env};

use super::challenge::{ask_and_leave, beside_readers, mark_once_nobody_asks};
use super::who::{in_use, is_here, of_this_process};
use super::{label_of, place_in, read, Ground, NbdDevice, NotTaken, SETTLE};
use crate::reactor::clock::BootInstant;
use crate::reactor::HostEnv;

/// So long after a look what is read is believed: who takes the lease waits for longer before he writes anything else.
const COUNTS: Duration = SETTLE.saturating_sub(Duration::from_millis(SETTLE.as_millis() as u64 / 5));

/// Why a device is given up that was opened to be read: all that was read of it until then may be half of what was written meanwhile.
pub const WRITER_CAME: &str = "a daemon that writes has come to serve the member; open it anew when that has stopped";

/// What a reader knows of the lease.
pub(in crate::device::nbd) struct Reader {
    place: u64,
    /// What the block held when it was opened, by the nonce: the mark, or what somebody has left who is gone.
    found: Option<u64>,
    /// When the last look began that found nobody else there.
    seen: Cell<Option<BootInstant>>,
}

impl Reader {
    /// Whether what has been read until now may be believed.
    pub(in crate::device::nbd) async fn vouch(&self, device: &NbdDevice) -> Result<(), DeviceError> {
        let answered = BootInstant::now();
        if self.seen.get().is_some_and(|seen| answered.since(seen) < COUNTS) {
            return Ok(());
        }
        let began = BootInstant::now();
        match read(device, self.place).await {
            Ok(now) if now.map(|lease| lease.nonce) == self.found => {
                self.seen.set(Some(began));
                Ok(())
            }
            Ok(_) => {
                device.give_up(WRITER_CAME);
                Err(DeviceError::Disconnected)
            }
            Err(DeviceError::Disconnected) => Err(DeviceError::Disconnected),
            // Nobody takes a member whose block cannot be read, and what else is left of a disk is to be read.
            Err(_) => Ok(()),
        }
    }
}

/// Begins to read a member behind a server, unless somebody serves it. Where nobody is to be asked (`asks`), or nobody can be because the
/// server takes no writes, only who is known to be there keeps the reader out. `None` where no lease can be.
pub(in crate::device::nbd) async fn begin_to_read(
    env: &HostEnv,
    device: &NbdDevice,
    asks: bool,
) -> Result<Option<Reader>, NotTaken> {
    // Labels that cannot be read are for others to say.
    let label = label_of(device).await.ok().flatten();
    let Some((label, place)) = label.and_then(|l| place_in(device, &l).map(|place| (l, place))) else {
        return Ok(None);
    };
    let seen = Cell::new(None);
    if asks && device.takes_writes() {
        match mark(env, device, &label, place).await {
            Ok(mark) => return Ok(Some(Reader { place, found: Some(mark), seen })),
            Err(by @ (NotTaken::InUse(_) | NotTaken::Reader)) => return Err(by),
            // A disk that cannot be written there any more is to be read all the same.
            Err(_) => {}
        }
    }
    known_to_serve(env, device, place).await?;
    let found = read(device, place).await;
    Ok(found.ok().map(|found| Reader { place, found: found.map(|lease| lease.nonce), seen }))
}

/// Sees to it that the block bears a mark, unless somebody serves the member; the nonce of it.
async fn mark(env: &HostEnv, device: &NbdDevice, label: &Label, place: u64) -> Result<u64, NotTaken> {
    beside_readers(async || {
        if let Some(mark) = mark_once_nobody_asks(env, device, place).await? {
            return Ok(mark.nonce);
        }
        let own = Lease::mark(label.group, env.random());
        ask_and_leave(env, device, &own, place, Some(own)).await.map(|()| own.nonce)
    })
    .await
}

/// Refuses a member whose holder is known to be there, on this machine.
pub(super) async fn known_to_serve(env: &HostEnv, device: &impl Ground, place: u64) -> Result<(), NotTaken> {
    let own = of_this_process(env);
    match read(device, place).await {
        Ok(Some(holder)) if is_here(&holder, &own) => Err(NotTaken::InUse(in_use(Some(&holder), &own))),
        _ => Ok(()),
    }
}

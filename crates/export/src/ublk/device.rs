//! Devices: making them, taking over those of a daemon that died, removing them.
//!
//! Whatever ends this process in the middle leaves one of three things, which the next daemon of the group tells apart
//! by the state of the device and its tag: a device that was never started (it is removed), one that still waits for a
//! daemon (it is taken over), or none.
//!
//! No thread of this process may wait for a request of a device that it serves: if the process died meanwhile it would
//! never be gone, and its members never be free for the next daemon.

use std::time::Duration;

use bimetal_host::ublk::{self, Control, DeviceId, Found, Limits, State, UblkError, Untrusted};
use bimetal_host::HostEnv;
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::units::{BLOCK, CHUNK};

use super::{Serving, Status};

/// Requests that a device takes at a time.
pub const DEPTH: u16 = 128;
/// Bytes of the largest read or write. Each of the [`DEPTH`] tags has a buffer of this size.
pub const MAX_BYTES: u32 = 256 << 10;
/// By then the kernel has said whether it takes our wish for requests; it says so at once, but the word has to be read.
const SETTLE: Duration = Duration::from_millis(2);
/// Kernels that wait for those who have a device open before they forget it are waited for so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// A pause before a dying process is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The first two bytes of a tag.
const MARK: u64 = 0xb17a;

/// What marks a device as made for this volume.
pub fn tag_of(volume: &[u8; 16]) -> u64 {
    let start: [u8; 8] = volume[..8].try_into().expect("8 of 16 bytes");
    MARK << 48 | u64::from_be_bytes(start) >> 16
}

/// Whether a device was made by any daemon of ours.
pub fn is_ours(found: &Found) -> bool {
    found.tag >> 48 == MARK
}

/// Why a device was not taken over.
#[derive(Debug)]
pub enum NotTaken {
    /// It must not be served now, for this reason.
    Refused(String),
    /// It could not be done.
    Failed(UblkError),
}

impl From<UblkError> for NotTaken {
    fn from(error: UblkError) -> NotTaken {
        NotTaken::Failed(error)
    }
}

/// A device that is served here.
pub struct Device {
    env: HostEnv,
    id: DeviceId,
    serving: Serving,
}

/// Whether devices can be made on this machine, or why not: then another way must be found. Errors of later steps say
/// nothing of that kind.
pub async fn available(env: &HostEnv) -> Result<(), UblkError> {
    aside(env, || Control::open()?.features().map(|_| ())).await
}

/// Devices of the machine that are live, or wait for a daemon.
pub async fn all_alive(env: &HostEnv) -> Result<Vec<Found>, UblkError> {
    let mut all = aside(env, || Control::open()?.devices()).await?;
    all.retain(|found| found.state != State::Dead);
    Ok(all)
}

impl Device {
    /// Makes a device of `backend` and serves it. What was begun is taken back when a step fails.
    pub async fn create<B: Backend>(env: &HostEnv, backend: &B, tag: u64) -> Result<Device, UblkError> {
        let limits = Limits {
            size: backend.size(),
            sector_size: backend.sector_size(),
            block_size: BLOCK as u32,
            optimal: CHUNK as u32,
            read_only: backend.read_only(),
            max_bytes: MAX_BYTES,
            depth: DEPTH,
        };
        let id = aside(env, move || {
            let mut control = Control::open()?;
            control.add(&limits, tag).and_then(|id| match control.set_limits(id, &limits) {
                Ok(()) => Ok(id),
                // The first error is the one to tell.
                Err(error) => control.delete(id).and(Err(error)),
            })
        })
        .await?;
        let device = match Device::serve(env, id, backend, false).await {
            Ok(device) => device,
            Err(error) => {
                let _ = aside(env, move || Control::open()?.delete(id)).await;
                return Err(error);
            }
        };
        let started = aside(env, move || Control::open()?.start(id)).await;
        if let Err(error) = started {
            let _ = device.remove().await;
            return Err(error);
        }
        Ok(device)
    }

    /// Takes over a device from a process that died, however long that takes: the kernel gives it away only when
    /// nothing of that process is left. What that process had not answered is asked again. Fails if there is no such
    /// device any more, or the kernel refuses. `refusal` says why it must not be served; it is asked until the last moment,
    /// since volumes change meanwhile. If something may be `lost` that the device has acknowledged, it promises nothing
    /// any more: each FLUSH and FUA write fails until it is removed.
    pub async fn take_over<B: Backend>(
        env: &HostEnv,
        found: &Found,
        backend: &B,
        lost: bool,
        refusal: impl Fn() -> Option<String>,
    ) -> Result<Device, NotTaken> {
        let id = found.id;
        let mut control = Control::open()?;
        let allowed = || refusal().map_or(Ok(()), |why| Err(NotTaken::Refused(why)));
        let device = loop {
            allowed()?;
            // On this thread, as an exception: it waits for nothing, and if this process died between this step and the
            // wish for requests, no other could take the device over.
            if control.begin_recovery(id)? {
                match Device::serve(env, id, backend, lost).await {
                    Err(UblkError::Queue { source, .. }) if is_busy(&source) => {}
                    other => break other?,
                }
            }
            env.sleep(LOOK_AGAIN).await;
        };
        if let Err(refused) = allowed() {
            // Nothing has flowed yet. For the kernel it is in the middle of being taken over, by whoever comes next.
            device.leave().await;
            return Err(refused);
        }
        aside(env, move || Control::open()?.end_recovery(id)).await?;
        Ok(device)
    }

    /// Opens the queue and wishes for requests.
    async fn serve<B: Backend>(env: &HostEnv, id: DeviceId, backend: &B, lost: bool) -> Result<Device, UblkError> {
        let gone = || UblkError::Queue { path: id.path(), source: std::io::ErrorKind::NotFound.into() };
        let found = Control::open()?.info(id)?.ok_or_else(gone)?;
        let queue = ublk::Queue::open(env, &found)?;
        let serving = wish_untrusted(env, &queue, backend, lost);
        drop(queue);
        env.sleep(SETTLE).await;
        match serving.refused() {
            None => Ok(Device { env: env.clone(), id, serving }),
            Some(errno) => {
                let source = std::io::Error::from_raw_os_error(errno.abs());
                Err(UblkError::Queue { path: id.path(), source })
            }
        }
    }

    /// Its number.
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// Whether it was taken away by somebody else.
    pub fn is_gone(&self) -> bool {
        self.serving.is_over()
    }

    /// The state of its queue.
    pub fn status(&self) -> Status {
        self.serving.status()
    }

    /// Takes the device away. Whoever uses it gets errors, the page cache included: that is to be written out before
    /// ([`ublk::flush_cache`]), by another process. It is gone in any case ([`is_gone`](Device::is_gone)) once the kernel
    /// has stopped it; an error after that tells of what is left.
    pub async fn remove(&self) -> Result<(), UblkError> {
        let id = self.id;
        aside(&self.env, move || Control::open()?.stop(id)).await?;
        self.serving.ended().await;
        delete_stopped(&self.env, id).await
    }

    /// Leaves the device to the next daemon: no more requests are taken, and those that were are answered. The kernel
    /// notices when this process ends.
    pub async fn leave(&self) {
        self.serving.leave().await;
    }
}

/// Wishes for the first requests without the capability. Nothing is awaited meanwhile: no other task of this thread, and
/// no thread that it starts, ever lacks it.
fn wish_untrusted<B: Backend>(env: &HostEnv, queue: &ublk::Queue, backend: &B, lost: bool) -> Serving {
    // What others have queued goes before.
    env.hand_over();
    let untrusted = Untrusted::begin();
    let serving = Serving::begin(env, queue, backend, lost);
    env.hand_over();
    drop(untrusted);
    serving
}

/// Forgets a stopped device. If somebody has it open it goes when that one lets go, and nobody waits for that here.
async fn delete_stopped(env: &HostEnv, id: DeviceId) -> Result<(), UblkError> {
    let deleted = aside(env, move || Control::open()?.delete_later(id));
    env.timeout(PATIENCE, deleted).await.unwrap_or(Ok(()))
}

/// Takes a device away that nobody serves. Whoever has it open gets errors. One that is gone is no error, even if its
/// number is another's now.
pub async fn remove_orphan(env: &HostEnv, found: &Found) -> Result<(), UblkError> {
    let orphan = found.clone();
    if aside(env, move || stop_orphan(&mut Control::open()?, &orphan)).await? {
        delete_stopped(env, found.id).await?;
    }
    Ok(())
}

/// The same, for a program without a ring: it blocks, but for openers no longer than [`delete_stopped`].
pub fn remove_orphan_now(found: &Found) -> Result<(), UblkError> {
    let id = found.id;
    if !stop_orphan(&mut Control::open()?, found)? {
        return Ok(());
    }
    let deleted = within(PATIENCE, move || Control::open()?.delete_later(id)).map_err(UblkError::Control)?;
    deleted.unwrap_or(Ok(()))
}

/// Stops a device if it is the one that was found; false: that is gone.
fn stop_orphan(control: &mut Control, found: &Found) -> Result<bool, UblkError> {
    if !control.info(found.id)?.is_some_and(|now| is_same(found, &now)) {
        return Ok(false);
    }
    if found.state != State::Dead {
        control.stop(found.id)?;
    }
    Ok(true)
}

/// Whether both are one device. The kernel gives numbers away again, and forgets the process of a device that it has
/// stopped or that waits. One that nobody had started is another's, or somebody's at least, when it lives.
fn is_same(found: &Found, now: &Found) -> bool {
    let same_process = now.pid.is_none() || now.pid == found.pid;
    let started = found.state == State::Dead && now.state != State::Dead;
    now.id == found.id && now.tag == found.tag && same_process && !started
}

/// What `call` gives, if it does so in time. Else it goes on, in a thread of its own.
fn within<T: Send + 'static>(limit: Duration, call: impl FnOnce() -> T + Send + 'static) -> std::io::Result<Option<T>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let work = move || {
        // Nobody may be waiting any more.
        let _ = sender.send(call());
    };
    std::thread::Builder::new().name("ublk".into()).spawn(work)?;
    Ok(receiver.recv_timeout(limit).ok())
}

fn is_busy(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ResourceBusy
}

/// Runs control commands on a thread of their own.
async fn aside<T: Send + 'static>(
    env: &HostEnv,
    call: impl FnOnce() -> Result<T, UblkError> + Send + 'static,
) -> Result<T, UblkError> {
    env.blocking(call).await.map_err(UblkError::Control)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn found(number: u32) -> Found {
        let id = DeviceId::of(Path::new(&format!("/dev/ublkb{number}"))).expect("a device");
        Found { id, state: State::Quiesced, pid: Some(70), tag: tag_of(&[1; 16]), depth: DEPTH, max_bytes: MAX_BYTES }
    }

    #[test]
    fn a_number_that_was_given_away_again_is_another_device() {
        let before = found(3);
        assert!(is_same(&before, &before));
        assert!(is_same(&before, &Found { pid: None, state: State::Dead, ..found(3) }), "stopped meanwhile");
        for other in [
            found(4),
            Found { tag: tag_of(&[2; 16]), ..found(3) },
            Found { tag: 0, ..found(3) },
            Found { pid: Some(71), ..found(3) },
        ] {
            assert!(!is_same(&before, &other), "{other:?}");
        }
        let half_made = Found { state: State::Dead, ..found(3) };
        assert!(is_same(&half_made, &half_made) && !is_same(&half_made, &Found { state: State::Live, ..found(3) }));
    }

    #[test]
    fn what_the_kernel_keeps_waiting_is_waited_for_with_a_limit() {
        assert_eq!(within(Duration::from_secs(20), || 7).expect("a thread"), Some(7));
        let (_keep, never) = std::sync::mpsc::channel::<()>();
        assert!(within(Duration::from_millis(20), move || never.recv()).expect("a thread").is_none());
    }
}

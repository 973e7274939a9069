//! While the members of a group are opened, whoever waits is told for which of them.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bimetal_host::device::{Access, OpenError};
use bimetal_host::{HostDevice, HostEnv, Locator};
use bimetal_volume::env::{Device, Env};

use crate::{log, words};

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A device that is watched for as long as this is held.
pub(crate) struct Watch {
    place: String,
    device: HostDevice,
    told: Told,
}

/// For how long it had not answered when that was told last.
#[derive(Default)]
struct Told(Cell<Duration>);

impl Told {
    /// What there is to say of a device whose oldest request has waited for so long: first soon, then each time it has doubled.
    fn news(&self, place: &str, waited: Duration) -> Option<String> {
        if waited < words::SILENCE {
            self.0.set(Duration::ZERO);
            return None;
        }
        if waited < self.0.get() * 2 {
            return None;
        }
        self.0.set(waited);
        Some(format!("waiting for {place} ({} s)", waited.as_secs()))
    }
}

/// Tells the log when a device does not answer, until what this gives is dropped.
pub(crate) fn watch(env: &HostEnv, place: String, device: &HostDevice) -> Rc<Watch> {
    let watch = Rc::new(Watch { place, device: device.clone(), told: Told::default() });
    let (watched, clock) = (Rc::downgrade(&watch), env.clone());
    env.spawn(async move {
        while let Some(watch) = watched.upgrade() {
            let oldest = watch.device.answering().oldest;
            let waited = oldest.map_or(Duration::ZERO, |at| clock.now().since(at));
            if let Some(line) = watch.told.news(&watch.place, waited) {
                log::info(&line);
            }
            drop(watch);
            clock.sleep(LOOK_AGAIN).await;
        }
    });
    watch
}

/// Opens a device, and tells the log while it does not answer: who serves it is asked then.
pub(crate) async fn open(env: &HostEnv, place: &Locator, access: Access) -> Result<HostDevice, OpenError> {
    let (told, began) = (Told::default(), env.now());
    let mut opening = pin!(HostDevice::open(env, place, access));
    loop {
        if let Some(opened) = env.timeout(LOOK_AGAIN, opening.as_mut()).await {
            return opened;
        }
        if let Some(line) = told.news(&place.to_string(), env.now().since(began)) {
            log::info(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_after_ten_seconds_and_when_that_has_doubled() {
        let told = Told::default();
        let lines: Vec<Option<String>> =
            [0, 9, 10, 11, 19, 20, 3, 10].map(|s| told.news("nbd://far/disk", Duration::from_secs(s))).into();
        let line = |s: u64| Some(format!("waiting for nbd://far/disk ({s} s)"));
        assert_eq!(lines, [None, None, line(10), None, None, line(20), None, line(10)]);
    }
}

//! Metadata that a member does not read at once, while a group is opened.
//!
//! What cannot be read is given up: a directory is written anew, a page is taken from elsewhere, or from nowhere by a repair. So it is
//! asked for again for a while first, for a link that is reset, a server that is slow to come back, or a disk that tries hard.

use std::time::Duration;

use crate::buf::BufMut;
use crate::env::{DeviceError, Env};
use crate::member::{add, Member};
use crate::units::BLOCK;

/// Waits between attempts.
const PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1500)];
/// A member that has failed in so many places in spite of that is not waited for any more: a start has an end.
const PLACES: u64 = 4;

/// Reads a block of metadata.
pub(super) async fn read_patiently<E: Env>(env: &E, m: &Member<E::Device>, place: u64) -> Result<BufMut, DeviceError> {
    let mut pauses = PAUSES.iter().take(if m.unreadable_metadata.get() < PLACES { PAUSES.len() } else { 1 });
    loop {
        match m.read(place, BufMut::new(BLOCK as usize)).await {
            Err(e @ DeviceError::Io(_)) => match pauses.next() {
                Some(pause) => env.sleep(*pause).await,
                None => {
                    add(&m.unreadable_metadata, 1);
                    return Err(e);
                }
            },
            other => return other,
        }
    }
}

//! A device whose blocks are asked for again for a while: what cannot be read is not in the file, and `restore` spoils it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Device, DeviceError, DeviceTraits};

use super::BLOCK;

/// Waits between attempts; a start waits for as long.
const PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1500)];
/// A device that has failed in so many places in spite of that is not waited for any more: saving has an end.
const PLACES: u64 = 8;

/// Reads of one block are patient.
#[derive(Clone)]
pub(super) struct Patient<P, D> {
    pause: P,
    device: D,
    failed: Rc<Cell<u64>>,
}

impl<P: AsyncFn(Duration) + Clone, D: Device> Patient<P, D> {
    /// Between attempts it does what `pause` does.
    pub(super) fn new(device: D, pause: P) -> Patient<P, D> {
        Patient { pause, device, failed: Rc::default() }
    }
}

impl<P: AsyncFn(Duration) + Clone + 'static, D: Device> Device for Patient<P, D> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn traits(&self) -> DeviceTraits {
        self.device.traits()
    }

    async fn read(&self, offset: u64, mut buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        let is_block = buf.len() as u64 == BLOCK;
        let mut pauses = PAUSES.iter().take(match (is_block, self.failed.get() < PLACES) {
            (false, _) => 0,
            (true, true) => PAUSES.len(),
            (true, false) => 1,
        });
        loop {
            let (back, read) = self.device.read(offset, buf).await;
            match (read, pauses.next()) {
                (Err(DeviceError::Io(_)), Some(pause)) => (self.pause)(*pause).await,
                (Err(_), None) if is_block => {
                    self.failed.set(self.failed.get() + 1);
                    return (back, read);
                }
                _ => return (back, read),
            }
            buf = back;
        }
    }

    async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        self.device.write(offset, buf).await
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        self.device.sync().await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.device.discard(offset, len).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{now, Memory, Power};
    use super::*;

    #[test]
    fn a_block_is_asked_for_again_until_a_device_has_failed_often() {
        let memory = Memory::new(vec![7; 64 << 10], &Power::default());
        let waited = Rc::new(Cell::new(Duration::ZERO));
        let waits = waited.clone();
        let patient = Patient::new(memory.clone(), async move |pause| waits.set(waits.get() + pause));
        let read = |place: u64, len: u64| now(patient.read(place, BufMut::new(len as usize)));
        memory.fails(0, 4);
        let (content, answer) = read(0, BLOCK);
        assert_eq!((answer, &content[..]), (Ok(()), &[7; BLOCK as usize][..]));
        assert_eq!(waited.get(), Duration::from_secs(2));
        // What is longer is asked for block by block then.
        memory.fails(0, 1);
        assert!(read(0, 2 * BLOCK).1.is_err() && read(0, 2 * BLOCK).1.is_ok());
        (0..8).for_each(|n| memory.make_bad(n * BLOCK));
        assert!((0..8).all(|n| read(n * BLOCK, BLOCK).1.is_err()));
        assert_eq!(waited.get(), Duration::from_secs(2 + 16));
        memory.fails(9 * BLOCK, 2);
        assert!(read(9 * BLOCK, BLOCK).1.is_err() && read(9 * BLOCK, BLOCK).1.is_ok());
        assert_eq!(waited.get(), Duration::from_secs(2 + 16));
    }
}

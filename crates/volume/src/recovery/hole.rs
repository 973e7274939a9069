//! Runs of blocks of which some cannot be read: one sector, an erase block of an SSD, or all of a device that has died.
//!
//! A device that fails may try for seconds before it says so. So a hole is not gone through block by block: behind some that fail, as many
//! as those are asked for together, and the last of them alone, for the end of the hole. What lies between two that fail counts as
//! unread. Whether the device answers at all a label tells, which it has given a moment ago: if not, it says nothing of blocks.

use bimetal_format::layout::{label_b, LABEL_A};

use super::patience::read_patiently;
use crate::buf::BufMut;
use crate::env::{DeviceError, Env};
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::BLOCK;

/// Blocks that are asked for one by one before a hole is taken for a long one.
const EACH: u64 = 16;

/// Reads runs of blocks of one member, one behind the other.
pub(super) struct Runs<'a, E: Env> {
    env: &'a E,
    m: &'a Member<E::Device>,
    /// Blocks that could not be read, up to where it has come.
    hole: u64,
}

impl<'a, E: Env> Runs<'a, E> {
    pub(super) fn new(env: &'a E, m: &'a Member<E::Device>) -> Runs<'a, E> {
        Runs { env, m, hole: 0 }
    }

    /// The blocks of the next run, `None` for each that cannot be read; an error if the device answers nothing.
    pub(super) async fn read(&mut self, place: u64, count: u64) -> Result<Vec<Option<Vec<u8>>>, DeviceError> {
        match self.together(place, count).await? {
            Some(all) => {
                self.hole = 0;
                Ok(all.chunks_exact(BLOCK as usize).map(|b| Some(b.to_vec())).collect())
            }
            None => self.in_parts(place, count).await,
        }
    }

    async fn in_parts(&mut self, place: u64, count: u64) -> Result<Vec<Option<Vec<u8>>>, DeviceError> {
        let mut blocks: Vec<Option<Vec<u8>>> = Vec::with_capacity(count as usize);
        while (blocks.len() as u64) < count {
            let (at, left) = (place + blocks.len() as u64 * BLOCK, count - blocks.len() as u64);
            let skipped = self.goes_on_for(at, left).await?;
            blocks.extend((0..skipped).map(|_| None));
            self.hole += skipped;
            if skipped == 0 {
                for n in 0..EACH.min(left) {
                    blocks.push(self.alone(at + n * BLOCK).await?);
                }
            }
        }
        Ok(blocks)
    }

    /// How many blocks from here on count as unread without each being asked for.
    async fn goes_on_for(&self, place: u64, left: u64) -> Result<u64, DeviceError> {
        if self.hole < EACH {
            return Ok(0);
        }
        self.answers().await?;
        if mutant::on(Mutant::HoleIsDead) {
            return Err(DeviceError::Io(5));
        }
        let mut count = self.hole.min(left);
        loop {
            let last = place + (count - 1) * BLOCK;
            if self.together(last, 1).await?.is_none() && self.together(place, count).await?.is_none() {
                return Ok(count);
            }
            if count <= EACH {
                return Ok(0);
            }
            count /= 2;
        }
    }

    /// An error if the device does not give a label either.
    async fn answers(&self) -> Result<(), DeviceError> {
        let second = label_b(self.m.label.borrow().device_size);
        let mut answer = Err(DeviceError::Disconnected);
        for place in [LABEL_A, second] {
            if answer.is_err() {
                answer = self.m.read(place, BufMut::new(BLOCK as usize)).await.map(|_| ());
            }
        }
        answer
    }

    async fn alone(&mut self, place: u64) -> Result<Option<Vec<u8>>, DeviceError> {
        match read_patiently(self.env, self.m, place).await {
            Ok(block) => {
                self.hole = 0;
                Ok(Some(block.to_vec()))
            }
            Err(DeviceError::Io(_)) => {
                self.hole += 1;
                Ok(None)
            }
            // A connection that is lost says nothing of blocks.
            Err(e) => Err(e),
        }
    }

    /// So many blocks with one request; `None` if they cannot be read so.
    async fn together(&self, place: u64, count: u64) -> Result<Option<BufMut>, DeviceError> {
        match self.m.read(place, BufMut::new((count * BLOCK) as usize)).await {
            Ok(all) => Ok(Some(all)),
            Err(DeviceError::Io(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

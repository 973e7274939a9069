//! Steps that copy a volume onto a device outside the group, beside the requests of the other clients: at the end both must
//! be the same, or nobody is told so, and nobody was refused a write once the copy was given up. The device keeps what it has from run to run, and loses what was not synced when the power goes.

use std::future::Future;
use std::pin::pin;

use bimetal_volume::backend::{Backend, Piece};
use bimetal_volume::buf::BufMut;
use bimetal_volume::dissolve::{Dissolve, DissolveError, Frozen};
use bimetal_volume::env::Device;
use bimetal_volume::error::Error;
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::Volume;

use super::client::{Client, RETRY};
use super::judge::Kind;
use crate::counters::Seen;
use crate::disk::SimDisk;
use crate::env::SimEnv;

/// How long the volume stands still beyond what must be: writes come meanwhile.
const STILL: std::time::Duration = std::time::Duration::from_millis(20);

impl Client {
    /// Copies a volume, one client at a time: there is one device.
    pub(super) async fn dissolve(&self, number: usize, micros: u64) {
        let Some(onto) = self.shared.target.clone() else { return };
        while self.shared.dissolving.get() {
            self.shared.world.sleep(RETRY).await;
        }
        let Some(volume) = self.volume(number) else { return };
        self.shared.dissolving.set(true);
        let stamp = self.shared.table.borrow().stamp(number);
        let injected = self.shared.world.injected();
        let result = self.copied(number, &volume, &onto, micros).await;
        if !self.answered() {
            return;
        }
        let changed = stamp.1 || self.shared.table.borrow().stamp(number) != stamp;
        let given_up = self.shared.frozen.get().is_none();
        match result {
            Ok(_) if given_up => {
                self.shared
                    .fail(format!("volume {number} counts as copied, and that was given up while it was written"));
            }
            Err(DissolveError::GivenUp) if given_up => self.shared.marks.borrow_mut().mark(Seen::NotDissolved),
            Ok(frozen) => {
                // It may grow meanwhile: what is new is not on the device.
                let size = volume.size();
                // What it holds is durable: the power goes, for this device alone.
                onto.power_cut(false);
                self.sleep(STILL).await;
                let compared = self.compare(&volume, &onto, size).await;
                // A sync that fails may take back what nobody has flushed: then the copy is newer than the volume.
                let lost = self.shared.world.injected().syncs > injected.syncs;
                if let Err(wrong) = compared.or_else(|wrong| if lost { Ok(()) } else { Err(wrong) }) {
                    self.shared.fail(format!("volume {number} was copied onto a device, and {wrong}"));
                }
                self.shared.frozen.set(None);
                drop(frozen);
                self.shared.marks.borrow_mut().mark(Seen::Dissolved);
            }
            Err(DissolveError::Source { source, .. }) if changed && overtaken(&source) => {}
            Err(DissolveError::Source { source: Error::Latched(why), .. }) if !self.has_failed_below(number) => {
                self.shared.fail(format!("volume {number} lives on disks that work, and could not be copied: {why}"));
            }
            Err(DissolveError::Source { source, .. }) => {
                // It reads, and flushes before it compares for the last time.
                let kind = if matches!(source, Error::Latched(_)) { Kind::Flush } else { Kind::Read };
                self.judge(kind, &format!("copying volume {number}"), &source, injected);
            }
            Err(DissolveError::Resized | DissolveError::TooSmall { .. }) if changed => {}
            Err(e) => self.shared.fail(format!("volume {number} could not be copied: {e}")),
        }
        self.shared.frozen.set(None);
        self.shared.dissolving.set(false);
    }

    async fn copied(
        &self,
        number: usize,
        volume: &Volume<SimEnv>,
        onto: &SimDisk,
        micros: u64,
    ) -> Result<Frozen, DissolveError> {
        let run = Dissolve::begin(volume.clone(), onto.clone(), CHUNK)?;
        run.copy().await?;
        self.shared.frozen.set(Some(number));
        let end = self.give_up(&run, micros);
        let (mut finish, mut end, mut over) = (pin!(run.finish()), pin!(end), micros == 0);
        std::future::poll_fn(|cx| {
            over = over || end.as_mut().poll(cx).is_ready();
            finish.as_mut().poll(cx)
        })
        .await
    }

    /// Gives a copy up in its end: from then on the volume takes all writes.
    async fn give_up(&self, run: &Dissolve<SimEnv, SimDisk>, micros: u64) {
        self.sleep(std::time::Duration::from_micros(micros)).await;
        run.give_up(true);
        self.shared.frozen.set(None);
    }

    /// Whether a sync or a request for metadata has failed on a disk where chunks of the volume may live.
    fn has_failed_below(&self, number: usize) -> bool {
        let placement = self.shared.table.borrow().get(number).map_or(Placement::Auto, |k| k.placement);
        let (now, start) = (self.shared.world.injected().grave, self.start.grave);
        let holds = |tier| match placement {
            Placement::Auto => true,
            Placement::FastOnly => tier == Tier::Fast,
            Placement::SlowOnly => tier == Tier::Slow,
        };
        self.shared.specs.iter().enumerate().any(|(disk, spec)| holds(spec.tier) && now[disk] > start[disk])
    }

    /// Both read the same. What the volume holds is the oracle's affair.
    async fn compare(&self, volume: &Volume<SimEnv>, onto: &SimDisk, size: u64) -> Result<(), String> {
        let mut at = 0;
        while at < size {
            let (there, result) = onto.read(at, BufMut::new(CHUNK as usize)).await;
            result.map_err(|e| format!("the device cannot be read: {e}"))?;
            // The volume may be deleted, or a member may fail.
            let Ok(pieces) = volume.read(at, CHUNK).await else { return Ok(()) };
            let mut content = Vec::with_capacity(CHUNK as usize);
            for piece in pieces {
                match piece {
                    Piece::Data(data) => content.extend_from_slice(&data),
                    Piece::Zero(len) => content.resize(content.len() + len as usize, 0),
                }
            }
            if content != there[..] {
                return Err(format!("they differ in the chunk at {at}"));
            }
            at += CHUNK;
        }
        Ok(())
    }
}

fn overtaken(error: &Error) -> bool {
    matches!(error, Error::OutOfRange { .. } | Error::Deleted | Error::Locked)
}

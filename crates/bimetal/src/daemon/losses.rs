//! What ublk devices have to tell their clients: that something is lost which was acknowledged. The note of it
//! ([`loss`](crate::loss)) is made here when the group latches, and unmade when all devices that it concerns are gone.
//!
//! Invariants:
//! 1. What was lost in the time of this daemon concerns every device, to the next start: nothing settles it here, where no
//!    flush succeeds any more anyway.
//! 2. The note on the disk is never older than one that was written before: writes run on threads of their own.
//! 3. A device is struck off the note only when it is gone: of one that stays no flush succeeds. One error is not enough, for file systems
//!    flush without looking at the result as well (ext4 while it makes its inode tables, and when it empties its journal).

use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::options::Uuid;

use crate::config::uuid_text;
use crate::log;
use crate::loss::{self, Note, Owing, Place};

/// What stands in the note, and may be changed in it.
struct Ledger {
    note: Option<Note>,
    /// The loss is one of this daemon.
    own: bool,
    /// How often it has changed.
    version: u64,
}

impl Ledger {
    fn lost(&mut self, why: String) {
        (self.note, self.own) = (Some(Note::new(why)), true);
        self.version += 1;
    }

    /// Keeps in the note what `stays` says of those devices that it names, out of `all` if it names none. Whether that
    /// changes it.
    fn keep(&mut self, all: Option<&[Owing]>, stays: impl Fn(&Owing) -> bool) -> bool {
        let Some(note) = self.note.as_mut().filter(|_| !self.own) else { return false };
        let Some(named) = note.devices.as_deref().or(all) else { return false };
        let kept: Vec<Owing> = named.iter().filter(|d| stays(d)).cloned().collect();
        if note.devices.as_ref() == Some(&kept) {
            return false;
        }
        let nobody = kept.is_empty();
        note.devices = Some(kept);
        if nobody {
            self.note = None;
        }
        self.version += 1;
        true
    }
}

/// The losses of a group. Cloning gives another handle.
#[derive(Clone)]
pub(crate) struct Losses {
    env: HostEnv,
    place: Place,
    ledger: Rc<RefCell<Ledger>>,
    /// The version that was written last.
    written: Arc<Mutex<u64>>,
}

impl Losses {
    /// With the note that daemons of before have left.
    pub(crate) fn found(env: &HostEnv, place: Place) -> Losses {
        let ledger = Rc::new(RefCell::new(Ledger { note: place.read(), own: false, version: 0 }));
        Losses { env: env.clone(), place, ledger, written: Arc::default() }
    }

    /// Writes it down when the group latches, at once: this process may be ended by whoever sees the first error.
    /// `latched` gives the reason.
    pub(crate) fn watch(&self, latched: impl Future<Output = String> + 'static) {
        let this = self.clone();
        self.env.spawn(async move {
            let why = latched.await;
            this.lost(why).await;
        });
    }

    /// Something that was acknowledged may be lost. Returns when that is written down.
    pub(crate) async fn lost(&self, why: String) {
        self.ledger.borrow_mut().lost(why);
        if let Err(error) = self.write().await {
            log::warn(&loss::not_written(&error));
        }
    }

    /// Something may be lost, and nobody can know: devices that are left from before are told, as if it were. It is written down before
    /// anything can be stopped in order: after that no start sees it any more.
    pub(crate) async fn perhaps(&self, why: String) {
        {
            let mut ledger = self.ledger.borrow_mut();
            ledger.note = Some(Note::new(why));
            ledger.version += 1;
        }
        if let Err(error) = self.write().await {
            log::warn(&loss::not_written(&error));
        }
    }

    /// Why a device that is taken over has to tell its client that something is lost, by refusing to promise anything, if it has to.
    pub(crate) fn owed_by(&self, volume: &Uuid, device: &Path) -> Option<String> {
        let ledger = self.ledger.borrow();
        ledger.note.as_ref().filter(|n| n.names(&owing(volume, device))).map(|n| n.why.clone())
    }

    /// What is to be said of the devices that refuse flushes for what was lost before this daemon. Of what it has lost itself the group
    /// says more.
    pub(crate) fn words(&self) -> Vec<String> {
        let ledger = self.ledger.borrow();
        let note = ledger.note.as_ref().filter(|_| !ledger.own);
        note.iter().flat_map(|n| n.devices.iter().flatten().map(|d| words(&d.device, &n.why))).collect()
    }

    /// These devices are left from before, and no others.
    pub(crate) async fn are_there(&self, devices: &[(Uuid, &Path)]) {
        let all: Vec<Owing> = devices.iter().map(|(volume, device)| owing(volume, device)).collect();
        self.keep(Some(&all), |d| all.contains(d)).await;
    }

    /// A device is gone.
    pub(crate) async fn settle(&self, volume: &Uuid, device: &Path) {
        let settled = owing(volume, device);
        self.keep(None, |d| *d != settled).await;
    }

    /// A volume has no device of before any more.
    pub(crate) async fn settle_all_of(&self, volume: &Uuid) {
        let volume = uuid_text(volume);
        self.keep(None, |d| d.volume != volume).await;
    }

    async fn keep(&self, all: Option<&[Owing]>, stays: impl Fn(&Owing) -> bool) {
        if !self.ledger.borrow_mut().keep(all, stays) {
            return;
        }
        if let Err(error) = self.write().await {
            // What stands there now says more than is true.
            log::warn(&format!(
                "a new ublk device may be taken after the next start for one that is gone, and refuse flushes: {error:#}"
            ));
        }
    }

    /// Writes down how it is now, unless somebody has written down what is newer.
    async fn write(&self) -> anyhow::Result<()> {
        let (note, version) = {
            let ledger = self.ledger.borrow();
            (ledger.note.clone(), ledger.version)
        };
        let (place, written) = (self.place.clone(), self.written.clone());
        let write = move || {
            let mut last = written.lock().unwrap_or_else(PoisonError::into_inner);
            if *last < version {
                place.write(note.as_ref())?;
                *last = version;
            }
            Ok(())
        };
        self.env.blocking(write).await?
    }
}

/// What a loss means for a device.
pub(super) fn words(device: &str, why: &str) -> String {
    format!(
        "{device}: what was written to it and not flushed may be lost ({why}). Its flushes are answered with errors until it is removed, so that \
         whoever uses it learns of it. Unmount its file system, detach it (`bimetal detach`), attach it again and check the file system \
         (fsck) before it is used further; programs that wrote to it last have to write that again"
    )
}

fn owing(volume: &Uuid, device: &Path) -> Owing {
    Owing { volume: uuid_text(volume), device: device.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_host::Reactor;

    const A: (Uuid, &str) = ([1; 16], "/dev/ublkb0");
    const B: (Uuid, &str) = ([2; 16], "/dev/ublkb1");

    /// What a daemon does with the losses of a group whose run state lies in `dir`.
    fn daemon<F: Future<Output = ()> + 'static>(dir: &tempfile::TempDir, work: impl FnOnce(Losses) -> F) {
        let reactor = Reactor::new().expect("a ring");
        let losses = Losses::found(&reactor.env(), Place::at(dir.path()));
        reactor.block_on(work(losses));
    }

    fn owes(losses: &Losses, (volume, device): (Uuid, &str)) -> bool {
        losses.owed_by(&volume, Path::new(device)).is_some()
    }

    async fn are_there(losses: &Losses, devices: &[(Uuid, &str)]) {
        let devices: Vec<_> = devices.iter().map(|(volume, device)| (*volume, Path::new(*device))).collect();
        losses.are_there(&devices).await;
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    fn stands(dir: &tempfile::TempDir) -> bool {
        Place::at(dir.path()).read().is_some()
    }

    /// A daemon that has lost something and died.
    fn with_a_loss() -> tempfile::TempDir {
        let dir = folder();
        daemon(&dir, |losses| async move {
            assert!(!owes(&losses, A));
            losses.lost("a sync of member 1 failed".into()).await;
        });
        assert!(stands(&dir));
        dir
    }

    #[test]
    fn a_loss_is_owed_by_every_device_of_the_next_daemon_until_each_is_gone() {
        let dir = with_a_loss();
        daemon(&dir, |losses| async move {
            are_there(&losses, &[A, B]).await;
            let why = losses.owed_by(&A.0, Path::new(A.1)).expect("owed");
            assert!(why.contains("member 1") && owes(&losses, B));
            losses.settle(&A.0, Path::new(A.1)).await;
            assert!(!owes(&losses, A) && owes(&losses, B));
            let said = losses.words();
            assert!(said.len() == 1 && said[0].contains(B.1) && said[0].contains("member 1"), "{said:?}");
        });
        assert!(stands(&dir), "one is there");
        daemon(&dir, |losses| async move {
            are_there(&losses, &[A, B]).await;
            assert!(!owes(&losses, A) && owes(&losses, B), "it outlives a second death");
            losses.settle(&B.0, Path::new(B.1)).await;
        });
        assert!(!stands(&dir));
    }

    #[test]
    fn what_is_perhaps_lost_is_owed_by_what_is_there_also_by_who_is_settled_of_another_loss() {
        let dir = with_a_loss();
        daemon(&dir, |losses| async move {
            are_there(&losses, &[A, B]).await;
            losses.settle(&A.0, Path::new(A.1)).await;
        });
        daemon(&dir, |losses| async move {
            losses.perhaps("its server may have been started anew".into()).await;
            are_there(&losses, &[A, B]).await;
            assert!(owes(&losses, A) && owes(&losses, B));
            losses.settle(&A.0, Path::new(A.1)).await;
            losses.settle(&B.0, Path::new(B.1)).await;
        });
        assert!(!stands(&dir));
        daemon(&dir, |losses| async move {
            losses.perhaps("its server may have been started anew".into()).await;
            are_there(&losses, &[]).await;
            assert!(!owes(&losses, A));
        });
        assert!(!stands(&dir));
    }

    #[test]
    fn a_latch_is_written_down_without_being_asked_for() {
        let dir = folder();
        daemon(&dir, |losses| async move {
            losses.watch(std::future::ready("the label of member 0 failed".to_string()));
            // An empty one comes first.
            while !losses.place.read().is_some_and(|note| note.why.contains("member 0")) {
                losses.env.sleep(std::time::Duration::from_millis(1)).await;
            }
        });
        assert!(stands(&dir));
    }

    #[test]
    fn devices_that_are_gone_owe_nothing_and_the_note_goes_with_the_last() {
        let dir = with_a_loss();
        daemon(&dir, |losses| async move { are_there(&losses, &[A]).await });
        assert!(stands(&dir));
        daemon(&dir, |losses| async move {
            are_there(&losses, &[A, B]).await;
            assert!(owes(&losses, A) && !owes(&losses, B), "made after the loss");
            losses.settle_all_of(&B.0).await;
            assert!(owes(&losses, A));
            losses.settle_all_of(&A.0).await;
        });
        assert!(!stands(&dir));
        let dir = with_a_loss();
        daemon(&dir, |losses| async move { are_there(&losses, &[]).await });
        assert!(!stands(&dir));
    }

    #[test]
    fn a_device_with_the_number_of_another_is_not_taken_for_it() {
        let dir = with_a_loss();
        daemon(&dir, |losses| async move {
            are_there(&losses, &[A]).await;
            losses.settle(&B.0, Path::new(A.1)).await;
            losses.settle(&A.0, Path::new(B.1)).await;
            assert!(owes(&losses, A));
        });
        assert!(stands(&dir));
    }

    #[test]
    fn a_new_loss_concerns_those_again_who_are_settled_of_the_old_one() {
        let dir = with_a_loss();
        daemon(&dir, |losses| async move {
            are_there(&losses, &[A, B]).await;
            losses.settle(&A.0, Path::new(A.1)).await;
            losses.lost("a sync of member 0 failed".into()).await;
            // Removed when the new one has come.
            losses.settle(&B.0, Path::new(B.1)).await;
            losses.settle_all_of(&A.0).await;
            are_there(&losses, &[]).await;
            assert!(owes(&losses, A) && owes(&losses, B));
        });
        daemon(&dir, |losses| async move {
            are_there(&losses, &[A, B]).await;
            assert!(owes(&losses, A) && owes(&losses, B));
        });
    }

    #[test]
    fn without_a_look_at_the_devices_the_note_stays_as_it_is() {
        let dir = with_a_loss();
        daemon(&dir, |losses| async move {
            losses.settle_all_of(&A.0).await;
            losses.settle(&B.0, Path::new(B.1)).await;
            assert!(owes(&losses, A) && owes(&losses, B));
        });
        assert!(stands(&dir));
    }
}

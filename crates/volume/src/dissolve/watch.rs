//! Which chunks of a volume are changed while somebody copies it, and the moment from which none is; and whether it is changed at all.
//!
//! Invariants:
//! 1. A chunk is noted when a request that may have changed it has ended, well or not: what is read after a note was
//!    taken holds that change.
//! 2. From the moment in which a volume is frozen until it is thawed no request that changes it is let in; when [`freeze`] returns
//!    a [`Frozen`] that stands, those let in before have ended, and are noted.
//! 3. A freeze that was lifted stands never again: what was found while it stood is worth nothing once it does not.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use crate::env::Env;
use crate::error::Error;
use crate::group::volume::{LetIn, VolumeInfo};
use crate::group::Volume;
use crate::marked::Marked;
use crate::mutant::{self, Mutant};
use crate::units::CHUNK;
use crate::wait;

/// What a volume knows of whoever copies it.
#[derive(Default)]
pub(crate) struct Watch {
    changed: RefCell<Option<Marked>>,
    /// The number of the freeze that stands, if one does, and of the last one there was.
    frozen: Cell<Option<u64>>,
    freezes: Cell<u64>,
    /// Requests that may have changed it and have ended.
    changes: Cell<u64>,
}

impl Watch {
    /// Requests that may have changed the volume and have ended, since the start of the group.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Begins to note changes of the first `chunks` chunks; false if somebody has them noted already.
    pub(super) fn begin(&self, chunks: u64) -> bool {
        let mut changed = self.changed.borrow_mut();
        let free = changed.is_none() && self.frozen.get().is_none();
        if free {
            *changed = Some(Marked::new(chunks));
        }
        free
    }

    pub(super) fn end(&self) {
        self.changed.take();
    }

    /// Hands out the chunks that were changed since the last time.
    pub(super) fn take(&self, chunks: u64) -> Marked {
        self.changed.borrow_mut().replace(Marked::new(chunks)).unwrap_or_else(|| Marked::new(chunks))
    }

    fn freeze(&self) -> u64 {
        let number = self.freezes.get() + 1;
        self.freezes.set(number);
        self.frozen.set(Some(number));
        number
    }

    /// Changes are let in again at once, whoever still holds a [`Frozen`].
    pub(super) fn thaw(&self) {
        self.frozen.set(None);
    }

    fn note(&self, offset: u64, len: u64) {
        if let Some(changed) = &mut *self.changed.borrow_mut() {
            changed.add_all(offset / CHUNK..(offset + len).div_ceil(CHUNK));
        }
    }
}

/// A request that changes a volume and was let in; leaves when dropped.
pub(crate) struct Changing<'a> {
    watch: &'a Watch,
    offset: u64,
    len: u64,
    _in: LetIn<'a>,
}

impl VolumeInfo {
    /// The same as [`VolumeInfo::let_in`] for a request that changes the range.
    pub(crate) fn let_in_to_change(&self, offset: u64, len: u64) -> Result<Changing<'_>, Error> {
        let _in = self.let_in(offset, len)?;
        if self.watch.frozen.get().is_some() && !mutant::on(Mutant::DissolvedWhileWritten) {
            return Err(Error::Frozen);
        }
        if mutant::on(Mutant::DissolveNotesEarly) {
            self.watch.note(offset, len);
        }
        Ok(Changing { watch: &self.watch, offset, len, _in })
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.watch.changes.set(self.watch.changes.get() + 1);
        if !mutant::on(Mutant::DissolveNotesEarly) {
            self.watch.note(self.offset, self.len);
        }
    }
}

/// While this is there and stands, every request that changes the volume is refused.
pub struct Frozen {
    info: Rc<VolumeInfo>,
    number: u64,
}

impl Frozen {
    /// Whether nothing was let in since the volume was frozen: nobody has given the run up.
    pub fn stands(&self) -> bool {
        self.info.watch.frozen.get() == Some(self.number)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if self.stands() {
            self.info.watch.thaw();
        }
    }
}

/// Lets no change in any more, and waits for those that are under way; `None` if it is given up before. They may hang on a member
/// for as long as that stands still, and so may the change of the group that is waited for first.
pub(super) async fn freeze<E: Env>(volume: &Volume<E>, given_up: impl Future<Output = ()>) -> Option<Frozen> {
    let given_up = async {
        given_up.await;
        None
    };
    wait::first(given_up, async { Some(stand_still(volume).await) }).await
}

async fn stand_still<E: Env>(volume: &Volume<E>) -> Frozen {
    // One at a time waits for requests, and another change may take long: the volume stands still only then.
    let _change = volume.core.volumes.change.lock().await;
    let info = volume.info.clone();
    let frozen = Frozen { number: info.watch.freeze(), info };
    if !mutant::on(Mutant::DissolveCutsWriters) {
        frozen.info.drained().await;
    }
    frozen
}

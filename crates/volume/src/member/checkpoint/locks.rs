//! What a checkpoint holds, and to whom it gives way.

use std::cell::Cell;

use crate::env::Device;
use crate::member::{add, take_off, Member};
use crate::units::Tier;
use crate::wait::{Guard, Signal};

/// Whether a checkpoint gives way to clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Somebody waits for it.
    AtOnce,
    /// Nobody does, until somebody does.
    Gently,
}

/// Who waits for the pages of a member.
#[derive(Default)]
pub(crate) struct Hurry {
    waiting: Cell<u64>,
    pub(super) called: Signal,
}

impl Hurry {
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Somebody waits until what this gives is dropped.
    fn wait(&self) -> impl Drop + '_ {
        struct Waiting<'a>(&'a Hurry);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                take_off(&self.0.waiting, 1);
            }
        }
        add(&self.waiting, 1);
        self.called.notify();
        Waiting(self)
    }
}

/// Whether commits go on beside a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commits {
    /// None comes: the caller holds `meta`, or nobody else knows the member.
    Wait,
    /// The checkpoint locks the journal where it has to.
    GoOn,
}

impl Commits {
    pub(super) async fn keep_out<D: Device>(self, m: &Member<D>) -> Option<Guard<'_>> {
        match self {
            Commits::Wait => None,
            Commits::GoOn => Some(m.meta.lock().await),
        }
    }
}

/// How a checkpoint is made.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    /// Pages that are written too though no commit has changed them, in order: their heat has changed, or the copy is damaged.
    pub(crate) also: &'a [u32],
    pub(crate) haste: Haste,
    pub(crate) commits: Commits,
}

impl How<'_> {
    /// At once, while nothing else is going on.
    pub(crate) const ALONE: How<'static> = How { also: &[], haste: Haste::AtOnce, commits: Commits::Wait };
}

/// What a checkpoint is made under.
pub(crate) struct Locks<'a> {
    _pages: Guard<'a>,
    /// Of a slow member.
    meta: Option<Guard<'a>>,
}

impl Locks<'_> {
    pub(crate) fn commits(&self) -> Commits {
        match self.meta {
            Some(_) => Commits::Wait,
            None => Commits::GoOn,
        }
    }
}

impl<D: Device> Member<D> {
    /// Locks pages and directory. A checkpoint under way that has time for clients has none any more.
    pub(crate) async fn lock_pages(&self) -> Guard<'_> {
        let _waiting = self.hurry.wait();
        self.pages.lock().await
    }

    /// Locks what a checkpoint needs: of a slow member the journal, too. A page that knew a later commit would count for more than
    /// the record of a move that is being prepared (C1.6).
    pub(crate) async fn lock_for_checkpoint(&self) -> Locks<'_> {
        let _pages = self.lock_pages().await;
        let meta = if self.tier == Tier::Slow { Some(self.meta.lock().await) } else { None };
        Locks { _pages, meta }
    }
}

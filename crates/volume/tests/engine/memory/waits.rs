//! Requests of a device without an answer, as the engine is told of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bimetal_volume::env::{Answering, Env, Instant};

use super::MemoryEnv;

#[derive(Clone, Default)]
pub(crate) struct Waits {
    since: Rc<RefCell<BTreeMap<u64, Instant>>>,
    made: Rc<Cell<u64>>,
    answered: Rc<Cell<Instant>>,
}

/// A request; it is answered, or given up, when this is dropped.
pub(super) struct Waiting {
    waits: Waits,
    number: u64,
    env: MemoryEnv,
}

impl Waits {
    pub(super) fn begin(&self, env: Option<&MemoryEnv>) -> Option<Waiting> {
        let env = env?.clone();
        let number = self.made.get();
        self.made.set(number + 1);
        self.since.borrow_mut().insert(number, env.now());
        Some(Waiting { waits: self.clone(), number, env })
    }

    pub(super) fn answering(&self) -> Answering {
        let since = self.since.borrow();
        let oldest = since.values().min().copied();
        let silent_since = oldest.map(|o| o.max(self.answered.get()));
        Answering { waiting: since.len() as u64, oldest, silent_since, lost: None }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.since.borrow_mut().remove(&self.number);
        self.waits.answered.set(self.env.now());
    }
}

//! Clients that die while a request of theirs is under way. It may take effect or not; but nothing that the next client has been told
//! is done may be undone by it.

use std::cell::Cell;
use std::rc::Rc;

use bimetal_volume::backend::Backend;
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::Volume;

use super::client::{Client, MICROS};
use crate::content::MAX_WRITE;
use crate::counters::Seen;
use crate::env::SimEnv;
use crate::oracle::{Issued, Promise, Value};
use crate::scenario::{Asked, Step};

const BLOCK: u64 = 4096;

/// A request, and who waits for it.
struct Request {
    client: Client,
    volume: Volume<SimEnv>,
    asked: Asked,
    step: Step,
    /// The client is there.
    there: Rc<Cell<bool>>,
    ended: Rc<Cell<bool>>,
}

impl Client {
    /// Asks for a change, and dies so many microseconds later, unless it was answered before.
    pub(super) async fn dying(&self, asked: Asked, s: &Step, after: u64) {
        let (from, to) = (s.offset.next_multiple_of(BLOCK), (s.offset + s.len) / BLOCK * BLOCK);
        if from >= to {
            return;
        }
        self.claim(s.volume, from, to - from).await;
        // Waiting, the volume may have become shorter.
        let step = self.inside(Step { offset: from, len: to - from, ..*s });
        if let (Some(step), Some(volume)) = (step, self.volume(s.volume)) {
            let (there, ended) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(false)));
            let request =
                Request { client: self.clone(), volume, asked, step, there: there.clone(), ended: ended.clone() };
            let issued = self.issue_dying(&request);
            self.shared.dying.set(self.shared.dying.get() + 1);
            self.env.spawn(request.carry_out(issued));
            self.shared.world.sleep(after * MICROS).await;
            there.set(false);
            if !ended.get() {
                self.shared.world.note(26, from, || format!("its client is dead: {}", crate::text::step_text(&step)));
                self.shared.oracle.borrow_mut().left(issued.0, self.shared.world.sequence());
                self.shared.marks.borrow_mut().mark(Seen::DeadClient);
            }
        }
        self.release(s.volume, from, to - from);
    }

    /// Tells the oracle; with the id of the write, if it is one.
    fn issue_dying(&self, r: &Request) -> (Issued, u64) {
        let mut oracle = self.shared.oracle.borrow_mut();
        let id = if r.asked == Asked::Write { oracle.write_id() } else { 0 };
        assert!(id <= MAX_WRITE, "a run has fewer writes");
        let value = if r.asked == Asked::Write { Value::write(id) } else { Value::ZERO };
        let promise = if self.shared.outlives { Promise::OutlivesDaemon } else { Promise::None };
        let issued =
            oracle.issue(r.step.volume, r.step.offset, r.step.len, value, promise, self.shared.world.sequence());
        (issued, id)
    }
}

impl Request {
    async fn carry_out(self, (issued, id): (Issued, u64)) {
        let Step { volume, offset, len, .. } = self.step;
        let (shared, flags) = (self.client.shared.clone(), self.client.flags(false, false));
        let before = shared.world.injected();
        let wanted = || self.there.get();
        let result = match self.asked {
            Asked::Write => {
                let mut buf = BufMut::with_phase(len as usize, offset);
                shared.oracle.borrow().fill(volume, offset, id, &mut buf);
                self.volume.write_while(offset, buf.freeze(), flags, &wanted).await
            }
            Asked::Trim => self.volume.trim_while(offset, len, flags, &wanted).await,
            Asked::Zeroes => self.volume.write_zeroes(offset, len, flags, &wanted).await,
        };
        shared.dying.set(shared.dying.get().saturating_sub(1));
        if !self.client.answered() {
            return;
        }
        self.ended.set(true);
        let late = result.is_err() && shared.world.injected().late > before.late;
        let now = shared.world.sequence();
        let mut oracle = shared.oracle.borrow_mut();
        match (self.there.get(), &result) {
            (false, _) => oracle.over(volume, issued, late, now),
            (true, Ok(())) => {
                oracle.tick(shared.world.now());
                oracle.answered(issued, now);
            }
            (true, Err(_)) => oracle.failed(volume, issued, late, now),
        }
    }
}

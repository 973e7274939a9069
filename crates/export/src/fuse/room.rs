//! Room for what does I/O. A file has a little of its own, and shares the rest with the others: those whose disk stands still
//! may have all of that, and keep nobody from a file that lies elsewhere.
//!
//! Whose a request is, is known only when it was received, and a WRITE brings its data with it. So all are received, and one
//! that finds no room waits here, behind those of its file. Only when these occupy too much themselves nothing is received any more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bimetal_host::fuse::Answer;

use crate::load::{Load, Pool, Share};

use super::execute::Work;
use super::Limits;

/// What a file has in flight, and what waits for it.
struct Line {
    load: Load,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    /// Counted up: who came first has the lowest.
    ticket: u64,
    answer: Box<Answer>,
    work: Work,
}

/// The room of a mount.
pub(super) struct Room {
    limits: Limits,
    pool: Rc<Pool>,
    /// By the number of the file in the list.
    lines: RefCell<Vec<Line>>,
    /// What waits, of all files.
    waiting: Cell<Share>,
    next_ticket: Cell<u64>,
}

impl Room {
    pub(super) fn new(limits: Limits) -> Room {
        Room {
            limits,
            pool: Pool::new(limits.requests, limits.bytes),
            lines: RefCell::default(),
            waiting: Cell::default(),
            next_ticket: Cell::new(0),
        }
    }

    /// Whether so much waits that nothing more is to be received.
    pub(super) fn is_full(&self) -> bool {
        let Share { requests, bytes } = self.waiting.get();
        requests >= self.limits.waiting_requests || bytes >= self.limits.waiting_bytes
    }

    /// Takes room for work that has just come; false if it has to wait.
    pub(super) fn take(&self, work: &Work) -> bool {
        let nobody_waits = self.waiting.get() == Share::default();
        let mut lines = self.lines.borrow_mut();
        while lines.len() <= work.file() {
            lines.push(self.line());
        }
        let line = &lines[work.file()];
        line.waiting.is_empty() && line.load.take_if(work.share(), || nobody_waits)
    }

    fn line(&self) -> Line {
        let (all, own) = (Share { requests: usize::MAX, bytes: u64::MAX }, self.limits.own());
        Line { load: Load::new(all, own, &self.pool), waiting: VecDeque::new() }
    }

    /// Lets work wait that found no room.
    pub(super) fn wait(&self, answer: Box<Answer>, work: Work) {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.count(|waiting| waiting.add(Share::of(work.brought())));
        self.lines.borrow_mut()[work.file()].waiting.push_back(Waiting { ticket, answer, work });
    }

    /// Gives back what a request of the file had taken.
    pub(super) fn give_back(&self, file: usize, share: Share) {
        self.lines.borrow()[file].load.give_back(share);
    }

    /// Something that waits and finds room now, which it has then. What all share is had by whoever waits for the longest time; what is
    /// the file's own by the first of that.
    pub(super) fn next(&self) -> Option<(Box<Answer>, Work)> {
        self.first(|line, w, oldest| line.load.take_if(w.work.share(), || w.ticket == oldest))
    }

    /// Something that waits, to be refused: it has no room.
    pub(super) fn give_up(&self) -> Option<(Box<Answer>, Work)> {
        self.first(|_, _, _| true)
    }

    /// The first that waits for a file, of the first file where that `may` leave. It is told who of all waits for the longest time.
    fn first(&self, may: impl Fn(&Line, &Waiting, u64) -> bool) -> Option<(Box<Answer>, Work)> {
        if self.waiting.get() == Share::default() {
            return None;
        }
        let mut lines = self.lines.borrow_mut();
        let oldest = lines.iter().filter_map(|line| Some(line.waiting.front()?.ticket)).min()?;
        let leaves = |line: &&mut Line| line.waiting.front().is_some_and(|w| may(line, w, oldest));
        let Waiting { answer, work, .. } = lines.iter_mut().find(leaves)?.waiting.pop_front()?;
        self.count(|waiting| *waiting = waiting.less(Share::of(work.brought())));
        Some((answer, work))
    }

    fn count(&self, change: impl Fn(&mut Share)) {
        let mut waiting = self.waiting.get();
        change(&mut waiting);
        self.waiting.set(waiting);
    }

    /// Whether nothing is in flight, and nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        let idle = |line: &Line| line.load.requests() == 0 && line.load.bytes() == 0;
        self.waiting.get() == Share::default() && self.lines.borrow().iter().all(idle)
    }
}

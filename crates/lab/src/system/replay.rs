//! Traces and workloads on a system: what the foreground felt.

use bimetal_sim::model::{Op, Request, MOST_BYTES};

use super::load::LOST;
use super::meter::Latencies;
use super::{Facts, System};
use crate::trace::{Access, Op as TraceOp};

/// When the accesses of a trace are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At their own times. While `most` are on their way the trace's clock stands still, as people and programs wait for a
    /// slow machine; all later accesses come that much later.
    AsRecorded {
        /// Accesses on their way at most.
        most: usize,
    },
    /// A new one follows each completion; the trace's times do not matter.
    Closed {
        /// Accesses on their way.
        depth: usize,
    },
}

/// Most accesses on their way in a replay as recorded.
pub const MOST_BEHIND: usize = 256;

/// What a replay measured. Latencies in ns, from the submission of an access to its completion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes.
    pub writes: Latencies,
    /// Latencies of reads and writes together.
    pub all: Latencies,
    /// Bytes read and written.
    pub bytes: u64,
    /// Nanoseconds from the first measured submission to the last completion.
    pub elapsed: u64,
    /// Nanoseconds for which the trace's clock stood still.
    pub held: u64,
    /// Accesses that do not fit the system (beyond its end, or longer than a request can be), left out.
    pub left_out: u64,
    /// What the system did, when the replay ended.
    pub facts: Facts,
}

impl Replayed {
    /// Reads and writes per second.
    pub fn requests_per_second(&self) -> f64 {
        self.all.count() as f64 * 1e9 / self.elapsed.max(1) as f64
    }

    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.elapsed.max(1) as f64
    }
}

/// An access on its way.
#[derive(Clone, Copy)]
struct Sent {
    at: u64,
    request: Request,
    measured: bool,
}

struct Replay<'a> {
    system: &'a mut dyn System,
    most: usize,
    /// By id; ids are used again.
    sent: Vec<Option<Sent>>,
    unused: Vec<u64>,
    begun: Option<u64>,
    result: Replayed,
}

/// Replays accesses, in the order of their times. Those of the first `warm_up_us` microseconds of the trace are carried out
/// but not measured.
pub fn replay(
    system: &mut dyn System,
    accesses: impl IntoIterator<Item = Access>,
    pace: Pace,
    warm_up_us: u64,
) -> Replayed {
    let (most, as_recorded) = match pace {
        Pace::AsRecorded { most } => (most, true),
        Pace::Closed { depth } => (depth, false),
    };
    assert!(most > 0, "a replay without requests on their way");
    let start = system.now();
    let (sent, unused, result) = Default::default();
    let mut replay = Replay { system, most, sent, unused, begun: None, result };
    for access in accesses {
        if as_recorded {
            let due = start + access.time_us.saturating_mul(1000) + replay.result.held;
            replay.run_until(due);
            replay.result.held += replay.make_room();
        } else {
            replay.make_room();
        }
        replay.submit(&access, access.time_us >= warm_up_us);
    }
    replay.end()
}

impl Replay<'_> {
    fn on_their_way(&self) -> usize {
        self.sent.len() - self.unused.len()
    }

    /// Lets time pass until `due`.
    fn run_until(&mut self, due: u64) {
        while self.system.now() < due {
            match self.system.run(due) {
                Some(done) => self.done(done.id, done.at),
                None => return,
            }
        }
    }

    /// Waits until one more may be submitted; for how many ns.
    fn make_room(&mut self) -> u64 {
        let begun = self.system.now();
        while self.on_their_way() >= self.most {
            self.wait();
        }
        self.system.now() - begun
    }

    fn wait(&mut self) {
        let done = self.system.run(self.system.now() + LOST);
        assert!(done.is_some(), "{} has not answered for an hour", self.system.name());
        if let Some(done) = done {
            self.done(done.id, done.at);
        }
    }

    fn submit(&mut self, access: &Access, measured: bool) {
        let request = Request { op: op_of(access.op), offset: access.offset, len: access.len };
        if !fits(&request, self.system.size()) {
            self.result.left_out += 1;
            return;
        }
        let at = self.system.now();
        if measured {
            self.begun.get_or_insert(at);
        }
        let id = self.unused.pop().unwrap_or_else(|| {
            self.sent.push(None);
            self.sent.len() as u64 - 1
        });
        self.sent[id as usize] = Some(Sent { at, request, measured });
        self.system.submit(id, request);
    }

    fn done(&mut self, id: u64, at: u64) {
        let Some(sent) = self.sent.get_mut(id as usize).and_then(Option::take) else { return };
        self.unused.push(id);
        if !sent.measured {
            return;
        }
        let ns = at - sent.at;
        let result = &mut self.result;
        result.elapsed = at - self.begun.unwrap_or(at);
        match sent.request.op {
            Op::Read => result.reads.add(ns),
            Op::Write => result.writes.add(ns),
            Op::Trim | Op::Flush => return,
        }
        result.all.add(ns);
        result.bytes += sent.request.len;
    }

    fn end(mut self) -> Replayed {
        while self.on_their_way() > 0 {
            self.wait();
        }
        Replayed { facts: self.system.facts(), ..self.result }
    }
}

fn op_of(op: TraceOp) -> Op {
    match op {
        TraceOp::Read => Op::Read,
        TraceOp::Write => Op::Write,
        TraceOp::Trim => Op::Trim,
        TraceOp::Flush => Op::Flush,
    }
}

fn fits(request: &Request, size: u64) -> bool {
    let end = request.offset.checked_add(request.len);
    match request.op {
        Op::Flush => true,
        Op::Trim => end.is_some_and(|end| end <= size),
        Op::Read | Op::Write => (1..=MOST_BYTES).contains(&request.len) && end.is_some_and(|end| end <= size),
    }
}

#[cfg(test)]
mod tests {
    use bimetal_sim::model::{catalog, Model};
    use bimetal_volume::units::Tier;

    use super::super::bare::Bare;
    use super::*;

    fn disk() -> Bare<dyn Model> {
        let disk = catalog::find("hdd2012").and_then(|s| s.build().ok()).expect("the catalog's disk");
        Bare::new("disk", Tier::Slow, disk)
    }

    fn read(time_us: u64, offset: u64) -> Access {
        Access { time_us, op: TraceOp::Read, offset, len: 4096 }
    }

    #[test]
    fn accesses_come_at_their_times() {
        let apart = (0..10).map(|i| read(i * 1_000_000, i * 70_000_000_000));
        let seen = replay(&mut disk(), apart, Pace::AsRecorded { most: 256 }, 0);
        assert_eq!((seen.all.count(), seen.reads.count(), seen.held, seen.left_out), (10, 10, 0, 0));
        // One at a time: none waits for another.
        assert!(seen.all.max() < 30_000_000, "{}", seen.all.max());
        assert!((9_000_000_000..9_050_000_000).contains(&seen.elapsed), "{}", seen.elapsed);
        assert_eq!(seen.facts.slow.reads, 10);
    }

    #[test]
    fn a_slow_system_holds_the_clock() {
        let at_once = |n| (0..n).map(|i| read(0, i * 7_000_000_000 % 900_000_000_000 / 4096 * 4096));
        let bound = replay(&mut disk(), at_once(100), Pace::AsRecorded { most: 4 }, 0);
        let closed = replay(&mut disk(), at_once(100), Pace::Closed { depth: 4 }, 0);
        assert_eq!((&bound.all, bound.elapsed), (&closed.all, closed.elapsed));
        assert!(bound.held > 500_000_000 && closed.held == 0, "{}", bound.held);
        let unbound = replay(&mut disk(), at_once(100), Pace::AsRecorded { most: 256 }, 0);
        assert!(unbound.held == 0 && unbound.all.percentile(50.0) > bound.all.percentile(50.0) * 4);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_the_warm_up_is_not_measured() {
        let end = 1_000_000_000_000;
        let flush = Access { time_us: 3, op: TraceOp::Flush, offset: 0, len: 0 };
        let accesses = [read(0, 0), read(1, end), read(2, u64::MAX), flush, read(5_000_000, 4096)];
        let seen = replay(&mut disk(), accesses, Pace::AsRecorded { most: 256 }, 1_000_000);
        assert_eq!((seen.all.count(), seen.left_out, seen.bytes), (1, 2, 4096));
    }
}

//! A hard disk: one head, a command queue, and a write cache.
//!
//! - *Window*: the oldest commands (at most [`HddSpec::queue`]) among which the disk chooses the next; the others wait
//!   outside.
//! - *Cached write*: a write that is answered but not on the platter yet. *Drain*: writing those.
//! - *Pressed*: somebody waits for the drain (a flush, or a write for which the cache has no room). A disk that is not
//!   pressed serves reads first.
//!
//! 1. A write is answered when the cache has taken it; without a cache, when it is on the platter.
//! 2. A flush is answered when every write that was cached before it is on the platter.
//! 3. A command is passed over at most [`MAX_SKIPS`] times, then it is next: nothing starves.

mod head;

use std::collections::VecDeque;

use self::head::Head;
use super::{check, transfer_ns, BadSpec, Completion, Model, Op, Ready, Refused, Request};
use super::{END_OF_TIME, LONGEST_NS, SLOWEST};

/// After being passed over so often a command is served next.
pub const MAX_SKIPS: u32 = 64;
/// Nanoseconds of a command that is answered from the buffer: no mechanics.
const BUFFERED_NS: u64 = 50_000;

/// How a disk chooses among the commands of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The nearest by seek distance; what the measured disks do.
    ShortestSeek,
    /// The one whose first byte is under the head earliest (SPTF); what the best disks might do.
    ShortestPositioning,
}

/// Parameters of a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct HddSpec {
    /// Bytes; offset 0 is the outer edge.
    pub size: u64,
    /// Turns per minute.
    pub rpm: u32,
    /// `a`, `b`, `c` of a seek `a + b * sqrt(d) + c * d`, in milliseconds; `d` is the distance as a part of the stroke.
    /// A seek to the same place takes none.
    pub seek_ms: [f64; 3],
    /// Bytes per second at the outer edge; the rate falls linearly with the offset, zone by zone.
    pub outer_rate: u64,
    /// Bytes per second at the inner edge; not more than at the outer.
    pub inner_rate: u64,
    /// Nanoseconds of the electronics for a command elsewhere.
    pub overhead_ns: u64,
    /// Nanoseconds for a command that goes on where the head is.
    pub follow_overhead_ns: u64,
    /// The head passes over a gap of at most so many bytes instead of seeking.
    pub pass_over: u64,
    /// Bytes read ahead into the buffer behind a read while nothing else is to be done.
    pub read_ahead: u64,
    /// Commands among which the disk chooses.
    pub queue: usize,
    /// How it chooses.
    pub order: Order,
    /// Bytes of the write cache; 0 if it is off.
    pub cache_bytes: u64,
    /// Writes that the cache holds at most.
    pub cache_commands: usize,
    /// Bytes per second between host and buffer.
    pub bus_rate: u64,
}

/// A read, or a write without cache, or a cached write.
#[derive(Clone, Copy, Debug)]
struct Command {
    /// Order of arrival at the window.
    number: u64,
    /// Whom to tell; a cached write has been answered.
    id: Option<u64>,
    read: bool,
    offset: u64,
    len: u64,
    skips: u32,
}

/// A disk.
#[derive(Clone, Debug)]
pub struct Hdd {
    spec: HddSpec,
    head: Head,
    now: u64,
    /// Commands that somebody waits for.
    waiting: VecDeque<Command>,
    /// Cached writes.
    cached: VecDeque<Command>,
    /// Bytes of the cached writes, the one under the head included.
    cached_bytes: u64,
    /// Writes for which the cache has no room yet.
    blocked: VecDeque<(u64, Request)>,
    /// Flushes (id), each with the number of the first command behind it.
    flushes: VecDeque<(u64, u64)>,
    in_service: Option<Command>,
    numbers: u64,
    bus_free: u64,
    ready: Ready,
    busy_ns: u64,
}

impl Hdd {
    /// A disk at rest, its head at the outer edge. Fails if the parameters contradict each other.
    pub fn new(spec: HddSpec) -> Result<Hdd, BadSpec> {
        if spec.size == 0 || spec.rpm == 0 || spec.queue == 0 {
            return Err(BadSpec("size, turns and queue of a disk must be more than 0"));
        }
        if spec.inner_rate.min(spec.bus_rate) < SLOWEST || spec.overhead_ns.max(spec.follow_overhead_ns) > LONGEST_NS {
            return Err(BadSpec("a disk moves at least 1 kB/s, and no delay is longer than 1000 s"));
        }
        if spec.outer_rate < spec.inner_rate {
            return Err(BadSpec("the outer tracks of a disk are not slower than the inner ones"));
        }
        let [a, b, c] = spec.seek_ms;
        // A seek across the stroke is the one where a negative c weighs most.
        let finite = a.is_finite() && b.is_finite() && c.is_finite();
        if !finite || a < 0.0 || b < 0.0 || !(0.0..1e6).contains(&(a + b + c)) {
            return Err(BadSpec("a seek takes no negative time, and less than 1000 s"));
        }
        if spec.cache_bytes > 0 && spec.cache_commands == 0 {
            return Err(BadSpec("a write cache holds at least one command"));
        }
        Ok(Hdd {
            head: Head::new(&spec),
            spec,
            now: 0,
            waiting: VecDeque::new(),
            cached: VecDeque::new(),
            cached_bytes: 0,
            blocked: VecDeque::new(),
            flushes: VecDeque::new(),
            in_service: None,
            numbers: 0,
            bus_free: 0,
            ready: Ready::default(),
            busy_ns: 0,
        })
    }

    /// The parameters.
    pub fn spec(&self) -> &HddSpec {
        &self.spec
    }

    /// Nanoseconds for which the head has worked, or will have when the request under it ends.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Writes that were answered and are not on the platter.
    pub fn dirty(&self) -> usize {
        self.cached.len() + usize::from(self.in_service.is_some_and(|c| !c.read && c.id.is_none()))
    }

    fn command(&mut self, id: Option<u64>, request: &Request) -> Command {
        self.numbers += 1;
        let Request { op, offset, len } = *request;
        Command { number: self.numbers, id, read: op == Op::Read, offset, len, skips: 0 }
    }

    /// Moves the clock; ends what is under the head, begins what is next, until `now`.
    fn advance(&mut self, now: u64) {
        while self.in_service.is_some() && self.head.free() <= now {
            self.now = self.now.max(self.head.free());
            self.finish();
            self.begin();
        }
        self.now = self.now.max(now.min(END_OF_TIME));
    }

    /// The command under the head has ended.
    fn finish(&mut self) {
        let Some(command) = self.in_service.take() else { return };
        match command.id {
            Some(id) => self.ready.push(self.now, id),
            None => self.cached_bytes -= command.len,
        }
        while let Some((id, request)) = self.blocked.front().copied() {
            if !self.room_for(request.len) {
                break;
            }
            self.blocked.pop_front();
            self.cache(id, &request);
        }
        self.answer_flushes();
    }

    fn answer_flushes(&mut self) {
        let oldest = self.cached.front().map_or(u64::MAX, |c| c.number);
        while let Some((id, before)) = self.flushes.front().copied() {
            if oldest < before || self.in_service.is_some_and(|c| c.id.is_none() && c.number < before) {
                break;
            }
            self.flushes.pop_front();
            self.ready.push(self.now + BUFFERED_NS, id);
        }
    }

    fn room_for(&self, len: u64) -> bool {
        // A write larger than the whole cache is taken when the cache is empty.
        self.dirty() < self.spec.cache_commands
            && (self.cached_bytes + len <= self.spec.cache_bytes || self.cached_bytes == 0)
    }

    fn cache(&mut self, id: u64, request: &Request) {
        let command = self.command(None, request);
        self.cached.push_back(command);
        self.cached_bytes += request.len;
        self.bus_free = self.bus_free.max(self.now) + transfer_ns(request.len, self.spec.bus_rate);
        self.ready.push(self.bus_free + BUFFERED_NS, id);
    }

    /// Begins the next command, if there is one and the head is free.
    fn begin(&mut self) {
        if self.in_service.is_some() {
            return;
        }
        let Some((from_cache, i)) = self.choose() else { return };
        let queue = if from_cache { &mut self.cached } else { &mut self.waiting };
        let Some(command) = queue.remove(i) else { return };
        self.pass_over(command.number);
        let end = self.head.serve(self.now, command.offset, command.len, command.read);
        self.busy_ns += end - self.now;
        self.in_service = Some(command);
    }

    /// Counts for the commands of the window that an older one was served before them.
    fn pass_over(&mut self, number: u64) {
        let window = self.spec.queue;
        for queue in [&mut self.waiting, &mut self.cached] {
            for command in queue.iter_mut().take(window).filter(|c| c.number < number) {
                command.skips += 1;
            }
        }
    }

    /// Place of the next command: whether it is a cached write, and where it is in its queue.
    fn choose(&self) -> Option<(bool, usize)> {
        let pressed = !self.flushes.is_empty() || !self.blocked.is_empty();
        let overdue = self.cached.front().is_some_and(|c| c.skips >= MAX_SKIPS);
        let drain = pressed || overdue || self.waiting.is_empty();
        let cached = if drain { self.cached.len() } else { 0 };
        let mut best: Option<(u64, bool, usize)> = None;
        let (mut w, mut c) = (0, 0);
        // The oldest commands of both queues, each of which is in the order of arrival.
        while w + c < self.spec.queue {
            let waiting = self.waiting.get(w);
            let dirty = if c < cached { self.cached.get(c) } else { None };
            let from_cache = match (waiting, dirty) {
                (None, None) => break,
                (Some(a), Some(b)) => b.number < a.number,
                (None, Some(_)) => true,
                (Some(_), None) => false,
            };
            let (command, i) = if from_cache { (dirty, c) } else { (waiting, w) };
            let Some(command) = command else { break };
            if command.skips >= MAX_SKIPS {
                return Some((from_cache, i));
            }
            let cost = match self.spec.order {
                Order::ShortestSeek => self.head.distance(command.offset),
                Order::ShortestPositioning => self.head.positioning_ns(command.offset),
            };
            if best.is_none_or(|(least, ..)| cost < least) {
                best = Some((cost, from_cache, i));
            }
            if from_cache {
                c += 1;
            } else {
                w += 1;
            }
        }
        best.map(|(_, from_cache, i)| (from_cache, i))
    }

    /// Whether a read finds all its bytes in one cached write.
    fn in_cache(&self, request: &Request) -> bool {
        let end = request.offset + request.len;
        let under_head = self.in_service.iter().filter(|c| c.id.is_none());
        self.cached.iter().chain(under_head).any(|c| c.offset <= request.offset && end <= c.offset + c.len)
    }
}

impl Model for Hdd {
    fn size(&self) -> u64 {
        self.spec.size
    }

    fn submit(&mut self, now: u64, id: u64, request: Request) -> Result<(), Refused> {
        check(&request, self.spec.size)?;
        self.advance(now);
        match request.op {
            Op::Read if self.in_cache(&request) => {
                self.bus_free = self.bus_free.max(self.now) + transfer_ns(request.len, self.spec.bus_rate);
                self.ready.push(self.bus_free + BUFFERED_NS, id);
            }
            Op::Write if self.spec.cache_bytes > 0 => {
                if self.blocked.is_empty() && self.room_for(request.len) {
                    self.cache(id, &request);
                } else {
                    self.blocked.push_back((id, request));
                }
            }
            Op::Read | Op::Write => {
                let command = self.command(Some(id), &request);
                self.waiting.push_back(command);
            }
            Op::Trim => self.ready.push(self.now, id),
            Op::Flush => {
                self.flushes.push_back((id, self.numbers + 1));
                self.answer_flushes();
            }
        }
        self.begin();
        Ok(())
    }

    fn next_event(&mut self) -> Option<u64> {
        let head = self.in_service.is_some().then(|| self.head.free());
        match (self.ready.next(), head) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn complete(&mut self, now: u64) -> Option<Completion> {
        self.advance(now);
        self.ready.pop(now)
    }
}

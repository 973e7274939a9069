//! The policy in use: chunks are ranked by the disk-head time that the fast tier saves for them.
//!
//! - A random visit weighs 1, a visit inside a stream a sixteenth: that is what they cost a disk's head. In shorter runs it is in
//!   between ([`runs`]).
//! - A chunk on the slow tier becomes a candidate when its heat exceeds that of the coldest chunks of the fast tier by
//!   the cost of the exchange ([`EXCHANGE`]). This one rule is second touch, hysteresis and scan resistance together.
//! - While there is room for whatever is read, and nothing new comes, streams fill it ([`filling`]).
//! - A stream that comes again is judged at its own scale ([`AGAIN`]), as much of it as fits, so that a file read twice
//!   moves up when what it displaces is colder still, and a film does not displace the system.
//! - How long heat lasts follows what serves best, and how warm new chunks are what becomes of them ([`HalfLife`]).

mod ahead;
mod born;
mod filling;
mod let_go;
mod promotions;
mod runs;
mod victims;

use self::ahead::Ahead;
use self::filling::Filling;
use super::backoff::Backoff;
use super::births::Births;
use super::candidates::Candidates;
use super::correlate::{hash, Correlation};
use super::half_life::HalfLife;
use super::heat::{Clock, LIGHT, MISSED, OCTAVE};
use super::influx::Influx;
use super::recency::Recency;
use super::regions::Regions;
use super::reserve::{Filled, Learned};
use super::residence::Residence;
use super::sample::Sample;
use super::sleepers::Sleepers;
use super::stream::{Follows, Run, Streams, RUN};
use super::unreadable::Unreadable;
use super::worth::{Scale, ALONE};
use super::{Policy, Touch, View};
use crate::env::Instant;
use crate::units::{ChunkId, Tier, CHUNK};

/// log2(1.5) octaves.
const LOG_1_5: i32 = 2396;
/// A chunk must be a visit ahead of what leaves for it, which is twice what an exchange costs the disk ...
const EXCHANGE: i32 = 0;
/// ... and must have more than one to show.
const SECOND_TOUCH: i32 = LOG_1_5;
/// A chunk that nothing has to leave for is taken at its first random visit, also if it has to wait a while for its turn: a free
/// slot serves nobody.
const ROOM: i32 = -2 * OCTAVE;
/// So is a chunk at its first visit in a stream while free slots are filled.
const FILLS: i32 = ROOM - LIGHT * OCTAVE;
/// A chunk of a stream too large for the fast tier must be two random visits ahead.
const EXCHANGE_LARGE: i32 = OCTAVE;
/// A stream that fits is worth moving from more than one and a half passes on ...
const AGAIN: i32 = LOG_1_5 - LIGHT * OCTAVE;
/// ... if what leaves for it is colder by three quarters of a pass.
const AGAIN_EXCHANGE: i32 = LOG_1_5 - (LIGHT + 1) * OCTAVE;

/// log2 of what a visit in a run of half a stream's length has too much when it turns out to be inside a stream: 0.42 - 1/16.
const OVERCOUNTED: i32 = -6070;

/// A touch that seeks though its chunk has just been visited: the disk pays for it as for any other, but a chunk that
/// is asked for ten times in a moment is not ten times as likely to be used tomorrow.
const REPEATED: i32 = -2 * OCTAVE;

/// Counts of visits are noisy: a candidate must be ahead by a standard deviation (the root of the count, where visits come
/// independently of each other), but not by more than this part of an octave.
const NOISE: i32 = OCTAVE / 2;

/// A run is a stream from this length on. Shorter runs come back as random accesses, and at this length the seek is a
/// tenth of what they cost.
const STREAM: u64 = 8 << 20;
/// Chunks whose birth is counted again as part of a stream when the run turns out to be one.
const RETRO_CHUNKS: u64 = STREAM / CHUNK;

/// For a promotion only chunks among this share of the fast tier leave.
const COLDEST_PERCENT: u32 = 4;
/// The threshold is computed anew after so many visits; a slot is sampled every few.
const VISITS_PER_THRESHOLD: u32 = 256;
const VISITS_PER_SAMPLE: u32 = 4;

/// Ranks chunks by disk-head time saved.
pub struct HeadTime {
    clock: Clock,
    half_life: HalfLife,
    streams: Streams,
    births: Births,
    influx: Influx,
    correlation: Correlation,
    sample: Sample,
    sleepers: Sleepers,
    queue: Candidates,
    backoff: Backoff,
    unreadable: Unreadable,
    residence: Residence,
    /// Worth of the coldest chunks of the fast tier; `None` before a chunk was seen there.
    coldest: Option<u16>,
    /// What is colder or as cold may be let go, however cold new data are.
    cold: Option<u16>,
    visits: u32,
    regions: Regions,
    /// The same of chunks with a kept copy alone; a region without any has no mark. Fast slots from `noted` on were not looked at yet.
    copied: Regions,
    noted: u32,
    recency: Recency,
    filling: Filling,
    ahead: Ahead,
}

impl HeadTime {
    /// The policy of a group with so many fast slots, before its clock and heats are restored.
    pub fn new(fast_slots: u32) -> HeadTime {
        HeadTime {
            clock: Clock::new(fast_slots),
            half_life: HalfLife::new(fast_slots),
            streams: Streams::new(),
            births: Births::new(),
            influx: Influx::new(),
            correlation: Correlation::new(),
            sample: Sample::new(),
            sleepers: Sleepers::default(),
            queue: Candidates::new(),
            backoff: Backoff::new(),
            unreadable: Unreadable::new(),
            residence: Residence::new(),
            coldest: None,
            cold: None,
            visits: 0,
            regions: Regions::new(fast_slots),
            copied: Regions::new(fast_slots),
            noted: 0,
            recency: Recency::new(fast_slots),
            filling: Filling::new(fast_slots),
            ahead: Ahead::default(),
        }
    }

    /// The fast tier has another size or other members: where its coldest chunks lie is to be found anew, and what was used lately
    /// is forgotten. How long heat lasts follows the size.
    pub(crate) fn resized(&mut self, fast_slots: u32) {
        self.regions = Regions::new(fast_slots);
        (self.copied, self.noted) = (Regions::new(fast_slots), 0);
        self.recency = Recency::new(fast_slots);
        self.influx = Influx::new();
        self.filling = Filling::new(fast_slots);
        self.half_life.resized(&mut self.clock, fast_slots);
    }

    /// Bytes of memory that it takes: nine bits for each fast slot, and nearly the same for any size of the group beside. The heat of
    /// each chunk is kept by the [`View`].
    pub fn bytes(&self) -> usize {
        let tables = [self.correlation.bytes(), self.sample.bytes(), self.queue.bytes(), 2 * self.regions.bytes()];
        let waiting = [self.backoff.bytes(), self.unreadable.bytes(), self.residence.bytes()];
        let learned = [self.half_life.bytes(), self.recency.bytes(), self.filling.bytes()];
        std::mem::size_of::<HeadTime>() + tables.iter().chain(&waiting).chain(&learned).sum::<usize>()
    }

    /// The heat of a chunk after so many visits.
    #[cfg(test)]
    pub(in crate::tier) fn heat_of_visits(&self, visits: i32) -> u16 {
        let heat = (f64::from(visits).max(1e-6).log2() * f64::from(OCTAVE)) as i32;
        self.clock.absolute(heat, 0)
    }

    /// What chunks are rated by.
    fn scale(&self) -> Scale<'_> {
        Scale { clock: &self.clock, recency: &self.recency }
    }

    /// What a chunk must show to be worth an exchange.
    /// `fills`: a free slot is enough.
    fn bar(&self, v: &impl View, kind: Kind, fills: bool) -> Bar {
        if fills {
            return Bar { least: FILLS, ahead: i32::MIN };
        }
        let plenty = filling::is_plenty(v);
        let coldest = if plenty { None } else { self.coldest.map(|h| self.clock.relative(h)) };
        let (margin, least) = match kind {
            Kind::Random if plenty => return Bar { least: ROOM, ahead: i32::MIN },
            Kind::Random => (EXCHANGE, SECOND_TOUCH),
            Kind::LargeStream => (EXCHANGE_LARGE, EXCHANGE_LARGE),
            Kind::Stream => (AGAIN_EXCHANGE, AGAIN),
        };
        let ahead = coldest.map_or(i32::MIN, |c| {
            let noisy = c.saturating_add(NOISE).min(self.clock.ladd(c, c / 2));
            self.clock.ladd(c, margin).max(noisy)
        });
        Bar { least, ahead }
    }

    /// By how much what a chunk shows is over the bar: negative if it is not. `heat`: what it is judged by.
    fn over(&self, v: &impl View, c: ChunkId, heat: i32, stream: bool, bar: &Bar) -> i32 {
        let alone = if stream { 0 } else { self.scale().alone(v, c) };
        (heat + alone / 2 - bar.least).min((heat + alone).saturating_sub(bar.ahead))
    }

    /// Adds a visit of weight 2^`weight` octaves; a first one replaces what the number said of an earlier life. Chunks with the
    /// same `run` are rounded alike: a file that is read as a whole is not torn apart by it.
    fn heat_up(&mut self, v: &mut impl View, c: ChunkId, weight: i32, born: bool, run: u32) -> i32 {
        let before = self.clock.relative(v.heat(c));
        let heat = if born { weight } else { self.clock.ladd(before, weight) };
        v.set_heat(c, self.clock.absolute(heat, hash(u64::from(run))));
        if born {
            self.note_region(v, c);
        }
        heat
    }

    /// A chunk has come to the fast tier, or has cooled there.
    fn note_region(&mut self, v: &impl View, c: ChunkId) {
        if let Some(slot) = v.fast_slot(c) {
            self.regions.note(&self.clock, slot, v.heat(c));
            if v.has_copy(c) {
                self.copied.note_first(&self.clock, slot, v.heat(c));
            }
        }
    }

    /// A chunk is used: that counts for a while where it is on the fast tier.
    fn used(&mut self, v: &impl View, c: ChunkId) {
        if let Some(slot) = v.fast_slot(c) {
            self.recency.used(slot);
        }
    }

    fn waits(&self, c: ChunkId, now: Instant) -> bool {
        self.backoff.waits(c, now) || self.unreadable.waits(c, now)
    }

    /// Queues a slow chunk that is hot enough. `heat`: what it is judged by, which may be less than what is kept.
    fn consider(&mut self, v: &impl View, c: ChunkId, heat: i32, kind: Kind) {
        let bar = self.bar(v, kind, false);
        // Most are far below: their neighbours need not be asked.
        if heat.saturating_add(ALONE) < bar.ahead {
            return;
        }
        let over = self.over(v, c, heat, kind != Kind::Random, &bar);
        if over >= 0 && v.tier_of(c) == Some(Tier::Slow) && !self.waits(c, v.now()) {
            self.queue.push(c, (over / OCTAVE).min(7) as u8, kind == Kind::Stream);
        }
    }

    /// A run turned out to be a stream: its first chunks were taken for random accesses, and are judged again, by the
    /// milder rule and by what this visit should have weighed. Bounded, and once per stream.
    fn look_back(&mut self, v: &mut impl View, run: &Run) {
        let high = self.streams.high(run.id).0;
        // Bytes that were overtaken do not count: there may be more chunks than that.
        for c in (run.start.max(high.saturating_sub(2 * RETRO_CHUNKS - 1))..=high).map(ChunkId) {
            let heat = self.clock.relative(v.heat(c));
            self.consider(v, c, self.clock.lsub(heat, OVERCOUNTED), Kind::Stream);
        }
    }

    /// The rule for a visit inside a run of so many bytes.
    fn kind_of(&self, v: &impl View, bytes: u64) -> Kind {
        match bytes {
            0..STREAM => Kind::Random,
            // Of a stream that is larger than the fast tier, as much as fits: the rest does not drive it out again.
            _ if bytes / CHUNK <= u64::from(v.fast_slots().saturating_sub(v.keep_free())) => Kind::Stream,
            _ => Kind::LargeStream,
        }
    }

    /// Keeps the sample and the threshold fresh.
    fn observe(&mut self, v: &mut impl View) {
        self.visits = self.visits.wrapping_add(1);
        self.influx.visit(v.fast_slots());
        if self.visits.is_multiple_of(VISITS_PER_SAMPLE) {
            self.take_sample(v, 1);
        }
        if self.visits.is_multiple_of(VISITS_PER_THRESHOLD) {
            self.refresh(v, 0);
        }
    }

    fn take_sample(&mut self, v: &mut impl View, tries: usize) {
        let cold = self.cold.map(|h| self.clock.relative(h));
        let scale = Scale { clock: &self.clock, recency: &self.recency };
        self.sample.take(v, scale, tries, cold, &self.unreadable);
    }

    fn refresh(&mut self, v: &mut impl View, samples: usize) {
        self.take_sample(v, samples);
        self.coldest =
            self.sample.quantile(&self.clock, COLDEST_PERCENT).map(|relative| self.clock.absolute(relative, 0));
        self.cold = self.cold_limit();
    }
}

/// What a chunk that comes up must show: something of its own, and more than what leaves for it. Relative to now.
struct Bar {
    /// The heat that it must have.
    least: i32,
    /// What it must be rated at.
    ahead: i32,
}

/// By which rule a visit is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Random,
    Stream,
    LargeStream,
}

impl Policy for HeadTime {
    fn place(&mut self, v: &mut impl View, t: &Touch) -> Tier {
        self.births.place(v, t)
    }

    fn touch(&mut self, v: &mut impl View, t: &Touch) {
        let now = v.now();
        self.clock.pass_time(now);
        self.sleepers.watch(v, &self.clock);
        if t.write && (t.born || t.len == CHUNK) {
            self.unreadable.forget(t.chunk);
        }
        if t.born || (t.write && t.len == CHUNK && v.tier_of(t.chunk) != Some(Tier::Fast)) {
            // What replaces a chunk of the slow tier goes where new ones go, or would with room.
            self.influx.born();
        }
        let run = self.streams.add(t.offset_in_group, t.len, t.born, STREAM);
        let stream = run.bytes >= STREAM;
        if stream {
            self.look_ahead(v, t.chunk, &run);
        }
        if stream && !t.write {
            self.births.beside(v, t.len);
        }
        if !stream {
            self.lengthened(v, t.chunk, &run);
        } else if run.became_stream && !t.born {
            self.look_back(v, &run);
        }
        let kind = self.kind_of(v, run.bytes);
        // A large request does not come back for the rest of its chunk.
        let walks = run.bytes >= CHUNK / 2 && t.len < CHUNK / 2;
        if (run.bytes >= RUN && run.entered) || t.born {
            self.correlation.note(t.chunk, now, run.number);
        } else if run.follows == Follows::Same {
            // The head is there: no seek would be saved.
            return;
        } else if !self.correlation.counts(t.chunk, walks, now, run.number) {
            if run.follows == Follows::Nothing && !walks && !stream {
                let heat = self.heat_up(v, t.chunk, REPEATED, false, run.number);
                self.consider(v, t.chunk, heat, kind);
            }
            return;
        }
        if t.born {
            self.born(v, t.chunk, &run);
            return;
        }
        let weight = if stream { -LIGHT * OCTAVE } else { runs::weight(run.bytes) };
        let missed = !stream && v.tier_of(t.chunk) == Some(Tier::Slow);
        self.clock.visit(weight + if missed { MISSED } else { 0 });
        if !stream {
            self.half_life.visit(&mut self.clock, t.chunk, None);
            self.used(v, t.chunk);
        }
        self.visited_again(v, t.chunk);
        let heat = self.heat_up(v, t.chunk, weight, false, run.number);
        self.observe(v);
        self.consider(v, t.chunk, heat, kind);
        if kind == Kind::Stream && !t.write {
            self.consider_filling(v, t.chunk);
        }
    }

    fn victims(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId> {
        self.coldest_chunks(v, max)
    }

    fn let_go(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId> {
        let fillers_go = self.filling.count() > 0 && !self.influx.is_quiet();
        let mut out = self.take_filled(v, max);
        if !fillers_go || v.free_fast() < v.keep_free() {
            let more = self.cold_with_copy(v, max - out.len());
            out.extend(more);
            out.sort_unstable();
            out.dedup();
        }
        out
    }

    fn filled(&self) -> Filled {
        Filled { chunks: self.filling.count(), born: self.influx.of_late() }
    }

    fn room(&mut self, v: &impl View) -> Learned {
        Learned { cold_copies: self.sample.cold_copies(v.fast_slots()), influx: self.influx.most() }
    }

    fn candidates(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId> {
        self.ripe_chunks(v, max)
    }

    fn wants(&mut self, v: &mut impl View, c: ChunkId) -> bool {
        let Some(stream) = self.queue.asked(c) else { return false };
        let bar = self.bar(v, if stream { Kind::Stream } else { Kind::Random }, stream && self.fills(v));
        let now = v.now();
        let waits = self.waits(c, now) || self.residence.is_fresh(c, now);
        let wanted = !waits && self.over(v, c, self.clock.relative(v.heat(c)), stream, &bar) >= 0;
        if wanted {
            self.queue.remove(c);
        }
        wanted
    }

    fn stream_comes(&self, now: Instant) -> bool {
        self.ahead.comes(now)
    }

    fn candidate_count(&self) -> usize {
        self.queue.len()
    }

    fn hint(&mut self, v: &mut impl View, c: ChunkId) {
        self.clock.pass_time(v.now());
        if v.tier_of(c) == Some(Tier::Slow) && self.correlation.counts(c, false, v.now(), 0) {
            // As good as two visits.
            let heat = self.heat_up(v, c, OCTAVE, false, c.0 as u32);
            self.observe(v);
            self.consider(v, c, heat, Kind::Random);
        }
    }

    fn moved(&mut self, v: &mut impl View, c: ChunkId, to: Tier) {
        if to == Tier::Fast {
            self.note_filled(v, c);
            self.note_region(v, c);
            self.used(v, c);
        }
        self.backoff.succeeded(c);
        self.unreadable.forget(c);
        self.residence.moved(c, v.now());
    }

    fn gave_up(&mut self, v: &mut impl View, c: ChunkId) {
        let again = self.backoff.failed(c, v.now());
        // Whether it still deserves to move is asked when it is taken from the queue; a victim is found
        // by the mark of its region.
        if again && v.tier_of(c) != Some(Tier::Fast) {
            self.queue.push(c, 0, true);
        }
    }

    fn cannot_read(&mut self, v: &mut impl View, c: ChunkId, tier: Tier) {
        if !self.unreadable.failed(c, tier, v.now()) {
            self.backoff.failed(c, v.now());
        }
    }

    fn has_to_wait(&self, v: &impl View, c: ChunkId) -> bool {
        self.waits(c, v.now())
    }

    fn was_read(&mut self, c: ChunkId) {
        self.unreadable.forget(c);
    }

    fn unreadable(&mut self, v: &impl View) -> [usize; 2] {
        self.unreadable.tidy(v);
        self.unreadable.count()
    }

    fn coarse(&self, heat: u16) -> u8 {
        self.clock.coarse(heat)
    }

    fn restore(&self, coarse: u8, at: u32) -> u16 {
        self.clock.restore(coarse, at)
    }

    fn heat_level(&self, heat: u16) -> u8 {
        self.clock.level(heat)
    }

    fn clock(&self) -> u64 {
        self.clock.value()
    }

    fn octave(&self) -> u32 {
        self.clock.octave()
    }

    fn restore_clock(&mut self, clock: u64) {
        self.clock.set(clock);
    }
}

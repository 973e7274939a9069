//! The policy in use: chunks are ranked by the disk-head time that the fast tier saves for them.
//!
//! - A random visit weighs 1, a visit inside a stream a sixteenth: that is what they cost a disk's head.
//! - A chunk on the slow tier becomes a candidate when its heat exceeds that of the coldest chunks of the fast tier by
//!   the cost of the exchange ([`EXCHANGE`]). This one rule is second touch, hysteresis and scan resistance together.
//! - A stream that comes again and is small enough to fit is judged at its own scale ([`AGAIN`]), so that a file read
//!   twice moves up when what it displaces is colder still, and a film does not displace the system.

use super::backoff::Backoff;
use super::births::Births;
use super::candidates::{Candidates, Wanted};
use super::correlate::Correlation;
use super::heat::{Clock, LIGHT, OCTAVE};
use super::regions::Regions;
use super::residence::Residence;
use super::sample::Sample;
use super::stream::{Run, Streams, RUN};
use super::{Policy, Touch, View, GROUP_CHUNKS};
use crate::units::{ChunkId, Tier, CHUNK};

/// log2(1.5) octaves.
const LOG_1_5: i32 = 2396;
/// An exchange of two chunks costs the disk as much as 1.5 random visits.
const EXCHANGE: i32 = LOG_1_5;
/// A chunk that nothing has to leave for is taken at its first random visit: a free slot serves nobody.
const ROOM: i32 = 0;
/// A chunk of a stream too large for the fast tier must be two random visits ahead.
const EXCHANGE_LARGE: i32 = OCTAVE;
/// A stream that fits is worth moving from more than one and a half passes on ...
const AGAIN: i32 = LOG_1_5 - LIGHT * OCTAVE;
/// ... if what leaves for it is colder by three quarters of a pass.
const AGAIN_EXCHANGE: i32 = LOG_1_5 - (LIGHT + 1) * OCTAVE;

/// What a visit of weight 1 has too much when it turns out to be inside a stream: 15/16 of a visit.
const OVERCOUNTED: i32 = -381;

/// Counts of visits are noisy: among chunks that are all hot, a candidate must be ahead by this part of an octave.
const NOISE: i32 = OCTAVE / 2;

/// A run is a stream from this length on. Shorter runs come back as random accesses, and at this length the seek is a
/// tenth of what they cost.
const STREAM: u64 = 8 << 20;
/// Chunks whose birth is counted again as part of a stream when the run turns out to be one.
const RETRO_CHUNKS: u64 = STREAM / CHUNK;

/// For a promotion only chunks among this share of the fast tier leave.
const COLDEST_PERCENT: u32 = 2;
/// Regions that one call of `victims` looks at, and while none holds a chunk that may leave.
const LOOKS: usize = 16;
const LOOKS_IN_VAIN: usize = 128;
/// When so many chunks of a group are wanted or on the fast tier, the others come along.
const MOST_OF_GROUP: u32 = 4;
/// Groups of the queue that one call of `candidates` looks at.
const QUEUE_ROUNDS: usize = 16;
/// The threshold is computed anew after so many visits; a slot is sampled every few.
const VISITS_PER_THRESHOLD: u32 = 256;
const VISITS_PER_SAMPLE: u32 = 4;

/// Ranks chunks by disk-head time saved.
pub struct HeadTime {
    clock: Clock,
    streams: Streams,
    births: Births,
    correlation: Correlation,
    sample: Sample,
    queue: Candidates,
    backoff: Backoff,
    residence: Residence,
    /// Heat of the coldest chunks of the fast tier; `None` before a chunk was seen there.
    coldest: Option<u16>,
    visits: u32,
    regions: Regions,
}

impl HeadTime {
    /// The policy of a group with so many fast slots, before its clock and heats are restored.
    pub fn new(fast_slots: u32) -> HeadTime {
        HeadTime {
            clock: Clock::new(fast_slots),
            streams: Streams::new(),
            births: Births::new(),
            correlation: Correlation::new(),
            sample: Sample::new(),
            queue: Candidates::new(),
            backoff: Backoff::new(),
            residence: Residence::new(),
            coldest: None,
            visits: 0,
            regions: Regions::new(fast_slots),
        }
    }

    /// Bytes of memory that it takes, nearly the same for any size of the group; the heat of each chunk is kept by the [`View`].
    pub fn bytes(&self) -> usize {
        let tables = [self.correlation.bytes(), self.sample.bytes(), self.queue.bytes(), self.regions.bytes()];
        let waiting = [self.backoff.bytes(), self.residence.bytes()];
        std::mem::size_of::<HeadTime>() + tables.iter().chain(&waiting).sum::<usize>()
    }

    /// Heat, relative to now, from which a chunk is worth an exchange.
    fn bar(&self, v: &impl View, kind: Kind) -> i32 {
        // Room for everything: nothing has to leave. The mover frees some slots beyond the reserve for promotions, which
        // is not plenty.
        let plenty = v.free_fast() > v.reserve() + v.reserve() / 4 + 8;
        let coldest = if plenty { None } else { self.coldest.map(|h| self.clock.relative(h)) };
        let (margin, least) = match kind {
            Kind::Random if plenty => return ROOM,
            Kind::Random => (EXCHANGE, EXCHANGE),
            Kind::LargeStream => (EXCHANGE_LARGE, EXCHANGE_LARGE),
            Kind::Stream => (AGAIN_EXCHANGE, AGAIN),
        };
        coldest.map_or(least, |c| least.max(self.clock.ladd(c, margin)).max(c.saturating_add(NOISE)))
    }

    /// Adds a visit of weight 2^`weight` octaves; a first one replaces what the number said of an earlier life.
    fn heat_up(&mut self, v: &mut impl View, c: ChunkId, weight: i32, born: bool) -> i32 {
        let before = self.clock.relative(v.heat(c));
        let heat = if born { weight } else { self.clock.ladd(before, weight) };
        let random = v.random();
        v.set_heat(c, self.clock.absolute(heat, random));
        if born {
            self.note_region(v, c);
        }
        heat
    }

    /// A chunk has come to the fast tier, or has cooled there.
    fn note_region(&mut self, v: &impl View, c: ChunkId) {
        if let Some(slot) = v.fast_slot(c) {
            self.regions.note(&self.clock, slot, v.heat(c));
        }
    }

    /// Queues a slow chunk that is hot enough.
    fn consider(&mut self, v: &impl View, c: ChunkId, heat: i32, kind: Kind) {
        let over = heat - self.bar(v, kind);
        if over >= 0 && v.tier_of(c) == Some(Tier::Slow) && !self.backoff.waits(c, v.now()) {
            self.queue.push(c, (over / OCTAVE).min(7) as u8, kind == Kind::Stream);
        }
    }

    /// A run turned out to be a stream: its first chunks were taken for random accesses, and are judged again, by the milder
    /// rule and by what this visit should have weighed. Bounded, and once per stream.
    fn look_back(&mut self, v: &mut impl View, run: &Run) {
        let high = self.streams.high(run.id).0;
        for c in (high.saturating_sub(RETRO_CHUNKS - 1)..=high).map(ChunkId) {
            let heat = self.clock.relative(v.heat(c));
            self.consider(v, c, self.clock.lsub(heat, OVERCOUNTED), Kind::Stream);
        }
    }

    /// Counts a birth. What was born before its run was a stream was born too warm: one such chunk is cooled for each that
    /// follows.
    fn born(&mut self, v: &mut impl View, c: ChunkId, run: &Run) {
        let length = run.bytes / CHUNK;
        let stream = length >= RETRO_CHUNKS;
        let weight = if stream { -LIGHT * OCTAVE } else { 0 };
        // New data make older data older, whatever they weigh.
        self.clock.visit(false);
        self.heat_up(v, c, weight, true);
        self.observe(v);
        if run.born && stream && length < 2 * RETRO_CHUNKS {
            self.cool(v, ChunkId(c.0.saturating_sub(RETRO_CHUNKS)), weight);
        }
    }

    fn cool(&mut self, v: &mut impl View, c: ChunkId, weight: i32) {
        // Only what has the heat of one birth: what was used since is left alone.
        let heat = self.clock.relative(v.heat(c));
        if v.tier_of(c).is_some() && heat > weight && heat <= OCTAVE / 4 {
            let random = v.random();
            v.set_heat(c, self.clock.absolute(weight, random));
            self.note_region(v, c);
        }
    }

    /// The rule for a visit inside a run of so many bytes.
    fn kind_of(&self, v: &impl View, bytes: u64) -> Kind {
        match bytes {
            0..STREAM => Kind::Random,
            _ if bytes / CHUNK <= u64::from(v.fast_slots()) / 2 => Kind::Stream,
            _ => Kind::LargeStream,
        }
    }

    /// Keeps the sample and the threshold fresh.
    fn observe(&mut self, v: &mut impl View) {
        self.visits = self.visits.wrapping_add(1);
        if self.visits.is_multiple_of(VISITS_PER_SAMPLE) {
            self.sample.take(v, 1);
        }
        if self.visits.is_multiple_of(VISITS_PER_THRESHOLD) {
            self.refresh(v, 0);
        }
    }

    fn refresh(&mut self, v: &mut impl View, samples: usize) {
        self.sample.take(v, samples);
        self.coldest =
            self.sample.quantile(&self.clock, COLDEST_PERCENT).map(|relative| self.clock.absolute(relative, 0));
    }

    /// Looks at the regions that promise the coldest chunks, until `max` are found that none of the others undercuts; the
    /// chunks found with their heats, and the heat that the others promise: `usual` while some were never looked at.
    fn search(&mut self, v: &impl View, max: usize, limit: i32, usual: i32) -> (Vec<(i32, ChunkId)>, i32) {
        let (mut found, mut seen) = (Vec::new(), vec![self.regions.next_turn()]);
        self.look(v, seen[0], &mut found);
        while let Some((coldest, mark)) = self.regions.coldest(&self.clock, &seen) {
            let enough = |mark| found.iter().filter(|(heat, _)| *heat <= mark).count() >= max;
            let looks = if found.is_empty() { LOOKS_IN_VAIN } else { LOOKS };
            if seen.len() >= looks || mark.is_some_and(|mark| mark > limit || enough(mark)) {
                return (found, mark.unwrap_or(usual));
            }
            self.look(v, coldest, &mut found);
            seen.push(coldest);
        }
        (found, i32::MAX)
    }

    /// Looks at a region: its chunks that may leave, with their heats, are added to `found`.
    fn look(&mut self, v: &impl View, r: usize, found: &mut Vec<(i32, ChunkId)>) {
        let mut heats = Vec::new();
        for slot in self.regions.slots(r, v.fast_slots()) {
            if let Some(c) = v.fast_at(slot).filter(|c| self.may_leave(v, *c)) {
                let heat = v.heat(c);
                found.push((self.clock.relative(heat), c));
                heats.push(heat);
            }
        }
        self.regions.set(&self.clock, r, &mut heats);
    }

    /// Whether nothing speaks against moving a fast chunk now. What has just come up stays, unless the reserve is short.
    fn may_leave(&self, v: &impl View, c: ChunkId) -> bool {
        let fresh = v.free_fast() >= v.reserve() / 2 && self.residence.is_fresh(c, v.now());
        !fresh && !self.backoff.waits(c, v.now())
    }

    /// Adds a victim and those of its 1 MiB neighbours that are about as cold.
    fn take_group(&self, v: &impl View, c: ChunkId, limit: i32, max: usize, out: &mut Vec<ChunkId>) {
        let first = c.0 - c.0 % GROUP_CHUNKS;
        let known = out.len();
        out.push(c);
        for n in (first..first + GROUP_CHUNKS).map(ChunkId) {
            let cold = || self.clock.relative(v.heat(n)) <= limit.saturating_add(NOISE);
            let free = || v.tier_of(n) == Some(Tier::Fast) && self.may_leave(v, n);
            if n != c && out.len() < max && !out[..known].contains(&n) && free() && cold() {
                out.push(n);
            }
        }
    }

    /// The chunks of a queued group that may move now; those that have to wait stay in `w`.
    fn ripe(&self, v: &impl View, w: &mut Wanted, max: usize, out: &mut Vec<ChunkId>) {
        let bar = self.bar(v, if w.stream { Kind::Stream } else { Kind::Random });
        // A neighbour in a stream costs no seek of its own, so half the heat is enough, but not less than that of what
        // leaves.
        let coldest = self.coldest.map_or(i32::MIN, |h| self.clock.relative(h));
        let near_bar = (bar - OCTAVE).max(coldest);
        let (now, asked) = (v.now(), std::mem::take(&mut w.mask));
        let (mut ripe, mut near, mut rest, mut fast) = (0u8, 0u8, 0u8, 0u8);
        for i in 0..GROUP_CHUNKS {
            let (c, bit) = (ChunkId(w.group * GROUP_CHUNKS + i), 1u8 << i);
            match v.tier_of(c) {
                Some(Tier::Slow) => {}
                Some(Tier::Fast) => {
                    fast |= bit;
                    continue;
                }
                None => continue,
            }
            let heat = self.clock.relative(v.heat(c));
            if self.backoff.waits(c, now) || self.residence.is_fresh(c, now) {
                w.mask |= asked & bit;
            } else if asked & bit != 0 && heat >= bar {
                ripe |= bit;
            } else if w.stream && heat >= near_bar {
                near |= bit;
            } else {
                rest |= bit;
            }
        }
        if ripe == 0 {
            return;
        }
        if (ripe | near | fast).count_ones() >= MOST_OF_GROUP {
            near |= rest;
        }
        // Where there is not room for all, a neighbour must not take the place of the chunk that was asked for.
        let mut chosen = 0u8;
        for bit in [ripe, near].iter().flat_map(|m| (0..GROUP_CHUNKS).map(|i| 1u8 << i).filter(move |b| m & b != 0)) {
            if out.len() + (chosen.count_ones() as usize) < max {
                chosen |= bit;
            }
        }
        w.mask |= ripe & !chosen;
        out.extend((0..GROUP_CHUNKS).filter(|i| chosen >> i & 1 != 0).map(|i| ChunkId(w.group * GROUP_CHUNKS + i)));
    }

    /// Drops candidates that do not deserve a move any more. While no slot can be freed for them nobody else asks.
    fn prune(&mut self, v: &impl View) {
        for w in self.queue.take(usize::MAX).into_iter().rev() {
            let (mut waiting, mut ripe) = (w, Vec::new());
            self.ripe(v, &mut waiting, GROUP_CHUNKS as usize, &mut ripe);
            if waiting.mask != 0 || !ripe.is_empty() {
                self.queue.put_back(w);
            }
        }
    }
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
        let run = self.streams.add(t.offset_in_group, t.len, t.born, STREAM);
        let stream = run.bytes >= STREAM;
        if stream && !t.write {
            self.births.beside(v, t.len);
        }
        let kind = self.kind_of(v, run.bytes);
        // A large request does not come back for the rest of its chunk.
        let walks = run.bytes >= CHUNK / 2 && t.len < CHUNK / 2;
        if (run.bytes >= RUN && run.entered) || t.born {
            self.correlation.note(t.chunk, now);
        } else if !self.correlation.counts(t.chunk, walks, now) {
            return;
        }
        if t.born {
            self.born(v, t.chunk, &run);
            return;
        }
        self.clock.visit(stream);
        let weight = if stream { -LIGHT * OCTAVE } else { 0 };
        let heat = self.heat_up(v, t.chunk, weight, false);
        self.observe(v);
        if run.became_stream {
            self.look_back(v, &run);
        }
        self.consider(v, t.chunk, heat, kind);
    }

    fn victims(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId> {
        let slots = v.fast_slots();
        let mut out = Vec::with_capacity(max.min(1024));
        if max == 0 || slots == 0 {
            return out;
        }
        self.refresh(v, 64);
        let short = v.free_fast() < v.reserve();
        let coldest = self.sample.quantile(&self.clock, COLDEST_PERCENT).unwrap_or(i32::MAX);
        let (mut found, promised) = self.search(v, max, if short { i32::MAX } else { coldest }, coldest);
        found.sort_unstable();
        // For a promotion only the coldest leave. To restore the reserve the coldest there are must, and where colder ones
        // are promised elsewhere a few of them: next time it is looked there.
        let limit = if short { promised.saturating_add(NOISE) } else { coldest };
        let sure = found.partition_point(|(heat, _)| *heat <= limit);
        let few = if short { max.min(GROUP_CHUNKS as usize) } else { 0 };
        let max = if sure >= few { max } else { few };
        for &(heat, c) in &found[..sure.max(few).min(found.len())] {
            if out.len() >= max {
                break;
            }
            if out.binary_search(&c).is_err() {
                self.take_group(v, c, heat, max, &mut out);
                out.sort_unstable();
            }
        }
        if out.is_empty() && !short {
            self.prune(v);
        }
        out
    }

    fn candidates(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId> {
        let mut out = Vec::with_capacity(max.min(1024));
        if max == 0 || self.queue.len() == 0 {
            return out;
        }
        self.refresh(v, 64);
        let mut later = Vec::new();
        for _ in 0..QUEUE_ROUNDS {
            let room = max - out.len();
            if room == 0 {
                break;
            }
            let taken = self.queue.take(room.div_ceil(GROUP_CHUNKS as usize));
            if taken.is_empty() {
                break;
            }
            for mut w in taken {
                self.ripe(v, &mut w, max, &mut out);
                later.push(w);
            }
        }
        for w in later.into_iter().rev() {
            self.queue.put_back(w);
        }
        out
    }

    fn wants(&mut self, v: &mut impl View, c: ChunkId) -> bool {
        let Some(stream) = self.queue.asked(c) else { return false };
        let bar = self.bar(v, if stream { Kind::Stream } else { Kind::Random });
        let now = v.now();
        let waits = self.backoff.waits(c, now) || self.residence.is_fresh(c, now);
        let wanted = !waits && self.clock.relative(v.heat(c)) >= bar;
        if wanted {
            self.queue.remove(c);
        }
        wanted
    }

    fn candidate_count(&self) -> usize {
        self.queue.len()
    }

    fn hint(&mut self, v: &mut impl View, c: ChunkId) {
        self.clock.pass_time(v.now());
        if v.tier_of(c) == Some(Tier::Slow) && self.correlation.counts(c, false, v.now()) {
            // As good as two visits.
            let heat = self.heat_up(v, c, OCTAVE, false);
            self.observe(v);
            self.consider(v, c, heat, Kind::Random);
        }
    }

    fn moved(&mut self, v: &mut impl View, c: ChunkId, to: Tier) {
        if to == Tier::Fast {
            self.note_region(v, c);
        }
        self.backoff.succeeded(c);
        self.residence.moved(c, v.now());
    }

    fn gave_up(&mut self, v: &mut impl View, c: ChunkId) {
        let again = self.backoff.failed(c, v.now());
        // Whether it still deserves to move is asked when it is taken from the queue; a victim is found by the hand.
        if again && v.tier_of(c) != Some(Tier::Fast) {
            self.queue.push(c, 0, true);
        }
    }

    fn coarse(&self, heat: u16) -> u8 {
        self.clock.coarse(heat)
    }

    fn restore(&self, coarse: u8) -> u16 {
        self.clock.restore(coarse)
    }

    fn heat_level(&self, heat: u16) -> u8 {
        self.clock.level(heat)
    }

    fn clock(&self) -> u64 {
        self.clock.value()
    }

    fn restore_clock(&mut self, clock: u64) {
        self.clock.set(clock);
    }
}

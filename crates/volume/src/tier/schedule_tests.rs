//! What the scheduler promises, over a group of levels alone.

use std::time::Duration;

use super::super::foreground::WINDOW_LOAD;
use super::{DeviceRange, Job, Levels, Scheduler};
use crate::env::Instant;
use crate::units::Tier;

const MS: Duration = Duration::from_millis(1);
const RESERVE: u32 = 2048;

/// A group on which a move takes `move_time` and the slow tier serves up to `parallel` moves at a time.
struct Group {
    s: Scheduler,
    l: Levels,
    now: Instant,
    done_at: Vec<(Instant, Job)>,
    plans: u64,
    peak: usize,
    /// From one request's place to the next one's: 4 KiB is a stream.
    stride: u64,
}

impl Group {
    fn new(free: u32) -> Group {
        let l = Levels { free, keep_free: RESERVE, slow_free: 100_000, ..Levels::default() };
        let now = Instant(1);
        Group { s: Scheduler::new(now), l, now, done_at: Vec::new(), plans: 0, peak: 0, stride: 4096 }
    }

    /// What a request is for that ends now.
    fn range(&self) -> DeviceRange {
        DeviceRange { member: 0, offset: self.now.0 / 1_000_000 * self.stride, bytes: 4096 }
    }

    /// So many requests to the slow tier of 10 ms each, one after the other and one more, beside which nothing is moved.
    fn never_pauses(&mut self, requests: u32) {
        for _ in 0..requests {
            self.s.foreground_started(Tier::Slow, self.now);
            self.now = self.now.plus(10 * MS);
            self.s.foreground_done(Tier::Slow, &self.range(), 10 * MS, self.now);
        }
        self.s.foreground_started(Tier::Slow, self.now);
    }

    /// One turn of a mover: ends moves that are due, asks, begins what may begin.
    fn turn(&mut self, move_time: Duration) -> Duration {
        let now = self.now;
        let (due, rest): (Vec<_>, Vec<_>) = self.done_at.drain(..).partition(|m| m.0 <= now);
        self.done_at = rest;
        for (_, job) in due {
            match job {
                Job::Demote => {
                    self.l.demoting -= 1;
                    self.l.free += 1;
                }
                Job::Promote => {
                    self.l.promoting -= 1;
                    self.l.slow_free += 1;
                }
            }
            self.s.moved(job, now);
        }
        let plan = self.s.plan(&self.l, now);
        self.plans += 1;
        assert!(plan.next_check >= 10 * MS, "{plan:?}");
        for _ in 0..plan.demote {
            self.l.demoting += 1;
            self.l.slow_free -= 1;
            self.done_at.push((now.plus(move_time), Job::Demote));
        }
        for _ in 0..plan.promote {
            self.l.promoting += 1;
            self.l.free -= 1;
            self.l.candidates -= 1;
            self.done_at.push((now.plus(move_time), Job::Promote));
        }
        self.peak = self.peak.max(self.done_at.len());
        plan.next_check
    }

    /// Time passes; `load` is a foreground request to a tier, its latency, begun again as soon as it ends.
    fn run(&mut self, time: Duration, move_time: Duration, load: Option<(Tier, Duration)>) {
        let end = self.now.plus(time);
        let mut next_plan = self.now;
        let mut ends = None;
        while self.now < end {
            if let Some((tier, latency)) = load {
                if ends.is_some_and(|e| e <= self.now) {
                    self.s.foreground_done(tier, &self.range(), latency, self.now);
                    ends = None;
                }
                if ends.is_none() {
                    self.s.foreground_started(tier, self.now);
                    ends = Some(self.now.plus(latency));
                }
            }
            if self.done_at.iter().any(|m| m.0 <= self.now) || next_plan <= self.now {
                next_plan = self.now.plus(self.turn(move_time));
            }
            self.now = self.now.plus(MS);
        }
        if let (Some((tier, latency)), Some(_)) = (load, ends) {
            self.s.foreground_done(tier, &self.range(), latency, self.now);
        }
    }
}

#[test]
fn after_a_burst_the_disk_is_used_to_the_full_at_once() {
    let mut g = Group::new(RESERVE / 2);
    g.run(100 * MS, 64 * MS, Some((Tier::Fast, MS)));
    g.run(300 * MS, 64 * MS, None);
    assert_eq!(g.peak, 64);
    // 64 chunks in 64 ms: the missing thousand in a good second.
    g.run(1200 * MS, 64 * MS, None);
    assert!(g.l.free >= RESERVE, "{}", g.l.free);
    g.run(3000 * MS, 64 * MS, None);
    assert_eq!((g.l.free, g.l.demoting), (RESERVE + RESERVE / 10, 0));
}

#[test]
fn under_a_load_that_never_pauses_free_slots_still_grow() {
    for tier in [Tier::Slow, Tier::Fast] {
        for (free, chunks_per_minute) in [(RESERVE - 1000, 95), (RESERVE / 2 - 1000, 190), (0, 300)] {
            let mut g = Group::new(free);
            g.run(60_000 * MS, 40 * MS, Some((tier, 30 * MS)));
            let grown = g.l.free - free;
            // Requests to the fast tier that take no slots are no reason to wait: the disk is free.
            let least = if tier == Tier::Fast { (RESERVE - free).min(1000) } else { chunks_per_minute };
            assert!(grown >= least, "{tier} from {free}: {grown} in a minute");
            assert!(g.peak <= 65, "{tier} from {free}: {} at a time", g.peak);
        }
    }
}

#[test]
fn a_reserve_that_is_nearly_whole_is_in_no_hurry_beside_a_load_for_a_while() {
    let free = RESERVE - RESERVE / 8 + 1;
    let mut g = Group::new(free);
    g.run(290_000 * MS, 40 * MS, Some((Tier::Slow, 30 * MS)));
    assert_eq!((g.l.free + g.l.demoting as u32, g.s.forced()), (free + 4 * 16, 0), "a group each 64 s");
    g.run(110_000 * MS, 40 * MS, Some((Tier::Slow, 30 * MS)));
    assert!((10 * 16..=15 * 16).contains(&(g.l.free - free - 4 * 16)), "then one each 8 s: {}", g.l.free - free);
    // Nobody is there: it is filled at once.
    let mut g = Group::new(free);
    g.run(3000 * MS, 40 * MS, None);
    assert!(g.l.free >= RESERVE, "{}", g.l.free);
}

#[test]
fn a_reserve_that_becomes_short_by_more_is_no_reason_to_force_moves() {
    let mut g = Group::new(RESERVE - RESERVE / 8 + 8);
    // One new chunk in 2 s: it is soon short by more, and sinks no further then.
    let mut least = g.l.free;
    for _ in 0..400 {
        g.run(2000 * MS, 40 * MS, Some((Tier::Slow, 30 * MS)));
        g.l.free -= 1;
        least = least.min(g.l.free);
    }
    assert_eq!(g.s.forced(), 0);
    assert!(least >= RESERVE - RESERVE / 8 - 32, "{least}");
}

#[test]
fn a_group_without_room_for_its_reserve_is_short_though_it_has_what_it_can() {
    let mut g = Group::new(120);
    g.l.slow_free = 10;
    g.run(20_000 * MS, 40 * MS, Some((Tier::Slow, 30 * MS)));
    assert_eq!(g.l.free, 130);
}

#[test]
fn a_load_that_suffers_makes_the_window_small() {
    let mut g = Group::new(0);
    (g.l.keep_free, g.l.slow_free) = (1_000_000, 3_000_000);
    g.run(3000 * MS, 10 * MS, Some((Tier::Slow, 10 * MS)));
    assert_eq!(g.s.foreground.window, WINDOW_LOAD);
    g.run(3000 * MS, 10 * MS, Some((Tier::Slow, 50 * MS)));
    assert!(g.s.foreground.window <= 2, "{}", g.s.foreground.window);
}

#[test]
fn promotions_start_after_a_short_quiet_and_leave_the_reserve_alone() {
    let mut g = Group::new(RESERVE);
    g.l.candidates = 2000;
    let mut least = u32::MAX;
    for _ in 0..400 {
        g.run(50 * MS, 20 * MS, None);
        least = least.min(g.l.free);
    }
    assert_eq!(g.l.candidates, 0);
    assert!(least >= RESERVE, "{least}");
}

#[test]
fn promotions_go_on_beside_a_light_load() {
    let mut g = Group::new(RESERVE * 2);
    g.l.candidates = 1000;
    // 10 ms in every 150 ms: light.
    for _ in 0..200 {
        g.run(10 * MS, 10 * MS, Some((Tier::Slow, 10 * MS)));
        g.run(140 * MS, 10 * MS, None);
    }
    assert!(g.l.candidates < 800, "{}", g.l.candidates);
}

/// A disk with one head and a light load: a request of 0.25 to 0.75 ms, and a pause of 12. What the mover sends off before the next
/// is served first, 4 ms a chunk. Gives the chunks, and the share of requests that took 1.1 times 0.75 ms or more.
fn one_head(g: &mut Group, requests: u32) -> (usize, f64) {
    let (mut chunks, mut late, mut free_from) = (0, 0, g.now);
    for n in 0..requests {
        let next = g.now.plus(12 * MS);
        while g.now < next {
            let plan = g.s.plan(&g.l, g.now);
            for _ in 0..plan.promote {
                free_from = free_from.max(g.now).plus(4 * MS);
                g.l.promoting += 1;
                g.done_at.push((free_from, Job::Promote));
            }
            chunks += plan.promote;
            g.now = g.now.plus(plan.next_check).min(next);
            let ended = g.done_at.extract_if(.., |m| m.0 <= g.now).count();
            g.l.promoting -= ended;
            (0..ended).for_each(|_| g.s.moved(Job::Promote, g.now));
        }
        g.s.foreground_started(Tier::Slow, g.now);
        let own = MS / 4 + MS * (n * 613 % 1000) / 2000;
        let took = free_from.max(g.now).plus(own).since(g.now);
        g.now = g.now.plus(took);
        g.s.foreground_done(Tier::Slow, &g.range(), took, g.now);
        late += u32::from(took.as_micros() > 825);
    }
    (chunks, f64::from(late) / f64::from(requests))
}

#[test]
fn a_light_load_on_the_slow_tier_keeps_its_tail_beside_promotions() {
    let mut g = Group::new(RESERVE * 4);
    g.l.candidates = 100_000;
    one_head(&mut g, 2000);
    let (chunks, late) = one_head(&mut g, 10_000);
    // 80 requests a second, and something moves each second however little they bear.
    assert!(late <= 0.015, "{late} of the requests");
    assert!(chunks >= 40, "{chunks} chunks in a minute");
}

#[test]
fn beside_a_load_that_never_pauses_a_few_chunks_change_places() {
    // With room from the start, and with room that has to be made.
    for free in [RESERVE * 2, RESERVE] {
        let mut g = Group::new(free);
        (g.l.candidates, g.stride) = (1000, 1 << 30);
        let (left, peak) = (g.l.candidates, 32);
        // The disk is busy for 10 s, and a chunk is moved for each fortieth, up or down.
        g.run(10_000 * MS, 10 * MS, Some((Tier::Slow, 10 * MS)));
        let promoted = left - g.l.candidates;
        assert!((150..=417).contains(&promoted), "{promoted} of {free}");
        assert!(g.peak <= peak && g.l.free >= RESERVE, "{} {:?}", g.peak, g.l);
    }
}

#[test]
fn beside_requests_that_seek_more_change_places_than_beside_a_stream() {
    let [stream, random] = [4096, 1 << 30].map(|stride| {
        let mut g = Group::new(RESERVE * 2);
        (g.l.candidates, g.stride) = (10_000, stride);
        g.run(60_000 * MS, 10 * MS, Some((Tier::Slow, 10 * MS)));
        10_000 - g.l.candidates
    });
    assert!((16..=24).contains(&stream) && (2200..=2560).contains(&random), "{stream} {random}");
}

#[test]
fn beside_a_load_that_never_pauses_chunks_change_places_though_the_reserve_is_short() {
    // New data took some of it, and a disk that is never quiet has more to do than ever until what is used has come up.
    let mut g = Group::new(RESERVE - 100);
    (g.l.candidates, g.stride) = (1000, 1 << 30);
    g.run(60_000 * MS, 10 * MS, Some((Tier::Slow, MS)));
    assert!(g.l.candidates < 500, "{}", g.l.candidates);
}

#[test]
fn a_steady_load_on_the_fast_tier_is_spared_unless_the_reserve_is_short() {
    // A request of a millisecond, and a pause.
    let promoted = |pause: Duration| {
        let mut g = Group::new(RESERVE * 4);
        g.l.candidates = 5000;
        let end = g.now.plus(5_000 * MS);
        while g.now < end {
            g.run(MS, 10 * MS, Some((Tier::Fast, MS)));
            g.run(pause, 10 * MS, None);
        }
        (5000 - g.l.candidates, g.s.plan(&g.l, g.now).doing)
    };
    let (light, _) = promoted(19 * MS);
    let (beside, words) = promoted(Duration::ZERO);
    assert!(light > 2000, "{light}");
    // 32 a second at first, and more as nothing is felt.
    assert!((150..1000).contains(&beside), "{beside}");
    assert!(words.contains("do not feel it"), "{words}");
    let mut g = Group::new(RESERVE - 1000);
    g.run(5_000 * MS, 10 * MS, Some((Tier::Fast, MS)));
    assert!(g.l.free >= RESERVE, "{}", g.l.free);
}

#[test]
fn promotions_stop_when_the_ssd_has_had_its_share_and_say_so() {
    let mut s = Scheduler::new(Instant(1));
    let fast_slots = 1 << 20;
    let l = Levels { fast_slots, free: 1 << 19, keep_free: RESERVE, slow_free: 1 << 20, ..Levels::default() };
    let (mut now, mut promoted, mut sparing) = (Instant(1), 0u64, 0);
    for _ in 0..20_000 {
        let plan = s.plan(&Levels { candidates: 1000, ..l }, now);
        (0..plan.promote).for_each(|_| s.moved(Job::Promote, now));
        promoted += plan.promote as u64;
        assert!(plan.next_check >= 10 * MS && plan.demote == 0, "{plan:?}");
        sparing += u32::from(plan.why.contains("SSD's life"));
        now = now.plus(plan.next_check);
    }
    // 8 GiB, and then 18 GB a day.
    let seconds = now.0 / 1_000_000_000;
    assert!(sparing > 1000 && promoted > 65_536, "{promoted} {sparing}");
    assert!(promoted <= 65_536 + 8 + seconds * 18_850_000_000 / 86_400 / 131_072, "{promoted} in {seconds} s");
    // The reserve is restored all the same.
    let plan = s.plan(&Levels { free: 0, candidates: 1000, ..l }, now);
    assert!(plan.demote > 0, "{plan:?}");
}

#[test]
fn a_group_at_rest_is_asked_once_a_minute() {
    let mut g = Group::new(RESERVE + 10);
    g.run(600_000 * MS, MS, None);
    assert!(g.plans <= 11, "{}", g.plans);
}

#[test]
fn a_full_slow_tier_is_said_in_words_and_nothing_spins() {
    let mut g = Group::new(0);
    g.l.slow_free = 0;
    g.run(60_000 * MS, MS, None);
    assert!(g.plans <= 2, "{}", g.plans);
    // With the swap headroom on the fast side, chunks still change places.
    let mut g = Group::new(64);
    g.l.slow_free = 0;
    g.l.candidates = 500;
    g.run(20_000 * MS, MS, None);
    assert_eq!(g.l.candidates, 0);
    assert!(g.l.free > 0, "{:?}", g.l);
}

#[test]
fn work_that_comes_to_nothing_pauses_longer_and_longer_but_is_forced_in_the_end() {
    let mut s = Scheduler::new(Instant(1));
    let l = Levels { free: 0, keep_free: RESERVE, slow_free: 1000, ..Levels::default() };
    let (mut now, mut plans, mut asked) = (Instant(1), 0, 0);
    while now < Instant(60_000_000_000) {
        let plan = s.plan(&l, now);
        plans += 1;
        if plan.demote > 0 {
            asked += 1;
            s.came_to_nothing(Job::Demote, now);
        }
        now = now.plus(plan.next_check);
    }
    assert!((10..100).contains(&asked), "{asked}");
    assert!(plans < 700, "{plans}");
    assert!(s.forced() >= 2, "{}", s.forced());
}

#[test]
fn what_can_be_let_go_is_let_go_beside_any_load_when_free_slots_are_few() {
    let mut g = Group::new(512);
    (g.l.keep_free, g.l.low) = (512, 256);
    let plan = |g: &mut Group| {
        // The slow tier is never quiet.
        g.s.foreground_started(Tier::Slow, g.now);
        g.now = g.now.plus(20 * MS);
        g.s.plan(&g.l, g.now)
    };
    assert_eq!(plan(&mut g).let_go, 0);
    g.l.free = 256;
    assert_eq!(plan(&mut g).let_go, 0);
    g.l.free = 200;
    let p = plan(&mut g);
    assert_eq!((p.let_go, p.promote), (312, 0));
    assert!(p.next_check <= 100 * MS && p.doing.contains("letting go"), "{p:?}");
    // What is on its way counts.
    g.l.leaving = 312;
    assert_eq!(plan(&mut g).let_go, 0);
    // Nothing was found: not again at once, but again.
    g.l.leaving = 0;
    g.s.let_go(0, g.now);
    let again: Vec<usize> = (0..5).map(|_| plan(&mut g).let_go).collect();
    assert_eq!(again, [0, 0, 312, 312, 312]);
    // Nothing has a copy.
    g.l.low = 0;
    assert_eq!(plan(&mut g).let_go, 0);
}

#[test]
fn what_a_disk_has_in_its_cache_counts_beside_a_load() {
    let begun = |unsettled: usize, free: u32| {
        let mut g = Group::new(free);
        (g.l.unsettled, g.l.candidates) = (unsettled, 10_000);
        g.s.foreground.window = WINDOW_LOAD;
        g.s.foreground_started(Tier::Slow, g.now);
        g.s.foreground_done(Tier::Slow, &g.range(), MS, g.now);
        g.now = g.now.plus(2000 * MS);
        g.s.foreground_started(Tier::Fast, g.now);
        g.s.plan(&g.l, g.now).demote
    };
    assert_eq!([0, 6, 16, 400].map(|unsettled| begun(unsettled, RESERVE / 4)), [16, 10, 0, 0]);
    // Where room is made for promotions, what is beyond a quiet disk's worth.
    assert_eq!([0, 16, 64, 70, 80, 400].map(|unsettled| begun(unsettled, RESERVE)), [16, 16, 16, 10, 0, 0]);
}

#[test]
fn a_few_beside_a_load_that_never_pauses_wait_for_what_a_disk_has_in_its_cache() {
    // For nine seconds: requests that seek have earned some, the drip is due, and nothing is to be forced yet.
    let begun = |unsettled: usize, free: u32| {
        let mut g = Group::new(free);
        (g.l.unsettled, g.l.candidates, g.stride) = (unsettled, 10_000, 1 << 30);
        g.never_pauses(900);
        g.s.plan(&g.l, g.now).demote
    };
    // Room for exchanges, beyond a quiet disk's worth, and what goes down whatever the load.
    assert_eq!([0, 64, 72, 400].map(|unsettled| begun(unsettled, RESERVE)), [32, 32, 24, 0]);
    assert_eq!([0, 10, 32, 400].map(|unsettled| begun(unsettled, RESERVE / 4)), [32, 22, 0, 0]);
}

#[test]
fn beside_a_load_promotions_that_wait_for_their_commit_keep_back_no_others() {
    let begun = |promoting: usize, copying_up: usize| {
        let mut g = Group::new(RESERVE * 2);
        (g.l.promoting, g.l.copying_up, g.l.candidates, g.stride) = (promoting, copying_up, 10_000, 1 << 30);
        g.never_pauses(100);
        g.s.plan(&g.l, g.now).promote
    };
    // As many as a quiet disk gets may wait.
    assert_eq!([(0, 0), (8, 0), (40, 0), (60, 0), (64, 0)].map(|(p, c)| begun(p, c)), [8, 8, 8, 4, 0]);
    assert_eq!([(4, 4), (40, 6), (40, 8)].map(|(p, c)| begun(p, c)), [4, 2, 0]);
}

#[test]
fn requests_that_wait_for_a_disks_cache_are_held_up_by_moves() {
    for (unsettled, bears) in [(16, false), (0, true)] {
        let mut g = Group::new(RESERVE);
        let mut serve = |latency: Duration, requests: u32| {
            for _ in 0..requests {
                g.s.foreground_started(Tier::Slow, g.now);
                g.now = g.now.plus(latency);
                g.s.foreground_done(Tier::Slow, &g.range(), latency, g.now);
            }
            g.l.unsettled = unsettled;
            g.s.plan(&g.l, g.now);
            g.s.foreground.bears_moves(g.now).is_ok()
        };
        serve(MS, 400);
        assert_eq!(serve(100 * MS, 2), bears);
    }
}

#[test]
fn no_room_is_made_for_a_burst_that_is_still_coming() {
    let slots = [RESERVE * 3 / 4, RESERVE / 4, RESERVE / 32];
    let begun = slots.map(|free| {
        let mut g = Group::new(free);
        g.s.plan(&g.l, g.now);
        // Nobody asks anything of the slow tier any more; new data take a slot in 20 ms from the fast one.
        g.s.foreground_started(Tier::Slow, g.now);
        g.s.foreground_done(Tier::Slow, &g.range(), MS, g.now);
        (0..400)
            .map(|n| {
                g.l.free -= u32::from(n % 20 == 0);
                g.s.foreground_started(Tier::Fast, g.now);
                g.s.foreground_done(Tier::Fast, &g.range(), MS, g.now);
                g.now = g.now.plus(MS);
                g.s.plan(&g.l, g.now).demote
            })
            .sum::<usize>()
    });
    // The drip is due after seconds.
    assert_eq!(begun, [0, 0, 0]);
}

#[test]
fn a_quiet_disk_is_kept_clear_for_a_stream_that_comes_but_not_for_ever() {
    let [waits, goes] = [true, false].map(|stream_comes| {
        let mut g = Group::new(RESERVE * 2);
        (g.l.candidates, g.l.stream_comes) = (1000, stream_comes);
        let first = 1000;
        // It has rested for long.
        g.now = g.now.plus(60_000 * MS);
        g.run(20_000 * MS, MS, None);
        let early = first - g.l.candidates;
        g.run(20_000 * MS, MS, None);
        (early, first - g.l.candidates)
    });
    assert_eq!(goes, (1000, 1000));
    assert_eq!(waits.0, 0);
    assert!((16..=64).contains(&waits.1), "once in half a minute, what a quiet disk gets: {}", waits.1);
}

#[test]
fn it_is_kept_clear_for_each_stream_anew() {
    let mut g = Group::new(RESERVE * 2);
    (g.l.candidates, g.l.stream_comes) = (100, true);
    g.run(20_000 * MS, MS, None);
    (g.l.candidates, g.l.stream_comes) = (0, false);
    g.run(60_000 * MS, MS, None);
    (g.l.candidates, g.l.stream_comes) = (100, true);
    g.run(20_000 * MS, MS, None);
    assert_eq!(g.l.candidates, 100);
}

#[test]
fn what_cannot_wait_does_not_wait_for_a_stream_that_comes() {
    let mut g = Group::new(RESERVE / 4);
    g.l.stream_comes = true;
    g.run(20_000 * MS, MS, None);
    assert!(g.l.free > RESERVE / 2, "{}", g.l.free);
}

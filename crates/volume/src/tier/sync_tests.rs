//! A disk that takes what is copied into its cache, and then long to sync it: what the scheduler promises all the same.

use std::time::Duration;

use super::{DeviceRange, Job, Levels, Scheduler};
use crate::env::Instant;
use crate::units::Tier;

const MS: Duration = Duration::from_millis(1);
const KEEP_FREE: u32 = 2048;
/// Requests outstanding at any time, and what each takes while nothing is in the cache.
const OUTSTANDING: usize = 4;
const USUAL: Duration = Duration::from_millis(20);
const COPY: Duration = Duration::from_millis(5);

/// A group beside requests to its slow tier.
struct Group {
    s: Scheduler,
    l: Levels,
    now: Instant,
    sync: Duration,
    /// What a request takes while something is in the cache.
    beside: Duration,
    requests: Vec<(Instant, Duration)>,
    /// What is being copied, has been copied, and is being synced.
    copying: Option<(Instant, usize)>,
    copied: usize,
    syncing: Option<(Instant, usize)>,
    next: Instant,
    demoted: usize,
}

impl Group {
    fn new(free: u32, sync: Duration, beside: Duration) -> Group {
        let l = Levels { free, keep_free: KEEP_FREE, slow_free: 1_000_000, ..Levels::default() };
        let (now, requests) = (Instant(1), Vec::new());
        let (copying, syncing) = (None, None);
        let s = Scheduler::new(now);
        Group { s, l, now, sync, beside, requests, copying, copied: 0, syncing, next: now, demoted: 0 }
    }

    /// A millisecond passes, with requests or without. What becomes free is taken by new data.
    fn step(&mut self, load: bool) {
        self.now = self.now.plus(MS);
        let now = self.now;
        let takes = if self.l.unsettled > 0 { self.beside } else { USUAL };
        for (_, took) in self.requests.extract_if(.., |r| r.0 <= now) {
            let range = DeviceRange { member: 1, offset: now.0 / 1_000_000 * 4096, bytes: 4096 };
            self.s.foreground_done(Tier::Slow, &range, took, now);
        }
        while load && self.requests.len() < OUTSTANDING {
            self.s.foreground_started(Tier::Slow, now);
            self.requests.push((now.plus(takes), takes));
        }
        let mut asks = self.next <= now;
        if let Some((_, chunks)) = self.copying.take_if(|c| c.0 <= now) {
            (self.l.demoting, self.copied, asks) = (self.l.demoting - chunks, self.copied + chunks, true);
        }
        if let Some((_, chunks)) = self.syncing.take_if(|c| c.0 <= now) {
            (self.l.unsettled, self.demoted, asks) = (self.l.unsettled - chunks, self.demoted + chunks, true);
            (0..chunks).for_each(|_| self.s.moved(Job::Demote, now));
        }
        if self.syncing.is_none() && self.copied > 0 {
            self.syncing = Some((now.plus(self.sync), std::mem::take(&mut self.copied)));
        }
        if asks {
            self.plan();
        }
    }

    fn plan(&mut self) {
        self.l.leaving = (self.l.unsettled - self.l.demoting) as u32;
        let plan = self.s.plan(&self.l, self.now);
        self.next = self.now.plus(plan.next_check);
        if plan.demote > 0 {
            self.l.demoting += plan.demote;
            self.l.unsettled += plan.demote;
            let (from, before) = self.copying.unwrap_or((self.now, 0));
            self.copying = Some((from.plus(COPY * plan.demote as u32), before + plan.demote));
        }
    }

    /// Chunks that go down in a minute under the load, once that is known.
    fn demoted_in_a_minute(free: u32, sync: Duration, beside: Duration) -> usize {
        let mut g = Group::new(KEEP_FREE, sync, beside);
        for ms in 0..5000 {
            g.step(true);
            if ms % 100 == 0 {
                g.plan();
            }
        }
        // New data come, which wake the mover.
        g.l.free = free;
        g.plan();
        (0..60_000).for_each(|_| g.step(true));
        g.demoted
    }
}

#[test]
fn the_drip_is_the_least_whatever_the_syncs_cost() {
    for (sync, least) in [(200 * MS, 900), (1000 * MS, 900), (3000 * MS, 500)] {
        for beside in [USUAL, 80 * MS, 200 * MS] {
            let [critical, low] = [0, KEEP_FREE / 4].map(|free| Group::demoted_in_a_minute(free, sync, beside));
            assert!(critical >= least && low >= 190, "{sync:?} {beside:?}: {critical} {low}");
        }
    }
}

#[test]
fn a_member_is_emptied_beside_a_mover_that_never_pauses() {
    for (sync, beside) in [(200 * MS, USUAL), (1000 * MS, 2 * USUAL), (3000 * MS, 4 * USUAL)] {
        let mut g = Group::new(0, sync, beside);
        let (mut batches, mut ends) = (0, None);
        for ms in 0..125_000 {
            let load = ms > 5000;
            g.step(load);
            if ends.take_if(|end| *end <= g.now).is_some() {
                g.l.evacuating = 0;
                g.s.foreground.evacuates(false, g.now);
            }
            if load && ends.is_none() && g.s.foreground.bears_evacuations(g.now).is_ok() {
                batches += 1;
                g.l.evacuating = 32;
                g.s.foreground.evacuation_begins(g.now);
                ends = Some(g.now.plus(100 * MS));
            }
        }
        assert!(batches >= 100, "{sync:?} {beside:?}: {batches}");
    }
}

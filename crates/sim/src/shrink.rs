//! Makes a failing scenario smaller while it keeps failing in the same way.
//!
//! Passes, until none helps or the budget is spent: leave out sessions, leave out runs of steps (halves, quarters,
//! ...), leave out damage, faults and odd speeds, let one client do everything, make requests plain and short, and move
//! the crash. Leaving out a step shifts all that follows, so each attempt is also made with nearby crash points and
//! seeds.

use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Act, End, Scenario, Session, Speed, Step};
use crate::world::CrashPoint;

const BLOCK: u64 = 4096;

/// What kind of failure a text tells of: two runs fail in the same way if this is equal.
pub fn class(failure: &str) -> String {
    let words = failure.split_whitespace().take(3).map(|w| w.chars().filter(|c| c.is_alphabetic()).collect::<String>());
    let poison = if failure.contains("never written or discarded") { " poison" } else { "" };
    words.collect::<Vec<_>>().join(" ") + poison
}

/// A shrinking in progress.
pub struct Shrinker<'a> {
    /// Runs a scenario; the failure, if it fails.
    pub fails: &'a mut dyn FnMut(&Scenario) -> Option<String>,
    /// Runs that may still be made.
    pub budget: u32,
    class: String,
}

impl<'a> Shrinker<'a> {
    /// Shrinks scenarios that fail like `failure`.
    pub fn new(fails: &'a mut dyn FnMut(&Scenario) -> Option<String>, budget: u32, failure: &str) -> Shrinker<'a> {
        Shrinker { fails, budget, class: class(failure) }
    }

    /// The smallest scenario found.
    pub fn shrink(&mut self, scenario: Scenario) -> Scenario {
        let mut best = scenario;
        loop {
            let before = (best.steps(), best.sessions.len(), self.budget);
            self.sessions(&mut best);
            self.steps(&mut best);
            self.simplify(&mut best);
            if (best.steps(), best.sessions.len()) == (before.0, before.1) || self.budget == 0 {
                return best;
            }
        }
    }

    fn same_failure(&mut self, s: &Scenario) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        (self.fails)(s).is_some_and(|f| class(&f) == self.class)
    }

    /// Takes `candidate` over if it fails, as it is or with a small change of chance.
    fn accept(&mut self, best: &mut Scenario, candidate: Scenario) -> bool {
        for attempt in 0..4 {
            let mut c = candidate.clone();
            c.seed = c.seed.wrapping_add(attempt);
            if self.same_failure(&c) {
                *best = c;
                return true;
            }
        }
        false
    }

    fn sessions(&mut self, best: &mut Scenario) {
        let mut at = 0;
        while best.sessions.len() > 1 && at < best.sessions.len() {
            let mut c = best.clone();
            c.sessions.remove(at);
            if !self.accept(best, c) {
                at += 1;
            }
        }
    }

    fn steps(&mut self, best: &mut Scenario) {
        for session in 0..best.sessions.len() {
            let mut size = best.sessions[session].steps.len().max(1);
            while size > 0 {
                let mut at = 0;
                while at < best.sessions[session].steps.len() {
                    if !self.without(best, session, at, size) {
                        at += size;
                    }
                }
                size /= 2;
            }
        }
    }

    /// Leaves out some steps; the crash comes so much earlier, or at the same count.
    fn without(&mut self, best: &mut Scenario, session: usize, at: usize, size: usize) -> bool {
        let mut c = best.clone();
        let s = &mut c.sessions[session];
        let end = (at + size).min(s.steps.len());
        s.steps.drain(at..end);
        let n = s.steps.len() as u64;
        let Some((_, point)) = s.end.crash() else { return self.accept(best, c) };
        let mut points = vec![point.steps.min(n), point.steps.saturating_sub((end - at) as u64).min(n)];
        points.dedup();
        points.into_iter().any(|steps| {
            let mut c = c.clone();
            let s = &mut c.sessions[session];
            s.end = s.end.with_point(CrashPoint { steps, ..point });
            self.accept(best, c)
        })
    }

    fn simplify(&mut self, best: &mut Scenario) {
        let tries: [&dyn Fn(&mut Session); 5] = [
            &|s| s.damage = None,
            &|s| s.faults.iter_mut().for_each(|f| *f = Faults::default()),
            &|s| s.steps.iter_mut().for_each(|x| x.client = 0),
            &|s| s.steps.iter_mut().for_each(plain),
            &|s| {
                if let Some((_, p)) = s.end.crash() {
                    s.end = End::Crash(Crash::Power, CrashPoint { events: p.events / 2, ..p });
                }
            },
        ];
        for session in 0..best.sessions.len() {
            for change in tries {
                let mut c = best.clone();
                change(&mut c.sessions[session]);
                if c != *best {
                    self.accept(best, c);
                }
            }
            let mut c = best.clone();
            let healthy: Vec<Speed> = c.disks().map(|m| Speed::of(m.tier)).collect();
            c.sessions[session].speed = healthy;
            if c != *best {
                self.accept(best, c);
            }
        }
        let mut c = best.clone();
        c.liveness = false;
        if c != *best {
            self.accept(best, c);
        }
    }
}

/// Whole blocks, no FUA.
fn plain(step: &mut Step) {
    step.act = match step.act {
        Act::Write { .. } => Act::Write { fua: false },
        Act::Trim { .. } => Act::Trim { fua: false },
        other => other,
    };
    if matches!(step.act, Act::Write { .. } | Act::Read) {
        step.offset = step.offset / BLOCK * BLOCK;
        step.len = step.len.next_multiple_of(BLOCK).min(4 * BLOCK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_two_steps_that_matter() {
        let s = crate::workload::generate(5);
        let volume = s.volumes.len() - 1;
        let culprit = Step { client: 0, volume, act: Act::Heat { times: 99 }, offset: 0, len: 1 << 17 };
        let other = Step { act: Act::Heat { times: 98 }, ..culprit };
        let mut s = s;
        let last = s.sessions.len() - 1;
        s.sessions[0].steps.insert(0, culprit);
        s.sessions[last].steps.push(other);
        let mut fails = |s: &Scenario| {
            let all: Vec<&Step> = s.sessions.iter().flat_map(|x| &x.steps).collect();
            let both = all.iter().any(|x| x.act == culprit.act) && all.iter().any(|x| x.act == other.act);
            both.then(|| "read 5: wrong".to_string())
        };
        let small = Shrinker::new(&mut fails, 5000, "read 7: wrong").shrink(s);
        assert_eq!(small.steps(), 2);
    }
}

//! `sim mutants`: every switchable fault of the engine is caught within a minute, which proves that the simulator sees.

use super::Args;

/// Without the feature there is nothing to switch.
#[cfg(not(feature = "mutants"))]
const NONE: &str = "this build has no mutants: cargo run --release -p bimetal-sim --features mutants -- mutants";

#[cfg(not(feature = "mutants"))]
pub(super) fn mutants(_: &Args<'_>) -> Result<bool, String> {
    Err(NONE.into())
}

#[cfg(not(feature = "mutants"))]
pub(super) fn switch_on(_: &str) -> Result<(), String> {
    Err(NONE.into())
}

#[cfg(feature = "mutants")]
pub(super) use on::{mutants, switch_on};

#[cfg(feature = "mutants")]
mod on {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use bimetal_volume::mutant::{self, Mutant};

    use super::Args;
    use crate::command::many::{catch_panics, guarded};
    use crate::oracle::Crash;
    use crate::scenario::Scenario;
    use crate::sweep::{all, Directed};
    use crate::workload::generate;

    /// Between two crash points of one scenario; a prime, so that all come.
    const STRIDE: u64 = 101;
    const LIMIT: Duration = Duration::from_secs(60);
    /// Scenarios that have not come to a fault's place yet get a turn in so many rounds: at other points they may.
    const FAR: u64 = 4;

    struct Hunt {
        mutant: Mutant,
        began: Instant,
        over: AtomicBool,
        runs: AtomicU64,
        caught: Mutex<Option<(String, String)>>,
    }

    impl Hunt {
        /// Runs one scenario with the fault on; true when the hunt is over.
        fn run(&self, scenario: &Scenario, name: &str) -> bool {
            if self.over.load(Ordering::Relaxed) || self.began.elapsed() > LIMIT {
                return true;
            }
            self.runs.fetch_add(1, Ordering::Relaxed);
            mutant::set(Some(self.mutant));
            let judged = guarded(scenario, false);
            mutant::set(None);
            let Some(what) = judged.failure() else { return false };
            // A scenario that fails without the fault proves nothing about it.
            if guarded(scenario, false).failure().is_some() {
                return false;
            }
            self.over.store(true, Ordering::Relaxed);
            if let Ok(mut caught) = self.caught.lock() {
                caught.get_or_insert((name.to_string(), what.to_string()));
            }
            true
        }

        fn seeds(&self) {
            for seed in 1.. {
                if self.run(&generate(seed), &format!("seed {seed}")) {
                    return;
                }
            }
        }

        /// Directed scenarios in turn, at points all over each of them: those that came to the fault's place in every round, the
        /// others in some.
        fn sweeps(&self, courses: &[Course]) {
            let made_for_it = |c: &&Course| c.directed.finds.contains(&self.mutant.name());
            if courses.iter().filter(made_for_it).any(|c| self.sweep_whole(c)) {
                return;
            }
            let mut paths: Vec<Path> = courses.iter().map(|c| Path::of(c, self.mutant)).collect();
            for round in 1u64.. {
                let all = round % FAR == 0 || paths.iter().all(|p| !p.is_near);
                if paths.iter_mut().filter(|p| all || p.is_near).any(|p| self.sweep(p)) {
                    return;
                }
            }
        }

        /// All points of a directed scenario; true when the hunt is over.
        fn sweep_whole(&self, course: &Course) -> bool {
            let points = (0..course.points).flat_map(|n| [(n, Crash::Power), (n, Crash::Daemon)]);
            let name = |n| format!("sweep of \"{}\" at {n}", course.directed.name);
            points.into_iter().any(|(n, kind)| self.run(&course.directed.at(n, kind), &name(n)))
        }

        /// The next point of a directed scenario; true when the hunt is over.
        fn sweep(&self, path: &mut Path) -> bool {
            let Course { directed, points, .. } = path.course;
            let turn = path.turns;
            path.turns += 1;
            let n = turn * STRIDE % points;
            let kind = if turn % 3 == 2 { Crash::Daemon } else { Crash::Power };
            let mut s = directed.at(n, kind);
            s.seed = s.seed.wrapping_add(turn / points * 1000);
            mutant::take_met();
            let over = self.run(&s, &format!("sweep of \"{}\" at {n}", directed.name));
            path.is_near |= mutant::take_met().contains(&self.mutant);
            over
        }
    }

    /// A directed scenario in a hunt.
    struct Path<'a> {
        course: &'a Course,
        /// Runs so far.
        turns: u64,
        /// One of them came to the fault's place, or it did when it was looked at.
        is_near: bool,
    }

    impl Path<'_> {
        fn of(course: &Course, mutant: Mutant) -> Path<'_> {
            Path { course, turns: 0, is_near: course.meets.contains(&mutant) }
        }
    }

    /// A directed scenario that was looked at once.
    struct Course {
        directed: Directed,
        points: u64,
        /// Faults whose places it comes to, with a crash or without.
        meets: Vec<Mutant>,
    }

    impl Course {
        fn look(directed: Directed) -> Course {
            mutant::take_met();
            let whole = guarded(directed.whole(), false);
            let points = whole.report.map_or(1, |r| directed.points(&r.points));
            guarded(&directed.at(points / 2, Crash::Power), false);
            Course { directed, points, meets: mutant::take_met() }
        }
    }

    /// Switches the fault of this name on, for a replay.
    pub(crate) fn switch_on(name: &str) -> Result<(), String> {
        let found = Mutant::ALL.iter().find(|m| m.name() == name);
        mutant::set(Some(*found.ok_or_else(|| format!("there is no mutant '{name}'"))?));
        Ok(())
    }

    pub(crate) fn mutants(args: &Args<'_>) -> Result<bool, String> {
        catch_panics();
        let (mut passed, mut failed) = (0, 0);
        let sweeps = all();
        let named = sweeps.iter().flat_map(|d| d.finds).find(|name| Mutant::ALL.iter().all(|m| m.name() != **name));
        if let Some(name) = named {
            return Err(format!("a sweep was made for '{name}', and there is no such mutant"));
        }
        let courses: Vec<Course> = sweeps.into_iter().map(Course::look).collect();
        println!("{:<24} {:>8} {:>7}  caught by", "mutant", "runs", "seconds");
        for &m in args.chosen(Mutant::ALL, |m| m.name())? {
            let hunt = Hunt {
                mutant: m,
                began: Instant::now(),
                over: AtomicBool::new(false),
                runs: AtomicU64::new(0),
                caught: Mutex::new(None),
            };
            std::thread::scope(|scope| {
                scope.spawn(|| hunt.seeds());
                scope.spawn(|| hunt.sweeps(&courses));
            });
            let (runs, seconds) = (hunt.runs.into_inner(), hunt.began.elapsed().as_secs_f64());
            match hunt.caught.into_inner().ok().flatten() {
                Some((by, what)) => {
                    passed += 1;
                    let what: String = what.chars().take(90).collect();
                    println!("{:<24} {runs:>8} {seconds:>7.1}  {by}: {what}", m.name());
                }
                None => {
                    failed += 1;
                    println!("{:<24} {runs:>8} {seconds:>7.1}  NOT CAUGHT: {}", m.name(), m.describe());
                }
            }
        }
        println!("{passed} passed, {failed} failed");
        Ok(failed == 0)
    }
}

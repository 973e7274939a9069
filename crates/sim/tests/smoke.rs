//! A capped run of everything that `sim` does at length, and the proof that it notices.

use bimetal_sim::disk::Faults;
use bimetal_sim::oracle::Crash;
use bimetal_sim::run::{run, Outcome};
use bimetal_sim::sweep::all;
use bimetal_sim::text::{parse, print};
use bimetal_sim::workload::generate;

#[test]
fn random_runs_pass() {
    let mut crashes = 0;
    for seed in 1..=120 {
        let report = run(&generate(seed), false);
        assert!(!matches!(report.outcome, Outcome::Failed(_)), "seed {seed}: {:?}", report.outcome);
        crashes += report.crashes;
    }
    assert!(crashes > 240, "every run crashes at least once or twice: {crashes}");
}

#[test]
fn a_seed_is_one_run_also_from_text() {
    for seed in 1..=8 {
        let scenario = generate(seed);
        let again = parse(&print(&scenario)).expect("what was printed can be read");
        let (a, b) = (run(&scenario, false), run(&again, false));
        assert_eq!((a.trace, a.points), (b.trace, b.points), "seed {seed}");
    }
}

#[test]
fn directed_scenarios_survive_crashes_at_a_sample_of_points() {
    for d in all() {
        let whole = run(d.whole(), false);
        assert_eq!(whole.outcome, Outcome::Passed, "{}", d.name);
        for n in (0..d.points(&whole.points)).step_by(29) {
            for kind in [Crash::Power, Crash::Daemon] {
                let outcome = run(&d.at(n, kind), false).outcome;
                assert_eq!(outcome, Outcome::Passed, "{} at point {n}, {kind:?}", d.name);
            }
        }
    }
}

/// The canary: if nobody noticed a member that keeps no promise, nothing else here would mean anything.
#[test]
fn a_member_that_ignores_flush_is_found_out_and_named() {
    let mut found = 0;
    for seed in 1..=40 {
        let mut scenario = generate(seed);
        for session in &mut scenario.sessions {
            session.damage = None;
            session.faults.fill(Faults::default());
            session.faults[0].lies = true;
        }
        match run(&scenario, false).outcome {
            Outcome::BrokenPromise { member, .. } => {
                assert_eq!(member, 0);
                found += 1;
            }
            Outcome::Passed => {}
            Outcome::Failed(what) => panic!("seed {seed} blamed the engine: {what}"),
        }
    }
    assert!(found >= 5, "found out in {found} of 40 runs");
}

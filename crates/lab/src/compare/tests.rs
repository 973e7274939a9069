//! The matrix on small workloads: complete, the same on any number of threads, and summed up as by hand.

use super::*;
use crate::policy::{Replay, Start, Stream};
use crate::trace::{Access, Fix, Op};
use crate::workload;

fn how() -> How {
    How { percents: vec![10], ..How::default() }
}

/// A short stream with a hot set.
fn stream() -> Stream {
    let workload = workload::by_name("vm-image").expect("a workload of this name");
    let accesses = workload.accesses(256 << 20, 7).expect("fits");
    Stream::new(accesses.take(4000), Start::Fresh).expect("small enough")
}

/// `least`: after a use, and of all.
fn cell(ours: u64, baselines: &[(&str, u64, u64)], least: [u64; 2]) -> Cell {
    let replay = |policy: &str, foreground_ns, promotions| Replay {
        policy: policy.into(),
        foreground_ns,
        promotions,
        user_bytes: 128 << 10,
        ..Replay::default()
    };
    let mut entries: Vec<Entry> = baselines
        .iter()
        .map(|(name, ns, moves)| Entry { role: Role::Baseline, replay: replay(name, *ns, *moves) })
        .collect();
    entries.push(Entry { role: Role::Policy, replay: replay("ours", ours, 3) });
    Cell {
        workload: "w".into(),
        origin: Origin::Generated { seed: 1 },
        percent: 10,
        fast_slots: 1,
        accesses: 1,
        footprint: 10,
        cut: false,
        entries,
        bounds: Some(Bounds { after_use_total_ns: least[0], least_total_ns: least[1], ..Bounds::default() }),
    }
}

#[test]
fn a_cell_has_every_policy_and_none_is_below_the_bound() {
    let cells = cells_of("vm", Origin::Trace, &stream(), &how());
    assert_eq!(cells.len(), 1);
    let cell = &cells[0];
    assert_eq!(cell.entries.len(), 14);
    for name in ["first fit", "LRU", "LFU aged", "smq-like", "clock+Bloom N=2", "clock+Bloom N=3", "HeadTime"] {
        assert!(cell.named(name).is_some(), "{name}");
    }
    let bounds = cell.bounds.expect("asked for");
    assert!(bounds.after_use_total_ns > bounds.least_total_ns, "{bounds:?}");
    let seated = cell.entries.iter().filter(|e| e.role != Role::Cache);
    for e in seated {
        assert!(e.replay.accesses == cell.accesses && e.replay.total_ns() >= bounds.after_use_total_ns, "{e:?}");
    }
}

#[test]
fn threads_change_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["boot", "drift", "churn"] {
        let accesses = workload::by_name(name).expect("a workload").accesses(256 << 20, 1).expect("fits");
        let mut text = Vec::new();
        crate::trace::write_csv(accesses.take(2000), &mut text).expect("in memory");
        std::fs::write(folder.path().join(format!("{name}.csv")), text).expect("written");
    }
    let cases = || traces_in(folder.path()).expect("listed");
    let how = How { bounds: false, percents: vec![10], ..How::default() };
    let told = std::sync::Mutex::new(Vec::new());
    let note = |p: Progress| told.lock().expect("nobody panicked").push((p.done, p.of));
    let (one, two) = (compare(&cases(), &how, 1, &|_| ()), compare(&cases(), &how, 2, &note));
    assert_eq!(one.cells, two.cells);
    assert_eq!(one.cells.len(), 3);
    let mut told = told.into_inner().expect("nobody panicked");
    told.sort_unstable();
    assert_eq!(told, [(1, 3), (2, 3), (3, 3)]);
}

#[test]
fn the_summary_adds_up_as_by_hand() {
    let n = |n2, n3| [("clock+Bloom N=2", n2, 10u64), ("clock+Bloom N=3", n3, 5u64)];
    // Moves of the replays above cost no head time, so totals are foregrounds.
    let cells = [cell(80, &n(100, 90), [50, 20]), cell(90, &n(100, 90), [0, 0]), cell(110, &n(100, 100), [100, 100])];
    let s = Summary::of(&cells, Role::Policy);
    assert_eq!((s.cells, s.below_all, s.level, s.far_behind), (3, 1, 1, 1));
    assert!((s.worst - 1.1).abs() < 1e-12 && (s.relative.powi(3) - 8.0 / 9.0 * 1.1).abs() < 1e-12, "{s:?}");
    // 20 of 50 and of 80, and 10 of 100; the third has no gap.
    assert!((s.gap_closed - 0.25).abs() < 1e-12 && (s.gap_to_least_closed - 0.175).abs() < 1e-12, "{s:?}");
    assert_eq!((s.moved, s.moved_n3), (3.0, 5.0));
    assert_eq!(Summary::of(&cells, Role::Scheduled), Summary::default());
}

#[test]
fn what_cannot_be_read_is_said_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = [Access { time_us: 0, op: Op::Read, offset: 0, len: 4096 }];
    let mut text = Vec::new();
    crate::trace::write_csv(good, &mut text).expect("in memory");
    std::fs::write(folder.path().join("b.csv"), text).expect("written");
    std::fs::write(folder.path().join("a.csv"), "nonsense\n").expect("written");
    std::fs::write(folder.path().join("README.md"), "no trace").expect("written");
    let cases = traces_in(folder.path()).expect("listed");
    let matrix = compare(&cases, &how(), 2, &|_| ());
    assert_eq!(matrix.refused.len(), 1);
    assert_eq!(matrix.refused[0].0, "a");
    assert_eq!((matrix.cells.len(), matrix.repaired.len()), (1, 0));
    assert!(traces_in(&folder.path().join("none")).is_err());
}

#[test]
fn what_was_repaired_in_a_load_is_kept_and_a_load_of_nothing_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let header = "time_us,op,offset_bytes,length_bytes\n";
    let write = |name: &str, lines: &str| {
        std::fs::write(folder.path().join(name), format!("{header}{lines}")).expect("written");
    };
    write("back.csv", "5,R,0,4096\n4,R,0,4096\n6,R,0,0\n");
    write("idle.csv", "0,F,0,0\n1,T,0,131072\n");
    let matrix = compare(&traces_in(folder.path()).expect("listed"), &how(), 1, &|_| ());
    assert_eq!(matrix.cells.len(), 1);
    let (name, repairs) = &matrix.repaired[0];
    assert_eq!((name.as_str(), repairs.count(Fix::Backwards), repairs.count(Fix::ZeroLength)), ("back", 1, 1));
    assert!(matches!(&matrix.refused[..], [(name, CaseError::Nothing)] if name == "idle"), "{:?}", matrix.refused);
}

#[test]
fn names_of_traces_are_distinct() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.x.csv", "a.y.csv.gz", "b.csv", "b.csv.gz", "c.csv"] {
        std::fs::write(folder.path().join(name), "").expect("written");
    }
    let names: Vec<String> = traces_in(folder.path()).expect("listed").into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["a.x", "a.y", "b.csv", "b.csv.gz", "c"]);
    assert_eq!(Case::trace(std::path::Path::new("/x/hm_0.msr.gz")).name, "hm_0");
}

#[test]
fn a_cell_tells_of_each_of_its_steps() {
    let stream = stream();
    for bounds in [false, true] {
        let (how, mut told) = (How { bounds, ..how() }, 0);
        cell_of("vm", Origin::Trace, &stream, 100, &how, &mut || told += 1);
        assert_eq!(told, how.steps());
    }
}

#[test]
fn speeds_are_those_of_every_seat() {
    let stream = stream();
    let speeds = speed::speeds(&stream, &crate::policy::Setup::new(100));
    assert_eq!(speeds.len(), 12);
    assert!(speeds.iter().all(|s| s.accesses_per_second > 0.0 && s.touch_ns < 1e6), "{speeds:?}");
}

#[test]
fn a_chunk_costs_twenty_bytes_at_most() {
    // 128 GB before 1 TB, and 8 GB before 64 GB.
    for (chunks, fast) in [(8_600_000, 980_000), (524_288, 65_536)] {
        let bytes = speed::bytes_per_chunk(chunks, fast);
        assert!((18.0..=20.0).contains(&bytes), "{bytes} with {chunks} chunks");
    }
}

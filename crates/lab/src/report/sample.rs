//! Made-up outcomes with all that an outcome can have, for tests.

use crate::compare::{Bounds, Cell, Entry, Origin, Role};
use crate::policy::Replay;
use crate::reviews::outcome::{Better, Chart, Check, Column, Demand, Metric, Outcome, Series, Value};

fn metric(label: &str, unit: &'static str, better: Better, demand: Demand, values: [Option<Value>; 5]) -> Metric {
    let values = super::text::COLUMNS.into_iter().zip(values).filter_map(|(c, v)| Some((c, v?))).collect();
    Metric { label: label.into(), unit, better, demand, values, remark: None }
}

fn n(x: f64) -> Option<Value> {
    Some(Value::Number(x))
}

/// Three experiments: one with everything, one with words and a miss, one where nothing is asked.
pub(super) fn outcomes() -> Vec<Outcome> {
    use Better::{Higher, Lower};
    let rising = |column, top: f64, tau: f64| Series {
        column,
        points: (0..180).map(|s| (f64::from(s), top * (1.0 - (-f64::from(s) / tau).exp()))).collect(),
    };
    let mut passes = metric(
        "pass 1",
        "MB/s",
        Higher,
        Demand::Beat,
        [Some(Value::Range(7.0, 9.0)), n(8.1), n(31.4), n(0.61), n(98.2)],
    );
    passes.remark = Some("The review prints a range.".into());
    vec![
        Outcome {
            id: "F3",
            title: "4 KiB random writes over the first 8 GB, three times".into(),
            machine: "Machine A (2012): 1 TB disk, 128 GB SSD".into(),
            method: "The volume is full but for the reserve. 4 KiB writes at random places of the first 8 GB, 16 at a time, for \
                     three minutes; a pause of five minutes; again, and again."
                .into(),
            metrics: vec![
                passes,
                metric("pass 2", "MB/s", Higher, Demand::Beat, [n(21.9), n(23.0), n(96.0), n(0.61), n(98.2)]),
                metric("time until all is on the SSD", "s", Lower, Demand::Equal, [None, n(600.0), n(611.0), None, n(80.0)]),
            ],
            checks: vec![
                Check { what: "pass 2 at the SSD's speed".into(), seen: "98 % of the SSD".into(), met: true },
                Check { what: "the reserve is back after a minute".into(), seen: "after 71 s".into(), met: false },
            ],
            charts: vec![Chart {
                title: "Throughput in the first pass".into(),
                x: "time in s".into(),
                y: "MB/s".into(),
                series: vec![
                    rising(Column::Bimetal, 96.0, 30.0),
                    rising(Column::Model, 23.0, 60.0),
                    rising(Column::DiskAlone, 0.6, 1.0),
                    rising(Column::SsdAlone, 98.0, 0.5),
                    Series { column: Column::Review, points: vec![(0.0, 7.0), (90.0, 9.0), (179.0, 8.0)] },
                ],
            }],
            finding: "Bimetal reaches the SSD's speed in the second pass; the Fusion Drive needs three.".into(),
        },
        Outcome {
            id: "D3",
            title: "25.6 GB more, then ten reads of them with pauses".into(),
            machine: "Machine C (2012): 2 TB disk, 480 GB SSD".into(),
            method: "A hand-made set that only concatenates.".into(),
            metrics: vec![
                metric("passes until at SSD speed", "passes", Lower, Demand::Beat, [Some(Value::Words("never".into())), Some(Value::Words("never".into())), n(3.0), None, n(1.0)]),
                metric("first read", "MB/s", Higher, Demand::Equal, [n(130.0), n(131.0), n(120.0), n(131.0), n(672.0)]),
            ],
            checks: vec![],
            charts: vec![],
            finding: "It migrates.".into(),
        },
        Outcome {
            id: "S4",
            title: "Write amplification against spare area".into(),
            machine: "An SSD model".into(),
            method: "Theory.".into(),
            metrics: vec![metric("at 20 % spare", "times", Lower, Demand::Nothing, [n(2.6), None, None, None, n(2.7)])],
            checks: vec![],
            charts: vec![],
            finding: String::new(),
        },
    ]
}

/// Two loads on two sizes, won and lost.
pub(super) fn cells() -> Vec<Cell> {
    let entry = |role, policy: &str, ms: u64| {
        let replay =
            Replay { policy: policy.into(), accesses: 1000, foreground_ns: ms * 1_000_000, ..Replay::default() };
        Entry { role, replay: Replay { user_bytes: 1 << 24, promotions: ms, ..replay } }
    };
    let cell = |workload: &str, origin, percent, ours| Cell {
        workload: workload.into(),
        origin,
        percent,
        fast_slots: 10,
        accesses: 1000,
        footprint: 200,
        cut: false,
        entries: vec![
            entry(Role::Baseline, "first fit", 9000),
            entry(Role::Baseline, "LRU", 5000),
            entry(Role::Baseline, "LFU aged", 3200),
            entry(Role::Baseline, "clock+Bloom N=2", 3500),
            entry(Role::Baseline, "clock+Bloom N=3", 3300),
            entry(Role::Policy, "HeadTime", ours),
            entry(Role::Scheduled, "HeadTime + scheduler", ours + 50),
            entry(Role::Cache, "Smart Response, 64 GB cache", 2000),
        ],
        bounds: Some(Bounds {
            min_foreground_ns: 1,
            epoch_total_ns: 2,
            least_total_ns: 1_500_000_000,
            after_use_total_ns: 2_000_000_000,
        }),
    };
    vec![
        cell("db-host", Origin::Trace, 5, 2900),
        cell("db-host", Origin::Trace, 20, 3600),
        cell("zipf-files", Origin::Generated { seed: 201 }, 5, 3200),
    ]
}

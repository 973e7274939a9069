//! S1, S2 and S3: a controller that compresses what it writes, and one that does not.

use bimetal_sim::model::catalog::{pm830, sf2200};
use bimetal_sim::model::sandforce::Content;
use bimetal_sim::model::ssd::{Ssd, SsdSpec};
use bimetal_sim::prng::Prng;
use bimetal_volume::units::Tier;

use super::loads::*;
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};
use crate::system::bare::Bare;
use crate::system::load::{self, Load};
use crate::system::meter::Meter;
use crate::system::{Op, System};

const MACHINE: &str = "laptops of 2012: SandForce SF-2200 of 120 GB, Samsung PM830 class";
const VIDEO: u64 = 13_870 * MB / (4 * KIB) * (4 * KIB);

pub(super) fn copy() -> Session {
    Session { ids: &["S1"], columns: &[Column::Model], measure: measure_s1, report: |r| vec![s1(r)] }
}

pub(super) fn contents() -> Session {
    Session { ids: &["S2"], columns: &[Column::Model], measure: measure_s2, report: |r| vec![s2(r)] }
}

pub(super) fn encrypted() -> Session {
    Session { ids: &["S3"], columns: &[Column::Model], measure: measure_s3, report: |r| vec![s3(r)] }
}

/// The Samsung SSD of 512 GB: four times the flash of the catalog's, so faster; its rate is fitted to S1.
fn pm830_512() -> SsdSpec {
    let spec = pm830();
    SsdSpec { size: 4 * spec.size, raw: 4 * spec.raw, scale: 4, write_rate: 445 * MB, ..spec }
}

fn ssd(spec: SsdSpec, content: Content) -> Bare<Ssd> {
    let mut ssd = Ssd::new(spec).expect("parameters of the catalog");
    ssd.set_content(content);
    Bare::new("SSD", Tier::Fast, Box::new(ssd))
}

fn measure_s1(_: Column) -> Seen {
    let mut seen = Seen::default();
    for (name, spec) in [("sandforce", sf2200()), ("samsung", pm830_512())] {
        let meter = write(&mut ssd(spec, Content::Compressed), 0..VIDEO, MIB, 1);
        seen.put(name, meter.elapsed() as f64 / 1e9);
    }
    seen
}

fn s1(results: &Results) -> Outcome {
    let metric = |name, label| results.metric(name, label, "s", Better::Lower, Demand::Nothing);
    Outcome {
        id: "S1",
        title: "13 870 MB of compressed video are copied to the SSD".into(),
        machine: MACHINE.into(),
        method: "The empty SSD takes the video, 1 MiB at a time, one request on its way. The source is faster.".into(),
        metrics: vec![
            metric("sandforce", "SandForce, 128 GB").review(Value::Number(59.97)),
            metric("samsung", "Samsung, 512 GB")
                .review(Value::Number(31.59))
                .remark("The rate of the 512 GB device is fitted to this very figure."),
        ],
        checks: Vec::new(),
        charts: Vec::new(),
        finding: format!(
            "What cannot be compressed takes {} s on the SandForce, {} s on the Samsung.",
            results.say(Column::Model, "sandforce"),
            results.say(Column::Model, "samsung"),
        ),
    }
}

fn measure_s2(_: Column) -> Seen {
    let mut seen = Seen::default();
    let devices: [(&str, fn() -> SsdSpec); 2] = [("sandforce", sf2200), ("samsung", pm830)];
    for (device, spec) in devices {
        for (kind, content) in [("compressible", Content::Pattern), ("incompressible", Content::Compressed)] {
            let meter = write(&mut ssd(spec(), content), 0..whole(4 * GB), 128 * KIB, 1);
            seen.put(&format!("{device} {kind}"), mb_per_s(&meter));
        }
    }
    seen
}

fn s2(results: &Results) -> Outcome {
    let metric = |name, label| results.metric(name, label, "MB/s", Better::Higher, Demand::Nothing);
    Outcome {
        id: "S2",
        title: "Sequential writes of data that compress, and that do not".into(),
        machine: MACHINE.into(),
        method: "The empty SSD takes 4 GB, 128 KiB at a time, one request on its way.".into(),
        metrics: vec![
            metric("sandforce compressible", "SandForce, compressible").review(Value::Number(500.0)),
            metric("sandforce incompressible", "SandForce, incompressible").review(Value::Words("less than half".into())),
            metric("samsung compressible", "Samsung, compressible").review(Value::Words("no difference".into())),
            metric("samsung incompressible", "Samsung, incompressible").review(Value::Words("no difference".into())),
        ],
        checks: Vec::new(),
        charts: Vec::new(),
        finding: format!(
            "SandForce writes {} MB/s of what it can compress and {} of what it cannot; so compress first, then encrypt (B17).",
            results.say(Column::Model, "sandforce compressible"),
            results.say(Column::Model, "sandforce incompressible"),
        ),
    }
}

/// The SandForce with 512 blocks of flash instead of 32768: what the steady state needs to be reached soon.
fn small() -> SsdSpec {
    let spec = sf2200();
    let raw = 512 * u64::from(spec.block_pages) * spec.page;
    let size = (raw as f64 / (spec.raw as f64 / spec.size as f64)) as u64;
    SsdSpec { raw, size: size / (128 * KIB) * (128 * KIB), ..spec }
}

fn measure_s3(_: Column) -> Seen {
    let mut seen = Seen::default();
    for (name, content) in [("encrypted", Content::Encrypted), ("programs", Content::Programs)] {
        let spec = small();
        // All of it, and the share of it that 8 GB are of 120.
        for (width, span) in [("all", spec.size), ("part", whole(spec.size * 8 / 120))] {
            let mut system = ssd(spec.clone(), content);
            write(&mut system, 0..spec.size, 128 * KIB, 1);
            let runs = runs(&mut system, span, &format!("{name} {width}"), &mut seen);
            seen.line(&format!("{name} {width}"), runs);
            if (name, width) == ("encrypted", "all") {
                recover(&mut system, &mut seen);
            }
        }
    }
    seen
}

/// Six runs of random writes, each of a sixteenth of the device.
fn runs(system: &mut dyn System, span: u64, name: &str, seen: &mut Seen) -> Vec<(f64, f64)> {
    let count = system.size() / (8 * KIB) / 16;
    let mut out = Vec::new();
    for run in 1..=6u64 {
        let mut rng = Prng::new(run);
        let pages = span / (8 * KIB);
        let requests = (0..count).map(|_| crate::system::Request::write(rng.below(pages) * 8 * KIB, 4 * KIB));
        let meter = load::closed_loop(system, 3, None, requests, Meter::seconds());
        seen.put(&format!("{name} {run}"), mb_per_s(&meter));
        out.push((run as f64, mb_per_s(&meter)));
    }
    out
}

/// Sequential passes over all of it.
fn recover(system: &mut dyn System, seen: &mut Seen) {
    let load = Load { range: 0..system.size(), block: 128 * KIB, depth: 1, op: Op::Write };
    for pass in 1..=6u64 {
        let meter = load::sequential(system, &load, Meter::seconds());
        seen.put("recovered", mb_per_s(&meter));
        seen.line("recovery", vec![(pass as f64, mb_per_s(&meter))]);
    }
}

fn s3(results: &Results) -> Outcome {
    let metric = |name, label| results.metric(name, label, "MB/s", Better::Higher, Demand::Nothing);
    let words = |w: &str| Value::Words(w.into());
    let chart = |name, title| results.chart(name, title, "run", "MB/s");
    Outcome {
        id: "S3",
        title: "Random writes on an encrypted volume, run after run".into(),
        machine: MACHINE.into(),
        method: "A SandForce with 2 GB of flash instead of 128 GiB and the same share of spare space is filled; then six runs of random \
                 writes of 4 KiB follow, 3 on their way, each of a sixteenth of the device, then six sequential passes. What \
                 matters for the garbage collection are shares of the device, so its size does not."
            .into(),
        metrics: vec![
            metric("encrypted all 1", "encrypted, first run").review(words("not given")),
            metric("encrypted all 6", "encrypted, sixth run").review(words("falls run after run")),
            metric("encrypted part 6", "encrypted, sixth run in 8 GB of 120").review(words("falls run after run")).remark(
                "The review wrote to 8 GB. A controller that always cleans the emptiest block is hardly slowed by that, as all of \
                 the spare space serves the 8 GB; so the model needs random writes everywhere to fall as the review says.",
            ),
            metric("programs all 6", "not encrypted, sixth run").review(words("not given")),
            metric("recovered", "sequential passes, the sixth").review(Value::Number(250.0)),
        ],
        checks: Vec::new(),
        charts: vec![
            chart("encrypted all", "Random writes, encrypted"),
            chart("programs all", "Random writes, compressible"),
            chart("recovery", "Sequential passes after that"),
        ],
        finding: format!(
            "On encrypted data the controller falls from {} to {} MB/s, on data that it can compress it stays at {}.",
            results.say(Column::Model, "encrypted all 1"),
            results.say(Column::Model, "encrypted all 6"),
            results.say(Column::Model, "programs all 6"),
        ),
    }
}

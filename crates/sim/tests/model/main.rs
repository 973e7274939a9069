//! The models of disks and SSDs give the figures they were made for.
//!
//! "Notes" are the research notes on placement, sections 4 (devices) and 5 (flash); ids like F3 or G1 are the measured
//! points of the reviews. Where a figure of the notes contradicts another, or is not met, the test says so and gives
//! ours.

mod catalog;
mod disk;
mod flash;
mod ssd;

use bimetal_sim::model::{Model, Request};

/// Checks that `value` is within `percent` of `wanted`.
#[track_caller]
fn near(what: &str, value: f64, wanted: f64, percent: f64) {
    println!("{what}: {value:.3} (wanted {wanted})");
    let off = (value / wanted - 1.0).abs() * 100.0;
    assert!(off <= percent, "{what}: {value:.3} is {off:.1} % off {wanted}, more than {percent} %");
}

/// What a closed loop saw.
struct Seen {
    /// Nanoseconds from the end of the warm-up to the end.
    ns: u64,
    /// Requests that ended in that time.
    requests: u64,
    /// Their bytes.
    bytes: u64,
    /// Longest time a request took, in nanoseconds.
    longest_ns: u64,
}

impl Seen {
    fn mb_per_s(&self) -> f64 {
        self.bytes as f64 * 1000.0 / self.ns as f64
    }

    fn mib_per_s(&self) -> f64 {
        self.mb_per_s() / 1.048_576
    }

    fn iops(&self) -> f64 {
        self.requests as f64 * 1e9 / self.ns as f64
    }
}

/// Keeps `depth` requests in flight, each following the end of one at once: `warm` of them unseen, then `count`.
fn closed_loop(
    model: &mut dyn Model,
    start: u64,
    depth: usize,
    warm: u64,
    count: u64,
    mut next: impl FnMut() -> Request,
) -> Seen {
    let mut sent: Vec<(u64, u64)> = Vec::new();
    let mut submit = |model: &mut dyn Model, now: u64, sent: &mut Vec<(u64, u64)>| {
        let request = next();
        model.submit(now, sent.len() as u64, request).expect("within the device");
        sent.push((now, request.len));
    };
    for _ in 0..depth {
        submit(model, start, &mut sent);
    }
    let mut seen = Seen { ns: 0, requests: 0, bytes: 0, longest_ns: 0 };
    let (mut began, mut done) = (start, 0);
    while done < warm + count {
        let end = model.wait().expect("requests are in flight");
        let (at, len) = sent[end.id as usize];
        done += 1;
        if done <= warm {
            began = end.at;
        } else {
            seen.requests += 1;
            seen.bytes += len;
            seen.longest_ns = seen.longest_ns.max(end.at - at);
            seen.ns = end.at - began;
        }
        submit(model, end.at, &mut sent);
    }
    // Whatever is still on its way, so that the caller can go on with the same model.
    while model.wait().is_some() {}
    seen
}

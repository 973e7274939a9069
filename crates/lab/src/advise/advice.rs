//! The curve as rows, and what to say of it.

use bimetal_volume::units::CHUNK;

use super::ladder::ranking_of;
use super::Advisor;

/// The reserve that a new group has by default, from the smallest SSD that is sold on.
const RESERVE: u64 = 4 << 30;
const SOLD_FROM: u64 = 32_000_000_000;
/// On smaller ones, which stand for larger ones, the share that the reserve has of 128 GB.
const RESERVE_SHARE: u64 = 32;
/// A size is enough if no doubling from it on adds more than this to the share of time.
const WORTH: f64 = 0.05;
/// A share of time below which an SSD is no help.
const HELP: f64 = 0.10;
const DAY_US: u64 = 86_400_000_000;

/// One size of SSD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Bytes of the SSD, as it is sold.
    pub size: u64,
    /// Share of chunk accesses that it takes, 0 to 1.
    pub io: f64,
    /// Share of the disk's time that it saves, 0 to 1.
    pub time: f64,
}

/// The curve of a trace, and on what it rests.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Sizes, growing by factors of 2, up to the first that holds everything.
    pub rows: Vec<Row>,
    /// Bytes of the chunks touched.
    pub footprint: u64,
    /// Time of the last request, in microseconds.
    pub duration_us: u64,
    /// Requests that read, wrote or discarded.
    pub requests: u64,
    /// Chunk accesses.
    pub accesses: u64,
    /// Share of the disk's time that goes to what is read for the first time, 0 to 1.
    pub first_reads: f64,
    /// One chunk of so many was followed.
    pub sampled: u64,
    /// Busy time of the disk without an SSD, in ns; estimated if not all chunks were followed.
    pub disk_ns: u64,
}

impl Advisor {
    /// What the trace so far says.
    pub fn advice(&self) -> Advice {
        let footprint = self.footprint();
        let mut best = (0.0f64, 0.0f64);
        let mut row = |size: u64| {
            // A larger SSD could do what a smaller one does: rankings of neighbouring sizes differ a little.
            let (io, time) = self.shares(size);
            best = (best.0.max(io), best.1.max(time));
            Row { size, io: best.0, time: best.1 }
        };
        let seen = &self.seen;
        Advice {
            rows: sizes(footprint).into_iter().map(&mut row).collect(),
            footprint,
            duration_us: seen.duration_us,
            requests: seen.requests,
            accesses: seen.accesses,
            first_reads: share(seen.first_reads_ns as f64, seen.alone_ns as f64),
            sampled: 1 << self.shift(),
            disk_ns: (share(seen.accesses as f64, seen.followed as f64) * seen.alone_ns as f64) as u64,
        }
    }

    /// Shares of accesses and of time that an SSD of so many bytes takes.
    pub fn shares(&self, size: u64) -> (f64, f64) {
        let chunks = capacity(size);
        let counts = &self.counts[ranking_of(chunks)];
        let taken = |left: f64, all: u64| if all == 0 { 0.0 } else { (1.0 - left / all as f64).clamp(0.0, 1.0) };
        (
            taken(counts.accesses.left(chunks), self.seen.followed),
            taken(counts.time_ns.left(chunks), self.seen.alone_ns),
        )
    }
}

/// Chunks that an SSD holds beside the reserve.
fn capacity(size: u64) -> u64 {
    let reserve = if size >= SOLD_FROM { RESERVE } else { size / RESERVE_SHARE };
    (size - reserve) / CHUNK
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        part / whole
    } else {
        0.0
    }
}

/// 1, 2, 4 ... 512 MB, GB, TB: from a hundredth of the footprint (or 32 GB, if that is less) to the first that holds
/// it.
fn sizes(footprint: u64) -> Vec<u64> {
    let units = [1_000_000u64, 1_000_000_000, 1_000_000_000_000];
    let all = units.into_iter().flat_map(|unit| (0..10).map(move |i| unit << i));
    let from = if footprint >= SOLD_FROM { SOLD_FROM.min(footprint / 100) } else { footprint / 100 };
    let mut out = Vec::new();
    for size in all.filter(|s| *s >= from) {
        out.push(size);
        if capacity(size).saturating_mul(CHUNK) >= footprint {
            break;
        }
    }
    out
}

/// "128 GB".
pub fn size_name(size: u64) -> String {
    match size {
        0..=999_999_999 => format!("{} MB", size / 1_000_000),
        1_000_000_000..=999_999_999_999 => format!("{} GB", size / 1_000_000_000),
        _ => format!("{} TB", size / 1_000_000_000_000),
    }
}

/// A share as whole percent, never 100 for less than all.
fn percent(share: f64) -> String {
    match share {
        s if s > 0.995 && s < 1.0 => "more than 99 %".into(),
        s => format!("{:.0} %", s * 100.0),
    }
}

impl Advice {
    /// The smallest size from which on no doubling adds much to the time saved.
    pub fn enough(&self) -> Option<usize> {
        let last = self.rows.len().checked_sub(1)?;
        let worth = |i: &usize| self.rows[*i].time - self.rows[*i - 1].time > WORTH;
        Some((1..=last).rev().find(worth).unwrap_or(0))
    }

    /// The advice in a sentence or two.
    pub fn sentence(&self) -> String {
        let Some((i, row)) = self.enough().map(|i| (i, self.rows[i])) else { return String::new() };
        let all = self.rows[self.rows.len() - 1];
        if all.time < HELP {
            return format!(
                "No SSD helps this load much: even one that holds all it touches would save {} of the disk's time.",
                percent(all.time)
            );
        }
        let (io, time) = (percent(row.io), percent(row.time));
        let mut text =
            format!("An SSD of {} would take {io} of the I/O and {time} of the disk's time", size_name(row.size));
        text += &match self.rows.get(i + 1) {
            Some(next) => format!("; doubling it adds {}.", percent(next.time - row.time)),
            None => ": all that this load touches lies on it.".into(),
        };
        if row.size < SOLD_FROM && self.footprint < SOLD_FROM {
            text += " Every SSD sold today is larger.";
        }
        text
    }

    /// What weakens the advice, each as a sentence; none if the trace is good.
    pub fn caveats(&self) -> Vec<String> {
        let mut out = Vec::new();
        if self.duration_us < DAY_US {
            out.push(format!(
                "The trace covers {}. What is used once a day or once a week is not in it: record a day at least, \
                 better a week.",
                duration(self.duration_us)
            ));
        }
        if self.first_reads >= HELP {
            out.push(format!(
                "{} of the disk's time goes to data read for the first time in the trace, which counts as the disk's for every \
                 size. The longer the trace, the smaller this part.",
                percent(self.first_reads)
            ));
        }
        let uses = share(self.accesses as f64 * CHUNK as f64, self.footprint as f64);
        if uses < 4.0 {
            out.push(format!("What is touched is used {uses:.1} times on the mean, which is little to judge by."));
        }
        if self.sampled > 1 {
            out.push(format!(
                "The trace touches so much that one chunk of {} was followed; shares may be off by a percent or so.",
                self.sampled
            ));
        }
        out
    }
}

/// A time for people.
fn duration(us: u64) -> String {
    let s = us as f64 / 1e6;
    match s {
        s if s < 120.0 => format!("{s:.0} seconds"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s => format!("{:.0} hours", s / 3600.0),
    }
}

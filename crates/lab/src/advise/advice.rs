//! What to say of the rows.

use bimetal_volume::units::CHUNK;

use super::ladder::{size_name, SOLD_FROM};
use super::load::{Load, Row};

/// A size is enough if no larger one adds more than this to the share of time.
const WORTH: f64 = 0.05;
/// A share of time below which an SSD is no help.
const HELP: f64 = 0.10;
const DAY_US: u64 = 86_400_000_000;

/// What each size takes of a load, and on what that rests.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Sizes, growing by factors of 2, up to the first that holds everything.
    pub rows: Vec<Row>,
    /// Bytes of the chunks touched.
    pub footprint: u64,
    /// Time of the last request, in microseconds; `None` if the recording has no times.
    pub duration_us: Option<u64>,
    /// Requests.
    pub requests: u64,
    /// Chunk accesses.
    pub accesses: u64,
    /// Share of the disk's time that goes to what is read for the first time, 0 to 1.
    pub first_reads: f64,
    /// Share of the disk's time that goes to what is written for the first time, or anew after a discard, 0 to 1.
    pub new_data: f64,
    /// One MiB of so many was followed.
    pub sampled: u64,
    /// The trace goes on after these requests.
    pub cut: bool,
    /// Busy time of the disk without an SSD, in ns.
    pub disk_ns: u64,
}

impl Advice {
    /// What the rows of a load say.
    pub fn new(load: &Load, rows: Vec<Row>) -> Advice {
        let whole = &load.whole;
        Advice {
            rows,
            footprint: load.footprint(),
            duration_us: whole.timed.then_some(whole.duration_us),
            requests: whole.requests,
            accesses: whole.accesses,
            first_reads: load.first_reads,
            new_data: load.new_data,
            sampled: load.sampled(),
            cut: whole.cut,
            disk_ns: whole.alone_ns,
        }
    }

    /// The most that any size saves of the disk's time.
    fn most(&self) -> f64 {
        self.rows.iter().map(|r| r.time).fold(f64::NEG_INFINITY, f64::max)
    }

    /// The smallest size after which little is to be won in all; it may be smaller than any that is sold.
    pub fn enough(&self) -> Option<&Row> {
        let most = self.most();
        self.rows.iter().find(|r| most - r.time <= WORTH)
    }

    /// Bytes of the SSD to buy: enough, and sold. `None` if none helps.
    pub fn buy(&self) -> Option<u64> {
        self.enough().filter(|_| self.most() >= HELP).map(|r| r.size.max(SOLD_FROM))
    }

    /// The advice in a sentence or two.
    pub fn sentence(&self) -> String {
        let Some((enough, last)) = self.enough().zip(self.rows.last()) else { return String::new() };
        let Some(size) = self.buy() else {
            return format!(
                "No SSD helps this load much: even one that holds all it touches would save {} of the disk's time.",
                percent(last.time.max(0.0))
            );
        };
        // All that are smaller than any that is sold: the largest of them holds everything.
        let row = self.rows.iter().find(|r| r.size >= size).unwrap_or(last);
        let takes = format!("take {} of the I/O and {} of the disk's time", percent(row.io), percent(row.time));
        if enough.size < SOLD_FROM {
            return format!(
                "Every SSD sold today is large enough: one of {} would {takes}. More than {} adds little.",
                size_name(size),
                size_name(enough.size)
            );
        }
        let rest = match self.most() - row.time {
            _ if row.size == last.size => ": all that this load touches lies on it.".into(),
            more if more < 0.005 => "; no larger one adds anything.".into(),
            more => format!("; larger ones add {} at most.", percent(more)),
        };
        format!("An SSD of {} would {takes}{rest}", size_name(size))
    }

    /// What weakens the advice, each as a sentence; none if the trace is good.
    pub fn caveats(&self) -> Vec<String> {
        let mut out = Vec::new();
        match self.duration_us {
            None => out.push(
                "The recording has no times, so each request counts as a use of its own. What is asked for several times in \
                 a moment is one use only, and seems to be used more than it is. How long was recorded is not known: it \
                 should be a day at least, better a week."
                    .into(),
            ),
            Some(us) if us < DAY_US => out.push(
                "The trace is shorter than a day: what is used once a day or once a week is not in it. Record a day at least, \
                 better a week."
                    .into(),
            ),
            Some(_) => {}
        }
        if self.rows.iter().any(|r| r.time <= -WORTH) {
            out.push(
                "Where the disk's time is below 0, it is busier than without an SSD: what it would read in one go lies partly \
                 on the SSD, and it seeks to the rest."
                    .into(),
            );
        }
        if self.first_reads >= HELP {
            out.push(format!(
                "{} of the disk's time goes to data read for the first time in the trace, which counts as the disk's for every \
                 size. The longer the trace, the smaller this part.",
                percent(self.first_reads)
            ));
        }
        if self.new_data >= HELP {
            out.push(format!(
                "{} of the disk's time goes to data written for the first time, which counts as the SSD's. What of these is not \
                 used again goes down to the disk later, while it has nothing else to do: that saves waiting, and not the \
                 disk's work.",
                percent(self.new_data)
            ));
        }
        let uses = self.accesses as f64 * CHUNK as f64 / self.footprint.max(1) as f64;
        if uses < 4.0 {
            out.push(format!("What is touched is used {uses:.1} times on the mean, which is little to judge by."));
        }
        if self.cut {
            out.push(format!(
                "Only the first {} requests were looked at: there are too many, and they touch too little to look at a part \
                 of it.",
                self.requests
            ));
        }
        if self.sampled > 1 {
            out.push(format!(
                "There is so much in the trace that one MiB of {} was followed; shares may be off by five points, and the \
                 disk's time by ten where files come and go.",
                self.sampled
            ));
        }
        out
    }
}

/// A share as whole percent, never 100 for less than all.
fn percent(share: f64) -> String {
    match share {
        s if s > 0.995 && s < 1.0 => "more than 99 %".into(),
        s => format!("{:.0} %", s * 100.0),
    }
}

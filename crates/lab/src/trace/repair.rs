//! What a reader dropped or changed, counted.

use std::fmt;

use super::Position;

/// Something a reader did not pass on as it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// A request earlier than the one before it: its time was set to that one's.
    Backwards,
    /// A request more than 30 days later than those before and after it: its time was set to that of the one before.
    Ahead,
    /// A read, write or discard of no bytes: dropped.
    ZeroLength,
    /// A request that begins at or after the volume's end: dropped.
    Beyond,
    /// A request that begins at or after the end of its device, or of any: dropped.
    BeyondDevice,
    /// A request that crosses the volume's end: shortened.
    Shortened,
    /// A read or write longer than any device takes: dropped.
    TooLong,
    /// The trace ends inside a line or record that cannot be read: dropped.
    CutTail,
    /// The last line has no line end, so its last number may be cut: taken as it stands.
    Unended,
    /// What follows the end of a compressed trace and is none: left out.
    Trailing,
    /// A line of headings, at the beginning or where another recording was put behind: left out. Times that begin anew
    /// there go on from those before.
    Header,
    /// A command that moves no data, or whose place is not recorded: left out.
    OtherCommand,
    /// An event of another kind than the one asked for: left out.
    OtherEvent,
    /// A request to another device than the one asked for: left out.
    OtherDevice,
    /// An empty line: left out.
    Blank,
}

impl Fix {
    /// All of them, in the order of reports.
    pub const ALL: [Fix; 15] = [
        Fix::Backwards,
        Fix::Ahead,
        Fix::ZeroLength,
        Fix::Beyond,
        Fix::BeyondDevice,
        Fix::Shortened,
        Fix::TooLong,
        Fix::CutTail,
        Fix::Unended,
        Fix::Trailing,
        Fix::Header,
        Fix::OtherCommand,
        Fix::OtherEvent,
        Fix::OtherDevice,
        Fix::Blank,
    ];

    /// Whether the trace itself is at fault, which strict reading refuses; otherwise the reader only selects.
    pub fn is_damage(self) -> bool {
        !matches!(self, Fix::Header | Fix::OtherCommand | Fix::OtherEvent | Fix::OtherDevice | Fix::Blank)
    }

    /// What was met, in words.
    pub fn what(self) -> &'static str {
        match self {
            Fix::Backwards => "a request earlier than the one before it",
            Fix::Ahead => "a request more than 30 days later than those around it",
            Fix::ZeroLength => "a request of no bytes",
            Fix::Beyond => "a request beyond the volume's end",
            Fix::BeyondDevice => "a request beyond the end of its device",
            Fix::Shortened => "a request across the volume's end",
            Fix::TooLong => "a read or write longer than 4 GiB",
            Fix::CutTail => "the trace ends inside a line or record",
            Fix::Unended => "the last line has no line end and may be cut",
            Fix::Trailing => "bytes after the end of the gzip file",
            Fix::Header => "a line of headings",
            Fix::OtherCommand => "a command that moves no data or does not say where",
            Fix::OtherEvent => "an event of another kind",
            Fix::OtherDevice => "a request to another device",
            Fix::Blank => "an empty line",
        }
    }

    /// What was done about it, in words.
    pub fn done(self) -> &'static str {
        match self {
            Fix::Backwards | Fix::Ahead => "moved to the time of the one before",
            Fix::Shortened => "shortened",
            Fix::Unended => "taken as it stands",
            Fix::ZeroLength | Fix::Beyond | Fix::BeyondDevice | Fix::TooLong | Fix::CutTail => "dropped",
            Fix::Trailing | Fix::Header | Fix::OtherCommand | Fix::OtherEvent | Fix::OtherDevice | Fix::Blank => {
                "left out"
            }
        }
    }
}

/// How often each [`Fix`] was made, and where first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    seen: [Option<(u64, Position)>; Fix::ALL.len()],
    /// The device of the first [`Fix::BeyondDevice`].
    device: String,
}

impl Repairs {
    /// Times it was made.
    pub fn count(&self, fix: Fix) -> u64 {
        self.seen[fix as usize].map_or(0, |(n, _)| n)
    }

    /// Where it was made first.
    pub fn first(&self, fix: Fix) -> Option<Position> {
        self.seen[fix as usize].map(|(_, at)| at)
    }

    /// Whether every request was passed on as it stood.
    pub fn is_clean(&self) -> bool {
        Fix::ALL.iter().all(|&fix| !fix.is_damage() || self.count(fix) == 0)
    }

    /// The device to which it was made first; empty where that says nothing.
    pub fn device(&self, fix: Fix) -> &str {
        if fix == Fix::BeyondDevice {
            &self.device
        } else {
            ""
        }
    }

    /// Names the device to which it was made first.
    pub(super) fn name(&mut self, fix: Fix, device: &str) {
        if self.device.is_empty() && self.count(fix) == 1 {
            device.clone_into(&mut self.device);
        }
    }

    pub(super) fn note(&mut self, fix: Fix, at: Position) {
        let (n, first) = self.seen[fix as usize].unwrap_or((0, at));
        self.seen[fix as usize] = Some((n.saturating_add(1), first));
    }

    /// The report as the end of a sentence; empty if there is nothing to report.
    pub(super) fn because(repairs: &Repairs) -> String {
        let report = repairs.to_string();
        if report.is_empty() {
            String::new()
        } else {
            format!(": {}", report.replace('\n', "; "))
        }
    }
}

impl fmt::Display for Repairs {
    /// One line for each kind of repair; nothing if there was none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for fix in Fix::ALL {
            if let Some((n, at)) = self.seen[fix as usize] {
                let end = if first { "" } else { "\n" };
                let times = if n == 1 { "once".to_owned() } else { format!("{n} times, first") };
                let device = self.device(fix);
                let of = if device.is_empty() { String::new() } else { format!(", of {device}") };
                write!(f, "{end}{} ({times} at {at}{of}): {}", fix.what(), fix.done())?;
                first = false;
            }
        }
        Ok(())
    }
}

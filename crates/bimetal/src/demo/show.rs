//! How the demo talks: headings, commands, one live line, a table at the end.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::size::approx;

const REFRESH: Duration = Duration::from_millis(100);
const BAR: usize = 28;

/// The screen.
pub(crate) struct Show {
    live: bool,
    quiet: bool,
    bold: (&'static str, &'static str),
    last: Option<Instant>,
    begun: Instant,
}

impl Show {
    /// On the terminal; with `quiet` nowhere.
    pub(crate) fn new(quiet: bool) -> Show {
        let live = !quiet && std::io::stdout().is_terminal();
        let plain = !live || std::env::var_os("NO_COLOR").is_some();
        let bold = if plain { ("", "") } else { ("\x1b[1m", "\x1b[0m") };
        Show { live, quiet, bold, last: None, begun: Instant::now() }
    }

    fn write(&self, text: &str) {
        if self.quiet {
            return;
        }
        // A demo whose reader is gone has nobody to tell.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// A numbered heading.
    pub(crate) fn heading(&mut self, text: &str) {
        let (on, off) = self.bold;
        let at = self.begun.elapsed().as_secs();
        self.write(&format!(
            "\n{on}{text}{off}{:>pad$}\n",
            format!("{at} s"),
            pad = 96usize.saturating_sub(text.chars().count())
        ));
    }

    /// A line that stays.
    pub(crate) fn line(&mut self, text: &str) {
        let clear = if self.live { "\r\x1b[K" } else { "" };
        self.last = None;
        self.write(&format!("{clear}  {text}\n"));
    }

    /// A line that is replaced by the next one; only for eyes.
    pub(crate) fn live(&mut self, text: impl FnOnce() -> String) {
        if !self.live || self.last.is_some_and(|at| at.elapsed() < REFRESH) {
            return;
        }
        self.last = Some(Instant::now());
        let text: String = text().chars().take(110).collect();
        self.write(&format!("\r\x1b[K  {text}"));
    }
}

/// `[########........]`, `part` of `whole` filled.
pub(crate) fn bar(part: u64, whole: u64) -> String {
    let filled = (part.min(whole) as usize * BAR).checked_div(whole as usize).unwrap_or(0);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(BAR - filled))
}

/// Bytes within a time, as a rate.
pub(crate) fn rate(bytes: u64, time: Duration) -> String {
    format!("{}/s", approx((bytes as f64 / time.as_secs_f64().max(1e-6)) as u64))
}

/// A time with three digits.
pub(crate) fn seconds(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

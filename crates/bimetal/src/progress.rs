//! One live line on standard error, for eyes only: what is done, how fast, how long it will take.

use std::io::{IsTerminal, Write};
use std::sync::Once;
use std::time::{Duration, Instant};

use bimetal_host::signals::Signals;
use bimetal_host::Reactor;

const REFRESH: Duration = Duration::from_millis(200);
/// Columns where a terminal does not say how many it has.
const WIDTH: usize = 80;
/// Takes the line away.
const CLEAR: &str = "\r\x1b[K";

/// The part of a text that fits so many columns, 0 where nobody knows. The last is left free: there some terminals go on to
/// the next line.
fn fitted(text: &str, columns: u16) -> String {
    let columns = if columns == 0 { WIDTH } else { columns.into() };
    crate::plain::plain(text).chars().take(columns - 1).collect()
}

/// From now on Ctrl-C ends the program as ever, but takes the line away before. For commands that have nothing else to do
/// then.
pub(crate) fn cleared_when_interrupted() {
    static ONCE: Once = Once::new();
    if !std::io::stderr().is_terminal() {
        return;
    }
    // Where nothing can listen the line stays, as it did.
    ONCE.call_once(|| drop(std::thread::Builder::new().name("signals".into()).spawn(listen)));
}

fn listen() -> anyhow::Result<()> {
    let reactor = Reactor::new()?;
    let env = reactor.env();
    reactor.block_on(async move {
        let signal = Signals::catch(&env)?.next().await?;
        // Kept, so that no other thread writes the line again.
        let mut out = std::io::stderr().lock();
        let _ = write!(out, "{CLEAR}");
        std::process::exit(128 + signal)
    })
}

/// A line that is replaced by the next one. Nothing is shown where nobody looks.
pub(crate) struct Progress {
    live: bool,
    shown: bool,
    begun: Instant,
    last: Option<Instant>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let live = std::io::stderr().is_terminal();
        Progress { live, shown: false, begun: Instant::now(), last: None }
    }

    /// Shows a line, at most a few times a second.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        if self.live && self.last.is_none_or(|at| at.elapsed() >= REFRESH) {
            self.last = Some(Instant::now());
            self.write(&text());
        }
    }

    /// "41 %, 12 s left", for a part of the whole.
    pub(crate) fn part(&self, done: u64, whole: u64) -> String {
        if whole == 0 {
            return String::new();
        }
        let part = (done as f64 / whole as f64).min(1.0);
        let left = self.begun.elapsed().as_secs_f64() * (1.0 / part.max(1e-9) - 1.0);
        match left {
            // The first guesses are worth nothing.
            _ if part < 0.02 => format!("{:.0} %", part * 100.0),
            _ => format!("{:.0} %, {left:.0} s left", part * 100.0),
        }
    }

    fn write(&mut self, text: &str) {
        self.shown = true;
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
        let text = fitted(text, columns);
        // Whoever closed standard error does not want to know.
        let _ = write!(std::io::stderr().lock(), "{CLEAR}{text}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "{CLEAR}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_wider_than_the_terminal() {
        let long = "x".repeat(500);
        assert_eq!([1, 40, 120, 0].map(|columns| fitted(&long, columns).len()), [0, 39, 119, 79]);
        assert_eq!(fitted("short", 40), "short");
    }
}

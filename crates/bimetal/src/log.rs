//! The log: lines on standard error, where systemd and the background start pick them up.
//!
//! A thread of its own writes them. A terminal that was stopped, a pipe that nobody reads, or a log that lies on a volume of this very
//! group can hold a writer for as long as they like, and the thread that serves I/O must never wait for them (I9).
//!
//! 1. Whoever logs does not wait. What does not fit into the queue is lost, and how much that was is told as soon as it can be.
//! 2. The program waits for the queue before it ends, for [`PATIENCE`] at most.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Lines that wait at most.
const QUEUE: usize = 1024;
/// Of the thread that writes: all of it is locked memory.
const STACK: usize = 64 << 10;
/// So long does the end of the program wait for what is queued.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The one of this process; `None` if no thread could be had.
static LOG: OnceLock<Option<Log>> = OnceLock::new();

enum Entry {
    Line(String),
    /// All before it is written.
    Mark(SyncSender<()>),
}

struct Log {
    queue: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl Log {
    fn to(target: impl Write + Send + 'static) -> std::io::Result<Log> {
        let (queue, entries) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let thread = std::thread::Builder::new().name("log".into()).stack_size(STACK);
        thread.spawn(move || write_all(&entries, &counted, target))?;
        Ok(Log { queue, lost })
    }

    fn line(&self, text: String) {
        if self.queue.try_send(Entry::Line(text)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all so far is written, or for so long.
    fn finish(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let (written, seen) = sync_channel(1);
        let mut mark = Entry::Mark(written);
        loop {
            match self.queue.try_send(mark) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Instant::now() < end => mark = back,
                Err(_) => return,
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let _ = seen.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// What the thread does, as long as there is a log.
fn write_all(entries: &Receiver<Entry>, lost: &AtomicU64, mut target: impl Write) {
    // A log that cannot be written must not stop the daemon.
    for entry in entries {
        match entry {
            Entry::Line(text) => {
                let _ = target.write_all(text.as_bytes());
            }
            Entry::Mark(written) => {
                let _ = written.send(());
            }
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            n => {
                let _ = writeln!(target, "warning: {n} lines are missing here: what reads this log did not keep up");
            }
        }
    }
}

fn line(level: &str, text: &str) {
    let text = format!("{level}{}\n", crate::plain::plain(text));
    match LOG.get_or_init(|| Log::to(std::io::stderr()).ok()) {
        Some(log) => log.line(text),
        None => {
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}

/// Something a reader of the log may want to know.
pub(crate) fn info(text: &str) {
    line("", text);
}

/// Something that needs a look.
pub(crate) fn warn(text: &str) {
    line("warning: ", text);
}

/// To be called before the program ends, or writes to standard error otherwise.
pub(crate) fn finish() {
    if let Some(Some(log)) = LOG.get() {
        log.finish(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Takes a write only when it is allowed to.
    struct Slow {
        allowed: Receiver<()>,
        seen: std::sync::mpsc::Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.allowed.recv();
            let _ = self.seen.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_log_that_nobody_reads_and_what_is_lost_is_told() {
        let (allow, allowed) = channel();
        let (seen_by, seen) = channel();
        let log = Log::to(Slow { allowed, seen: seen_by }).unwrap();
        // One is being written at most while the others wait.
        (0..QUEUE + 8).for_each(|i| log.line(format!("{i}\n")));
        log.finish(Duration::ZERO);
        // From here on every write is let through.
        drop(allow);
        log.finish(Duration::from_secs(30));
        drop(log);
        let all: String = seen.iter().collect();
        let lines: Vec<usize> = all.lines().filter_map(|l| l.parse().ok()).collect();
        assert!(lines.iter().copied().eq(0..lines.len()), "{all}");
        let missing = QUEUE + 8 - lines.len();
        assert!(missing == 7 || missing == 8, "{missing} are missing");
        assert!(all.contains(&format!("warning: {missing} lines are missing here")), "{all}");
    }
}

//! The log: lines on standard error, where systemd and the background start pick them up.

use std::io::Write;

fn line(level: &str, text: &str) {
    // A log that cannot be written must not stop the daemon.
    let _ = writeln!(std::io::stderr().lock(), "{level}{text}");
}

/// Something a reader of the log may want to know.
pub(crate) fn info(text: &str) {
    line("", text);
}

/// Something that needs a look.
pub(crate) fn warn(text: &str) {
    line("warning: ", text);
}

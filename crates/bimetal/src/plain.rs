//! Text that comes from elsewhere, and goes to a terminal or a log.

use std::borrow::Cow;

/// Text for a terminal: a path, or what a disk calls itself, may hold characters that would move its cursor or worse.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let escaped = |c: char| if is_plain(c) { c.to_string() } else { c.escape_default().to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_sent_nothing_but_text() {
        assert_eq!(plain("Grüße\n\tan /dev/sda"), "Grüße\n\tan /dev/sda");
        assert_eq!(plain("a\x1b[2J\rb\u{9b}c"), "a\\u{1b}[2J\\rb\\u{9b}c");
    }
}

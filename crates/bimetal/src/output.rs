//! What commands print: words or JSON, tables, questions.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{bail, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::plain::plain;

/// How a command answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// JSON instead of words.
    pub(crate) json: bool,
}

impl Output {
    /// Prints `value` as JSON, or lets `words` print.
    pub(crate) fn show<T: Serialize>(self, value: &T, words: impl FnOnce() -> String) -> Result<()> {
        if self.json {
            // Its strings have escapes of their own.
            write(&format!("{}\n", serde_json::to_string_pretty(value)?))
        } else {
            let text = words();
            emit(&if text.ends_with('\n') || text.is_empty() { text } else { text + "\n" })
        }
    }
}

/// An error and its causes in one line. Many an error names its cause itself: that is not said twice.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

/// A line on standard error beside the answer. Where that cannot be written what is done matters more.
pub(crate) fn tell(text: &str) {
    let _ = std::io::stderr().write_all(format!("{}\n", plain(text)).as_bytes());
}

/// Writes to standard output. A reader that went away (`| head`) is no error worth words.
pub(crate) fn emit(text: &str) -> Result<()> {
    write(&plain(text))
}

fn write(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// A plain table: two spaces between columns, columns in `right` aligned to the right.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    printed(filled(header, rows), right)
}

/// A table like [`table`] that takes no more than so many columns: long cells go on in the next line.
pub(crate) fn table_within(width: u16, header: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let mut t = filled(header, rows);
    t.set_content_arrangement(ContentArrangement::Dynamic);
    t.set_width(width);
    printed(t, right)
}

fn filled(header: &[&str], rows: &[Vec<String>]) -> Table {
    let mut t = Table::new();
    t.load_style(comfy_table::presets::NOTHING);
    t.set_header(header.to_vec());
    for row in rows {
        t.add_row(row.clone());
    }
    t
}

fn printed(mut t: Table, right: &[usize]) -> String {
    for (i, column) in t.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    t.lines().map(|l| l.trim_end().to_string() + "\n").collect()
}

/// Every line two columns to the right.
pub(crate) fn indent(text: &str) -> String {
    text.lines().map(|l| format!("  {l}\n")).collect()
}

/// A paragraph in lines of at most 100 columns, unless a word is longer.
pub(crate) fn wrapped(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        match column {
            0 => column = len,
            c if c + 1 + len > WIDTH => {
                out.push('\n');
                column = len;
            }
            c => {
                out.push(' ');
                column = c + 1 + len;
            }
        }
        out += word;
    }
    out.push('\n');
    out
}

/// Names what is about to be destroyed and asks. Without a terminal to ask on, `--yes` is needed.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        bail!("{what}\nThere is no terminal to ask on: add --yes if this is meant.");
    }
    write!(std::io::stderr(), "{}\nType 'yes' to go on: ", plain(what))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() != "yes" {
        bail!("stopped; nothing was changed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_keep_their_words_within_the_width() {
        let text = "grün ist die Heide ".repeat(40) + &"x".repeat(120) + " end";
        let lines = wrapped(&text);
        assert_eq!(lines.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        assert!(lines.lines().all(|l| l.chars().count() <= 100 || !l.contains(' ')), "{lines}");
        assert_eq!(wrapped(""), "\n");
    }
}

//! The whole file.

use std::fmt::Write;

use super::text::escaped;
use super::{experiment, matrix, summary};
use crate::compare::Cell;
use crate::reviews::outcome::Outcome;

const STYLE: &str = include_str!("style.css");

/// What a report bears near its beginning, so that it is known again: the first, or one of the titles that those without it
/// have.
pub const MARK: [&str; 3] = [
    "<meta name=\"generator\" content=\"bimetal lab\">",
    "<title>Bimetal: the reviews' experiments, replayed</title>",
    "<title>Bimetal: placement policies side by side</title>",
];

/// What a report is made from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report<'a> {
    /// Experiments, in the order of the report; may be none.
    pub outcomes: &'a [Outcome],
    /// The matrix of policies; may be empty.
    pub cells: &'a [Cell],
    /// What could not be done, a sentence each.
    pub missing: &'a [String],
    /// What was repaired or cut in recordings, a sentence each.
    pub notes: &'a [String],
    /// The day, as it shall stand there.
    pub date: &'a str,
    /// Version of the program.
    pub version: &'a str,
}

impl Report<'_> {
    /// The HTML file.
    pub fn html(&self) -> String {
        let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        let _ = writeln!(out, "{}", MARK[0]);
        out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        out.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
        let _ = write!(out, "<title>Bimetal: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n", self.subject());
        self.head(&mut out);
        out.push_str("<main>\n");
        if !self.outcomes.is_empty() {
            out.push_str(&summary::section(self.outcomes));
        }
        list(&mut out, "missing", "Not in this report", self.missing);
        list(&mut out, "notes", "Not as it was recorded", self.notes);
        self.outcomes.iter().for_each(|o| out.push_str(&experiment::section(o)));
        if !self.cells.is_empty() {
            out.push_str(&matrix::section(self.cells));
        }
        out.push_str("</main>\n");
        let _ = write!(
            out,
            "<footer>Made by Bimetal {} on {}. All times are virtual: the same version makes the same figures on any \
             machine.</footer>\n</body>\n</html>\n",
            escaped(self.version),
            escaped(self.date)
        );
        out
    }

    fn subject(&self) -> &'static str {
        match (self.outcomes.is_empty(), self.cells.is_empty()) {
            (false, _) => "the reviews' experiments, replayed",
            (true, _) => "placement policies side by side",
        }
    }

    fn head(&self, out: &mut String) {
        let _ = writeln!(out, "<header>\n<h1>Bimetal: {}</h1>", self.subject());
        out.push_str(
            "<p>Bimetal joins a fast disk (SSD) and a slow one (hard disk) into one block device and moves data by use. Apple's \
             Fusion Drive, of 2012, did the same.</p>\n",
        );
        if !self.outcomes.is_empty() {
            out.push_str(
                "<p>Five published reviews measured Fusion Drives and SSDs. Here their experiments are done again in virtual time \
                 on models of the same devices, once with a model of the reviewed system and once with Bimetal's own engine, the \
                 code that serves real disks. Beside them stand the disk alone and the SSD alone: less than the one, or more \
                 than the other, is hardly possible.</p>\n",
            );
        }
        out.push_str("</header>\n");
    }
}

/// A section with a sentence for each; none without any.
fn list(out: &mut String, id: &str, heading: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(out, "<section id=\"{id}\">\n<h2>{heading}</h2>\n<ul>\n");
    for line in lines {
        let _ = writeln!(out, "<li>{}</li>", escaped(line));
    }
    out.push_str("</ul>\n</section>\n");
}

//! Holds the documents against the tree and the command line, so that they stay true.

use std::path::{Path, PathBuf};

use bimetal_volume::mutant::Mutant;
use clap::Parser;

use crate::cli::Cli;

const README: &str = include_str!("../../../README.md");
const ARCHITECTURE: &str = include_str!("../../../ARCHITECTURE.md");
const CRASH_MODEL: &str = include_str!("../../../docs/CRASH-MODEL.md");
const PACKAGING: &str = include_str!("../../../packaging/README.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What stands between backticks in one line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Where the file lies that a document calls `name`: a path from the root, from the crate of the heading, or the end of
/// a path in some crate.
fn exists(name: &str, heading: Option<&str>) -> bool {
    let in_crates = || {
        let crates = std::fs::read_dir(root().join("crates")).expect("the tree has crates");
        crates.flatten().any(|c| c.path().join("src").join(name).exists() || c.path().join(name).exists())
    };
    match heading {
        Some(krate) if name.starts_with("src/") || name.starts_with("tests/") => root().join(krate).join(name).exists(),
        _ => root().join(name).exists() || in_crates() || (!name.contains('/') && found_below(name)),
    }
}

/// A bare file name, for files named right after their folder.
fn found_below(name: &str) -> bool {
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("folders of the tree can be read").flatten() {
            match entry.file_type().expect("known") {
                t if t.is_dir() => folders.push(entry.path()),
                _ if entry.file_name() == name => return true,
                _ => {}
            }
        }
    }
    false
}

fn is_file_name(word: &str) -> bool {
    let ends = [".rs", ".md", ".sh", ".py"].iter().any(|end| word.ends_with(end));
    let plain = !word.contains(|c: char| c.is_whitespace() || "<>{}()$*".contains(c));
    plain && (ends || word.starts_with("crates/"))
}

#[test]
fn every_file_that_the_documents_name_exists() {
    for (document, text) in [("README", README), ("ARCHITECTURE", ARCHITECTURE), ("CRASH-MODEL", CRASH_MODEL)] {
        let mut heading = None;
        let mut named = 0;
        for line in text.lines() {
            if let Some(title) = line.strip_prefix('#') {
                let title = title.trim_start_matches('#').trim();
                heading = title.starts_with("crates/").then(|| title.split(':').next().unwrap_or(title));
            }
            for name in quoted(line).filter(|w| is_file_name(w)) {
                assert!(exists(name, heading), "{document} names {name}, which is not there");
                named += 1;
            }
        }
        assert!(named > 0 || document == "README", "{document} names no file");
    }
}

#[test]
fn every_link_between_the_documents_leads_somewhere() {
    let documents = [(README, "."), (ARCHITECTURE, "."), (CRASH_MODEL, "docs"), (PACKAGING, "packaging")];
    for (text, folder) in documents {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let inside = link.starts_with('#') || root().join(folder).join(link).exists();
            assert!(inside, "a link to {link} leads nowhere");
        }
    }
}

/// The words of a command of a shell line that begins with `bimetal`, as far as the shell gives them to it.
fn words(command: &str) -> Vec<String> {
    let ends = ["|", "&&", "&", "#", ";", "2>", ">"];
    let words = command.split_whitespace().take_while(|w| !ends.contains(w));
    let clean = |w: &str| w.trim_end_matches([')', '"', ';']).trim_matches(['\'', '"']).to_string();
    words.map(clean).collect()
}

/// All commands in a document: in code blocks wherever a command can begin, elsewhere between backticks.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            let line = line.trim_start_matches("$ ");
            let begins = line.match_indices("bimetal ").map(|(at, _)| at);
            let is_command =
                |at: &usize| *at == 0 || ["$(", "&& ", "; ", "sudo "].iter().any(|b| line[..*at].ends_with(b));
            found.extend(begins.filter(is_command).map(|at| words(&line[at..])));
        } else {
            found.extend(quoted(line).filter(|q| q.starts_with("bimetal ")).map(words));
        }
    }
    found
}

#[test]
fn every_command_in_the_documents_parses() {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    let all = [README, ARCHITECTURE, PACKAGING].into_iter().flat_map(commands);
    let mut parsed = 0;
    for command in all {
        if let Err(e) = Cli::try_parse_from(&command) {
            assert!(matches!(e.kind(), DisplayHelp | DisplayVersion), "{command:?}: {e}");
        }
        parsed += 1;
    }
    assert!(parsed > 20, "only {parsed} commands were found");
}

#[test]
fn the_crash_model_names_every_mutant() {
    for m in Mutant::ALL {
        assert!(CRASH_MODEL.contains(m.name()), "{} is not described", m.name());
    }
    assert!(CRASH_MODEL.contains(&format!("all {}", Mutant::ALL.len())));
    assert!(README.contains(&format!("{} switches", Mutant::ALL.len())));
}

#[test]
fn commands_are_found_where_they_stand() {
    let text =
        "use `bimetal scan` or\n```\ndev=$(bimetal attach tank/main)\nbimetal serve tank &\n# bimetal is nice\n```\n";
    let found = commands(text);
    let expected = ["bimetal scan", "bimetal attach tank/main", "bimetal serve tank"];
    assert_eq!(found.iter().map(|w| w.join(" ")).collect::<Vec<_>>(), expected);
}

//! Holds the documents against the tree and the command line, so that they stay true.

use std::path::{Path, PathBuf};

use bimetal_volume::mutant::Mutant;
use clap::Parser;

use crate::cli::Cli;

const README: &str = include_str!("../../../README.md");
const ARCHITECTURE: &str = include_str!("../../../ARCHITECTURE.md");
const CRASH_MODEL: &str = include_str!("../../../docs/CRASH-MODEL.md");
const PLACEMENT: &str = include_str!("../../../docs/PLACEMENT.md");
const MAKEFILE: &str = include_str!("../../../Makefile");
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
    let documents =
        [("README", README), ("ARCHITECTURE", ARCHITECTURE), ("CRASH-MODEL", CRASH_MODEL), ("PLACEMENT", PLACEMENT)];
    for (document, text) in documents {
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
    let documents =
        [(README, "."), (ARCHITECTURE, "."), (CRASH_MODEL, "docs"), (PLACEMENT, "docs"), (PACKAGING, "packaging")];
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
    let all = [README, ARCHITECTURE, PLACEMENT, PACKAGING].into_iter().flat_map(commands);
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

/// The udev rule of the package: its name and text.
fn udev_rule() -> (String, String) {
    let files = std::fs::read_dir(root().join("packaging")).expect("the tree has packaging").flatten();
    let mut rules = files.filter_map(|f| f.file_name().into_string().ok()).filter(|n| n.ends_with(".rules"));
    let name = rules.next().expect("a rule");
    assert_eq!(rules.next(), None, "one rule");
    let text = std::fs::read_to_string(root().join("packaging").join(&name)).expect("read");
    (name, text)
}

#[test]
fn the_udev_rule_has_the_last_word_before_others_act_on_it() {
    let (name, text) = udev_rule();
    // udev sorts by name. The first lets blkid say what a device is, the others assemble what it said.
    assert!(*name > *"60-persistent-storage.rules" && *name < *"63-md-raid-arrays.rules", "{name}");
    assert!(text.contains(&format!("/usr/lib/udev/rules.d/{name}")), "its head says where it goes");
    for (document, text) in [("Makefile", MAKEFILE), ("packaging/README", PACKAGING)] {
        assert!(text.contains(&name), "{document} does not name {name}");
    }
    let rules: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    let labels = rules.iter().filter_map(|l| l.strip_prefix("LABEL="));
    let jumps = rules.iter().filter_map(|l| l.split("GOTO=").nth(1));
    let labels: Vec<&str> = labels.collect();
    assert!(jumps.clone().count() > 0 && jumps.clone().all(|to| labels.contains(&to)), "{labels:?}");
    let import = rules.iter().position(|l| l.starts_with("IMPORT{program}=")).expect("it asks the program");
    let acts = rules.iter().position(|l| l.contains("SYSTEMD_READY")).expect("it keeps systemd off");
    assert!(import < acts);
}

#[test]
fn what_the_units_refer_to_is_installed() {
    let mut named = 0;
    for unit in ["bimetal@.service", "bimetal-attach@.service"] {
        let text = std::fs::read_to_string(root().join("packaging").join(unit)).expect(unit);
        for path in text.lines().filter_map(|l| l.strip_prefix("Documentation=file:///usr/")) {
            let (folder, file) = path.rsplit_once('/').expect("a path");
            let installs = |l: &str| l.contains(&format!("$(PREFIX)/{folder}")) && l.contains(file);
            assert!(MAKEFILE.lines().any(installs), "{unit} refers to {path}, which is not installed");
            named += 1;
        }
    }
    assert!(named > 0);
}

#[test]
fn udev_takes_the_rule() {
    let (name, _) = udev_rule();
    let path = root().join("packaging").join(name);
    let verified = std::process::Command::new("udevadm").arg("verify").arg(&path).output();
    match verified {
        Err(_) => eprintln!("skipped: udevadm is not installed"),
        Ok(out) => {
            let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            if said.contains("Unknown command verb") {
                return eprintln!("skipped: this udevadm cannot verify rules");
            }
            assert!(out.status.success(), "{said}");
        }
    }
}

#[test]
fn commands_are_found_where_they_stand() {
    let text =
        "use `bimetal scan` or\n```\ndev=$(bimetal attach tank/main)\nbimetal serve tank &\n# bimetal is nice\n```\n";
    let found = commands(text);
    let expected = ["bimetal scan", "bimetal attach tank/main", "bimetal serve tank"];
    assert_eq!(found.iter().map(|w| w.join(" ")).collect::<Vec<_>>(), expected);
}

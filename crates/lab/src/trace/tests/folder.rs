//! The recorded traces, where they are at hand: what is read must be what their description says.
//!
//! `BIMETAL_TRACES` names a folder with traces in this project's CSV and a `README.md`, whose tables have a row for
//! each file, without `.csv.gz`. The columns are found by their headings.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// Cells of each file's rows, by heading. A name may have rows in several tables.
fn tables(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut files: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut headings: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some(row) = line.strip_prefix('|').and_then(|l| l.strip_suffix('|')) else {
            headings.clear();
            continue;
        };
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        if headings.is_empty() {
            headings = cells;
        } else if !cells[0].starts_with(':') && headings[0].starts_with("file") {
            let row = files.entry(cells[0].clone()).or_default();
            row.extend(headings.iter().skip(1).cloned().zip(cells.into_iter().skip(1)));
        }
    }
    files
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What the description should say of a file exactly.
fn cells(s: &Summary) -> Vec<(&'static str, String)> {
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    // Cut to whole bytes, as the description does.
    let mean = (s.bytes_read + s.bytes_written) / s.requests();
    vec![
        ("requests", grouped(s.requests())),
        ("chunks (128 KiB)", grouped(s.chunks)),
        ("footprint MiB", grouped((s.footprint() + (1 << 19)) >> 20)),
        ("read GiB", format!("{:.2}", gib(s.bytes_read))),
        ("written GiB", format!("{:.2}", gib(s.bytes_written))),
        ("bytes read", grouped(s.bytes_read)),
        ("bytes written", grouped(s.bytes_written)),
        ("mean request bytes", grouped(mean)),
        ("chunk accesses", grouped(s.accesses)),
    ]
}

/// What the description says in percent.
fn shares(s: &Summary) -> [(&'static str, f64); 4] {
    [
        ("read share", s.read_share()),
        ("hottest 1 %", s.hottest_1_share()),
        ("hottest 10 %", s.hottest_10_share()),
        ("chunks used once", s.used_once_share()),
    ]
}

fn check(path: &Path, described: &BTreeMap<String, String>) {
    let strict = Options { strict: true, ..Options::default() };
    let mut reader = open(path, &strict).unwrap();
    assert_eq!(reader.format(), Format::Csv);
    let mut tally = Tally::default();
    for access in reader.by_ref() {
        tally.add(&access.unwrap()).unwrap();
    }
    let summary = tally.summary();
    let said = |heading: &str| described.get(heading).unwrap_or_else(|| panic!("no column `{heading}`"));
    for (heading, computed) in cells(&summary) {
        assert_eq!(&computed, said(heading), "{}: {heading}", path.display());
    }
    for (heading, share) in shares(&summary) {
        let percent: f64 = said(heading).trim_end_matches(" %").parse().unwrap();
        // Half of the last place; and a tenth of that, as 0.4125158 was rounded to 0.4125 first and then to 41.2 %.
        assert!((100.0 * share - percent).abs() < 0.055, "{}: {heading}: {share}", path.display());
    }
    // Rounded to two places, without zeros at the end.
    let end: f64 = said("highest byte GiB").parse().unwrap();
    assert!((summary.end as f64 / (1u64 << 30) as f64 - end).abs() <= 0.005 + 1e-9, "{}", path.display());
    println!("{}: {} requests, as described", path.display(), summary.requests());
}

#[test]
fn recorded_traces_are_what_their_description_says() {
    let Some(folder) = std::env::var_os("BIMETAL_TRACES") else {
        println!("skipped: BIMETAL_TRACES does not name a folder of traces");
        return;
    };
    let folder = Path::new(&folder);
    let description = match std::fs::read_to_string(folder.join("README.md")) {
        Ok(text) => text,
        Err(e) => {
            println!("skipped: {}: {e}", folder.join("README.md").display());
            return;
        }
    };
    let files = tables(&description);
    assert!(!files.is_empty(), "the description has no tables");
    for (name, described) in &files {
        check(&folder.join(format!("{name}.csv.gz")), described);
    }
    // And none is there that is not described.
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".csv.gz") {
            assert!(files.contains_key(name), "{name} is not described");
        }
    }
}

//! The recorded traces, where they are at hand: what is read must be what their description says.
//!
//! `BIMETAL_TRACES` names a folder with traces in this project's CSV and a `README.md`, whose tables have a row for each
//! file, without `.csv.gz`. The columns are found by their headings.

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

/// What the description says of a file, as computed from it; everything but the time and the size of the file.
fn cells(s: &Summary) -> Vec<(&'static str, String)> {
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mean = (s.bytes_read + s.bytes_written) as f64 / s.requests() as f64;
    vec![
        ("requests", grouped(s.requests())),
        ("read share", percent(s.read_share())),
        ("chunks (128 KiB)", grouped(s.chunks)),
        ("footprint MiB", grouped(s.footprint().div_euclid(1 << 20))),
        ("read GiB", format!("{:.2}", gib(s.bytes_read))),
        ("written GiB", format!("{:.2}", gib(s.bytes_written))),
        ("hottest 1 %", percent(s.hottest_1_share())),
        ("hottest 10 %", percent(s.hottest_10_share())),
        ("chunks used once", percent(s.used_once_share())),
        ("bytes read", grouped(s.bytes_read)),
        ("bytes written", grouped(s.bytes_written)),
        ("mean request bytes", grouped(mean.round() as u64)),
        ("chunk accesses", grouped(s.accesses)),
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
    for (heading, computed) in cells(&summary) {
        let said = described.get(heading).unwrap_or_else(|| panic!("no column `{heading}`"));
        assert_eq!(&computed, said, "{}: {heading}", path.display());
    }
    // Rounded to two places, without zeros at the end.
    let end: f64 = described["highest byte GiB"].parse().unwrap();
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

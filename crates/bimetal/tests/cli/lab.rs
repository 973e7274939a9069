//! `advise` and `lab`: what they say of good recordings, and that no bad one makes them panic or lie.

use std::io::Write;

use crate::common::Place;

/// A recording in the project's CSV: two hot chunks among many, a request each tenth of a second.
fn csv(lines: u64) -> String {
    let line = |i: u64| {
        let chunk = if i % 2 == 0 { i % 4 } else { 1000 + i * 7 % 3000 };
        let op = if i % 5 == 0 { 'W' } else { 'R' };
        format!("{},{op},{},4096\n", i * 100_000, chunk * 131_072)
    };
    "time_us,op,offset_bytes,length_bytes\n".to_string() + &(0..lines).map(line).collect::<String>()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(text.as_bytes()).expect("in memory");
    out.finish().expect("in memory")
}

/// Runs a command on a recording; `replay` with little to do.
fn run(p: &Place, command: &str, name: &str, more: &[&str]) -> crate::common::Done {
    let args: Vec<&str> = match command {
        "advise" => vec!["advise", name],
        _ => vec!["lab", "replay", name, "--no-bounds", "--fast", "10%"],
    };
    p.run(&[&args[..], more].concat())
}

const COMMANDS: [&str; 2] = ["advise", "lab replay"];

/// Both commands refuse a recording with code and words.
fn refused(name: &str, content: &[u8], more: &[&str], code: i32, words: &[&str]) {
    let p = Place::new();
    std::fs::write(p.path(name), content).expect("file");
    for command in COMMANDS {
        let d = run(&p, command, name, more);
        assert_eq!(d.code, code, "{command} {name}: {}{}", d.out, d.err);
        for word in words {
            assert!(d.err.contains(word), "{command} {name} does not say '{word}': {}", d.err);
        }
        assert!(!d.err.contains("panicked"), "{command} {name}: {}", d.err);
    }
}

/// Both commands take a recording and tell of this repair, made so often.
fn repaired(content: &str, what: &str, count: u64) {
    let p = Place::new();
    std::fs::write(p.path("t.csv"), content).expect("file");
    for command in COMMANDS {
        let d = run(&p, command, "t.csv", &["--json"]);
        assert_eq!(d.code, 0, "{command}: {}{}", d.out, d.err);
        let document: serde_json::Value = serde_json::from_str(&d.out).expect("JSON");
        let repairs = document["read"]["repairs"].as_array().expect("repairs");
        let found = repairs.iter().find(|r| r["what"].as_str().is_some_and(|w| w.contains(what)));
        let found = found.unwrap_or_else(|| panic!("{command} does not tell of '{what}': {document}"));
        assert_eq!(found["count"], count, "{document}");
        assert!(found["first"].as_str().is_some_and(|f| f.starts_with("line ")), "{document}");
        let words = run(&p, command, "t.csv", &[]).out;
        assert!(words.contains(what), "{command}: {words}");
    }
}

#[test]
fn a_recording_gets_advice() {
    let p = Place::new();
    std::fs::write(p.path("t.csv.gz"), gzip(&csv(8000))).expect("file");
    let words = p.ok(&["advise", "t.csv.gz"]);
    for part in ["8000 requests (csv) in 13 min", "one of 32 GB", "of the I/O", "disk's time", "shorter than a day"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let a = p.json(&["advise", "t.csv.gz"]);
    let sizes = a["sizes"].as_array().expect("sizes");
    let io = |i: usize| sizes[i]["io_share"].as_f64().expect("a share");
    // Half of all accesses go to two chunks, which fit the smallest.
    assert!(io(0) > 0.45 && io(sizes.len() - 1) >= io(0), "{a}");
    assert!(sizes.windows(2).all(|s| s[1]["ssd_bytes"].as_u64() > s[0]["ssd_bytes"].as_u64()), "{a}");
    assert_eq!(a["sampled_one_in"], 1);
    assert_eq!((a["buy_bytes"].as_u64(), a["cut"].as_bool()), (Some(32_000_000_000), Some(false)), "{a}");
    assert!(p.ok(&["advise", "t.csv.gz", "--aged"]) != words, "what was written first was there before");
}

/// A recording that has no times, or that nothing can be said of.
#[test]
fn advice_says_what_a_recording_does_not_tell() {
    let p = Place::new();
    let line = |i: u64| format!("/dev/sda read {} 4096\n", i * i % 500 * 131_072);
    let log =
        "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n".to_string() + &(0..4000).map(line).collect::<String>();
    std::fs::write(p.path("fio.log"), log).expect("file");
    let words = p.ok(&["advise", "fio.log"]);
    assert!(words.contains("without times") && words.contains("The recording has no times"), "{words}");
    let a = p.json(&["advise", "fio.log"]);
    let last = a["sizes"].as_array().and_then(|s| s.last()).expect("sizes");
    assert!(a["duration_us"].is_null() && last["io_share"].as_f64().is_some_and(|io| io > 0.9), "{a}");
    std::fs::write(p.path("trims.csv"), "time_us,op,offset_bytes,length_bytes\n0,T,0,131072\n5,F,0,0\n").expect("file");
    p.refused(&["advise", "trims.csv"], 1, &["trims.csv", "reads and writes nothing"]);
}

#[test]
fn without_a_recording_advise_says_how_to_make_one() {
    let p = Place::new();
    let words = p.ok(&["advise"]);
    for part in ["blktrace -d /dev/", " -a queue -w 86400", "blkparse -q -i ", "bimetal advise day.bin"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let how = p.json(&["advise"]);
    assert_eq!(how["commands"].as_array().map(Vec::len), Some(3), "{how}");
    assert!(how["blktrace_installed"].is_boolean() && how["disks"].is_array(), "{how}");
}

#[test]
fn a_recording_is_replayed_on_all_policies() {
    let p = Place::new();
    std::fs::write(p.path("t.csv"), csv(3000)).expect("file");
    let r = p.json(&["lab", "replay", "t.csv", "--fast", "10%", "--fast", "1MiB"]);
    let cells = r["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2, "{r}");
    assert_eq!(cells[1]["fast_bytes"], 1 << 20);
    let policies = cells[0]["policies"].as_array().expect("policies");
    assert_eq!(policies.len(), 14, "{r}");
    assert!(policies.iter().any(|p| p["role"] == "bimetal"), "{r}");
    let ns = |bound: &str| cells[0]["bounds"][bound].as_u64().unwrap_or_else(|| panic!("{bound}: {r}"));
    assert!(ns("least_total_ns") < ns("after_use_total_ns") && ns("least_total_ns") > 0, "{r}");
    let words = p.ok(&["lab", "replay", "t.csv"]);
    for part in [
        "clock+Bloom N=2",
        "Bimetal: ",
        "(least after a use)",
        "(least of all)",
        "Fast tier ",
        "5 % of what is touched",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    // The caches come after the policies and the verdict.
    let at = |part: &str| words.find(part).unwrap_or_else(|| panic!("{part}: {words}"));
    assert!(at("best of the policies with the same budget") < at("hybrid disk, 8 GB cache"), "{words}");
    assert!(at("Smart Response, 64 GB cache") < at("Caches have no budget"), "{words}");
    assert!(words.lines().all(|l| l.chars().count() <= 100), "{words}");
    for bad in ["0%", "200%", "lots"] {
        p.refused(&["lab", "replay", "t.csv", "--fast", bad], 2, &[bad]);
    }
    p.refused(&["lab", "replay", "t.csv", "--fast", "1000"], 2, &["at least one chunk"]);
}

/// A folder of recordings of all kinds.
fn traces(p: &Place) {
    let header = "time_us,op,offset_bytes,length_bytes\n";
    std::fs::create_dir(p.path("traces")).expect("folder");
    std::fs::write(p.path("traces/mine.csv"), csv(2000) + "1,R,4096,512\n").expect("file");
    std::fs::write(p.path("traces/broken.csv"), format!("{header}0,R,zero,1\n")).expect("file");
    std::fs::write(p.path("traces/idle.csv"), format!("{header}0,F,0,0\n9,F,0,0\n")).expect("file");
    std::fs::write(p.path("traces/a.x.csv"), csv(500)).expect("file");
    std::fs::write(p.path("traces/a.y.csv"), csv(600)).expect("file");
    std::fs::write(p.path("traces/twice.csv"), csv(500)).expect("file");
    std::fs::write(p.path("traces/twice.csv.gz"), gzip(&csv(500))).expect("file");
}

#[test]
fn loads_are_compared_and_what_is_missing_is_said() {
    let p = Place::new();
    traces(&p);
    let args = ["lab", "compare", "--traces", "traces", "--fast", "10", "--no-bounds", "--only"];
    let with = |more: &[&'static str]| [&args[..], more].concat();
    let d = p.run(&with(&["mine,broken", "--out", "m.html", "--json"]));
    assert_eq!(d.code, 1, "{}", d.err);
    assert!(d.err.contains("not all that was named could be replayed: broken"), "{}", d.err);
    let c: serde_json::Value = serde_json::from_str(&d.out).expect("one document");
    assert_eq!(c["cells"].as_array().map(Vec::len), Some(1), "{c}");
    assert!(c["missing"][0].as_str().is_some_and(|m| m.contains("broken") && m.contains("line 2")), "{c}");
    assert_eq!(
        (&c["repaired"][0]["load"], &c["repaired"][0]["repairs"][0]["count"]),
        (&"mine".into(), &1.into()),
        "{c}"
    );
    let html = std::fs::read_to_string(p.path("m.html")).expect("the report");
    assert!(html.contains("mine") && html.contains("line 2") && html.ends_with("</html>\n"));
    assert!(html.contains("mine: a request earlier than the one before it (once at line 2002)"));
    let words = p.ok(&with(&["mine"]));
    assert!(words.contains("mine: a request earlier than the one before it (once at line 2002)"), "{words}");
    let names = p.json(&with(&["a.x,a.y,twice.csv,twice.csv.gz"]));
    assert_eq!(names["cells"].as_array().map(Vec::len), Some(4), "{names}");
    // A load of flushes is none, and a comparison of nothing is no success.
    let d = p.run(&with(&["idle"]));
    assert!(
        d.code == 1 && d.out.contains("idle could not be replayed: it reads and writes nothing"),
        "{}{}",
        d.out,
        d.err
    );
    p.refused(&["lab", "compare", "--only", "boot,nothing"], 2, &["no load is named nothing"]);
    p.refused(&["lab", "compare", "--traces", "nowhere"], 1, &["nowhere"]);
    p.refused(&["lab", "compare", "--fast", "0"], 2, &["0"]);
}

#[test]
fn a_report_is_written_where_it_can_be_and_replaces_only_reports() {
    let p = Place::new();
    traces(&p);
    let args = ["lab", "compare", "--traces", "traces", "--only", "a.x", "--fast", "10", "--no-bounds", "--out"];
    let with = |more: &[&'static str]| [&args[..], more].concat();
    std::fs::write(p.path("mine.html"), "my notes").expect("file");
    p.refused(&with(&["mine.html"]), 1, &["mine.html", "no report", "--force"]);
    assert_eq!(std::fs::read_to_string(p.path("mine.html")).expect("file"), "my notes");
    p.ok(&with(&["mine.html", "--force"]));
    p.ok(&with(&["mine.html"]));
    // Before the work, so that none is lost.
    let d = p.run(&with(&["no/such/folder.html"]));
    assert!(d.code == 1 && d.out.is_empty() && d.err.contains("no/such/folder.html"), "{}{}", d.out, d.err);
}

#[test]
fn experiments_become_a_table_and_a_report() {
    let p = Place::new();
    let words = p.ok(&["lab", "reviews", "--only", "s4"]);
    assert!(words.contains("S4") && words.contains("report.html"), "{words}");
    assert!(words.lines().all(|l| l.chars().count() <= 100), "{words}");
    let html = std::fs::read_to_string(p.path("report.html")).expect("the report");
    assert!(html.contains("<section id=\"S4\">") && html.contains("all but S4"));
    let r = p.json(&["lab", "reviews", "--only", "S4", "--out", "other.html"]);
    assert_eq!(r["experiments"][0]["id"], "S4", "{r}");
    assert_eq!(html, std::fs::read_to_string(p.path("other.html")).expect("the report"), "the same bytes");
    p.refused(&["lab", "reviews", "--only", "X9"], 2, &["no experiment 'X9'", "F1, F2"]);
    p.refused(&["lab", "reviews", "--only", "S4", "--out", "no/such/folder.html"], 1, &["no/such/folder.html"]);
}

#[test]
fn what_is_no_recording_is_refused_in_words() {
    let header = "time_us,op,offset_bytes,length_bytes\n";
    refused("empty.csv", b"", &[], 1, &["empty.csv", "no requests"]);
    refused("header.csv", header.as_bytes(), &[], 1, &["no requests"]);
    refused("noise.bin", &[0xfe; 70_000], &[], 1, &["format", "--format", "blkparse"]);
    refused("t.csv", csv(10).as_bytes(), &["--format", "cvs"], 2, &["no trace format is named `cvs`", "csv, fio"]);
    refused("t.csv", csv(10).as_bytes(), &["--format", "blktrace"], 1, &["record 1"]);
    refused("t.csv", csv(10).as_bytes(), &["--format", "msr"], 1, &["line 1"]);
    let mut long = header.as_bytes().to_vec();
    long.extend([b'7'; 100_000]);
    refused("long.csv", &long, &[], 1, &["line 2", "longer than"]);
    let p = Place::new();
    p.refused(&["advise", "."], 1, &["folder"]);
    // One processor's part of a recording.
    std::fs::write(p.path("sda.blktrace.0"), b"x").expect("file");
    std::fs::write(p.path("sda.blktrace.1"), b"x").expect("file");
    p.refused(&["advise", "sda.blktrace.1"], 1, &["one processor", "blkparse -q -i sda -d sda.bin -O"]);
    p.refused(&["advise", "nothere.csv"], 1, &["nothere.csv", "how to record one"]);
}

#[test]
fn bad_lines_are_refused_with_their_number() {
    let bad = |line: &str| csv(5) + line + "\n" + &csv(5);
    refused("t.csv", bad("700000,R,4096").as_bytes(), &[], 1, &["line 7", "missing"]);
    refused("t.csv", bad("700000,X,4096,512").as_bytes(), &[], 1, &["line 7", "unknown operation `X`"]);
    refused("t.csv", bad("700000,R,-1,512").as_bytes(), &[], 1, &["line 7", "offset"]);
    refused("t.csv", bad("700000,R,99999999999999999999999,512").as_bytes(), &[], 1, &["line 7", "offset"]);
    refused("t.csv", bad("\u{0}\u{1b}[2J").as_bytes(), &[], 1, &["line 7", "\\x"]);
}

#[test]
fn cut_and_damaged_archives_are_told_apart() {
    let whole = gzip(&csv(20_000));
    refused("t.csv.gz", &whole[..whole.len() / 2], &[], 1, &["after line ", "cut short", "zcat"]);
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    refused("t.csv.gz", &damaged, &[], 1, &["after line ", "damaged"]);
    refused("t.csv.gz", &whole[..5], &[], 1, &["gzip"]);
}

#[test]
fn what_can_be_mended_is_mended_and_counted() {
    let with = |line: &str| csv(50) + line;
    repaired(&with("1,R,4096,512\n2,R,8192,512\n"), "earlier than the one before", 2);
    repaired(&with("9000000,R,4096,0\n"), "of no bytes", 1);
    repaired(&with("9000000,R,9223372036854775800,4096\n"), "the volume's end", 1);
    repaired(&with("9000000,W,0,99999999999999\n"), "longer than 4 GiB", 1);
    repaired(&with("9000000,R,4096,512"), "no line end", 1);
    repaired(&with("\n\n9000000,R,4096,512\n"), "an empty line", 2);
}

#[test]
fn devices_of_a_recording_are_laid_out_or_chosen() {
    let p = Place::new();
    let line = |i: u64| {
        format!("{},web,{},Read,{},4096,100\n", 128_166_372_000_000_000 + i * 1_000_000, i % 2, i / 2 * 131_072)
    };
    std::fs::write(p.path("t.msr"), (0..400).map(line).collect::<String>()).expect("file");
    let both = p.json(&["advise", "t.msr"]);
    assert_eq!(both["footprint_bytes"], 400 * 131_072, "{both}");
    let one = p.json(&["advise", "t.msr", "--device", "web.1"]);
    assert_eq!(one["footprint_bytes"], 200 * 131_072, "{one}");
    p.refused(&["advise", "t.msr", "--device", "web.7"], 1, &["no requests", "--device"]);
    refused("t.csv", csv(10).as_bytes(), &["--device", "web.1"], 1, &["csv", "--device"]);
}

#[test]
fn standard_input_is_a_recording() {
    let p = Place::new();
    std::fs::write(p.path("t.csv.gz"), gzip(&csv(500))).expect("file");
    for command in COMMANDS {
        let input = std::fs::File::open(p.path("t.csv.gz")).expect("file");
        let args = if command == "advise" { vec!["advise", "-"] } else { vec!["lab", "replay", "-", "--no-bounds"] };
        let done = p.command(&args).stdin(input).output().expect("bimetal runs");
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(String::from_utf8_lossy(&done.stdout).contains("500 requests (csv)"), "{command}");
    }
}

#[test]
fn a_recording_of_a_large_disk_is_replayed_whole() {
    let p = Place::new();
    let far = |i: u64| format!("{},R,{},4096\n", i * 100_000, 16_000_900_000_000u64 - i % 7 * 1_000_000_000_000);
    let text = csv(0) + &(0..400).map(far).collect::<String>();
    std::fs::write(p.path("t.csv"), text).expect("file");
    let r = p.json(&["lab", "replay", "t.csv", "--no-bounds", "--fast", "1MiB"]);
    assert_eq!((&r["accesses"], &r["footprint_bytes"]), (&400.into(), &(7 * 131_072).into()), "{r}");
    assert_eq!(r["read"]["repairs"].as_array().map(Vec::len), Some(0), "{r}");
}

#[test]
fn one_wrong_line_does_not_change_the_rest() {
    let good = csv(5000);
    let time = good.replacen("\n200000,", "\n18446744073709551,", 1);
    assert_ne!(good, time);
    repaired(&time, "30 days later", 1);
    let p = Place::new();
    std::fs::write(p.path("good.csv"), &good).expect("file");
    std::fs::write(p.path("time.csv"), &time).expect("file");
    let advice = |name: &str| p.json(&["advise", name])["advice"].clone();
    assert_eq!(advice("good.csv"), advice("time.csv"));
    let lines: Vec<&str> = good.lines().collect();
    let mixed: String = (1..lines.len()).map(|i| lines[(i * 1999) % 5000 + 1].to_owned() + "\n").collect();
    refused("mixed.csv", (csv(0) + &mixed).as_bytes(), &[], 1, &["not in order of time", "sort -s"]);
}

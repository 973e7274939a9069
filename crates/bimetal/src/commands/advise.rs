//! `bimetal advise`: what size of SSD a recorded load asks for; without a recording, how to make one here.

use std::path::Path;

use anyhow::{bail, Result};
use bimetal_lab::advise::{size_name, Advice, Row, Sample};
use bimetal_lab::policy::{HeadCost, Start};
use serde::Serialize;
use serde_json::json;

use super::lab;
use crate::cli::{Advise, Recording};
use crate::output::{table, wrapped, Output};
use crate::recording::{Recorded, Summary};
use crate::size::approx;
use crate::{api, disks};

pub(crate) fn run(args: Advise, output: Output) -> Result<()> {
    match args.trace {
        Some(path) => advise(&path, &args.recording, output),
        None => how_to_record(output),
    }
}

fn advise(path: &Path, how: &Recording, output: Output) -> Result<()> {
    let start = if how.aged { Start::Aged } else { Start::Fresh };
    let mut sample = Sample::new(start, HeadCost::default());
    let mut recorded = Recorded::open(path, how)?;
    recorded.by_ref().for_each(|access| sample.add(&access));
    let summary = recorded.finish()?;
    let load = sample.finish();
    if load.accesses() == 0 {
        bail!("{}: the trace reads and writes nothing", path.display());
    }
    let rows = lab::in_parallel(&load.sizes(), 1, "sizes of SSD tried", |size, step| {
        let row = load.row(*size);
        step();
        row
    });
    let advice = Advice::new(&load, rows);
    output.show(&as_json(path, &advice, &summary), || words(path, &advice, &summary))
}

fn as_json(path: &Path, a: &Advice, summary: &Summary) -> serde_json::Value {
    let row = |r: &Row| json!({"ssd_bytes": r.size, "io_share": rounded(r.io), "disk_time_share": rounded(r.time)});
    json!({
        "schema": api::SCHEMA, "trace": path.display().to_string(), "read": summary.json(),
        "footprint_bytes": a.footprint, "duration_us": a.duration_us, "chunk_accesses": a.accesses,
        "disk_busy_seconds": rounded(a.disk_ns as f64 / 1e9), "first_read_share": rounded(a.first_reads),
        "new_data_share": rounded(a.new_data),
        "sampled_one_in": a.sampled, "cut": a.cut, "sizes": a.rows.iter().map(row).collect::<Vec<_>>(),
        "enough_bytes": a.enough().map(|r| r.size), "buy_bytes": a.buy(), "advice": a.sentence(),
        "caveats": a.caveats(),
    })
}

fn rounded(x: f64) -> f64 {
    (x * 10_000.0).round() / 10_000.0
}

fn words(path: &Path, a: &Advice, summary: &Summary) -> String {
    let mut text = format!(
        "{}: {} requests ({}) {}, {} touched; a disk alone is busy {:.0} s with them.\n",
        path.display(),
        summary.requests,
        summary.format,
        a.duration_us.map_or("without times".into(), |us| format!("in {}", crate::words::duration(us / 1_000_000))),
        approx(a.footprint),
        a.disk_ns as f64 / 1e9,
    );
    text += &summary.words();
    let rows: Vec<Vec<String>> = a.rows.iter().map(|r| row(a, r)).collect();
    let header = ["SSD", "OF WHAT IS TOUCHED", "I/O IT TAKES", "DISK TIME IT TAKES", ""];
    text += &format!("\n{}\n{}", table(&header, &rows, &[0, 1, 2, 3]), wrapped(&a.sentence()));
    for caveat in a.caveats() {
        text += &format!("\n{}", wrapped(&caveat));
    }
    text +=
        "\nDisk time is that of a 7200 rpm disk, 12 ms for a random read. Chunks move at once and at no cost here;\n\
             `bimetal lab replay` counts moves, too.\n";
    text
}

fn row(a: &Advice, r: &Row) -> Vec<String> {
    const BAR: f64 = 24.0;
    let part = r.size as f64 / a.footprint.max(1) as f64 * 100.0;
    vec![
        size_name(r.size),
        if part < 100.0 { format!("{part:.1} %") } else { "all".into() },
        format!("{:.1} %", r.io * 100.0),
        format!("{:.1} %", r.time * 100.0),
        "#".repeat((r.time * BAR).round() as usize),
    ]
}

#[derive(Serialize)]
struct HowTo {
    schema: u32,
    blktrace_installed: bool,
    disks: Vec<disks::Disk>,
    commands: Vec<String>,
}

fn how_to_record(output: Output) -> Result<()> {
    let found = disks::all();
    let how = HowTo {
        schema: api::SCHEMA,
        blktrace_installed: disks::installed("blktrace"),
        commands: commands(&found, crate::paths::is_root()),
        disks: found,
    };
    output.show(&how, || how_words(&how))
}

/// What to type, in order.
fn commands(found: &[disks::Disk], root: bool) -> Vec<String> {
    let sudo = if root { "" } else { "sudo " };
    let mut out = Vec::new();
    // The disks whose load an SSD would take; where all are SSDs, any.
    let slow: Vec<&disks::Disk> = found.iter().filter(|d| d.rotational).collect();
    let chosen: Vec<&disks::Disk> = if slow.is_empty() { found.iter().collect() } else { slow };
    let names: Vec<&str> = match chosen.is_empty() {
        true => vec!["/dev/sda"],
        false => chosen.iter().map(|d| d.path.as_str()).collect(),
    };
    // With several devices blktrace names the files itself, after them.
    let devices: String = names.iter().map(|n| format!(" -d {n}")).collect();
    let files: String = names.iter().map(|n| format!(" -i {}", n.trim_start_matches("/dev/"))).collect();
    out.push(format!("{sudo}blktrace{devices} -a queue -w 86400"));
    out.push(format!("blkparse -q{files} -d day.bin -O"));
    out.push("bimetal advise day.bin".into());
    out
}

fn how_words(how: &HowTo) -> String {
    let mut text = String::from(
        "Name a recording of block I/O: bimetal advise TRACE\n\
         Formats: blktrace, blkparse, fio iolog, MSR Cambridge CSV, SPC, vscsi, and CSV (time_us,op,offset_bytes,length_bytes).\n\n",
    );
    if how.disks.is_empty() {
        text += "No disks are visible here; record on the machine whose load is meant, with its disk's name.\n\n";
    } else {
        let row = |d: &disks::Disk| {
            let kind = if d.rotational { "disk" } else { "SSD" };
            vec![d.path.clone(), kind.into(), approx(d.size_bytes), d.model.clone(), traceable(d)]
        };
        let rows: Vec<_> = how.disks.iter().map(row).collect();
        text += &table(&["DISK", "KIND", "SIZE", "MODEL", ""], &rows, &[2]);
        text.push('\n');
    }
    text += "To record a day here (86400 s; Ctrl-C ends it earlier, what was recorded stays good):\n";
    if !how.blktrace_installed {
        text += "  # blktrace is not installed: apt install blktrace, dnf install blktrace, or pacman -S blktrace\n";
    }
    for command in &how.commands {
        text += &format!("  {command}\n");
    }
    text += "Leave out with -d what is of no interest. Write the recording to a disk that is not recorded. It takes about\n\
             60 bytes a request: 5 million requests are 300 MB.\n";
    text
}

fn traceable(d: &disks::Disk) -> String {
    if d.traceable {
        String::new()
    } else {
        "this kernel offers no block tracing (CONFIG_BLK_DEV_IO_TRACE)".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(path: &str, rotational: bool) -> disks::Disk {
        disks::Disk { path: path.into(), model: String::new(), size_bytes: 1 << 40, rotational, traceable: true }
    }

    #[test]
    fn the_commands_name_the_disks_of_this_machine() {
        let both = [disk("/dev/nvme0n1", false), disk("/dev/sda", true), disk("/dev/sdb", true)];
        let c = commands(&both, false);
        assert_eq!(c[0], "sudo blktrace -d /dev/sda -d /dev/sdb -a queue -w 86400");
        assert_eq!(c[1], "blkparse -q -i sda -i sdb -d day.bin -O");
        assert!(commands(&both[..1], true)[0].starts_with("blktrace -d /dev/nvme0n1 "));
        assert!(commands(&[], true)[0].contains("/dev/sda"));
    }
}

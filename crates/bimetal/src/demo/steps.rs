//! The demo's steps on a healthy group.

use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use super::content;
use super::disk::{Disk, STEP};
use super::process::World;
use super::show::{bar, rate, seconds, Show};
use super::{wait_for, Figures};
use crate::size::approx;

/// Photos of this size fill the volume.
const PHOTO: u64 = 64 << 20;
/// The cold file is read in pieces of this size, in mixed order.
const PIECE: u64 = 16 << 10;
/// So much of it is read.
const PART: u64 = 8 << 20;
/// It is read at most so often until it is on the fast tier.
const READS: u32 = 4;

/// A file of the demo.
pub(crate) struct DemoFile {
    pub(crate) name: String,
    pub(crate) number: usize,
    pub(crate) size: u64,
}

/// Writes the photos, and tells the speed before and after the SSD was full.
pub(crate) fn fill(
    world: &World,
    disk: &mut dyn Disk,
    photos: u64,
    show: &mut Show,
    figures: &mut Figures,
) -> Result<Vec<DemoFile>> {
    let mut files = Vec::new();
    let (all, mut done) = (photos * PHOTO, 0);
    let mut piece = vec![0; STEP as usize];
    let mut speeds: Vec<(f64, bool)> = Vec::new();
    let begun = Instant::now();
    for i in 0..photos {
        let name = format!("photos-{:02}", i + 1);
        let number = disk.add(PHOTO)?;
        let at = Instant::now();
        for offset in (0..PHOTO).step_by(STEP as usize) {
            content::fill(number as u64, 0, offset, &mut piece);
            disk.write(number, offset, &piece)?;
            done += STEP;
            let now = at.elapsed();
            show.live(|| {
                format!(
                    "{} {name}  {:>9} of {}  {}",
                    bar(done, all),
                    approx(done),
                    approx(all),
                    rate(offset + STEP, now)
                )
            });
        }
        disk.sync(number)?;
        let slow = slow_bytes(world)? > 0;
        speeds.push((PHOTO as f64 / at.elapsed().as_secs_f64(), slow));
        files.push(DemoFile { name, number, size: PHOTO });
    }
    show.line(&format!("{} {} written and flushed in {}", bar(1, 1), approx(all), seconds(begun.elapsed())));
    for (spilled, what) in [(false, "while the SSD had room"), (true, "after that, straight to the hard disk")] {
        let Some(speed) = median(speeds.iter().filter(|(_, s)| *s == spilled).map(|(v, _)| *v)) else { continue };
        let speed = format!("{}/s", approx(speed as u64));
        show.line(&format!("{speed:>12}  {what}"));
        figures.push((
            if spilled { "write, SSD full" } else { "write, SSD has room" }.into(),
            speed,
            "64 MiB files, each flushed".into(),
        ));
    }
    let status = world.status()?;
    show.line(&format!(
        "On the SSD {}, on the hard disk {}; {} of the SSD are free.",
        approx(status.volumes.iter().map(|v| v.fast_bytes).sum()),
        approx(status.volumes.iter().map(|v| v.slow_bytes).sum()),
        approx(status.fast_free_bytes)
    ));
    Ok(files)
}

fn slow_bytes(world: &World) -> Result<u64> {
    Ok(world.status()?.volumes.iter().map(|v| v.slow_bytes).sum())
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Waits until the reserve is whole again.
pub(crate) fn reserve(world: &World, show: &mut Show, figures: &mut Figures) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(60);
    let before = world.status()?;
    let missing = before.keep_free_bytes.saturating_sub(before.fast_free_bytes);
    if missing == 0 {
        show.line(&format!(
            "{} are free already, the reserve is {}.",
            approx(before.fast_free_bytes),
            approx(before.reserve_bytes)
        ));
        return Ok(());
    }
    let took = wait_for(world, LIMIT, |s| {
        show.live(|| {
            let (free, target) = (s.fast_free_bytes, s.keep_free_bytes);
            format!("{} {} free of {}  {}", bar(free, target), approx(free), approx(target), s.mover.doing)
        });
        Ok(s.fast_free_bytes >= s.keep_free_bytes)
    })?;
    let Some(took) = took else { bail!("the reserve did not come back within {} s", LIMIT.as_secs()) };
    show.line(&format!(
        "{} were missing of {}; cold chunks moved to the hard disk, and {} later it was whole again.",
        approx(missing),
        approx(before.reserve_bytes),
        seconds(took)
    ));
    figures.push(("reserve restored".into(), seconds(took), format!("{} were missing", approx(missing))));
    Ok(())
}

/// Reads a file that lies on the hard disk until it was promoted, and once more.
pub(crate) fn promote(
    world: &World,
    disk: &mut dyn Disk,
    files: &[DemoFile],
    show: &mut Show,
    figures: &mut Figures,
) -> Result<()> {
    let Some(part) = cold_part(disk, files)? else { bail!("no part of a file lies on the hard disk alone") };
    show.line(&format!(
        "{} of {}, from {} on, lie on the hard disk. They are read in pieces of 16 KiB, in mixed order:",
        approx(PART),
        part.file.name,
        approx(part.at)
    ));
    let mut first = None;
    for turn in 1..=READS {
        let took = read_mixed(disk, &part, show)?;
        let speed = rate(PART, took);
        let (fast, _) = disk.tiers(part.file.number, part.at, PART)?;
        show.line(&format!("read {turn}: {:>8}  {speed:>12}", seconds(took)));
        if turn == 1 {
            figures.push(("read, cold (hard disk)".into(), speed.clone(), "16 KiB pieces in mixed order".into()));
        }
        let cold_time = *first.get_or_insert(took);
        if turn > 1 && fast >= promoted_enough(PART) && took < cold_time / 2 {
            let factor = cold_time.as_secs_f64() / took.as_secs_f64();
            figures.push(("read, promoted (SSD)".into(), speed, format!("the same read, {factor:.0} times faster")));
            return Ok(());
        }
        let waited = wait_for_promotion(world, disk, &part, show)?;
        match waited {
            (fast, t) if fast >= PART => {
                show.line(&format!("        used often enough: {} later it was on the SSD", seconds(t)));
            }
            (fast, t) => {
                show.line(&format!("        {} of {} were on the SSD {} later", approx(fast), approx(PART), seconds(t)))
            }
        }
    }
    bail!(
        "the file was not promoted after {READS} reads; `bimetal status` would say why: {}",
        world.status()?.summary.join(" ")
    )
}

/// [`PART`] bytes of a file.
struct Part<'a> {
    file: &'a DemoFile,
    at: u64,
}

/// A part of a file that lies on the hard disk alone, of the last file that has one. The first part of a file need not
/// be one: moves free slots for it while the files before it are being written.
fn cold_part<'a>(disk: &mut dyn Disk, files: &'a [DemoFile]) -> Result<Option<Part<'a>>> {
    for file in files.iter().rev() {
        for at in (0..=file.size.saturating_sub(PART)).step_by(PART as usize) {
            if disk.tiers(file.number, at, PART)? == (0, PART) {
                return Ok(Some(Part { file, at }));
            }
        }
    }
    Ok(None)
}

/// A straggler does not spoil the picture.
fn promoted_enough(part: u64) -> u64 {
    part / 100 * 95
}

/// Waits until the part is on the fast tier, or nothing is promoted any more; tells how many bytes of it are, and after
/// what time the last came.
fn wait_for_promotion(world: &World, disk: &mut dyn Disk, part: &Part, show: &mut Show) -> Result<(u64, Duration)> {
    const LIMIT: Duration = Duration::from_secs(15);
    const QUIET: Duration = Duration::from_secs(4);
    let begun = Instant::now();
    let mut last = (0, Duration::ZERO);
    wait_for(world, LIMIT, |s| {
        let (fast, _) = disk.tiers(part.file.number, part.at, PART)?;
        if fast != last.0 {
            last = (fast, begun.elapsed());
        }
        show.live(|| format!("{} {} of {} promoted  {}", bar(fast, PART), approx(fast), approx(PART), s.mover.doing));
        Ok(fast >= PART || begun.elapsed() > last.1 + QUIET)
    })?;
    Ok(last)
}

fn read_mixed(disk: &mut dyn Disk, part: &Part, show: &mut Show) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    let pieces = content::shuffled(PART / PIECE, 1);
    for (i, piece) in pieces.iter().enumerate() {
        let (at, begun) = (part.at + piece * PIECE, Instant::now());
        let data = disk.read(part.file.number, at, PIECE)?;
        // The comparison is not part of the time.
        spent += begun.elapsed();
        if !content::matches(part.file.number as u64, 0, at, &data) {
            bail!("{} is damaged at {at}", part.file.name);
        }
        let done = (i as u64 + 1) * PIECE;
        show.live(|| format!("{} {}  {}", bar(done, PART), approx(done), rate(done, spent)));
    }
    Ok(spent)
}

/// Shows on which tier each file lies.
pub(crate) fn places(disk: &mut dyn Disk, files: &[DemoFile], show: &mut Show) -> Result<()> {
    let mut cells = Vec::new();
    for f in files {
        let (fast, slow) = disk.tiers(f.number, 0, f.size)?;
        let share = fast * 12 / (fast + slow).max(1);
        let picture: String = (0..12).map(|i| if i < share { '#' } else { '.' }).collect();
        cells.push(format!("{} {picture}", f.name));
    }
    let rows = cells.len().div_ceil(3);
    for r in 0..rows {
        let line: Vec<&str> = (0..3).filter_map(|c| cells.get(c * rows + r)).map(String::as_str).collect();
        show.line(&line.join("    "));
    }
    show.line("# on the SSD   . on the hard disk");
    Ok(())
}

/// Reads all files and compares every byte.
pub(crate) fn verify(
    disk: &mut dyn Disk,
    files: &mut [DemoFile],
    show: &mut Show,
    figures: &mut Figures,
) -> Result<()> {
    let all: u64 = files.iter().map(|f| f.size).sum();
    let (mut done, mut wrong) = (0, 0u64);
    let begun = Instant::now();
    for f in files.iter() {
        disk.read_all(f.number, &mut |offset, data| {
            wrong += u64::from(!content::matches(f.number as u64, 0, offset, data));
            done += data.len() as u64;
            show.live(|| format!("{} {}  {} compared", bar(done, all), f.name, approx(done)));
        })?;
        if wrong > 0 {
            bail!("{} is damaged", f.name);
        }
    }
    show.line(&format!(
        "{} of {} compared in {}: all as written.",
        approx(done),
        approx(all),
        seconds(begun.elapsed())
    ));
    figures.push(("read back and compared".into(), approx(done), "all as written".into()));
    Ok(())
}

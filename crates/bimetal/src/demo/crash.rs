//! `kill -9` of the daemon in the middle of writes: what was flushed must be there afterwards.

use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use super::content;
use super::disk::{Disk, STEP};
use super::process::World;
use super::show::{bar, seconds, Show};
use super::Figures;

const LEDGER: u64 = 32 << 20;
const PAGE: u64 = 16 << 10;
/// Pages written between two flushes.
const BATCH: u64 = 8;
const ROUNDS: u64 = 3;
const LOAD: Duration = Duration::from_millis(1200);

/// What is known of a page: the version that was flushed, and the newest that was written.
#[derive(Clone, Copy, Default)]
struct Page {
    flushed: u64,
    written: u64,
}

pub(crate) fn run(world: &mut World, disk: &mut dyn Disk, show: &mut Show, figures: &mut Figures) -> Result<()> {
    let ledger = disk.add(LEDGER)?;
    let mut pages = vec![Page::default(); (LEDGER / PAGE) as usize];
    prepare(disk, ledger, &mut pages)?;
    let (mut flushes, mut checked, mut slowest) = (0, 0, Duration::ZERO);
    let mut random = 1u64;
    for round in 1..=ROUNDS {
        let before = flushes;
        load(disk, ledger, &mut pages, &mut random, &mut flushes, show)?;
        // In flight, and not flushed: may be kept or lost.
        for _ in 0..BATCH / 2 {
            write_one(disk, ledger, &mut pages, &mut random)?;
        }
        world.kill()?;
        let start = world.start()?;
        slowest = slowest.max(start);
        disk.reconnect(world)?;
        let kept = verify(disk, ledger, &mut pages)?;
        checked += pages.len();
        show.line(&format!(
            "kill -9 number {round} after {} flushes; serving again after {}; {} pages compared, nothing flushed is lost{}",
            flushes - before,
            seconds(start),
            pages.len(),
            if kept > 0 { format!(" ({kept} unflushed writes survived too)") } else { String::new() }
        ));
    }
    figures.push((
        "kill -9, lost flushed writes".into(),
        "0".into(),
        format!("{ROUNDS} kills, {flushes} flushes, {checked} pages compared"),
    ));
    figures.push(("start after kill -9".into(), seconds(slowest), "the slowest, recovery included".into()));
    Ok(())
}

/// Version 1 of every page, flushed.
fn prepare(disk: &mut dyn Disk, ledger: usize, pages: &mut [Page]) -> Result<()> {
    let mut data = vec![0; STEP as usize];
    for offset in (0..LEDGER).step_by(STEP as usize) {
        for (i, part) in data.chunks_exact_mut(PAGE as usize).enumerate() {
            content::fill(ledger as u64, 1, offset + i as u64 * PAGE, part);
        }
        disk.write(ledger, offset, &data)?;
    }
    disk.sync(ledger)?;
    pages.fill(Page { flushed: 1, written: 1 });
    Ok(())
}

fn write_one(disk: &mut dyn Disk, ledger: usize, pages: &mut [Page], random: &mut u64) -> Result<()> {
    *random = content::mix(*random);
    let at = *random % pages.len() as u64;
    let page = &mut pages[at as usize];
    page.written += 1;
    let mut data = vec![0; PAGE as usize];
    content::fill(ledger as u64, page.written, at * PAGE, &mut data);
    disk.write(ledger, at * PAGE, &data)
}

fn load(
    disk: &mut dyn Disk,
    ledger: usize,
    pages: &mut [Page],
    random: &mut u64,
    flushes: &mut u64,
    show: &mut Show,
) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < LOAD {
        for _ in 0..BATCH {
            write_one(disk, ledger, pages, random)?;
        }
        disk.sync(ledger)?;
        pages.iter_mut().for_each(|p| p.flushed = p.written);
        *flushes += 1;
        let now = begun.elapsed();
        show.live(|| format!("{} {} flushes answered", bar(now.as_millis() as u64, LOAD.as_millis() as u64), *flushes));
    }
    Ok(())
}

/// Every page holds the flushed version or a later one. Gives the number of unflushed writes found.
fn verify(disk: &mut dyn Disk, ledger: usize, pages: &mut [Page]) -> Result<u64> {
    let mut kept = 0;
    let mut lost = None;
    disk.read_all(ledger, &mut |offset, data| {
        for (i, part) in data.chunks_exact(PAGE as usize).enumerate() {
            let at = offset + i as u64 * PAGE;
            let page = &mut pages[(at / PAGE) as usize];
            let found = (page.flushed..=page.written).rev().find(|v| content::matches(ledger as u64, *v, at, part));
            match found {
                Some(version) => {
                    kept += version - page.flushed;
                    *page = Page { flushed: version, written: version };
                }
                None if page.written > page.flushed && mixed(ledger, page, at, part) => page.flushed = 0,
                None => lost = Some(at),
            }
        }
    })?;
    if let Some(at) = lost {
        bail!("a flushed write at {at} is lost: this is a bug, please report it");
    }
    // A page that was being written may be half old, half new, as on any disk: it is written again.
    for (i, page) in pages.iter_mut().enumerate().filter(|(_, p)| p.flushed == 0) {
        let mut data = vec![0; PAGE as usize];
        page.written += 1;
        content::fill(ledger as u64, page.written, i as u64 * PAGE, &mut data);
        disk.write(ledger, i as u64 * PAGE, &data)?;
    }
    disk.sync(ledger)?;
    pages.iter_mut().for_each(|p| p.flushed = p.written);
    Ok(kept)
}

/// Whether each 512 bytes are of the flushed version or of a later one.
fn mixed(ledger: usize, page: &Page, at: u64, data: &[u8]) -> bool {
    data.chunks_exact(512).enumerate().all(|(i, sector)| {
        (page.flushed..=page.written).any(|v| content::matches(ledger as u64, v, at + i as u64 * 512, sector))
    })
}

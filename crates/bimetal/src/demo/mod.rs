//! `bimetal demo`: a minute that shows tiering and survival, on two files, through the real daemon as a child process.
//!
//! Everything shown is measured here, from outside, the way any user of the volume would. The two files are slowed down
//! to disks of 2012, an SSD and a hard disk, so that the difference is felt.

mod content;
mod crash;
mod disk;
mod ground;
mod interrupt;
mod mount;
mod nbd;
mod process;
mod show;
mod steps;

use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde_json::json;

use crate::api;
use crate::cli::{Demo, DemoVia};
use crate::output::{table, Output};
use crate::size::approx;
use disk::Disk;
use ground::Ground;
use interrupt::Interruptible;
use process::World;
use show::Show;

/// How large everything is. The way through FUSE and a loop device is slower, and a minute is a minute.
pub(crate) struct Scale {
    fast: u64,
    slow: u64,
    /// Files that fill the SSD and spill over.
    photos: u64,
}

impl Scale {
    fn of(via: DemoVia) -> Scale {
        match via {
            DemoVia::Nbd => Scale { fast: 1 << 30, slow: 8 << 30, photos: 20 },
            DemoVia::Mount => Scale { fast: 512 << 20, slow: 4 << 30, photos: 10 },
        }
    }
}

/// What was measured: name, value, remark.
type Figures = Vec<(String, String, String)>;

pub(crate) fn run(args: Demo, output: Output) -> Result<()> {
    interrupt::catch()?;
    let ground = Ground::make(args.dir)?;
    let result = play(&ground.dir, args.via, output);
    let tidied = match args.keep {
        true => ground.keep().map(|dir| crate::output::tell(&format!("The files are kept in {}.", dir.display()))),
        false => ground.remove(),
    };
    // What went wrong first is worth more.
    result.and(tidied)
}

fn play(dir: &std::path::Path, via: Option<DemoVia>, output: Output) -> Result<()> {
    let mut show = Show::new(output.json);
    let via = choose(via, &mut show)?;
    let scale = Scale::of(via);
    let (fast, slow) = (approx(scale.fast), approx(scale.slow));
    show.heading(&format!("1. An SSD of {fast} and a hard disk of {slow} become one volume"));
    let mut world = World::new(dir.to_owned())?;
    for (name, size) in [("fast.img", scale.fast), ("slow.img", scale.slow)] {
        let file =
            std::fs::File::create(dir.join(name)).with_context(|| format!("cannot write in {}", dir.display()))?;
        file.set_len(size)?;
    }
    let (fast, slow) = ("emulated:ssd2012:fast.img", "emulated:hdd2012:slow.img");
    show.line(&format!("$ bimetal create demo --fast {fast} --slow {slow}"));
    let made = world.run(&["create", process::GROUP, "--fast", fast, "--slow", slow])?;
    made.lines().take(1).for_each(|l| show.line(l));
    show.line("$ bimetal serve demo &");
    let start = world.start()?;
    show.line(&format!("It serves after {}.", show::seconds(start)));
    let disk: Box<dyn Disk> = match via {
        DemoVia::Nbd => Box::new(disk::Ranges::connect(&world)?),
        DemoVia::Mount => Box::new(mount::Mounted::new(&world, &mut show)?),
    };
    let mut disk = Interruptible(disk);
    let mut figures = Figures::new();
    let played = perform(&mut world, &mut disk, &scale, &mut show, &mut figures);
    // Also after a failure nothing may stay mounted or attached.
    let left = disk.leave(&world);
    if let (Err(_), Err(why)) = (&played, &left) {
        crate::output::tell(&format!("bimetal: {why:#}"));
    }
    played?;
    left?;
    let stop = world.stop()?;
    figures.push(("orderly stop".into(), show::seconds(stop), "everything flushed, marked clean".into()));
    let check = world.run(&["check", process::GROUP]).context("the check after the demo")?;
    let verdict = check.lines().last().unwrap_or_default().to_string();
    figures.push(("bimetal check".into(), "passed".into(), verdict));
    finish(&mut show, &figures, via, output)
}

fn perform(
    world: &mut World,
    disk: &mut dyn Disk,
    scale: &Scale,
    show: &mut Show,
    figures: &mut Figures,
) -> Result<()> {
    show.heading("2. Fill it past the SSD: writes go at the SSD's speed, then at the hard disk's");
    let mut files = steps::fill(world, disk, scale.photos, show, figures)?;
    show.heading("3. The reserve on the SSD comes back by itself");
    steps::reserve(world, show, figures)?;
    show.heading("4. A cold file: slow the first time, then promoted");
    steps::promote(world, disk, &files, show, figures)?;
    show.heading("5. Where the files live now");
    steps::places(disk, &files, show)?;
    show.heading("6. kill -9 in the middle of writes, and a restart");
    crash::run(world, disk, show, figures)?;
    show.heading("7. Every byte is read back and compared");
    steps::verify(disk, &mut files, show, figures)
}

/// A mounted file system if everything for it is there, else an NBD client; and says why.
fn choose(wanted: Option<DemoVia>, show: &mut Show) -> Result<DemoVia> {
    let possible = mount::possible();
    match (wanted, possible) {
        (Some(DemoVia::Mount), Err(why)) => bail!("a mounted file system is not possible here: {why}"),
        (Some(via), _) => Ok(via),
        (None, Ok(())) => {
            show.line("On a mounted ext4, because this is root on a machine with FUSE and loop devices.");
            Ok(DemoVia::Mount)
        }
        (None, Err(why)) => {
            show.line(&format!("Through an NBD client, because a mounted file system is not possible here: {why}."));
            Ok(DemoVia::Nbd)
        }
    }
}

fn finish(show: &mut Show, figures: &Figures, via: DemoVia, output: Output) -> Result<()> {
    if output.json {
        let all = figures.iter().map(|(n, v, r)| json!({"name": n, "value": v, "remark": r})).collect::<Vec<_>>();
        let via = if via == DemoVia::Mount { "mounted ext4" } else { "nbd client" };
        return output.show(&json!({ "schema": api::SCHEMA, "via": via, "figures": all }), String::new);
    }
    show.heading("Figures");
    let rows: Vec<Vec<String>> = figures.iter().map(|(n, v, r)| vec![n.clone(), v.clone(), r.clone()]).collect();
    table(&["WHAT", "MEASURED", ""], &rows, &[1]).lines().for_each(|l| show.line(l));
    show.line("");
    show.line("On real disks: bimetal create tank --fast /dev/nvme0n1 --slow /dev/sda && bimetal attach tank/main");
    Ok(())
}

/// Asks the daemon again and again, until `done` is content or the time is over; gives the time taken.
fn wait_for(
    world: &World,
    limit: Duration,
    mut done: impl FnMut(&api::Status) -> Result<bool>,
) -> Result<Option<Duration>> {
    const LOOK_AGAIN: Duration = Duration::from_millis(50);
    let begun = std::time::Instant::now();
    loop {
        interrupt::check()?;
        if done(&world.status()?)? {
            return Ok(Some(begun.elapsed()));
        }
        if begun.elapsed() > limit {
            return Ok(None);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

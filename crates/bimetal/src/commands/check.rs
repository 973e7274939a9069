//! `bimetal check`: verifies a group, by its daemon while it is served. Writes nothing unless it is to mend.

use std::process::ExitCode;

use anyhow::{anyhow, bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::Reactor;
use bimetal_volume::inspect::check;

use crate::api::{CheckRequest, Checked, Job};
use crate::cli::Check;
use crate::client::{Client, TooOld};
use crate::output::Output;
use crate::progress::Progress;
use crate::size::approx;
use crate::{members, runstate};

pub(crate) fn run(args: Check, output: Output) -> Result<ExitCode> {
    // Members that are named may be copies.
    let group = args.group.clone().filter(|_| args.members.is_empty());
    let daemon = group.as_deref().map_or(Ok(None), runstate::daemon)?;
    let checked = match (group, daemon) {
        (Some(group), Some(daemon)) => in_use(&group, daemon, args.mend, output)?,
        (Some(group), None) => {
            runstate::refuse_served(&group)?;
            if args.mend {
                bail!("group '{group}' is not served; its next start mends what can be mended: bimetal serve {group}");
            }
            stopped(args)?
        }
        (None, _) => stopped(args)?,
    };
    output.show(&serde_json::to_value(&checked)?, || words(&checked))?;
    Ok(if checked.sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// By the daemon, which knows what must be there.
fn in_use(group: &str, daemon: Client, mend: bool, output: Output) -> Result<Checked> {
    let begun = daemon.post("/v1/check", &CheckRequest { mend });
    let mut job: Job = begun.map_err(|e| if e.is::<TooOld>() { too_old(group) } else { e })?;
    let mut progress = (!output.json).then(Progress::new);
    while !job.done {
        if let (Some(progress), Some((over, of))) = (&mut progress, job.over) {
            let part = progress.part(over, of);
            progress.show(|| format!("verifying {group}: {part}"));
        }
        let daemon = runstate::daemon(group)?.context("the daemon has ended meanwhile")?;
        job = daemon.get(&format!("/v1/jobs/{}", job.job))?;
    }
    match (job.error, job.checked) {
        (Some(why), _) => bail!("group '{group}' was not verified: {why}"),
        (None, Some(checked)) => Ok(checked),
        (None, None) => bail!("the daemon's answer is not understood; are both the same version?"),
    }
}

/// What the daemon cannot do, this program can when that has ended.
fn too_old(group: &str) -> anyhow::Error {
    let process = runstate::locked_by(group).map_or(String::new(), |id| format!(" (process {id})"));
    anyhow!(
        "group '{group}' is served by a daemon of an earlier version{process}, which cannot verify it. Stop that \
         (bimetal stop {group}), then either verify the group at rest (bimetal check {group}), or serve it with this \
         version (bimetal serve {group}) and check again"
    )
}

/// From the members themselves.
fn stopped(args: Check) -> Result<Checked> {
    let explicit = members::parse_all(&args.members)?;
    let reactor = Reactor::new()?;
    let env = reactor.env();
    reactor.block_on(async move {
        let found = members::open(&env, args.group.as_deref(), &explicit, Access::INSPECT).await?;
        let report = check(env, found.devices()).await.with_context(|| found.cannot("verified"))?;
        let mut checked = Checked::from(report);
        checked.no_members = found.strangers.into_iter().map(|s| s.why).collect();
        checked.absent = found.absent;
        checked.sound &= checked.absent.is_empty();
        Ok(checked)
    })
}

fn words(c: &Checked) -> String {
    const SLOT: u64 = bimetal_volume::units::CHUNK;
    let how = match (c.in_use, c.clean) {
        (true, _) => "it is in use",
        (false, true) => "it was stopped in order",
        (false, false) => "it was not stopped in order",
    };
    let records = if c.in_use { "were verified" } else { "will be replayed" };
    let mut text = format!(
        "Group '{}': {how}; {} map pages verified, {} chunks have a home, {} journal records {records}.\n",
        c.group, c.pages_verified, c.chunks, c.records_to_replay
    );
    for s in &c.slots {
        text += &format!("  member {}: {} used, {} free\n", s.member, approx(s.used * SLOT), approx(s.free * SLOT));
    }
    if c.kept_chunks > 0 {
        let kept = approx(c.kept_chunks * SLOT);
        text += &format!("  {kept} of the slow tier are places kept for chunks that are on the fast tier now\n");
    }
    for name in &c.deleting {
        text += &match c.in_use {
            true => format!("  volume {name} is deleted; its space is being freed\n"),
            false => format!("  volume {name} is deleted; the next start goes on to free its space\n"),
        };
    }
    for line in &c.absent {
        text += &format!("  MISSING: {line}\n");
    }
    for line in &c.no_members {
        text += &format!(
            "  {line}; no member is there, though the configuration names it: the next start strikes it out\n"
        );
    }
    for p in &c.problems {
        let place = p.member.map_or(String::new(), |m| format!("member {m}: "));
        text += &format!("  {place}{} ({})\n", p.what, p.weight());
    }
    if c.untold > 0 {
        text += &format!("  ... and {} more of the kind\n", c.untold);
    }
    text + &verdict(c)
}

fn verdict(c: &Checked) -> String {
    let mended = c.problems.iter().filter(|p| p.mended).count();
    let open = c.problems.len() - mended + c.absent.len() + c.untold as usize;
    let written = match mended {
        0 => "Nothing was written.".to_string(),
        1 => "1 was mended.".to_string(),
        n => format!("{n} were mended."),
    };
    let hint = match c.problems.iter().any(|p| p.in_memory && !p.mended) {
        true => format!("\nHave it written anew before the daemon ends: bimetal check {} --mend", c.group),
        false => String::new(),
    };
    match (c.writes, open, open + mended) {
        (1.., ..) => format!("{} WRITES WERE SENT: that is a bug, please report it.\n", c.writes),
        (0, 0, 0) => "Everything is in order. Nothing was written.\n".to_string(),
        (0, _, 1) => format!("1 problem was found. {written}{hint}\n"),
        (0, _, n) => format!("{n} problems were found. {written}{hint}\n"),
    }
}

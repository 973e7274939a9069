//! `bimetal check`: verifies a group, by its daemon while it is served. Writes nothing unless it is to mend.

use std::cell::RefCell;
use std::process::ExitCode;

use anyhow::{anyhow, bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::Reactor;
use bimetal_volume::inspect::check;
use bimetal_volume::units::CHUNK;

use crate::api::{CheckRequest, Checked, Job, Slots};
use crate::cli::Check;
use crate::client::{Client, TooOld};
use crate::members::{tier_name, Members, Opened};
use crate::output::{indent, table, wrapped, Output};
use crate::progress::Progress;
use crate::runstate::Holder;
use crate::saved::own_tier;
use crate::size::approx;
use crate::words::counted;
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
            beside_nobody(&group, stopped(&args, output))?
        }
        (None, _) => stopped(&args, output)?,
    };
    output.show(&serde_json::to_value(&checked)?, || words(&checked, args.members.is_empty()))?;
    Ok(if checked.sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was found of a group at rest, unless it was not at rest: what somebody has in use since cannot be read, and is not damaged.
fn beside_nobody(group: &str, checked: Result<Checked>) -> Result<Checked> {
    if checked.as_ref().is_ok_and(|c| c.sound) {
        return checked;
    }
    match runstate::holder(group) {
        None => checked,
        Some(Holder { process, command: None }) => bail!(
            "group '{group}' was not verified: a daemon (process {process}) has come to serve it meanwhile. When it serves, give the command \
             again: the daemon verifies it then"
        ),
        Some(command) => bail!("group '{group}' was not verified: {}", command.words(group)),
    }
}

/// By the daemon, which knows what must be there.
fn in_use(group: &str, daemon: Client, mend: bool, output: Output) -> Result<Checked> {
    let begun = daemon.post("/v1/check", &CheckRequest { mend });
    let mut job: Job = begun.map_err(|e| if e.is::<TooOld>() { too_old(group) } else { e })?;
    let mut bar = Bar::new(group, output);
    while !job.done {
        let (over, of) = job.over.unwrap_or_default();
        bar.show(over, of);
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
fn stopped(args: &Check, output: Output) -> Result<Checked> {
    let explicit = members::parse_all(&args.members)?;
    let group = args.group.clone();
    let mut bar = Bar::new(group.as_deref().unwrap_or("the members"), output);
    let reactor = Reactor::new()?;
    let env = reactor.env();
    reactor.block_on(async move {
        let mut found = members::open(&env, group.as_deref(), &explicit, Access::INSPECT).await?;
        if let Some(way) = found.way_to_restored() {
            bail!("there is nothing to verify yet. {way}");
        }
        // What a person names is to be a member.
        let instead = if explicit.is_empty() { found.leave_what_came_instead() } else { Vec::new() };
        let bar = RefCell::new(&mut bar);
        let report = check(env, found.devices(), &|over, of| bar.borrow_mut().show(over, of)).await;
        found.refuse_taken("verified")?;
        let named = group.as_deref().filter(|_| explicit.is_empty());
        let report = report.map_err(|e| found.refusal_to_be("verified", named, e))?;
        let mut checked = Checked::of(report, |member| place(&found, member));
        for (i, _) in found.opened.iter().enumerate().filter(|(_, m)| m.label.is_none()) {
            let of_engine = format!("device {i} has no sound label");
            checked.problems.iter_mut().filter(|p| p.what.starts_with(&of_engine)).for_each(|p| p.serious = true);
        }
        // The engine numbers devices; people name them.
        checked.problems.iter_mut().for_each(|p| p.what = found.named(&p.what));
        checked.unread = found.at_hand();
        checked.elsewhere = found.elsewhere(checked.problems.iter().any(|p| p.what.starts_with("missing: ")));
        checked.elsewhere.extend(found.given_up());
        let none = |why: String, then: &str| format!("{why}, though the configuration names it: {then}");
        let strangers = found.strangers.iter().map(|s| none(s.needless(), "the next start strikes it out"));
        let instead = instead
            .into_iter()
            .map(|why| none(format!("{why}; no member is there"), "all of them were found elsewhere"));
        checked.no_members = strangers.chain(instead).collect();
        checked.absent = found.absent;
        checked.sound &= checked.absent.is_empty();
        Ok(checked)
    })
}

/// Tier of a member, and where it is.
fn place(found: &Members, member: u8) -> (String, Option<String>) {
    let is_it = |o: &&Opened| o.label.as_ref().is_some_and(|l| l.member == member);
    let opened = found.opened.iter().find(is_it);
    let tier = opened.and_then(|o| o.label.as_ref()).map_or("", |label| tier_name(own_tier(label)));
    (tier.into(), opened.map(|o| o.locator.to_string()))
}

/// How far it is, for eyes.
struct Bar {
    what: String,
    progress: Option<Progress>,
    /// What was read before says nothing of how long the rest takes.
    counts: bool,
}

impl Bar {
    fn new(what: &str, output: Output) -> Bar {
        let mut bar = Bar { what: what.into(), progress: (!output.json).then(Progress::new), counts: false };
        bar.show(0, 0);
        bar
    }

    fn show(&mut self, over: u64, of: u64) {
        let Some(progress) = &mut self.progress else { return };
        if of > 0 && !self.counts {
            (*progress, self.counts) = (Progress::new(), true);
        }
        let part = progress.part(over, of);
        let colon = if part.is_empty() { "" } else { ": " };
        progress.show(|| format!("verifying {}{colon}{part}", self.what));
    }
}

/// What was found. `named` is said of a group that can be started; copies of members cannot.
fn words(c: &Checked, named: bool) -> String {
    let mut text = format!("{}\n{}", headline(c), indent(&members_table(&c.slots)));
    if c.kept_chunks > 0 {
        let kept = approx(c.kept_chunks * CHUNK);
        text += &format!("  {kept} of the slow tier are places kept for chunks that are on the fast tier now\n");
    }
    for name in &c.deleting {
        text += &match c.in_use {
            true => format!("  volume {name} is deleted; its space is being freed\n"),
            false => format!("  volume {name} is deleted; the next start goes on to free its space\n"),
        };
    }
    text.push('\n');
    let serious = c.problems.iter().any(|p| p.serious && !p.mended);
    for line in &c.absent {
        text += &format!("  not used: {line}\n");
    }
    for line in &c.no_members {
        text += &format!("  {line}\n");
    }
    for p in &c.problems {
        let place = p.member.map_or(String::new(), |m| format!("member {m}: "));
        text += &format!("  {place}{}{}\n", p.what, p.weight(serious));
    }
    if c.untold > 0 {
        text += &format!("  ... and {} more of the kind\n", c.untold);
    }
    if !(c.absent.is_empty() && c.no_members.is_empty() && c.problems.is_empty()) {
        text.push('\n');
    }
    text + &verdict(c) + &way_on(c, named)
}

/// What it is, and what was looked at.
fn headline(c: &Checked) -> String {
    let (pages, chunks) = (counted(c.pages_verified, "map page", "map pages"), counted(c.chunks, "chunk", "chunks"));
    let records = counted(c.records_to_replay, "journal record", "journal records");
    let what = format!("the places of {chunks} ({})", approx(c.chunks * CHUNK));
    let (how, records) = match (c.in_use, c.clean, c.records_to_replay) {
        (true, ..) => ("is in use.".into(), format!(" {records},")),
        (_, true, _) => ("was stopped in order.".into(), String::new()),
        (_, false, 0) => ("was not stopped in order.".into(), String::new()),
        (_, false, _) => (format!("was not stopped in order; the next start replays {records}."), String::new()),
    };
    format!("Group '{}' {how}\nVerified: {pages},{records} {what}.\n", c.group)
}

fn members_table(slots: &[Slots]) -> String {
    let row = |s: &Slots| {
        let place = s.locator.clone().unwrap_or_default();
        vec![s.member.to_string(), s.tier.clone(), approx(s.used_bytes), approx(s.free_bytes), place]
    };
    table(&["MEMBER", "TIER", "USED", "FREE", "WHERE"], &slots.iter().map(row).collect::<Vec<_>>(), &[2, 3])
}

fn verdict(c: &Checked) -> String {
    let mended = c.problems.iter().filter(|p| p.mended).count();
    // A member that is absent is among the problems, too: as missing.
    let open = (c.problems.len() - mended + c.untold as usize).max(c.absent.len());
    let found = match open + mended {
        0 => "Everything is in order".to_string(),
        1 => "1 problem was found".to_string(),
        n => format!("{n} problems were found"),
    };
    match (c.writes, mended) {
        (1.., _) => format!("{} WRITES WERE SENT: that is a bug, please report it.\n", c.writes),
        (0, 0) => format!("{found}. Nothing was written.\n"),
        (0, _) if open == 0 => format!("{found}, and mended.\n"),
        (0, _) => format!("{found}, {mended} of them mended.\n"),
    }
}

/// What to do about it.
fn way_on(c: &Checked, named: bool) -> String {
    let open = || c.problems.iter().filter(|p| !p.mended);
    if open().any(|p| p.in_memory) {
        return format!("Have it written anew before the daemon ends: bimetal check {} --mend\n", c.group);
    }
    if !named || c.in_use {
        return String::new();
    }
    if open().any(|p| p.serious) && !c.unread.is_empty() {
        let wanted = c.unread.iter().map(|device| wrapped(&format!("- {device}"))).collect::<String>();
        return format!(
            "Next: see to what is there, or may be, and cannot be used as it is. All that is on it may be there again:\n{wanted}When \
             it can be used, whole: bimetal serve {0}\nTo see what would be lost without it: bimetal rescue {0}\n",
            c.group
        );
    }
    if open().any(|p| p.serious) {
        let elsewhere = c.elsewhere.iter().map(|way| wrapped(way)).collect::<String>();
        return format!(
            "{elsewhere}Next: bimetal rescue {0}    (what is lost or in doubt)\n      \
             bimetal repair {0}    (what can be done; asks before it writes)\n",
            c.group
        );
    }
    match open().any(|p| p.by_check) {
        true => format!("Next: bimetal serve {0}, and while it runs: bimetal check {0} --mend\n", c.group),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Problem, SCHEMA};

    fn checked(problems: Vec<Problem>) -> Checked {
        let slots = |member, tier: &str, used_bytes| Slots {
            member,
            tier: tier.into(),
            locator: Some(format!("/dev/sd{member}")),
            used_bytes,
            free_bytes: 1 << 30,
            ..Slots::default()
        };
        Checked {
            schema: SCHEMA,
            group: "tank".into(),
            sound: problems.iter().all(|p| p.mended),
            in_use: false,
            clean: true,
            problems,
            untold: 0,
            absent: Vec::new(),
            unread: Vec::new(),
            elsewhere: Vec::new(),
            no_members: Vec::new(),
            pages_verified: 1,
            records_to_replay: 0,
            chunks: 2,
            kept_chunks: 0,
            deleting: Vec::new(),
            slots: vec![slots(0, "fast", 256 << 10), slots(1, "slow", 0)],
            writes: 0,
        }
    }

    fn problem(serious: bool, in_memory: bool, mended: bool) -> Problem {
        Problem { member: Some(1), what: "rot".into(), serious, in_memory, by_check: false, mended }
    }

    #[test]
    fn a_sound_group_takes_few_words() {
        let sound = "\
Group 'tank' was stopped in order.
Verified: 1 map page, the places of 2 chunks (256 KiB).

  MEMBER  TIER     USED   FREE  WHERE
  0       fast  256 KiB  1 GiB  /dev/sd0
  1       slow      0 B  1 GiB  /dev/sd1

Everything is in order. Nothing was written.
";
        assert_eq!(words(&checked(Vec::new()), true), sound);
        let killed = Checked { clean: false, records_to_replay: 1, ..checked(Vec::new()) };
        assert!(headline(&killed).contains("was not stopped in order; the next start replays 1 journal record.\n"));
        let used = Checked { in_use: true, ..killed };
        assert!(headline(&used).contains("is in use.\nVerified: 1 map page, 1 journal record, the places"));
    }

    #[test]
    fn every_problem_says_what_follows_from_it() {
        let light = words(&checked(vec![problem(false, false, false)]), true);
        let said = "\n\n  member 1: rot (the next start mends it)\n\n1 problem was found. Nothing was written.\n";
        assert!(light.ends_with(said), "{light}");
        // A start that is refused mends nothing.
        let both = vec![problem(false, false, false), problem(true, false, false)];
        let serious = words(&checked(both.clone()), true);
        assert!(serious.contains("rot\n  member 1: rot (SERIOUS)\n\n2 problems were found. Nothing"), "{serious}");
        assert!(
            serious.contains("Next: bimetal rescue tank ") && serious.contains("bimetal repair tank "),
            "{serious}"
        );
        assert!(!words(&checked(both), false).contains("Next"), "copies of members are not repaired by name");
        let copy = Problem { by_check: true, ..problem(false, false, false) };
        let left = words(&checked(vec![copy]), true);
        assert!(left.contains("rot (`bimetal check --mend` mends it"), "{left}");
        assert!(left.ends_with("Next: bimetal serve tank, and while it runs: bimetal check tank --mend\n"), "{left}");
        let used = |problems| words(&Checked { in_use: true, ..checked(problems) }, true);
        let told = used(vec![problem(false, true, false)]);
        assert!(told.contains("rot (the daemon has it whole)"), "{told}");
        assert!(told.ends_with("before the daemon ends: bimetal check tank --mend\n"), "{told}");
        let (mended, not) = (problem(false, true, true), problem(false, false, false));
        assert!(used(vec![mended.clone()]).ends_with("rot (mended)\n\n1 problem was found, and mended.\n"));
        let two = used(vec![mended, not]);
        assert!(two.ends_with("(the next start mends it)\n\n2 problems were found, 1 of them mended.\n"), "{two}");
    }

    #[test]
    fn a_member_that_is_not_there_is_one_problem() {
        let missing = Problem { member: None, what: "missing: member 1".into(), ..problem(true, false, false) };
        let c = Checked { absent: vec!["/dev/sd1 does not exist".into()], ..checked(vec![missing]) };
        let told = words(&c, true);
        let said = "\n\n  not used: /dev/sd1 does not exist\n  missing: member 1 (SERIOUS)\n\n1 problem was found.";
        assert!(told.contains(said), "{told}");
    }
}

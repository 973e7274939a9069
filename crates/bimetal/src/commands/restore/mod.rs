//! `bimetal restore`: writes metadata back that `dump --save` has saved.

mod places;
mod plan;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{bail, Context, Result};
use bimetal_format::label::Label;
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, HostEnv, Locator, Reactor};
use bimetal_volume::env::{Device, Env};
use serde_json::json;

use self::places::ToName;
use self::plan::{added_and_away, is_of_repair_since, not_in_file, plan, Candidate, Group, Plan, Proof};
use self::plan::{used_since, used_since_without_label};
use crate::cli::Restore;
use crate::consent::{after_asking, Consent, Looked, Question};
use crate::members::{self, Members};
use crate::output::Output;
use crate::saved::{
    committed_since, has_traces_of, label_behind, put_back, save, Mark, Saved, SavedFile, SavedMember, Sign, Target,
    Written,
};
use crate::size::approx;
use crate::{api, date, legs, loss, runstate};

pub(crate) fn run(args: Restore, output: Output) -> Result<()> {
    let saved = SavedFile::open(&args.file)?;
    let name = saved.group.clone();
    runstate::refuse_served(&name)?;
    let what = Rc::new((saved, members::parse_all(&args.members)?, args));
    let look = |consent| {
        let (reactor, what) = (Reactor::new()?, what.clone());
        let env = reactor.env();
        reactor.block_on(async move {
            let (saved, explicit, args) = &*what;
            let _syncs = loss::watch_syncs(&env, &saved.group);
            restore(&env, saved, explicit, args, consent).await
        })
    };
    let (done, lock) = after_asking(what.2.yes, || runstate::lock_for_command(&name), look)?;
    drop(lock);
    output.show(&done.json(&name), || done.words(&name))
}

/// What was done.
struct Done {
    file: PathBuf,
    saved_at: u64,
    /// Index, locator and proof of each member.
    members: Vec<(u8, String, &'static str)>,
    erased: Vec<String>,
    before: Before,
    written: Written,
    not_in_file: Vec<String>,
    added_and_away: Vec<String>,
    /// Places of the configuration of which nobody knows what is there.
    unseen: Vec<String>,
    /// Why the next command must name the members, too, that this one has named.
    to_name: Option<ToName>,
}

/// What has become of what stood there before.
enum Before {
    Saved(Box<Saved>),
    /// It could not be saved, and why.
    Lost(String),
}

async fn restore(
    env: &HostEnv,
    saved: &SavedFile,
    explicit: &[Locator],
    args: &Restore,
    consent: Consent,
) -> Result<Looked<Done>> {
    const UNTOUCHED: &str = "Nothing was written";
    let in_file: Vec<[u8; 16]> = saved.members.iter().map(SavedMember::uuid).collect();
    let found = members::open_with(env, Some(&saved.group), explicit, &in_file, Access::SERVE).await;
    let found = found.context(UNTOUCHED)?;
    // Also by force: what is proven by nothing for this version is proven for that one.
    if let Some(why) = found.newer() {
        bail!(
            "{UNTOUCHED}: {why}. Were the metadata written back, all that was written since it was saved would be lost"
        );
    }
    let candidates = candidates(&found, saved, !explicit.is_empty()).await;
    let group = Group { name: &saved.group, uuid: saved.uuid, file: saved.id, members: &saved.members };
    let plan = plan(&group, &candidates).with_context(|| with_absent(UNTOUCHED, &found))?;
    refuse_while_there(env, saved, &plan, explicit).await.context(UNTOUCHED)?;
    refuse_of_repair(env, &group, &found).await.context(UNTOUCHED)?;
    let target = |(i, proof): (usize, Proof)| Target {
        locator: candidates[i].locator.clone(),
        device: found.opened[i].device.clone(),
        as_saved: proof == Proof::Unchanged,
    };
    let targets: Vec<Target<HostDevice>> = plan.targets.iter().map(|t| target(*t)).collect();
    refuse_used(saved, &plan, &targets).await.context(UNTOUCHED)?;
    for (target, member) in targets.iter().zip(&saved.members) {
        if let Some(why) = label_behind(target, member).await.context(UNTOUCHED)? {
            bail!("{UNTOUCHED}: {why}");
        }
    }
    if !plan.is_proven() && !args.force {
        bail!("{UNTOUCHED}: {}", unproven(saved));
    }
    if let Some((m, i)) = plan.guessed().next().filter(|_| !args.force) {
        bail!("{UNTOUCHED}: {}", guessed(&candidates[i].locator, &saved.members[m], plan.targets[m].1));
    }
    if !args.force {
        refuse_not_whole(&targets).await.context(UNTOUCHED)?;
    }
    let added_and_away = added_and_away(&group, &candidates);
    let unseen = if plan.undoes_a_repair() { places::unseen(env, saved, &found).await } else { Vec::new() };
    let away: Vec<String> = words_of_away(&added_and_away, &unseen).collect();
    let words = question(env, saved, &plan, &candidates, &away);
    if let Some(question) = consent.covers(Question { words, about: found.state() }).context(UNTOUCHED)? {
        return Ok(Looked::Asks(question));
    }
    let before = save_before(env, &found, &args.file).await.context(UNTOUCHED)?;
    let added: Vec<Target<HostDevice>> = plan.added.iter().map(|i| target((*i, Proof::None))).collect();
    // Who has a ublk device mounted that outlived its daemon knows what came since.
    loss::note(&saved.group, format!("metadata was put back from {}", args.file.display()));
    let written = put_back(saved, &targets, &added).await.with_context(|| cut_off(saved, &before))?;
    let to_name = if explicit.is_empty() { None } else { places::note(env, saved, &targets, &found).await };
    let of_member = |((i, proof), m): (&(usize, Proof), &SavedMember)| {
        (m.label.member, candidates[*i].locator.clone(), proof.name())
    };
    Ok(Looked::Done(Done {
        file: args.file.clone(),
        saved_at: saved.saved_at,
        members: plan.targets.iter().zip(&saved.members).map(of_member).collect(),
        erased: added.iter().map(|t| t.locator.clone()).collect(),
        before,
        written,
        not_in_file: not_in_file(&group),
        added_and_away,
        unseen,
        to_name,
    }))
}

async fn candidates(found: &Members, saved: &SavedFile, given: bool) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for m in &found.opened {
        let mark = Mark::of_one_of(&m.device, &saved.laid_out()).await;
        let says_nothing = m.label.is_none() && mark.is_none() && given;
        candidates.push(Candidate {
            locator: m.locator.to_string(),
            size: m.device.size(),
            label: m.label.clone(),
            mark,
            traces: if says_nothing { traces(saved, &m.device).await } else { Vec::new() },
            given,
        });
    }
    candidates
}

/// The members in the file whose metadata lies on the device.
async fn traces(saved: &SavedFile, device: &HostDevice) -> Vec<usize> {
    let mut all = Vec::new();
    for (i, m) in saved.members.iter().enumerate() {
        if has_traces_of(device, &m.label).await {
            all.push(i);
        }
    }
    all
}

fn with_absent(what: &str, found: &Members) -> String {
    match found.absent.is_empty() {
        true => what.to_owned(),
        false => format!("{what} ({})", found.absent.join("; ")),
    }
}

/// Refuses, also by force, what a journal says was used since.
async fn refuse_used(saved: &SavedFile, plan: &Plan, targets: &[Target<HostDevice>]) -> Result<()> {
    let sign = |m: usize| plan.targets[m].1.sign();
    let Some(m) = committed_since(saved, targets, sign).await? else { return Ok(()) };
    let (group, at) = (&saved.group, &targets[m].locator);
    match sign(m) {
        Sign::LaterBlock => Err(used_since_without_label(group, at)),
        _ => Err(used_since(group, "journal", at)),
    }
}

/// Refuses a member that is not whole by its labels: with those written anew nothing would tell that any more.
async fn refuse_not_whole(targets: &[Target<HostDevice>]) -> Result<()> {
    for t in targets {
        if let Some(apart) = bimetal_volume::probe::not_whole(&t.device).await.with_context(|| t.locator.clone())? {
            bail!("{} has {apart}. Bring all of it; if there is nothing else, --force takes it as it is", t.locator);
        }
    }
    Ok(())
}

/// A device that is taken for a member by its size only is refused while another one carries the label of that member.
async fn refuse_while_there(env: &HostEnv, saved: &SavedFile, plan: &Plan, explicit: &[Locator]) -> Result<()> {
    let guessed: Vec<&SavedMember> = plan.guessed().map(|(m, _)| &saved.members[m]).collect();
    if guessed.is_empty() {
        return Ok(());
    }
    let whose = |l: &Label| guessed.iter().find(|m| l.group == saved.uuid && members::own_uuid(l) == m.uuid());
    let others = guessed.iter().filter_map(|m| Locator::parse(&m.locator).ok()).collect();
    let found = members::carriers(env, &saved.group, others, &|l| whose(l).is_some()).await;
    let mut real = found.iter().filter(|(at, _)| !explicit.contains(at));
    if let Some((at, member)) = real.find_map(|(at, label)| Some((at, whose(label)?))) {
        bail!(
            "{at} carries a sound label of {}: name that device with --member. If it is a copy that is not to be used any more, \
             disconnect it first",
            member.named()
        );
    }
    Ok(())
}

/// A device that was not named may carry the newest label of the group: that of the repair that is undone. It goes with the others, or
/// the next start goes by it.
async fn refuse_of_repair(env: &HostEnv, group: &Group<'_>, found: &Members) -> Result<()> {
    let known: Vec<[u8; 16]> = found.labelled().map(|(_, label)| members::own_uuid(label)).collect();
    let forgotten = |l: &Label| is_of_repair_since(group, l) && !known.contains(&members::own_uuid(l));
    let all = members::carriers(env, group.name, Vec::new(), &forgotten).await;
    let Some((at, _)) = all.first() else { return Ok(()) };
    let words = || {
        format!(
            "{at} carries a label of the repair that is to be undone, and is not one of the devices that were named or found. The next \
             start would go by it, and take the members that are written back for old copies. Name it, too, with all others \
             (--member): a device that became a member by the repair loses its label. Or disconnect it for good"
        )
    };
    bail!("{}", legs::why_not(env, at).await.unwrap_or_else(words))
}

/// Why a device without a label needs force, though others prove that the metadata fits.
fn guessed(locator: &str, member: &SavedMember, proof: Proof) -> String {
    let (taken, other) = match proof {
        Proof::Traces => ("by what else is on it, which an older copy has, too", "an older copy"),
        _ => ("because of its size alone", "another device"),
    };
    format!(
        "{locator} carries no label, and is taken for {} {taken}. If it is {other}, all that was on that \
         member will read as what is on it now, or as zeros, without any error. Only if it is the very device, with its data: \
         --force. If the member is lost, `bimetal repair {}` goes on without it",
        member.named(),
        member.label.group_name
    )
}

/// Why a restore without any label needs force.
fn unproven(saved: &SavedFile) -> String {
    format!(
        "no device carries a label that says whether group '{}' was used since {} was made. If it was started since then, even \
         once, what was saved does not describe any more what is in the slots: the volumes would hold wrong data, without any \
         error. Only if you know that it was not started: --force",
        saved.group,
        saved.path().display()
    )
}

fn cut_off(saved: &SavedFile, before: &Before) -> String {
    let kept = match before {
        Before::Saved(before) => format!(" (what was there before is in {})", before.file.display()),
        Before::Lost(_) => String::new(),
    };
    format!(
        "The metadata of group '{}' is not completely written back{kept}, and the group does not start. When what is in \
         the way is gone, give the same command again, with all members named by --member, and with --force if it asks \
         for it: it begins anew and completes it",
        saved.group
    )
}

fn question(env: &HostEnv, saved: &SavedFile, plan: &Plan, candidates: &[Candidate], away: &[String]) -> String {
    let mut text = format!(
        "This replaces the metadata of group '{}' by that of {}, which was saved {} ({} ago):",
        saved.group,
        saved.path().display(),
        date::moment(saved.saved_at),
        ago(env.unix_seconds().saturating_sub(saved.saved_at))
    );
    for ((i, proof), m) in plan.targets.iter().zip(&saved.members) {
        let (at, bytes) = (&candidates[*i].locator, approx(m.bytes()));
        text += &format!("\n  {at}: {}, {bytes} of metadata; {}", m.named(), proof.words());
    }
    for i in &plan.added {
        text += &format!("\n  {}: became a member by the repair; its label is erased", candidates[*i].locator);
    }
    for line in away {
        text += &format!("\n{line}");
    }
    for (_, i) in plan.guessed() {
        text += &format!(
            "\nNothing proves that {} is the old device: what is not on it will read as zeros, or as what else is on it, without any \
             error.",
            candidates[i].locator
        );
    }
    if !plan.is_proven() {
        text += "\nNothing proves that the group was not started since. If it was, its volumes will hold wrong data.";
    }
    text
}

/// What is to be known of members that were added by the repair and are not there, and of places where one may be.
fn words_of_away<'a>(added: &'a [String], unseen: &'a [String]) -> impl Iterator<Item = String> + 'a {
    const NEVER: &str =
        "keeps its label. Never start the group with it: that start would take the other members for old copies.";
    let added = added.iter().map(|member| format!("NOT FOUND: {member} became a member by the repair, and {NEVER}"));
    let unseen = unseen.iter().map(|place| {
        format!("NOT FOUND: {place}. If a repair was given it as a new device, it may have become a member by that, and {NEVER}")
    });
    added.chain(unseen)
}

/// "3 days".
fn ago(seconds: u64) -> String {
    let (n, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7200 => (seconds / 60, "minute"),
        7200..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{n} {unit}{}", if n == 1 { "" } else { "s" })
}

/// Saves what is about to be overwritten to a new file.
async fn save_before(env: &HostEnv, found: &Members, file: &Path) -> Result<Before> {
    if found.opened.iter().all(|m| m.label.is_none()) {
        return Ok(Before::Lost("no device carries a label that says where it lies".into()));
    }
    let path = name_before(file, env.unix_seconds())?;
    let saved =
        save(env, &found.opened, &path).await.context("what is there now must be saved first, and cannot be")?;
    Ok(Before::Saved(Box::new(saved)))
}

/// A name beside the file that nothing has yet.
fn name_before(file: &Path, now: u64) -> Result<PathBuf> {
    let name = file.file_name().context("the file has no name")?;
    let named = |more: String| {
        let mut name = name.to_owned();
        name.push(format!(".before-restore-{now}{more}"));
        file.with_file_name(name)
    };
    // Within one second nobody gives this command often.
    let names = std::iter::once(String::new()).chain((2..100).map(|n| format!("-{n}"))).map(named);
    let mut free = names.filter(|path| path.symlink_metadata().is_err());
    free.next().with_context(|| format!("all names like {} are taken", named(String::new()).display()))
}

impl Done {
    fn json(&self, group: &str) -> serde_json::Value {
        let member = |(index, locator, proof): &(u8, String, &str)| json!({ "index": index, "locator": locator, "proof": proof });
        let (before, not_saved) = match &self.before {
            Before::Saved(saved) => (Some(&saved.file), saved.not_saved.clone()),
            Before::Lost(why) => (None, vec![why.clone()]),
        };
        json!({
            "schema": api::SCHEMA, "group": group, "restored": true, "file": self.file, "saved_at": self.saved_at,
            "members": self.members.iter().map(member).collect::<Vec<_>>(), "erased": self.erased,
            "changed_bytes": self.written.changed_bytes, "before": before, "before_not_saved": not_saved,
            "not_in_file": self.not_in_file, "added_not_found": self.added_and_away, "places_not_found": self.unseen,
        })
    }

    fn words(&self, group: &str) -> String {
        let devices: Vec<&str> = self.members.iter().map(|(_, locator, _)| locator.as_str()).collect();
        let mut text = format!(
            "The metadata of group '{group}' is that of {} again, on {}; {} were changed.\n",
            self.file.display(),
            devices.join(", "),
            approx(self.written.changed_bytes)
        );
        for erased in &self.erased {
            text += &format!("{erased} is no member any more; its label is erased.\n");
        }
        text += &match &self.before {
            Before::Saved(saved) => {
                let not = saved.not_saved.iter().map(|line| format!("Not in it: {line}.\n")).collect::<String>();
                format!("What was there before is in {}.\n{not}", saved.file.display())
            }
            Before::Lost(why) => format!("What was there before could not be saved: {why}.\n"),
        };
        for missing in &self.not_in_file {
            text += &format!("MISSING: {missing} was not there when the group was saved, and is not in the file.\n");
        }
        for line in words_of_away(&self.added_and_away, &self.unseen) {
            text += &format!("{line}\n");
        }
        let named = format!("--member {}", devices.join(" "));
        let why = match self.to_name {
            None => return text + &format!("`bimetal check {group}` verifies it.\n"),
            Some(ToName::Nowhere) => "No configuration says here where these members are; name them at the next start, too",
            Some(ToName::Elsewhere) => {
                "The configuration names other devices that are there, or may be, as members of this group, and is as it was. To serve these \
                 instead, with those disconnected"
            }
        };
        text + &format!("`bimetal check {named}` verifies it. {why}: `bimetal serve {group} {named}`.\n")
    }
}

//! `bimetal repair`: makes what can still be read of a group the whole of it, so that it can be started again.

mod copies;
mod new;
mod words;

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostEnv, Locator, Reactor};
use bimetal_volume::family::lost::LostFamily;
use bimetal_volume::repair::{Kept, Plan, RepairError, Report};
use serde_json::json;

use self::new::NewDevice;
use crate::api::{self, Fate};
use crate::cli::Repair;
use crate::consent::{after_asking, Consent, Looked, Question};
use crate::members::{self, Members, Opened};
use crate::output::Output;
use crate::saved::{self, Saved};
use crate::{former, loss, runstate};

/// What is asked for.
struct Wish {
    group: String,
    explicit: Vec<Locator>,
    older_copies: bool,
    give_up_unread: bool,
    give_up_restore: bool,
    save: PathBuf,
    force: bool,
    new: Vec<NewDevice>,
}

/// What has come of it.
struct Done {
    report: Report,
    volumes: Vec<Kept>,
    lost_families: Vec<LostFamily>,
    new: Vec<String>,
    /// What there is to say of those of them that are written down nowhere.
    not_noted: Vec<String>,
    saved: Saved,
    /// It went on with one that was cut off, which has saved what was before.
    went_on: bool,
    /// Where members are that are not in the file, as those without a label: such a repair cannot be undone.
    not_saved: Vec<String>,
}

pub(crate) fn run(args: Repair, output: Output) -> Result<()> {
    let group = args.group.clone();
    runstate::refuse_served(&group)?;
    let new = new::parse(&args)?;
    let explicit = members::parse_all(&args.members)?;
    members::refuse_twins(explicit.iter().chain(new.iter().map(|n| &n.locator)))?;
    let save = args.save.clone().unwrap_or_else(|| default_file(&group));
    let Repair { older_copies, give_up_unread, give_up_restore, force, yes, .. } = args;
    let wish = Rc::new(Wish { group, explicit, older_copies, give_up_unread, give_up_restore, save, force, new });
    let name = wish.group.clone();
    let look = |consent| {
        let (reactor, wish) = (Reactor::new()?, wish.clone());
        let env = reactor.env();
        reactor.block_on(async move { repair(env, &wish, consent).await })
    };
    let (done, _lock) = after_asking(yes, || runstate::lock_for_command(&name), look)?;
    match done {
        None => output.show(&json!({ "schema": api::SCHEMA, "group": name, "repaired": false }), || {
            format!("Group '{name}' needs no repair: it can be started.\n")
        }),
        Some(done) => output.show(&json(&name, &done), || words::done(&name, &done)),
    }
}

/// A name of now that is not taken: two repairs may come within a second.
fn default_file(group: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut names = (now..).map(|n| PathBuf::from(format!("{group}-before-repair-{n}.saved")));
    names.find(|name| name.symlink_metadata().is_err()).expect("there are more numbers than files")
}

/// Looks, and, with consent, saves and repairs; nothing if there is nothing to repair.
async fn repair(env: HostEnv, wish: &Wish, consent: Consent) -> Result<Looked<Option<Done>>> {
    let (name, new) = (wish.group.as_str(), wish.new.clone());
    let mut found = members::open(&env, Some(name), &wish.explicit, Access::SERVE).await?;
    if let Some(why) = found.newer() {
        bail!("nothing was repaired: {why}. A repair would strike it off, or write over it");
    }
    if !wish.give_up_restore {
        new::refuse_restoring(&env, name, &found, &wish.explicit, &new).await?;
    }
    let aside = new::let_go(&mut found, &new);
    let syncs = loss::watch_syncs(&env, name);
    let mut plan = Plan::new(env.clone(), found.devices(), wish.older_copies).await;
    // Each is one device less.
    while let Err(error) = &plan {
        // It is closed here, before it is opened as a new one.
        let Some(_old_copy) = copies::let_go_old(&mut found, &new, error, wish.force)? else { break };
        plan = Plan::new(env.clone(), found.devices(), wish.older_copies).await;
    }
    drop(syncs);
    found.refuse_taken("repaired")?;
    let mut plan = plan.map_err(|e| unrepairable(&found, e))?;
    if plan.group() != name {
        bail!("these members belong to group '{}', not to '{name}'", plan.group());
    }
    let mut unread = std::mem::take(&mut found.unread);
    unread.extend(new::refuse_unnamed(&env, name, &found, &wish.explicit, &new).await?);
    new::refuse_unlabelled_members(&env, &plan, &found, aside, &new).await?;
    new::refuse_unnamed_without_labels(&env, &plan, &found, &wish.explicit, &new).await?;
    let reasons: Vec<String> = plan.reasons().iter().map(|why| found.named(why)).collect();
    let mut new = new::without_members(new, &found)?;
    if reasons.is_empty() {
        match new.is_empty() {
            true => return Ok(Looked::Done(None)),
            false => bail!("group '{name}' needs no repair; a device is added with: bimetal member add {name}"),
        }
    }
    let unread = new::unread_members(&plan, &found, unread);
    if !unread.is_empty() && !wish.give_up_unread {
        bail!("{}", words::unread_members(&unread));
    }
    if plan.unread() > 0 && !wish.give_up_unread {
        bail!("{}", words::unread(plan.unread(), &reasons));
    }
    let wanting = former::Wanting::open(name, found.labelled().map(|(_, label)| label));
    let opened = new::add_all(&env, &wanting, &found, &mut plan, &mut new, wish.force).await?;
    let elsewhere = found.elsewhere(!plan.missing().is_empty());
    if let Err(why) = plan.check() {
        let words: Vec<String> = std::iter::once(why.to_string()).chain(elsewhere).collect();
        bail!("group '{name}' is not repaired ({}): {}", found.legend(), words.join(". "));
    }
    let (volumes, lost_families) = (plan.volumes(), plan.lost_families().await);
    let mut question = words::question(&plan, &reasons, &volumes, &lost_families, &new, &found, wish.older_copies);
    question += &words::given_up_unread(&unread);
    if let Some(question) = consent.covers(Question { words: question, about: found.state() })? {
        return Ok(Looked::Asks(question));
    }
    let saved = saved::save(&env, &found.opened, &wish.save).await;
    let saved = saved.context("the metadata cannot be saved, and nothing was repaired; another place: --save FILE")?;
    let members = plan.members().iter().filter_map(|at| found.opened.get(*at));
    let members = members.filter(|m| !is_new_of_cut_off(m, &found)).map(|m| m.locator.to_string());
    let not_saved = members.filter(|at| saved.members.iter().all(|m| m.locator != *at)).collect();
    new::take_room(&plan, &new, &opened).await?;
    let not_noted = new::take(&env, name, &new, &opened, &found, wish.force).await?;
    let went_on = plan.goes_on();
    // A ublk device that outlived its daemon may be mounted: whoever uses it has to learn that what it knows is not what is there.
    loss::note(
        name,
        found
            .connected_anew()
            .unwrap_or_else(|| "the group was repaired, and what was lost with a member is given up".into()),
    );
    let report =
        plan.carry_out().await.with_context(|| format!("group '{name}' is not repaired ({})", found.legend()))?;
    let new = new.into_iter().map(|n| n.locator.to_string()).collect();
    let done = Done { report, volumes, lost_families, new, not_noted, saved, went_on, not_saved };
    Ok(Looked::Done(Some(done)))
}

/// Whether a device is a new one of the repair that was cut off, which no other lists: to undo that it only loses its label.
fn is_new_of_cut_off(m: &Opened, found: &Members) -> bool {
    let Some(own) = m.label.as_ref().filter(|label| label.joining).map(members::own_uuid) else { return false };
    let mut others = found.labelled().filter(|(_, label)| !label.joining);
    !others.any(|(_, label)| label.members.iter().any(|row| row.uuid == own))
}

/// Why nothing can be repaired, and what is left to do.
fn unrepairable(found: &Members, error: RepairError) -> anyhow::Error {
    let copy = match &error {
        RepairError::Open(error) => found.way_past_a_copy(error),
        _ => None,
    };
    let error = anyhow::Error::from(error);
    let error = match copy.or_else(|| found.way_without_labels()) {
        Some(way) => anyhow::anyhow!("{error:#}. {way}"),
        None => error,
    };
    error.context(found.cannot("repaired"))
}

/// Bytes of a volume by fate.
fn sums(volume: &Kept) -> [u64; Fate::COUNT] {
    let mut sums = [0; Fate::COUNT];
    let by_fate = bimetal_volume::fate::Fate::ALL.into_iter().zip(volume.bytes);
    by_fate.for_each(|(fate, bytes)| sums[Fate::from(fate) as usize] += bytes);
    sums
}

fn json(name: &str, done: &Done) -> serde_json::Value {
    let volume = |v: &Kept| {
        let sums = sums(v);
        json!({
            "name": v.name, "size_bytes": v.size,
            "never_written_bytes": sums[Fate::NeverWritten as usize], "whole_bytes": sums[Fate::Whole as usize],
            "possibly_stale_bytes": sums[Fate::PossiblyStale as usize], "kept_copy_bytes": sums[Fate::KeptCopy as usize],
            "perhaps_lost_bytes": sums[Fate::PerhapsLost as usize], "lost_bytes": sums[Fate::Lost as usize],
        })
    };
    json!({
        "schema": api::SCHEMA, "group": name, "repaired": true, "struck_off": done.report.struck_off,
        "new_members": done.report.new, "new_devices": done.new, "not_noted": done.not_noted, "saved": done.saved.file,
        "went_on": done.went_on, "not_saved": done.not_saved, "lost_families": api::lost_families(&done.lost_families),
        "volumes": done.volumes.iter().map(volume).collect::<Vec<_>>(),
    })
}

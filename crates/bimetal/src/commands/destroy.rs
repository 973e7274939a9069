//! `bimetal destroy`: wipes the labels of a group's members and forgets it, or only forgets it.

use anyhow::{bail, Context, Result};
use bimetal_format::label::{Label, LabelError};
use bimetal_host::device::{Access, OpenError};
use bimetal_host::{HostDevice, HostEnv, Locator, Reactor};
use bimetal_volume::env::Device;
use futures_util::future::join_all;
use serde_json::json;

use crate::cli::Destroy;
use crate::consent::{after_asking, Consent, Looked, Question};
use crate::output::Output;
use crate::saved::Mark;
use crate::size::approx;
use crate::standing::{is_of_a_side, newest, own_uuid, standing, was, Standing};
use crate::{api, config, elsewhere, members, paths, runstate};

pub(crate) fn run(args: Destroy, output: Output) -> Result<()> {
    let name = args.group.clone();
    runstate::refuse_served(&name)?;
    if let (true, Some(server)) = (args.members.is_empty(), elsewhere::server_of(&name)) {
        bail!("{}", server.words(&name));
    }
    if args.forget {
        return forget(&name, args.yes, output);
    }
    let explicit = members::parse_all(&args.members)?;
    let lock = || runstate::lock_for_command(&name);
    let (mut wiped, lock) = after_asking(args.yes, lock, |consent| look(&name, &explicit, consent))?;
    let namesake = is_of_another(&name, &wiped);
    if !(namesake || wiped.left == Left::Whole) {
        let others = if explicit.is_empty() { Vec::new() } else { not_named(&name, &wiped) };
        wiped.absent.extend(others);
        if wiped.left == Left::Nothing {
            config::remove(&name)?;
            runstate::forget(&name, &lock);
        }
    }
    let answer = json!({
        "schema": api::SCHEMA, "group": name, "destroyed": wiped.left == Left::Nothing, "wiped": wiped.members, "absent": wiped.absent,
        "namesake": namesake,
    });
    output.show(&answer, || words(&name, &wiped, namesake))
}

/// Opens the members, and wipes them with consent.
fn look(name: &str, explicit: &[Locator], consent: Consent) -> Result<Looked<Wiped>> {
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let (group, given) = (name.to_owned(), explicit.to_vec());
    reactor.block_on(async move {
        let found = members::open(&env, Some(&group), &given, Access::SERVE).await;
        let found = found.context("nothing was changed")?;
        if given.is_empty() {
            refuse_copies(&group, &found)?;
        }
        wipe(&env, &group, found, !given.is_empty(), consent).await
    })
}

/// What was done.
fn words(name: &str, wiped: &Wiped, namesake: bool) -> String {
    let members = wiped.members.join(", ");
    let mut text = match wiped.left {
        Left::Whole => format!(
            "Copies, or former members, are wiped: {members}. The members that the configuration of group '{name}' names are as they were, \
             and so is the group.\n"
        ),
        Left::Others => format!(
            "Members of group '{name}' are wiped: {members}. Others still carry the group, or may, and it stays known here: `bimetal rescue {name}` \
             says what is left, `bimetal repair {name}` goes on with it, `bimetal destroy {name}` wipes the rest.\n"
        ),
        Left::Nothing => format!("Group '{name}' is destroyed; wiped: {members}.\n"),
    };
    for absent in &wiped.absent {
        text += &format!("Not wiped: {absent}.\n");
    }
    if namesake {
        text += &format!("The other group that is named '{name}', which the configuration describes, is as it was.\n");
    }
    text
}

/// Whether the configuration describes another group of the same name than the one whose members were wiped.
fn is_of_another(name: &str, wiped: &Wiped) -> bool {
    // One that cannot be read goes with the group: nothing could be served by it.
    config::load(name).ok().flatten().is_some_and(|c| !wiped.groups.contains(&c.uuid))
}

/// Removes the description of a group whose members are gone, or cannot be known.
fn forget(name: &str, yes: bool, output: Output) -> Result<()> {
    let (_, lock) = after_asking(
        yes,
        || runstate::lock_for_command(name),
        |consent| match consent.covers(what_is_forgotten(name)?)? {
            Some(question) => Ok(Looked::Asks(question)),
            None => config::remove(name).map(Looked::Done),
        },
    )?;
    runstate::forget(name, &lock);
    let answer = json!({ "schema": api::SCHEMA, "group": name, "destroyed": false, "forgotten": true });
    output.show(&answer, || format!("Group '{name}' is forgotten here; no device was touched."))
}

fn what_is_forgotten(name: &str) -> Result<Question> {
    let path = paths::config_file(name)?;
    if !path.exists() {
        bail!("no group named '{name}' is described here ({} does not exist)", path.display());
    }
    let places = match config::load(name) {
        Ok(config) => config.into_iter().flat_map(|c| c.members).map(|m| format!("\n  {}", m.locator)).collect(),
        Err(why) => format!("\n  ({why:#})"),
    };
    let words = format!(
        "This removes {}, which says where the members of group '{name}' are. No device is touched: what is a member stays \
         one, and `bimetal serve {name} --member` serves it. The members are, by that file:{places}",
        path.display()
    );
    Ok(Question { words, about: vec![std::fs::read_to_string(path).unwrap_or_default()] })
}

/// What has become of the members, in words.
struct Wiped {
    members: Vec<String>,
    /// UUIDs of the groups that their labels named.
    groups: Vec<String>,
    /// Those that were not wiped, and why.
    absent: Vec<String>,
    left: Left,
}

/// What is left of the group at other places that the configuration has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// All of it: what was wiped were copies of members that are there, or members no more.
    Whole,
    /// Members that lack those that were wiped, or what cannot be read now and may be one.
    Others,
    Nothing,
}

/// Members of the configuration that were not wiped, because others were named.
fn not_named(name: &str, wiped: &Wiped) -> Vec<String> {
    // One that cannot be read goes with the group, and names nobody.
    let members = config::load(name).ok().flatten().map(|c| c.members).unwrap_or_default();
    let others = members.into_iter().map(|m| m.locator).filter(|at| !wiped.members.contains(at));
    others.map(|at| format!("{at}, a member by the configuration: it still carries what it carried")).collect()
}

/// Refuses to wipe a member and its copy where nobody has named them: one of them may be the backup.
fn refuse_copies(name: &str, found: &members::Members) -> Result<()> {
    let all: Vec<(&Locator, &Label)> = found.labelled().collect();
    for (i, (first, label)) in all.iter().enumerate() {
        let copy = all[i + 1..].iter().find(|(_, l)| l.group == label.group && own_uuid(l) == own_uuid(label));
        if let Some((second, _)) = copy {
            bail!(
                "{first} and {second} both carry the label of member {} of group '{name}': one of them is a copy, or they are one device. \
                 Nothing was changed; name all that is to be wiped with --member, or disconnect what is to stay",
                label.member
            );
        }
    }
    Ok(())
}

/// What is to be wiped, for the question: one that the group goes on without holds what nothing else does.
fn line(m: &members::Opened, newest: Option<&Label>) -> String {
    let size = approx(m.device.size());
    let none = m.label.as_ref().zip(newest).and_then(|(label, newest)| match standing(label, newest) {
        Standing::Former => Some(format!(", which {}, and may hold what that has given up", was(label))),
        Standing::Apart => Some(format!(", which {}", is_of_a_side(label))),
        Standing::Member | Standing::Joining => None,
    });
    format!("  {} ({size}){}", m.locator, none.unwrap_or_default())
}

/// What of the group is elsewhere than on these. It goes on without one that has the label of a member that is, at another place, where the
/// configuration has it, or of one that has left, by what those say that are there. Only when they are wiped is it sure that two places are
/// not one device, which may have names that do not tell.
async fn left_without(env: &HostEnv, name: &str, ours: &[members::Opened]) -> Left {
    let labels = || ours.iter().filter_map(|m| m.label.as_ref());
    let is_ours = |c: &config::GroupConfig| labels().any(|l| config::uuid_text(&l.group) == c.uuid);
    let known = config::load(name).ok().flatten().filter(is_ours).map(|c| c.members).unwrap_or_default();
    let places = known.iter().filter_map(|m| Locator::parse(&m.locator).ok());
    let named: Vec<String> = ours.iter().map(|m| members::identity(&m.locator)).collect();
    let elsewhere: Vec<Locator> = places.filter(|place| !named.contains(&members::identity(place))).collect();
    let there = join_all(elsewhere.iter().map(|place| label_at(env, place))).await;
    let is_unseen = there.iter().any(Result::is_err);
    let mut there: Vec<Label> = there.into_iter().flatten().flatten().collect();
    there.retain(|l| labels().any(|own| own.group == l.group));
    let is_none = |l: &Label, newest: &Label| matches!(standing(l, newest), Standing::Former | Standing::Joining);
    let has_left = |l: &Label| newest(&there).is_some_and(|newest| is_none(l, newest));
    let is_there = |l: &Label| there.iter().any(|o| own_uuid(o) == own_uuid(l));
    if labels().all(|l| is_there(l) || has_left(l)) {
        return Left::Whole;
    }
    let carries = |l: &Label| newest(labels().chain(&there)).is_some_and(|newest| !is_none(l, newest));
    match is_unseen || there.iter().any(carries) {
        true => Left::Others,
        false => Left::Nothing,
    }
}

/// The label at a place; `None` where nothing is, or nothing of ours. What cannot be read now, or is damaged, may have any.
async fn label_at(env: &HostEnv, place: &Locator) -> Result<Option<Label>> {
    match HostDevice::open(env, place, Access::PEEK).await {
        Ok(device) => match members::read_label(&device).await? {
            Ok(label) => Ok(Some(label)),
            Err(LabelError::NotALabel) if Mark::of(&device).await.is_none() => Ok(None),
            Err(why) => Err(why.into()),
        },
        Err(OpenError::Missing { .. } | OpenError::WrongKind { .. }) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// What is left of a destruction that failed at this member.
fn cut_off(failed: &members::Opened, wiped: &[String]) -> String {
    let before = match wiped {
        [] => String::new(),
        _ => format!(
            ", and {} wiped already: the group is lost as it is, and the same command goes on",
            is_or_are(wiped)
        ),
    };
    format!("{} could not be wiped{before}", failed.locator)
}

fn is_or_are(all: &[String]) -> String {
    format!("{} {}", all.join(" and "), if all.len() == 1 { "is" } else { "are" })
}

/// Wipes the labels of all members, with consent. `named`: they were, and there may be others.
async fn wipe(
    env: &HostEnv,
    name: &str,
    found: members::Members,
    named: bool,
    consent: Consent,
) -> Result<Looked<Wiped>> {
    let stranger = found.opened.iter().find(|m| m.label.as_ref().is_some_and(|l| l.group_name != name));
    if let Some(m) = stranger {
        bail!("{} is not a member of '{name}' but of another group; nothing was changed", m.locator);
    }
    members::refuse_namesakes(name, found.labelled()).context("nothing was changed")?;
    let about = found.state();
    let (ours, unlabelled): (Vec<_>, Vec<_>) = found.opened.into_iter().partition(|m| m.label.is_some());
    if ours.is_empty() {
        bail!(
            "no member of group '{name}' was found; nothing was changed. If they are gone for good, or were wiped before, \
             `bimetal destroy {name} --forget` removes what is known of the group here"
        );
    }
    let volumes = ours.iter().filter_map(|m| m.label.as_ref()).max_by_key(|l| (l.tables, l.generation)).map(|l| {
        let of_volume = |v: &bimetal_format::label::VolumeRow| format!("{} ({})", v.name, approx(v.size));
        l.living_volumes().map(of_volume).collect::<Vec<_>>().join(", ")
    });
    let newest = newest(ours.iter().filter_map(|m| m.label.as_ref()));
    let lines = ours.iter().map(|m| line(m, newest)).collect::<Vec<_>>().join("\n");
    let volumes = volumes.unwrap_or_default();
    // Where nobody named members, all that could be found are wiped.
    let left = async || match left_without(env, name, &ours).await {
        Left::Others if !named => Left::Nothing,
        left => left,
    };
    let words = match left().await {
        Left::Whole => format!(
            "This wipes what group '{name}' seems to go on without: copies of members that the configuration has elsewhere, or former \
             members. If they lead to the same devices, it destroys the group with all data in its volumes {volumes}:\n{lines}"
        ),
        Left::Others => format!(
            "This wipes members of group '{name}': what only they hold of its volumes {volumes} is lost. Other members keep what they have, \
             if they are other devices:\n{lines}"
        ),
        Left::Nothing => format!("This destroys group '{name}' with all data in its volumes {volumes}:\n{lines}"),
    };
    if let Some(question) = consent.covers(Question { words, about })? {
        return Ok(Looked::Asks(question));
    }
    let groups = ours.iter().filter_map(|m| m.label.as_ref()).map(|l| config::uuid_text(&l.group)).collect();
    let mut wiped = Vec::new();
    for m in &ours {
        let done = bimetal_volume::probe::wipe(&m.device).await;
        done.with_context(|| cut_off(m, &wiped))?;
        wiped.push(m.locator.to_string());
    }
    let left = left().await;
    let mut absent = found.absent;
    absent.extend(found.strangers.into_iter().filter(|s| !s.is_member).map(|s| s.why));
    absent.extend(unlabelled.iter().map(members::Opened::bare_words));
    Ok(Looked::Done(Wiped { members: wiped, groups, absent, left }))
}

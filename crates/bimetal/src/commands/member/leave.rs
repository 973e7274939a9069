//! `bimetal member evacuate` and `bimetal member remove`.

use anyhow::{bail, Context, Result};
use serde_json::json;

use super::{change, find, members_of, named, places, watch};
use crate::api::{self, MemberChange};
use crate::cli::{MemberEvacuate, MemberRemove};
use crate::daemon::Done;
use crate::output::{confirm, Output};
use crate::size::approx;

pub(super) fn evacuate(args: &MemberEvacuate, output: Output) -> Result<()> {
    let group = args.group.as_str();
    let m = find(&members_of(group)?, group, &args.member)?;
    if args.cancel {
        return keep(group, &m, output);
    }
    let done = begin(group, &m, args.dry_run)?;
    let (used, room) = (done.used.unwrap_or(0), done.room.unwrap_or(0));
    let watched = !args.dry_run && !args.no_wait;
    if watched {
        watch::until_empty(group, &m, output)?;
    }
    let (what, left) = match (args.dry_run, watched) {
        (true, _) => ("planned", used),
        (false, false) => ("leaving", used),
        (false, true) => ("evacuated", 0),
    };
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "change": what, "member": m.index, "locator": m.locator,
        "used_bytes": left, "room_bytes": room,
    });
    output.show(&answer, || {
        let (name, used, room) = (named(&m), approx(used), approx(room));
        match what {
            "planned" => format!("{used} of {name} would go to other members, and fit there. Volumes of the group can grow by {room} without it. Nothing was changed."),
            "leaving" => format!("{name} is leaving: {used} go to other members. `bimetal member list {group}` shows how much is left, `bimetal member remove {group} {}` takes it out.", m.index),
            _ => format!("{name} is empty. `bimetal member remove {group} {}` takes it out, `bimetal member evacuate {group} {} --cancel` keeps it.", m.index, m.index),
        }
    })
}

/// A member that was to leave stays.
fn keep(group: &str, m: &api::Member, output: Output) -> Result<()> {
    if !m.is_leaving() {
        bail!("{} is not leaving; there is nothing to cancel", named(m));
    }
    change(group, places(m), MemberChange::Keep { member: m.index }).with_context(|| named(m))?;
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "change": "kept", "member": m.index, "locator": m.locator,
    });
    output.show(&answer, || format!("{} stays in group '{group}', and takes data again.", named(m)))
}

/// Marks a member as leaving, or says what that would come to.
fn begin(group: &str, m: &api::Member, dry_run: bool) -> Result<Done> {
    change(group, places(m), MemberChange::Evacuate { member: m.index, dry_run }).with_context(|| named(m))
}

pub(super) fn remove(args: &MemberRemove, output: Output) -> Result<()> {
    let group = args.group.as_str();
    let m = find(&members_of(group)?, group, &args.member)?;
    confirm(&question(group, &m), args.yes)?;
    let gone = take_out(group, &m, output)?;
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "change": "removed", "member": m.index, "locator": m.locator,
        "erased": gone.not_erased.is_none(), "not_erased": gone.not_erased, "not_free": gone.not_free,
    });
    output.show(&answer, || words(group, &m, &gone))
}

pub(super) fn question(group: &str, m: &api::Member) -> String {
    let (name, used) = (named(m), approx(m.used_bytes()));
    format!("{name} leaves group '{group}': {used} on it go to other members, then its label is erased.")
}

/// Empties a member and takes it out.
pub(super) fn take_out(group: &str, m: &api::Member, output: Output) -> Result<Done> {
    begin(group, m, false)?;
    watch::until_empty(group, m, output)?;
    change(group, places(m), MemberChange::Remove { member: m.index }).with_context(|| named(m))
}

/// What has become of a member that was taken out.
pub(super) fn words(group: &str, m: &api::Member, gone: &Done) -> String {
    let device = m.locator.clone().unwrap_or_else(|| "its device".into());
    let left = format!("{} has left group '{group}'", named(m));
    match (&gone.not_erased, &gone.not_free) {
        (None, None) => format!("{left}: {device} is free now."),
        (None, Some(instead)) => format!("{left}. {instead}."),
        (Some(why), None) => format!(
            "{left}, but its label could not be erased: {why}. The group does not take it back by itself, and `bimetal create --force` \
             may use it. To erase it, write zeros over {device} when it works again (`blkdiscard --zeroout`)."
        ),
        (Some(why), Some(instead)) => format!(
            "{left}, but its label could not be erased: {why}. The group does not take it back by itself. {instead}."
        ),
    }
}

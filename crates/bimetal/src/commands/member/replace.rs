//! `bimetal member replace`: a new member comes, an old one leaves. A step may be found done already: the command was
//! interrupted, and goes on.

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, Locator};
use bimetal_volume::units::Tier;
use serde_json::json;

use super::{add, before, find, leave, lookup, named, room, rows_of, Rows};
use crate::cli::MemberReplace;
use crate::config::uuid_text;
use crate::output::{confirm, Output};
use crate::{api, members};

pub(super) fn run(args: &MemberReplace, output: Output) -> Result<()> {
    let group = args.group.as_str();
    let rows = rows_of(group)?;
    let all = &rows.members;
    let new = members::parse(&args.new)?;
    let at_new = lookup(all, &new.to_string());
    let old = match (lookup(all, &args.old).as_slice(), at_new.first()) {
        ([], Some(there)) => {
            refuse_unfound(all, args, there)?;
            return nothing_left(&rows, group, &args.old, there, output);
        }
        _ => find(all, group, &args.old)?,
    };
    // Both may be of one name, where the file of the old one was removed.
    let another = at_new.iter().find(|m| m.uuid != old.uuid);
    let (index, not_noted) = match another.or(at_new.first()) {
        Some(there) => (Some(go_on(args, &old, there, output)?), None),
        None => bring(args, &rows, &old, &new, output)?,
    };
    let gone = leave::take_out(group, &old, output).with_context(|| {
        let name = named(&old);
        format!("{new} is a member of group '{group}' now, but {name} has not left it yet; the same command goes on")
    })?;
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "change": "replaced", "member": index, "locator": new.to_string(),
        "removed": old.index, "removed_locator": old.locator,
        "erased": gone.not_erased.is_none(), "not_erased": gone.not_erased, "not_free": gone.not_free, "not_noted": not_noted,
    });
    output.show(&answer, || leave::words(group, &old, &gone))
}

/// Who is told that nothing is left to do wipes the old device. A member that was not found may be the one, and so may one that has
/// another name now.
fn refuse_unfound(all: &[api::Member], args: &MemberReplace, there: &api::Member) -> Result<()> {
    let (group, old, new) = (&args.group, &args.old, &args.new);
    if let Some(m) = all.iter().find(|m| m.locator.is_none()) {
        let (name, index) = (named(m), m.index);
        bail!(
            "{} is in group '{group}', and no member was found at {old}; but {name} was not found anywhere: it may be the one \
             that is meant, and hold data. When it is back: bimetal member replace {group} {index} {new}",
            named(there)
        );
    }
    match carried_by(all, old)? {
        Some(m) => bail!("{old} is {}: bimetal member replace {group} {} {new}", named(&m), m.index),
        None => Ok(()),
    }
}

/// The member whose label a device carries.
fn carried_by(all: &[api::Member], text: &str) -> Result<Option<api::Member>> {
    let Ok(at) = members::parse(text) else { return Ok(None) };
    let all = all.to_vec();
    add::with_env(|env| async move {
        // One that is not there is no member, as all were found.
        let Ok(device) = HostDevice::open(&env, &at, Access::PEEK).await else { return Ok(None) };
        let label = members::read_label(&device).await?;
        let uuid = label.ok().map(|label| uuid_text(&members::own_uuid(&label)));
        Ok(all.into_iter().find(|m| uuid.as_ref() == Some(&m.uuid)))
    })
}

/// Both steps were made before.
fn nothing_left(rows: &Rows, group: &str, old: &str, there: &api::Member, output: Output) -> Result<()> {
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "change": "none", "member": there.index, "locator": there.locator,
    });
    output.show(&answer, || {
        let members: Vec<String> = rows.members.iter().map(named).collect();
        format!(
            "{} is in group '{group}', and {old} is not (any more): there is nothing left to do, if that is the one that was meant. \
             The members are {}.",
            named(there),
            members.join(", ")
        )
    })
}

/// The new member is there. Its index.
fn go_on(args: &MemberReplace, old: &api::Member, there: &api::Member, output: Output) -> Result<u8> {
    let group = args.group.as_str();
    if there.uuid == old.uuid {
        bail!(
            "{} cannot take its own place. Is this a new file, of the name of one that was removed? Then add it (bimetal member add {group} \
             --{} {}), and bimetal member remove {group} {}",
            named(old),
            old.tier,
            args.new,
            old.index
        );
    }
    if there.tier != old.tier || there.is_leaving() {
        bail!("{} is {} in group '{group}', and cannot take the place of {}", named(there), there.state, named(old));
    }
    if !old.is_leaving() {
        confirm(&leave::question(group, old), args.yes)?;
    }
    tell(&format!("{} is in group '{group}' already: going on with {}.", named(there), named(old)), output);
    Ok(there.index)
}

/// Adds the new member; its index, and why it is written down nowhere, if it is not.
fn bring(
    args: &MemberReplace,
    rows: &Rows,
    old: &api::Member,
    new: &Locator,
    output: Output,
) -> Result<(Option<u8>, Option<String>)> {
    let group = args.group.as_str();
    let tier = if old.tier == Tier::Fast.to_string() { Tier::Fast } else { Tier::Slow };
    let looked = add::look_at(group, new, args.force)?;
    room::refuse_small(rows, old, new, looked.size)?;
    let before = before::held_in(rows, group, new);
    let questions = [add::question(new, tier, &looked, before.as_ref()), Some(leave::question(group, old))];
    confirm(&questions.into_iter().flatten().collect::<Vec<_>>().join("\n"), args.yes)?;
    let done = add::add(group, new, tier, args.force)?;
    tell(&add::came(group, new, tier, &done), output);
    if let Some(before) = before {
        tell(&before.answer(new), output);
    }
    if let Some(why) = &done.not_noted {
        tell(why, output);
    }
    Ok((done.member.map(|m| m.index), done.not_noted))
}

/// A step that is done.
fn tell(line: &str, output: Output) {
    if !output.json {
        crate::output::tell(line);
    }
}

//! `bimetal dump`: everything that is written on the members of an idle group, in words or as a file.

use std::path::Path;

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostEnv, Locator, Reactor};
use bimetal_volume::inspect::{dump, DumpOptions, Node, Value};
use serde_json::json;

use crate::cli::Dump;
use crate::output::Output;
use crate::saved::{self, OneSaved, Saved, Secret};
use crate::size::approx;
use crate::{api, members, runstate};

pub(crate) fn run(args: Dump, output: Output) -> Result<()> {
    let explicit = members::parse_all(&args.members)?;
    // Members that are named may be copies.
    if let Some(group) = args.group.as_deref().filter(|_| explicit.is_empty()) {
        runstate::refuse_served(group)?;
    }
    let reactor = Reactor::new()?;
    let env = reactor.env();
    if let Some(file) = args.save {
        let done = reactor.block_on(async move { save(&env, args.group.as_deref(), &explicit, &file).await });
        let (done, absent) = done?;
        return output.show(&saved_json(&done, &absent), || saved_words(&done, &absent));
    }
    let tree = reactor.block_on(async move {
        let found = members::open(&env, args.group.as_deref(), &explicit, Access::INSPECT).await?;
        let what = DumpOptions { entries: true, records: true };
        dump(env, found.devices(), what).await.with_context(|| found.cannot("shown"))
    })?;
    output.show(&node_json(&tree), || tree.to_text())
}

fn node_json(node: &Node) -> serde_json::Value {
    node.0.iter().map(|(name, value)| (name.clone(), value_json(value))).collect()
}

fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Number(n) => (*n).into(),
        // JSON numbers lose bits in many readers.
        Value::Hex(n) => format!("{n:#x}").into(),
        Value::Text(t) => t.clone().into(),
        Value::Bool(b) => (*b).into(),
        Value::Node(n) => node_json(n),
        Value::List(l) => l.iter().map(value_json).collect(),
    }
}

/// Saves the members that are there; also why others are not.
async fn save(env: &HostEnv, name: Option<&str>, explicit: &[Locator], file: &Path) -> Result<(Saved, Vec<String>)> {
    let found = members::open(env, name, explicit, Access::INSPECT).await?;
    let labels = found.opened.iter().filter_map(|m| m.label.as_ref().map(|l| (&m.locator, &l.group_name)));
    if let Some((at, other)) = labels.into_iter().find(|(_, group)| name.is_some_and(|name| name != *group)) {
        bail!("{at} is a member of another group, named '{other}'; nothing was saved");
    }
    Ok((saved::save(env, &found.opened, file).await?, found.absent))
}

fn saved_json(s: &Saved, absent: &[String]) -> serde_json::Value {
    let member = |m: &OneSaved| {
        let unreadable = m.unreadable_blocks;
        json!({ "index": m.index, "uuid": m.uuid, "locator": m.locator, "unreadable_blocks": unreadable })
    };
    json!({
        "schema": api::SCHEMA, "group": s.group, "uuid": s.uuid, "file": s.file, "file_bytes": s.file_bytes, "saved_at": s.at,
        "members": s.members.iter().map(member).collect::<Vec<_>>(), "not_saved": s.not_saved, "missing": s.missing,
        "absent": absent, "has_headers": s.secret == Secret::Headers,
    })
}

fn saved_words(s: &Saved, absent: &[String]) -> String {
    let devices: Vec<&str> = s.members.iter().map(|m| m.locator.as_str()).collect();
    let mut text = format!(
        "The metadata of group '{}' is in {} ({}), from {}. It fits until the group is used the next time.\n",
        s.group,
        s.file.display(),
        approx(s.file_bytes),
        devices.join(", ")
    );
    if s.secret == Secret::Headers {
        text += "It has the headers of the encrypted volumes: keep it as safe as a key.\n";
    }
    for m in s.members.iter().filter(|m| m.unreadable_blocks > 0) {
        text += &format!("UNREADABLE: {} blocks of 4 KiB of {} are not in it.\n", m.unreadable_blocks, m.locator);
    }
    for line in &s.not_saved {
        text += &format!("NOT SAVED: {line}.\n");
    }
    let why = if absent.is_empty() { String::new() } else { format!(" ({})", absent.join("; ")) };
    if !s.missing.is_empty() {
        text += &format!("MISSING: {} is not in it{why}.\n", s.missing.join(", "));
    }
    text
}

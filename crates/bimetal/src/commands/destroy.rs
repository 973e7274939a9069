//! `bimetal destroy`: wipes the labels of a group's members and forgets it.

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{Locator, Reactor};
use bimetal_volume::env::Device;
use serde_json::json;

use crate::cli::Destroy;
use crate::output::{confirm, Output};
use crate::size::approx;
use crate::{api, config, members, runstate};

pub(crate) fn run(args: Destroy, output: Output) -> Result<()> {
    let name = args.group.clone();
    runstate::refuse_served(&name)?;
    let _lock = runstate::lock(&name)?;
    let explicit = members::parse_all(&args.members)?;
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let (group, yes) = (name.clone(), args.yes);
    let wiped = reactor.block_on(async move {
        let found = members::open(&env, Some(&group), &explicit, Access::SERVE).await?;
        wipe(&group, found, yes).await
    })?;
    config::remove(&name)?;
    let answer =
        json!({ "schema": api::SCHEMA, "group": name, "destroyed": true, "wiped": wiped.0, "absent": wiped.1 });
    output.show(&answer, || {
        let mut text = format!("Group '{name}' is destroyed; wiped: {}.\n", wiped.0.join(", "));
        for absent in &wiped.1 {
            text += &format!("Not wiped: {absent}.\n");
        }
        text
    })
}

/// Wipes the labels of all members; returns the wiped ones and those that were absent.
async fn wipe(name: &str, found: members::Members, yes: bool) -> Result<(Vec<String>, Vec<String>)> {
    let stranger = found.opened.iter().find(|m| m.label.as_ref().is_some_and(|l| l.group_name != name));
    if let Some(m) = stranger {
        bail!("{} is not a member of '{name}' but of another group; nothing was changed", m.locator);
    }
    let (ours, unlabelled): (Vec<_>, Vec<_>) = found.opened.into_iter().partition(|m| m.label.is_some());
    if ours.is_empty() {
        bail!("no member of group '{name}' was found; nothing was changed");
    }
    let volumes = ours.iter().filter_map(|m| m.label.as_ref()).max_by_key(|l| (l.tables, l.generation)).map(|l| {
        let of_volume = |v: &bimetal_format::label::VolumeRow| format!("{} ({})", v.name, approx(v.size));
        l.living_volumes().map(of_volume).collect::<Vec<_>>().join(", ")
    });
    let lines: Vec<String> = ours.iter().map(|m| format!("  {} ({})", m.locator, approx(m.device.size()))).collect();
    let question = format!(
        "This destroys group '{name}' with all data in its volumes {}:\n{}",
        volumes.unwrap_or_default(),
        lines.join("\n")
    );
    confirm(&question, yes)?;
    let mut wiped = Vec::new();
    for m in &ours {
        let done = bimetal_volume::probe::wipe(&m.device).await;
        done.with_context(|| format!("{} could not be wiped", m.locator))?;
        wiped.push(m.locator.to_string());
    }
    let mut absent = found.absent;
    let unlabelled = unlabelled.iter().map(|m: &members::Opened| &m.locator).map(Locator::to_string);
    absent.extend(unlabelled.map(|l| format!("{l} carries no sound Bimetal label")));
    Ok((wiped, absent))
}

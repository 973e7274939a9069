//! `bimetal check`: verifies a group that is not being served, and writes nothing.

use std::process::ExitCode;

use anyhow::{Context, Result};
use bimetal_host::device::Access;
use bimetal_host::Reactor;
use bimetal_volume::inspect::{check, Report};
use serde_json::json;

use crate::cli::Check;
use crate::output::Output;
use crate::size::approx;
use crate::{api, members, runstate};

pub(crate) fn run(args: Check, output: Output) -> Result<ExitCode> {
    let explicit = members::parse_all(&args.members)?;
    // Members that are named may be copies.
    if let Some(group) = args.group.as_deref().filter(|_| explicit.is_empty()) {
        runstate::refuse_served(group)?;
    }
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let (report, absent, strangers) = reactor.block_on(async move {
        let found = members::open(&env, args.group.as_deref(), &explicit, Access::INSPECT).await?;
        let report = check(env, found.devices()).await.with_context(|| found.cannot("verified"))?;
        let strangers: Vec<String> = found.strangers.into_iter().map(|s| s.why).collect();
        anyhow::Ok((report, found.absent, strangers))
    })?;
    output.show(&json(&report, &absent, &strangers), || words(&report, &absent, &strangers))?;
    let sound = report.is_sound() && absent.is_empty();
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn json(r: &Report, absent: &[String], strangers: &[String]) -> serde_json::Value {
    json!({
        "schema": api::SCHEMA, "group": r.name, "sound": r.is_sound() && absent.is_empty(), "clean": r.clean,
        "problems": r.problems.iter()
            .map(|p| json!({"member": p.member, "what": p.what, "serious": p.serious})).collect::<Vec<_>>(),
        "absent": absent, "no_members": strangers, "pages_verified": r.pages, "records_to_replay": r.records, "chunks": r.chunks,
        "kept_chunks": r.kept, "deleting": r.deleting,
        "slots": r.slots.iter().map(|(m, used, free)| json!({"member": m, "used": used, "free": free})).collect::<Vec<_>>(),
        "writes": r.writes,
    })
}

fn words(r: &Report, absent: &[String], strangers: &[String]) -> String {
    const SLOT: u64 = bimetal_volume::units::CHUNK;
    let stopped = if r.clean { "it was stopped in order" } else { "it was not stopped in order" };
    let mut text = format!(
        "Group '{}': {stopped}; {} map pages verified, {} chunks have a home, {} journal records will be replayed.\n",
        r.name, r.pages, r.chunks, r.records
    );
    for (member, used, free) in &r.slots {
        text += &format!("  member {member}: {} used, {} free\n", approx(used * SLOT), approx(free * SLOT));
    }
    if r.kept > 0 {
        let kept = approx(r.kept * SLOT);
        text += &format!("  {kept} of the slow tier are places kept for chunks that are on the fast tier now\n");
    }
    for name in &r.deleting {
        text += &format!("  volume {name} is deleted; the next start goes on to free its space\n");
    }
    for line in absent {
        text += &format!("  MISSING: {line}\n");
    }
    for line in strangers {
        text += &format!(
            "  {line}; no member is there, though the configuration names it: the next start strikes it out\n"
        );
    }
    for p in &r.problems {
        let place = p.member.map_or(String::new(), |m| format!("member {m}: "));
        let weight = if p.serious { "SERIOUS" } else { "mended at the next start" };
        text += &format!("  {place}{} ({weight})\n", p.what);
    }
    text += &match (r.is_sound() && absent.is_empty(), r.writes) {
        (true, 0) => "Everything is in order. Nothing was written.\n".to_string(),
        (false, 0) => match r.problems.len() + absent.len() {
            1 => "1 problem was found. Nothing was written.\n".to_string(),
            n => format!("{n} problems were found. Nothing was written.\n"),
        },
        (_, n) => format!("{n} WRITES WERE SENT: that is a bug, please report it.\n"),
    };
    text
}

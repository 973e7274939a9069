//! What there is: families, and passphrases without what they are.

use anyhow::Result;
use bimetal_host::device::Access;
use bimetal_host::luks::{Luks, Priority, SlotInfo};
use bimetal_volume::options::OpenOptions;
use serde_json::json;

use super::Visit;
use crate::api::{self, Family, Status};
use crate::cli::FamilyTarget;
use crate::commands::volume::with_group;
use crate::daemon;
use crate::output::{table, Output};
use crate::runstate;

pub(super) fn list(group: &str, output: Output) -> Result<()> {
    let all = families(group)?;
    output.show(&json!({ "schema": api::SCHEMA, "group": group, "families": all }), || {
        if all.is_empty() {
            return format!("Group '{group}' has no families; make one: bimetal family create {group}/NAME");
        }
        let row = |f: &Family| {
            let state = if f.unlocked { "unlocked" } else { "locked" };
            let volumes = if f.volumes.is_empty() { "-".into() } else { f.volumes.join(", ") };
            vec![f.name.clone(), state.into(), volumes, f.uuid.clone()]
        };
        table(&["FAMILY", "STATE", "VOLUMES", "UUID"], &all.iter().map(row).collect::<Vec<_>>(), &[])
    })
}

/// The families of a group, served or not.
fn families(group: &str) -> Result<Vec<Family>> {
    if let Some(daemon) = runstate::daemon(group)? {
        return Ok(daemon.get::<Status>("/v1/status")?.families);
    }
    let options = OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() };
    with_group(group, Access::INSPECT, options, |_, open, _| async move { Ok(daemon::families(&open.status())) })
}

pub(super) fn slots(target: &FamilyTarget, output: Output) -> Result<()> {
    let luks = Luks::load()?;
    let visit = Visit::begin(&target.group)?;
    visit.needs(&target.family)?;
    let slots = luks.slots(&visit.whole_header(&target.family)?)?;
    let json: Vec<_> = slots.iter().map(json_of).collect();
    let answer = json!({
        "schema": api::SCHEMA, "group": target.group, "family": target.family, "slots": json,
    });
    output.show(&answer, || {
        let row = |s: &SlotInfo| {
            let memory = s.memory_kib.map_or("-".into(), |kib| crate::size::approx(u64::from(kib) << 10));
            vec![s.number.to_string(), kind(s).into(), s.pbkdf.clone(), memory, s.iterations.to_string()]
        };
        if slots.is_empty() {
            return format!("Nothing opens family {target}: it has no passphrase.");
        }
        table(
            &["SLOT", "WHAT", "DERIVED BY", "MEMORY", "TIMES"],
            &slots.iter().map(row).collect::<Vec<_>>(),
            &[0, 3, 4],
        )
    })
}

fn json_of(s: &SlotInfo) -> serde_json::Value {
    json!({
        "slot": s.number, "what": kind(s), "opens": s.is_tried(), "derived_by": s.pbkdf, "memory_kib": s.memory_kib,
        "iterations": s.iterations, "token": s.token,
    })
}

/// What a slot is for, in words.
fn kind(s: &SlotInfo) -> &'static str {
    match s.token.as_deref() {
        _ if !s.opens => "another key, which opens nothing",
        _ if s.priority == Priority::Ignore => "set aside by another tool",
        _ if s.is_recovery_key() => "recovery key",
        Some("systemd-tpm2") => "security chip (TPM2)",
        Some("systemd-fido2") => "security token (FIDO2)",
        Some("systemd-pkcs11") => "smart card (PKCS#11)",
        Some(_) => "of another tool",
        None => "passphrase",
    }
}

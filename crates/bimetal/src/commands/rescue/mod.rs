//! `bimetal rescue`: with a member missing, what is lost of each volume, what may be old, and which files that hits.

mod ask;
mod files;
mod map;
mod place;
mod words;

use anyhow::{bail, Result};
use serde_json::json;

use self::ask::{State, VolumeState};
use crate::api::{self, Fate};
use crate::cli::Rescue;
use crate::members;
use crate::output::Output;
pub(crate) use words::lost_families;

pub(crate) fn run(args: Rescue, output: Output) -> Result<()> {
    let group = &args.target.group;
    let state = ask::state(group, &members::parse_all(&args.members)?)?;
    let chosen = chosen(&state, args.target.volume.as_deref())?;
    let mapped = args.map.as_deref().map(|path| anyhow::Ok((path, only(group, &chosen, "--map")?))).transpose()?;
    if let Some((path, _)) = mapped {
        map::refuse_taken(path)?;
    }
    let hit = match &args.files {
        None => None,
        Some(folder) => {
            let place = place::of(group, folder, &state)?;
            let volume = chosen.iter().find(|v| v.name == place.volume);
            let Some(volume) = volume else {
                bail!("'{}' is volume '{}', which is not the one asked about", folder.display(), place.volume)
            };
            Some(files::walk(&place, volume)?)
        }
    };
    // When nothing can be refused any more: a second try would find the map of the first in its way.
    if let Some((path, volume)) = mapped {
        map::write(path, group, volume, args.stale)?;
    }
    let document = json!({
        "schema": api::SCHEMA, "group": group, "served": state.served, "missing": state.missing,
        "findings": state.findings, "lost_families": api::lost_families(&state.lost_families),
        "volumes": chosen.iter().map(|v| json(v)).collect::<Vec<_>>(),
        "files": hit.as_ref().map(files::Report::json),
    });
    output.show(&document, || words::all(group, &state, &chosen, &args, hit.as_ref()))
}

/// The volumes asked about.
fn chosen<'a>(state: &'a State, name: Option<&str>) -> Result<Vec<&'a VolumeState>> {
    let chosen: Vec<&VolumeState> = state.volumes.iter().filter(|v| name.is_none_or(|n| n == v.name)).collect();
    match (name, chosen.len()) {
        (Some(name), 0) => bail!("there is no volume '{name}'"),
        _ => Ok(chosen),
    }
}

/// The only one of them.
fn only<'a>(group: &str, chosen: &[&'a VolumeState], why: &str) -> Result<&'a VolumeState> {
    match chosen {
        [one] => Ok(one),
        _ => bail!("{why} is about one volume: name it, {group}/VOLUME"),
    }
}

fn json(v: &VolumeState) -> serde_json::Value {
    let sums = v.sums();
    json!({
        "name": v.name, "size_bytes": v.size,
        "never_written_bytes": sums[Fate::NeverWritten as usize], "whole_bytes": sums[Fate::Whole as usize],
        "possibly_stale_bytes": sums[Fate::PossiblyStale as usize],
        "kept_copy_bytes": sums[Fate::KeptCopy as usize],
        "perhaps_lost_bytes": sums[Fate::PerhapsLost as usize], "lost_bytes": sums[Fate::Lost as usize],
        "runs": v.runs,
    })
}

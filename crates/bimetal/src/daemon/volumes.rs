//! Changes of the volumes of a served group: the engine's, and what follows for the ways.

use std::time::Duration;

use bimetal_host::HostEnv;
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::group::Group;
use bimetal_volume::options::{NewVolume, Uuid};
use bimetal_volume::units::{self, CHUNK};

use super::jobs::{Done, Outcome};
use super::ways::Ways;
use crate::api::{Placement, VolumeChange};
use crate::log;

/// The kernel tells of a file or a connection that was closed a little later.
const CLOSING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Carries a change out.
pub(super) async fn change(group: &Group<HostEnv>, ways: &Ways, change: VolumeChange) -> Outcome {
    if let Some(why) = refusal(group, ways, &change).await {
        return Err(why);
    }
    // Of the volume that has the name now: when the engine is done it may be another's.
    let uuid = group.volume(change.name()).map(|v| v.uuid());
    let changed = engine(group, &change).await;
    follow(group, ways, &change, uuid, changed.is_ok()).await;
    let done = changed?;
    log::info(&told(&change, done.size));
    Ok(done)
}

/// What follows for the ways. A deletion that failed half-way has made the volume unusable all the same.
async fn follow(group: &Group<HostEnv>, ways: &Ways, change: &VolumeChange, uuid: Option<Uuid>, done: bool) {
    match (change, uuid) {
        (VolumeChange::Create { name, .. }, _) if done => ways.add(group, name),
        (VolumeChange::Rename { new_name, .. }, Some(uuid)) if done => ways.rename(&uuid, new_name),
        (VolumeChange::Delete { name, .. }, Some(uuid)) if done || !is_there(group, &uuid) => {
            ways.remove(&uuid, name).await;
        }
        _ => {}
    }
}

fn is_there(group: &Group<HostEnv>, uuid: &Uuid) -> bool {
    group.volume_names().iter().filter_map(|name| group.volume(name)).any(|v| v.uuid() == *uuid)
}

/// The engine's part of a change; the size that the volume has after it, if it has a new one.
pub(crate) async fn engine(group: &Group<HostEnv>, change: &VolumeChange) -> Outcome {
    let result = match change {
        VolumeChange::Create { name, size_bytes, placement } => {
            let placement = placement_of(*placement);
            let new = NewVolume { name: name.clone(), size: *size_bytes, placement };
            group.create_volume(&new).await.map(Some)
        }
        VolumeChange::Resize { name, size_bytes, .. } => group.resize_volume(name, *size_bytes).await.map(Some),
        VolumeChange::Rename { name, new_name } => group.rename_volume(name, new_name).await.map(|()| None),
        VolumeChange::Delete { name, .. } => group.delete_volume(name).await.map(|()| None),
    };
    result.map(|size| Done { size, ..Done::default() }).map_err(|e| e.to_string())
}

fn placement_of(placement: Placement) -> units::Placement {
    match placement {
        Placement::Auto => units::Placement::Auto,
        Placement::FastOnly => units::Placement::FastOnly,
        Placement::SlowOnly => units::Placement::SlowOnly,
    }
}

/// What is taken from under clients needs their consent, or force.
async fn refusal(group: &Group<HostEnv>, ways: &Ways, change: &VolumeChange) -> Option<String> {
    let (name, what) = match change {
        VolumeChange::Delete { name, force: false } => (name, "deleting it takes away what they use"),
        VolumeChange::Resize { name, size_bytes, force: false } => {
            let shrinks = group.volume(name).is_some_and(|v| size_bytes / CHUNK * CHUNK < v.size());
            (shrinks.then_some(name)?, "they go on with the size that it had")
        }
        _ => return None,
    };
    let uuid = group.volume(name)?.uuid();
    let end = ways.env.now().plus(CLOSING);
    let users = loop {
        let users = ways.users_of(&uuid)?;
        if ways.env.now() >= end {
            break users;
        }
        ways.env.sleep(LOOK_AGAIN).await;
    };
    Some(format!("volume '{name}' is in use: {users}, and {what}; end them first, or add --force"))
}

fn told(change: &VolumeChange, size: Option<u64>) -> String {
    let size = size.map(crate::size::approx).unwrap_or_default();
    match change {
        VolumeChange::Create { name, .. } => format!("volume '{name}' is made ({size})"),
        VolumeChange::Resize { name, .. } => format!("volume '{name}' has {size} now"),
        VolumeChange::Rename { name, new_name } => format!("volume '{name}' is named '{new_name}' now"),
        VolumeChange::Delete { name, .. } => format!("volume '{name}' is deleted"),
    }
}

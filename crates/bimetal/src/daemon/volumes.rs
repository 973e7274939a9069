//! Changes of the volumes of a served group: the engine's, and what follows for the ways.

use bimetal_host::HostEnv;
use bimetal_volume::backend::Backend;
use bimetal_volume::group::Group;
use bimetal_volume::options::NewVolume;
use bimetal_volume::units::{self, CHUNK};

use super::jobs::{Done, Outcome};
use super::ways::Ways;
use crate::api::{Placement, VolumeChange};
use crate::log;

/// Carries a change out.
pub(super) async fn change(group: &Group<HostEnv>, ways: &Ways, change: VolumeChange) -> Outcome {
    if let Some(why) = refusal(group, ways, &change) {
        return Err(why);
    }
    let done = engine(group, &change).await?;
    match &change {
        VolumeChange::Create { name, .. } => ways.add(group, name),
        VolumeChange::Rename { name, new_name } => ways.rename(name, new_name),
        VolumeChange::Delete { name, .. } => ways.remove(name).await,
        VolumeChange::Resize { .. } => {}
    }
    log::info(&told(&change, done.size));
    Ok(done)
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
fn refusal(group: &Group<HostEnv>, ways: &Ways, change: &VolumeChange) -> Option<String> {
    let (name, what) = match change {
        VolumeChange::Delete { name, force: false } => (name, "deleting it takes away what they use"),
        VolumeChange::Resize { name, size_bytes, force: false } => {
            let shrinks = group.volume(name).is_some_and(|v| size_bytes / CHUNK * CHUNK < v.size());
            (shrinks.then_some(name)?, "they go on with the size that it had")
        }
        _ => return None,
    };
    let users = ways.users_of(name)?;
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

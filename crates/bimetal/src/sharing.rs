//! Devices that share bytes with others: a disk with its partitions, a partition with its disk. The label of a group may be on
//! either, and whoever takes the other destroys that group: the kernel goes on showing partitions of a table that was erased, and a
//! partition outlives its table.

use std::path::Path;

use bimetal_format::label::LabelError;
use bimetal_host::device::Access;
use bimetal_host::probe::neighbours::{self, Neighbour, Relation};
use bimetal_host::{HostDevice, HostEnv, Locator};

use crate::{members, restoring};

/// Whose devices share bytes with one, in words that follow its name. What cannot be read says nothing.
pub(crate) async fn told(env: &HostEnv, locator: &Locator) -> Vec<String> {
    let Some(path) = locator.path().map(Path::to_owned) else { return Vec::new() };
    let found = env.blocking(move || neighbours::of(&path)).await.unwrap_or_default();
    let mut told = Vec::new();
    for neighbour in found {
        told.extend(told_by(env, &neighbour).await);
    }
    told
}

async fn told_by(env: &HostEnv, neighbour: &Neighbour) -> Option<String> {
    let locator = Locator::Path(neighbour.path.clone());
    let device = HostDevice::open(env, &locator, Access::PEEK).await.ok()?;
    let carries = match members::read_label(&device).await.ok()? {
        Ok(label) => format!("carries a label of the Bimetal group '{}'", label.group_name),
        Err(why) => match restoring::told(env, &device).await {
            Some(restoring) => format!("is {restoring}"),
            None if is_none(&why, neighbour.relation) => return None,
            None => format!("carries a Bimetal label, but {why}"),
        },
    };
    Some(match neighbour.relation {
        Relation::Partition => format!("has a partition {locator}, which {carries}"),
        Relation::Whole => format!("is a part of {locator}, which {carries}"),
        Relation::Overlaps => format!("overlaps the partition {locator}, which {carries}"),
    })
}

/// Whether there is no label for all that this says.
fn is_none(why: &LabelError, relation: Relation) -> bool {
    match why {
        LabelError::NotALabel => true,
        // The second label of the last partition stands where that of the disk would, and its checksum is that of its own place.
        LabelError::Checksum => relation != Relation::Partition,
        _ => false,
    }
}

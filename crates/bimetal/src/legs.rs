//! Legs of mirrors. A RAID that keeps what it is recognised by at the end of its disks has its data at their beginning: where an array
//! is a member, each of its disks carries that member's label, too. While the array is not assembled nothing holds them; and who
//! takes one for the member writes to it behind the back of the array, whose legs differ then.
//!
//! That a device is larger than its label says tells nothing: members may have grown.

use std::path::Path;

use bimetal_host::device::Access;
use bimetal_host::probe::neighbours::{self, Relation};
use bimetal_host::{probe, HostDevice, HostEnv, Locator};

/// Why a device that carries a label, and that nobody has named, is not taken for the member. What cannot be read is no leg.
pub(crate) async fn why_not(env: &HostEnv, locator: &Locator) -> Option<String> {
    let (which, what) = match mirror(env, locator).await {
        Some(what) => ("it".to_string(), what),
        None => {
            mirror_below(env, locator).await.map(|(disk, what)| (format!("{disk}, which it is a part of,"), what))?
        }
    };
    Some(format!(
        "{locator} carries the label of a member, but {which} is {what} by what is at its end: what is written to one disk of a RAID, \
         the others do not have. Assemble the RAID (`mdadm --assemble --scan` for one of MD), and the member is found there. If there is \
         none any more, name this device with --member"
    ))
}

async fn mirror(env: &HostEnv, locator: &Locator) -> Option<&'static str> {
    let device = HostDevice::open(env, locator, Access::PEEK).await.ok()?;
    probe::mirror(&device).await.ok()?
}

/// The disk that it is a partition of may be the leg: the table is that of the array then.
async fn mirror_below(env: &HostEnv, locator: &Locator) -> Option<(String, &'static str)> {
    for disk in related(env, locator, Relation::Whole).await {
        let Some(what) = mirror(env, &disk).await else { continue };
        // The end of its last partition is that of the disk: it may be that one's.
        let mut of_partition = false;
        for partition in related(env, &disk, Relation::Partition).await {
            of_partition |= mirror(env, &partition).await.is_some();
        }
        if !of_partition {
            return Some((disk.to_string(), what));
        }
    }
    None
}

async fn related(env: &HostEnv, locator: &Locator, relation: Relation) -> Vec<Locator> {
    let Some(path) = locator.path().map(Path::to_owned) else { return Vec::new() };
    let found = env.blocking(move || neighbours::of(&path)).await.unwrap_or_default();
    found.into_iter().filter(|n| n.relation == relation).map(|n| Locator::Path(n.path)).collect()
}

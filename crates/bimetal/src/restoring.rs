//! Devices in the midst of a `restore` that was cut off. They carry no label, and yet all data of a member: the same command gives
//! it its label back.

use std::collections::BTreeSet;

use anyhow::{anyhow, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, HostEnv, Locator};
use bimetal_volume::env::Device;
use futures_util::future::join_all;

use crate::config::{self, uuid_text};
use crate::members::{self, Members};
use crate::saved::{LaidOut, Mark};
use crate::{legs, paths};

/// Of the devices that were opened as members of a group, those that say that it is in the midst of a restore. `group` is its UUID, if
/// that is known; else it is the one of the labels.
pub(crate) async fn among(found: &Members, group: Option<&str>) -> Vec<Locator> {
    let labelled = found.labelled().next().map(|(_, label)| uuid_text(&label.group));
    let group = group.map(str::to_owned).or(labelled);
    let (members, mut marked) = (laid_out(found), Vec::new());
    for m in found.opened.iter().filter(|m| m.label.is_none()) {
        let mark = Mark::of_one_of(&m.device, &members).await;
        if mark.is_some_and(|mark| group.as_ref().is_none_or(|group| uuid_text(&mark.group) == *group)) {
            marked.push(m.locator.clone());
        }
    }
    marked
}

/// What the labels that are there say of how members were laid out.
pub(crate) fn laid_out(found: &Members) -> Vec<LaidOut> {
    let rows = found.labelled().flat_map(|(_, label)| &label.members);
    rows.map(|row| (row.uuid, row.size)).collect::<BTreeSet<LaidOut>>().into_iter().collect()
}

/// What was found by the configuration of a group, with the devices in the midst of a restore. Where not all members were found these are
/// looked for on all block devices: a power cut ends a restore, and names are given anew after it.
pub(crate) async fn looked_for(env: &HostEnv, found: Result<Members>, group: &str) -> Result<Members> {
    match found {
        Ok(found) if members::is_whole(&found.opened) => Ok(found),
        Ok(mut found) => {
            found.restoring = among(&found, Some(group)).await;
            let known: Vec<String> = found.restoring.iter().map(members::identity).collect();
            let more = at_hand(env, Vec::new(), group, &laid_out(&found)).await.into_iter();
            found.restoring.extend(more.filter(|at| !known.contains(&members::identity(at))));
            Ok(found)
        }
        Err(error) => match at_hand(env, Vec::new(), group, &[]).await {
            marked if marked.is_empty() => Err(error),
            marked => {
                let marked: Vec<String> = marked.iter().map(Locator::to_string).collect();
                Err(anyhow!("{error:#}. {}", way_on(&marked, &marked)))
            }
        },
    }
}

/// Of these `others` and all block devices, those that say that the group with this UUID is in the midst of a restore; `known` is what labels
/// say of its members. One that cannot be read says nothing.
pub(crate) async fn at_hand(env: &HostEnv, others: Vec<Locator>, group: &str, known: &[LaidOut]) -> Vec<Locator> {
    let mut places = others;
    places.extend(members::block_devices().into_iter().map(Locator::Path));
    let mut seen = BTreeSet::new();
    places.retain(|place| seen.insert(members::identity(place)));
    let look = async |locator: Locator| {
        let device = HostDevice::open(env, &locator, Access::PEEK).await.ok()?;
        let is_none = members::read_label(&device).await.ok()?.is_err();
        let mark = Mark::of_one_of(&device, known).await.filter(|mark| is_none && uuid_text(&mark.group) == group);
        mark.map(|_| locator)
    };
    let mut marked = Vec::new();
    for at in join_all(places.into_iter().map(look)).await.into_iter().flatten() {
        // The array that a disk is a part of is the member.
        if legs::why_not(env, &at).await.is_none() {
            marked.push(at);
        }
    }
    marked
}

/// How a restore is completed that has taken the labels of the `marked` devices away. `all`: the places of members that are known.
pub(crate) fn way_on(marked: &[String], all: &[String]) -> String {
    format!(
        "A restore of this group was cut off: {} without a label until it is completed, and what is on the members is there. Give the same \
         command again, with the same FILE, all members named, and --force if it asks for it: `bimetal restore FILE --member {}`",
        match marked {
            [one] => format!("{one} is"),
            more => format!("{} are", more.join(" and ")),
        },
        all.join(" ")
    )
}

/// What the mark of a restore says of a device, in words that follow "it is"; `None` if there is none.
pub(crate) async fn told<D: Device>(env: &HostEnv, device: &D) -> Option<String> {
    let mark = Mark::of(device).await?;
    Some(words(&group_of(env, mark).await))
}

/// The group of a mark, by name if it is described here.
async fn group_of(env: &HostEnv, mark: Mark) -> String {
    let uuid = uuid_text(&mark.group);
    let wanted = uuid.clone();
    let named = env.blocking(move || {
        let mut names = paths::configured_groups().unwrap_or_default().into_iter();
        names.find(|name| config::load(name).ok().flatten().is_some_and(|c| c.uuid == wanted))
    });
    match named.await.ok().flatten() {
        Some(name) => format!("the Bimetal group '{name}'"),
        None => format!("a Bimetal group that is not described here (UUID {uuid})"),
    }
}

fn words(group: &str) -> String {
    format!(
        "in the midst of a restore of {group} that was cut off, and still holds its data: the same command completes it \
         (bimetal restore FILE --member ..., with all members)"
    )
}

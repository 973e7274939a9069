//! Where the configuration of a group has its members, beside where they were named.

use bimetal_host::device::{Access, OpenError};
use bimetal_host::{HostDevice, HostEnv, Locator};
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::config::{self, uuid_text, GroupConfig, MemberConfig, Noted};
use crate::members::{self, own_uuid, Members};
use crate::saved::{has_traces_of, own_tier, Mark, SavedFile, SavedMember, Target};

/// Why members that were named must be named at the next start, too.
pub(super) enum ToName {
    /// No configuration says where they are.
    Nowhere,
    /// The configuration has members of the group elsewhere, which are there: these may be copies.
    Elsewhere,
}

/// Places that the configuration has, and of which nobody can tell now what is there. A repair writes down its new devices before it begins,
/// and one that was cut off may have told nobody else of them.
pub(super) async fn unseen(env: &HostEnv, saved: &SavedFile, found: &Members) -> Vec<String> {
    let Some(config) = config_of(saved) else { return Vec::new() };
    let opened: Vec<String> = found.opened.iter().map(|m| members::identity(&m.locator)).collect();
    let places = config.members.iter().filter_map(|m| Locator::parse(&m.locator).ok());
    let others: Vec<Locator> = places.filter(|place| !opened.contains(&members::identity(place))).collect();
    // Side by side: each that does not answer takes its time.
    let seen = join_all(others.iter().map(|place| can_be_read(env, place))).await;
    others.iter().zip(seen).filter(|(_, seen)| !seen).map(|(place, _)| place.to_string()).collect()
}

async fn can_be_read(env: &HostEnv, place: &Locator) -> bool {
    match HostDevice::open(env, place, Access::PEEK).await {
        Ok(device) => members::read_label(&device).await.is_ok(),
        Err(_) => false,
    }
}

/// What describes the group, and no other of its name.
fn config_of(saved: &SavedFile) -> Option<GroupConfig> {
    config::load(&saved.group).ok().flatten().filter(|c| c.uuid == uuid_text(&saved.uuid))
}

/// Writes down where the members are that were named, if a configuration describes the group. They may be elsewhere than before, with
/// something else in their old places. Where these have the members still, what was named may be copies, and it stays as it is.
pub(super) async fn note(
    env: &HostEnv,
    saved: &SavedFile,
    targets: &[Target<HostDevice>],
    found: &Members,
) -> Option<ToName> {
    let Some(config) = config_of(saved) else { return Some(ToName::Nowhere) };
    let place = |text: &str| Locator::parse(text).map_or_else(|_| text.to_owned(), |at| members::identity(&at));
    // A device has several names, and is to be opened by one of them.
    let known: Vec<String> = config.members.iter().map(|m| place(&m.locator)).collect();
    let new = targets.iter().zip(&saved.members).filter(|(target, _)| !known.contains(&place(&target.locator)));
    let new: Vec<(&Target<HostDevice>, &SavedMember)> = new.collect();
    if new.is_empty() {
        return None;
    }
    let named: Vec<String> = found.opened.iter().map(|m| members::identity(&m.locator)).collect();
    let others = config.members.iter().filter(|m| !named.contains(&place(&m.locator)));
    let looks: FuturesUnordered<_> = others.map(|other| may_be_member(env, saved, &other.locator)).collect();
    // One is enough, and the others may not answer.
    if looks.any(async |may| may).await {
        return Some(ToName::Elsewhere);
    }
    let group = GroupConfig::of(&saved.group, &saved.uuid);
    let note = |(target, member): &(&Target<HostDevice>, &SavedMember)| {
        let tier = members::tier_name(own_tier(&member.label)).to_owned();
        let noted = config::note_member(&group, &MemberConfig { locator: target.locator.clone(), tier });
        noted.is_ok_and(|noted| noted != Noted::OfNamesake)
    };
    (!new.iter().all(note)).then_some(ToName::Nowhere)
}

/// Whether a member that is in the file is where the configuration has one, as far as is known: it may be unplugged no more than that, or
/// lack its labels only.
async fn may_be_member(env: &HostEnv, saved: &SavedFile, place: &str) -> bool {
    let Ok(locator) = Locator::parse(place) else { return false };
    let device = match HostDevice::open(env, &locator, Access::PEEK).await {
        Ok(device) => device,
        Err(OpenError::Missing { .. } | OpenError::NoServer { .. } | OpenError::WrongKind { .. }) => return false,
        Err(_) => return true,
    };
    match members::read_label(&device).await {
        Ok(Ok(label)) => label.group == saved.uuid && saved.members.iter().any(|m| m.uuid() == own_uuid(&label)),
        Ok(Err(why)) if why.is_newer() => true,
        Ok(Err(_)) => is_unlabelled_member(saved, &device).await,
        Err(_) => true,
    }
}

async fn is_unlabelled_member(saved: &SavedFile, device: &HostDevice) -> bool {
    if Mark::of_one_of(device, &saved.laid_out()).await.is_some_and(|mark| mark.group == saved.uuid) {
        return true;
    }
    for m in &saved.members {
        if has_traces_of(device, &m.label).await {
            return true;
        }
    }
    false
}

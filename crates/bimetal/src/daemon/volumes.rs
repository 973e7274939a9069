//! Changes of the volumes of a served group: the engine's, and what follows for the ways.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use bimetal_host::HostEnv;
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::group::structure::{Objection, Proviso, StructureError};
use bimetal_volume::group::Group;
use bimetal_volume::options::{NewVolume, Uuid};
use bimetal_volume::units::{self, CHUNK};

use super::jobs::{Done, Outcome};
use super::ways::Ways;
use crate::api::{Placement, VolumeChange};
use crate::log;
use crate::uuid::uuid_bytes;

/// The kernel tells of a file or a connection that was closed a little later.
const CLOSING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Carries a change out.
pub(super) async fn change(group: &Group<HostEnv>, ways: &Rc<Ways>, change: VolumeChange) -> Outcome {
    let uuid = target(group, &change)?;
    let objection = uuid.and_then(|uuid| objection(ways, uuid, &change));
    if let Some(why) = refusal(group, ways, &change, objection.as_ref()).await {
        return Err(why);
    }
    // The engine may be at another change for seconds, and looks again when it is this one's turn.
    let changed = engine(group, &change, Proviso { volume: uuid, objection }).await;
    follow(group, ways, &change, uuid, changed.is_ok()).await;
    let done = changed?;
    log::info(&told(&change, done.size));
    Ok(done)
}

/// The volume that a change is for: the one that has its name now. When the engine's turn has come that may be another's; and a name that
/// somebody gets only then is nobody's yet: neither what is meant nor who uses it could be asked.
fn target(group: &Group<HostEnv>, change: &VolumeChange) -> Result<Option<Uuid>, String> {
    if matches!(change, VolumeChange::Create { .. }) {
        return Ok(None);
    }
    let name = || change.name().to_string();
    let wanted = meant(change).map_err(|e| format!("{e:#}"))?;
    match group.volume(change.name()).map(|v| v.uuid()) {
        None => Err(StructureError::Unknown(name()).to_string()),
        Some(uuid) if wanted.is_some_and(|wanted| wanted != uuid) => {
            Err(StructureError::AnotherVolume(name()).to_string())
        }
        found => Ok(found),
    }
}

/// What follows for the ways. A deletion that failed half-way has made the volume unusable all the same.
async fn follow(group: &Group<HostEnv>, ways: &Ways, change: &VolumeChange, uuid: Option<Uuid>, done: bool) {
    match (change, uuid) {
        (VolumeChange::Create { name, .. }, _) if done => ways.add(group, name),
        (VolumeChange::Rename { .. }, Some(uuid)) if done => {
            if let Some(name) = name_of(group, &uuid) {
                ways.rename(&uuid, &name);
            }
        }
        (VolumeChange::Delete { name, .. }, Some(uuid)) if done || name_of(group, &uuid).is_none() => {
            ways.remove(&uuid, name).await;
        }
        _ => {}
    }
}

/// The volume that a change is for, if it says so.
pub(crate) fn meant(change: &VolumeChange) -> anyhow::Result<Option<Uuid>> {
    let parsed = |text: &str| uuid_bytes(text).with_context(|| format!("'{text}' is no UUID of a volume"));
    change.uuid().map(parsed).transpose()
}

/// The name of a volume, if it is there.
fn name_of(group: &Group<HostEnv>, uuid: &Uuid) -> Option<String> {
    group.volume_names().into_iter().find(|name| group.volume(name).is_some_and(|v| v.uuid() == *uuid))
}

/// The engine's part of a change; the size that the volume has after it, if it has a new one.
pub(crate) async fn engine(group: &Group<HostEnv>, change: &VolumeChange, proviso: Proviso) -> Outcome {
    let result = match change {
        VolumeChange::Create { name, size_bytes, placement, family } => {
            let placement = placement_of(*placement);
            let new = NewVolume { name: name.clone(), size: *size_bytes, placement };
            create(group, &new, family.as_deref()).await.map(Some)
        }
        VolumeChange::Encrypt { name, family, .. } => {
            group.encrypt_volume_if(name, family, proviso).await.map(|()| None)
        }
        VolumeChange::Resize { name, size_bytes, .. } => {
            group.resize_volume_if(name, *size_bytes, proviso).await.map(Some)
        }
        VolumeChange::Rename { name, new_name, .. } => {
            group.rename_volume_if(name, new_name, proviso).await.map(|()| None)
        }
        VolumeChange::Delete { name, .. } => group.delete_volume_if(name, proviso).await.map(|()| None),
    };
    result.map(|size| Done { size, ..Done::default() }).map_err(|e| e.to_string())
}

/// Makes a volume. One that is to take what is left takes what the map has room for, if that is less: the map was laid out when the
/// group was made, and does not grow with new members.
async fn create(group: &Group<HostEnv>, new: &NewVolume, family: Option<&str>) -> Result<u64, StructureError> {
    match group.create_volume_in(new, family).await {
        Err(StructureError::NoPages(room)) if new.size.is_none() && room > 0 => {
            let new = NewVolume { size: Some(room), ..new.clone() };
            group.create_volume_in(&new, family).await
        }
        made => made,
    }
}

fn placement_of(placement: Placement) -> units::Placement {
    match placement {
        Placement::Auto => units::Placement::Auto,
        Placement::FastOnly => units::Placement::FastOnly,
        Placement::SlowOnly => units::Placement::SlowOnly,
    }
}

/// What is taken from under clients needs their consent, or force: looks who uses the volume, and says what is in the way.
fn objection(ways: &Rc<Ways>, uuid: Uuid, change: &VolumeChange) -> Option<Objection> {
    let (ways, name) = (ways.clone(), change.name().to_owned());
    let what = match change {
        VolumeChange::Delete { force: false, .. } => "deleting it takes away what they use",
        VolumeChange::Resize { force: false, .. } => "they go on with the size that it had",
        // Commands write down what they have attached by the name that they know.
        VolumeChange::Rename { force: true, .. } => {
            return Some(Rc::new(move || {
                let why = ways.devices.use_of(&uuid)?;
                Some(format!("volume ‘{name}’ is in use: {why}; detach it first, or try again in a moment"))
            }));
        }
        VolumeChange::Rename { force: false, .. } => {
            "whoever connects again by this name finds nothing, or what has it then"
        }
        _ => return None,
    };
    Some(Rc::new(move || {
        let users = ways.users_of(&uuid)?;
        Some(format!("volume '{name}' is in use: {users}, and {what}; end them first, or add --force"))
    }))
}

/// Refuses a change to which somebody objects, before the engine is asked.
async fn refusal(
    group: &Group<HostEnv>,
    ways: &Ways,
    change: &VolumeChange,
    objection: Option<&Objection>,
) -> Option<String> {
    let patience = match change {
        VolumeChange::Resize { name, size_bytes, .. } if size_bytes / CHUNK * CHUNK >= group.volume(name)?.size() => {
            return None;
        }
        VolumeChange::Rename { force: true, .. } => Duration::ZERO,
        _ => CLOSING,
    };
    let end = ways.env.now().plus(patience);
    loop {
        let why = objection?()?;
        if ways.env.now() >= end {
            return Some(why);
        }
        ways.env.sleep(LOOK_AGAIN).await;
    }
}

fn told(change: &VolumeChange, size: Option<u64>) -> String {
    let size = size.map(crate::size::approx).unwrap_or_default();
    match change {
        VolumeChange::Create { name, family: None, .. } => format!("volume '{name}' is made ({size})"),
        VolumeChange::Create { name, family: Some(family), .. } => {
            format!("volume '{name}' is made in family '{family}' ({size})")
        }
        VolumeChange::Encrypt { name, family, .. } => {
            format!("volume '{name}' is being encrypted, in family '{family}'")
        }
        VolumeChange::Resize { name, .. } => format!("volume '{name}' has {size} now"),
        VolumeChange::Rename { name, new_name, .. } => format!("volume '{name}' is named '{new_name}' now"),
        VolumeChange::Delete { name, .. } => format!("volume '{name}' is deleted"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::uuid_text;
    use crate::daemon::losses::Losses;
    use crate::daemon::{exports::Exports, files::Files, ublk::Devices};
    use crate::loss::Place;
    use bimetal_host::device::Access;
    use bimetal_host::{HostDevice, Locator, Reactor};
    use bimetal_volume::options::{CreateOptions, OpenOptions};
    use bimetal_volume::units::Tier;
    use std::future::Future;

    pub(crate) const MIB: u64 = 1 << 20;

    /// What `work` does with a group of one volume, which is stopped then.
    pub(crate) fn with_tank(work: impl AsyncFnOnce(Group<HostEnv>, Rc<Ways>) + 'static) {
        let dir = tempfile::tempdir().expect("a folder");
        let reactor = Reactor::new().expect("a ring");
        let (env, folder) = (reactor.env(), dir.path().to_owned());
        reactor.block_on(async move {
            let (group, ways) = tank(&env, &folder).await;
            work(group.clone(), ways.clone()).await;
            ways.stop().await;
            group.stop().await.expect("stopped");
        });
    }

    /// A group of one volume, and the ways to it, without a socket and a mount.
    async fn tank(env: &HostEnv, folder: &std::path::Path) -> (Group<HostEnv>, Rc<Ways>) {
        let mut devices = Vec::new();
        for (name, size, tier) in [("fast", 48, Tier::Fast), ("slow", 96, Tier::Slow)] {
            let path = folder.join(name);
            std::fs::File::create(&path).and_then(|f| f.set_len(size * MIB)).expect("a file");
            let locator = Locator::parse(&path.display().to_string()).expect("a path");
            devices.push((HostDevice::open(env, &locator, Access::SERVE).await.expect("opened"), tier));
        }
        let members = devices.iter().map(|(device, _)| device.clone()).collect();
        let main = NewVolume { name: "main".into(), size: Some(64 * MIB), placement: units::Placement::Auto };
        let options = CreateOptions {
            name: "tank".into(),
            volumes: vec![main],
            sector_size: 4096,
            reserve: None,
            journal_blocks: None,
        };
        Group::create(env, devices, &options).await.expect("made");
        let group = Group::open(env.clone(), members, OpenOptions::default()).await.expect("opened");
        let losses = Losses::found(env, Place::at(folder));
        let ways = Ways {
            env: env.clone(),
            group: "tank".into(),
            nbd: Exports::open(env, &group, &[]).await.expect("exports"),
            files: Files::new(env, "tank", folder.join("fuse")).await,
            devices: Devices::new(env, &group, "tank", &losses),
        };
        (group, Rc::new(ways))
    }

    /// What was asked for is with the engine, which has not come to it yet.
    pub(crate) async fn begun<T>(mut asked: std::pin::Pin<&mut impl Future<Output = T>>) {
        std::future::poll_fn(|cx| {
            assert!(asked.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }

    #[test]
    fn a_change_that_waits_for_its_turn_looks_again_who_uses_the_volume() {
        with_tank(async |group, ways| {
            let uuid = group.volume("main").expect("there").uuid();
            let smaller = VolumeChange::Resize { name: "main".into(), size_bytes: 32 * MIB, force: false };
            let rename = VolumeChange::Rename { name: "main".into(), new_name: "other".into(), force: false };
            let delete = |force| VolumeChange::Delete { name: "main".into(), uuid: None, force };
            for late in [smaller, rename, delete(false)] {
                let mut asked = std::pin::pin!(change(&group, &ways, late.clone()));
                begun(asked.as_mut()).await;
                ways.devices.begin(uuid, "main", "being made");
                let why = asked.await.expect_err("in use by now");
                assert!(why.contains("its ublk device is being made"), "{late:?}: {why}");
                assert_eq!(group.volume("main").expect("there").size(), 64 * MIB);
                ways.devices.forget(&uuid);
            }
            change(&group, &ways, delete(true)).await.expect("nobody uses it");
        });
    }

    #[test]
    fn a_name_that_a_volume_is_yet_to_get_is_nobodys() {
        with_tank(async |group, ways| {
            let main = group.volume("main").expect("there").uuid();
            let rename =
                |name: &str, new: &str| VolumeChange::Rename { name: name.into(), new_name: new.into(), force: false };
            let delete = |uuid| VolumeChange::Delete { name: "other".into(), uuid, force: false };
            let mut renamed = std::pin::pin!(change(&group, &ways, rename("main", "other")));
            begun(renamed.as_mut()).await;
            for early in [rename("other", "third"), delete(None), delete(Some(uuid_text(&[9; 16])))] {
                let why = change(&group, &ways, early).await.expect_err("nobody has the name");
                assert!(why.contains("there is no volume 'other'"), "{why}");
            }
            renamed.await.expect("renamed");
            assert_eq!(group.volume("other").map(|v| v.uuid()), Some(main));
            change(&group, &ways, rename("other", "third")).await.expect("it has the name now");
        });
    }

    #[test]
    fn a_device_that_is_being_made_or_taken_over_is_a_user_of_its_volume() {
        with_tank(async |group, ways| {
            let uuid = group.volume("main").expect("there").uuid();
            let smaller = |force| VolumeChange::Resize { name: "main".into(), size_bytes: 32 * MIB, force };
            let rename = VolumeChange::Rename { name: "main".into(), new_name: "other".into(), force: false };
            let delete = VolumeChange::Delete { name: "main".into(), uuid: None, force: false };
            ways.devices.begin(uuid, "main", "being taken over from a daemon that died");
            for refused in [smaller(false), rename.clone(), delete] {
                let why = change(&group, &ways, refused.clone()).await.expect_err("in use");
                assert!(why.contains("its ublk device is being taken over"), "{refused:?}: {why}");
            }
            assert_eq!(group.volume("main").expect("there").size(), 64 * MIB);
            ways.devices.forget(&uuid);
            change(&group, &ways, smaller(false)).await.expect("nobody uses it");
            change(&group, &ways, rename).await.expect("nor minds its name");
            let named = ways.devices.volume_of(&uuid).expect("there");
            assert_eq!((named.name().as_str(), named.size()), ("other", 32 * MIB));
        });
    }
}

//! Devices in the midst of a `restore` that was cut off. They carry no label, and yet all data of a member: the same command gives
//! it its label back.

use bimetal_host::HostEnv;
use bimetal_volume::env::Device;

use crate::config::{self, uuid_text};
use crate::paths;
use crate::saved::Mark;

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

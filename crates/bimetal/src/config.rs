//! `groups/NAME.toml`: which group it is, and where its members were last seen. Locators are hints; labels decide.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::paths;
pub(crate) use crate::uuid::{uuid_bytes, uuid_text};

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupConfig {
    /// Version of this file's layout.
    pub(crate) schema: u32,
    /// The group's name.
    pub(crate) name: String,
    /// The group's UUID.
    pub(crate) uuid: String,
    /// Its members.
    #[serde(rename = "member", default)]
    pub(crate) members: Vec<MemberConfig>,
}

impl GroupConfig {
    /// A group by its UUID, without members yet.
    pub(crate) fn of(name: &str, group: &[u8; 16]) -> GroupConfig {
        GroupConfig { schema: 1, name: name.to_owned(), uuid: uuid_text(group), members: Vec::new() }
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberConfig {
    /// Where it was last seen.
    pub(crate) locator: String,
    /// `fast` or `slow`.
    pub(crate) tier: String,
}

const HEAD: &str = "\
# Written by `bimetal`. The labels on the members decide what belongs together; the locators below only say
# where to look. Change one when a member has moved.
";

/// Reads the file of group `name`; `None` if there is none.
pub(crate) fn load(name: &str) -> Result<Option<GroupConfig>> {
    let path = paths::config_file(name)?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
    };
    let config: GroupConfig = toml::from_str(&text).with_context(|| damaged(name, &path))?;
    if config.schema != 1 {
        bail!("{} has schema {}, this program knows schema 1; use a newer Bimetal", path.display(), config.schema);
    }
    if config.name != name {
        bail!("{} describes a group named '{}'; rename the file or the group", path.display(), config.name);
    }
    Ok(Some(config))
}

fn damaged(name: &str, path: &Path) -> String {
    format!(
        "{} is damaged; mend it, or have it removed (bimetal destroy {name} --forget: that touches no device) and name the members \
         (bimetal serve {name} --member ...)",
        path.display()
    )
}

/// Writes the file, whole or not at all. An existing file is never overwritten.
pub(crate) fn store(config: &GroupConfig) -> Result<std::path::PathBuf> {
    let path = paths::config_file(&config.name)?;
    let dir = path.parent().context("the configuration path has no folder")?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let text = format!("{HEAD}{}", toml::to_string(config)?);
    let temporary = dir.join(format!(".{}.new", config.name));
    let write = || -> Result<()> {
        write_synced(&temporary, &text)?;
        // A link fails where a file is; a rename would replace it.
        std::fs::hard_link(&temporary, &path)?;
        std::fs::File::open(dir)?.sync_all()?;
        Ok(())
    };
    let result = write().with_context(|| format!("cannot write {}", path.display()));
    let _ = std::fs::remove_file(&temporary);
    result.map(|()| path)
}

/// Adds a member to the file of a group; false if it says so already. Where there is no file one is made of `known`, which is what the
/// group is known to be: a scan finds neither files nor what is behind a server, so that nobody would find the new one again.
pub(crate) fn note_member(known: &GroupConfig, member: &MemberConfig) -> Result<bool> {
    change(&known.name, Some(known), |members| {
        let known = members.iter().any(|m| m.locator == member.locator);
        if !known {
            members.push(member.clone());
        }
        !known
    })
}

/// Takes a member out of the file of group `name`, if there is one.
pub(crate) fn forget_member(name: &str, locator: &str) -> Result<bool> {
    change(name, None, |members| {
        let before = members.len();
        members.retain(|m| m.locator != locator);
        members.len() < before
    })
}

/// One change of a file at a time: each reads it whole and writes it whole.
static CHANGING: Mutex<()> = Mutex::new(());

/// Changes the file of a group, or what it is `known` to be where there is no file, whole or not at all; whether there was anything to
/// change. Blocks until it is durable.
fn change(name: &str, known: Option<&GroupConfig>, how: impl FnOnce(&mut Vec<MemberConfig>) -> bool) -> Result<bool> {
    let _alone = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut config) = load(name)?.or(known.cloned()) else { return Ok(false) };
    if !how(&mut config.members) {
        return Ok(false);
    }
    let path = paths::config_file(name)?;
    let dir = path.parent().context("the configuration path has no folder")?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let temporary = dir.join(format!(".{name}.new"));
    let write = || -> Result<()> {
        write_synced(&temporary, &format!("{HEAD}{}", toml::to_string(&config)?))?;
        std::fs::rename(&temporary, &path)?;
        std::fs::File::open(dir)?.sync_all()?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

fn write_synced(path: &Path, text: &str) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(())
}

/// Removes the file of group `name`, if there is one.
pub(crate) fn remove(name: &str) -> Result<()> {
    let path = paths::config_file(name)?;
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_back() {
        let config = GroupConfig {
            schema: 1,
            name: "tank".into(),
            uuid: uuid_text(&[0xab; 16]),
            members: vec![
                MemberConfig { locator: "/dev/disk/by-id/ssd".into(), tier: "fast".into() },
                MemberConfig { locator: "emulated:hdd2012:/a b/c\"d".into(), tier: "slow".into() },
            ],
        };
        let text = format!("{HEAD}{}", toml::to_string(&config).expect("plain strings"));
        assert_eq!(toml::from_str::<GroupConfig>(&text).expect("own output"), config);
    }

    /// Only `BIMETAL_CONFIG_DIR` says where files lie, and tests of one process share it: so the lock itself is looked at.
    #[test]
    fn changes_wait_for_each_other() {
        let held = CHANGING.lock().expect("nobody panics with it");
        let other = std::thread::spawn(|| change("no-such-group", None, |_| true).is_ok_and(|changed| !changed));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!other.is_finished());
        drop(held);
        assert!(other.join().expect("ended"));
    }
}

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

/// What has become of a file that was to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// It says so now.
    Now,
    /// It said so before.
    Before,
    /// It describes another group of that name, and is as it was.
    OfNamesake,
}

impl Noted {
    /// What who has a new member needs to know, if it is written down nowhere.
    pub(crate) fn not_at_all(self, name: &str, locator: &str) -> Option<String> {
        let path =
            paths::config_file(name).map_or_else(|_| "the configuration".into(), |path| path.display().to_string());
        (self == Noted::OfNamesake).then(|| {
            format!(
                "{path} describes another group that is named '{name}', and is as it was: {locator} is written down nowhere. Name it with \
                 all others at each start: bimetal serve {name} --member ..."
            )
        })
    }
}

/// Adds a member to the file of a group. Where there is no file one is made of `known`, which is what the group is known to be: a scan
/// finds neither files nor what is behind a server, so that nobody would find the new one again.
pub(crate) fn note_member(known: &GroupConfig, member: &MemberConfig) -> Result<Noted> {
    change(known, true, |members| {
        let known = members.iter().any(|m| m.locator == member.locator);
        if !known {
            members.push(member.clone());
        }
        !known
    })
}

/// Takes a place out of the file of a group, if there is one, unless a member `is_there`, which is asked when nobody else changes the file.
pub(crate) fn forget_member(group: &GroupConfig, locator: &str, is_there: impl FnOnce() -> bool) -> Result<Noted> {
    change(group, false, |members| {
        let before = members.len();
        if !is_there() {
            members.retain(|m| m.locator != locator);
        }
        members.len() < before
    })
}

/// One change of a file at a time: each reads it whole and writes it whole.
static CHANGING: Mutex<()> = Mutex::new(());

/// Changes the file of a group, whole or not at all. Where there is none it makes one of what the group is `known` to be, if that is
/// wished. Blocks until it is durable.
fn change(known: &GroupConfig, make: bool, how: impl FnOnce(&mut Vec<MemberConfig>) -> bool) -> Result<Noted> {
    let _alone = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let name = &known.name;
    let there = load(name)?;
    let is_new = there.is_none();
    if is_new && !make {
        return Ok(Noted::Before);
    }
    let mut config = there.unwrap_or_else(|| known.clone());
    if config.uuid != known.uuid {
        return Ok(Noted::OfNamesake);
    }
    if !how(&mut config.members) && !is_new {
        return Ok(Noted::Before);
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
    Ok(Noted::Now)
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
        let nobody = GroupConfig::of("no-such-group", &[7; 16]);
        let other =
            std::thread::spawn(move || change(&nobody, false, |_| true).is_ok_and(|noted| noted == Noted::Before));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!other.is_finished());
        drop(held);
        assert!(other.join().expect("ended"));
    }
}

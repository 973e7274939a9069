//! What a new member held before it came: a group writes over that in its own time, and never over all of it.

use anyhow::Result;
use bimetal_host::Locator;

use super::{rows_of, Rows};
use crate::commands::create::is_empty_file;

/// Said of a device that comes into a group whose families promise that disks tell nothing.
pub(super) struct Before(String);

/// Looks before anything is written. `None`: the device holds nothing, or the group has no families.
pub(super) fn held(group: &str, locator: &Locator) -> Result<Option<Before>> {
    match is_empty_file(locator) {
        true => Ok(None),
        false => Ok(held_in(&rows_of(group)?, group, locator)),
    }
}

/// The same of a group that was looked at.
pub(super) fn held_in(rows: &Rows, group: &str, locator: &Locator) -> Option<Before> {
    let matters = rows.families && !is_empty_file(locator);
    matters.then(|| {
        Before(format!(
            "What {locator} held before can be read from it until the group has written over it, and no family of group \
             '{group}' encrypts that: neither what others left there, nor plain blocks of this group, if it was a member once"
        ))
    })
}

impl Before {
    /// While there is a choice.
    pub(super) fn question(&self, locator: &Locator) -> String {
        format!("{}. To be sure that nothing is left, stop here and first {}.", self.0, overwrite(locator))
    }

    /// When it is a member.
    pub(super) fn answer(&self, locator: &Locator) -> String {
        format!(
            "{}. To be sure that nothing is left, take it out (`bimetal member remove`), {}, and add it again.",
            self.0,
            overwrite(locator)
        )
    }
}

fn overwrite(locator: &Locator) -> String {
    match locator.path() {
        Some(path) => {
            let path = path.display();
            format!("run `blkdiscard --zeroout {path}` if it is an SSD, else `shred -n 1 {path}` or `dd if=/dev/zero of={path} bs=1M`")
        }
        None => "overwrite it where it is (`blkdiscard --zeroout`, `shred` or `dd`)".into(),
    }
}

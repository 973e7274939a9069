//! The note of a loss, `lost.json` in the run-state folder of a group.
//!
//! A sync that fails may take with it what a member had acknowledged, and the next one succeeds. Clients that end with their
//! daemon know that. A ublk device stays, and whoever uses it would be told by the next daemon that all is durable. So it is
//! written down what happened, and no device that is taken over says that any more: its flushes fail until it is removed.
//!
//! 1. A new loss concerns every device that is there: the note names none then.
//! 2. It lies where it lives as long as the kernel's devices: what is left of it after a restart of the machine goes at the next
//!    start of the group, which finds no device.
//! 3. One error too many harms less than one too few: a note that cannot be read counts, and so does an empty one. For that there is
//!    room on a file system that is full, and it stands before what happened is written into it.

use std::cell::Cell;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use serde::{Deserialize, Serialize};

use crate::{api, log, paths, runstate};

/// A block device that a daemon left, and the volume that it is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owing {
    /// UUID of the volume, as text.
    pub(crate) volume: String,
    /// Path of the device.
    pub(crate) device: String,
}

/// What was lost, and whom that concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    schema: u32,
    /// What happened.
    pub(crate) why: String,
    /// Those that are there still; `None`: every device that is.
    pub(crate) devices: Option<Vec<Owing>>,
}

impl Note {
    /// The note of something that has just happened.
    pub(crate) fn new(why: String) -> Note {
        Note { schema: api::SCHEMA, why, devices: None }
    }

    /// Whether it concerns a device.
    pub(crate) fn names(&self, device: &Owing) -> bool {
        self.devices.as_ref().is_none_or(|all| all.contains(device))
    }
}

/// Where the note of a group lies.
#[derive(Clone, Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    /// That of group `name`.
    pub(crate) fn of(name: &str) -> Place {
        Place::at(&paths::run_dir(name))
    }

    /// In this folder.
    pub(crate) fn at(folder: &Path) -> Place {
        Place(folder.join("lost.json"))
    }

    /// The note that stands, if any.
    pub(crate) fn read(&self) -> Option<Note> {
        let unreadable = |why: String| Some(Note::new(format!("{} cannot be read: {why}", self.0.display())));
        match std::fs::read_to_string(&self.0) {
            Ok(text) if text.is_empty() => {
                Some(Note::new("something that was acknowledged, and what was not written down".into()))
            }
            Ok(text) => serde_json::from_str(&text).map_or_else(|e| unreadable(e.to_string()), Some),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => unreadable(e.to_string()),
        }
    }

    /// Makes this the note that stands; `None` takes it away. Where there is no room for it, one stands that counts for more.
    pub(crate) fn write(&self, note: Option<&Note>) -> Result<()> {
        let Some(note) = note else {
            return match std::fs::remove_file(&self.0) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    Err(e).with_context(|| format!("cannot remove {}", self.0.display()))
                }
                _ => Ok(()),
            };
        };
        let text = serde_json::to_string_pretty(note)?;
        // First: whatever ends this process meanwhile, a note is there.
        let stood = self.0.symlink_metadata().is_ok() || self.make_empty().is_ok();
        let Err(error) = runstate::replace(&self.0, text.as_bytes()) else { return Ok(()) };
        // What stands may name fewer devices than this one: only for one that names some it counts for more.
        let stands = match note.devices {
            None => self.make_empty().is_ok(),
            Some(_) => stood,
        };
        let what = format!("cannot write {}", self.0.display());
        if !stands {
            return Err(error).context(what);
        }
        log::warn(&format!(
            "{what}, so each block device that is left tells its client that something is lost: {error:#}"
        ));
        Ok(())
    }

    /// A note that says nothing, in the place of what is there.
    fn make_empty(&self) -> std::io::Result<()> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(runstate::PRIVATE);
        options.open(&self.0).map(drop)
    }
}

/// How often it is looked whether a sync has failed: the next disk may take long to spin up, and somebody not wait for that.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Held while the members of a group are opened: whoever opens them syncs them, and is the only one to learn that this failed.
pub(crate) struct Watch {
    name: String,
    noted: Cell<bool>,
}

/// Writes it down if a sync fails before what this gives is dropped.
pub(crate) fn watch_syncs(env: &HostEnv, name: &str) -> Rc<Watch> {
    let watch = Rc::new(Watch { name: name.to_string(), noted: Cell::default() });
    let (watched, clock) = (Rc::downgrade(&watch), env.clone());
    env.spawn(async move {
        while let Some(watch) = watched.upgrade() {
            watch.look();
            drop(watch);
            clock.sleep(LOOK_AGAIN).await;
        }
    });
    watch
}

impl Watch {
    fn look(&self) {
        if bimetal_host::device::failed_syncs() == 0 || self.noted.replace(true) {
            return;
        }
        note(&self.name, "a member of the group could not be synced when it was opened".into());
    }
}

/// Writes down for the next daemon of a group that something is lost, or may be: whoever opens the group for writing and stops it in
/// order takes away what that one could tell it by.
pub(crate) fn note(name: &str, why: String) {
    // The folder is not there if no daemon was.
    let place = paths::make_run_dir(name).map(|_| Place::of(name));
    if let Err(error) = place.and_then(|place| place.write(Some(&Note::new(why)))) {
        log::warn(&not_written(&error));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.look();
    }
}

/// That a loss could not be written down, in words.
pub(crate) fn not_written(error: &anyhow::Error) -> String {
    format!(
        "what was written last to the group may be lost, and that cannot be written down for the next daemon: {error:#}. If a ublk \
         device of the group is in use, its file system gets no error: unmount it, and check it before it is used again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owing(device: &str) -> Owing {
        Owing { volume: "v".into(), device: device.into() }
    }

    #[test]
    fn a_note_stands_until_it_is_taken_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let place = Place::at(dir.path());
        assert_eq!(place.read(), None);
        place.write(None).expect("nothing to take away");
        let mut note = Note::new("a sync of member 1 failed".into());
        place.write(Some(&note)).expect("written");
        assert_eq!(place.read().as_ref(), Some(&note));
        assert!(note.names(&owing("/dev/ublkb0")), "every device");
        note.devices = Some(vec![owing("/dev/ublkb1")]);
        place.write(Some(&note)).expect("written");
        let found = place.read().expect("stands");
        assert!(found.names(&owing("/dev/ublkb1")) && !found.names(&owing("/dev/ublkb0")));
        place.write(None).expect("taken away");
        assert_eq!(place.read(), None);
    }

    #[test]
    fn a_note_without_room_for_what_it_says_stands_all_the_same() {
        let dir = tempfile::tempdir().expect("a folder");
        let (place, blocked) = (Place::at(dir.path()), dir.path().join("lost.new"));
        let text = || std::fs::read_to_string(dir.path().join("lost.json")).expect("there");
        let all = Note::new("a sync of member 1 failed".into());
        let one = Note { devices: Some(vec![owing("/dev/ublkb1")]), ..all.clone() };
        // Nothing new can be written.
        std::fs::create_dir(&blocked).expect("a folder");
        place.write(Some(&all)).expect("an empty note");
        assert_eq!(text(), "");
        assert!(place.read().is_some_and(|note| note.names(&owing("/dev/ublkb0"))));
        // One that names fewer devices leaves the one that counts for all.
        place.write(Some(&one)).expect("the empty note stays");
        assert_eq!(text(), "");
        std::fs::remove_dir(&blocked).expect("room again");
        place.write(Some(&one)).expect("written");
        assert_eq!(place.read().as_ref(), Some(&one));
        // A new loss concerns all.
        std::fs::create_dir(&blocked).expect("a folder");
        place.write(Some(&all)).expect("an empty note");
        assert!(place.read().is_some_and(|note| note.names(&owing("/dev/ublkb0"))));
        place.write(None).expect("taken away");
        assert_eq!(place.read(), None);
    }

    #[test]
    fn a_note_that_cannot_be_read_concerns_every_device() {
        let dir = tempfile::tempdir().expect("a folder");
        let place = Place::at(dir.path());
        for text in ["", "{", "[]", "{\"schema\": 1}"] {
            std::fs::write(dir.path().join("lost.json"), text).expect("written");
            let note = place.read().expect("counts");
            let told = if text.is_empty() { "not written down" } else { "cannot be read" };
            assert!(note.why.contains(told) && note.names(&owing("/dev/ublkb0")), "{note:?}");
        }
        std::fs::remove_file(dir.path().join("lost.json")).expect("removed");
        std::fs::create_dir(dir.path().join("lost.json")).expect("a folder");
        assert!(place.read().is_some());
    }
}

//! Changes of the families of a served group, and their keys. What has to do with passphrases is the commands'.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::group::structure::{NewFamily, Objection, Proviso, StructureError};
use bimetal_volume::group::Group;
use bimetal_volume::options::{Status, Uuid};
use futures_util::future::{select, Either};

use super::jobs::{Done, Outcome};
use super::ways::Ways;
use crate::config::uuid_text;
use crate::{api, hex, log};

/// The kernel tells of a file or a connection that was closed a little later.
const CLOSING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A lock by force waits so long for the requests that it makes fail.
const LAST_REQUESTS: Duration = Duration::from_secs(3);

/// What is being copied onto another device now.
pub(super) type Copied = Rc<dyn Fn() -> Option<api::Dissolving>>;

/// What is to be done with a family, with its key.
pub(crate) enum Work {
    Unlock { name: String, key: FamilyKey },
    Lock { name: String, uuid: Option<Uuid>, force: bool },
    Change(Change),
}

/// A change of the table of families.
pub(crate) enum Change {
    Create { name: String, uuid: Uuid, key: FamilyKey, header: Vec<u8> },
    Header { name: String, key: FamilyKey, before: Option<Vec<u8>>, header: Vec<u8> },
    Rename { name: String, new_name: String },
    Delete { name: String, uuid: Option<Uuid> },
}

/// Who changes the table of families.
#[derive(Default)]
pub(super) struct Desk {
    busy: Cell<bool>,
    /// What is to be locked once requests have ended, and other changes.
    locking: RefCell<Vec<Uuid>>,
}

/// The turn of a change; it ends when this goes.
struct Turn<'a>(&'a Desk);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.set(false);
    }
}

impl Desk {
    /// One change at a time: a name that was looked at must mean the same family when the change is made.
    async fn turn(&self, env: &HostEnv) -> Turn<'_> {
        while self.busy.replace(true) {
            env.sleep(LOOK_AGAIN).await;
        }
        Turn(self)
    }

    /// Carries a change out.
    pub(super) async fn change(&self, group: &Group<HostEnv>, ways: &Rc<Ways>, copied: Copied, work: Work) -> Outcome {
        let told = match work {
            Work::Unlock { name, key } => self.unlock(group, ways, &name, key).await?,
            Work::Lock { name, uuid, force: true } => lock_at_once(group, &ways.env, (&name, uuid)).await?,
            Work::Lock { name, uuid, force: false } => self.lock(group, ways, copied, (&name, uuid)).await?,
            Work::Change(change) => {
                let _turn = self.turn(&ways.env).await;
                carry_out(group, change).await?
            }
        };
        log::info(&told);
        Ok(Done::default())
    }

    /// It is one step, and waits for nobody's turn: a family that is being locked may wait for a disk that hangs, and this one have nothing there.
    async fn unlock(
        &self,
        group: &Group<HostEnv>,
        ways: &Rc<Ways>,
        name: &str,
        key: FamilyKey,
    ) -> Result<String, String> {
        let is_locked_soon = uuid_of(group, name).is_some_and(|uuid| self.locking.borrow().contains(&uuid));
        if is_locked_soon {
            return Err(words(StructureError::BeingLocked(name.into())));
        }
        group.unlock_family(name, key).map_err(words)?;
        // Devices that waited for it.
        ways.devices.take_over_unlocked().await;
        Ok(format!("family '{name}' is unlocked"))
    }

    /// Its turn ends as soon as the engine knows which family it is.
    async fn lock(
        &self,
        group: &Group<HostEnv>,
        ways: &Rc<Ways>,
        copied: Copied,
        (name, meant): (&str, Option<Uuid>),
    ) -> Result<String, String> {
        let turn = self.turn(&ways.env).await;
        refuse_another(group, name, meant)?;
        let uuid = uuid_of(group, name).ok_or_else(|| words(StructureError::NoFamily(name.into())))?;
        let objection = objection(group, ways, copied, uuid);
        if let Some(why) = refusal(ways, &objection).await {
            return Err(why);
        }
        // The engine may be at another change for seconds, and looks again when it is this one's turn.
        let locking = group.lock_family_if(name, Proviso { volume: None, objection: Some(objection) });
        drop(turn);
        self.locking.borrow_mut().push(uuid);
        let locked = locking.await;
        self.end_of_lock(&uuid);
        locked.map_err(words)?;
        Ok(format!("family '{name}' is locked"))
    }

    fn end_of_lock(&self, uuid: &Uuid) {
        let mut locking = self.locking.borrow_mut();
        let ended = locking.iter().position(|l| l == uuid);
        ended.map(|at| locking.swap_remove(at));
    }
}

/// Locks a family by force. In one step it is looked which one that is and its keys are forgotten: no change of the group is waited for, nor
/// a disk.
async fn lock_at_once(
    group: &Group<HostEnv>,
    env: &HostEnv,
    (name, meant): (&str, Option<Uuid>),
) -> Result<String, String> {
    refuse_another(group, name, meant)?;
    let ended = std::pin::pin!(group.lock_family_at_once(name).map_err(words)?);
    match select(ended, std::pin::pin!(env.sleep(LAST_REQUESTS))).await {
        Either::Left(_) => Ok(format!("family '{name}' is locked")),
        Either::Right(_) => Ok(format!(
            "family '{name}' is locked: its key is out of memory. Requests on its volumes still wait for a disk, and what they hold in \
             memory is overwritten when they have ended"
        )),
    }
}

fn words(e: StructureError) -> String {
    e.to_string()
}

/// The family that has a name.
fn uuid_of(group: &Group<HostEnv>, name: &str) -> Option<Uuid> {
    group.status().families.iter().find(|f| f.name == name).map(|f| f.uuid)
}

/// What was done in its turn, in words for the log.
async fn carry_out(group: &Group<HostEnv>, change: Change) -> Result<String, String> {
    match change {
        Change::Create { name, uuid, key, header } => {
            let new = NewFamily { name: name.clone(), uuid, key, header };
            group.create_family(new).await.map_err(words)?;
            Ok(format!("family '{name}' is made, and unlocked"))
        }
        Change::Header { name, key, before, header } => {
            // Whoever cannot open it must not be able to replace what opens it.
            if !group.is_key_of(&name, &key).map_err(words)? {
                return Err(words(StructureError::WrongKey(name)));
            }
            group.replace_header(&name, before.as_deref(), header).await.map_err(words)?;
            Ok(format!("the header of family '{name}' is replaced"))
        }
        Change::Rename { name, new_name } => {
            group.rename_family(&name, &new_name).await.map_err(words)?;
            Ok(format!("family '{name}' is named '{new_name}' now"))
        }
        Change::Delete { name, uuid } => {
            refuse_another(group, &name, uuid)?;
            group.delete_family(&name).await.map_err(words)?;
            Ok(format!("family '{name}' is deleted"))
        }
    }
}

/// Refuses a family that is not the one which was meant: whoever asks has looked, and asked back, and names change meanwhile. Until
/// the end of this turn they do not.
fn refuse_another(group: &Group<HostEnv>, name: &str, meant: Option<Uuid>) -> Result<(), String> {
    let Some(meant) = meant else { return Ok(()) };
    let families = group.status().families;
    match families.iter().find(|f| f.name == name) {
        Some(found) if found.uuid != meant => Err(format!(
            "'{name}' is another family than the one that was asked for: names have changed meanwhile, and nothing was done; see \
             `bimetal family list {}` and try again",
            group.status().name
        )),
        // That there is none says the engine.
        _ => Ok(()),
    }
}

/// Looks who uses volumes of a family, whatever its name is then, and says what is in the way of a lock.
fn objection(group: &Group<HostEnv>, ways: &Rc<Ways>, copied: Copied, family: Uuid) -> Objection {
    let (group, ways) = (group.clone(), ways.clone());
    Rc::new(move || {
        let family = group.status().families.into_iter().find(|f| f.uuid == family)?.name;
        let why = users(&group, &ways, copied(), &family)?;
        Some(format!(
            "family '{family}' is in use: {why}. Unmount and detach first (bimetal detach {}/VOLUME), or add --force: who \
             uses them gets errors then",
            ways.group
        ))
    })
}

/// What is in the way still when the kernel has had time to tell of the last that was closed.
async fn refusal(ways: &Ways, objection: &Objection) -> Option<String> {
    let end = ways.env.now().plus(CLOSING);
    loop {
        let why = objection()?;
        if ways.env.now() >= end {
            return Some(why);
        }
        ways.env.sleep(LOOK_AGAIN).await;
    }
}

/// Who uses volumes of a family, in words.
fn users(group: &Group<HostEnv>, ways: &Ways, copied: Option<api::Dissolving>, family: &str) -> Option<String> {
    let volumes = group.status().volumes;
    let own = volumes.iter().filter(|v| v.family.as_deref() == Some(family));
    let users = own.filter_map(|v| {
        let is_copied = |d: &&api::Dissolving| d.is_under_way() && d.volume_uuid == uuid_text(&v.uuid);
        let copied = copied.as_ref().filter(is_copied).map(|d| format!("it is being copied onto {}", d.onto));
        let users = [ways.users_of(&v.uuid), copied].into_iter().flatten().collect::<Vec<_>>().join(", ");
        (!users.is_empty()).then(|| format!("volume '{}' ({users})", v.name))
    });
    let users: Vec<String> = users.collect();
    (!users.is_empty()).then(|| users.join(", "))
}

/// The answer to `GET /v1/families/NAME/header`.
pub(super) async fn header(group: &Group<HostEnv>, name: &str) -> Result<api::FamilyHeader, String> {
    let found = group.status().families.into_iter().find(|f| f.name == name);
    let uuid = found.ok_or_else(|| StructureError::NoFamily(name.into()).to_string())?.uuid;
    let (header, lost) = match group.family_header(name).await {
        Ok(header) => (Some(hex::encode(&header)), None),
        Err(e @ StructureError::HeaderLost(_)) => (None, Some(e.to_string())),
        Err(e) => return Err(e.to_string()),
    };
    Ok(api::FamilyHeader { schema: api::SCHEMA, family: name.into(), uuid: uuid_text(&uuid), header, lost })
}

/// What is said when the daemon begins to serve: one line for each family.
pub(super) fn locked(status: &Status) -> Vec<String> {
    let line = |name: &String| {
        let own = status.volumes.iter().filter(|v| v.family.as_ref() == Some(name));
        let volumes = own.map(|v| v.name.as_str()).collect::<Vec<_>>().join(", ");
        let what = if volumes.is_empty() { "it has no volumes".into() } else { format!("its volumes wait: {volumes}") };
        format!("family '{name}' is locked, {what}; `bimetal family unlock {}/{name}` opens it", status.name)
    };
    status.families.iter().filter(|f| !f.unlocked).map(|f| line(&f.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    use crate::daemon::volumes::tests::{begun, with_tank, MIB};
    use bimetal_volume::options::NewVolume;
    use bimetal_volume::units::Placement;

    fn family(name: &str, byte: u8) -> NewFamily {
        let key = FamilyKey::try_fill::<()>(|k| {
            k.fill(byte);
            Ok(())
        });
        NewFamily { name: name.into(), uuid: [byte; 16], key: key.expect("filled"), header: vec![7; 4096] }
    }

    #[test]
    fn a_family_that_was_not_meant_is_neither_locked_nor_deleted() {
        with_tank(async |group, ways| {
            for (name, byte) in [("home", 1), ("work", 2)] {
                group.create_family(family(name, byte)).await.expect("made");
            }
            let desk = Desk::default();
            let change = |work| desk.change(&group, &ways, Rc::new(|| None), work);
            let rename =
                |name: &str, new: &str| Work::Change(Change::Rename { name: name.into(), new_name: new.into() });
            change(rename("home", "old")).await.expect("renamed");
            change(rename("work", "home")).await.expect("renamed");
            let lock = |byte| Work::Lock { name: "home".into(), uuid: Some([byte; 16]), force: true };
            let delete = |byte| Work::Change(Change::Delete { name: "home".into(), uuid: Some([byte; 16]) });
            for work in [lock(1), delete(1)] {
                let why = change(work).await.expect_err("it is another one");
                assert!(why.contains("another family than the one that was asked for"), "{why}");
            }
            assert!(group.status().families.iter().all(|f| f.unlocked));
            change(lock(2)).await.expect("it is this one");
            change(delete(2)).await.expect("it is this one");
            let left: Vec<String> = group.status().families.into_iter().map(|f| f.name).collect();
            assert_eq!(left, ["old"]);
        });
    }

    #[test]
    fn a_family_is_unlocked_while_another_one_waits_to_be_locked() {
        with_tank(async |group, ways| {
            for (name, byte) in [("home", 1), ("work", 2)] {
                group.create_family(family(name, byte)).await.expect("made");
            }
            let desk = Desk::default();
            let change = |work| desk.change(&group, &ways, Rc::new(|| None), work);
            let lock = |name: &str| Work::Lock { name: name.into(), uuid: None, force: false };
            let unlock = |name: &str, byte| Work::Unlock { name: name.into(), key: family(name, byte).key };
            change(lock("work")).await.expect("locked");
            let mut other = std::pin::pin!(group.create_family(family("other", 3)));
            begun(other.as_mut()).await;
            let mut locked = std::pin::pin!(change(lock("home")));
            begun(locked.as_mut()).await;
            let unlocked = || group.status().families.iter().map(|f| f.unlocked).collect::<Vec<bool>>();
            // What devices wait for it is asked in a thread.
            let mut opened = std::pin::pin!(change(unlock("work", 2)).fuse());
            let done = opened.as_mut().now_or_never();
            assert!(unlocked() == [true, true] && done.is_none_or(|done| done.is_ok()), "at once");
            let why = change(unlock("home", 1)).now_or_never().expect("at once").expect_err("it would be locked then");
            assert!(why.contains("is just being locked"), "{why}");
            other.await.expect("made");
            locked.await.expect("locked");
            assert_eq!(unlocked(), [false, true, true]);
            change(unlock("home", 1)).await.expect("unlocked");
        });
    }

    #[test]
    fn a_family_is_locked_by_force_while_a_change_of_families_has_its_turn() {
        with_tank(async |group, ways| {
            group.create_family(family("home", 1)).await.expect("made");
            let desk = Desk::default();
            let change = |work| desk.change(&group, &ways, Rc::new(|| None), work);
            let new = family("other", 2);
            let made = Change::Create { name: new.name, uuid: new.uuid, key: new.key, header: new.header };
            let mut other = std::pin::pin!(change(Work::Change(made)));
            begun(other.as_mut()).await;
            let mut locked =
                std::pin::pin!(change(Work::Lock { name: "home".into(), uuid: Some([1; 16]), force: true }).fuse());
            let done = locked.as_mut().now_or_never();
            assert!(!group.status().families[0].unlocked, "in the first step");
            assert!(done.is_none_or(|done| done.is_ok()));
            other.await.expect("made");
        });
    }

    #[test]
    fn a_lock_that_waits_for_its_turn_looks_again_who_uses_the_family() {
        with_tank(async |group, ways| {
            group.create_family(family("home", 9)).await.expect("made");
            let new = NewVolume { name: "own".into(), size: Some(MIB), placement: Placement::Auto };
            group.create_volume_in(&new, Some("home")).await.expect("made");
            let uuid = group.volume("own").expect("there").uuid();
            let desk = Desk::default();
            let lock = |force| {
                desk.change(&group, &ways, Rc::new(|| None), Work::Lock { name: "home".into(), uuid: None, force })
            };
            let unlocked = || group.status().families[0].unlocked;
            let mut asked = std::pin::pin!(lock(false));
            begun(asked.as_mut()).await;
            ways.devices.begin(uuid, "own", "being made");
            let why = asked.await.expect_err("in use by now");
            assert!(why.contains("volume 'own' (its ublk device is being made)"), "{why}");
            assert!(unlocked());
            lock(true).await.expect("by force");
            assert!(!unlocked());
            ways.devices.forget(&uuid);
        });
    }
}

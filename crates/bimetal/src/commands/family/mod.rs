//! `bimetal family`: families of encrypted volumes.
//!
//! Passphrases stay in this process. It gets the header of a family from the daemon, has libcryptsetup work on it, and
//! hands back a key (`handover`) or another header. Every header is tried with its passphrase before it is handed back:
//! one that does not open would be the end of the data.

mod ask;
mod header;
mod passphrases;
mod show;

use std::io::IsTerminal;

use anyhow::{bail, ensure, Context, Result};
use bimetal_host::luks::{self, Cost, FamilyKey, Header, Luks, LuksError, Unlocked};
use serde_json::json;

use self::ask::{new_passphrase, passphrase, Secret};
use super::served::{served, served_to_unlock, stop_if, Served};
use super::volume::{wait_and_tell, wait_for};
use crate::api::{self, FamilyChange, FamilyHeader, Status};
use crate::cli::{self, FamilyCommand, FamilyTarget, PassphraseCost};
use crate::config::uuid_text;
use crate::handover::Offer;
use crate::output::{confirm, Output};
use crate::{hex, runstate};

/// Passphrases that a new family has room for: with all of them its header fits what members keep for headers.
const SLOTS: u32 = 6;

pub(crate) fn run(command: FamilyCommand, output: Output) -> Result<()> {
    match command {
        FamilyCommand::List(args) => return show::list(&args.group, output),
        FamilyCommand::Lock(args) => return lock(&args, output),
        _ => {}
    }
    bimetal_host::hygiene::guard_secrets();
    match command {
        FamilyCommand::Create(args) => create(&args, output),
        FamilyCommand::Unlock(args) => unlock(&args, output),
        FamilyCommand::Passwd(args) => passphrases::change(&args, output),
        FamilyCommand::AddPassphrase(args) => passphrases::add(&args, output),
        FamilyCommand::AddRecoveryKey(args) => passphrases::add_recovery(&args, output),
        FamilyCommand::RemovePassphrase(args) => passphrases::remove(&args, output),
        FamilyCommand::Slots(args) => show::slots(&args.target, output),
        FamilyCommand::Rename(args) => rename(&args, output),
        FamilyCommand::Delete(args) => delete(&args, output),
        FamilyCommand::ExportHeader(args) => header::export(&args, output),
        FamilyCommand::ImportHeader(args) => header::import(&args, output),
        FamilyCommand::List(_) | FamilyCommand::Lock(_) => Ok(()),
    }
}

fn cost(cost: PassphraseCost) -> Cost {
    match cost {
        PassphraseCost::Default => Cost::Default,
        PassphraseCost::Light => Cost::Light,
    }
}

/// Says that it takes a while, to whoever looks.
fn be_patient(cost: Cost) {
    if cost == Cost::Default && std::io::stderr().is_terminal() {
        crate::output::tell("This takes some seconds, so that guessing takes long, too.");
    }
}

/// What a change has come to, for programs.
fn answer(target: &FamilyTarget, change: &str) -> serde_json::Value {
    json!({ "schema": api::SCHEMA, "group": target.group, "family": target.family, "change": change })
}

/// A daemon of a group for a while: one that was started for this ends with it.
struct Visit<'a> {
    group: &'a str,
    status: Status,
    started: bool,
}

impl<'a> Visit<'a> {
    fn begin(group: &'a str) -> Result<Visit<'a>> {
        let Served { status, started } = served(group, false)?;
        Ok(Visit { group, status, started })
    }

    /// The same to unlock a family.
    fn to_unlock(group: &'a str) -> Result<Visit<'a>> {
        let Served { status, started } = served_to_unlock(group)?;
        Ok(Visit { group, status, started })
    }

    /// The daemon stays, because it has a key now.
    fn stay(mut self) {
        self.started = false;
    }

    /// Refuses what needs a family that is not there, before anybody types anything.
    fn needs(&self, name: &str) -> Result<&api::Family> {
        let found = self.status.families.iter().find(|f| f.name == name);
        found.with_context(|| {
            let names: Vec<_> = self.status.families.iter().map(|f| f.name.as_str()).collect();
            match names.is_empty() {
                true => format!("group '{0}' has no families; make one: bimetal family create {0}/{name}", self.group),
                false => format!("group '{}' has no family '{name}'; it has: {}", self.group, names.join(", ")),
            }
        })
    }

    fn change(&self, change: &FamilyChange) -> Result<()> {
        let daemon = runstate::daemon(self.group)?.context("the daemon has ended meanwhile; see `bimetal status`")?;
        wait_for(self.group, daemon.post("/v1/families", change)?).map(drop)
    }

    /// The header of a family, and why there is none.
    fn header(&self, name: &str) -> Result<Result<Header, String>> {
        let daemon = runstate::daemon(self.group)?.context("the daemon has ended meanwhile; see `bimetal status`")?;
        let answer: FamilyHeader = daemon.get(&format!("/v1/families/{name}/header"))?;
        let Some(digits) = answer.header else {
            return Ok(Err(answer.lost.unwrap_or_else(|| "its header is lost".into())));
        };
        let bytes = hex::decode(&digits).context("the daemon's answer is not understood")?;
        Ok(Ok(Header::from_bytes(bytes)))
    }

    /// The header of a family, which must be there.
    fn whole_header(&self, name: &str) -> Result<Header> {
        self.header(name)?.map_err(anyhow::Error::msg)
    }

    /// Stores another header, once it is seen that `opens_by` opens it, and gets this very family's key out of it.
    fn replace(&self, luks: Luks, name: &str, before: Option<&Header>, new: &Header, opens_by: &Secret) -> Result<()> {
        let unlocked = luks.unlock(new, opens_by);
        let Unlocked { key, .. } = unlocked.context("the new header is not stored, because it does not open")?;
        self.replace_by_key(name, before, new, &key)
    }

    /// The same with a key that the caller has: nobody can say what opens the new header.
    fn replace_by_key(&self, name: &str, before: Option<&Header>, new: &Header, key: &FamilyKey) -> Result<()> {
        let offer = Offer::make(self.group, key)?;
        let before = before.map(|header| hex::encode(header.as_bytes()));
        let header = hex::encode(new.as_bytes());
        self.change(&FamilyChange::Header { name: name.into(), key: offer.name.clone(), before, header })
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        stop_if(self.started, self.group);
    }
}

/// What may be meant by what was typed, in the order in which it is tried. One that looks like a recovery key is meant in the form in
/// which it was given out, and one with a "\r" at its end without.
fn forms(typed: &Secret) -> Vec<Secret> {
    let text = std::str::from_utf8(typed).ok();
    let recovery = text.and_then(luks::recovery::normalize).map(|key| Secret::new(key.as_bytes().to_vec()));
    let line = typed.strip_suffix(b"\r").filter(|line| !line.is_empty()).map(|line| Secret::new(line.to_vec()));
    let others = [recovery, line].into_iter().flatten().filter(|form| form != typed);
    others.chain([typed.clone()]).collect()
}

/// What a passphrase opens, and the form of it that does.
fn open(luks: Luks, header: &Header, typed: &Secret) -> Result<(Unlocked, Secret)> {
    let mut forms = forms(typed).into_iter().peekable();
    while let Some(form) = forms.next() {
        match luks.unlock(header, &form) {
            Ok(unlocked) => return Ok((unlocked, form)),
            Err(LuksError::WrongPassphrase { .. }) if forms.peek().is_some() => {}
            Err(e) => return Err(e.into()),
        }
    }
    bail!("there is nothing to try")
}

fn create(args: &cli::FamilyCreate, output: Output) -> Result<()> {
    let FamilyTarget { group, family } = &args.target;
    let luks = Luks::load()?;
    let visit = Visit::begin(group)?;
    if visit.status.families.iter().any(|f| f.name == *family) {
        bail!("there is a family '{family}' already");
    }
    let secret = new_passphrase(args.passphrase_file.as_deref(), &format!("Passphrase for {}", args.target))?;
    let (uuid, key) = (luks::random_uuid(), luks::random_key());
    // LUKS has less room for a label than there is in a name. It is for people only.
    let label: String = family.chars().take(luks::MAX_LABEL).collect();
    let cost = cost(args.cost.cost);
    be_patient(cost);
    let mut header = luks.format(&uuid_text(&uuid), &label, key.as_bytes(), SLOTS, &secret, cost)?;
    let recovery = args.recovery_key.then(luks::recovery_key);
    if let Some(recovery) = &recovery {
        header = luks.add_recovery_key(&header, &secret, recovery, cost)?;
        opens(luks, &header, recovery.as_bytes(), &key)?;
    }
    opens(luks, &header, &secret, &key)?;
    let offer = Offer::make(group, &key)?;
    visit.change(&FamilyChange::Create {
        name: family.clone(),
        uuid: uuid_text(&uuid),
        key: offer.name.clone(),
        header: hex::encode(header.as_bytes()),
    })?;
    visit.stay();
    let mut answer = answer(&args.target, "created");
    answer["recovery_key"] = json!(recovery.as_ref().map(|key| key.as_str()));
    output.show(&answer, || {
        let told = recovery.as_ref().map(|key| passphrases::told(key)).unwrap_or_default();
        format!(
            "{told}Made family {0}; it is unlocked.\nNext: bimetal volume create {group}/NAME --family {family}",
            args.target
        )
    })
}

/// Whether a header that was just made does what it is for.
fn opens(luks: Luks, header: &Header, passphrase: &[u8], key: &FamilyKey) -> Result<()> {
    let opened = luks.unlock(header, passphrase).context("the new header does not open; nothing was changed")?;
    ensure!(
        opened.key.as_bytes() == key.as_bytes(),
        "the new header gives another key than it was made with: libcryptsetup on this machine is broken; nothing was changed"
    );
    Ok(())
}

fn unlock(args: &cli::FamilyUnlock, output: Output) -> Result<()> {
    let FamilyTarget { group, family } = &args.target;
    let luks = Luks::load()?;
    let visit = Visit::to_unlock(group)?;
    let found = visit.needs(family)?;
    let volumes = found.volumes.join(", ");
    if found.unlocked {
        visit.stay();
        return output.show(&answer(&args.target, "none"), || format!("Family {} is unlocked already.", args.target));
    }
    let header = visit.whole_header(family)?;
    let secret = passphrase(args.passphrase.passphrase_file.as_deref(), &format!("Passphrase of {}", args.target))?;
    let (Unlocked { key, .. }, _) = open(luks, &header, &secret)?;
    let offer = Offer::make(group, &key)?;
    visit.change(&FamilyChange::Unlock { name: family.clone(), key: offer.name.clone() })?;
    visit.stay();
    let mut answer = answer(&args.target, "unlocked");
    answer["volumes"] = json!(volumes);
    output.show(&answer, || match volumes.is_empty() {
        true => format!("Unlocked family {}; it has no volumes yet.", args.target),
        false => format!("Unlocked family {}: {volumes}.", args.target),
    })
}

fn lock(args: &cli::FamilyLock, output: Output) -> Result<()> {
    let FamilyTarget { group, family } = &args.target;
    let told = |change: &str, words: String| output.show(&answer(&args.target, change), || words);
    let Some(daemon) = runstate::daemon(group)? else {
        runstate::refuse_served(group)?;
        return told("none", format!("Group '{group}' is not served: all its families are locked."));
    };
    let status: Status = daemon.get("/v1/status")?;
    let visit = Visit { group, status, started: false };
    let found = visit.needs(family)?;
    // One that is just being locked may wait for requests, with its key in memory.
    if !found.unlocked && !args.force {
        return told("none", format!("Family {} is locked already.", args.target));
    }
    let uuid = Some(found.uuid.clone());
    let daemon = runstate::daemon(group)?.context("the daemon has ended meanwhile; see `bimetal status`")?;
    let job = daemon.post("/v1/families", &FamilyChange::Lock { name: family.clone(), uuid, force: args.force })?;
    wait_and_tell(group, job, || {
        format!(
            "Family {0} stays unlocked until the requests on its volumes, and the changes of the group that came before, have ended: that \
             may take as long as a disk stands still. Then it is locked, also if you interrupt this command. Its key leaves memory at \
             once, and those requests fail, by: bimetal family lock {0} --force",
            args.target
        )
    })?;
    told("locked", format!("Locked family {}.", args.target))
}

fn rename(args: &cli::FamilyRename, output: Output) -> Result<()> {
    let FamilyTarget { group, family } = &args.target;
    let visit = Visit::begin(group)?;
    visit.needs(family)?;
    visit.change(&FamilyChange::Rename { name: family.clone(), new_name: args.new_name.clone() })?;
    let mut answer = answer(&args.target, "renamed");
    answer["new_name"] = json!(args.new_name);
    output.show(&answer, || format!("Family {} is {group}/{} now.", args.target, args.new_name))
}

fn delete(args: &cli::FamilyDelete, output: Output) -> Result<()> {
    let FamilyTarget { group, family } = &args.target;
    let visit = Visit::begin(group)?;
    let found = visit.needs(family)?;
    if !found.volumes.is_empty() {
        bail!("family '{family}' has volumes ({}); delete them first", found.volumes.join(", "));
    }
    let question = format!(
        "This deletes family {} and its passphrases for good. What was ever encrypted under its key (deleted volumes, old \
         disks, backups of members) cannot be read again, unless its header was exported.",
        args.target
    );
    confirm(&question, args.yes)?;
    visit.change(&FamilyChange::Delete { name: family.clone(), uuid: Some(found.uuid.clone()) })?;
    output.show(&answer(&args.target, "deleted"), || format!("Deleted family {}.", args.target))
}

//! Passphrases and recovery keys of a family are changed, added and removed.

use std::path::Path;

use anyhow::Result;
use bimetal_host::luks::{self, Header, Luks, Unlocked};
use serde_json::json;

use super::ask::{another_passphrase, one_from_input, passphrase, Secret};
use super::{answer, be_patient, cost, open, Visit};
use crate::cli::{self, FamilyTarget};
use crate::output::Output;

/// A family whose header was opened by a passphrase.
struct Opened<'a> {
    visit: Visit<'a>,
    luks: Luks,
    header: Header,
    /// What opened it.
    secret: Secret,
    unlocked: Unlocked,
}

impl<'a> Opened<'a> {
    fn by(target: &'a FamilyTarget, file: Option<&Path>, prompt: &str) -> Result<Opened<'a>> {
        let luks = Luks::load()?;
        let visit = Visit::begin(&target.group)?;
        visit.needs(&target.family)?;
        let header = visit.whole_header(&target.family)?;
        let typed = passphrase(file, prompt)?;
        // Before a new one is typed twice for nothing.
        let (unlocked, secret) = open(luks, &header, &typed)?;
        Ok(Opened { visit, luks, header, secret, unlocked })
    }

    fn store(&self, family: &str, new: &Header, opens_by: &Secret) -> Result<()> {
        self.visit.replace(self.luks, family, Some(&self.header), new, opens_by)
    }
}

pub(super) fn change(args: &cli::FamilyPasswd, output: Output) -> Result<()> {
    let (file, new_file) = (args.passphrase.passphrase_file.as_deref(), args.new.new_passphrase_file.as_deref());
    one_from_input([file, new_file])?;
    let o = Opened::by(&args.target, file, &format!("Old passphrase of {}", args.target))?;
    let new = another_passphrase(new_file, "New passphrase")?;
    let cost = cost(args.new.cost.cost);
    be_patient(cost);
    let header = o.luks.change_passphrase(&o.header, &o.secret, &new, cost)?;
    o.store(&args.target.family, &header, &new)?;
    output.show(&answer(&args.target, "passphrase changed"), || {
        format!(
            "The passphrase of family {} is changed. Copies of its header that were exported before still open with the old \
             one.",
            args.target
        )
    })
}

pub(super) fn add(args: &cli::FamilyAdd, output: Output) -> Result<()> {
    let (file, new_file) = (args.passphrase.passphrase_file.as_deref(), args.new.new_passphrase_file.as_deref());
    one_from_input([file, new_file])?;
    let o = Opened::by(&args.target, file, &format!("A passphrase of {}", args.target))?;
    let new = another_passphrase(new_file, "Passphrase to add")?;
    let cost = cost(args.new.cost.cost);
    be_patient(cost);
    let header = o.luks.add_passphrase(&o.header, &o.secret, &new, cost)?;
    o.store(&args.target.family, &header, &new)?;
    output
        .show(&answer(&args.target, "passphrase added"), || format!("Family {} has one more passphrase.", args.target))
}

pub(super) fn add_recovery(args: &cli::FamilyAddRecovery, output: Output) -> Result<()> {
    let file = args.passphrase.passphrase_file.as_deref();
    let o = Opened::by(&args.target, file, &format!("A passphrase of {}", args.target))?;
    let (key, cost) = (luks::recovery_key(), cost(args.cost.cost));
    be_patient(cost);
    let header = o.luks.add_recovery_key(&o.header, &o.secret, &key, cost)?;
    o.store(&args.target.family, &header, &Secret::new(key.as_bytes().to_vec()))?;
    let mut answer = answer(&args.target, "recovery key added");
    answer["recovery_key"] = json!(key.as_str());
    output.show(&answer, || told(&key) + &format!("Family {} has one more recovery key.", args.target))
}

/// A recovery key, for people.
pub(super) fn told(key: &str) -> String {
    format!(
        "Recovery key, which is shown only now (write it down, and keep it apart from this machine):\n\n  {key}\n\n"
    )
}

pub(super) fn remove(args: &cli::FamilyRemove, output: Output) -> Result<()> {
    let family = &args.target.family;
    let prompt = match args.slot {
        None => format!("The passphrase of {} to remove", args.target),
        Some(slot) => format!("A passphrase of {} that stays, to remove slot {slot}", args.target),
    };
    let o = Opened::by(&args.target, args.passphrase.passphrase_file.as_deref(), &prompt)?;
    let slot = args.slot.unwrap_or(o.unlocked.slot);
    let header = o.luks.remove_slot(&o.header, slot, args.force)?;
    if slot == o.unlocked.slot {
        // That was the only passphrase that is known here.
        o.visit.replace_by_key(family, Some(&o.header), &header, &o.unlocked.key)?;
    } else {
        o.store(family, &header, &o.secret)?;
    }
    let left = o.luks.slots(&header)?.iter().filter(|s| s.is_tried()).count();
    let mut answer = answer(&args.target, "passphrase removed");
    answer["slot"] = json!(slot);
    output.show(&answer, || {
        let left = match left {
            0 => "nothing opens it any more but exported copies of its header".to_string(),
            1 => "one is left".to_string(),
            n => format!("{n} are left"),
        };
        format!("Removed the passphrase in slot {slot} of family {}; {left}.", args.target)
    })
}

//! Passphrases and recovery keys of a family are changed, added and removed.

use std::path::Path;

use anyhow::{bail, Result};
use bimetal_host::luks::{self, Header, Luks, LuksError, SlotInfo, Unlocked};
use serde_json::json;

use super::ask::{another_passphrase, one_from_input, passphrase, Secret};
use super::{answer, be_patient, cost, forms, open, Visit};
use crate::cli::{self, FamilyTarget};
use crate::output::Output;

/// A family whose header was opened by a passphrase.
struct Opened<'a> {
    visit: Visit<'a>,
    luks: Luks,
    header: Header,
    /// What opened it.
    secret: Secret,
    typed: Secret,
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
        Ok(Opened { visit, luks, header, secret, typed, unlocked })
    }

    fn store(&self, family: &str, new: &Header, opens_by: &Secret) -> Result<()> {
        self.visit.replace(self.luks, family, Some(&self.header), new, opens_by)
    }
}

pub(super) fn change(args: &cli::FamilyPasswd, output: Output) -> Result<()> {
    let (file, new_file) = (args.passphrase.passphrase_file.as_deref(), args.new.new_passphrase_file.as_deref());
    one_from_input([file, new_file])?;
    let o = Opened::by(&args.target, file, &format!("Old passphrase of {}", args.target))?;
    refuse_recovery_key(&o, &args.target)?;
    let new = another_passphrase(new_file, "New passphrase")?;
    let cost = cost(args.new.cost.cost);
    be_patient(cost);
    let header = o.luks.change_passphrase(&o.header, &o.secret, &new, cost)?;
    // That the new one opens is seen before the header is stored.
    let (header, also) = without(o.luks, header, forms(&o.typed).iter().filter(|form| **form != new), true)?;
    o.store(&args.target.family, &header, &new)?;
    let mut answer = answer(&args.target, "passphrase changed");
    answer["removed_slots"] = json!(also);
    output.show(&answer, || {
        format!(
            "The passphrase of family {} is changed.{} Copies of its header that were exported before still open with the old \
             one.",
            args.target,
            match also.len() {
                0 => String::new(),
                _ => format!(" The old one was in {} as well, which is removed.", in_words(&also)),
            }
        )
    })
}

/// Who has forgotten the passphrase types the recovery key. In its place the new one would void what is on paper, and what was forgotten,
/// or is known to somebody, would open the family as before.
fn refuse_recovery_key(o: &Opened<'_>, target: &FamilyTarget) -> Result<()> {
    let slots = o.luks.slots(&o.header)?;
    let Some(slot) = slots.iter().find(|s| s.number == o.unlocked.slot && s.is_recovery_key()) else { return Ok(()) };
    bail!(
        "that is the recovery key in slot {}, and no passphrase to change; nothing was changed. For a new passphrase, give the \
         recovery key to: bimetal family add-passphrase {target}. The one that was forgotten, or is known to somebody, opens the \
         family until it is removed: `bimetal family slots {target}` lists them, `bimetal family remove-passphrase {target} --slot N` \
         removes one. For another recovery key: bimetal family add-recovery-key {target}, and remove this one",
        slot.number
    )
}

/// A header that none of these passphrases opens, though one may have been added more than once; and the slots that are removed for
/// that.
fn without<'a>(
    luks: Luks,
    mut header: Header,
    passphrases: impl Iterator<Item = &'a Secret>,
    force: bool,
) -> Result<(Header, Vec<u32>)> {
    let mut removed = Vec::new();
    for passphrase in passphrases {
        loop {
            match luks.unlock(&header, passphrase) {
                Ok(unlocked) => {
                    header = luks.remove_slot(&header, unlocked.slot, force)?;
                    removed.push(unlocked.slot);
                }
                Err(LuksError::WrongPassphrase { .. } | LuksError::NoSlots) => break,
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok((header, removed))
}

/// "slot 1", "slots 1 and 2".
fn in_words(slots: &[u32]) -> String {
    let numbers: Vec<String> = slots.iter().map(u32::to_string).collect();
    format!("slot{} {}", if slots.len() == 1 { "" } else { "s" }, numbers.join(" and "))
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
    let (header, slots) = match args.slot {
        None => without(o.luks, o.header.clone(), forms(&o.typed).iter(), args.force)?,
        Some(slot) => (o.luks.remove_slot(&o.header, slot, args.force)?, vec![slot]),
    };
    if slots.contains(&o.unlocked.slot) {
        // That was the only passphrase that is known here.
        o.visit.replace_by_key(family, Some(&o.header), &header, &o.unlocked.key)?;
    } else {
        o.store(family, &header, &o.secret)?;
    }
    let left = o.luks.slots(&header)?;
    let [known, tried] =
        [SlotInfo::is_known_to_people, SlotInfo::is_tried].map(|is| left.iter().filter(|s| is(s)).count());
    let mut answer = answer(&args.target, "passphrase removed");
    answer["slot"] = json!(slots.first());
    answer["slots"] = json!(slots);
    output.show(&answer, || {
        let left = match known {
            0 if tried > 0 => "no passphrase is left, and Bimetal asks no security chip or token".to_string(),
            0 => "nothing opens it any more but exported copies of its header".to_string(),
            1 => "one is left".to_string(),
            n => format!("{n} are left"),
        };
        format!("Removed the passphrase in {} of family {}; {left}.", in_words(&slots), args.target)
    })
}

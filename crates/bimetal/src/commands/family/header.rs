//! The LUKS2 header of a family as a file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{bail, Context, Result};
use bimetal_host::luks::{Header, Luks, SlotInfo, Unlocked, MAX_BYTES};
use serde_json::json;

use super::ask::passphrase;
use super::{answer, open, Visit};
use crate::cli;
use crate::durable::sync_new;
use crate::output::{confirm, Output};
use crate::size::approx;

/// Two of this size fit a request to the daemon. Ours are smaller.
const LARGEST: usize = 1 << 20;

pub(super) fn export(args: &cli::FamilyExport, output: Output) -> Result<()> {
    let visit = Visit::begin(&args.target.group)?;
    visit.needs(&args.target.family)?;
    let header = visit.whole_header(&args.target.family)?;
    write_new(&args.file, header.as_bytes())?;
    let mut answer = answer(&args.target, "none");
    answer["file"] = json!(args.file);
    answer["header_bytes"] = json!(header.as_bytes().len());
    output.show(&answer, || {
        format!(
            "The header of family {} is in {}. Whoever has it can try passphrases on it, also those that are removed later: \
             keep it as safe as a key.",
            args.target,
            args.file.display()
        )
    })
}

/// Writes a file that is not there yet, for its owner alone. Half a file does not stay.
fn write_new(path: &Path, content: &[u8]) -> Result<()> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} is there already; name a file that is not, or remove it first", path.display())
        }
        opened => opened.with_context(|| format!("{} cannot be made", path.display()))?,
    };
    let written = file.write_all(content).and_then(|()| sync_new(&file, path));
    written
        .inspect_err(|_| drop(std::fs::remove_file(path)))
        .with_context(|| format!("{} cannot be written", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let fail = || format!("{} cannot be read", path.display());
    let mut bytes = Vec::new();
    // One byte more than a header has tells that it is none.
    File::open(path).with_context(fail)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(fail)?;
    Ok(bytes)
}

pub(super) fn import(args: &cli::FamilyImport, output: Output) -> Result<()> {
    let (target, file) = (&args.target, args.file.display());
    let luks = Luks::load()?;
    let info = luks.check(&read(&args.file)?).with_context(|| file.to_string())?;
    if info.header.as_bytes().len() > LARGEST {
        bail!(
            "{file} is a header of {}, which members have no room for: it was not made by Bimetal",
            approx(info.header.as_bytes().len() as u64)
        );
    }
    let visit = Visit::begin(&target.group)?;
    let uuid = &visit.needs(&target.family)?.uuid;
    if info.uuid != *uuid {
        bail!(
            "{file} is the header of something else: its UUID is {}, and that of family {target} is {uuid}; nothing was \
             changed",
            info.uuid
        );
    }
    let present = visit.header(&target.family)?;
    let now = match &present {
        Ok(header) => luks.slots(header).map_or_else(|e| format!("not usable ({e})"), |slots| counted(&slots)),
        Err(why) => format!("lost ({why})"),
    };
    let question = format!(
        "This replaces the header of family {target}. Now it is {now}; {file} has {}. What opens only the one before opens \
         nothing any more.",
        counted(&info.slots)
    );
    confirm(&question, args.yes)?;
    let secret = passphrase(args.passphrase.passphrase_file.as_deref(), &format!("A passphrase of {file}"))?;
    let (Unlocked { key, .. }, _) = open(luks, &info.header, &secret)?;
    let present: Option<&Header> = present.as_ref().ok();
    visit.replace_by_key(&target.family, present, &info.header, &key)?;
    let mut answer = answer(target, "header replaced");
    answer["slots"] = json!(info.slots.len());
    output.show(&answer, || format!("Family {target} has the header of {file} now, with {}.", counted(&info.slots)))
}

/// "2 passphrases".
fn counted(slots: &[SlotInfo]) -> String {
    match slots.iter().filter(|s| s.is_known_to_people()).count() {
        1 => "1 passphrase".into(),
        n => format!("{n} passphrases"),
    }
}

//! Steps that change families, lock and unlock them; and what must be true of headers and plaintext.
//!
//! 1. After each start the header of a family is one that a change which was answered had put there, or that of the
//!    change that was cut off: whole.
//! 2. At the end of a run no disk that was a member all the time holds plaintext of a volume that has a family, nor a
//!    header that was replaced. (That none of it is sent there by later writes is checked at each, see
//!    [`crate::world::World::see`].)
//! 3. The same holds from the moment at which a volume counts as encrypted.

use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_volume::backend::Backend;
use bimetal_volume::error::Error;
use bimetal_volume::fate::FateRun;
use bimetal_volume::group::structure::{NewFamily, StructureError};
use bimetal_volume::options::{Status, VolumeStatus};
use bimetal_volume::Group;

use super::client::{Client, RETRY};
use super::judge::Kind;
use super::{Run, Wrong};
use crate::content::writer_of;
use crate::counters::Seen;
use crate::disk::Cell;
use crate::env::{Ended, SimEnv};
use crate::prng::Prng;
use crate::scenario::{Act, MAX_FAMILIES};

const BLOCK: usize = 4096;
const MAGIC: &[u8; 6] = b"HEADER";
/// How long a family stays locked.
const LOCKED: Duration = Duration::from_millis(15);
/// Half of the locks are by force: by the time, so that no scenario has to say so.
const FORCED_BY: u64 = 1_000;
/// Virtual time in which volumes must be encrypted when nothing goes wrong.
const PATIENCE: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(500);

/// The families that must be there.
#[derive(Default)]
pub(super) struct Families {
    /// Version of the header of each, by number; none of number 0.
    known: [Option<u32>; MAX_FAMILIES as usize + 1],
    /// A change under way, or one of which nobody knows whether it happened: number and version then.
    pending: Option<(u8, Option<u32>)>,
    versions: u32,
    /// A label has told of a family once. Of one that never came to be nobody knows that its header lies there.
    seen: bool,
}

/// The name of a family.
pub(super) fn name(number: u8) -> String {
    format!("f{number}")
}

/// The number of the family with this name.
pub(super) fn number(name: &str) -> u8 {
    name[1..].parse().unwrap_or(u8::MAX)
}

fn key(number: u8) -> FamilyKey {
    FamilyKey::from_bytes(&[0xa0 + number; 32])
}

/// A header, which tells its version in every block.
fn header(number: u8, version: u32) -> Vec<u8> {
    let mut prng = Prng::new(u64::from(version) << 8 | u64::from(number));
    let mut out = Vec::new();
    for _ in 0..prng.range(1, 12) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.push(number);
        out.extend_from_slice(&version.to_le_bytes());
        while out.len() < start + BLOCK {
            out.push(prng.next() as u8 | 1);
        }
    }
    // The end of a header is often empty.
    out.resize(out.len() + prng.below(4) as usize * BLOCK, 0);
    out
}

/// Number and version of a block of a header.
fn version_of(block: &[u8]) -> Option<(u8, u32)> {
    let rest = block.strip_prefix(MAGIC)?;
    let version = rest[1..5].try_into().expect("four bytes");
    Some((rest[0], u32::from_le_bytes(version)))
}

/// Whether it is a block of the header of this family.
pub(super) fn is_header_of(cell: &Cell, number: u8) -> bool {
    matches!(cell, Cell::Raw(raw) if version_of(&raw[..]).is_some_and(|(n, _)| n == number))
}

/// Unlocks all families of a group, as its owner does after a start. What has become of the content of volumes is known
/// before.
pub(super) fn unlock_all(group: &Group<SimEnv>) -> Result<(), Wrong> {
    let families = group.status().families;
    let locked = if families.is_empty() { Vec::new() } else { all_fates(group)? };
    for f in &families {
        let unlocked = group.unlock_family(&f.name, key(number(&f.name)));
        unlocked.map_err(|e| format!("family {} cannot be unlocked: {e}", f.name))?;
    }
    match families.is_empty() || all_fates(group)? == locked {
        true => Ok(()),
        false => Err("unlocking has changed what has become of the volumes' content".into()),
    }
}

fn all_fates(group: &Group<SimEnv>) -> Result<Vec<Vec<FateRun>>, Wrong> {
    let volumes = group.volume_names().into_iter().filter_map(|name| group.volume(&name));
    volumes.map(|v| v.fates(0, v.size(), usize::MAX).map_err(|e| format!("fates, locked or not: {e}"))).collect()
}

impl Families {
    /// Whether a volume may be given this family; of 0, which is none, always.
    pub(super) fn is_open(&self, number: u8) -> bool {
        number == 0 || self.known[number as usize].is_some() && self.pending.is_none()
    }

    /// Compares with what a group shows, and settles what was cut off, but for headers.
    pub(super) fn settle(&mut self, status: &Status) -> Result<(), Wrong> {
        if let Some(f) = status.families.iter().find(|f| !(1..=MAX_FAMILIES).contains(&number(&f.name))) {
            return Err(format!("there is a family {} that nobody made", f.name));
        }
        self.seen |= !status.families.is_empty();
        for n in 1..=MAX_FAMILIES {
            let there = status.families.iter().any(|f| f.name == name(n));
            let pending = self.pending.filter(|p| p.0 == n);
            let legal = there == self.known[n as usize].is_some() || pending.is_some_and(|p| p.1.is_some() == there);
            if !legal {
                let must = self.known[n as usize];
                return Err(format!(
                    "family {n} is there: {there}, its header must be {must:?} (under way: {pending:?})"
                ));
            }
            if !there {
                self.known[n as usize] = None;
                self.pending = self.pending.filter(|p| p.0 != n);
            }
        }
        Ok(())
    }

    /// A header was read.
    fn found(&mut self, n: u8, bytes: &[u8]) -> Result<(), Wrong> {
        let known = self.known[n as usize];
        let pending = self.pending.filter(|p| p.0 == n);
        let is = |version: Option<u32>| version.is_some_and(|v| header(n, v) == bytes);
        if is(known) || pending.is_some_and(|p| is(p.1)) {
            if let Some((_, after)) = pending {
                self.known[n as usize] = if is(known) { known } else { after };
                self.pending = None;
            }
            return Ok(());
        }
        let seen = version_of(bytes);
        Err(format!("the header of family {n} is of {seen:?}, must be {known:?} (under way: {pending:?})"))
    }

    fn end(&mut self, made: bool) {
        if let Some((n, after)) = self.pending.take().filter(|_| made) {
            self.known[n as usize] = after;
            self.seen = true;
        }
    }
}

impl Client {
    /// Reads the headers of all families.
    pub(super) async fn check_headers(&self) {
        for f in self.group.status().families {
            let before = self.shared.world.injected();
            let read = self.group.family_header(&f.name).await;
            if self.shared.world.crash_point() {
                return;
            }
            let faults = self.shared.world.injected() != before;
            let found = match read {
                Ok(bytes) => self.shared.families.borrow_mut().found(number(&f.name), &bytes),
                Err(_) if faults => Ok(()),
                Err(e) => Err(format!("the header of family {} cannot be read: {e}", f.name)),
            };
            if let Err(wrong) = found {
                self.shared.fail(wrong);
            }
        }
    }

    /// Carries out a step that changes a family.
    pub(super) async fn change_family(&self, act: Act, n: u8) {
        let shared = &self.shared;
        while shared.changing.get() {
            shared.world.sleep(RETRY).await;
        }
        let (before, version) = {
            let mut families = shared.families.borrow_mut();
            let known = families.known[n as usize];
            let fits = known.is_some() != matches!(act, Act::MakeFamily { .. });
            if families.pending.is_some() || !fits {
                return;
            }
            families.versions += 1;
            let version = families.versions;
            let after = (!matches!(act, Act::DropFamily { .. })).then_some(version);
            families.pending = Some((n, after));
            (known.map(|v| header(n, v)).unwrap_or_default(), version)
        };
        shared.changing.set(true);
        let injected = shared.world.injected();
        let result = match act {
            Act::MakeFamily { .. } => {
                let new = NewFamily { name: name(n), uuid: [n; 16], key: key(n), header: header(n, version) };
                self.group.create_family(new).await
            }
            Act::NewHeader { .. } => self.group.replace_header(&name(n), Some(&before), header(n, version)).await,
            _ => self.group.delete_family(&name(n)).await,
        };
        if !self.answered() {
            return;
        }
        shared.world.note(28, n.into(), || format!("answered: {act:?}: {result:?}"));
        let in_use = shared.table.borrow().living().any(|(_, k)| k.family == n);
        match result {
            Ok(()) => {
                shared.families.borrow_mut().end(true);
                shared.marks.borrow_mut().mark(Seen::Family);
            }
            Err(StructureError::Engine(e)) => {
                self.judge(Kind::Write, &format!("{act:?}"), &e, injected);
                // A header that could not be written counts for nothing.
                if !matches!(e, Error::Latched(_)) {
                    shared.families.borrow_mut().end(false);
                }
            }
            Err(StructureError::FamilyInUse { .. }) if in_use => shared.families.borrow_mut().end(false),
            Err(StructureError::HeaderLost(_) | StructureError::HeaderUnread { .. })
                if shared.world.injected() != injected =>
            {
                shared.families.borrow_mut().end(false);
            }
            Err(e) if shared.is_not_reached(&e) => shared.families.borrow_mut().end(false),
            Err(e) => shared.fail(format!("{act:?} was refused: {e}")),
        }
        shared.changing.set(false);
    }

    /// Locks a family and unlocks it again. By force the requests under way fail where they need its key, or go on with it when it is back.
    pub(super) async fn relock(&self, n: u8) {
        let shared = &self.shared;
        while shared.changing.get() {
            shared.world.sleep(RETRY).await;
        }
        if n == 0 || !shared.families.borrow().is_open(n) {
            return;
        }
        shared.changing.set(true);
        shared.table.borrow_mut().lock(n);
        let forced = shared.world.now() / FORCED_BY % 2 == 1;
        let locked = match forced {
            true => self.group.lock_family_at_once(&name(n)).map(drop),
            false => self.group.lock_family(&name(n)).await,
        };
        let own = shared.table.borrow().living().find(|(_, k)| k.family == n).and_then(|(v, _)| self.volume(v));
        if let Some(volume) = own {
            let read = volume.read(0, BLOCK as u64).await;
            if !matches!(read, Err(Error::Locked | Error::Stopping)) && !shared.world.crash_point() {
                shared.fail(format!("a volume of a locked family was read: {read:?}"));
            }
            shared.marks.borrow_mut().mark(Seen::Locked);
        }
        self.sleep(LOCKED).await;
        let unlocked = self.group.unlock_family(&name(n), key(n));
        if let Err(e) = locked.and(unlocked) {
            shared.fail(format!("family {n} could not be locked and unlocked: {e}"));
        }
        shared.table.borrow_mut().unlock();
        shared.changing.set(false);
    }
}

impl Run<'_> {
    /// Every header can be read, from whatever member.
    pub(super) fn headers_are_whole(&self, env: &SimEnv, group: &Group<SimEnv>) -> Result<(), Wrong> {
        for f in group.status().families {
            let (reader, name) = (group.clone(), f.name.clone());
            let read = match env.run(PATIENCE, async move { reader.family_header(&name).await }) {
                Ended::Done(read) => read,
                Ended::Crashed => return Err("crashed without a crash point".into()),
                Ended::Hung(why) => return Err(format!("reading a header hung: {why}")),
            };
            let bytes = read.map_err(|e| format!("family {}: {e}", f.name))?;
            let n = number(&f.name);
            let families = self.shared.families.borrow();
            let legal = [families.known[n as usize], families.pending.filter(|p| p.0 == n).and_then(|p| p.1)];
            if !legal.into_iter().flatten().any(|v| header(n, v) == bytes) {
                return Err(format!("the header of family {n} is of {:?}, must be {legal:?}", version_of(&bytes)));
            }
        }
        Ok(())
    }

    /// Waits until no volume is being encrypted any more.
    pub(super) fn let_encryption_end(&self, env: &SimEnv, group: &Group<SimEnv>) -> Result<(), Wrong> {
        let (world, watched) = (self.world.clone(), group.clone());
        let until = world.now() + PATIENCE.as_nanos() as u64;
        let busy = |g: &Group<SimEnv>| g.status().volumes.iter().find_map(|v| Some((v.name.clone(), v.encrypting?)));
        let ended = env.run(PATIENCE * 2, async move {
            // What was replaced is overwritten a moment after the start, too.
            world.sleep(LOOK.as_nanos() as u64).await;
            while busy(&watched).is_some() && world.now() < until {
                world.sleep(LOOK.as_nanos() as u64).await;
            }
        });
        match (ended, busy(group)) {
            (Ended::Done(()), None) => Ok(()),
            (Ended::Done(()), Some(left)) => Err(format!("volumes were not encrypted in {PATIENCE:?}: {left:?}")),
            (Ended::Crashed, _) => Err("crashed without a crash point".into()),
            (Ended::Hung(why), _) => Err(format!("encryption hung: {why}")),
        }
    }

    /// Rule 3: at the end of a session that no fault has disturbed. The overwriting is durable before the table says so.
    pub(super) fn what_is_encrypted_is(&self, status: &Status) -> Result<(), Wrong> {
        let done = |v: &VolumeStatus| v.family.is_some() && v.encrypting.is_none();
        let done: Vec<usize> =
            status.volumes.iter().filter(|v| done(v)).filter_map(|v| v.name[1..].parse().ok()).collect();
        // Of a disk that lies nothing is known.
        if done.is_empty() || self.disks.iter().any(|d| d.store().lying) {
            return Ok(());
        }
        let roster = self.shared.roster.borrow();
        for disk in self.disks.iter().filter(|d| roster.never_left(d.index())) {
            let store = disk.store();
            for block in 0..store.blocks() {
                for cell in [store.current(block), store.durable(block)] {
                    let codes = cell.codes(disk.index(), block).into_iter().flatten();
                    if let Some((v, write)) = codes.filter_map(writer_of).find(|(v, _)| done.contains(v)) {
                        let d = disk.index();
                        return Err(format!("disk {d} holds plaintext of volume {v} at block {block}: write {write}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Rule 2.
    pub(super) fn nothing_secret_is_left(&self) -> Result<(), Wrong> {
        let table = self.shared.table.borrow();
        let families = self.shared.families.borrow();
        let has_family = |v: usize| table.get(v).is_some_and(|k| k.family > 0);
        let roster = self.shared.roster.borrow();
        for disk in self.disks.iter().filter(|d| roster.never_left(d.index())) {
            let store = disk.store();
            for block in 0..store.blocks() {
                let cell = store.durable(block);
                if let (Cell::Raw(raw), true) = (cell, families.seen) {
                    let old = version_of(&raw[..]).filter(|(n, v)| families.known[*n as usize] != Some(*v));
                    if let Some((n, version)) = old {
                        let d = disk.index();
                        return Err(format!("disk {d} still holds header {version} of family {n} at block {block}"));
                    }
                }
                let codes = cell.codes(disk.index(), block).into_iter().flatten();
                if let Some((v, write)) = codes.filter_map(writer_of).find(|(v, _)| has_family(*v)) {
                    let d = disk.index();
                    return Err(format!("disk {d} holds plaintext of volume {v} at block {block}: write {write}"));
                }
            }
        }
        let encrypted = table.living().any(|(_, k)| k.family > 0);
        self.shared.marks.borrow_mut().mark_if(encrypted, Seen::NoPlaintext);
        Ok(())
    }
}

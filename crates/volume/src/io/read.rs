//! Reads: valid blocks from their home, zeros for all others. Adjacent slots are read with one device request.

use smallvec::SmallVec;

use super::split::{runs, Part};
use crate::backend::{Piece, Pieces};
use crate::buf::BufMut;
use crate::claim::Pin;
use crate::env::Env;
use crate::error::Error;
use crate::family::cipher::{self, Encrypted};
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::mutant::{self, Mutant};
use crate::tier::{lift, DeviceRange, Policy, Touch};
use crate::units::{MemberIndex, SlotId, BLOCK};
use crate::wait;

/// Most bytes that one device request reads.
const MAX_READ: u64 = 4 << 20;

/// A step of a read.
enum Step {
    Zero(u64),
    /// Whole blocks of a member.
    Load {
        member: MemberIndex,
        offset: u64,
        len: u64,
        encrypted: bool,
    },
}

impl<E: Env> Core<E> {
    /// Reads `len` bytes at `offset` of a volume.
    pub(crate) async fn read(&self, v: &VolumeInfo, offset: u64, len: u64) -> Result<Pieces, Error> {
        self.read_as(v, offset, len, true).await
    }

    /// The same, and it is no use of the data.
    pub(crate) async fn read_unnoticed(&self, v: &VolumeInfo, offset: u64, len: u64) -> Result<Pieces, Error> {
        self.read_as(v, offset, len, false).await
    }

    async fn read_as(&self, v: &VolumeInfo, offset: u64, len: u64, used: bool) -> Result<Pieces, Error> {
        let _in = v.let_in(offset, len)?;
        if self.stopping.get() {
            return Err(Error::Stopping);
        }
        let _admitted = self.requests.enter(&v.room, len).await;
        let mut first = true;
        loop {
            let pieces = self.read_once(v, offset, len, used && first).await?;
            if let Some(pieces) = pieces {
                return Ok(pieces);
            }
            first = false;
        }
    }

    /// Nothing if what was read is of no use: it was trimmed meanwhile, and then overwritten where there was ciphertext.
    async fn read_once(&self, v: &VolumeInfo, offset: u64, len: u64, used: bool) -> Result<Option<Pieces>, Error> {
        let parts = v.parts(offset, len);
        let moment = self.claims.moment();
        // Look up and pin in one step, without an await: what is read now cannot be given to another chunk (C2.1).
        let mut pins: SmallVec<[Pin<'_>; 4]> = SmallVec::new();
        let mut steps: SmallVec<[Step; 4]> = SmallVec::new();
        for part in parts.clone() {
            self.plan_part(&part, &mut pins, &mut steps)?;
        }
        if used {
            self.touch_all(parts.clone(), false, &[]);
        }
        let mut lifts = self.begin_lifts(parts.clone().filter(|_| used && !lift::begins_late()));
        let encrypted: Encrypted = steps.iter().map(|s| matches!(s, Step::Load { encrypted: true, .. })).collect();
        let failures = self.health.failures();
        let pieces = self.load(steps).await?;
        // A sync that failed meanwhile may have taken away what was read (C11.1).
        if self.health.failures() != failures && !mutant::on(Mutant::C11ReadUnnoticed) {
            return Err(Error::Lost);
        }
        if used && lift::begins_late() {
            lifts = self.begin_lifts(parts);
        }
        if encrypted.contains(&true) && pins.iter().any(|pin| pin.overwritten_since(moment)) {
            return Ok(None);
        }
        lifts.carry(offset % BLOCK, &pieces);
        drop(pins);
        let pieces = cipher::decrypt(v, offset / BLOCK * BLOCK, pieces, &encrypted)?;
        Ok(Some(trim_edges(pieces, offset % BLOCK, len)))
    }

    fn plan_part<'a>(
        &'a self,
        part: &Part,
        pins: &mut SmallVec<[Pin<'a>; 4]>,
        steps: &mut SmallVec<[Step; 4]>,
    ) -> Result<(), Error> {
        let known = self.known(part.chunk);
        let entry = known.entry;
        let first = (part.from / BLOCK) as u32;
        let end = (part.from + part.len).div_ceil(BLOCK) as u32;
        let mut mask = known.mask();
        if mutant::on(Mutant::StaleReadAfterTrim) && entry.is_mapped() {
            mask = u32::MAX;
        }
        if mutant::on(Mutant::ReadOfFreedSlot) && entry.slot != 0 {
            mask |= entry.mask;
        }
        for (from, to, valid) in runs(mask, first, end) {
            let len = u64::from(to - from) * BLOCK;
            if !self.is_served(known.fate(valid)) {
                return Err(Error::Lost);
            }
            if !valid {
                steps.push(Step::Zero(len));
                continue;
            }
            let slot = SlotId { member: entry.member, slot: entry.slot };
            pins.push(self.claims.pin(slot));
            let offset = self.members[entry.member as usize].layout.slot(entry.slot) + u64::from(from) * BLOCK;
            push_load(steps, Step::Load { member: entry.member, offset, len, encrypted: entry.is_encrypted() });
        }
        Ok(())
    }

    async fn load(&self, steps: SmallVec<[Step; 4]>) -> Result<Pieces, Error> {
        if let [Step::Load { member, offset, len, .. }] = steps[..] {
            let buf = self.load_one(member, offset, len).await?;
            return Ok(Pieces::from_iter([Piece::Data(buf.freeze())]));
        }
        let loads = steps.iter().filter_map(|s| match s {
            Step::Load { member, offset, len, .. } => Some(self.load_one(*member, *offset, *len)),
            Step::Zero(_) => None,
        });
        let mut loaded = wait::all(loads.collect()).await.into_iter();
        let mut pieces = Pieces::new();
        for s in steps {
            pieces.push(match s {
                Step::Zero(n) => Piece::Zero(n),
                Step::Load { .. } => Piece::Data(loaded.next().expect("one result per load")?.freeze()),
            });
        }
        Ok(pieces)
    }

    async fn load_one(&self, member: MemberIndex, offset: u64, len: u64) -> Result<BufMut, Error> {
        let begun = self.foreground_begins(member);
        let result = self.members[member as usize].read(offset, BufMut::new(len as usize)).await;
        self.foreground_ends(&DeviceRange { member, offset, bytes: len }, begun);
        if let Some(e) = result.as_ref().err().filter(|_| mutant::on(Mutant::C11ReadLatches)) {
            return Err(self.latch(member, "a read", *e));
        }
        result.map_err(|source| Error::Device { member, source })
    }

    /// Tells the policy of a request.
    pub(crate) fn touch_all(&self, parts: impl Iterator<Item = Part>, write: bool, born: &[crate::units::ChunkId]) {
        if !self.writable {
            return;
        }
        let mut view = self.view();
        let mut policy = self.policy.borrow_mut();
        for p in parts {
            let address = p.chunk.0 * crate::units::CHUNK + p.from;
            let born = born.contains(&p.chunk);
            let touch = Touch { chunk: p.chunk, write, offset_in_group: address, len: p.len, born };
            policy.touch(&mut view, &touch);
        }
    }
}

/// Adds a load, joined with the one before where they are neighbours on the member.
fn push_load(steps: &mut SmallVec<[Step; 4]>, load: Step) {
    if let (
        Some(Step::Load { member: m, offset: o, len: l, encrypted: e }),
        Step::Load { member, offset, len, encrypted },
    ) = (steps.last_mut(), &load)
    {
        if m == member && *o + *l == *offset && *l + len <= MAX_READ && e == encrypted {
            *l += len;
            return;
        }
    }
    steps.push(load);
}

/// Cuts `skip` bytes off the front and everything beyond `len` off the end.
fn trim_edges(pieces: Pieces, mut skip: u64, len: u64) -> Pieces {
    let total: u64 = pieces.iter().map(Piece::len).sum();
    if skip == 0 && total == len {
        return pieces;
    }
    let mut left = len;
    let mut out = Pieces::new();
    for p in pieces {
        let from = skip.min(p.len());
        skip -= from;
        let keep = (p.len() - from).min(left);
        left -= keep;
        if keep > 0 {
            out.push(match p {
                Piece::Zero(_) => Piece::Zero(keep),
                Piece::Data(b) => Piece::Data(b.slice(from as usize, keep as usize)),
            });
        }
    }
    out
}

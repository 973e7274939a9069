//! Repair: what can still be read of a group becomes all that it holds, so that it can be started again.
//!
//! Terms: a group is *broken* if no writable start is possible though its owner has no more to bring: a member is gone
//! for good, or metadata is damaged on every member that had it. What a read-only start of the members at hand serves is
//! *kept*; all other data is *given up*, and reads as zeros afterwards. A member that is not at hand is struck off; new
//! devices can take the place of such.
//!
//! Invariants:
//! 1. Exactly what [`Core::known`] serves is kept: reads before the repair and after it give the same, or an error before
//!    and zeros after it.
//! 2. From when the labels say that a repair was begun until it is done on all members at hand, no start writes.
//! 3. Until the first member is done, nothing is overwritten that a read-only start needs: a repair that was cut off is begun
//!    again, and comes to the same end. From then on that member's map is the group's, and the others are written anew.
//! 4. Data is never written, nor moved.
//!
//! Order: new devices are laid out; the labels of all members at hand say *begun* (one whose labels are damaged gets none
//! until it is done: its map says nothing); each member, the new ones first and those last whose directory could not be read,
//! gets the whole map and, with one flip, a label that names it, a new epoch, the new member table and an empty journal,
//! *clean* as after an orderly stop and *done*; those of new devices say that they are *joining*, until the next start.
//!
//! Counter-examples to shortcuts, which the simulator plants as mutants:
//! - *Not marked* (`RepairUnmarked`). The power goes when one member is done. The next start takes the others for members of
//!   a start that was cut off, or refuses all of it for good.
//! - *Begun again from any member* (`RepairGoesBack`). The power goes when one of two is done, whose table has struck off the
//!   third. The other one's map still says what lives there: it is taken for damaged, and with it what is whole.
//! - *Doubt is kept* (`RepairKeepsDoubt`). A slow member alone says that a chunk lives on the fast tier: that slot may be
//!   another's by now, whose data it would show.
//! - *Any mark will do* (`RepairTakesAnother`). An image is made of a member while a repair is under way. Years later another
//!   repair is done, and the image takes the member's place: it is written anew with the newest map, and its slots hold what they
//!   held then.
//! - *Any block will do* (`RepairTrustsAny`). The same of an image whose labels were wiped, or of a device that was to be a member
//!   once and has blocks that say of which.
//! - *New devices stay* (`LeftoversStay`). The power goes when a new SSD alone is done, and the repair is done with another one, or
//!   with the old one, which was a cable. The new one is connected years later: its tables say who has left, and its epoch is a fork.
//! - *Journals go on* (`RepairKeepsJournal`). The records that were cut off or given up are replayed over the new map.

mod keep;
mod write;

use bimetal_format::label::{Label, READ_ONLY_COMPATIBLE};
use bimetal_format::layout::{Layout, MIN_JOURNAL_BLOCKS};
use bimetal_format::size::InWords;
use bimetal_format::ENTRIES_PER_PAGE;

use crate::env::{Device, DeviceError, Env};
use crate::family::lost::LostFamily;
use crate::fate::Fate;
use crate::group::core::Core;
use crate::group::create::headroom;
use crate::group::structure::{NewMember, StructureError};
use crate::group::volume::VolumeInfo;
use crate::member::Member;
use crate::options::OpenOptions;
use crate::recovery::{self, is_unfinished, ForRepair, OpenError};
use crate::units::{MemberIndex, Placement, Tier, CHUNK};
use crate::Volume;
use std::rc::Rc;

/// Runs of one fate looked at together.
const RUNS: usize = 4096;

/// Why a group was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// Not even a read-only start is possible.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No member of a tier would be left.
    #[error("no {0} member is left; give a new device for it, with --{0}")]
    NoMember(Tier),
    /// What is left is smaller than the volumes.
    #[error(
        "the volumes of this group need {}, but the members that are left have {}, which is {} less; give a new device, with --fast \
         or --slow",
        InWords(*need), InWords(*have), InWords(need - have)
    )]
    NoRoom {
        /// Bytes that volumes may hold.
        need: u64,
        /// Bytes that they may have of what is left.
        have: u64,
    },
    /// The same of the volumes bound to a tier.
    #[error(
        "volumes bound to the {tier} tier need {}, but its members that are left have {}, which is {} less; give a new device, with \
         --{tier}",
        InWords(*need), InWords(*have), InWords(need - have)
    )]
    TierSmall {
        /// The tier.
        tier: Tier,
        /// Bytes that such volumes may hold.
        need: u64,
        /// Bytes that they may have of what is left.
        have: u64,
    },
    /// A member can be read, and its FLUSH fails.
    #[error(
        "the FLUSH of member {member} fails ({why}), so that nothing written to it is known to last; nothing was repaired. All that is \
         on it can be read, and would be given up with it: see to cable, controller, power or server, or copy it to a sound device \
         (ddrescue) and give that one in its place; or copy what the volumes hold, read-only. What is then to go on without it is \
         repaired with this device disconnected"
    )]
    Unflushed {
        /// Its index.
        member: MemberIndex,
        /// What it said.
        why: DeviceError,
    },
    /// A new device cannot become a member.
    #[error(transparent)]
    NewDevice(StructureError),
    /// A member failed half-way.
    #[error("the repair was cut off, because member {member} has failed: {source}. Repair the group again; if that member cannot be written any more, without it")]
    Failed {
        /// Its index.
        member: MemberIndex,
        /// What it said.
        source: DeviceError,
    },
}

/// What a repair of a group comes to. Nothing is changed by having one.
pub struct Plan<E: Env> {
    core: Rc<Core<E>>,
    known: ForRepair,
    new: Vec<(Member<E::Device>, Label)>,
}

/// What has become of a volume.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of each fate, in the order of [`Fate::ALL`].
    pub bytes: [u64; Fate::ALL.len()],
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Report {
    /// Members that were struck off.
    pub struck_off: Vec<MemberIndex>,
    /// Members that are new, in the order in which they were given.
    pub new: Vec<MemberIndex>,
    /// Chunks that are not kept whole for certain: what is kept of some may be all that they held, or not the newest.
    pub given_up: u64,
}

/// Whether a repair of a group was begun, and is not done on all members that are there: no start takes it.
pub(crate) fn is_cut_off<E: Env>(core: &Core<E>) -> bool {
    let present = || core.members.iter().filter(|m| m.is_present());
    let newest = write::newest_of(&present().collect::<Vec<_>>());
    let mut labels = present().map(|m| m.label.borrow());
    labels.any(|label| is_unfinished(&label, &newest))
}

impl<E: Env> Plan<E> {
    /// Looks at the members at hand. With `kept_copies` the older copy of a chunk is kept where its home is gone.
    pub async fn new(env: E, devices: Vec<E::Device>, kept_copies: bool) -> Result<Plan<E>, RepairError> {
        let options = OpenOptions { kept_copies, ..OpenOptions::default() };
        let (core, known) = recovery::open_to_repair(env, devices, options).await?;
        Ok(Plan { core: Rc::new(core), known, new: Vec::new() })
    }

    /// Name of the group.
    pub fn group(&self) -> &str {
        &self.core.name
    }

    /// What is wrong, in words; empty if a writable start needs no repair.
    pub fn reasons(&self) -> Vec<String> {
        let core = &self.core;
        let serious = core.findings.borrow().iter().filter(|f| f.serious).map(|f| f.what.clone()).collect::<Vec<_>>();
        let mut reasons = serious;
        if !core.map_complete {
            reasons.push("no fast member has a sound map, and those of slow ones may be older".into());
        }
        if self.goes_on() {
            reasons.push("a repair was cut off".into());
        }
        for index in &self.known.unlabelled {
            reasons.push(format!("both labels of member {index} are damaged"));
        }
        for index in &self.known.misplaced {
            reasons.push(format!(
                "of member {index} the first label is damaged, and the second lies where no start looks"
            ));
        }
        reasons
    }

    /// Whether a member lacks what lay in a part of it: it would be taken as it is, and nobody can tell what of it is not its own.
    pub fn is_not_whole(&self) -> bool {
        self.known.not_whole
    }

    /// Whether it goes on with a repair that was cut off.
    pub fn goes_on(&self) -> bool {
        is_cut_off(&self.core)
    }

    /// Members that are not at hand, and would be struck off, in words.
    pub fn missing(&self) -> Vec<String> {
        let label = self.core.first_member().label.borrow();
        let gone = self.core.members.iter().filter(|m| !m.is_present()).map(|m| m.index as usize);
        gone.map(|i| recovery::describe((i, &label.members[i]))).collect()
    }

    /// Positions in the caller's list of the devices that are members.
    pub fn members(&self) -> &[usize] {
        &self.known.positions
    }

    /// Positions in the caller's list of devices that failed when they were to say which member they are, or lack something of their size,
    /// and what is the matter: each may be a member that is missing.
    pub fn failed(&self) -> &[(usize, String)] {
        &self.known.failed
    }

    /// Positions in the caller's list of devices without labels that hold what a missing member holds, and are not taken for it: two do, or
    /// it was in use after all that those with labels know. What is on them nobody else may have. They are among those that
    /// [`failed`](Plan::failed).
    pub fn held_back(&self) -> &[usize] {
        &self.known.held_back
    }

    /// Bytes of volumes that are given up because a device fails to read where they are: it may read it another time.
    pub fn unread(&self) -> u64 {
        let pages = self.known.unread.pages * ENTRIES_PER_PAGE as u64 * CHUNK;
        if !self.known.unread.more {
            return pages;
        }
        let gone = |v: Kept| v.bytes[Fate::Lost as usize] + v.bytes[Fate::PerhapsLost as usize];
        pages.max(self.volumes().into_iter().map(gone).sum())
    }

    /// What becomes of the content of each volume.
    pub fn volumes(&self) -> Vec<Kept> {
        let of = |info: Rc<VolumeInfo>| {
            let v = Volume { core: self.core.clone(), info };
            let (size, name) = (v.info.size.get(), v.info.name.borrow().clone());
            let (mut at, mut bytes) = (0, [0; Fate::ALL.len()]);
            // The range is the volume's own: there is nothing to refuse.
            while let Some(runs) = v.fates(at, size - at, RUNS).ok().filter(|runs| !runs.is_empty()) {
                for run in runs {
                    at += run.len;
                    bytes[run.fate as usize] += run.len;
                }
            }
            Kept { name, size, bytes }
        };
        self.core.volumes.living().into_iter().map(of).collect()
    }

    /// Families that nobody opens after the repair, unless their header was exported: no member at hand has it whole.
    pub async fn lost_families(&self) -> Vec<LostFamily> {
        self.core.lost_families().await
    }

    /// Takes a new device into the plan; its index comes back. By force also one with the label of a member that is not at hand: whoever
    /// asks for that knows that it is an old copy, with which the group cannot go on.
    pub async fn add(&mut self, device: E::Device, new: &NewMember) -> Result<MemberIndex, RepairError> {
        let is_gone = |index: MemberIndex| self.core.members.iter().any(|m| m.index == index && !m.is_present());
        match self.core.check_device(&device, new).await {
            Err(StructureError::OwnMember(index)) if new.force && is_gone(index) => {}
            checked => checked.map_err(RepairError::NewDevice)?,
        }
        let base = match self.new.last() {
            Some((_, label)) => label.clone(),
            None => self.core.first_member().label.borrow().clone(),
        };
        // Nothing is served before the next start, which says anew how much a commit may take. So a small device gets a small
        // journal, as at the creation of a group, and has room for all that one of its size had.
        let label = self.core.label_of_new(base, device.size(), new, MIN_JOURNAL_BLOCKS);
        let label = label.map_err(RepairError::NewDevice)?;
        let index = label.member;
        let m = Member::new(Some(device), label.clone(), index, self.core.options.journal_records);
        self.new.push((m, label));
        Ok(index)
    }

    /// How the new devices will be laid out, in the order in which they were given, and how many bytes of each.
    pub fn new_layouts(&self) -> impl Iterator<Item = (Layout, u64)> + '_ {
        self.new.iter().map(|(_, label)| (label.layout(), label.device_size))
    }

    /// Whether every member that is left takes writes that last, and what volumes were promised fits what would be left (I5).
    pub fn check(&self) -> Result<(), RepairError> {
        if self.core.first_member().label.borrow().read_only_compatible & !READ_ONLY_COMPATIBLE != 0 {
            return Err(OpenError::ReadOnlyFeatures { name: self.core.name.clone() }.into());
        }
        // Its labels could not be made to say that a repair was begun, nor that it is done.
        if let Some((member, why)) = self.known.unflushed {
            return Err(RepairError::Unflushed { member, why });
        }
        let new_in = |tier| self.new.iter().filter(move |(m, _)| m.tier == tier);
        let slots =
            |tier: Tier| self.core.slots_in(tier) + new_in(tier).map(|(m, _)| m.free.borrow().count()).sum::<u64>();
        for tier in [Tier::Fast, Tier::Slow] {
            // One that is leaving will not be there for long.
            if self.core.open_to_chunks(tier).next().is_none() && new_in(tier).next().is_none() {
                return Err(RepairError::NoMember(tier));
            }
        }
        let volumes = &self.core.volumes;
        for (tier, placement) in [(Tier::Fast, Placement::FastOnly), (Tier::Slow, Placement::SlowOnly)] {
            let (need, have) = (volumes.bound(placement), slots(tier) - headroom(slots(tier)));
            if need > have {
                return Err(RepairError::TierSmall { tier, need: need * CHUNK, have: have * CHUNK });
            }
        }
        let all = slots(Tier::Fast) + slots(Tier::Slow);
        let (need, have) = (volumes.promised_in_all(), all - headroom(all));
        match need > have {
            true => Err(RepairError::NoRoom { need: need * CHUNK, have: have * CHUNK }),
            false => Ok(()),
        }
    }

    /// Repairs the group. It is stopped in order afterwards.
    pub async fn carry_out(self) -> Result<Report, RepairError> {
        self.check()?;
        let Plan { core, known, new } = self;
        write::carry_out(&core, &known, new).await
    }
}

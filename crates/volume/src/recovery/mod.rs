//! Opening a group: from devices in any state to a map that can be trusted, or to a refusal in words.
//!
//! Steps, each in a file of its own:
//! 1. [`identify`]: sync every device (C7.1), read its labels.
//! 2. [`assemble`]: one group, no member twice, epochs in one line (C4); who is missing, who was left behind.
//! 3. [`choose`], [`load`], [`pages`]: whose map it is; its pages, of which a damaged one is taken from [`elsewhere`] (C5.2).
//! 4. [`replay`]: the journal of the best source, along its hash chain (C6).
//!    Without a fast member, after a crash: what each slow one knows of its own slots ([`alone`]).
//! 5. [`settle`]: slots derived from the map; two chunks on one slot (C7.3).
//! 6. [`start`]: for a writable group, the new epoch on all members and the other journals brought up to date (C4.1).
//!
//! Nothing before step 6 writes, and step 6 can be cut off anywhere and done again (I4).

mod alone;
mod anew;
mod assemble;
mod belief;
mod choose;
mod departed;
mod elsewhere;
mod finding;
mod hole;
mod identify;
mod load;
mod pages;
mod patience;
mod recognise;
mod replay;
mod settle;
mod start;
mod window;

use bimetal_format::label::LabelError;

use self::identify::Unusable;
use self::load::{Source, Unread};
use crate::env::{DeviceError, Env};
use crate::group::core::Core;
use crate::member::label::Apart;
use crate::options::OpenOptions;
use crate::units::MemberIndex;

pub(crate) use assemble::{describe, is_unfinished};
pub use departed::{voices, Voice};
pub(crate) use finding::Finding;
pub(crate) use identify::{identify, Found, Identified};
pub(crate) use replay::{read_chain, Chain};
pub(crate) use start::next_epoch;

/// Why a group could not be opened. Devices are named by their position in the caller's list.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No device was given.
    #[error("no member was given")]
    NoDevices,
    /// A device failed while its label was read.
    #[error("device {device}: {source}")]
    Device {
        /// Position in the caller's list.
        device: usize,
        /// What it said.
        source: DeviceError,
    },
    /// The FLUSH of a device fails, and its label can be read.
    #[error("device {device} is not used: {}", Unusable::Unflushed(*why))]
    Unflushed {
        /// Position in the caller's list.
        device: usize,
        /// What it said.
        why: DeviceError,
    },
    /// A device carries no usable label.
    #[error("device {device} is not a usable member: {source}")]
    Label {
        /// Position in the caller's list.
        device: usize,
        /// What is wrong with its label.
        source: LabelError,
    },
    /// The device became smaller than its label says.
    #[error("device {device} has {size} bytes, but had {expected} bytes when it joined the group")]
    Shrunk {
        /// Position in the caller's list.
        device: usize,
        /// Bytes now.
        size: u64,
        /// Bytes then.
        expected: u64,
    },
    /// What lay in a part of a device is not in it.
    #[error("device {device} has {apart}. Nothing was changed; bring all of it")]
    NotWhole {
        /// Position in the caller's list.
        device: usize,
        /// What tells so.
        apart: Apart,
    },
    /// Members of two groups.
    #[error("device {device} belongs to group {other}, not to {name}; give only members of one group")]
    OtherGroup {
        /// Position in the caller's list.
        device: usize,
        /// Its group.
        other: String,
        /// The group of the first device.
        name: String,
    },
    /// One member came twice.
    #[error(
        "devices {first} and {second} are both member {member} of group {name} (a copy or clone?); disconnect the one that is not current"
    )]
    Doubled {
        /// Position in the caller's list.
        first: usize,
        /// Position in the caller's list.
        second: usize,
        /// Index of the member.
        member: u8,
        /// Name of the group.
        name: String,
    },
    /// No device given is a member.
    #[error("the devices given were being added to a group when that was cut off, and are no members; give the members of the group, and add these again")]
    OnlyJoining,
    /// Members were used apart from each other.
    #[error(
        "members of group {name} were used apart from each other: {members:?} have epochs that do not descend from one another. Nothing was changed; decide which side to keep, and open the group without the other"
    )]
    Fork {
        /// Name of the group.
        name: String,
        /// Members of the side that does not descend from the other.
        members: Vec<u8>,
    },
    /// A member is older than the rest of the group.
    #[error(
        "member {member} of group {name} holds an older state than the group (an old copy was put back, or it lost writes that it had confirmed). Nothing was changed; bring back the current member, or open read-only without this one. If there is no other, read from it alone, read-only, what only it holds; then disconnect it, and repair the group without it"
    )]
    Stale {
        /// Name of the group.
        name: String,
        /// Index of the member.
        member: u8,
    },
    /// Members are missing.
    #[error("group {name} is incomplete: waiting for member(s) {missing}. To read what is there, open it read-only with members missing allowed")]
    Incomplete {
        /// Name of the group.
        name: String,
        /// Who is missing, in words.
        missing: String,
    },
    /// Metadata is damaged beyond what the other members can mend.
    #[error("group {name}: {what}. Nothing was changed; the group can be opened read-only, what is damaged reads as an error")]
    Damaged {
        /// Name of the group.
        name: String,
        /// What is damaged.
        what: String,
    },
    /// A repair was begun and is not done.
    #[error("a repair of group {name} was cut off; nothing was changed now. Repair it again, which goes on with it")]
    RepairCutOff {
        /// Name of the group.
        name: String,
    },
    /// Written with features that this version can only read.
    #[error("group {name} uses features that this program can only read; open it read-only or use a newer Bimetal")]
    ReadOnlyFeatures {
        /// Name of the group.
        name: String,
    },
    /// A member failed while the group was being opened.
    #[error("member {member}: {source}")]
    Member {
        /// Index of the member.
        member: u8,
        /// What it said.
        source: DeviceError,
    },
}

/// Opens a group: see the module's head.
pub(crate) async fn open<E: Env>(env: E, devices: Vec<E::Device>, options: OpenOptions) -> Result<Core<E>, OpenError> {
    let found = identify(devices, options.writable).await?;
    let (core, source) = load(env, found, options).await?;
    if core.writable {
        start::start(&core, source).await?;
    }
    Ok(core)
}

/// What a repair has to know beside the map.
pub(crate) struct ForRepair {
    /// Where the journal of each member ends that is there, by index.
    pub(crate) journal_ends: Vec<Option<u64>>,
    /// Members both of whose labels are damaged.
    pub(crate) unlabelled: Vec<MemberIndex>,
    /// Members whose first label is damaged, and whose second is not where a start looks.
    pub(crate) misplaced: Vec<MemberIndex>,
    /// Positions in the caller's list of the devices that are members.
    pub(crate) positions: Vec<usize>,
    /// Positions of those that failed when they were to say which member they are, or lack something of their size, and what is the matter.
    pub(crate) failed: Vec<(usize, String)>,
    /// Positions of those among them that hold what a member holds, and are not taken for it.
    pub(crate) held_back: Vec<usize>,
    /// Whether a member lacks what lay in a part of it.
    pub(crate) not_whole: bool,
    /// What could not be read, and no member at hand has otherwise.
    pub(crate) unread: Unread,
    /// A member whose FLUSH fails, and what it said.
    pub(crate) unflushed: Option<(MemberIndex, DeviceError)>,
}

/// Loads what a read-only start would serve, for a repair, which knows members without their labels too.
pub(crate) async fn open_to_repair<E: Env>(
    env: E,
    devices: Vec<E::Device>,
    options: OpenOptions,
) -> Result<(Core<E>, ForRepair), OpenError> {
    let options = OpenOptions { writable: false, allow_missing: true, migrate: false, ..options };
    let mut found = identify(devices, false).await?;
    let misplaced = recognise::recognise(&env, &mut found).await;
    let (failed, held_back) = (found.failed(), found.held_back());
    let not_whole = found.found.iter().any(|f| f.apart.is_some());
    let (core, source) = load(env, found, options).await?;
    let journal_ends = source.chains.iter().map(|c| c.as_ref().map(|c| c.end.sequence)).collect();
    let Source { recognised, positions, unread, unflushed, .. } = source;
    let known = ForRepair {
        journal_ends,
        unlabelled: recognised,
        misplaced,
        positions,
        failed,
        held_back,
        not_whole,
        unread,
        unflushed,
    };
    Ok((core, known))
}

/// Steps 2 to 5.
async fn load<E: Env>(
    env: E,
    found: Identified<E::Device>,
    options: OpenOptions,
) -> Result<(Core<E>, Source), OpenError> {
    let assembled = assemble::assemble(found, &options)?;
    let (mut core, absent) = assemble::core_of(env, assembled, options);
    let source = load::load_map(&mut core, absent).await?;
    settle::settle(&core)?;
    Ok((core, source))
}

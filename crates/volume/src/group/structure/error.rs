//! Why a volume could not be made or changed, in words.

use bimetal_format::label::{LabelError, MAX_FAMILIES, MAX_MEMBERS, MAX_VOLUMES};
use bimetal_format::layout::LayoutError;
use bimetal_format::size::InWords;

use crate::env::DeviceError;
use crate::error::Error;
use crate::units::{MemberIndex, Tier};

/// Why a volume could not be made, resized, renamed or deleted. But for [`StructureError::Engine`] nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StructureError {
    /// A name breaks the rule.
    #[error("volume name '{0}': use 1 to 63 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit")]
    Name(String),
    /// There is such a volume.
    #[error("there is a volume '{0}' already")]
    Taken(String),
    /// There is no such volume.
    #[error("there is no volume '{0}'")]
    Unknown(String),
    /// The name is another's by now.
    #[error("'{0}' is another volume than the one that was asked for: names have changed meanwhile, and nothing was done; see `bimetal volume list` and try again")]
    AnotherVolume(String),
    /// Somebody objected when its turn had come, in these words.
    #[error("{0}")]
    Objected(String),
    /// A size of nothing.
    #[error("the smallest volume has 128 KiB")]
    TooSmall,
    /// The sizes together would be more than there is (I5).
    #[error("{} more are needed, but only {} are left; shrink or delete another volume first", InWords(*need), InWords(*have))]
    NoRoom {
        /// Bytes asked for, beyond what the volume has.
        need: u64,
        /// Bytes that no volume is promised.
        have: u64,
    },
    /// The volumes bound to a tier would be more than it has.
    #[error("{} more are needed on the {tier} tier, but only {} of it are left for volumes bound to it", InWords(*need), InWords(*have))]
    TierSmall {
        /// The tier.
        tier: Tier,
        /// Bytes asked for, beyond what the volume has.
        need: u64,
        /// Bytes that no volume bound to the tier is promised.
        have: u64,
    },
    /// Other volumes' data fills the tier, and does not go away.
    #[error("{} are needed on the {tier} tier, but data of other volumes leaves only {}; try again when less is stored there", InWords(*need), InWords(*have))]
    TierFull {
        /// The tier.
        tier: Tier,
        /// Bytes that must be free.
        need: u64,
        /// Bytes that are.
        have: u64,
    },
    /// The map has no pages left.
    #[error("the map of this group has room for only {} more in volumes; it was laid out for fewer volumes when the group was made", InWords(*.0))]
    NoPages(u64),
    /// The volume table is full.
    #[error("the volume table is full ({MAX_VOLUMES} rows; a volume that has grown may take several); delete a volume first")]
    TableFull,
    /// A smaller size would cut data off.
    #[error("there is data up to {} of volume '{name}': shrink its file system first, discard what lies beyond (fstrim, blkdiscard), or choose a size of at least {} bytes", InWords(*end), end)]
    DataBeyond {
        /// The volume.
        name: String,
        /// First byte after the last block that holds data, rounded up to 128 KiB.
        end: u64,
    },
    /// The device is a member of this group.
    #[error("the device is member {0} of this group already")]
    OwnMember(u8),
    /// The device belongs to another group.
    #[error("the device is a member of the Bimetal group '{0}'; destroy that group first, or add --force to take the device from it (its data is lost)")]
    OthersMember(String),
    /// The device carries a label that cannot be read.
    #[error(
        "the device carries a Bimetal label, but {0}; add --force to take the device all the same (its data is lost)"
    )]
    UnknownLabel(LabelError),
    /// No such member.
    #[error("the group has no member {0}; see `bimetal member list`")]
    NoMember(MemberIndex),
    /// Nothing is left of its tier without it.
    #[error("it is the last member of the {0} tier that takes data, and a group needs one; add another first")]
    LastOfTier(Tier),
    /// What the volumes may hold does not fit the other members.
    #[error("the volumes may hold {}, but without this member the group has room for only {}; add another member, or shrink or delete a volume first", InWords(*need), InWords(*have))]
    NoRoomWithout {
        /// Bytes that volumes hold or were promised.
        need: u64,
        /// Bytes that the other members have for them.
        have: u64,
    },
    /// It is not on its way out.
    #[error("member {0} is not leaving; evacuate it first")]
    NotLeaving(MemberIndex),
    /// It was to stay, but has failed and so has left.
    #[error("member {0} has failed and cannot stay; it held no data, and has left. The group goes on without it. When the device is mended, add it as a new member")]
    CannotStay(MemberIndex),
    /// Something is on it.
    #[error("{} are still on member {index}; wait until it is empty", InWords(*used))]
    NotEmpty {
        /// The member.
        index: MemberIndex,
        /// Bytes of its slots in use.
        used: u64,
    },
    /// There is no such family.
    #[error("there is no family '{0}'; `bimetal family list` shows those that there are")]
    NoFamily(String),
    /// A name breaks the rule.
    #[error("family name '{0}': use 1 to 63 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit")]
    FamilyName(String),
    /// There is such a family.
    #[error("there is a family '{0}' already")]
    FamilyTaken(String),
    /// Its key is not here.
    #[error("the family '{0}' is locked; unlock it first: `bimetal family unlock`")]
    FamilyLocked(String),
    /// It is about to be locked.
    #[error(
        "the family '{0}' is just being locked: requests on its volumes are still on their way; try again in a moment"
    )]
    BeingLocked(String),
    /// A key of something else.
    #[error("the key is not that of family '{0}'")]
    WrongKey(String),
    /// It has volumes.
    #[error("family '{family}' has volumes ({volumes}); delete them first")]
    FamilyInUse {
        /// The family.
        family: String,
        /// Names of its volumes.
        volumes: String,
    },
    /// The volume belongs to a family.
    #[error("volume '{0}' belongs to a family already")]
    HasFamily(String),
    /// There is no row for one more.
    #[error("a group has at most {MAX_FAMILIES} families")]
    ManyFamilies,
    /// Headers take more than there is.
    #[error("the headers of the families would take {}, but members keep only {} for them: remove a passphrase or a family that is not used any more (each passphrase takes 128 KiB, each family 32 KiB)", InWords(*need), InWords(*have))]
    KeysFull {
        /// Bytes of all headers.
        need: u64,
        /// Bytes that there are.
        have: u64,
    },
    /// No header at all.
    #[error("this is no LUKS2 header: it is empty, or its length is no multiple of 4096 bytes")]
    BadHeader,
    /// Somebody else has replaced the header.
    #[error("the header of family '{0}' was changed by somebody else meanwhile; try again")]
    HeaderChanged(String),
    /// No member has the header whole.
    #[error("the header of family '{0}' is damaged on every member; restore it from a copy with `bimetal family import-header`")]
    HeaderLost(String),
    /// No member has the header whole that could be read.
    #[error("nothing was changed: the header of family '{name}' is not whole on the other members, and member {member} cannot read its copy ({source}), which this change would replace. Look at the device and try again; or write the header anew from a copy: bimetal family import-header")]
    HeaderUnread {
        /// The family.
        name: String,
        /// The member.
        member: MemberIndex,
        /// What its device said.
        source: DeviceError,
    },
    /// No other member has the header of a family whole.
    #[error("only member {index} has the header of family '{name}' whole, and no other member could be given it: keep a copy of it (`bimetal family export-header`), look at the other members, and try again")]
    HeaderOnlyHere {
        /// The family.
        name: String,
        /// The member that was to leave.
        index: MemberIndex,
    },
    /// A volume is being encrypted, and not all of its plaintext is overwritten.
    #[error("member {index} may still hold plaintext of volume '{volume}', which is being encrypted: try again when that is done (`bimetal status` shows how far it is). A device that cannot be written any more is best destroyed: once empty, it can be left out at the next start")]
    MayHoldPlaintext {
        /// The member.
        index: MemberIndex,
        /// The volume.
        volume: String,
    },
    /// There is no row for one more.
    #[error("a group has at most {MAX_MEMBERS} members in its life, those that have left it included")]
    ManyMembers,
    /// The device is too small, or cannot be laid out.
    #[error("the device cannot become a member: {0}")]
    Layout(#[from] LayoutError),
    /// The device failed while it was made ready; it is no member.
    #[error("the new device failed: {0}; the group is as it was")]
    NewDevice(DeviceError),
    /// The device stands still; it is no member.
    #[error("the new device failed: it has not answered for {0} s; the group is as it was. Look at the device, or at the server that it is behind, and add it again")]
    Silent(u64),
    /// The group takes no changes, or stopped taking them before anything of it was changed.
    #[error("{0}; no member was added")]
    NotAdded(Error),
    /// A member is lost.
    #[error("member {0} cannot be reached, and every member has to know of a change of volumes or members; nothing was changed. What does not need that member goes on meanwhile. When it is back, stop and start the group, and try again")]
    NotReached(MemberIndex),
    /// The group refuses changes, or has stopped accepting them in the middle. Then the next start decides whether it
    /// happened.
    #[error(transparent)]
    Engine(#[from] Error),
}

//! `bimetal volume`.

use clap::{Args, Subcommand};

use super::{group_name, size, target, Placement, Target};
use crate::size::Size;

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  bimetal volume list tank
  bimetal volume create tank/home --size 200GiB
  bimetal volume resize tank/home 300GiB
  bimetal volume delete tank/home
Volumes promise space: their sizes together are never more than a group has. Shrink or delete one to make room for another.")]
pub(crate) struct Volume {
    #[command(subcommand)]
    pub(crate) command: VolumeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume; a running daemon serves it at once
    Create(VolumeCreate),
    /// List the volumes of a group
    List(VolumeList),
    /// Give a volume another size; never cuts data off
    Resize(VolumeResize),
    /// Give a volume another name
    Rename(VolumeRename),
    /// Delete a volume with all its data
    Delete(VolumeDelete),
    /// Encrypt a plain volume, while it is in use
    Encrypt(VolumeEncrypt),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal volume create tank/home --size 200GiB
  bimetal volume create tank/films --size 1TiB --placement slow-only
  bimetal volume create tank/home --size 200GiB --family private
A fast-only volume waits until enough of the fast tier is free; its space there is kept for it from then on.")]
pub(crate) struct VolumeCreate {
    /// GROUP/NAME of the new volume
    #[arg(value_parser = target)]
    pub(crate) target: Target,
    /// Its size, rounded down to 128 KiB [default: all the space that is left, as far as the map of the group reaches]
    #[arg(long, value_parser = size, allow_hyphen_values = true)]
    pub(crate) size: Option<Size>,
    /// Where its data may live
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) placement: Placement,
    /// Encrypt it under the key of this family, which must be unlocked
    #[arg(long, value_name = "FAMILY", value_parser = group_name)]
    pub(crate) family: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal volume encrypt tank/home --family private
  bimetal volume encrypt tank/home --family private --yes --wait
The volume stays in use. What is written from now on is encrypted; what is there is encrypted in the background, also after a restart (the family must be unlocked then). At the end all space of all members that may still hold plaintext is overwritten, which takes about as long as writing every member once. There is no way back but to copy the data to a plain volume. Members that have left the group before may still hold plaintext, and so may the spare areas of flash devices.")]
pub(crate) struct VolumeEncrypt {
    /// GROUP/VOLUME
    #[arg(value_parser = target)]
    pub(crate) target: Target,
    /// The family that it joins, which must be unlocked
    #[arg(long, value_name = "FAMILY", value_parser = group_name)]
    pub(crate) family: String,
    /// Wait until all of it is encrypted, and show how far it is
    #[arg(long)]
    pub(crate) wait: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal volume list tank\n  bimetal volume list tank --json")]
pub(crate) struct VolumeList {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal volume resize tank/home 300GiB     # then, in it: resize2fs, xfs_growfs, btrfs filesystem resize
  bimetal volume resize tank/home 100GiB     # after the file system in it was shrunk
A smaller size is refused while any block beyond it holds data; discard what is not used any more (fstrim, blkdiscard).
A device attached by FUSE has the new size at once, also while it is mounted; one attached by ublk or NBD has to be \
detached and attached again. Other clients see it when they connect anew.")]
pub(crate) struct VolumeResize {
    /// GROUP/VOLUME
    #[arg(value_parser = target)]
    pub(crate) target: Target,
    /// The new size, rounded down to 128 KiB
    #[arg(value_parser = size, allow_hyphen_values = true)]
    pub(crate) size: Size,
    /// Shrink although it is in use: clients get errors beyond the new size, and most go on with the old one
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bimetal volume rename tank/main root")]
pub(crate) struct VolumeRename {
    /// GROUP/VOLUME
    #[arg(value_parser = target)]
    pub(crate) target: Target,
    /// The new name
    #[arg(value_parser = group_name)]
    pub(crate) new_name: String,
    /// Although clients are connected: one that comes again by the old name finds none, or the volume that has it then
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bimetal volume delete tank/home --yes")]
pub(crate) struct VolumeDelete {
    /// GROUP/VOLUME
    #[arg(value_parser = target)]
    pub(crate) target: Target,
    /// Although it is attached, or clients are connected: they get errors from then on
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

//! `bimetal member`.

use clap::{Args, Subcommand};

use super::group_name;

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  bimetal member list tank
  bimetal member add tank --fast /dev/nvme1n1
  bimetal member remove tank /dev/sdb
  bimetal member replace tank /dev/nvme0n1 /dev/nvme1n1
A group is changed while it is in use. Flushes may wait for a moment when a device is added, and writers for single chunks at the end of an evacuation.")]
pub(crate) struct Member {
    #[command(subcommand)]
    pub(crate) command: MemberCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// List the members of a group
    List(MemberList),
    /// Add a device to a group; its space can be used at once
    Add(MemberAdd),
    /// Move what is on a member to the others, and put nothing new on it
    Evacuate(MemberEvacuate),
    /// Evacuate a member, take it out of its group, and erase its label
    Remove(MemberRemove),
    /// Add a device in the tier of a member, and remove that member
    Replace(MemberReplace),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal member list tank\n  bimetal member list tank --json")]
pub(crate) struct MemberList {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal member add tank --fast /dev/nvme1n1
  bimetal member add tank --slow nbd://backup.example/disk3
Everything on the device is lost. Volumes keep their sizes: `bimetal volume resize` gives them the new space. How much \
all volumes of a group can hold was laid down when it was made, with an eighth to spare; the command says what is left.")]
pub(crate) struct MemberAdd {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// A fast member: SSD, NVMe
    #[arg(long, value_name = "DEV", required_unless_present = "slow", conflicts_with = "slow")]
    pub(crate) fast: Option<String>,
    /// A slow member: hard disk, remote disk
    #[arg(long, value_name = "DEV")]
    pub(crate) slow: Option<String>,
    /// Take the device although it carries a known signature, and erase it (never one that is mounted or, as far as can be
    /// seen, in use)
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal member evacuate tank /dev/sdb --dry-run
  bimetal member evacuate tank 2
  bimetal member evacuate tank 2 --cancel
It shows how far it is until the member is empty. Ctrl-C only ends the watching: the member goes on getting empty beside \
those who use the group, after a restart too. Without a daemon this command does the work, and what it has not done when it \
is interrupted is done when the group is served again.")]
pub(crate) struct MemberEvacuate {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// Its index or device, as `bimetal member list` shows them
    pub(crate) member: String,
    /// Only say what would be moved and whether it fits; nothing is changed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep a member that is leaving: it takes data again; what went stays where it is now
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) cancel: bool,
    /// Do not wait until it is empty
    #[arg(long, conflicts_with_all = ["dry_run", "cancel"])]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal member remove tank 2
  bimetal member remove tank /dev/sdb --yes
What is on the member goes to the others first, which must have room for it; `bimetal member evacuate --dry-run` says whether \
they have. Ctrl-C only ends the watching: the member goes on getting empty, and the same command takes it out then.")]
pub(crate) struct MemberRemove {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// Its index or device, as `bimetal member list` shows them
    pub(crate) member: String,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal member replace tank /dev/nvme0n1 /dev/nvme1n1
  bimetal member replace tank 1 /dev/sdc --yes
Both devices are in use until the old one is empty; then it is taken out and its label is erased. Everything on the new one is \
lost. Interrupted, by Ctrl-C too, the same command goes on where it was.")]
pub(crate) struct MemberReplace {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// The member that leaves: its index or device, as `bimetal member list` shows them
    pub(crate) old: String,
    /// The device that comes
    pub(crate) new: String,
    /// Take the new device although it carries a known signature, and erase it (never one that is mounted or, as far as can
    /// be seen, in use)
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

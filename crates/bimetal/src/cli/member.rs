//! `bimetal member`.

use clap::{Args, Subcommand};

use super::group_name;

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  bimetal member list tank
  bimetal member add tank --fast /dev/nvme1n1
A group is changed while it is in use; nobody who reads or writes has to wait for it.")]
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
Everything on the device is lost. Volumes keep their sizes: `bimetal volume resize` gives them the new space. How much
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
    /// Take the device although it carries a known signature (never one that is mounted or, as far as can be seen, in use)
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

//! The command line of `bimetal repair`.

use clap::Args;

use super::group_name;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples, with a disk dead for good:
  bimetal rescue tank --json > lost.json        # before: what is lost, by bytes; --files names the files
  bimetal repair tank --fast /dev/nvme1n1       # go on with a new disk in its place
  bimetal repair tank                           # go on without it, if the volumes fit what is left
Everything that can be read stays as it is. What cannot is given up: it reads as zeros from then on, and a member that is not there is struck off for ever. Nothing is done before you have seen what it comes to and said yes. All metadata is saved to a file first; until the group is started again, `bimetal restore FILE` undoes the repair.
A repair that was cut off, by a power cut or a failing disk, is run again and goes on.")]
pub(crate) struct Repair {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// New devices of the fast tier, in place of what is gone; what is on them is lost
    #[arg(long, value_name = "LOCATOR", num_args = 1..)]
    pub(crate) fast: Vec<String>,
    /// The same of the slow tier
    #[arg(long, value_name = "LOCATOR", num_args = 1..)]
    pub(crate) slow: Vec<String>,
    /// Where only an older copy is left of what was on the fast tier, keep that
    #[arg(long)]
    pub(crate) older_copies: bool,
    /// Give up what a device fails to read now, and members whose devices or servers are there and cannot be used now, though another time
    /// all might be there
    #[arg(long)]
    pub(crate) give_up_unread: bool,
    /// Go on although a restore was cut off, whose FILE is gone for good: nothing completes it then, and what is repaired may be of two
    /// times
    #[arg(long)]
    pub(crate) give_up_restore: bool,
    /// Save the metadata to this file, which must not be there yet [default: GROUP-before-repair-SECONDS.saved]
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<std::path::PathBuf>,
    /// Members that are left, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
    /// Take new devices although they carry something else, or an old copy of a member with which the group cannot go on
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

//! `bimetal dump` and `bimetal restore`.

use clap::Args;

use super::group_name;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal dump tank
  bimetal dump --member fast.img slow.img --json
  bimetal dump tank --save tank.saved       # for bimetal restore
A saved file holds all metadata, byte for byte, and no data of volumes. It fits the group until this is used the next time, \
not longer. It is made for its owner alone: with encrypted volumes it has their headers, and is as secret as an exported one \
(bimetal family export-header). Blocks that cannot be read are left out and counted.")]
pub(crate) struct Dump {
    /// The group
    #[arg(value_parser = group_name, required_unless_present = "members")]
    pub(crate) group: Option<String>,
    /// Save the metadata to this file, which must not be there yet, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<std::path::PathBuf>,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal restore tank.saved
  bimetal restore tank.saved --member /dev/sdb /dev/sdc --force     # labels are gone
Only what still describes what is in the slots is written back: the labels must say that the group was not started since it was \
saved, but for a repair after which it was not started either. All members that are in the file must be there; \
with --member name what a repair has added since, too, which loses its label. What is overwritten \
is saved beside FILE first. All of FILE is verified before anything is written.
If it is cut off, the group does not start. Give the same command again, with all members named by --member, and with --force if \
it asks for it: it begins anew and completes it.")]
pub(crate) struct Restore {
    /// What `bimetal dump --save` has written
    #[arg(value_name = "FILE")]
    pub(crate) file: std::path::PathBuf,
    /// Members, instead of those in the configuration. One without a label is taken only if it is named, and if its metadata, or its
    /// size, tells which member it is
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
    /// Although no label is left that says whether the group was started since, or a device that was named carries none: if it was,
    /// or if that is not the old device with its data, data will be wrong
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

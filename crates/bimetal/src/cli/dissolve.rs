//! `bimetal dissolve`.

use clap::Args;

use super::{target, Target};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal dissolve tank/main --onto /dev/sdc
  bimetal dissolve tank/main --onto /mnt/backup/main.img --yes
The volume stays in use meanwhile. When all but the last of it is copied, unmount it and detach it: then what was changed last is copied, everything that was written is read back and compared, and the device is a plain disk with the volume's content, which needs no Bimetal. Ctrl-C only ends the watching, --cancel the copy. After the end of the daemon or a power cut the same command goes on with it. The copy of an encrypted volume is not encrypted: put it on a disk that is encrypted itself if it must be. The volume itself stays as it is: bimetal volume delete, or bimetal destroy, when you have seen that the copy is what you want.")]
pub(crate) struct Dissolve {
    /// GROUP/VOLUME, or GROUP if it has only one
    #[arg(value_parser = target)]
    pub(crate) target: Target,
    /// Where to: a device that is at least as large, or a file, which is made if it is not there
    #[arg(long, value_name = "DEV")]
    pub(crate) onto: Option<String>,
    /// End a copy that is under way; what was copied stays
    #[arg(long, conflicts_with = "onto")]
    pub(crate) cancel: bool,
    /// Overwrite a device that carries something
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

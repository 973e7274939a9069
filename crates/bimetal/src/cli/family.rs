//! `bimetal family`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{group_name, Target};

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  bimetal family create tank/private --recovery-key
  bimetal volume create tank/home --family private --size 200GiB
  bimetal family unlock tank/private          # after each start of the daemon
  bimetal family lock tank/private
The volumes of a family are encrypted (AES-256-XTS) under a key that a passphrase opens. The key lies in a LUKS2 header as cryptsetup makes it, on every member; libcryptsetup must be installed. Whoever gets hold of the disks learns which blocks were written, but not what they hold. If all passphrases and recovery keys are forgotten, or the header is lost, all is lost: keep a recovery key, and a copy of the header (export-header).")]
pub(crate) struct Family {
    #[command(subcommand)]
    pub(crate) command: FamilyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FamilyCommand {
    /// Make a family, with a first passphrase
    Create(FamilyCreate),
    /// List the families of a group
    List(FamilyList),
    /// Unlock the volumes of a family with a passphrase or recovery key
    Unlock(FamilyUnlock),
    /// Lock the volumes of a family: its key leaves memory
    Lock(FamilyLock),
    /// Change a passphrase
    Passwd(FamilyPasswd),
    /// Add another passphrase
    AddPassphrase(FamilyAdd),
    /// Add a recovery key, and print it
    AddRecoveryKey(FamilyAddRecovery),
    /// Remove a passphrase or recovery key
    RemovePassphrase(FamilyRemove),
    /// List the passphrases of a family, without what they are
    Slots(FamilyName),
    /// Give a family another name
    Rename(FamilyRename),
    /// Delete a family that has no volumes
    Delete(FamilyDelete),
    /// Write the LUKS2 header of a family to a file, as a backup or for other tools
    ExportHeader(FamilyExport),
    /// Take the LUKS2 header of a family from a file
    ImportHeader(FamilyImport),
}

/// `GROUP/FAMILY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FamilyTarget {
    pub(crate) group: String,
    pub(crate) family: String,
}

impl std::fmt::Display for FamilyTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.group, self.family)
    }
}

fn family(text: &str) -> Result<FamilyTarget, String> {
    let Target { group, volume } = super::target(text)?;
    let family = volume.ok_or_else(|| format!("name the family: {group}/FAMILY"))?;
    Ok(FamilyTarget { group, family })
}

/// What a passphrase costs whoever tries one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PassphraseCost {
    /// As much memory and time as libcryptsetup thinks right here: about two seconds
    #[default]
    Default,
    /// Next to nothing: for tests. It protects nothing
    Light,
}

/// Where the passphrase comes from that opens the family.
#[derive(Debug, Args)]
pub(crate) struct Passphrase {
    /// Read the passphrase (or recovery key) from this file, `-` for standard input, without a newline at its end
    /// [default: ask]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// Where a new passphrase comes from, and what it costs.
#[derive(Debug, Args)]
pub(crate) struct NewPassphrase {
    /// Read the new passphrase from this file, `-` for standard input, without a newline at its end [default: ask]
    #[arg(long, value_name = "FILE")]
    pub(crate) new_passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cost: Cost,
}

#[derive(Debug, Args)]
pub(crate) struct Cost {
    /// What trying a passphrase costs, for tests and very small machines
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) cost: PassphraseCost,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal family create tank/private --recovery-key
  bimetal family create tank/backup --passphrase-file /media/usb/backup.pass
The passphrase is asked for twice. The new family is unlocked: volumes can be made in it at once (bimetal volume create tank/home --family private), and plain ones encrypted (bimetal volume encrypt tank/home --family private).")]
pub(crate) struct FamilyCreate {
    /// GROUP/NAME of the new family
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    /// Read the passphrase from this file, `-` for standard input, without a newline at its end [default: ask]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Make a recovery key, too, and print it once
    #[arg(long)]
    pub(crate) recovery_key: bool,
    #[command(flatten)]
    pub(crate) cost: Cost,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal family list tank\n  bimetal family list tank --json")]
pub(crate) struct FamilyList {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal family unlock tank/private
  systemd-ask-password | bimetal family unlock tank/private --passphrase-file -
Starts the daemon of the group if there is none. The family stays unlocked until it is locked or the daemon ends. A passphrase that is not right takes as long as all that are.")]
pub(crate) struct FamilyUnlock {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    #[command(flatten)]
    pub(crate) passphrase: Passphrase,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal family lock tank/private
Refused while a volume of the family is in use. With --force whoever uses one gets errors from then on, and what was not yet written is lost; what the kernel has cached of an attached device can still be read until that is detached.")]
pub(crate) struct FamilyLock {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    /// Although its volumes are in use
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal family passwd tank/private
  bimetal family add-passphrase tank/private      # forgotten: with the recovery key, which stays as it is
The old passphrase is overwritten on all members; `bimetal status` says so if a disk does not take that. Copies of the header that were exported before still open with it, and flash devices may keep old blocks where only their maker finds them: if a passphrase is known to somebody who may have copied the disks, make a new family and move the data.")]
pub(crate) struct FamilyPasswd {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    #[command(flatten)]
    pub(crate) passphrase: Passphrase,
    #[command(flatten)]
    pub(crate) new: NewPassphrase,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal family add-passphrase tank/private
A family has room for six passphrases and recovery keys; each opens it.")]
pub(crate) struct FamilyAdd {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    #[command(flatten)]
    pub(crate) passphrase: Passphrase,
    #[command(flatten)]
    pub(crate) new: NewPassphrase,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal family add-recovery-key tank/private
It is printed once and kept nowhere: write it down. `family unlock` takes it in place of a passphrase, with or without its dashes.")]
pub(crate) struct FamilyAddRecovery {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    #[command(flatten)]
    pub(crate) passphrase: Passphrase,
    #[command(flatten)]
    pub(crate) cost: Cost,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal family remove-passphrase tank/private              # the one that you type
  bimetal family slots tank/private
  bimetal family remove-passphrase tank/private --slot 1     # that one; type any other
It is overwritten on all members; what `passwd` says of old copies holds here, too. The last one is only removed with --force: after that nothing opens the family but an exported header.")]
pub(crate) struct FamilyRemove {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    #[command(flatten)]
    pub(crate) passphrase: Passphrase,
    /// Remove this one instead of the one that is typed; `family slots` lists them
    #[arg(long, value_name = "N")]
    pub(crate) slot: Option<u32>,
    /// Even if it is the last one
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal family slots tank/private\n  bimetal family slots tank/private --json")]
pub(crate) struct FamilyName {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bimetal family rename tank/private family")]
pub(crate) struct FamilyRename {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    /// The new name
    #[arg(value_parser = group_name)]
    pub(crate) new_name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal family delete tank/private
Its volumes must be deleted first. Its header is overwritten on all members: what was encrypted under its key cannot be read again, unless a header was exported.")]
pub(crate) struct FamilyDelete {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal family export-header tank/private /media/usb/private.luks
  cryptsetup luksDump /media/usb/private.luks
Whoever has the file can try passphrases on it, also those that are removed from the family later. For cryptsetup and systemd-cryptenroll it is a detached LUKS2 header; what they change comes back with import-header. (A newline at the end of a key file is part of the passphrase for cryptsetup, and not for Bimetal.)")]
pub(crate) struct FamilyExport {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    /// A file that is not there yet
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal family import-header tank/private /media/usb/private.luks
  bimetal family export-header tank/private h && cryptsetup luksAddKey h && bimetal family import-header tank/private h
A passphrase of the file is asked for, and must open the key of this very family; then the file's passphrases are the family's, and those before are overwritten. Also if the header is damaged on all members.")]
pub(crate) struct FamilyImport {
    /// GROUP/FAMILY
    #[arg(value_parser = family)]
    pub(crate) target: FamilyTarget,
    /// A LUKS2 header
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) passphrase: Passphrase,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_named_with_their_group() {
        let named = family("tank/private").expect("legal");
        assert_eq!((named.group.as_str(), named.family.as_str()), ("tank", "private"));
        assert_eq!(named.to_string(), "tank/private");
        assert!(family("tank").expect_err("which?").contains("name the family: tank/FAMILY"));
        for bad in ["tank/../etc", "tank/", "/private", "tank/Private", "tank/a/b"] {
            assert!(family(bad).is_err(), "{bad}");
        }
    }
}

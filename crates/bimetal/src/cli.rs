//! The command line, defined once. Help texts carry an example each.

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::size::Size;

/// One block device from a fast and a slow one: the size of both, and what is used lies on the fast one.
#[derive(Debug, Parser)]
#[command(name = "bimetal", version, max_term_width = 110, arg_required_else_help = true)]
#[command(after_help = "\
Three commands to a mounted file system:
  bimetal create tank --fast /dev/nvme0n1 --slow /dev/sda
  bimetal attach tank/main            # prints the device, e.g. /dev/nbd0
  mkfs.ext4 /dev/nbd0 && mount /dev/nbd0 /mnt
`bimetal demo` shows it on two files, without privileges.

Exit codes: 0 done, 1 failed, 2 wrong usage. Sizes: 4GiB, 1.1TB, or a number of bytes.
BIMETAL_CONFIG_DIR and BIMETAL_RUN_DIR move configuration and run state elsewhere.")]
pub(crate) struct Cli {
    /// Print JSON instead of words
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a group from devices or files; what was on them is lost
    Create(Create),
    /// Find groups on block devices, in the configuration, and on devices named here
    Scan(Scan),
    /// List block devices and say which could become members
    #[command(after_help = "Example:\n  bimetal devices")]
    Devices,
    /// Serve a group: the daemon, in the foreground
    Serve(Serve),
    /// Make a volume a block device of this machine, and print its path
    Attach(Attach),
    /// Take an attached device away again
    Detach(Detach),
    /// Detach what is idle and end the daemon of a group, everything flushed
    Stop(Stop),
    /// What a group is doing, and why
    Status(StatusArgs),
    /// Destroy a group: wipe the labels of its members and forget it
    Destroy(Destroy),
    /// Verify everything on the members of a group that is not being served, without writing
    Check(Check),
    /// Print everything that is written on the members of a group that is not being served
    Dump(Dump),
    /// See it work: two files, a minute, no privileges
    Demo(Demo),
}

fn group_name(text: &str) -> Result<String, String> {
    if bimetal_format::label::is_name(text) {
        Ok(text.to_string())
    } else {
        Err("names begin with a-z or 0-9 and go on with a-z 0-9 . _ - (at most 63 characters)".into())
    }
}

/// `GROUP/VOLUME`, or `GROUP` where the group has one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) volume: Option<String>,
}

fn target(text: &str) -> Result<Target, String> {
    let (group, volume) = match text.split_once('/') {
        Some((g, v)) => (g, Some(group_name(v)?)),
        None => (text, None),
    };
    Ok(Target { group: group_name(group)?, volume })
}

/// `NAME[:SIZE[:PLACEMENT]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeSpec {
    pub(crate) name: String,
    pub(crate) size: Option<u64>,
    pub(crate) placement: Placement,
}

/// Where the chunks of a volume may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    Auto,
    FastOnly,
    SlowOnly,
}

fn volume_spec(text: &str) -> Result<VolumeSpec, String> {
    let mut parts = text.splitn(3, ':');
    let name = group_name(parts.next().unwrap_or_default())?;
    let size = match parts.next() {
        None | Some("") => None,
        Some(s) => Some(s.parse::<Size>().map_err(|e| e.to_string())?.0),
    };
    let placement = match parts.next() {
        None => Placement::Auto,
        Some(p) => Placement::from_str(p, false)
            .map_err(|_| format!("'{p}' is not a placement; write auto, fast-only or slow-only"))?,
    };
    Ok(VolumeSpec { name, size, placement })
}

fn size(text: &str) -> Result<Size, String> {
    text.parse::<Size>().map_err(|e| e.to_string())
}

fn sector(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err("a sector has 512 or 4096 bytes".into()),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal create tank --fast /dev/nvme0n1 --slow /dev/sda
  truncate -s 8G fast.img; truncate -s 80G slow.img
  bimetal create test --fast fast.img --slow slow.img --volume root:20GiB --volume home
A member is a block device, a file that exists, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH,
or emulated:MODEL:/FILE (a file as slow as that model of a disk). Without --volume one volume `main` takes all space.")]
pub(crate) struct Create {
    /// Name of the new group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// Fast members: SSD, NVMe
    #[arg(long, required = true, num_args = 1.., value_name = "DEV")]
    pub(crate) fast: Vec<String>,
    /// Slow members: hard disks, remote disks
    #[arg(long, required = true, num_args = 1.., value_name = "DEV")]
    pub(crate) slow: Vec<String>,
    /// A volume; those without a size share what is left [placement: auto, fast-only, slow-only]
    #[arg(long = "volume", value_name = "NAME[:SIZE[:PLACEMENT]]", value_parser = volume_spec)]
    pub(crate) volumes: Vec<VolumeSpec>,
    /// Logical sector of the volumes, for ever: 4096, or 512 for old systems
    #[arg(long, default_value = "4096", value_parser = sector)]
    pub(crate) sector: u32,
    /// Fast space kept free for new writes [default: 4GiB, at most a quarter of the fast tier]
    #[arg(long, value_parser = size)]
    pub(crate) reserve: Option<Size>,
    /// Take devices although they carry a known signature (never one that is mounted or in use)
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal scan\n  bimetal scan backup-of-fast.img")]
pub(crate) struct Scan {
    /// Look here too
    #[arg(value_name = "DEV")]
    pub(crate) devices: Vec<String>,
    /// For the udev rule: print properties of one device if it is a member
    #[arg(long, value_name = "DEV", hide = true, conflicts_with = "devices")]
    pub(crate) udev: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal serve tank
  bimetal serve tank --nbd tcp:127.0.0.1:10809
  bimetal serve tank --read-only --allow-missing
  bimetal serve --raw /dev/sda --nbd unix:/tmp/bare.sock")]
pub(crate) struct Serve {
    /// The group
    #[arg(value_parser = group_name, required_unless_present = "raw")]
    pub(crate) group: Option<String>,
    /// Serve NBD here: unix:PATH or tcp:HOST:PORT; may be repeated [default: a socket in the run-state folder]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nbd: Vec<String>,
    /// Put the control socket here
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<std::path::PathBuf>,
    /// Let tcp: addresses be other than loopback; there is no encryption and no password
    #[arg(long)]
    pub(crate) allow_remote: bool,
    /// Refuse writes; members are left exactly as they are
    #[arg(long)]
    pub(crate) read_only: bool,
    /// With --read-only: serve what is left although members are missing
    #[arg(long, requires = "read_only")]
    pub(crate) allow_missing: bool,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
    /// Commit changes at the latest after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) commit_interval: u64,
    /// Do not move data between the tiers
    #[arg(long)]
    pub(crate) no_migrate: bool,
    /// Serve a bare device or file without any group, to compare with (writes go straight to it!)
    #[arg(long, value_name = "MEMBER", conflicts_with_all = ["group", "members", "allow_missing", "no_migrate", "control"])]
    pub(crate) raw: Option<String>,
    /// Take a --raw device although it carries a known signature
    #[arg(long, requires = "raw")]
    pub(crate) force: bool,
    /// Started in the background by `attach`: leave the caller's session
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

/// How a volume becomes a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// The kernel's NBD client (module nbd)
    Nbd,
    /// A FUSE file under a loop device
    Fuse,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal attach tank/main && mkfs.ext4 /dev/nbd0
The device's path goes to standard output, the reason for the way taken to standard error.")]
pub(crate) struct Attach {
    /// GROUP/VOLUME, or GROUP if it has one volume
    #[arg(value_parser = target)]
    pub(crate) target: Target,
    /// The way [default: the best this machine has]
    #[arg(long, value_enum)]
    pub(crate) via: Option<Via>,
    /// Fail when the group is not being served, instead of starting its daemon
    #[arg(long)]
    pub(crate) no_start: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal detach tank/main\n  bimetal detach /dev/nbd0")]
pub(crate) struct Detach {
    /// GROUP/VOLUME, GROUP, or the device
    pub(crate) target: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal stop tank
  bimetal stop tank --force     # although a file system is mounted from it: data not yet flushed by it is lost")]
pub(crate) struct Stop {
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// Stop although attached devices are in use
    #[arg(long)]
    pub(crate) force: bool,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal status\n  bimetal status tank --json")]
pub(crate) struct StatusArgs {
    /// The group [default: all that are known]
    #[arg(value_parser = group_name)]
    pub(crate) group: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bimetal destroy tank --yes")]
pub(crate) struct Destroy {
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal check tank\n  bimetal check --member fast.img slow.img")]
pub(crate) struct Check {
    /// The group
    #[arg(value_parser = group_name, required_unless_present = "members")]
    pub(crate) group: Option<String>,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal dump tank\n  bimetal dump --member fast.img slow.img --json")]
pub(crate) struct Dump {
    /// The group
    #[arg(value_parser = group_name, required_unless_present = "members")]
    pub(crate) group: Option<String>,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal demo\n  bimetal demo --via nbd --keep")]
pub(crate) struct Demo {
    /// Work here; needs about 2 GiB [default: a new folder in the temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<std::path::PathBuf>,
    /// A mounted ext4 (needs root, FUSE and loop devices) or an NBD client [default: what is possible]
    #[arg(long, value_enum)]
    pub(crate) via: Option<DemoVia>,
    /// Leave the files afterwards
    #[arg(long)]
    pub(crate) keep: bool,
}

/// What the demo works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoVia {
    /// A mounted ext4
    Mount,
    /// An NBD client
    Nbd,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent_and_every_command_has_an_example() {
        let mut cli = Cli::command();
        cli.build();
        cli.clone().debug_assert();
        for c in cli.get_subcommands().filter(|c| c.get_name() != "help") {
            let help = c.get_after_help().map(|h| h.to_string()).unwrap_or_default();
            let example = format!("  bimetal {}", c.get_name());
            assert!(help.contains("Example") && help.contains(&example), "{}: {help}", c.get_name());
        }
    }

    #[test]
    fn volume_specs() {
        let spec = volume_spec("root:20GiB:fast-only").expect("legal");
        assert_eq!(spec, VolumeSpec { name: "root".into(), size: Some(20 << 30), placement: Placement::FastOnly });
        assert_eq!(volume_spec("home").expect("legal").size, None);
        assert_eq!(volume_spec("home::slow-only").expect("legal").placement, Placement::SlowOnly);
        for bad in ["", "Root", "root:much", "root:1G:left", ":1G"] {
            assert!(volume_spec(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn targets() {
        assert_eq!(target("tank/main").expect("legal").volume.as_deref(), Some("main"));
        assert_eq!(target("tank").expect("legal").volume, None);
        for bad in ["", "/", "tank/", "/main", "a/b/c", "Tank", "../x"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}

//! The command line, defined once. Help texts carry an example each.

mod dissolve;
mod family;
mod lab;
mod member;
mod repair;
mod saved;
mod volume;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub(crate) use self::dissolve::*;
pub(crate) use self::family::*;
pub(crate) use self::lab::*;
pub(crate) use self::member::*;
pub(crate) use self::repair::*;
pub(crate) use self::saved::*;
pub(crate) use self::volume::*;
use crate::size::Size;

/// One block device from a fast and a slow one: the size of both, and what is used lies on the fast one.
#[derive(Debug, Parser)]
#[command(name = "bimetal", version, max_term_width = 110, arg_required_else_help = true)]
#[command(after_help = "\
Three commands to a mounted file system:
  bimetal create tank --fast /dev/nvme0n1 --slow /dev/sda
  bimetal attach tank/main            # prints the device, e.g. /dev/ublkb0
  mkfs.ext4 /dev/ublkb0 && mount /dev/ublkb0 /mnt
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
    /// Make, list, resize, rename, encrypt and delete the volumes of a group, served or not
    Volume(Volume),
    /// Encrypted volumes: make families of them, unlock and lock, passphrases
    Family(Family),
    /// Members: list, add, evacuate, remove, replace
    Member(Member),
    /// Destroy a group: wipe the labels of its members and forget it
    Destroy(Destroy),
    /// Verify what the members of a group hold beside data, while it is in use or stopped
    Check(Check),
    /// Print everything that is written on the members of a group that is not being served, or save its metadata to a file
    Dump(Dump),
    /// Write saved metadata back, as long as it still fits
    Restore(Restore),
    /// With a member missing: say what is lost, what may be old, and which files that hits
    Rescue(Rescue),
    /// With a member gone for good, or metadata damaged: make what can still be read the whole of the group
    Repair(Repair),
    /// Turn a volume back into a plain device or file, while it is in use
    Dissolve(Dissolve),
    /// What size of SSD a recorded load asks for, and how to record one
    Advise(Advise),
    /// Compare on modelled devices and recorded loads: what others do, what Bimetal does, what is possible
    Lab(Lab),
    /// See it work: two files, a minute, no privileges
    Demo(Demo),
    /// Write out what the page cache holds for a block device
    #[command(hide = true)]
    Flush(Flush),
}

/// Ends the program as wrong usage does, where only the command can tell that it is.
pub(crate) fn wrong_usage(why: &str) -> ! {
    Cli::command().error(clap::error::ErrorKind::InvalidValue, why).exit()
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

/// Where NBD is to be served, as far as it can be told from the text alone.
fn nbd_address(text: &str) -> Result<String, String> {
    let is_tcp =
        |at: &str| at.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let is_address = match text.split_once(':') {
        Some(("unix", path)) => !path.is_empty(),
        Some(("tcp", at)) => is_tcp(at),
        _ => false,
    };
    is_address.then(|| text.to_string()).ok_or_else(|| "write unix:PATH or tcp:HOST:PORT".into())
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
A member is a block device, a file that exists, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH, \
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
    /// Fast space for new writes, free or made free at once [default: 4GiB; at most a quarter of what
    /// volumes bound to the fast tier leave of it]
    #[arg(long, value_parser = size, allow_hyphen_values = true)]
    pub(crate) reserve: Option<Size>,
    /// Take devices although they carry a known signature, and erase it (never one that is mounted or, as far as can be
    /// seen, in use)
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
  bimetal serve tank --fuse ~/tank
  bimetal serve tank --read-only --allow-missing
  bimetal serve --raw /dev/sda --nbd unix:/tmp/bare.sock")]
pub(crate) struct Serve {
    /// The group
    #[arg(value_parser = group_name, required_unless_present = "raw")]
    pub(crate) group: Option<String>,
    /// Serve NBD here: unix:PATH or tcp:HOST:PORT; may be repeated [default: a socket in the run-state folder]
    #[arg(long, value_name = "ADDRESS", value_parser = nbd_address)]
    pub(crate) nbd: Vec<String>,
    /// Put the control socket here
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<std::path::PathBuf>,
    /// Show the volumes as files in this folder (FUSE) [default: when `attach --via fuse` wants them, in the run state]
    #[arg(long, value_name = "FOLDER", conflicts_with = "raw")]
    pub(crate) fuse: Option<std::path::PathBuf>,
    /// Let tcp: addresses be other than loopback; there is no encryption and no password
    #[arg(long)]
    pub(crate) allow_remote: bool,
    /// Refuse writes; members are left exactly as they are (behind NBD servers but for a block that tells users apart, which is emptied)
    #[arg(long)]
    pub(crate) read_only: bool,
    /// With --read-only: serve what is left although members are missing
    #[arg(long, requires = "read_only")]
    pub(crate) allow_missing: bool,
    /// With --allow-missing: serve what has nothing but an old copy on the slow tier, instead of errors; see `rescue`
    #[arg(long, requires = "allow_missing")]
    pub(crate) kept_copies: bool,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
    /// Commit changes at the latest after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) commit_interval: u64,
    /// Verify what members hold beside data every so many hours, and write anew what is damaged; 0: only when asked (`check`)
    #[arg(long, value_name = "HOURS", default_value_t = 168, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) check_every: u64,
    /// The first time so many seconds after the start
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, hide = true)]
    pub(crate) check_first: u64,
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
    /// A device that the daemon serves itself (module ublk_drv): it outlives the daemon
    Ublk,
    /// The kernel's NBD client (module nbd)
    Nbd,
    /// A FUSE file of the daemon under a loop device
    Fuse,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bimetal attach tank/main && mkfs.ext4 /dev/ublkb0
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
#[command(after_help = "\
Examples:
  bimetal detach tank/main
  bimetal detach /dev/nbd0
  bimetal detach --all          # everything, also what daemons that died have left")]
pub(crate) struct Detach {
    /// GROUP/VOLUME, GROUP, or the device
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) target: Option<String>,
    /// All devices of all groups, and ublk devices that no daemon serves any more
    #[arg(long)]
    pub(crate) all: bool,
    /// A ublk device although it is in use; with --all, such as no daemon serves. What was not yet written is lost
    #[arg(long)]
    pub(crate) force: bool,
}

/// What the daemon has another process do.
#[derive(Debug, Args)]
pub(crate) struct Flush {
    /// The block device
    pub(crate) device: std::path::PathBuf,
    /// Only say, by the exit code, whether somebody holds it
    #[arg(long)]
    pub(crate) look: bool,
    /// Although somebody holds it
    #[arg(long, conflicts_with = "look")]
    pub(crate) shared: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal stop tank
  bimetal stop tank --force     # although a file system is mounted from it
On ublk that waits for the next daemon; else what it has not yet flushed is lost.
NBD clients, such as virtual machines, are not waited for; those that are cut off are named. End them first.")]
pub(crate) struct Stop {
    /// The group
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
#[command(after_help = "\
Examples:
  bimetal destroy tank
  bimetal destroy tank --forget            # its members are gone, or serve another group now")]
pub(crate) struct Destroy {
    /// The group
    #[arg(value_parser = group_name)]
    pub(crate) group: String,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
    /// Only remove what this machine knows of the group; no device is touched
    #[arg(long, conflicts_with = "members")]
    pub(crate) forget: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal check tank                       # in use, or stopped
  bimetal check tank --mend                # in use: what is damaged is written anew
  bimetal check --member fast.img slow.img # copies of members
Verifies what members hold beside data: labels, maps, journals, headers of encrypted volumes.
Data has no checksums. Writes nothing without --mend.
Exit codes: 0 all is in order or was mended, 1 it is not or cannot be verified, 2 wrong usage.")]
pub(crate) struct Check {
    /// The group
    #[arg(value_parser = group_name, required_unless_present = "members")]
    pub(crate) group: Option<String>,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
    /// Write anew what is damaged, from the memory of the daemon that serves the group
    #[arg(long, conflicts_with = "members")]
    pub(crate) mend: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example, with the fast disk dead:
  bimetal rescue tank                                   # what is lost
  bimetal serve tank --read-only --allow-missing &
  dev=$(bimetal attach tank/main) && mount -o ro,noload $dev /mnt
  bimetal rescue tank/main --files /mnt                 # the files that are hit
  bimetal rescue tank/main --map main.map               # the same by bytes
  ddrescue --domain-mapfile=main.map $dev main.img copied.map
Nothing is written to the members. In the map + can be read, ? may be old, - cannot be read.")]
pub(crate) struct Rescue {
    /// GROUP/VOLUME, or GROUP for all its volumes
    #[arg(value_parser = target)]
    pub(crate) target: Target,
    /// Write a map of the volume, as GNU ddrescue has it, to this file, which must not be there yet
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<std::path::PathBuf>,
    /// Name the files that are hit of the file system that is mounted here from the attached volume
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) files: Option<std::path::PathBuf>,
    /// In the map, take what may be old for good
    #[arg(long, requires = "map")]
    pub(crate) stale: bool,
    /// Members, instead of those in the configuration
    #[arg(long = "member", value_name = "LOCATOR", num_args = 1..)]
    pub(crate) members: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bimetal demo\n  bimetal demo --via nbd --keep")]
pub(crate) struct Demo {
    /// Work in a new folder `bimetal-demo` in this one; needs about 2 GiB [default: the temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<std::path::PathBuf>,
    /// A mounted ext4 (needs root, FUSE and loop devices) or an NBD client [default: what is possible]
    #[arg(long, value_enum)]
    pub(crate) via: Option<DemoVia>,
    /// Leave the files afterwards; they are yours to remove then
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

    #[test]
    fn definitions_are_consistent_and_every_command_has_an_example() {
        let mut cli = Cli::command();
        cli.build();
        cli.clone().debug_assert();
        let check = |c: &clap::Command, name: &str| {
            let help = c.get_after_help().map(|h| h.to_string()).unwrap_or_default();
            assert!(help.contains("Example") && help.contains(&format!("  bimetal {name}")), "{name}: {help}");
        };
        for c in cli.get_subcommands().filter(|c| c.get_name() != "help" && !c.is_hide_set()) {
            check(c, c.get_name());
            for inner in c.get_subcommands().filter(|c| c.get_name() != "help") {
                check(inner, &format!("{} {}", c.get_name(), inner.get_name()));
            }
        }
    }

    /// All commands, those inside others too.
    fn commands() -> Vec<clap::Command> {
        let mut cli = Cli::command();
        cli.build();
        let mut all = vec![cli];
        let mut next = 0;
        while let Some(command) = all.get(next) {
            let inner: Vec<_> = command.get_subcommands().filter(|c| c.get_name() != "help").cloned().collect();
            all.extend(inner);
            next += 1;
        }
        all
    }

    #[test]
    fn every_argument_is_explained() {
        for command in commands() {
            for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
                let name = argument.get_id();
                assert!(argument.get_help().is_some(), "{} {name}", command.get_name());
            }
        }
    }

    /// Lines are broken by the terminal's width: one that is broken here too leaves a stump.
    #[test]
    fn prose_has_a_line_per_paragraph() {
        let is_prose = |line: &str| !line.starts_with(' ') && !line.is_empty();
        for command in commands() {
            let help = command.get_after_help().map(|h| h.to_string()).unwrap_or_default();
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2).filter(|pair| is_prose(pair[0]) && is_prose(pair[1])) {
                assert!(pair[0].ends_with(['.', ':']), "{}: {}", command.get_name(), pair[0]);
            }
        }
    }

    #[test]
    fn the_first_example_uses_the_device_that_it_shows() {
        let help = Cli::command().get_after_help().map(|h| h.to_string()).unwrap_or_default();
        let devices = help.lines().filter(|l| l.contains("attach tank/main") || l.contains("mkfs"));
        let words = devices.flat_map(str::split_whitespace).filter(|w| w.starts_with("/dev/"));
        assert_eq!(words.collect::<Vec<_>>(), ["/dev/ublkb0"; 3]);
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
    fn nbd_addresses() {
        for good in ["unix:/run/x", "unix:x:y", "tcp:127.0.0.1:10809", "tcp:[::1]:0", "tcp:localhost:1"] {
            assert_eq!(nbd_address(good).as_deref(), Ok(good));
        }
        for bad in ["", "foo", "unix:", "tcp:", "tcp:localhost", "tcp::1", "tcp:localhost:nbd", "10809", "/tmp/s"] {
            assert!(nbd_address(bad).is_err(), "{bad}");
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

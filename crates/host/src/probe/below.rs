//! What a file or block device is made of: file systems, partitions, stacked devices and loop devices on the way down.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::sysfs::{backing_file, node, DeviceNumber};
use super::usage::device_number;
use super::{loops, mounts};
use crate::fuse::MOUNT_TYPE;

/// What something is made of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// Block devices, the uppermost first; what was asked about is one of them if it is one itself. By number and name
    /// in `/dev`.
    pub devices: Vec<(DeviceNumber, PathBuf)>,
    /// Files in FUSE mounts of ours: what they hold is a volume.
    pub volumes: Vec<PathBuf>,
}

/// What `path` is made of, as far as the kernel tells: not behind a network, nor below a file system over several devices.
/// Blocks, for as long as the file system that `path` lies on takes to answer.
pub fn of(path: &Path) -> io::Result<Below> {
    let meta = fs::metadata(path)?;
    let mounts = Mounts::from(mounts::all()?);
    let mut walk =
        Walk { sys: Path::new("/sys/dev/block"), device_below: &loops::device_below, mounts, found: Below::default() };
    match meta.file_type().is_block_device() {
        true => walk.device(DeviceNumber::new(meta.rdev())),
        false => walk.file(path, DeviceNumber::new(meta.dev())),
    }
    Ok(walk.found)
}

struct Mount {
    number: DeviceNumber,
    place: PathBuf,
    ours: bool,
}

struct Mounts(Vec<Mount>);

impl Mounts {
    fn from(all: Vec<mounts::Mount>) -> Mounts {
        let short = |m: mounts::Mount| Mount { number: m.number, place: m.place, ours: m.kind == MOUNT_TYPE };
        Mounts(all.into_iter().map(short).collect())
    }

    /// The file system that a path lies on, by its name only: to ask it might be to wait for ever.
    fn of_path(&self, path: &Path) -> Option<DeviceNumber> {
        let above = self.0.iter().filter(|m| path.starts_with(&m.place));
        // Of mounts on one place the last hides the others.
        above.max_by_key(|m| m.place.components().count()).map(|m| m.number)
    }

    fn is_ours(&self, number: DeviceNumber) -> bool {
        self.0.iter().any(|m| m.ours && m.number == number)
    }
}

struct Walk<'a> {
    /// Where the kernel describes block devices by number.
    sys: &'a Path,
    /// The block device that a loop device over such a name is made of.
    device_below: &'a dyn Fn(&Path, &Path) -> Option<DeviceNumber>,
    mounts: Mounts,
    found: Below,
}

impl Walk<'_> {
    /// A file on the file system with this number.
    fn file(&mut self, path: &Path, number: DeviceNumber) {
        match self.mounts.is_ours(number) {
            true => self.found.volumes.push(path.to_owned()),
            false => self.device(number),
        }
    }

    /// What the loop device `name` over `file` is made of.
    fn backing(&mut self, name: &Path, file: &Path) {
        let lies_on = self.mounts.of_path(file);
        // Of a volume only its daemon could say more.
        let is_volume = lies_on.is_some_and(|number| self.mounts.is_ours(number));
        let below = if is_volume { None } else { (self.device_below)(name, file) };
        match below {
            Some(below) => self.device(below),
            None => lies_on.into_iter().for_each(|number| self.file(file, number)),
        }
    }

    /// A block device, if there is one with this number, and what is below it.
    fn device(&mut self, number: DeviceNumber) {
        let folder = self.sys.join(number.to_string());
        let Ok(real) = folder.canonicalize() else { return };
        if self.found.devices.iter().any(|(known, _)| *known == number) {
            return;
        }
        let name = node(&real);
        self.found.devices.push((number, name.clone()));
        if real.join("partition").exists() {
            real.parent().and_then(device_number).into_iter().for_each(|disk| self.device(disk));
        }
        for below in fs::read_dir(real.join("slaves")).into_iter().flatten().flatten() {
            device_number(&below.path()).into_iter().for_each(|number| self.device(number));
        }
        if let Some(file) = backing_file(&real) {
            self.backing(&name, &file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 1 0:26 / /run rw - tmpfs tmpfs rw
40 30 0:50 / /run/bimetal/tank/fuse rw,nosuid - fuse.bimetal tank rw,user_id=0
41 30 0:51 / /run/other rw - fuse.sshfs x rw
";

    /// As if `/dev` had loop devices only.
    fn node_below(_: &Path, file: &Path) -> Option<DeviceNumber> {
        let minor = file.to_str()?.strip_prefix("/dev/loop")?.parse().ok()?;
        Some(DeviceNumber { major: 7, minor })
    }

    fn walk(sys: &Path) -> Walk<'_> {
        Walk {
            sys,
            device_below: &node_below,
            mounts: Mounts::from(mounts::parse(INFO.as_bytes())),
            found: Below::default(),
        }
    }

    fn describe(sys: &Path, number: &str, file: &str, text: &str) {
        let path = sys.join(number).join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn a_stack_on_a_loop_device_over_a_file_of_ours_is_seen_through() {
        let dir = tempfile::tempdir().expect("a folder");
        let sys = dir.path();
        describe(sys, "7:3", "loop/backing_file", "/run/bimetal/tank/fuse/main\n");
        describe(sys, "7:4", "loop/backing_file", "/run/other/main\n");
        describe(sys, "253:0", "slaves/loop3/dev", "7:3\n");
        let number = |major, minor| DeviceNumber { major, minor };
        let below = |top| {
            let mut walk = walk(sys);
            walk.device(top);
            walk.found
        };
        let stack = below(number(253, 0));
        assert_eq!(stack.volumes, [Path::new("/run/bimetal/tank/fuse/main")]);
        assert_eq!(stack.devices.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [number(253, 0), number(7, 3)]);
        assert_eq!(below(number(7, 4)).volumes, Vec::<PathBuf>::new());
        assert_eq!(below(number(9, 9)), Below::default());
    }

    #[test]
    fn a_loop_device_over_a_loop_device_is_seen_through() {
        let dir = tempfile::tempdir().expect("a folder");
        describe(dir.path(), "7:0", "loop/backing_file", "/run/bimetal/tank/fuse/main\n");
        for n in 1..50 {
            describe(dir.path(), &format!("7:{n}"), "loop/backing_file", &format!("/dev/loop{}\n", n - 1));
        }
        let mut walk = walk(dir.path());
        walk.device(DeviceNumber { major: 7, minor: 49 });
        assert_eq!(walk.found.volumes, [Path::new("/run/bimetal/tank/fuse/main")]);
        assert_eq!(walk.found.devices.len(), 50);
    }

    #[test]
    fn a_file_lies_on_the_innermost_mount() {
        let mounts = Mounts::from(mounts::parse(INFO.as_bytes()));
        let on = |path: &str| mounts.of_path(Path::new(path)).map(|n| n.to_string());
        assert_eq!(on("/home/x").as_deref(), Some("8:1"));
        assert_eq!(on("/run/bimetal/tank/fuse/main").as_deref(), Some("0:50"));
        assert_eq!(on("/run/bimetal/tank/fuse2").as_deref(), Some("0:26"));
    }
}

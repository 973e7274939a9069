//! On what a folder lies, found out without asking any file system that lies on what is looked for.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::probe::mounts::{self, Mount};

/// Symbolic links on one path; the kernel follows no more, either.
pub(super) const LINKS: u32 = 40;

/// The block device for which `wanted` holds on the way to `folder`, if a file system on such a one is mounted there.
/// Only folders above are looked at: a file system on a device that nobody serves would never answer.
pub fn device_below(folder: &Path, wanted: impl Fn(&Path) -> bool) -> io::Result<Option<PathBuf>> {
    let folder = std::path::absolute(folder)?;
    Ok(find(&mounts::all()?, &folder, wanted))
}

fn find(mounts: &[Mount], folder: &Path, wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    let mut left: VecDeque<OsString> = parts(folder).collect();
    while let Some(part) = left.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        if let Some(mount) = mounts.iter().rev().find(|mount| mount.place == at) {
            if wanted(&mount.source) {
                return Some(mount.source.clone());
            }
            continue;
        }
        let Ok(target) = fs::read_link(&at) else { continue };
        links += 1;
        if links > LINKS {
            return None;
        }
        at = if target.is_absolute() { PathBuf::from("/") } else { at.parent().unwrap_or(Path::new("/")).into() };
        left = parts(&target).chain(left).collect();
    }
    None
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_below_a_folder_is_found_through_links() {
        let dir = tempfile::tempdir().expect("a folder");
        let here = fs::canonicalize(dir.path()).expect("a path");
        fs::create_dir(here.join("disk")).expect("a folder");
        std::os::unix::fs::symlink("disk/deep", here.join("link")).expect("a link");
        std::os::unix::fs::symlink(here.join("link"), here.join("again")).expect("a link");
        let text = format!(
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 259:0 / {}/disk rw shared:1 - ext4 /dev/ublkb0 rw\n",
            here.display()
        );
        let mounts = mounts::parse(text.as_bytes());
        let found = |path: &str| find(&mounts, &here.join(path), |source| source.starts_with("/dev/ublkb0"));
        for inside in ["disk", "disk/a/b", "link", "link/x", "again/x", "disk/../disk/y"] {
            assert_eq!(found(inside).as_deref(), Some(Path::new("/dev/ublkb0")), "{inside}");
        }
        for outside in ["", "other", "diskette", "no/such"] {
            assert_eq!(found(outside), None, "{outside}");
        }
    }
}

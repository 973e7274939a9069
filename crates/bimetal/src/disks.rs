//! Whole disks of this machine, as the kernel lists them, for advice on recording.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// Kinds of block devices that are no disks: their I/O ends on others, or in memory.
const NO_DISKS: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd"];

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Disk {
    pub(crate) path: String,
    pub(crate) model: String,
    pub(crate) size_bytes: u64,
    /// A hard disk, by what the kernel says.
    pub(crate) rotational: bool,
    /// The kernel can trace it.
    pub(crate) traceable: bool,
}

/// All disks, by name.
pub(crate) fn all() -> Vec<Disk> {
    below(Path::new("/sys/block"))
}

fn below(folder: &Path) -> Vec<Disk> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    names.retain(|name| !NO_DISKS.iter().any(|kind| name.starts_with(kind)));
    names.sort();
    names.iter().map(|name| disk(&folder.join(name), name)).filter(|d| d.size_bytes > 0).collect()
}

fn disk(folder: &Path, name: &str) -> Disk {
    let text = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default().trim().to_string();
    Disk {
        path: format!("/dev/{name}"),
        model: text("device/model"),
        // Sectors of 512 bytes, whatever the disk's own are.
        size_bytes: text("size").parse::<u64>().unwrap_or(0).saturating_mul(512),
        rotational: text("queue/rotational") == "1",
        traceable: folder.join("trace").is_dir(),
    }
}

/// Whether a program is where programs are.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.into_iter().any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_told_from_what_lies_on_them() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for (name, size, rotational) in
            [("sda", "2048\n", "1\n"), ("nvme0n1", "4096\n", "0\n"), ("loop0", "8\n", "0\n")]
        {
            let folder = dir.path().join(name);
            std::fs::create_dir_all(folder.join("queue")).expect("folder");
            std::fs::write(folder.join("size"), size).expect("file");
            std::fs::write(folder.join("queue/rotational"), rotational).expect("file");
        }
        std::fs::create_dir_all(dir.path().join("sda/trace")).expect("folder");
        let found = below(dir.path());
        assert_eq!(found.iter().map(|d| d.path.as_str()).collect::<Vec<_>>(), ["/dev/nvme0n1", "/dev/sda"]);
        assert_eq!((found[1].size_bytes, found[1].rotational, found[1].traceable), (1 << 20, true, true));
        assert!(!found[0].rotational && !found[0].traceable);
        assert!(below(&dir.path().join("nothing")).is_empty());
    }

    #[test]
    fn programs_are_looked_for() {
        assert!(installed("sh"));
        assert!(!installed("no-such-program-anywhere"));
    }
}

//! Which files of a mounted file system are hit: every file and folder is asked where its content lies, and that is
//! held against what has become of the volume.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bimetal_host::extents;
use serde_json::json;

use super::ask::VolumeState;
use super::place::Place;
use crate::api::{Fate, FateRun};

/// A file or folder that is not whole.
pub(super) struct Hit {
    /// Within the file system.
    pub(super) path: PathBuf,
    /// Or it may be one: neither it nor the folder it is in says what it is.
    pub(super) folder: bool,
    /// Bytes of it by fate; what was never written is whole.
    pub(super) bytes: [u64; Fate::COUNT],
    /// The file system cannot say where it lies, or cannot read it, for this reason: nothing is known of it, nor, for
    /// a folder, of what is in it.
    pub(super) unreadable: Option<String>,
}

/// What was found.
#[derive(Default)]
pub(super) struct Report {
    /// Files and folders that were found, readable or not.
    pub(super) seen: u64,
    /// In the order of the walk, each once.
    pub(super) hits: Vec<Hit>,
    /// Bytes of the volume by fate that belong to a file or folder that was found.
    pub(super) owned: [u64; Fate::COUNT],
}

impl Report {
    /// For `--json`.
    pub(super) fn json(&self) -> serde_json::Value {
        let hit = |h: &Hit| {
            json!({
                "path": h.path.to_string_lossy(), "folder": h.folder, "lost_bytes": h.bytes[Fate::Lost as usize],
                "perhaps_lost_bytes": h.bytes[Fate::PerhapsLost as usize],
                "kept_copy_bytes": h.bytes[Fate::KeptCopy as usize],
                "possibly_stale_bytes": h.bytes[Fate::PossiblyStale as usize], "unreadable": h.unreadable,
            })
        };
        json!({
            "seen": self.seen, "hit": self.hits.iter().map(hit).collect::<Vec<_>>(),
            "owned_lost_bytes": self.owned[Fate::Lost as usize],
            "owned_perhaps_lost_bytes": self.owned[Fate::PerhapsLost as usize],
            "owned_kept_copy_bytes": self.owned[Fate::KeptCopy as usize],
            "owned_possibly_stale_bytes": self.owned[Fate::PossiblyStale as usize],
        })
    }
}

/// Looks at everything in the file system at `place`, which lies on `volume`; not at what is mounted inside it.
pub(super) fn walk(place: &Place, volume: &VolumeState) -> Result<Report> {
    let root = std::fs::metadata(&place.folder).with_context(|| format!("'{}'", place.folder.display()))?;
    let mut walk = Walk::new(place, &volume.runs, root.dev());
    let mut folders = vec![place.folder.clone()];
    walk.look(&place.folder, true);
    while let Some(folder) = folders.pop() {
        match std::fs::read_dir(&folder) {
            Err(e) => walk.unreadable(&folder, true, &e),
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        // The rest of it cannot be had.
                        Err(e) => {
                            walk.unreadable(&folder, true, &e);
                            break;
                        }
                        Ok(entry) => {
                            // The folder knows of most file systems what the file itself cannot tell any more.
                            let folder = entry.file_type().map_or(true, |kind| kind.is_dir());
                            folders.extend(walk.look(&entry.path(), folder));
                        }
                    }
                }
            }
        }
    }
    Ok(walk.end())
}

struct Walk<'a> {
    place: &'a Place,
    runs: &'a [FateRun],
    /// That of the file system.
    device: u64,
    report: Report,
    /// Ranges of the volume that belong to somebody and are not whole.
    owned: Vec<FateRun>,
    /// Folders among the hits, by path: each is met twice.
    folders: HashMap<PathBuf, usize>,
}

impl<'a> Walk<'a> {
    fn new(place: &'a Place, runs: &'a [FateRun], device: u64) -> Walk<'a> {
        Walk { place, runs, device, report: Report::default(), owned: Vec::new(), folders: HashMap::new() }
    }

    /// Looks at a file or folder; gives it back if it is a folder to go into. `folder`: what it is by the folder that it
    /// is in.
    fn look(&mut self, path: &Path, folder: bool) -> Option<PathBuf> {
        let meta = match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.dev() == self.device => meta,
            Ok(_) => return None,
            Err(e) => {
                self.report.seen += 1;
                self.unreadable(path, folder, &e);
                return None;
            }
        };
        self.report.seen += 1;
        let kind = meta.file_type();
        if kind.is_symlink() {
            if let Err(e) = std::fs::read_link(path) {
                self.unreadable(path, false, &e);
            }
            return None;
        }
        if !kind.is_dir() && !kind.is_file() {
            return None;
        }
        match extents::open(path).and_then(|file| self.bytes_of(&file, &meta)) {
            Ok(bytes) if bytes.iter().skip(Fate::PossiblyStale as usize).any(|b| *b > 0) => {
                self.hit(path, kind.is_dir(), bytes, None);
            }
            Ok(_) => {}
            // XFS and ext2 do not say where folders lie. What is lost of one fails when it is read, which comes next.
            Err(e) if kind.is_dir() && extents::is_untold(&e) => {}
            Err(e) => self.unreadable(path, kind.is_dir(), &e),
        }
        kind.is_dir().then(|| path.to_owned())
    }

    fn unreadable(&mut self, path: &Path, folder: bool, e: &io::Error) {
        self.hit(path, folder, [0; Fate::COUNT], Some(e.to_string()));
    }

    fn hit(&mut self, path: &Path, folder: bool, bytes: [u64; Fate::COUNT], unreadable: Option<String>) {
        let inside = path.strip_prefix(&self.place.folder).unwrap_or(path);
        let path = if inside.as_os_str().is_empty() { PathBuf::from(".") } else { inside.to_owned() };
        if let Some(known) = self.folders.get(&path).and_then(|at| self.report.hits.get_mut(*at)) {
            known.unreadable = known.unreadable.take().or(unreadable);
            return;
        }
        if folder {
            self.folders.insert(path.clone(), self.report.hits.len());
        }
        self.report.hits.push(Hit { path, folder, bytes, unreadable });
    }

    /// Bytes of a file by fate.
    fn bytes_of(&mut self, file: &File, meta: &Metadata) -> io::Result<[u64; Fate::COUNT]> {
        let mut bytes = [0; Fate::COUNT];
        for e in extents::of_file(file)?.iter().filter(|e| !e.unwritten) {
            if !e.placed {
                return Err(io::Error::other("the file system does not say where it lies"));
            }
            // Blocks of a file reach beyond its end.
            let len = if meta.is_dir() { e.len } else { e.len.min(meta.len().saturating_sub(e.logical)) };
            let start = self.place.offset.saturating_add(e.physical);
            for part in overlap(self.runs, start, len) {
                bytes[part.fate as usize] += part.length_bytes;
                if part.fate >= Fate::PossiblyStale {
                    self.owned.push(part);
                }
            }
        }
        Ok(bytes)
    }

    /// Counts every byte of the volume once, however many files share it.
    fn end(mut self) -> Report {
        self.owned.sort_unstable_by_key(|r| r.offset_bytes);
        let mut until = 0;
        for r in &self.owned {
            let (start, end) = (r.offset_bytes.max(until), r.offset_bytes + r.length_bytes);
            self.report.owned[r.fate as usize] += end.saturating_sub(start);
            until = until.max(end);
        }
        self.report
    }
}

/// The parts of `runs` (in order, without gaps) that lie in a range; what is beyond the volume's end is lost.
fn overlap(runs: &[FateRun], start: u64, len: u64) -> Vec<FateRun> {
    if len == 0 {
        return Vec::new();
    }
    let end = start.saturating_add(len);
    let first = runs.partition_point(|r| r.offset_bytes + r.length_bytes <= start);
    let inside = runs[first..].iter().take_while(|r| r.offset_bytes < end);
    let mut found: Vec<FateRun> = inside
        .map(|r| {
            let offset_bytes = r.offset_bytes.max(start);
            let until = (r.offset_bytes + r.length_bytes).min(end);
            FateRun { offset_bytes, length_bytes: until - offset_bytes, fate: r.fate }
        })
        .collect();
    let covered = found.last().map_or(start, |r| r.offset_bytes + r.length_bytes);
    if covered < end {
        found.push(FateRun { offset_bytes: covered, length_bytes: end - covered, fate: Fate::Lost });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(offset_bytes: u64, length_bytes: u64, fate: Fate) -> FateRun {
        FateRun { offset_bytes, length_bytes, fate }
    }

    #[test]
    fn a_range_is_cut_at_the_borders_of_runs() {
        let runs = [run(0, 100, Fate::Whole), run(100, 50, Fate::Lost), run(150, 50, Fate::PossiblyStale)];
        assert_eq!(overlap(&runs, 10, 20), [run(10, 20, Fate::Whole)]);
        assert_eq!(overlap(&runs, 90, 20), [run(90, 10, Fate::Whole), run(100, 10, Fate::Lost)]);
        assert_eq!(overlap(&runs, 100, 50), [run(100, 50, Fate::Lost)]);
        assert_eq!(overlap(&runs, 0, 200), runs);
        assert_eq!(overlap(&runs, 180, 40), [run(180, 20, Fate::PossiblyStale), run(200, 20, Fate::Lost)]);
        assert_eq!(overlap(&runs, 50, 0), []);
        assert_eq!(overlap(&runs, 500, 10), [run(500, 10, Fate::Lost)]);
    }

    #[test]
    fn what_files_share_is_counted_once() {
        let place = Place { folder: "/".into(), volume: "main".into(), offset: 0 };
        let owned = vec![run(200, 50, Fate::Lost), run(100, 60, Fate::Lost), run(120, 100, Fate::Lost)];
        let walk = Walk { owned, ..Walk::new(&place, &[], 0) };
        assert_eq!(walk.end().owned[Fate::Lost as usize], 150);
    }

    #[test]
    fn what_is_hit_twice_is_listed_once_and_what_cannot_be_asked_was_seen() {
        let dir = tempfile::tempdir().expect("a folder");
        let place = Place { folder: dir.path().to_owned(), volume: "main".into(), offset: 0 };
        let mut walk = Walk::new(&place, &[], 0);
        let (inner, gone) = (dir.path().join("inner"), dir.path().join("gone"));
        let broken = io::Error::from_raw_os_error(5);
        let mut bytes = [0; Fate::COUNT];
        bytes[Fate::Lost as usize] = 4096;
        walk.report.seen = 1;
        walk.hit(&inner, true, bytes, None);
        walk.unreadable(&inner, true, &broken);
        assert_eq!(walk.look(&gone, true), None);
        let report = walk.end();
        assert_eq!((report.seen, report.hits.len()), (2, 2), "no hit more than what was seen");
        assert!(report.hits[0].unreadable.is_some() && report.hits[0].bytes == bytes);
        assert!(report.hits[1].folder, "as the folder above says");
    }
}

//! A map of what can be read, in the format of GNU ddrescue: a status line, then `position size status` for every run
//! of bytes. As its domain map (`--domain-mapfile`) ddrescue copies what is `+`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{bail, Context, Result};

use super::ask::VolumeState;
use crate::api::{Fate, FateRun};

/// Refuses a place where something is already, before anything else takes its time.
pub(super) fn refuse_taken(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => {
            bail!("'{}' is there already; a map that is there is not overwritten: take another name", path.display())
        }
        Err(_) => Ok(()),
    }
}

/// Writes the map of a volume to a new file.
pub(super) fn write(path: &Path, group: &str, volume: &VolumeState, stale: bool) -> Result<()> {
    let file = std::fs::File::options().write(true).create_new(true).open(path);
    let mut file =
        file.with_context(|| format!("cannot make '{}'; a map that is there is not overwritten", path.display()))?;
    file.write_all(text(group, volume, stale).as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write '{}'", path.display()))
}

fn text(group: &str, volume: &VolumeState, stale: bool) -> String {
    let mut text = format!(
        "# Mapfile. Written by Bimetal {}: volume {} of group {group}, {} bytes\n\
         # + can be read{}   ? may be old   - cannot be read\n\
         # current_pos  current_status  current_pass\n\
         0x00000000     ?               1\n\
         #      pos        size  status\n",
        env!("CARGO_PKG_VERSION"),
        volume.name,
        volume.size,
        if stale { " (or served with --kept-copies), may be old" } else { "" },
    );
    let mut at = 0;
    for same in volume.runs.chunk_by(|a, b| status(a, stale) == status(b, stale)) {
        let len: u64 = same.iter().map(|r| r.length_bytes).sum();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "0x{at:08X}  0x{len:08X}  {}", status(&same[0], stale));
        at += len;
    }
    text
}

fn status(run: &FateRun, stale: bool) -> char {
    match run.fate {
        Fate::NeverWritten | Fate::Whole => '+',
        Fate::PossiblyStale | Fate::KeptCopy if stale => '+',
        Fate::PossiblyStale => '?',
        Fate::KeptCopy | Fate::PerhapsLost | Fate::Lost => '-',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> VolumeState {
        let mut runs = Vec::new();
        let mut offset_bytes = 0;
        use Fate::{KeptCopy, Lost, NeverWritten, PerhapsLost, PossiblyStale, Whole};
        for (fate, blocks) in
            [(Whole, 2), (NeverWritten, 1), (Lost, 2), (PerhapsLost, 1), (KeptCopy, 1), (PossiblyStale, 1)]
        {
            let length_bytes = blocks * 4096;
            runs.push(FateRun { offset_bytes, length_bytes, fate });
            offset_bytes += length_bytes;
        }
        VolumeState { name: "main".into(), size: offset_bytes, runs }
    }

    fn lines(text: &str) -> Vec<&str> {
        text.lines().filter(|l| !l.starts_with('#')).skip(1).collect()
    }

    #[test]
    fn runs_follow_each_other_and_cover_the_volume() {
        let text = text("tank", &volume(), false);
        let expected = ["0x00000000  0x00003000  +", "0x00003000  0x00004000  -", "0x00007000  0x00001000  ?"];
        assert_eq!(lines(&text), expected);
    }

    #[test]
    fn with_stale_only_what_is_lost_is_bad() {
        let text = text("tank", &volume(), true);
        let expected = ["0x00000000  0x00003000  +", "0x00003000  0x00003000  -", "0x00006000  0x00002000  +"];
        assert_eq!(lines(&text), expected);
    }

    #[test]
    fn a_map_is_not_overwritten() {
        let file = tempfile::NamedTempFile::new().expect("temp file");
        let refused = write(file.path(), "tank", &volume(), false).expect_err("it is there");
        assert!(refused.to_string().contains("not overwritten"), "{refused}");
        let refused = refuse_taken(file.path()).expect_err("it is there");
        assert!(refused.to_string().contains("not overwritten"), "{refused}");
    }
}

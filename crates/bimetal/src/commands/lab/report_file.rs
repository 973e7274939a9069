//! The file that a report is written to: looked at before the work begins, replaced as a whole when it is done.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use bimetal_lab::report::MARK;

/// Bytes in which a report has its mark.
const HEAD: u64 = 4096;

/// Where a report goes.
pub(super) struct ReportFile {
    /// As it was named.
    path: PathBuf,
    /// What is replaced, links followed; `None` for what is no file, as a pipe, and is written to.
    file: Option<PathBuf>,
}

impl ReportFile {
    /// Sees that it can be written there, so that no work is done in vain. What is no report is only replaced with `force`.
    pub(super) fn new(path: &Path, force: bool) -> Result<ReportFile> {
        let cannot = || format!("cannot write {}", path.display());
        let file = match fs::metadata(path) {
            Ok(m) if m.is_file() => Some(fs::canonicalize(path).with_context(cannot)?),
            Ok(m) if m.is_dir() => bail!("{} is a folder", path.display()),
            Ok(_) => None,
            Err(e) if e.kind() == ErrorKind::NotFound => Some(path.to_owned()),
            Err(e) => return Err(e).with_context(cannot),
        };
        if let Some(file) = &file {
            if !force && !is_replaceable(file).with_context(|| format!("cannot read {}", path.display()))? {
                bail!(
                    "{} is there and is no report of Bimetal's: name another file, or add --force to replace it",
                    path.display()
                );
            }
            let temporary = temporary(file);
            OpenOptions::new().write(true).create_new(true).open(&temporary).with_context(cannot)?;
            fs::remove_file(&temporary).with_context(cannot)?;
        }
        Ok(ReportFile { path: path.to_owned(), file })
    }

    /// Its name, for words.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the report, whole or not at all.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        let written = match &self.file {
            None => OpenOptions::new().write(true).open(&self.path).and_then(|mut f| f.write_all(text.as_bytes())),
            Some(file) => replace(file, text),
        };
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Whether nothing is lost with a file: it is not there, empty, or a report.
fn is_replaceable(file: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    match File::open(file) {
        Ok(f) => f.take(HEAD).read_to_end(&mut head)?,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(e),
    };
    let has = |mark: &str| head.windows(mark.len()).any(|w| w == mark.as_bytes());
    Ok(head.is_empty() || MARK.iter().any(|mark| has(mark)))
}

/// A name beside the file.
fn temporary(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.{}.new", std::process::id()))
}

fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let temporary = temporary(file);
    let write = || {
        let mut new = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        if let Ok(before) = fs::metadata(file) {
            new.set_permissions(before.permissions())?;
        }
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&temporary, file)
    };
    let done = write();
    if done.is_err() {
        // What is left of it is of no use to anybody.
        let _ = fs::remove_file(&temporary);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path, force: bool) -> String {
        ReportFile::new(path, force).err().map(|e| format!("{e:#}")).unwrap_or_default()
    }

    #[test]
    fn only_reports_are_replaced_and_only_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.html");
        let page = bimetal_lab::report::Report { date: "today", version: "1", ..Default::default() }.html();
        let new = ReportFile::new(&path, false).expect("nothing is there");
        assert!(!path.exists(), "nothing is there yet");
        new.write(&page).expect("written");
        // A report of ours, and a link to one: the link stays one.
        let link = folder.path().join("link.html");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        ReportFile::new(&link, false).expect("a report").write(&(page.clone() + "again")).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("a file"), page + "again");
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        let mine = folder.path().join("mine.html");
        fs::write(&mine, "<html>my notes</html>").expect("written");
        assert!(refused(&mine, false).contains("--force") && refused(&mine, true).is_empty());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 3, "nothing is left beside them");
    }

    #[test]
    fn where_nothing_can_be_written_it_is_said_before_the_work() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(refused(&folder.path().join("no/such/report.html"), false).contains("cannot write"));
        assert!(refused(folder.path(), true).contains("is a folder"));
        let null = ReportFile::new(Path::new("/dev/null"), false).expect("a device");
        null.write("text").expect("written");
        assert!(!fs::metadata("/dev/null").expect("a device").is_file());
    }
}

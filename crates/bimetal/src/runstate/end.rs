//! How daemons of a group have ended, for whoever told them to: they are gone when that is known, and the next one may be there.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use bimetal_host::attach::began;
use serde::{Deserialize, Serialize};

use super::replace;
use crate::{api, paths};

/// How a daemon ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct End {
    schema: u32,
    process: u32,
    /// When the process began, which tells it from others that are given its number.
    #[serde(default)]
    began: Option<u64>,
    /// Why the group could not be stopped in order.
    pub(crate) error: Option<String>,
    /// Who used what it served until then, in words, and gets errors from now on.
    #[serde(default)]
    pub(crate) cut_off: Vec<String>,
}

/// How the last one ended, unless it never said.
fn end_file(name: &str) -> PathBuf {
    paths::run_dir(name).join("ended.json")
}

/// The same of the one before the daemon that lives now: who stopped that one may look only when this one is there.
fn earlier_file(name: &str) -> PathBuf {
    paths::run_dir(name).join("ended.earlier")
}

/// Writes down how this process has ended its group. The lock must still be held.
pub(crate) fn note_end(name: &str, error: Option<String>, cut_off: Vec<String>) -> Result<()> {
    let process = std::process::id();
    let end = End { schema: api::SCHEMA, process, began: began(process), error, cut_off };
    let path = end_file(name);
    let text = serde_json::to_string_pretty(&end)?;
    // Who may use the control socket may not own it.
    let readable = std::fs::Permissions::from_mode(0o644);
    let written = replace(&path, text.as_bytes()).and_then(|()| Ok(std::fs::set_permissions(&path, readable)?));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// How the daemon with this process id has ended group `name`; `None` if it never said. Who may not know the id asks for the one that
/// ended last: each takes away what the one before it said. Who knows when it began finds its end also behind the next one's start.
pub(crate) fn end_of(name: &str, process: Option<u32>, began: Option<u64>) -> Option<End> {
    let read = |path| serde_json::from_str::<End>(&std::fs::read_to_string(path).ok()?).ok();
    let is_very_one = |end: &End| Some(end.process) == process && end.began.is_some() && end.began == began;
    let is_last = |end: &End| process.is_none_or(|process| end.process == process);
    // In this order: where the next daemon begins in between, it goes from here to there.
    let (last, earlier) = (read(end_file(name)), read(earlier_file(name)));
    match (last, earlier) {
        (Some(end), _) if is_very_one(&end) => Some(end),
        (_, Some(end)) if is_very_one(&end) => Some(end),
        (last, _) => last.filter(is_last),
    }
}

/// What an earlier daemon wrote down says nothing of this one, which may have its process id. It is kept for whoever still asks for that
/// one, and what was kept so long goes.
pub(crate) fn set_end_aside(name: &str) {
    if std::fs::rename(end_file(name), earlier_file(name)).is_err() {
        // The last one never said how it ended, as a rule because there was none.
        let _ = std::fs::remove_file(earlier_file(name));
    }
}

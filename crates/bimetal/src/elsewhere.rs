//! A group may be served by a daemon that cannot be reached from here: its run directory is another one, or was deleted. Who
//! looks only there calls the group idle while it is in use.

use crate::{config, holders, runstate};

/// A process that serves a group, and cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) process: u32,
    /// A member that it has open.
    pub(crate) member: String,
}

impl Server {
    /// What to do about it.
    pub(crate) fn words(&self, name: &str) -> String {
        format!(
            "group '{name}' is served by process {0}, which has {1} open and cannot be asked from here: its run directory is \
             another one ({2}), or was deleted. Use that directory, or end the process in order: kill {0}",
            self.process,
            self.member,
            crate::paths::RUN_DIR
        )
    }
}

/// The process that serves group `name`, if it is not the one that is known here. Found by what it has open, as far as this
/// process may see that, and by how it was called.
pub(crate) fn server_of(name: &str) -> Option<Server> {
    let known = runstate::locked_by(name);
    // A configuration that cannot be read names no members.
    let members = config::load(name).ok().flatten()?.members;
    let paths = members.into_iter().filter_map(|m| bimetal_host::Locator::parse(&m.locator).ok());
    let found = paths.filter_map(|locator| {
        let path = locator.path()?.to_owned();
        let process = holders::processes_with_open(&path).into_iter().find(|pid| serves(*pid, name))?;
        Some(Server { process, member: path.display().to_string() })
    });
    let mut found = found.filter(|s| known.as_deref() != Some(&s.process.to_string()));
    found.next()
}

/// Whether a process is a daemon of group `name`.
fn serves(process: u32, name: &str) -> bool {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    is_serve(&line, name)
}

fn is_serve(line: &[u8], name: &str) -> bool {
    let mut words = line.split(|b| *b == 0);
    let program = words.next().unwrap_or_default().rsplit(|b| *b == b'/').next().unwrap_or_default();
    let words: Vec<&[u8]> = words.collect();
    program.starts_with(b"bimetal") && words.contains(&&b"serve"[..]) && words.contains(&name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_known_by_how_it_was_called() {
        assert!(is_serve(b"/usr/bin/bimetal\0serve\0tank\0--background\0", "tank"));
        assert!(is_serve(b"bimetal\0--json\0serve\0--read-only\0tank\0", "tank"));
        for other in [&b"bimetal\0serve\0pool\0"[..], b"bimetal\0check\0tank\0", b"nbdkit\0serve\0tank\0", b""] {
            assert!(!is_serve(other, "tank"));
        }
    }
}

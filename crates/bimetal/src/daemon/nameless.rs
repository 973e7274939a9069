//! Member files that lose their name while they are served: removed, or replaced by another file of that name (`rsync`, `cp
//! --remove-destination`, an editor). The daemon goes on in what it has open, and all of that is gone when it ends.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use bimetal_host::Locator;

use super::Shared;

/// A member that is a file, as it was when it was opened.
#[derive(Clone, Debug)]
pub(crate) struct MemberFile {
    /// Of the member.
    index: u8,
    /// Of the member.
    pub(super) uuid: String,
    locator: String,
    device: u64,
    inode: u64,
}

/// One that has no name any more.
#[derive(Debug)]
pub(crate) struct Nameless {
    /// Of the member, which a new file may share its name with.
    index: u8,
    pub(super) uuid: String,
    locator: String,
    /// By which it can be read still.
    open: PathBuf,
}

impl MemberFile {
    /// What is at a place, if that is a file. Asks a file system.
    pub(super) fn at(index: u8, uuid: &str, locator: &str) -> Option<MemberFile> {
        let parsed = Locator::parse(locator).ok()?;
        let meta = std::fs::metadata(parsed.path()?).ok().filter(std::fs::Metadata::is_file)?;
        Some(MemberFile { index, uuid: uuid.into(), locator: locator.into(), device: meta.dev(), inode: meta.ino() })
    }

    /// Whether what is at its place is still this file. Asks a file system.
    pub(super) fn is_at_its_place(&self) -> bool {
        let there = MemberFile::at(self.index, &self.uuid, &self.locator);
        there.is_some_and(|there| (there.device, there.inode) == (self.device, self.inode))
    }
}

/// Those of `files` that have no name any more. While they are open nothing else gets their inode. One that was only moved has a name.
pub(super) fn among(files: &[MemberFile]) -> Vec<Nameless> {
    let mut found: Vec<Nameless> = Vec::new();
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().map(|entry| entry.path());
    for path in open.filter(|path| is_deleted(path)) {
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        let is_it = |f: &&MemberFile| meta.nlink() == 0 && (f.device, f.inode) == (meta.dev(), meta.ino());
        let Some(file) = files.iter().find(is_it).filter(|f| found.iter().all(|n| n.uuid != f.uuid)) else { continue };
        let number = path.file_name().map(PathBuf::from).unwrap_or_default();
        let open = PathBuf::from(format!("/proc/{}/fd", std::process::id())).join(number);
        found.push(Nameless { index: file.index, uuid: file.uuid.clone(), locator: file.locator.clone(), open });
    }
    found
}

/// By what the kernel shows, which asks no file system.
fn is_deleted(open: &std::path::Path) -> bool {
    std::fs::read_link(open).is_ok_and(|name| name.as_os_str().as_encoded_bytes().ends_with(b" (deleted)"))
}

impl Nameless {
    /// What is the matter, and what is to be done.
    pub(super) fn words(&self, group: &str) -> String {
        format!(
            "THE FILE OF A MEMBER IS GONE: {0} (member {1}) was removed or replaced under its name while it is served, and all that is on it \
             is gone when the daemon ends. `bimetal member replace {group} {1} NEW` brings it onto another device, or a file of another name, \
             while the group is in use. Without room for that, copy elsewhere what is in the volumes while they are served. A copy of what is \
             open (`cp --sparse=always {2} NEW`) takes its place no more: after a stop it is an old copy, exact if nobody wrote meanwhile, \
             and can only be read, without the other members: `bimetal serve {group} --read-only --allow-missing --member NEW`.",
            self.locator,
            self.index,
            self.open.display()
        )
    }

    /// Why a stop waits.
    fn why_to_wait(&self, group: &str) -> String {
        format!(
            "the file {0} was removed or replaced under its name, and all that is on it is gone when the daemon ends (`bimetal member replace \
             {group} {1} NEW` brings it onto another device, or a file of another name)",
            self.locator,
            self.index
        )
    }
}

impl Shared {
    /// What is to be said of member files that have no name any more.
    pub(crate) fn nameless(&self) -> Vec<String> {
        among(&self.facts.files()).iter().map(|n| n.words(&self.facts.group)).collect()
    }

    /// The same, as what a stop waits for.
    pub(super) fn nameless_to_wait_for(&self) -> Vec<String> {
        among(&self.facts.files()).iter().map(|n| n.why_to_wait(&self.facts.group)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_or_replaced_while_it_is_open_is_told_from_one_that_was_moved() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let open = |name: &str| {
            let file = std::fs::File::create(path(name)).expect("made");
            (MemberFile::at(3, name, &path(name).display().to_string()).expect("a file"), file)
        };
        let all: Vec<_> = ["kept", "moved", "removed", "replaced"].into_iter().map(open).collect();
        let files: Vec<MemberFile> = all.iter().map(|(file, _)| file.clone()).collect();
        assert!(among(&files).is_empty());
        std::fs::rename(path("moved"), path("elsewhere")).expect("moved");
        std::fs::remove_file(path("removed")).expect("removed");
        std::fs::write(path("new"), "").and_then(|()| std::fs::rename(path("new"), path("replaced"))).expect("put");
        let mut found: Vec<String> = among(&files).into_iter().map(|n| n.uuid).collect();
        found.sort();
        assert_eq!(found, ["removed", "replaced"]);
        let words = among(&files)[0].words("tank");
        assert!(words.contains("member replace tank 3 NEW") && words.contains("cp --sparse=always /proc/"), "{words}");
    }
}

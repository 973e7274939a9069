//! Where the members of an open group are, and what becomes of the place of one that leaves. A place is a name: what is there may have
//! become another member's, or nobody's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bimetal_host::Locator;

use super::nameless::MemberFile;
use crate::members::identity;

/// Where members are, by UUID (as text). Whoever has a copy sees what is noted by others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Vec<(String, String)>>>);

impl Places {
    /// These, to begin with.
    pub(crate) fn new(all: Vec<(String, String)>) -> Places {
        Places(Arc::new(Mutex::new(all)))
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(String, String)> {
        self.lock().clone()
    }

    /// A member has come.
    pub(super) fn note(&self, uuid: &str, locator: &str) {
        self.lock().push((uuid.into(), locator.into()));
    }

    /// A member has gone; where it was.
    pub(super) fn forget(&self, uuid: &str) -> Option<String> {
        let mut all = self.lock();
        let at = all.iter().position(|(of, _)| of == uuid)?;
        Some(all.remove(at).1)
    }

    /// Whether a member has this place.
    pub(super) fn has(&self, locator: &str) -> bool {
        self.lock().iter().any(|(_, at)| at == locator)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the place of a member is not free though that has left: whoever is told so may erase what is there. `was` is its file, if it was
/// one, and `others` are the members that stay, by what they are called, with their places. Asks file systems.
pub(super) fn why_not_free(place: &str, was: Option<&MemberFile>, others: &[(String, String)]) -> Option<String> {
    // A device has several names.
    let real = |at: &str| Locator::parse(at).ok().map(|at| identity(&at));
    let here = real(place);
    let is_here = |at: &str| at == place || (here.is_some() && real(at) == here);
    if let Some((who, _)) = others.iter().find(|(_, at)| is_here(at)) {
        return Some(format!("What is at {place} now is {who}, which stays in use"));
    }
    let is_another = was.is_some_and(|file| !file.is_at_its_place());
    is_another.then(|| {
        format!("Its file was moved, removed or replaced under its name: what is at {place} now, if anything, was never this member")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_only_if_what_was_the_member_is_still_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (file, link) = (path("fast.img"), path("link.img"));
        std::fs::write(&file, "").expect("written");
        let was = MemberFile::at(0, "old", &file).expect("a file");
        let others = |at: &str| [("fast member 2".to_string(), at.to_string())];
        assert_eq!(why_not_free(&file, Some(&was), &others(&path("slow.img"))), None);
        std::fs::write(path("new"), "").and_then(|()| std::fs::rename(path("new"), &file)).expect("put");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        for at in [&file, &link] {
            let why = why_not_free(&file, Some(&was), &others(at)).expect("it is another member's");
            assert!(why.contains("is fast member 2"), "{why}");
        }
        let why = why_not_free(&file, Some(&was), &[]).expect("it is another file");
        assert!(why.contains("never this member"), "{why}");
        // Of a device there is nothing to compare.
        assert_eq!(why_not_free(&file, None, &[]), None);
    }
}

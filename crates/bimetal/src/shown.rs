//! Where groups show the files of their volumes.

use std::path::Path;

use crate::paths::{run_base, FILES};

/// Whether a path lies in a folder where a group shows the files of its volumes: also while they are not shown, and the folder is
/// one like any other.
pub(crate) fn is_where_volumes_are_shown(path: &Path) -> bool {
    lies_in_shown(&run_base(), path)
}

fn lies_in_shown(base: &Path, path: &Path) -> bool {
    let Ok(base) = base.canonicalize() else { return false };
    let Some(folder) = path.parent() else { return false };
    // Of the folder itself its daemon would have to be asked: that comes last.
    let names = [bimetal_host::fuse::true_path(folder).ok(), folder.canonicalize().ok()];
    names.into_iter().flatten().any(|folder| {
        let within = folder.strip_prefix(&base).ok();
        within.is_some_and(|within| within.components().nth(1).is_some_and(|c| c.as_os_str() == FILES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_where_volumes_are_shown_is_known_by_any_of_its_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("run");
        std::fs::create_dir_all(base.join("tank/fuse")).expect("folders");
        std::os::unix::fs::symlink(base.join("tank/fuse"), dir.path().join("link")).expect("a link");
        for inside in [base.join("tank/fuse/main"), dir.path().join("link/main"), base.join("tank/../tank/fuse/x")] {
            assert!(lies_in_shown(&base, &inside), "{}", inside.display());
        }
        for outside in [base.join("tank/main"), base.join("tank/fuse"), dir.path().join("fuse/main"), "/".into()] {
            assert!(!lies_in_shown(&base, &outside), "{}", outside.display());
        }
    }
}

//! Files that are there after a power cut, too.

use std::fs::File;
use std::io;
use std::path::Path;

/// Syncs a new file, and then its folder: a new name is durable when its folder is.
pub(crate) fn sync_new(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

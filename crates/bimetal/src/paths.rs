//! Where configuration and run state lie: system folders for root, XDG folders for a user, and two environment
//! variables for whoever wants them elsewhere.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

/// Overrides the folder of `groups/NAME.toml`.
pub(crate) const CONFIG_DIR: &str = "BIMETAL_CONFIG_DIR";
/// Overrides the folder of the run state.
pub(crate) const RUN_DIR: &str = "BIMETAL_RUN_DIR";
/// The folder in the run state of a group where its volumes are shown as files.
pub(crate) const FILES: &str = "fuse";
/// The longest path that a unix socket address holds.
const SOCKET_PATH_MAX: usize = 107;

/// All variables that folders are taken from.
const VARIABLES: [&str; 5] = [CONFIG_DIR, RUN_DIR, "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "HOME"];

/// The folder that a variable names. A relative one begins where the program was started.
fn from_env(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)?;
    Some(std::path::absolute(&folder).unwrap_or(folder))
}

/// What a process that works elsewhere must be given to find the same folders.
pub(crate) fn for_elsewhere() -> impl Iterator<Item = (&'static str, PathBuf)> {
    VARIABLES.into_iter().filter_map(|name| Some((name, from_env(name)?)))
}

/// Whether this process may act for the whole system.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn groups_dir() -> Result<PathBuf> {
    let base = match from_env(CONFIG_DIR) {
        Some(dir) => dir,
        None if is_root() => PathBuf::from("/etc/bimetal"),
        None => match from_env("XDG_CONFIG_HOME") {
            Some(dir) => dir.join("bimetal"),
            None => from_env("HOME").context("neither XDG_CONFIG_HOME nor HOME is set")?.join(".config/bimetal"),
        },
    };
    Ok(base.join("groups"))
}

/// The file that describes group `name`.
pub(crate) fn config_file(name: &str) -> Result<PathBuf> {
    Ok(groups_dir()?.join(format!("{name}.toml")))
}

/// Names of all groups that have a file, in order.
pub(crate) fn configured_groups() -> Result<Vec<String>> {
    let dir = groups_dir()?;
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", dir.display())),
    };
    let mut names: Vec<String> = entries
        .filter_map(|e| Some(e.ok()?.file_name().to_str()?.strip_suffix(".toml")?.to_string()))
        .filter(|n| bimetal_format::label::is_name(n))
        .collect();
    names.sort();
    Ok(names)
}

pub(crate) fn run_base() -> PathBuf {
    if let Some(dir) = from_env(RUN_DIR) {
        return dir;
    }
    if is_root() {
        return PathBuf::from("/run/bimetal");
    }
    match from_env("XDG_RUNTIME_DIR") {
        Some(dir) => dir.join("bimetal"),
        None => std::env::temp_dir().join(format!("bimetal-{}", rustix::process::geteuid().as_raw())),
    }
}

/// The run state of group `name`: sockets, lock, log, attachments. May not exist.
pub(crate) fn run_dir(name: &str) -> PathBuf {
    run_base().join(name)
}

/// Names of groups that have a run-state folder.
pub(crate) fn groups_with_run_state() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(run_base()) else { return Vec::new() };
    // What else somebody puts there, a log for example, is no group.
    let folders = entries.flatten().filter(|e| e.path().is_dir());
    let mut names: Vec<String> = folders.filter_map(|e| e.file_name().to_str().map(String::from)).collect();
    names.retain(|n| bimetal_format::label::is_name(n));
    names.sort();
    names
}

/// Makes the run-state folder of group `name`. A folder that somebody else owns is refused: whoever owns it could put
/// a socket of his own in our place.
pub(crate) fn make_run_dir(name: &str) -> Result<PathBuf> {
    let dir = run_dir(name);
    let mode = if is_root() { 0o755 } else { 0o700 };
    for d in [run_base(), dir.clone()] {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&d)
            .with_context(|| format!("cannot create {}", d.display()))?;
        let owner = std::fs::metadata(&d).with_context(|| format!("cannot read {}", d.display()))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            bail!("{} belongs to another user (uid {owner}); set {RUN_DIR} to a folder of your own", d.display());
        }
    }
    Ok(dir)
}

/// Refuses a path in the run state that does not fit into a socket address, in words.
pub(crate) fn check_run_socket(path: &Path) -> Result<()> {
    check_socket_path(path, &format!("set {RUN_DIR} to a shorter folder"))
}

/// Refuses a path that does not fit into a socket address, with what can be done about it.
pub(crate) fn check_socket_path(path: &Path, advice: &str) -> Result<()> {
    let len = path.as_os_str().len();
    if len > SOCKET_PATH_MAX {
        bail!("the socket path {} has {len} bytes, the system allows {SOCKET_PATH_MAX}; {advice}", path.display());
    }
    Ok(())
}

/// Gives a socket its rights: the owner and, for root, the group `bimetal` where it exists.
pub(crate) fn share_socket(path: &Path) -> Result<()> {
    let group = if is_root() { group_id("bimetal") } else { None };
    if let Some(gid) = group {
        std::os::unix::fs::chown(path, None, Some(gid)).with_context(|| format!("cannot chown {}", path.display()))?;
    }
    // Without that group the file's is the user's own, of which others may be members.
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the rights of {}", path.display()))
}

/// The id of a group of the system.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string("/etc/group").ok()?;
    let line = text.lines().find(|l| l.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

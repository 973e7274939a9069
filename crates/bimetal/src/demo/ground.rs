//! The folder that the demo works in. It makes it, marks it as its own, and takes away nothing that it did not make: what it
//! makes is listed by name here, and folders go only when they are empty.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use super::process::GROUP;
use crate::{holders, runstate};

/// Says that a folder is the demo's, and is locked as long as a demo runs there.
const MARKER: &str = ".bimetal-demo";
const MARK: &str = "`bimetal demo` works here, and takes away what it made when it ends.\n";
/// What the demo makes in its folder. The marker goes last: what cannot be taken away now can be recognised later.
const FILES: [&str; 4] = ["fast.img", "slow.img", "daemon.log", MARKER];

/// The demo's folder, locked.
pub(crate) struct Ground {
    pub(crate) dir: PathBuf,
    _marker: File,
}

impl Ground {
    /// A new folder below `wanted` or the folder for temporary files. What an earlier demo has left there goes first.
    pub(crate) fn make(wanted: Option<PathBuf>) -> Result<Ground> {
        let (above, name) = match wanted {
            Some(dir) => (dir, "bimetal-demo".to_string()),
            None => (std::env::temp_dir(), format!("bimetal-demo-{}", std::process::id())),
        };
        std::fs::create_dir_all(&above).with_context(|| format!("cannot create {}", above.display()))?;
        // As the kernel lists mounts.
        let dir = above.canonicalize().with_context(|| format!("cannot use {}", above.display()))?.join(name);
        if dir.symlink_metadata().is_ok() {
            take_over(&dir)?.remove()?;
        }
        let made = DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("cannot create {}", dir.display()))?;
        let marker = dir.join(MARKER);
        let mut file = File::create_new(&marker)
            .with_context(|| format!("cannot write in {}; take another --dir", dir.display()))?;
        file.write_all(MARK.as_bytes()).and_then(|()| Ok(file.try_lock()?)).context("cannot mark the folder")?;
        Ok(Ground { dir, _marker: file })
    }

    /// Takes away what the demo has made.
    pub(crate) fn remove(self) -> Result<()> {
        let dir = &self.dir;
        let run = dir.join("run").join(GROUP);
        // What a daemon that was killed has left. One that lives would be told of below.
        let _ = bimetal_host::fuse::remove_dead(&run.join("fuse"));
        let mounts = holders::mounts_below(dir).with_context(|| format!("{} is kept", dir.display()))?;
        if let Some(at) = mounts.first() {
            bail!(
                "{} is kept, because something is mounted on {}; umount that, then run the demo there again, which \
                 takes away what is left",
                dir.display(),
                at.display()
            );
        }
        let files = runstate::FILES
            .map(|f| run.join(f))
            .into_iter()
            .chain([dir.join("etc/groups").join(format!("{GROUP}.toml"))]);
        for file in files {
            remove_file(&file)?;
        }
        for folder in
            [&*run.join("fuse"), &run, &dir.join("run"), &dir.join("etc/groups"), &dir.join("etc"), &dir.join("mnt")]
        {
            remove_folder(folder)?;
        }
        for file in FILES {
            remove_file(&dir.join(file))?;
        }
        remove_folder(dir)
    }

    /// Leaves everything. It is no leftover then: no later demo may take it away.
    pub(crate) fn keep(self) -> Result<PathBuf> {
        remove_file(&self.dir.join(MARKER))?;
        Ok(self.dir)
    }
}

/// The folder of a demo that was ended from outside. Anything else is refused.
fn take_over(dir: &Path) -> Result<Ground> {
    let foreign = || format!("{} is there already, and is not what a demo has left; take another --dir", dir.display());
    let marker = dir.join(MARKER);
    let is_ours = |path: &Path| path.symlink_metadata().is_ok_and(|m| m.is_file());
    if dir.is_symlink() || !is_ours(&marker) {
        bail!(foreign());
    }
    let mut file = File::options().read(true).write(true).open(&marker).with_context(foreign)?;
    let mut text = String::new();
    if file.read_to_string(&mut text).is_err() || text != MARK {
        bail!(foreign());
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!("a demo is running in {}; take another --dir", dir.display()),
        Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("cannot lock {}", marker.display())),
    }
    refuse_served(dir)?;
    Ok(Ground { dir: dir.to_owned(), _marker: file })
}

/// A daemon outlives a demo that was killed.
fn refuse_served(dir: &Path) -> Result<()> {
    let Ok(lock) = File::open(dir.join("run").join(GROUP).join("lock")) else { return Ok(()) };
    if matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        bail!(
            "a demo that was killed has left its daemon in {d}; unmount what is mounted from it, then: \
             BIMETAL_CONFIG_DIR={d}/etc BIMETAL_RUN_DIR={d}/run bimetal stop {GROUP}",
            d = dir.display()
        );
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(e).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}

/// Removes an empty folder. What somebody has put there keeps it, and that is worth no error.
fn remove_folder(path: &Path) -> Result<()> {
    match std::fs::remove_dir(path) {
        Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
            crate::output::tell(&format!("{} is kept: there is more in it than the demo has made.", path.display()));
            Ok(())
        }
        Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(e).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What [`Ground::make`] says, where it refuses.
    fn refusal(dir: &Path) -> String {
        Ground::make(Some(dir.to_owned())).err().map(|e| format!("{e:#}")).expect("refused")
    }

    fn write(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, "x").expect("written");
    }

    #[test]
    fn only_what_the_demo_makes_goes() {
        let dir = tempfile::tempdir().expect("a folder");
        let theirs = ["etc/passwd", "run/x", "mnt/y", "daemon.log", "fast.img"].map(|f| dir.path().join(f));
        theirs.iter().for_each(|f| write(f));
        let ground = Ground::make(Some(dir.path().to_owned())).expect("made");
        let own = ground.dir.clone();
        for file in
            ["fast.img", "daemon.log", "etc/groups/demo.toml", "run/demo/lock", "run/demo/ended.json", "mnt/letter"]
        {
            write(&own.join(file));
        }
        ground.remove().expect("removed");
        assert!(theirs.iter().all(|f| f.exists()));
        assert!(own.join("mnt/letter").exists(), "somebody else's");
        let rest: Vec<_> = std::fs::read_dir(&own).expect("a folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(rest, ["mnt"]);
        assert!(refusal(dir.path()).contains("not what a demo has left"));
    }

    #[test]
    fn leftovers_are_known_by_their_mark() {
        let dir = tempfile::tempdir().expect("a folder");
        let make = || Ground::make(Some(dir.path().to_owned())).expect("made");
        let running = make();
        let own = running.dir.clone();
        assert!(refusal(dir.path()).contains("a demo is running in"));
        // As if it was killed.
        drop(running);
        write(&own.join("run/demo/lock"));
        let daemon = File::open(own.join("run/demo/lock")).expect("opened");
        daemon.lock().expect("locked");
        assert!(refusal(dir.path()).contains("bimetal stop demo"));
        drop(daemon);
        make().remove().expect("removed");
        assert!(!own.exists());
        // What was kept was wanted.
        write(&make().keep().expect("kept").join("fast.img"));
        assert!(refusal(dir.path()).contains("not what a demo has left"));
        assert!(own.join("fast.img").exists());
        std::fs::write(own.join(MARKER), "somebody's").expect("written");
        assert!(refusal(dir.path()).contains("not what a demo has left"));
    }
}

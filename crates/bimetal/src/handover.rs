//! How the key of a family gets from the command of the person who typed a passphrase to the daemon: through a FIFO in
//! the run-state folder of the group. The request only names it, so no buffer of JSON or HTTP ever holds a key.
//!
//! Who may do it: whoever may make files in that folder, which is root and the user of the daemon. The FIFO is readable
//! by its owner alone, and the daemon takes it only from the one who asks: a member of the group `bimetal` cannot pass
//! off as his what root has just put there. The key is in the FIFO before the daemon is asked, so it waits for nobody.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_crypt::FamilyKey;
use rustix::fs::{FileType, Mode, OFlags, CWD};

use crate::{hex, paths};

/// How names of such files begin; 32 hexadecimal digits follow.
const PREFIX: &str = "key-";
const DIGITS: usize = 32;
/// A key that is not there by then does not come.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A key that waits for the daemon. Dropped, it is gone.
pub(crate) struct Offer {
    path: PathBuf,
    /// What the request says.
    pub(crate) name: String,
    /// As long as it is open, what was written to it stays.
    _fifo: File,
}

impl Offer {
    /// Puts a key where the daemon of a group finds it.
    pub(crate) fn make(group: &str, key: &FamilyKey) -> Result<Offer> {
        let folder = paths::run_dir(group);
        let name = format!("{PREFIX}{}", hex::encode(&bimetal_host::luks::random_uuid()));
        let path = folder.join(&name);
        let fail = || format!("the key cannot be handed to the daemon by way of {}", path.display());
        match rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Err(rustix::io::Errno::ACCESS) => bail!(
                "only root and the user of the daemon may hand it a key: {} belongs to somebody else; run this as one \
                 of them",
                folder.display()
            ),
            made => made.with_context(fail)?,
        }
        // From here on it is taken away whatever happens. Opened for both, it waits for no reader.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let fifo = match opened {
            Ok(fd) => File::from(fd),
            Err(e) => {
                let _ = std::fs::remove_file(&path);
                return Err(e).with_context(fail);
            }
        };
        let offer = Offer { path: path.clone(), name, _fifo: fifo };
        let made = offer._fifo.metadata().with_context(fail)?;
        if !made.file_type().is_fifo() || made.uid() != rustix::process::geteuid().as_raw() {
            // Whoever owns the folder could put something else there meanwhile.
            bail!("{} was replaced by somebody: no key is written to it", path.display());
        }
        let owner = std::fs::metadata(&folder).with_context(fail)?.uid();
        if paths::is_root() && owner != 0 {
            // The daemon is a user's, and reads only what is his.
            std::os::unix::fs::fchown(&offer._fifo, Some(owner), None).with_context(fail)?;
        }
        (&offer._fifo).write_all(key.as_bytes()).with_context(fail)?;
        Ok(offer)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // It may be gone with its folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_name(text: &str) -> bool {
    let digits = text.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Takes the key that `peer`, a user, has put there under this name. For the control side of the daemon of `group`.
pub(crate) async fn receive(group: &str, name: &str, peer: u32) -> Result<FamilyKey> {
    if !is_name(name) {
        bail!("the request does not say where the key is: {name:?} is no {PREFIX} and {DIGITS} digits");
    }
    receive_at(&paths::run_dir(group).join(name), peer).await
}

async fn receive_at(path: &Path, peer: u32) -> Result<FamilyKey> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.with_context(|| format!("the key cannot be taken from {}", path.display()))?);
    let meta = file.metadata().with_context(|| format!("{} cannot be looked at", path.display()))?;
    let own = rustix::process::geteuid().as_raw();
    let is_peers = meta.uid() == peer || peer == 0 && meta.uid() == own;
    if !meta.file_type().is_fifo() || !is_peers || meta.mode() & 0o077 != 0 {
        bail!(
            "{} is not a FIFO that belongs to user {peer}, and to nobody else: no key is taken from it",
            path.display()
        );
    }
    let begun = Instant::now();
    loop {
        match FamilyKey::try_fill(|key| take(&file, key)) {
            Err(e) if e.kind() == ErrorKind::WouldBlock && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            taken => return taken.with_context(|| format!("no key came through {}", path.display())),
        }
    }
}

/// A key comes in one piece, and nothing after it.
fn take(mut file: &File, key: &mut [u8; 32]) -> std::io::Result<()> {
    let wrong = |words| Err(std::io::Error::new(ErrorKind::InvalidData, words));
    match file.read(key)? {
        0 => return wrong("nobody has put it there"),
        32 => {}
        _ => return wrong("it is too short"),
    }
    match file.read(&mut [0]) {
        Ok(0) => Ok(()),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
        _ => wrong("it is too long"),
    }
}

/// Removes what commands that were killed have left: the names of keys, which went with their process.
pub(crate) fn sweep(group: &str) {
    let entries = std::fs::read_dir(paths::run_dir(group)).into_iter().flatten().flatten();
    for entry in entries.filter(|e| e.file_name().to_str().is_some_and(is_name)) {
        let _ = std::fs::remove_file(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        let digits = "0123456789abcdef0123456789abcdef";
        assert!(is_name(&format!("key-{digits}")));
        for bad in ["", "key-", "lock", "../key-1", digits] {
            assert!(!is_name(bad), "{bad}");
        }
        for bad in
            [format!("key-{digits}0"), format!("key-/{}", &digits[1..]), format!("key-{}", digits.to_uppercase())]
        {
            assert!(!is_name(&bad), "{bad}");
        }
    }

    #[test]
    fn a_key_comes_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("fifo");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
        let open =
            |flags| File::from(rustix::fs::open(&path, flags | OFlags::NONBLOCK, Mode::empty()).expect("opened"));
        let reader = open(OFlags::RDONLY);
        let mut key = [0; 32];
        let kind = |result: std::io::Result<()>| result.expect_err("refused").kind();
        assert_eq!(kind(take(&reader, &mut key)), ErrorKind::InvalidData, "nobody is there");
        let mut writer = open(OFlags::RDWR);
        assert_eq!(kind(take(&reader, &mut key)), ErrorKind::WouldBlock);
        writer.write_all(&[7; 31]).expect("written");
        assert_eq!(kind(take(&reader, &mut key)), ErrorKind::InvalidData);
        writer.write_all(&[7; 33]).expect("written");
        assert_eq!(kind(take(&reader, &mut key)), ErrorKind::InvalidData);
        writer.write_all(&[9; 32]).expect("written");
        take(&reader, &mut key).expect("whole");
        assert_eq!(key, [9; 32]);
    }
    #[test]
    fn what_one_user_has_put_there_is_not_taken_for_another() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("fifo");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let mut writer = File::from(rustix::fs::open(&path, flags, Mode::empty()).expect("opened"));
        writer.write_all(&[9; 32]).expect("written");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("made");
        let own = rustix::process::geteuid().as_raw();
        let refused = runtime.block_on(receive_at(&path, own + 1)).expect_err("another's");
        assert!(refused.to_string().contains("is not a FIFO that belongs to user"), "{refused}");
        let key = runtime.block_on(receive_at(&path, own)).expect("his own");
        assert_eq!(key.as_bytes(), &[9; 32]);
    }
}

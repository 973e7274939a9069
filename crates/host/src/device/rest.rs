//! What lies behind the last whole block of a device whose size is no multiple of 4096 bytes. Nothing is stored there; but others keep
//! there what they recognise their devices by.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The place, and an open file of its own: it may outlive whoever asks.
pub(super) struct Rest {
    pub(super) file: OwnedFd,
    pub(super) offset: u64,
    pub(super) len: usize,
}

impl Rest {
    /// What is there.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; self.len];
        self.buffered(OpenOptions::new().read(true))?.read_exact_at(&mut content, self.offset)?;
        Ok(content)
    }

    /// Durably something else.
    pub(super) fn write(&self, content: &[u8]) -> io::Result<()> {
        let file = self.buffered(OpenOptions::new().write(true))?;
        file.write_all_at(&content[..self.len.min(content.len())], self.offset)?;
        file.sync_all()
    }

    /// The same device without direct I/O, which is in whole blocks only.
    fn buffered(&self, how: &OpenOptions) -> io::Result<File> {
        how.open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

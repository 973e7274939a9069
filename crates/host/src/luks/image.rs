//! A file in memory that holds a header while libcryptsetup works on it.
//!
//! The library wants a path. That of an anonymous file under `/proc/self/fd` is one, and nothing of it ever reaches a
//! file system; no other process finds it, and it is gone with the last descriptor.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use super::LuksError;

pub(super) struct Image {
    file: File,
    path: CString,
}

impl Image {
    pub(super) fn empty(bytes: u64) -> Result<Image, LuksError> {
        let file = File::from(memory_file().map_err(at("creating it"))?);
        file.set_len(bytes).map_err(at("giving it its size"))?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("has no zero bytes");
        Ok(Image { file, path })
    }

    pub(super) fn holding(bytes: &[u8]) -> Result<Image, LuksError> {
        let image = Image::empty(bytes.len() as u64)?;
        image.file.write_all_at(bytes, 0).map_err(at("writing to it"))?;
        Ok(image)
    }

    /// The first so many bytes.
    pub(super) fn read(&self, bytes: u64) -> Result<Vec<u8>, LuksError> {
        let mut content = vec![0; bytes as usize];
        self.file.read_exact_at(&mut content, 0).map_err(at("reading it"))?;
        Ok(content)
    }

    pub(super) fn path(&self) -> &CStr {
        &self.path
    }
}

fn at(step: &'static str) -> impl Fn(io::Error) -> LuksError {
    move |why| LuksError::Workspace { step, why }
}

fn memory_file() -> io::Result<OwnedFd> {
    // Kernels before 6.3 do not know the second flag; some later ones demand it.
    for flags in [libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL, libc::MFD_CLOEXEC] {
        // SAFETY: the name is a string with a zero at its end.
        let fd = unsafe { libc::memfd_create(c"luks-header".as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: the descriptor is new and nobody else's.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Err(io::Error::last_os_error())
}

//! What goes over `/dev/fuse`: numbers and structures of version 7 of the kernel's protocol, in the machine's own byte
//! order. Names are those of the kernel's header, so that one can be held against the other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol.
pub(super) const MAJOR: u32 = 7;
/// The newest minor version whose structures are known here (Linux 6.2).
pub(super) const MINOR: u32 = 38;
/// The oldest that is served; Linux 6.1 has 37.
pub(super) const OLDEST_MINOR: u32 = 31;
/// Node of the mount's directory.
pub(super) const ROOT: u64 = 1;

pub(super) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const LSEEK: u32 = 46;
}

/// Flags of INIT.
pub(super) mod init_flag {
    pub(crate) const ASYNC_READ: u32 = 1 << 0;
    pub(crate) const BIG_WRITES: u32 = 1 << 5;
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
}

/// Flags of the answer to OPEN.
pub(super) mod open_flag {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// What SETATTR changes.
pub(super) mod set_flag {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
}

/// Modes of FALLOCATE, as in `fallocate(2)`.
pub(super) mod alloc_mode {
    pub(crate) const KEEP_SIZE: u32 = 1;
    pub(crate) const PUNCH_HOLE: u32 = 2;
    pub(crate) const ZERO_RANGE: u32 = 16;
}

/// What LSEEK looks for, as in `lseek(2)`.
pub(super) const SEEK_DATA: u32 = 3;
pub(super) const SEEK_HOLE: u32 = 4;

/// Flags of open files, as in `open(2)`; the same on x86-64 and aarch64.
pub(super) const O_ACCMODE: u32 = 0o3;
pub(super) const O_DSYNC: u32 = 0o10_000;

/// Kinds of files in modes and directory entries.
pub(super) const DIRECTORY: u32 = 0o040_000;
pub(super) const REGULAR: u32 = 0o100_000;

pub(super) mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const EIO: i32 = 5;
    pub(crate) const ENXIO: i32 = 6;
    pub(crate) const ENOTDIR: i32 = 20;
    pub(crate) const EISDIR: i32 = 21;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOSPC: i32 = 28;
    pub(crate) const EROFS: i32 = 30;
    pub(crate) const ENOSYS: i32 = 38;
    pub(crate) const EPROTO: i32 = 71;
    pub(crate) const EOPNOTSUPP: i32 = 95;
    pub(crate) const ESHUTDOWN: i32 = 108;
}

/// `fuse_in_header`: what each request begins with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    pub(super) len: u32,
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) nodeid: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    pub(super) total_extlen: u16,
    pub(super) padding: u16,
}

/// `fuse_out_header`: what each answer begins with.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OutHeader {
    pub(super) len: u32,
    pub(super) error: i32,
    pub(super) unique: u64,
}

/// The part of `fuse_init_in` that all served versions have.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitIn {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
}

/// `fuse_init_out`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitOut {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
    pub(super) max_background: u16,
    pub(super) congestion_threshold: u16,
    pub(super) max_write: u32,
    pub(super) time_gran: u32,
    pub(super) max_pages: u16,
    pub(super) map_alignment: u16,
    pub(super) flags2: u32,
    pub(super) unused: [u32; 7],
}

/// The part of `fuse_setattr_in` that is looked at.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetattrIn {
    pub(super) valid: u32,
    pub(super) padding: u32,
    pub(super) fh: u64,
    pub(super) size: u64,
}

/// `fuse_open_in`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenIn {
    pub(super) flags: u32,
    pub(super) open_flags: u32,
}

/// `fuse_read_in` and `fuse_write_in`, which are laid out alike.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct TransferIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) transfer_flags: u32,
    pub(super) lock_owner: u64,
    pub(super) flags: u32,
    pub(super) padding: u32,
}

/// `fuse_fallocate_in`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FallocateIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) mode: u32,
    pub(super) padding: u32,
}

/// `fuse_lseek_in`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LseekIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) whence: u32,
    pub(super) padding: u32,
}

/// `fuse_attr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Attr {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    /// Access, modification, change, in seconds.
    pub(super) times: [u64; 3],
    pub(super) times_nsec: [u32; 3],
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) blksize: u32,
    pub(super) flags: u32,
}

/// `fuse_entry_out`, without the attributes that follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct EntryOut {
    pub(super) nodeid: u64,
    pub(super) generation: u64,
    pub(super) entry_valid: u64,
    pub(super) attr_valid: u64,
    pub(super) entry_valid_nsec: u32,
    pub(super) attr_valid_nsec: u32,
    pub(super) attr: Attr,
}

/// `fuse_attr_out`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AttrOut {
    pub(super) attr_valid: u64,
    pub(super) attr_valid_nsec: u32,
    pub(super) dummy: u32,
    pub(super) attr: Attr,
}

/// `fuse_open_out`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenOut {
    pub(super) fh: u64,
    pub(super) open_flags: u32,
    pub(super) padding: u32,
}

/// `fuse_write_out`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct WriteOut {
    pub(super) size: u32,
    pub(super) padding: u32,
}

/// `fuse_statfs_out`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct StatfsOut {
    pub(super) blocks: u64,
    pub(super) bfree: u64,
    pub(super) bavail: u64,
    pub(super) files: u64,
    pub(super) ffree: u64,
    pub(super) bsize: u32,
    pub(super) namelen: u32,
    pub(super) frsize: u32,
    pub(super) padding: u32,
    pub(super) spare: [u32; 6],
}

/// `fuse_dirent`, without the name that follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Dirent {
    pub(super) ino: u64,
    pub(super) off: u64,
    pub(super) namelen: u32,
    pub(super) kind: u32,
}

// The kernel's header states these sizes.
const _: () = {
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<InHeader>() + size_of::<TransferIn>() == bimetal_host::fuse::WRITE_HEAD);
    assert!(size_of::<InitOut>() == 64 && size_of::<StatfsOut>() == 80);
    assert!(size_of::<Attr>() == 88 && size_of::<EntryOut>() == 128 && size_of::<AttrOut>() == 104);
    assert!(size_of::<FallocateIn>() == 32 && size_of::<LseekIn>() == 24 && size_of::<Dirent>() == 24);
};

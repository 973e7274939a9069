//! Bytes on the members of a group. No I/O, no state: structures, checksums, and where things lie. `FORMAT.md` beside
//! this crate describes the same in prose and tables; a test keeps the two equal.
//!
//! Every decoder takes untrusted bytes and returns either a fully checked value or an error that says what is wrong.

pub mod away;
pub mod block;
pub mod directory;
#[doc(hidden)]
pub mod document;
pub mod entry;
pub mod journal;
pub mod label;
pub mod layout;
pub mod lease;
pub mod page;
pub mod size;

pub use block::{BlockError, Salt};
pub use entry::Entry;
pub use page::ENTRIES_PER_PAGE;

/// Size of every metadata block but the label, in bytes.
pub const BLOCK: usize = 4096;
/// Size of a chunk and of a slot, in bytes.
pub const CHUNK: u64 = 128 << 10;
/// Version of the format that this code writes.
pub const VERSION: u16 = 1;

//! Requests of clients: read, write, flush, TRIM, zeroing, hints. Each operation reads top to bottom in one function:
//! let in, split at chunk borders, claim, look up or place, transfer, settle.
//!
//! A request must run to its end: dropping its future while device I/O is in flight would release claims too early.
//! Exports therefore give each request a task of its own, which outlives the connection. One that may take hours asks between its
//! steps whether it is still wanted.

mod anew;
pub(crate) mod place;
pub(crate) mod read;
pub(crate) mod real_zeros;
pub(crate) mod split;
pub(crate) mod walk;
pub(crate) mod write;
pub(crate) mod zero;

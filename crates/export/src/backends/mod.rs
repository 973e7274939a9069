//! Volumes without an engine: for benchmarks of the export alone, for tests and for fuzzing.

mod memory;
mod null;

pub use memory::Memory;
pub use null::Null;

use bimetal_volume::error::Error;

/// The range must lie inside `size` bytes.
fn check_range(offset: u64, len: u64, size: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::OutOfRange { offset, len, size }),
    }
}

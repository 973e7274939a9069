//! Writes this project's CSV.

use std::io::{self, Write};

use super::parse::csv::{letter, HEADER};
use super::Access;

/// Writes a header and the accesses, one per line, and returns how many there were. The caller buffers and compresses.
///
/// # Errors
/// Those of `out`.
pub fn write_csv(accesses: impl IntoIterator<Item = Access>, out: &mut impl Write) -> io::Result<u64> {
    writeln!(out, "{HEADER}")?;
    let mut count = 0;
    for access in accesses {
        writeln!(out, "{},{},{},{}", access.time_us, letter(access.op), access.offset, access.len)?;
        count += 1;
    }
    Ok(count)
}

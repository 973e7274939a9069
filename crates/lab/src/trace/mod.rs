//! Recorded or generated block I/O.

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Trim,
    /// Makes everything that was written durable.
    Flush,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Microseconds since the first request; never less than that of the one before.
    pub time_us: u64,
    /// What it does.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 only for [`Op::Flush`].
    pub len: u64,
}

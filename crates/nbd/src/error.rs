/// Why bytes are not what the protocol wants at this place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The frame does not begin with its magic number: the peer speaks something else, or the stream is out of step.
    #[error("{what}: magic number {found:#x} is not the one expected; the peer does not speak this protocol")]
    Magic {
        /// Which frame.
        what: &'static str,
        /// What was there.
        found: u64,
    },
    /// A part ends before what its own lengths promise.
    #[error("{what} is cut short")]
    Short {
        /// Which part.
        what: &'static str,
    },
    /// There are bytes behind the end of a part.
    #[error("{what} has {extra} bytes too many")]
    Trailing {
        /// Which part.
        what: &'static str,
        /// Bytes left over.
        extra: usize,
    },
    /// A length is beyond its limit.
    #[error("{what}: a length of {len} is beyond the limit of {max}")]
    TooLong {
        /// Which length.
        what: &'static str,
        /// What the peer said.
        len: u64,
        /// What is allowed.
        max: u64,
    },
    /// A string is not UTF-8 or holds a NUL.
    #[error("{what} is not a valid string")]
    Text {
        /// Which string.
        what: &'static str,
    },
    /// A value that the protocol forbids here.
    #[error("{what}: the value {found:#x} is not allowed here")]
    Value {
        /// Which field.
        what: &'static str,
        /// What was there.
        found: u64,
    },
}

//! What a start noticed that a person should know.

/// Something that was not as an orderly stop leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// What it is, and what follows from it.
    pub(crate) what: String,
    /// Data is lost or in doubt; otherwise a writable start mends it.
    pub(crate) serious: bool,
}

impl Finding {
    /// What a writable start mends, or what costs no data.
    pub(crate) fn mended(what: impl Into<String>) -> Finding {
        Finding { what: what.into(), serious: false }
    }

    /// What no start mends by itself.
    pub(crate) fn serious(what: impl Into<String>) -> Finding {
        Finding { what: what.into(), serious: true }
    }
}

//! Which errors are legal, given what was injected. An error is one of its request alone, unless a sync or a request for metadata
//! has failed (I7).

use bimetal_volume::error::Error;

use crate::world::Injected;

/// What a request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
}

/// Faults that there were by a moment of a session.
pub(super) struct Faults {
    /// When it began.
    pub(super) start: Injected,
    /// When the request was issued.
    pub(super) before: Injected,
    /// When it failed.
    pub(super) now: Injected,
    /// The group may have latched since.
    pub(super) latching: bool,
    /// What the request is about may be in doubt since a sync or a request for metadata failed (C11.1).
    pub(super) doubt: bool,
}

/// Whether a request may fail like this.
pub(super) fn legal(kind: Kind, error: &Error, faults: &Faults) -> bool {
    let Faults { start, before, now, latching, doubt } = faults;
    // While it was under way, what it read may have been lost.
    let lost = *doubt || now.grave() > before.grave();
    match (kind, error) {
        (
            _,
            Error::OutOfRange { .. }
            | Error::Deleted
            | Error::ReadOnly
            | Error::Frozen
            | Error::Locked
            | Error::Stopping,
        ) => false,
        // Slots in quarantine may use up the headroom (C2.2).
        (Kind::Write, Error::NoSpace) => now.writes > start.writes,
        (_, Error::NoSpace) => false,
        (Kind::Read, Error::Device { .. }) => now.reads > before.reads,
        (Kind::Write, Error::Device { .. }) => now != before,
        (Kind::Flush, Error::Device { .. }) => false,
        (Kind::Read | Kind::Write, Error::Lost) => lost,
        (Kind::Flush, Error::Lost) => false,
        (Kind::Read, Error::Latched(_)) => false,
        (Kind::Write | Kind::Flush, Error::Latched(_)) => *latching,
    }
}

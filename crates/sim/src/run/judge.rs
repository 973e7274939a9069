//! Which errors are legal, given what was injected.

use bimetal_volume::error::Error;

use crate::world::Injected;

/// What a request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
}

/// Whether a request may fail like this. `start`: injected when the session began; `before`: when the request was
/// issued; `now`: when it failed.
pub(super) fn legal(kind: Kind, error: &Error, start: Injected, before: Injected, now: Injected) -> bool {
    let any_since = |then: Injected| now != then;
    let latching = now.writes > start.writes || now.syncs > start.syncs || now.reads > start.reads;
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
        (Kind::Read, Error::Device { .. }) => any_since(before),
        (Kind::Read, Error::Lost) => latching,
        (Kind::Read, Error::Latched(_)) => false,
        (Kind::Write, Error::Device { .. } | Error::Lost) => any_since(before) || latching,
        (Kind::Flush, Error::Device { .. }) => latching,
        (Kind::Flush, Error::Lost) => false,
        (Kind::Write | Kind::Flush, Error::Latched(_)) => latching,
    }
}

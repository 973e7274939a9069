//! The control API's JSON, version 1. Fields are only ever added. The types of the engine are not serialisable on
//! purpose: what goes over the wire is decided here.

mod attach;
mod change;
mod check;
mod dissolve;
mod fates;
mod status;

use serde::{Deserialize, Serialize};

pub(crate) use self::attach::*;
pub(crate) use self::change::*;
pub(crate) use self::check::*;
pub(crate) use self::dissolve::*;
pub(crate) use self::fates::*;
pub(crate) use self::status::*;

/// Version of every JSON document of the API and of `--json`.
pub(crate) const SCHEMA: u32 = 1;

/// What the daemon says to a request that it does not know begins with this, and did in every version.
pub(crate) const NO_SUCH_PATH: &str = "no such path";
/// What a daemon says, and what follows it, of a request with a field that it does not know: versions since have it.
pub(crate) const NOT_UNDERSTOOD: &str = "the request is not understood";
pub(crate) const UNKNOWN_FIELD: &str = "the request is not understood: unknown field";

/// `POST /v1/stop`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StopRequest {
    /// Stop although attached devices are in use.
    #[serde(default)]
    pub(crate) force: bool,
}

/// Answer to `POST /v1/stop`: the stop has begun, or waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StopAccepted {
    pub(crate) schema: u32,
    /// The daemon's.
    pub(crate) process: Option<u32>,
    /// When that began, in the kernel's ticks since the boot: another one may be given its number.
    #[serde(default)]
    pub(crate) began: Option<u64>,
    /// Who uses an attached device or the file of a volume; the daemon goes on serving until they are gone.
    pub(crate) waits_for: Vec<String>,
}

/// Any failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) schema: u32,
    pub(crate) error: String,
}

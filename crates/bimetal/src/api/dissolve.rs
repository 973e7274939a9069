//! A volume becomes a plain disk or file again: `POST /v1/dissolve`.

use serde::{Deserialize, Serialize};

/// `POST /v1/dissolve`: a volume is to be copied onto a plain device; what is under way is gone on with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DissolveRequest {
    pub(crate) volume: String,
    /// Of the volume that is meant: its name may have become another's.
    #[serde(default)]
    pub(crate) volume_uuid: Option<String>,
    /// Where to; as a member would be named.
    #[serde(default)]
    pub(crate) onto: String,
    /// Although it is a member of another group.
    #[serde(default)]
    pub(crate) force: bool,
    /// End the run under way instead.
    #[serde(default)]
    pub(crate) cancel: bool,
}

/// How far such a copy is, and the answer to the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dissolving {
    /// No other run of this daemon has this number.
    pub(crate) run: u64,
    pub(crate) volume: String,
    pub(crate) volume_uuid: String,
    pub(crate) onto: String,
    /// `copying`, `checking`, `waiting`, `finishing`; at the end `done`, `failed`, `cancelled`.
    pub(crate) phase: String,
    /// What this phase has been over, and has to go over.
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Not known to be equal on both.
    pub(crate) unsure_bytes: u64,
    /// Who uses the volume, while that keeps the end waiting.
    pub(crate) waits_for: Option<String>,
    pub(crate) error: Option<String>,
}

impl Dissolving {
    /// Whether it has not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self.phase.as_str(), "done" | "failed" | "cancelled")
    }
}

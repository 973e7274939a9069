//! What the mover may do next, and the words for it.

use std::time::Duration;

/// The two kinds of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// To the slow tier.
    Demote,
    /// To the fast tier.
    Promote,
}

/// What the mover may do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Demotions that may be begun now, besides those on the way.
    pub demote: usize,
    /// Promotions that may be begun now, besides those on the way.
    pub promote: usize,
    /// Chunks with a kept copy that may be let go now, besides.
    pub let_go: usize,
    /// What is being done, in plain words.
    pub doing: String,
    /// Why, in plain words.
    pub why: String,
    /// Ask again after this time at the latest (10 ms or more), or when a move ended, free slots fell below the
    /// reserve, or a candidate was found while there was none.
    pub next_check: Duration,
}

impl Plan {
    /// Nothing is begun before this time has passed.
    pub(super) fn nothing(doing: &str, why: String, next_check: Duration) -> Plan {
        Plan { demote: 0, promote: 0, let_go: 0, doing: doing.into(), why, next_check }
    }
}

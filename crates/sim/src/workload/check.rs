//! Checks of a group in use, mixed into a random scenario.

use crate::prng::Prng;
use crate::scenario::{Act, Scenario, Step};

/// Adds checks, by a client of their own, to all sessions.
pub(crate) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    for session in &mut s.sessions {
        let client = session.steps.iter().map(|t| t.client).max().unwrap_or(0) + 1;
        for _ in 0..p.range(1, 4) {
            let step = Step { client, volume: 0, act: Act::Check { mend: p.coin() }, offset: 0, len: 0 };
            let pause = Step { act: Act::Sleep, len: p.skewed(400_000), ..step };
            session.steps.extend([pause, step]);
        }
    }
}

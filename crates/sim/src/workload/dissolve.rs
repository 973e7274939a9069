//! Volumes that are copied onto a device, mixed into a random scenario.

use crate::prng::Prng;
use crate::scenario::{Act, Scenario, Step};

/// Adds copies of volumes, by a client of their own, to some sessions.
pub(crate) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    let volumes = s.volumes.len() as u64;
    for session in &mut s.sessions {
        let client = session.steps.iter().map(|t| t.client).max().unwrap_or(0) + 1;
        for _ in 0..p.below(3) {
            let volume = p.below(volumes) as usize;
            // Some are given up.
            let len = if p.below(3) == 0 { p.skewed(60_000) } else { 0 };
            let step = Step { client, volume, act: Act::Dissolve, offset: 0, len };
            let pause = Step { act: Act::Sleep, len: p.skewed(400_000), ..step };
            session.steps.extend([pause, step]);
        }
    }
}

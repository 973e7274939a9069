//! Clients that die while a request of theirs waits, mixed into a random scenario: the next one writes to the same place.

use bimetal_volume::units::CHUNK;

use crate::prng::Prng;
use crate::scenario::{Act, Asked, Scenario, Step};

/// Longest time that one waits for an answer, in microseconds.
const PATIENCE: u64 = 30_000;

/// Makes of some of the changes those of clients that die.
pub(crate) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    for session in &mut s.sessions {
        let mut steps = Vec::with_capacity(session.steps.len());
        for step in session.steps.drain(..) {
            let change = matches!(step.act, Act::Write { .. } | Act::Trim { .. } | Act::Zeroes { .. });
            match change && p.chance(200_000) {
                true => steps.extend(two_clients(step, p)),
                false => steps.push(step),
            }
        }
        session.steps = steps;
    }
}

/// One client asks for a change and dies, the next one changes a part of the same range.
fn two_clients(step: Step, p: &mut Prng) -> Vec<Step> {
    let asked = p.pick(&Asked::ALL).0;
    // It ends with the chunk that the step begins in, which is one of its volume.
    let end = (step.offset / CHUNK + 1) * CHUNK;
    let offset = end.saturating_sub(p.range(1, 6) * CHUNK);
    let len = end - offset;
    let dying = Step { act: Act::Dying { change: asked, after: p.skewed(PATIENCE) }, offset, len, ..step };
    let next = Step { act: Act::Write { fua: p.coin() }, offset: end - p.range(1, 32) * 4096, len: 4096, ..step };
    let flush = Step { act: Act::Flush, offset: 0, len: 0, ..step };
    let wait = Step { act: Act::Sleep, offset: 0, len: p.skewed(400_000), ..step };
    let read = Step { act: Act::Read, ..dying };
    vec![dying, next, flush, wait, read]
}

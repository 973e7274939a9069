//! Clients die while what they asked for waits behind a write to the slow tier; the next one changes what it has not reached yet.

use bimetal_volume::units::CHUNK;

use super::{directed, fill, flush, group, sleep, step, Directed, FUA};
use crate::scenario::{Act, Asked, Step};

/// Chunks that the dead client's request goes over.
const LONG: u64 = 4;

fn dies(name: &'static str, asked: Asked) -> Directed {
    let mut steps = Vec::new();
    for i in 0..10 {
        let (first, last) = (i * 7 % 20 * CHUNK, (i * 7 % 20 + LONG - 1) * CHUNK);
        let dying = Act::Dying { change: asked, after: 150 };
        let behind = Step { client: 1, ..step(1, FUA, first, 4096) };
        steps.extend([behind, sleep(1, 60)]);
        steps.extend([step(0, Act::Sleep, 0, 20), step(0, dying, first, LONG * CHUNK)]);
        steps.extend([
            step(0, FUA, last + 8192, 8192),
            sleep(0, 40),
            step(0, Act::Read, first, LONG * CHUNK),
            sleep(0, 20),
        ]);
    }
    steps.push(flush());
    directed(name, group(12, 24, 30), vec![fill(0, 24), flush(), sleep(0, 4000)], steps, false)
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        dies("a client dies in a write", Asked::Write).finds(&["WriteOfTheGone"]),
        dies("a client dies in a TRIM", Asked::Trim).finds(&["TrimOfTheGone"]),
        dies("a client dies in a zeroing", Asked::Zeroes).finds(&["TrimOfTheGone"]),
    ]
}

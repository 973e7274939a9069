//! Whole chunks of the slow tier that are written anew on the fast one, while others read, write and trim them; with
//! crashes in between, with writes that fail, and where all room is promised to others.

use bimetal_volume::units::CHUNK;

use super::{directed, fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Act, End, Scenario};
use crate::world::CrashPoint;

/// Chunks that are on the slow tier when there is room on the fast one again.
const SLOW: std::ops::Range<u64> = 41..62;

/// Much of the volume is on the slow tier.
fn filled() -> Scenario {
    let mut s = group(40, 80, 90);
    (s.commit_ms, s.journal) = (1000, 64);
    let session = s.quiet_session(vec![fill(0, 64), sleep(0, 3000)], End::Stop);
    s.sessions.push(session);
    s
}

/// Makes room, then replaces chunks one or several at a time while others use them.
fn steps() -> Vec<crate::scenario::Step> {
    let room = [step(0, TRIM, 0, 30 * CHUNK), flush(), sleep(0, 2500), sleep(1, 2500), sleep(2, 2500)];
    let mut steps = room.to_vec();
    for (i, c) in SLOW.step_by(2).enumerate() {
        let (at, i) = (c * CHUNK, i as u64);
        steps.push(step(0, if i % 4 == 3 { FUA } else { WRITE }, at, (1 + i % 2) * CHUNK));
        steps.extend([step(0, WRITE, at, CHUNK), step(0, Act::Read, at, 2 * CHUNK)]);
        steps.extend((0..3).map(|k| step(1, WRITE, at + k * 20_480, 4096 + k * 512)));
        steps.extend([step(1, Act::Read, at, 2 * CHUNK), step(1, WRITE, at + CHUNK, CHUNK)]);
        steps.extend([step(2, Act::Read, at, CHUNK), step(2, TRIM, at + 8192, 65_536)]);
        steps.push(step(2, if i % 3 == 0 { TRIM } else { WRITE }, at + CHUNK, CHUNK));
        if i % 3 == 2 {
            steps.push(flush());
        }
    }
    steps.extend([flush(), step(0, Act::Read, 40 * CHUNK, 24 * CHUNK)]);
    steps
}

/// A crash at each point.
pub(super) fn written() -> Directed {
    directed("written anew", filled(), vec![], steps(), false)
}

/// Writes fail, some of them landing late; in the end the power fails.
pub(super) fn failing() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..filled() };
        let steps = steps();
        let end = End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 });
        let mut session = s.quiet_session(steps, end);
        // Often both where it was to go and where it was.
        let faults = Faults { write_ppm: 500_000, late: n % 2 == 0, limit: 30, data_only: true, ..Faults::default() };
        session.faults = vec![faults, Faults { write_ppm: 200_000, ..faults }];
        s.sessions.push(session);
        s
    };
    Directed::chain("written anew, and the writes fail", make, 200)
}

/// Volumes that were promised every slot but the headroom, and long writes of chunks that have a home and chunks that have none:
/// one waits for a chunk that somebody uses slowly, the others take what is free meanwhile. All of them must end.
pub(super) fn full() -> Directed {
    let make = |n: u64| {
        let mut s = group(40, 80, 105);
        (s.seed, s.commit_ms, s.journal) = (n + 1, 1000, 64);
        let session = s.quiet_session(vec![fill(0, 105), sleep(0, 3000)], End::Stop);
        s.sessions.push(session);
        let (first, last) = (60, 84);
        let mut steps = vec![step(0, TRIM, 0, 34 * CHUNK), step(0, TRIM, last * CHUNK, CHUNK), flush()];
        steps.extend((0..3).map(|client| sleep(client, 4000)));
        // The last but one is busy.
        steps.extend((0..8).map(|k| step(1, WRITE, (last - 1) * CHUNK + k * 8192, 4096)));
        steps.extend([sleep(0, n % 5), sleep(2, n / 5 % 8)]);
        steps.push(step(0, WRITE, first * CHUNK, (last + 1 - first) * CHUNK));
        steps.push(step(2, WRITE, 0, 34 * CHUNK));
        steps.push(step(0, Act::Read, first * CHUNK, (last + 1 - first) * CHUNK));
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("written anew, and all room is promised", make, 80)
}

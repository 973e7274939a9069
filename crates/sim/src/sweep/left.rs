//! A member leaves, is not there at the next start, and is opened alone when the group has been used without it.

use bimetal_volume::units::{Placement, CHUNK};

use super::members::{evacuate, two_each};
use super::{fill, flush, hot, sleep, step, Directed, FUA, TRIM};
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, Scenario};
use crate::world::CrashPoint;

/// More events than a start takes.
const WHOLE: u64 = 400;

/// The group is used without a disk, and written all over.
fn used_without(s: &mut Scenario, disk: usize, events: u64, stop: bool) {
    let chunks = s.volumes[0].chunks;
    let mut steps = vec![step(0, TRIM, CHUNK, CHUNK), fill(0, chunks), flush(), step(0, FUA, 2 * CHUNK, 8192)];
    steps.push(step(0, Act::Read, 0, chunks * CHUNK));
    let end = match stop {
        true => End::Stop,
        false => End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 }),
    };
    let mut session = s.quiet_session(steps, end);
    session.damage = Some(Damage::Gone(disk, events));
    s.sessions.push(session);
}

/// Nothing is on it, and the power goes while the labels are told that it leaves: its own may say nothing of it.
fn told_to_some() -> Directed {
    let make = |n: u64| {
        let (disk, placement) = [(0, Placement::SlowOnly), (2, Placement::FastOnly)][(n % 2) as usize];
        let mut s = Scenario { seed: n + 1, migrate: n / 2 % 2 == 0, ..two_each() };
        (s.volumes[0].chunks, s.volumes[0].placement) = (6, placement);
        let session = s.quiet_session(vec![fill(0, 2), flush()], End::Stop);
        s.sessions.push(session);
        let keep = step(0, Act::Keep { disk }, 0, 0);
        let steps = vec![step(0, FUA, 0, 4096), evacuate(disk), step(0, FUA, 8192, 4096), keep, flush()];
        let point = CrashPoint { steps: 1 + n / 4 % 3, events: n / 12 };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
        s.sessions.push(session);
        used_without(&mut s, disk, WHOLE, n % 3 == 0);
        s
    };
    Directed::chain("leaving known to some, then alone", make, 12 * 30).finds(&["LeavingToldLast"])
}

/// It is emptied, and may have copies of what the SSDs have; the start without it is cut off, or is not.
fn emptied() -> Directed {
    let make = |n: u64| {
        let disk = [0, 2, 3][(n % 3) as usize];
        let mut s = Scenario { seed: n + 1, ..two_each() };
        let mut steps = vec![fill(0, 28), sleep(0, 3000)];
        steps.extend(hot(3));
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        let steps = vec![evacuate(disk), step(1, FUA, 3 * CHUNK, 8192), sleep(0, 3000 + n / 6 % 4 * 2000), flush()];
        let end = match n % 2 {
            0 => End::Stop,
            _ => End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: n % 30 }),
        };
        let session = s.quiet_session(steps, end);
        s.sessions.push(session);
        let events = if n % 5 == 0 { n * 7 % WHOLE } else { WHOLE };
        used_without(&mut s, disk, events, n / 3 % 2 == 0);
        s
    };
    Directed::chain("emptied and gone, then alone", make, 240)
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![told_to_some(), emptied()]
}

//! Somebody copies a member while the group is in use, and puts the copy in its place later; and starts that are cut off again and
//! again, which must not look as if members had been used apart.

use bimetal_volume::units::{Tier, CHUNK};

use super::{directed, fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Step};
use crate::world::CrashPoint;

/// More crash points than a start of a small group has.
const WHOLE: u64 = 220;

/// Copies, and then all that a copy can be wrong in: chunks that are written in place, and slots that go to other chunks.
fn changed_after_copies(in_place: bool) -> Vec<Step> {
    let copy = step(0, Act::Copy, 0, 0);
    let mut steps = vec![fill(0, 18), flush(), sleep(0, 4000), copy];
    let written = |i: u64| step(0, FUA, i * CHUNK + 4096, 8192);
    steps.extend((0..18).map(written));
    if !in_place {
        steps.extend((0..8).map(|i| step(0, TRIM, i * CHUNK, CHUNK)));
        steps.extend([flush(), sleep(0, 4000), fill(20, 8), flush(), sleep(0, 4000)]);
    }
    steps
}

/// The session ended in order; then a start is cut off, or not.
fn stopped() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 30) };
        let session = s.quiet_session(changed_after_copies(n % 4 < 2), End::Stop);
        s.sessions.push(session);
        if n >= 4 {
            let point = CrashPoint { steps: 0, events: n - 4 };
            let session = s.quiet_session(Vec::new(), End::Crash(Crash::Power, point));
            s.sessions.push(session);
        }
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Midst((n % 2) as usize, false));
        s.sessions.push(session);
        s
    };
    Directed::chain("copied in use, then stopped", make, 70).finds(&["C4StartForgetsStop"])
}

/// The power went: only the slow member can tell that the copy of the fast one is older.
fn crashed() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 30) };
        let mut steps = changed_after_copies(false);
        steps.push(step(0, WRITE, 29 * CHUNK, CHUNK));
        let point = CrashPoint { steps: steps.len() as u64 - n % 2, events: n };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Midst(0, true));
        s.sessions.push(session);
        s
    };
    Directed::chain("copied in use, then crashed", make, 12)
}

/// One SSD is of a copy, and the journal of the other one rots in the middle: what it says behind that tells that the first is old.
fn beside_a_gap() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, journal: 48, ..group(12, 24, 30) };
        s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 8, discard: true });
        let mut steps = vec![fill(0, 14), flush(), sleep(0, 4000), step(0, Act::Copy, 0, 0)];
        let change = |i: u64| [step(0, TRIM, i * CHUNK, CHUNK), step(0, FUA, (20 + i) * CHUNK, CHUNK)];
        steps.extend((0..2 + n % 5).flat_map(change));
        let point = CrashPoint { steps: steps.len() as u64, events: n };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK)], End::Stop);
        session.damage = Some(Damage::MidstBesideGap((n % 2) as usize));
        s.sessions.push(session);
        s
    };
    Directed::chain("old copy beside a gap", make, 80).finds(&["C6GapHidesNewer"])
}

/// The disk was copied during the start of a session that crashed.
fn copied_in_a_start() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 30) };
        let copy = step(0, Act::Copy, 0, 2_000 + n * 1_500);
        let session = s.quiet_session(vec![fill(0, 18), flush(), sleep(0, 4000), copy], End::Stop);
        s.sessions.push(session);
        let mut steps: Vec<Step> = (0..18).map(|i| step(0, FUA, i * CHUNK + 4096, 8192)).collect();
        steps.extend([fill(20, 8), flush(), sleep(0, 100), step(0, WRITE, 29 * CHUNK, CHUNK)]);
        let point = CrashPoint { steps: steps.len() as u64, events: n % 8 };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK)], End::Stop);
        session.damage = Some(Damage::AtStart(1));
        s.sessions.push(session);
        s
    };
    Directed::chain("copied in a start, then crashed", make, 120).finds(&["C4CopyOfStartAccepted"])
}

/// The only SSD was copied during the start of a session that crashed when nobody else had heard of its only commit.
fn ssd_copied_in_a_start() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, commit_ms: 5000, ..group(12, 24, 30) };
        let copy = step(0, Act::Copy, 0, 2_000 + n * 1_500);
        let session = s.quiet_session(vec![fill(0, 18), flush(), sleep(0, 4000), copy], End::Stop);
        s.sessions.push(session);
        let point = CrashPoint { steps: 1 + n % 2, events: n % 3 };
        let steps = vec![step(0, FUA, 25 * CHUNK, 8192), step(0, WRITE, 3 * CHUNK, 4096)];
        let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK)], End::Stop);
        session.damage = Some(Damage::AtStart(0));
        s.sessions.push(session);
        s
    };
    Directed::chain("SSD copied in a start, then crashed", make, 200).finds(&["C4ConfirmsInAnyOrder"])
}

/// A service that is started again and again while one member takes no writes, or the power goes each time.
fn starts() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 30) };
        let steps = vec![fill(0, 18), flush(), step(0, FUA, 4096, 8192)];
        let point = CrashPoint { steps: steps.len() as u64, events: n };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Starts(WHOLE, if n % 2 == 0 { 16 + n / 2 % 40 } else { n }));
        s.sessions.push(session);
        s
    };
    Directed::chain("starts cut off again and again", make, 110).finds(&["C4HistoryForgets"])
}

/// The stop is cut off while it says so on one member after another.
fn stopping() -> Directed {
    let prepare = vec![fill(0, 12), flush()];
    directed("a stop is cut off", group(12, 24, 30), prepare, vec![step(0, FUA, 4096, 8192)], true)
        .then(Damage::Midst(1, false))
}

/// A member goes on with a new device, the others without it, and all are put together again.
fn used_apart() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(40, 40, 6) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 40, discard: true });
        let end = match n % 2 {
            0 => End::Stop,
            _ => End::Crash(Crash::Power, CrashPoint { steps: 2, events: n }),
        };
        let session = s.quiet_session(vec![fill(0, 6), flush()], end);
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 6 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Halves((n / 2 % 3) as usize));
        s.sessions.push(session);
        s
    };
    Directed::chain("used apart", make, 60).finds(&["C4NumbersDecide"])
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        stopped(),
        crashed(),
        beside_a_gap(),
        copied_in_a_start(),
        ssd_copied_in_a_start(),
        starts(),
        stopping(),
        used_apart(),
    ]
}

//! Kept copies (C9) and lifts: a promoted chunk is written in place, dropped for room, goes down uncopied; and crashes
//! in between. What matters shows only when such a chunk goes down later, so that the sessions after the crash press it
//! out.

use bimetal_volume::units::{Tier, CHUNK};

use super::{directed, fill, flush, group, hot, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Step};
use crate::world::CrashPoint;

/// Crash points of the sessions that are cut.
const POINTS: u64 = 160;

/// The chunks that `hot` promotes.
const HOT: u64 = 22;

/// Some of the volume is on the slow tier, and two chunks of it come up.
fn promoted(seed: u64) -> Scenario {
    let mut s = group(12, 40, 34);
    (s.seed, s.commit_ms) = (seed, 60_000);
    let session = s.quiet_session(vec![fill(0, 24), sleep(0, 3000)], End::Stop);
    s.sessions.push(session);
    s
}

/// New data that fill the fast tier, twice, and time to make room.
fn pressed() -> Vec<Step> {
    let heat = Act::Heat { times: 4 };
    let cool = step(0, heat, 0, 8 * CHUNK);
    vec![step(0, Act::Read, 0, 34 * CHUNK), cool, fill(24, 10), sleep(0, 4000), cool, sleep(0, 4000)]
}

fn crash(s: &mut Scenario, steps: Vec<Step>, n: u64) {
    let kind = if n % 3 == 0 { Crash::Daemon } else { Crash::Power };
    let after = steps.len().saturating_sub(3) as u64;
    let session = s.quiet_session(steps, End::Crash(kind, CrashPoint { steps: after, events: n % POINTS }));
    s.sessions.push(session);
}

fn chain(name: &'static str, make: fn(u64) -> Scenario) -> Directed {
    Directed::chain(name, make, 4 * POINTS)
}

/// A chunk with a kept copy is written in place, perhaps flushed; the crash comes around that. Then it goes down.
pub(super) fn written() -> Directed {
    let make = |n: u64| {
        let mut s = promoted(n + 1);
        let mut steps = hot(4);
        steps.push(flush());
        let act = if n % 2 == 0 { WRITE } else { FUA };
        steps.extend([step(0, act, HOT * CHUNK, 4096), step(0, WRITE, (HOT + 1) * CHUNK, 8192), flush()]);
        crash(&mut s, steps, n / 2);
        let session = s.quiet_session(pressed(), End::Stop);
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 34 * CHUNK)], End::Stop);
        s.sessions.push(session);
        s
    };
    chain("kept copy written", make)
}

/// A crash, a start that goes well, an orderly stop: what was kept before the crash must stay forgotten.
pub(super) fn forgotten() -> Directed {
    let make = |n: u64| {
        let mut s = promoted(n + 1);
        let mut steps = hot(4);
        steps.extend([
            flush(),
            step(0, WRITE, HOT * CHUNK, 4096),
            step(0, WRITE, (HOT + 1) * CHUNK, 4096),
            sleep(0, 1),
        ]);
        crash(&mut s, steps, n);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 34 * CHUNK)], End::Stop);
        s.sessions.push(session);
        let mut session = s.quiet_session(pressed(), End::Stop);
        session.damage = Some(Damage::Alone);
        s.sessions.push(session);
        s
    };
    chain("kept copy forgotten", make)
}

/// One of two SSDs is gone after a crash: what the disk still has of its chunks may be old, and is never another's.
pub(super) fn one_ssd_gone() -> Directed {
    let make = |n: u64| {
        let mut s = group(8, 40, 34);
        s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 8, discard: true });
        (s.seed, s.commit_ms) = (n + 1, 500);
        let session = s.quiet_session(vec![fill(0, 24), sleep(0, 3000)], End::Stop);
        s.sessions.push(session);
        let mut steps = hot(4);
        steps.extend([flush(), step(0, if n % 4 < 2 { WRITE } else { FUA }, HOT * CHUNK, 4096)]);
        steps.extend([step(0, TRIM, 4 * CHUNK, 2 * CHUNK), flush(), fill(24, 6), flush(), sleep(0, 600)]);
        crash(&mut s, steps, n / 2);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 34 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Missing((n % 2) as usize));
        s.sessions.push(session);
        s
    };
    chain("kept copies, one of two SSDs gone", make)
}

/// Everything that goes down does so uncopied, with writes and TRIMs in the middle of it.
pub(super) fn uncopied() -> Directed {
    let mut steps = hot(4);
    steps.extend([flush(), fill(24, 10), sleep(0, 600)]);
    for i in 0..8 {
        let at = (HOT + i % 2) * CHUNK;
        steps.extend([
            step(1, if i % 3 == 2 { TRIM } else { WRITE }, at + i * 4096, 4096),
            Step { len: 900, ..sleep(1, 0) },
        ]);
    }
    let mut s = group(12, 40, 34);
    s.commit_ms = 1000;
    directed("demoted uncopied", s, vec![fill(0, 24), sleep(0, 3000)], steps, false)
}

/// Slow slots become scarce while copies are kept.
pub(super) fn dropped() -> Directed {
    let mut s = group(16, 24, 34);
    s.commit_ms = 500;
    let mut steps = hot(4);
    steps.extend([flush(), fill(24, 10), sleep(0, 3000), fill(0, 4), step(0, TRIM, 30 * CHUNK, 2 * CHUNK)]);
    steps.extend([fill(26, 8), flush()]);
    directed("kept copies dropped", s, vec![fill(0, 24), sleep(0, 3000)], steps, false)
}

/// A client reads whole chunks that are lifted for that, and another writes into them at about that time.
pub(super) fn lifted() -> Directed {
    let mut s = group(40, 80, 90);
    (s.commit_ms, s.journal) = (1000, 64);
    let mut steps = vec![step(0, TRIM, 0, 30 * CHUNK), flush(), sleep(0, 3500), sleep(1, 3500)];
    for c in (41..62).map(|c| c * CHUNK) {
        // The second visit makes it wanted.
        steps.extend([step(0, Act::Read, c, CHUNK), sleep(0, 250), step(0, Act::Read, c, CHUNK)]);
        steps.push(sleep(1, 210));
        steps.extend((0..6).map(|i| step(1, WRITE, c + i * 20_480, 4096)));
    }
    steps.extend([flush(), step(0, Act::Read, 40 * CHUNK, 24 * CHUNK)]);
    directed("lifted and written", s, vec![fill(0, 64), sleep(0, 3000)], steps, false).finds(&["C3LiftBegunLate"])
}

/// New data in small writes take what is free; cold chunks are let go for more of them, some of which are written meanwhile.
pub(super) fn let_go() -> Directed {
    let mut s = group(96, 240, 220);
    (s.reserve, s.commit_ms, s.journal) = (24, 1000, 64);
    let visit = |c: u64| step(0, Act::Read, c * CHUNK, 4096);
    let mut prepare = vec![fill(0, 150), sleep(0, 15_000), step(0, TRIM, 0, 60 * CHUNK), flush(), sleep(0, 3000)];
    // One visit brings them up while there is plenty of room. What was there before is used more.
    prepare.extend((0..26).map(|i| visit(100 + i * 7 % 26)));
    prepare.extend([
        sleep(0, 4000),
        step(0, Act::Heat { times: 6 }, 60 * CHUNK, 40 * CHUNK),
        fill(150, 40),
        sleep(0, 6000),
    ]);
    let mut steps = Vec::new();
    for i in 0..40 {
        steps.push(step(0, WRITE, i * 7 % 40 * CHUNK + i % 4 * 4096, 4096));
        steps.push(sleep(0, 4));
        if i % 4 == 1 {
            steps.push(step(1, WRITE, (100 + i * 3 % 26) * CHUNK, 8192));
            steps.push(sleep(1, 20));
        }
    }
    steps.extend([flush(), sleep(0, 300), step(0, Act::Read, 0, 150 * CHUNK)]);
    directed("let go for new data", s, prepare, steps, false)
}

/// The rest of a group that is nearly full is written in one request, whose chunks are more than may be pending: the last of them
/// get the slots of kept copies.
pub(super) fn room_for_drops() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, records: 4, reserve: n % 2, ..group(12, 24, 32) };
        let mut steps = vec![fill(0, 22), sleep(0, 3000)];
        let heat = Act::Heat { times: 3 };
        for i in 0..30 {
            steps.extend([step(0, heat, (20 - 2 * (i / 5) - n % 3) * CHUNK, 2 * CHUNK), sleep(0, 700)]);
        }
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        let steps = vec![step(0, WRITE, 22 * CHUNK, 10 * CHUNK), flush(), step(0, Act::Read, 20 * CHUNK, 12 * CHUNK)];
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("room for drops", make, 40)
}

/// The slow member alone after a crash: it must not serve what it kept.
pub(super) fn alone() -> Directed {
    let prepare = [vec![fill(0, 30), sleep(0, 12_000)], hot(5), vec![sleep(0, 4000)]].concat();
    let steps =
        vec![step(0, WRITE, HOT * CHUNK, CHUNK), step(0, FUA, (HOT + 1) * CHUNK, CHUNK), flush(), sleep(0, 500)];
    let mut s = group(12, 40, 34);
    s.commit_ms = 60_000;
    directed("kept and alone", s, prepare, steps, false).then(Damage::Alone).finds(&["C9ServedAlone"])
}

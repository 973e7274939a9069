//! All fast members are gone after a crash, and several slow ones are left (C8): each knows its own slots, and nothing else that it
//! says counts.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::degraded::{cut_after, data, mixed};
use super::{directed, fill, flush, group, hot, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Step};
use crate::world::CrashPoint;

/// One fast member and three slow ones.
fn three_slow(fast: u64, slow: u64, chunks: u64) -> Scenario {
    let mut s = group(fast, slow, chunks);
    let more = || MemberSpec { tier: Tier::Slow, slots: slow, discard: true };
    s.members.extend([more(), more()]);
    s
}

/// At any moment: what each has heard of may be behind what another has.
fn at_any_moment() -> Directed {
    directed("slow members alone", three_slow(12, 14, 40), data(), mixed(), false).then(Damage::NoFast)
}

/// Long after the last change everything that lives on any of them is served.
fn told_long_ago() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..three_slow(12, 14, 40) };
        let session = s.quiet_session(data(), End::Stop);
        s.sessions.push(session);
        let mut steps = mixed();
        // Chunks come down again, to whichever member has room, and go from one slot to another.
        let again =
            |i: u64| [step(0, TRIM, (i * 7 + n) % 24 * CHUNK, CHUNK), step(0, WRITE, (i * 7 + n) % 24 * CHUNK, CHUNK)];
        steps.extend((0..6).flat_map(again).chain([flush(), sleep(0, 4000)]));
        steps.extend(hot(2).into_iter().chain([fill(30, 6), flush(), sleep(0, 25_000)]));
        steps.push(step(0, FUA, 38 * CHUNK, 4096));
        cut_after(s, steps, CrashPoint { steps: 0, events: n % 9 }, Damage::Alone)
    };
    Directed::chain("slow members alone, told long ago", make, 60).finds(&["C8OneBelieved"])
}

/// All is on the slow members.
fn slow_only() -> Scenario {
    let mut s = Scenario { commit_ms: 50, ..three_slow(12, 8, 19) };
    s.volumes[0].placement = Placement::SlowOnly;
    s
}

/// A chunk goes, and its slot is another's when all have heard of that.
fn given_away(i: u64) -> [Step; 5] {
    let (old, new) = (i % 19, (i + 7) % 19);
    [step(0, TRIM, old * CHUNK, CHUNK), flush(), sleep(0, 3500), step(0, WRITE, new * CHUNK, CHUNK), flush()]
}

/// Slots of all three go from chunk to chunk.
fn slots_of_others() -> Directed {
    let steps = (0..16).flat_map(given_away).collect();
    let prepare = vec![fill(0, 12), flush()];
    directed("slots of others, slow members alone", slow_only(), prepare, steps, false).then(Damage::NoFast)
}

/// One of two has lost its map: what the other says of its slots may be of chunks that left them long ago. There is hardly room, so
/// that a slot is used again at once.
fn slots_of_one_that_knows_nothing() -> Directed {
    let mut s = Scenario { commit_ms: 50, ..group(12, 8, 14) };
    s.members.push(MemberSpec { tier: Tier::Slow, slots: 8, discard: true });
    s.volumes[0].placement = Placement::SlowOnly;
    let exchange = |i: u64| {
        let (old, new) = (i % 14, (i + 13) % 14);
        [step(0, TRIM, old * CHUNK, CHUNK), flush(), sleep(0, 3500), step(0, WRITE, new * CHUNK, CHUNK), flush()]
    };
    let (steps, prepare) = ((0..14).flat_map(exchange).collect(), vec![fill(0, 13), flush()]);
    directed("slots of others, one slow member without pages", s, prepare, steps, false)
        .then(Damage::NoFastNorPages(1))
        .finds(&["C8UnclaimedServed"])
}

/// One of them gives its chunks to the others, beside writes to these.
fn one_is_leaving() -> Directed {
    let s = three_slow(10, 20, 30);
    let mut steps = vec![sleep(0, 3), step(0, Act::Evacuate { disk: 1 }, 0, 0)];
    steps.extend((0..30).flat_map(|i| [step(1, FUA, i * 7 % 28 * CHUNK, 8192), sleep(1, 150)]));
    steps.extend([step(0, Act::Remove { disk: 1 }, 0, 0), fill(16, 4), flush(), sleep(0, 4000)]);
    let prepare: Vec<Step> = vec![fill(0, 28), sleep(0, 3000), flush()];
    directed("slow member leaves, slow members alone", s, prepare, steps, false).then(Damage::NoFast)
}

/// A chunk leaves, the power goes before its disk hears of that, and the page rots there: the next start gives the slot away, and tells
/// that disk nothing. Another one has the page as it was.
fn rotten_before_it_heard() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, commit_ms: 50, journal: 64, ..group(12, 8, 14) };
        s.members[1].discard = false;
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 8, discard: false });
        s.volumes[0].placement = Placement::SlowOnly;
        let session = s.quiet_session(vec![fill(0, 10), flush()], End::Stop);
        s.sessions.push(session);
        let end = |steps: usize| End::Crash(Crash::Power, CrashPoint { steps: steps as u64, events: 0 });
        let leave: Vec<Step> = (0..4).map(|i| step(0, TRIM, (n + i) % 10 * CHUNK, CHUNK)).chain([flush()]).collect();
        let ends = end(leave.len());
        let session = s.quiet_session(leave, ends);
        s.sessions.push(session);
        // Others come, and leave again, so that nobody claims the slots.
        let come =
            [fill(10, 4), flush(), sleep(0, 4000), step(0, TRIM, 10 * CHUNK, 4 * CHUNK), flush(), sleep(0, 15_000)];
        let steps: Vec<Step> = (0..1 + n as usize % 2).flat_map(|_| come).collect();
        let ends = end(steps.len());
        let mut session = s.quiet_session(steps, ends);
        session.damage = Some(Damage::Decay(1 + n as usize / 2 % 2));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 14 * CHUNK)], End::Stop);
        session.damage = Some(Damage::NoFast);
        s.sessions.push(session);
        s
    };
    Directed::chain("page rotten before it heard, slow members alone", make, 80).finds(&["C8PageLent"])
}

/// Chunks are written while their move to a disk is prepared there, which then stands still.
fn target_stands_still() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, commit_ms: 50, ..group(12, 20, 10) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 20, discard: true });
        s.volumes[0].placement = Placement::SlowOnly;
        let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps = vec![step(0, Act::Evacuate { disk: 2 }, 0, 0)];
        steps.extend((0..40).flat_map(|i| [step(1, FUA, i % 8 * CHUNK, 8192), sleep(1, 100)]));
        steps.push(sleep(0, 40_000));
        let point = CrashPoint { steps: steps.len() as u64, events: 0 };
        let mut session = s.quiet_session(steps, End::Crash(Crash::Power, point));
        session.faults[1] = Faults { stands_after: 5 + n as u32 % 80, ..Faults::default() };
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 10 * CHUNK)], End::Stop);
        session.damage = Some(Damage::NoFast);
        s.sessions.push(session);
        s
    };
    Directed::chain("target stands still, slow members alone", make, 800).finds(&["C8PreparedIsNewer"])
}

/// One region of the map after the other gets its first chunk, others lose theirs, and none has its away bit before: each is made durable
/// before the first record of its region.
fn one_region_after_the_other() -> Directed {
    /// Chunks of a region.
    const REGION: u64 = 252;
    let mut s = Scenario { ahead: 1, commit_ms: 50, journal: 64, ..group(12, 2200, 8 * REGION) };
    s.members.push(MemberSpec { tier: Tier::Slow, slots: 40, discard: true });
    let prepare = vec![step(0, FUA, 4096, 8192), step(0, FUA, REGION * CHUNK, 8192)];
    let mut steps = Vec::new();
    for region in 2..8 {
        let at = region * REGION * CHUNK;
        steps.extend([
            step(0, FUA, at, 8192),
            step(1, WRITE, at + 7 * CHUNK, CHUNK),
            sleep(1, 60),
            step(1, FUA, at, 4096),
        ]);
        steps.extend([step(0, TRIM, at - REGION * CHUNK, CHUNK), flush(), sleep(0, 200)]);
    }
    directed("regions one after the other, slow members alone", s, prepare, steps, false)
        .then(Damage::NoFast)
        .finds(&["C1NoAwayBit"])
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        told_long_ago(),
        at_any_moment(),
        slots_of_others(),
        slots_of_one_that_knows_nothing(),
        one_is_leaving(),
        rotten_before_it_heard(),
        target_stands_still(),
        one_region_after_the_other(),
    ]
}

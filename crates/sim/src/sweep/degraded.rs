//! A member dies at any moment (C8): moves in both directions, chunks that were promoted and then written, new ones, and
//! such as were trimmed; after the crash one side is gone, and what is left has to tell lost, stale and never written
//! apart.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::{directed, fill, flush, group, hot, records, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Step};
use crate::world::CrashPoint;

/// Events of a start with two SSDs, roughly.
const STARTS: u64 = 90;
/// The chunks that `hot` promotes.
const HOT: u64 = 22;

pub(super) fn mixed() -> Vec<Step> {
    let in_hot = |act, at: u64, len| step(0, act, HOT * CHUNK + at, len);
    let mut steps = hot(4);
    // In place on the fast tier, durable: the slow member learns of it later.
    steps.extend([in_hot(FUA, 4096, 4096), in_hot(FUA, CHUNK + 8192, 12_288), sleep(0, 40)]);
    steps.extend([step(0, WRITE, 27 * CHUNK + 4096, 20_000), step(0, TRIM, 2 * CHUNK, CHUNK), flush()]);
    // New chunks press others out, and what was promoted is written again.
    steps.extend([fill(24, 6), flush(), in_hot(WRITE, 0, CHUNK), step(0, TRIM, 5 * CHUNK + 4096, 40_960)]);
    steps.extend([sleep(0, 900), flush(), in_hot(FUA, CHUNK, 4096), sleep(0, 3500)]);
    steps
}

/// With `member` gone after the crash.
fn without(name: &'static str, member: usize) -> Directed {
    directed(name, group(12, 40, 40), data(), mixed(), false).then(Damage::Missing(member))
}

/// A session in which this is done, then the power goes; what is `damage`d afterwards is read from end to end.
pub(super) fn cut_after(mut s: Scenario, steps: Vec<Step>, point: CrashPoint, damage: Damage) -> Scenario {
    let point = CrashPoint { steps: steps.len() as u64 - point.steps, ..point };
    let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
    s.sessions.push(session);
    let all = step(0, Act::Read, 0, s.volumes[0].chunks * CHUNK);
    let mut session = s.quiet_session(vec![all], End::Stop);
    session.damage = Some(damage);
    s.sessions.push(session);
    s
}

/// Data in both tiers.
pub(super) fn data() -> Vec<Step> {
    vec![fill(0, 24), step(0, TRIM, 21 * CHUNK + 8192, 16_384), flush(), sleep(0, 3000)]
}

/// A group with data in both tiers, which was stopped in order.
fn with_data(n: u64) -> Scenario {
    let mut s = Scenario { seed: n + 1, ..group(12, 40, 40) };
    let session = s.quiet_session(data(), End::Stop);
    s.sessions.push(session);
    s
}

/// The slow member hears within seconds that chunks went up, and were changed there, or lost blocks: it is alone much later.
fn told_long_ago() -> Directed {
    let make = |n: u64| {
        let mut steps = hot(4);
        steps.extend([step(0, FUA, HOT * CHUNK + 4096, 4096), step(0, WRITE, (HOT + 1) * CHUNK, CHUNK), flush()]);
        let part = if n % 2 == 0 { (0, CHUNK) } else { (8192, 16_384) };
        steps.extend([step(0, TRIM, (4 + n % 12) * CHUNK + part.0, part.1), flush(), sleep(0, 25_000)]);
        steps.extend([step(0, FUA, 30 * CHUNK, 4096), step(0, FUA, HOT * CHUNK, 4096)]);
        cut_after(with_data(n), steps, CrashPoint { steps: n % 3, events: n % 7 }, Damage::Missing(0))
    };
    Directed::chain("told long ago, fast gone", make, 60)
}

/// The same beside a load of the disk that never pauses.
fn told_beside_a_load() -> Directed {
    let make = |n: u64| {
        let mut steps = hot(4);
        // Everything before is told in the pause.
        steps.extend([flush(), sleep(0, 4000), step(0, TRIM, n % 20 * CHUNK, CHUNK)]);
        steps.extend([step(0, WRITE, (HOT + 1) * CHUNK, CHUNK), flush()]);
        // More than there is room for on the SSD.
        steps.extend(never_quiet(24_000, 20));
        cut_after(with_data(n), steps, CrashPoint { steps: 0, events: n % 7 }, Damage::Missing(0))
    };
    Directed::chain("told beside a load, fast gone", make, 30)
}

/// A group with a volume that lives on the disk, and its first chunks.
fn on_the_disk(n: u64, first: Vec<Step>) -> Scenario {
    let mut s = Scenario { seed: n + 1, ..group(12, 40, 20) };
    s.volumes[0].placement = Placement::SlowOnly;
    let session = s.quiet_session(first, End::Stop);
    s.sessions.push(session);
    s
}

/// Chunks that are new on the slow member, and blocks that are, are known to it soon: alone it serves them.
fn new_long_ago() -> Directed {
    let make = |n: u64| {
        let s = on_the_disk(n, vec![step(0, WRITE, 0, 8192), flush()]);
        let steps = vec![fill(3, 1 + n % 5), step(0, FUA, 16_384, 4096 * (1 + n % 3)), flush(), sleep(0, 10_000)];
        cut_after(s, steps, CrashPoint { steps: 0, events: 0 }, Damage::Alone)
    };
    Directed::chain("new long ago, fast gone", make, 30)
}

/// The same beside a load of the disk that never pauses: what was flushed is known sooner than what has left it, in whatever way a
/// client asks for it, and also where a commit comes before.
fn new_beside_a_load() -> Directed {
    let make = |n: u64| {
        let zeros = Act::Zeroes { fua: true, no_hole: true, given_up: false };
        let each = |act, len| (3..4 + n / 5 % 5).map(move |c| step(0, act, c * CHUNK, len));
        let mut steps: Vec<Step> = match n % 5 {
            0 | 1 => each(WRITE, CHUNK).chain([sleep(0, 1000 * (n % 5)), flush()]).collect(),
            2 => each(FUA, CHUNK).collect(),
            3 => each(WRITE, CHUNK).chain([sleep(0, 1000)]).chain(each(FUA, 4096)).collect(),
            _ => each(zeros, CHUNK).collect(),
        };
        steps.extend(never_quiet(5500, 1));
        let s = on_the_disk(n, vec![fill(0, 2), flush()]);
        cut_after(s, steps, CrashPoint { steps: 0, events: 0 }, Damage::Alone)
    };
    Directed::chain("new beside a load, fast gone", make, 30)
}

/// Reads, for so many milliseconds, of so many chunks from the first on.
fn never_quiet(ms: u64, chunks: u64) -> Vec<Step> {
    let round = |i: u64| (0..chunks).map(move |c| step(0, Act::Read, c * CHUNK + i % 32 * 4096, 4096));
    (0..ms / 50).flat_map(|i| round(i).chain([sleep(0, 50)])).collect()
}

/// Two members in each tier, and one of the four is gone: what is on the other three is served.
fn one_of_several() -> Directed {
    let make = |n: u64| {
        let member = |tier, slots| MemberSpec { tier, slots, discard: true };
        let mut s = group(12, 20, 40);
        s.members.insert(0, member(Tier::Fast, 8));
        s.members.push(member(Tier::Slow, 20));
        s.seed = n + 1;
        let session = s.quiet_session(vec![fill(0, 24), flush(), sleep(0, 3000)], End::Stop);
        s.sessions.push(session);
        let end = End::Crash(Crash::Power, CrashPoint { steps: 0, events: n * 23 });
        let session = s.quiet_session(mixed(), end);
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 40 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Missing(n as usize % 4));
        s.sessions.push(session);
        s
    };
    Directed::chain("one of several gone", make, 120)
}

/// The stop is cut off: what only the fast member knows is perhaps lost to the slow one until that has all pages.
fn stopping() -> Directed {
    let prepare = vec![fill(0, 6), flush(), sleep(0, 3000)];
    let steps = vec![fill(12, 4), flush(), step(0, WRITE, 20 * CHUNK, 8192), step(0, TRIM, CHUNK, CHUNK)];
    let at_stop = directed("fast member gone at a stop", group(12, 40, 40), prepare, steps, true);
    at_stop.then(Damage::Missing(0)).finds(&["C8AwayClearedEarly"])
}

/// An image of a member from before a session that was served, and then a start is cut off: what it says of itself must not
/// make the older image as good as the others.
fn older_than_a_cut_off_start() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 30) };
        let session = s.quiet_session(vec![fill(0, 18), flush(), sleep(0, 3000)], End::Stop);
        s.sessions.push(session);
        // The death leaves something in caches: no newer image is taken then.
        let rewrite = |i: u64| [step(0, TRIM, i * CHUNK, CHUNK), step(0, FUA, (20 + i) * CHUNK, CHUNK)];
        let mut steps: Vec<Step> = (0..8).flat_map(rewrite).collect();
        steps.extend([sleep(0, 4000), fill(0, 4), flush(), sleep(0, 4000), step(0, WRITE, 29 * CHUNK, CHUNK)]);
        let point = CrashPoint { steps: steps.len() as u64, events: 0 };
        let session = s.quiet_session(steps, End::Crash(Crash::Daemon, point));
        s.sessions.push(session);
        let session = s.quiet_session(Vec::new(), End::Crash(Crash::Power, CrashPoint { steps: 0, events: n }));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Stale(1));
        s.sessions.push(session);
        s
    };
    Directed::chain("older than a cut-off start", make, 60)
}

/// Slots go from chunk to chunk, and the journal block that says so is lost.
fn gap() -> Directed {
    let round = |i: u64| {
        let (old, new) = (i * 5 % 20, (i * 5 + 9) % 20);
        [step(0, TRIM, old * CHUNK, CHUNK), flush(), step(0, WRITE, new * CHUNK, CHUNK), flush(), sleep(0, 5)]
    };
    let s = Scenario { journal: 48, ..group(12, 24, 24) };
    directed("journal gap", s, vec![fill(0, 16)], (0..24).flat_map(round).collect(), false).then(Damage::Gap(0))
}

/// The same, and the end of the journal is lost.
fn rotten_end() -> Directed {
    let d = gap();
    Directed { name: "journal ends in rot", damage: Some(Damage::End(0)), ..d }.finds(&["C6RottenHeadIgnored"])
}

/// The same, and nothing is left of the journal.
fn rotten_ring() -> Directed {
    let d = gap();
    Directed { name: "journal lost", damage: Some(Damage::Ring(0)), ..d }.finds(&["C6PromiseIgnored"])
}

/// The same, and a part of the ring cannot be read.
fn unread_ring() -> Directed {
    let mut d = gap();
    d.scenario.journal = 64;
    Directed { name: "hole in the ring", damage: Some(Damage::Hole(0)), ..d }.finds(&["HoleIsDead", "C6UnreadTellsEnd"])
}

/// The same of one of two SSDs.
fn unread_ring_beside_another() -> Directed {
    let mut s = Scenario { journal: 64, ..group(12, 24, 24) };
    s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 12, discard: true });
    let round = |i: u64| [step(0, FUA, i * 7 % 20 * CHUNK, 4096), step(0, TRIM, (i * 7 + 3) % 20 * CHUNK, CHUNK)];
    let steps = (0..24).flat_map(round).collect();
    directed("hole in the ring beside another SSD", s, vec![fill(0, 16)], steps, false).then(Damage::Hole(0))
}

/// No sync of one member succeeds any more.
fn unflushed(name: &'static str, member: usize) -> Directed {
    directed(name, group(12, 40, 40), data(), mixed(), false)
        .then(Damage::Unflushed(member))
        .finds(&["UnflushedUnread"])
}

/// The same behind a checkpoint, and the slow member has heard of nothing.
fn rotten_empty_ring() -> Directed {
    let s = Scenario { journal: 16, migrate: false, ..group(40, 24, 24) };
    let steps = (0..40).flat_map(|i| [step(0, WRITE, i % 24 * CHUNK, (1 + i / 24) * 4096), flush(), sleep(0, 5)]);
    let d = directed("journal lost behind a checkpoint", s, Vec::new(), steps.collect(), false);
    d.then(Damage::Ring(0)).finds(&["C6EmptyIsWhole"])
}

/// The journal of one of two SSDs is lost as a whole or at its end, some commits behind a checkpoint, and starts that find it are cut off.
fn lost_and_cut_off() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, journal: 16, migrate: false, ..group(24, 24, 30) };
        s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 24, discard: true });
        let commits = 12 + n / 2 % 10;
        let steps = (0..commits).map(|i| step(0, FUA, i * CHUNK, 4096 * (1 + i % 4))).collect();
        cut_after(s, steps, CrashPoint { steps: 0, events: 0 }, Damage::Journal((n % 2) as usize, n / 20))
    };
    Directed::chain("journal lost and the start cut off", make, 20 * STARTS).finds(&["C6DamageForgotten"])
}

/// The end that a start has left in a journal rots before there is a commit, and the next start is cut off at one point after another.
fn rotten_seal() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 24) };
        // The ring has been gone round.
        let session = s.quiet_session(records(40, FUA), End::Stop);
        s.sessions.push(session);
        let end = End::Crash(Crash::Power, CrashPoint { steps: 1, events: 0 });
        let session = s.quiet_session(vec![step(0, Act::Read, 0, CHUNK)], end);
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 24 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Seal((n % 2) as usize, n / 2));
        s.sessions.push(session);
        s
    };
    Directed::chain("journal's end mended", make, 200).finds(&["C6PromiseStays"])
}

/// Slots of the slow tier go from chunk to chunk by TRIMs and writes: alone, the slow member must know whose each is.
fn slots_of_others() -> Directed {
    let mut s = Scenario { commit_ms: 50, ..group(12, 10, 8) };
    s.volumes[0].placement = Placement::SlowOnly;
    let round = |i: u64| {
        let (old, new) = (i % 8, (i + 4) % 8);
        [step(0, TRIM, old * CHUNK, CHUNK), flush(), sleep(0, 3500), step(0, WRITE, new * CHUNK, CHUNK), flush()]
    };
    let steps = (0..12).flat_map(round).collect();
    directed("slots of others, fast gone", s, vec![fill(0, 4), flush()], steps, false).then(Damage::Missing(0))
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        gap(),
        rotten_end(),
        rotten_ring(),
        rotten_empty_ring(),
        unread_ring(),
        unread_ring_beside_another(),
        lost_and_cut_off(),
        rotten_seal(),
        slots_of_others(),
        stopping(),
        older_than_a_cut_off_start(),
        one_of_several(),
        told_long_ago(),
        told_beside_a_load(),
        new_long_ago(),
        new_beside_a_load(),
        without("fast member gone", 0),
        without("slow member gone", 1),
        unflushed("syncs of the fast member fail", 0),
        unflushed("syncs of the slow member fail", 1),
    ]
}

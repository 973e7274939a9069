//! Metadata rots under a group in use, and a check mends it beside the requests of a client: the power goes at every step.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::{directed, fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::run::FIRST_PAGE;
use crate::scenario::{Act, End, MemberSpec, Scenario, Step};
use crate::world::CrashPoint;

fn rots(name: &'static str, disk: usize, tear: bool) -> Directed {
    let mut s = Scenario { tear, ..group(12, 40, 40) };
    s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 10, discard: false });
    let prepare = vec![fill(0, 24), step(0, TRIM, 21 * CHUNK + 8192, 16_384), flush(), sleep(0, 3000)];
    let of = |client, steps: Vec<Step>| steps.into_iter().map(move |s| Step { client, ..s });
    let checker =
        [Act::Rot { disk }, Act::Check { mend: false }, Act::Check { mend: true }, Act::Check { mend: false }];
    // Once while all of the map is on the members, and once beside writes.
    let checker = [checker.as_slice(), &[Act::Sleep], &checker].concat();
    let mut steps =
        vec![sleep(0, 400), step(0, WRITE, 27 * CHUNK + 4096, 20_000), step(0, TRIM, 2 * CHUNK, CHUNK), flush()];
    steps.extend(of(1, checker.into_iter().map(|act| step(0, act, 0, 100_000)).collect()));
    steps.extend([step(0, FUA, 4096, 4096), fill(28, 4), flush(), step(0, WRITE, 9 * CHUNK, 8192), flush()]);
    directed(name, s, prepare, steps, false)
}

/// One label after the other rots and is mended, with nothing beside it: most of the points are in the writing of labels.
fn labels_rot() -> Directed {
    let mut s = group(10, 10, 8);
    s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 10, discard: true });
    s.tear = true;
    let mend = |i| [step(0, Act::Rot { disk: i }, 0, 0), step(0, Act::Check { mend: true }, 0, 0), sleep(0, 20)];
    directed(
        "labels mended in use",
        s,
        vec![fill(0, 2), flush()],
        (0..8).map(|i| i % 2).flat_map(mend).collect(),
        false,
    )
}

/// A group whose data lie on the disk, and in which no checkpoint is due by itself; a client changes the map and flushes, and beside it
/// what has rotted on a member is mended.
fn mending_beside_commits(rot: Act) -> (Scenario, Vec<Step>) {
    let mut s = Scenario { journal: 128, migrate: false, ..group(12, 40, 30) };
    s.volumes[0].placement = Placement::SlowOnly;
    let commits = (0..48).flat_map(|i| {
        let new = step(0, WRITE, (6 + i % 24) * CHUNK + i / 24 * 8192, 8192);
        [new, flush(), sleep(0, 10)]
    });
    let mend = [sleep(1, 40), step(1, rot, 0, 0), step(1, Act::Check { mend: true }, 0, 0)];
    // The disk is always at a sync: that of a commit and that of what is mended wait for it, and go together.
    let syncs = (0..100).map(|i| step(2, FUA, i % 6 * CHUNK, 4096));
    let steps = commits.chain(std::iter::repeat_n(mend, 8).flatten()).chain(syncs);
    (s, steps.collect())
}

fn beside_commits() -> Directed {
    let (s, steps) = mending_beside_commits(Act::RotMap { disk: 1 });
    directed("disk mended beside commits", s, vec![fill(0, 6), flush()], steps, false).finds(&["MendNamesCommit"])
}

/// One write of a commit fails meanwhile, and the group latches: the next start goes on.
fn behind_a_latch() -> Directed {
    let make = |n: u64| {
        let rot = [Act::RotLabel { disk: 0 }, Act::RotMap { disk: 1 }][(n % 2) as usize];
        let (mut s, steps) = mending_beside_commits(rot);
        s.seed = n + 1;
        let session = s.quiet_session(vec![fill(0, 6), flush()], End::Stop);
        s.sessions.push(session);
        let point = CrashPoint { steps: steps.len() as u64, events: 0 };
        let kind = [Crash::Power, Crash::Daemon][(n / 2 % 2) as usize];
        let mut session = s.quiet_session(steps, End::Crash(kind, point));
        let area = (FIRST_PAGE, FIRST_PAGE + u64::from(s.journal));
        session.faults[0] = Faults { write_ppm: 100_000, limit: 1, area, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK)], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("mended behind a latch", make, 500).finds(&["MendBehindLatch", "MendNamesCommit"])
}

/// The disk is lost, and says so, before a check or while one reads or mends it; all that is used lies on the SSD, and goes on.
fn beside_a_lost_disk() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, journal: 64, migrate: false, ..group(40, 24, 20) };
        s.volumes[0].placement = Placement::FastOnly;
        let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
        s.sessions.push(session);
        let rots = (n % 2 == 1).then(|| step(0, Act::RotMap { disk: 1 }, 0, 0));
        let mut steps = vec![fill(8, 4), flush(), sleep(0, 5000)];
        steps.extend(rots);
        for mend in [false, true, true] {
            steps.extend([step(0, Act::Check { mend }, 0, 0), step(0, FUA, 2 * CHUNK, 8192), sleep(0, 1000)]);
            steps.extend([fill(12, 4), flush()]);
        }
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[1] = Faults { dies_after: 1 + n as u32 / 2, tells: true, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 20 * CHUNK)], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("checked beside a lost disk", make, 400).finds(&["MendsLost"])
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        labels_rot(),
        behind_a_latch(),
        beside_commits(),
        beside_a_lost_disk(),
        rots("mended in use, first", 0, false),
        rots("mended in use, second", 1, false),
        rots("mended in use, slow", 2, true).finds(&["MendSkipsAway"]),
        rots("mended in use, torn", 0, true).finds(&["MendOverGoodLabel"]),
    ]
}

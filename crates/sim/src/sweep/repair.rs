//! A member is gone for good, and the group is repaired: the power goes at every step of it, and in repairs after that.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::members::{add, with_spares};
use super::{directed, fill, flush, group, hot, sleep, step, Directed, FUA, NEVER, TRIM, WRITE};
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Speed, Step, VolumeSpec};
use crate::world::CrashPoint;

/// Events of a repair, roughly.
const REPAIR: u64 = 150;
/// Events of a start that mends a directory, roughly.
const MENDING: u64 = 150;
/// So many writes may fill a journal to its last block.
const FILL: std::ops::Range<u64> = 8..16;
/// Members of the group.
const MEMBERS: u64 = 4;

fn mixed() -> Vec<Step> {
    let mut steps = vec![fill(24, 6), flush(), sleep(0, 900)];
    steps.extend(hot(2));
    steps.extend([
        step(0, TRIM, 5 * CHUNK + 4096, 40_960),
        step(0, FUA, 9 * CHUNK, 8192),
        step(0, TRIM, 2 * CHUNK, CHUNK),
    ]);
    steps.extend([flush(), sleep(0, 400), step(0, WRITE, 12 * CHUNK, 20_000)]);
    steps
}

/// Two members of each tier, in use, then a crash or a stop, then `damage`.
fn broken(n: u64, damage: Damage) -> Scenario {
    let mut s = Scenario { seed: n + 1, ..group(10, 24, 36) };
    s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 10, discard: false });
    s.members.push(MemberSpec { tier: Tier::Slow, slots: 24, discard: true });
    let session = s.quiet_session(vec![fill(0, 24), flush(), sleep(0, 3000)], End::Stop);
    s.sessions.push(session);
    let steps = mixed();
    let at_the_end = CrashPoint { steps: steps.len() as u64, events: 0 };
    let end = if n / MEMBERS % 3 == 0 { End::Stop } else { End::Crash(Crash::Power, at_the_end) };
    let session = s.quiet_session(steps, end);
    s.sessions.push(session);
    let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 36 * CHUNK)], End::Stop);
    session.damage = Some(damage);
    s.sessions.push(session);
    s
}

/// Each member is the one that is gone, after a crash and after a stop.
fn without_one() -> Directed {
    let make = |n: u64| broken(n, Damage::Repair((n % MEMBERS) as usize, n / MEMBERS % REPAIR));
    Directed::chain("repaired without a member", make, MEMBERS * REPAIR * 2).finds(&[
        "LeftoversDecide",
        "LeftoversStay",
        "LeftoverIsNoSource",
    ])
}

/// A disk is being added when the power goes, and a member dies of that; a repair with a new device, which has the number that the disk was
/// to have, is cut off, also when it is done on some members.
fn half_added_beside() -> Directed {
    let make = |n: u64| {
        let mut s = crate::text::parse(include_str!("half_added.txt")).expect("the file beside this one is a scenario");
        s.seed = n + 1;
        let last = s.sessions.len() - 1;
        s.sessions[last].damage = Some(Damage::Repair(1, 90 + n % 110));
        let end = CrashPoint { steps: s.sessions[last - 1].steps.len() as u64, events: n / 110 % 30 };
        s.sessions[last - 1].end = End::Crash(Crash::Power, end);
        s
    };
    Directed::chain("repaired beside a half-added disk", make, 1600).finds(&["ListedIsNotAtHand", "JoiningTwinCounts"])
}

/// The directory of the only fast member cannot be read, and a repair is cut off; then it can. The current copies of its pages lie on
/// either side: what the repair writes goes over some of them.
fn root_is_hidden() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, ..group(12, 600, 530) };
        let crash = End::Crash(Crash::Power, CrashPoint { steps: 2, events: 0 });
        let sessions = [
            (vec![write_in_page(0, 0, 0), write_in_page(0, 1, 0), flush()], End::Stop),
            (vec![write_in_page(0, n % 2, 1), flush()], End::Stop),
            (vec![write_in_page(0, 1 - n % 2, 2), flush()], crash),
        ];
        for (steps, end) in sessions {
            let session = s.quiet_session(steps, end);
            s.sessions.push(session);
        }
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 2 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Hidden(0, n));
        s.sessions.push(session);
        s
    };
    Directed::chain("repaired while a root is hidden", make, REPAIR).finds(&["RepairOverUnread"])
}

/// One of two fast members is gone, and what is left of the tier is full of what may leave it, while a volume has not used what it was
/// promised there.
fn promised_on_what_is_left() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, ..group(20, 60, 50) };
        s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 20, discard: true });
        s.volumes.push(VolumeSpec { chunks: 12, placement: Placement::FastOnly });
        // In no order that looks like a stream.
        let mut steps: Vec<Step> = (0..50).map(|i| step(0, WRITE, i * 7 % 50 * CHUNK, CHUNK)).collect();
        steps.push(flush());
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        let mut session = s.quiet_session(Vec::new(), End::Stop);
        session.damage = Some(Damage::Repair((n % 2) as usize, n / 2 * 4));
        s.sessions.push(session);
        s
    };
    Directed::chain("promised on what is left", make, 60)
}

/// The same of a volume bound to the slow tier: one of two disks is gone, and only a new SSD has room for what is to leave the other.
fn promised_on_the_disk_that_is_left() -> Directed {
    let make = |n: u64| {
        let mut s = with_spares(Scenario { seed: n + 1, migrate: false, ..group(8, 24, 32) }, &[(Tier::Fast, 40)]);
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 24, discard: true });
        s.volumes.push(VolumeSpec { chunks: 16, placement: Placement::SlowOnly });
        let mut steps: Vec<Step> = (0..32).map(|i| step(0, WRITE, i * 7 % 32 * CHUNK, CHUNK)).collect();
        steps.extend([flush(), add(3)]);
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        let mut session = s.quiet_session(Vec::new(), End::Stop);
        session.damage = Some(Damage::Repair((1 + n % 2) as usize, n / 2 * 4));
        s.sessions.push(session);
        s
    };
    Directed::chain("promised on the disk that is left", make, 60)
}

/// Both labels of each member.
fn without_labels() -> Directed {
    let make = |n: u64| broken(n, Damage::Labels((n % MEMBERS) as usize));
    Directed::chain("repaired without labels", make, MEMBERS * REPAIR)
}

/// The page directory of a member rots, and the start that mends it is cut off. With one fast member, only a slow one that was stopped
/// in order can mend it.
fn directory_rots() -> Directed {
    let make = |n: u64| {
        let (member, events) = ((n % 2) as usize, n / 4);
        let mut s = Scenario { seed: n + 1, ..group(12, 32, 36) };
        if n / 2 % 2 == 1 {
            s.members.insert(1, MemberSpec { tier: Tier::Fast, slots: 12, discard: true });
        }
        let session = s.quiet_session(vec![fill(0, 20), flush(), sleep(0, 3000), step(0, FUA, 0, 8192)], End::Stop);
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 36 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Directory(member, events));
        s.sessions.push(session);
        s
    };
    Directed::chain("directory mended", make, 4 * MENDING).finds(&["C5MendedTooLate", "C7GenerationReused"])
}

/// A write to a chunk of which a page of the map tells.
fn write_in_page(client: u8, page: u64, chunk: u64) -> Step {
    step(client, FUA, (page * 252 + chunk) * CHUNK, 4096)
}

/// Four clients write to chunks of a page, each so often: beside that the fast members make their checkpoints, one after the other.
fn until_checkpoints(page: u64, writes: u64) -> impl Iterator<Item = Step> {
    let of = move |client: u8| (0..writes).map(move |i| write_in_page(client, page, 40 * u64::from(client) + i));
    (0..4).flat_map(of)
}

/// Pages of a fast member rot, and the start that mends them is cut off. Those who know all that they said have older copies of them: a
/// slow member is not told of heat, and another fast one makes its checkpoints at other times; beside that one's copies its
/// journal counts.
fn pages_rot() -> Directed {
    let make = |n: u64| {
        let (kind, events) = (n % 3, n / 3);
        let mut s = Scenario { seed: n + 1, migrate: false, ..group(12, 600, 530) };
        let mut steps = vec![vec![write_in_page(0, 0, 0), write_in_page(0, 1, 0)]];
        if kind == 0 {
            steps.push(vec![step(0, Act::Heat { times: 3 }, 0, 8192), write_in_page(0, 1, 9)]);
        } else {
            s.members.insert(1, MemberSpec { tier: Tier::Fast, slots: 12, discard: true });
            steps[0].extend(until_checkpoints(0, 3 + events % 5));
            steps[0].extend(until_checkpoints(1, 4));
        }
        for (i, steps) in steps.into_iter().enumerate() {
            let crash = kind == 1 && i == 0;
            let end = if crash { End::Crash(Crash::Power, NEVER) } else { End::Stop };
            s.sessions.push(s.quiet_session(steps, end));
        }
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 2 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Pages(0, events));
        s.sessions.push(session);
        s
    };
    Directed::chain("pages mended", make, 3 * MENDING).finds(&["C5CutOffForgetsStop"])
}

/// The same where the power goes at any time: a commit that was cut off may be on the first fast member alone, which has made a
/// checkpoint just before; then the other one's journal tells what its pages do not.
fn pages_are_lost() -> Directed {
    let mut s = Scenario { migrate: false, ..group(12, 40, 40) };
    s.members.insert(1, MemberSpec { tier: Tier::Fast, slots: 12, discard: true });
    let steps = until_checkpoints(0, 4).map(|step| Step { offset: step.offset % (30 * CHUNK), ..step });
    directed("pages lost", s, vec![fill(0, 4), flush()], steps.collect(), false).then(Damage::Lost(0))
}

/// The last block of one journal rots when the other fast member has the commit in its pages and not in its journal any more: a part of
/// it must not count for more than those pages.
fn newest_block_rots() -> Directed {
    let mut s = Scenario { migrate: false, records: 2, journal: 48, ..group(24, 40, 40) };
    s.members.insert(1, MemberSpec { tier: Tier::Fast, slots: 24, discard: true });
    let commits = (0..10)
        .flat_map(|n| [fill(n * 3 % 30, 6), flush(), sleep(0, 120), step(0, TRIM, n * 3 % 30 * CHUNK, 6 * CHUNK)]);
    let mut sweep = directed("newest block lost", s, Vec::new(), commits.collect(), false)
        .then(Damage::Gap(1))
        .finds(&["C6HalfBeatsPages"]);
    sweep.scenario.sessions.iter_mut().for_each(|session| session.speed[1] = Speed::Hdd);
    sweep
}

/// A start finds a journal full to its last block, and leaves no block of its epoch there for want of room: without its labels
/// the member cannot be told from an older copy of itself. Which write fills it is left open, there is a point for each.
fn no_room_to_seal() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, commit_ms: 60_000, migrate: false, ..group(40, 40, 60) };
        s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 40, discard: false });
        let kinds = FILL.end - FILL.start;
        let writes = FILL.start + n / 2 % kinds;
        let steps: Vec<Step> = (0..writes).map(|i| step(0, FUA, i * CHUNK, 4096)).collect();
        let answered = CrashPoint { steps: writes, events: n / 2 / kinds };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, answered));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, FILL.end * CHUNK)], End::Stop);
        session.damage = Some(Damage::Labels((n % 2) as usize));
        s.sessions.push(session);
        s
    };
    Directed::chain("repaired after a start without room", make, 4 * (FILL.end - FILL.start)).finds(&["SealNeedsRoom"])
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        without_one(),
        half_added_beside(),
        root_is_hidden(),
        promised_on_what_is_left(),
        promised_on_the_disk_that_is_left(),
        without_labels(),
        directory_rots(),
        pages_rot(),
        pages_are_lost(),
        newest_block_rots(),
        no_room_to_seal(),
    ]
}

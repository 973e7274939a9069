//! Directed scenarios of members that come: a crash at every step of each, and what comes after it.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::beside::REGION;
use super::{directed, fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Step};
use crate::world::CrashPoint;

/// No fewer requests than a start takes of a disk on which nothing lives.
const START: u32 = 24;

pub(super) fn with_spares(mut s: Scenario, spares: &[(Tier, u64)]) -> Scenario {
    s.spares = spares.iter().map(|(tier, slots)| MemberSpec { tier: *tier, slots: *slots, discard: true }).collect();
    s
}

pub(super) fn add(disk: usize) -> Step {
    step(0, Act::AddMember { disk }, 0, 0)
}

/// Commits of another client, all the while.
fn beside(rounds: u64) -> Vec<Step> {
    let one = |i: u64| {
        let act = match i % 5 {
            0 => TRIM,
            4 => WRITE,
            _ => FUA,
        };
        step(1, act, (i * 7 % 26) * CHUNK + i % 3 * 8192, 4096 + i % 4 * 8192)
    };
    (0..rounds).map(one).collect()
}

/// The new member is added, at the second try if the first was cut off, and used.
fn again(disk: usize) -> Vec<Step> {
    vec![
        add(disk),
        fill(0, 28),
        flush(),
        step(0, Act::Read, 0, 30 * CHUNK),
        sleep(0, 3000),
        step(0, FUA, 3 * CHUNK, 4096),
    ]
}

fn added(name: &'static str, tier: Tier) -> Directed {
    let s = with_spares(group(12, 24, 30), &[(tier, 14)]);
    let mut steps = beside(60);
    // New chunks all the while, too.
    for i in 0..24 {
        let at = (20 + i % 10) * CHUNK;
        steps.extend([step(2, TRIM, at, CHUNK), step(2, FUA, at, 8192)]);
    }
    steps.extend([sleep(0, 3), add(2), fill(16, 8), flush(), step(0, Act::Read, 0, 30 * CHUNK), sleep(0, 400)]);
    directed(name, s, vec![fill(0, 20), sleep(0, 3000), flush()], steps, false).after(again(2))
}

/// The old fast members are gone afterwards: the new one must know everything.
fn added_and_alone() -> Directed {
    let s = with_spares(group(12, 24, 30), &[(Tier::Fast, 14)]);
    let mut steps = beside(60);
    steps.extend([sleep(0, 3), add(2)]);
    steps.extend((0..6).map(|i| step(0, FUA, (20 + i) * CHUNK, 8192)));
    directed("fast member added, old gone", s, vec![fill(0, 20), flush()], steps, false)
        .then(Damage::Missing(0))
        .finds(&["JoinedTooEarly"])
}

/// Two disks after each other, and a volume that only fits with them.
fn room_for_more() -> Directed {
    let mut s = with_spares(group(10, 16, 18), &[(Tier::Fast, 12), (Tier::Slow, 16)]);
    s.volumes[0].placement = Placement::Auto;
    let make = |volume, chunks, placement| Step { volume, ..step(0, Act::Make { chunks, placement, family: 0 }, 0, 0) };
    let of = |volume, s: Step| Step { volume, ..s };
    let mut steps = vec![add(2), make(1, 12, Placement::FastOnly), of(1, fill(0, 12)), of(1, flush()), add(3)];
    steps.extend([make(2, 12, Placement::SlowOnly), of(2, fill(0, 12)), of(2, flush()), of(1, fill(0, 3))]);
    steps.extend([fill(0, 18), flush(), step(0, Act::Delete, 0, 0)]);
    let after = vec![add(2), add(3), make(3, 14, Placement::Auto), of(3, fill(0, 14)), of(3, flush())];
    directed("room for more", s, vec![fill(0, 10), flush()], steps, false).after(after)
}

pub(super) fn evacuate(disk: usize) -> Step {
    step(0, Act::Evacuate { disk }, 0, 0)
}

fn remove(disk: usize) -> Step {
    step(0, Act::Remove { disk }, 0, 0)
}

/// Two members in each tier.
pub(super) fn two_each() -> Scenario {
    let mut s = group(12, 24, 30);
    let more = |tier, slots| MemberSpec { tier, slots, discard: true };
    s.members = vec![more(Tier::Fast, 10), more(Tier::Fast, 12), more(Tier::Slow, 20), more(Tier::Slow, 24)];
    s
}

/// A member leaves beside writes, TRIMs and moves; then it comes back as a new one.
fn leaves(name: &'static str, disk: usize) -> Directed {
    let mut steps = beside(40);
    steps.extend([sleep(0, 3), evacuate(disk), fill(16, 4), flush(), remove(disk)]);
    steps.extend([step(0, Act::Read, 0, 30 * CHUNK), fill(4, 3), flush()]);
    let again = vec![evacuate(disk), remove(disk), add(disk), fill(0, 28), flush(), step(0, Act::Read, 0, 30 * CHUNK)];
    let heat = step(0, Act::Heat { times: 3 }, 0, 2 * CHUNK);
    directed(name, two_each(), vec![fill(0, 28), sleep(0, 3000), heat, sleep(0, 900), flush()], steps, false)
        .after(again)
}

/// What is left when a fast member dies while a slow one leaves.
fn leaves_and_another_dies() -> Directed {
    let mut steps = beside(40);
    steps.extend([sleep(0, 3), evacuate(2), remove(2), step(0, FUA, 3 * CHUNK, 8192)]);
    let prepare = vec![fill(0, 28), sleep(0, 3000), flush()];
    directed("slow member leaves, fast gone", two_each(), prepare, steps, false).then(Damage::Missing(0))
}

/// A member dies while it leaves, or when it is empty.
fn dies_while_it_leaves(name: &'static str, disk: usize) -> Directed {
    let mut steps = beside(20);
    steps.extend([sleep(0, 3), evacuate(disk), sleep(0, 9000), fill(16, 4), flush()]);
    // Commits that a crash cuts off when it is empty.
    steps.extend((0..40).map(|i| step(0, if i % 3 == 0 { TRIM } else { FUA }, i * 7 % 28 * CHUNK, 8192)));
    let prepare = vec![fill(0, 28), sleep(0, 3000), flush()];
    directed(name, two_each(), prepare, steps, false).then(Damage::Missing(disk))
}

/// A chunk leaves its disk that somebody writes at any moment: writers wait for it at last, and where it goes stands still. They go on, with
/// what was copied of it still on its way there.
fn written_all_the_time() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(8, 30, 12) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 60, discard: true });
        s.volumes[0].placement = Placement::SlowOnly;
        let session = s.quiet_session(vec![fill(0, 12), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps = vec![evacuate(2)];
        for client in 1..4 {
            steps.extend((0..200).map(|i| step(client, WRITE, (i * 5 + u64::from(client)) % 28 * 4096, 8192)));
        }
        let point = CrashPoint { steps: steps.len() as u64, events: n % 5 };
        let end = if n % 3 == 0 { End::Crash(Crash::Power, point) } else { End::Stop };
        let mut session = s.quiet_session(steps, end);
        session.faults[1] = Faults { stands_after: START + n as u32, stands_ms: 12_000, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 12 * CHUNK), fill(0, 4), flush()], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("written all the time as it leaves, target stands still", make, 60).finds(&["C3ForcedGoesOn"])
}

/// A disk that is to leave fails for good while it is emptied, when it is empty, or when it is taken out.
fn fails_while_it_leaves() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..two_each() };
        let session = s.quiet_session(vec![fill(0, 28), sleep(0, 3000), flush()], End::Stop);
        s.sessions.push(session);
        let make = Step { volume: 1, ..step(0, Act::Make { chunks: 2, placement: Placement::Auto, family: 0 }, 0, 0) };
        let mut steps = vec![evacuate(2), step(1, FUA, 3 * CHUNK, 8192), sleep(0, 9000), make];
        // One that was taken out in order would not be missed.
        let is_missing = n % 2 == 1;
        steps.extend((!is_missing).then(|| remove(2)));
        steps.push(fill(0, 4));
        steps.extend((0..12).map(|i| step(1, if i % 3 == 0 { TRIM } else { FUA }, i * 7 % 28 * CHUNK, 8192)));
        steps.push(flush());
        let end = match n % 3 {
            0 => End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 }),
            _ => End::Stop,
        };
        let mut session = s.quiet_session(steps, end);
        session.faults[2] = Faults { dies_after: 1 + n as u32 / 2, tells: n / 3 % 2 == 0, ..Faults::default() };
        s.sessions.push(session);
        let steps = vec![step(0, Act::Read, 0, 30 * CHUNK), fill(0, 28), flush(), remove(2)];
        let mut session = s.quiet_session(steps, End::Stop);
        session.damage = is_missing.then_some(Damage::Missing(2));
        s.sessions.push(session);
        s
    };
    Directed::chain("slow member fails while it leaves", make, 300).finds(&["LetGoWithData"])
}

/// A session in which the third disk is emptied, and has this fault; these `steps` follow. It is healthy again at the next start.
fn emptied_with(fault: Faults, n: u64, steps: Vec<Step>) -> Scenario {
    let mut s = Scenario { seed: n + 1, ..two_each() };
    let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
    s.sessions.push(session);
    let steps = [vec![evacuate(2), step(1, FUA, 3 * CHUNK, 8192), sleep(0, 3000)], steps].concat();
    let mut session = s.quiet_session(steps, End::Stop);
    session.faults[2] = fault;
    s.sessions.push(session);
    let steps = vec![step(0, Act::Read, 0, 30 * CHUNK), fill(0, 28), flush()];
    let session = s.quiet_session(steps, End::Stop);
    s.sessions.push(session);
    s
}

fn dies(n: u64) -> Faults {
    Faults { dies_after: 1 + n as u32 / 2, tells: n % 2 == 0, ..Faults::default() }
}

fn fails_as_it_stays() -> Directed {
    let make = |n| {
        let keep = step(0, Act::Keep { disk: 2 }, 0, 0);
        emptied_with(dies(n), n, vec![keep, fill(0, 4), flush(), step(0, Act::Read, 0, 8 * CHUNK)])
    };
    Directed::chain("slow member fails as it stays", make, 200).finds(&["KeptThoughGone"])
}

fn fails_as_the_group_stops() -> Directed {
    let make = |n| emptied_with(dies(n), n, vec![fill(0, 2), flush()]);
    Directed::chain("slow member fails as the group stops", make, 200).finds(&["StoppedBeforeStruckOff"])
}

/// It fails as a volume is deleted, which takes two changes, and the power goes before the labels can say that it has left.
fn fails_and_is_back() -> Directed {
    let make = |n| {
        let new = Act::Make { chunks: 2, placement: Placement::Auto, family: 0 };
        let [made, deleted] = [new, Act::Delete].map(|act| Step { volume: 1, ..step(0, act, 0, 0) });
        let mut s = emptied_with(dies(n), n, vec![made, deleted]);
        s.sessions[1].end = End::Crash(Crash::Power, CrashPoint { steps: s.sessions[1].steps.len() as u64, events: 0 });
        s
    };
    Directed::chain("slow member fails as a volume is deleted, and is back", make, 200).finds(&["LetGoBarsStart"])
}

/// It answers nothing for minutes: changes go on without it, and what it was sent comes late, when it is none of the group any more.
fn stands_still_when_it_is_empty() -> Directed {
    let make = |n: u64| {
        let made = Step { volume: 1, ..step(0, Act::Make { chunks: 2, placement: Placement::Auto, family: 0 }, 0, 0) };
        let renamed = Step { volume: 1, ..step(0, Act::Rename, 0, 0) };
        let steps = vec![made, fill(0, 4), renamed, flush(), step(0, Act::Read, 0, 8 * CHUNK)];
        let fault = Faults { stands_after: 1 + n as u32 / 2, ..Faults::default() };
        emptied_with(fault, n, if n % 4 < 2 { steps } else { vec![fill(0, 2), flush()] })
    };
    Directed::chain("slow member stands still when it is empty", make, 200)
}

/// One on which nothing lives stands still for hours, as it hears of regions that new data come to, or as it is told to leave: it has left
/// then, and whoever waits for it goes on, writes too. Or it does so over a change after that, also of a family.
fn stands_still_as_it_is_told_to_leave() -> Directed {
    let make = |n: u64| {
        let ahead = [1, 4][n as usize % 2];
        let mut s = Scenario { seed: n + 1, ahead, journal: 64, ..group(60, 2200, 6 * REGION) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 60, discard: true });
        let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
        s.sessions.push(session);
        let made = step(1, Act::Make { chunks: 2, placement: Placement::Auto, family: 0 }, 0, 0);
        let family = step(1, Act::MakeFamily { family: 1 }, 0, 0);
        let mut steps = vec![sleep(1, 2000), Step { client: 1, ..evacuate(2) }, Step { volume: 1, ..made }, family];
        for region in 1..6 {
            steps.extend([step(0, WRITE, region * REGION * CHUNK, 8192), sleep(0, 900)]);
        }
        steps.push(flush());
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[2] = Faults { stands_after: START + n as u32, stands_ms: 20_000_000, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 8 * CHUNK), fill(0, 20), flush()], End::Stop);
        s.sessions.push(session);
        s
    };
    let finds = &["LeavingToldForEver", "LeftIsWaitedFor", "KeysAskedForEver"];
    Directed::chain("slow member stands still as it is told to leave", make, 35).finds(finds)
}

/// An empty disk that comes before all other members stands still for hours beside what a group asks each member, or the first: headers of
/// families before they are changed, and all that a check reads. Changes and checks go on, and end.
fn first_stands_still_when_it_is_empty() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(20, 40, 24) };
        s.members.insert(0, MemberSpec { tier: Tier::Slow, slots: 60, discard: true });
        let family = |family| step(0, Act::MakeFamily { family }, 0, 0);
        let session = s.quiet_session(vec![fill(0, 8), flush(), family(1)], End::Stop);
        s.sessions.push(session);
        let made = Step { volume: 1, ..step(0, Act::Make { chunks: 2, placement: Placement::Auto, family: 0 }, 0, 0) };
        let check = step(1, Act::Check { mend: false }, 0, 0);
        let checks = [sleep(1, 1500), check, sleep(1, 200), check];
        // Whoever changes something last is the one who finds that it stands still.
        let changes = if n % 2 == 0 { [family(2), made] } else { [made, family(2)] };
        let mut steps = vec![evacuate(0), sleep(0, 2000)];
        steps.extend(checks.into_iter().chain(changes).chain([fill(0, 4), flush()]));
        let mut session = s.quiet_session(steps, End::Stop);
        // Headers are put in order after a start, too: while it is no member to do without.
        let stands_after = START + 10 + n as u32 / 2;
        session.faults[0] = Faults { stands_after, stands_ms: 20_000_000, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 8 * CHUNK), fill(0, 20), flush()], End::Stop);
        s.sessions.push(session);
        s
    };
    let finds = &["HeadersReadForEver", "CheckWaitsForLeft"];
    Directed::chain("first member stands still when it is empty", make, 50).finds(finds)
}

/// The labels change one after another: whether an empty member leaves is known to it alone for a moment, or to the others
/// alone.
fn dies_as_it_is_called_off() -> Directed {
    let keep = step(0, Act::Keep { disk: 2 }, 0, 0);
    let steps = [0, 1].map(|i| [evacuate(2), step(0, FUA, i * CHUNK, 8192), keep]).concat();
    let prepare = vec![fill(0, 8), flush()];
    directed("slow member dies as its leaving is called off", two_each(), prepare, steps, false)
        .then(Damage::Missing(2))
}

/// A member goes when it is empty, and comes back: each of two starts is cut off where it writes labels, and may have begun an epoch that
/// the other does not know.
fn goes_empty_and_comes() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..two_each() };
        let session = s.quiet_session(vec![fill(0, 8), flush(), evacuate(2), step(0, FUA, 0, 8192)], End::Stop);
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 8 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Back(2, 40 + n % 32 * 2, 56 + n / 32 * 3));
        s.sessions.push(session);
        s
    };
    Directed::chain("goes empty and comes", make, 32 * 12)
}

/// A new device takes the place of an old one, and volumes bound to its tier go with their room.
fn replaced() -> Directed {
    let mut s = with_spares(group(10, 16, 12), &[(Tier::Fast, 12), (Tier::Slow, 18)]);
    s.volumes.push(crate::scenario::VolumeSpec { chunks: 5, placement: Placement::FastOnly });
    let of = |volume, s: Step| Step { volume, ..s };
    let keep = step(0, Act::Keep { disk: 1 }, 0, 0);
    let mut steps = vec![add(2), evacuate(0), of(1, fill(0, 5)), remove(0), add(3), evacuate(1), sleep(0, 2), keep];
    steps.extend([fill(2, 4), evacuate(1), of(1, step(0, FUA, 8192, 4096)), remove(1), flush(), fill(0, 3)]);
    let after = vec![add(2), evacuate(0), remove(0), add(3), evacuate(1), remove(1), fill(0, 12), flush()];
    directed("replaced", s, vec![fill(0, 12), of(1, fill(0, 3)), flush()], steps, false).after(after)
}

/// What a volume bound to the slow tier has on the member that leaves goes last, and it was promised more than that; what
/// is left of the tier would be full without it.
fn bound_and_leaving() -> Directed {
    let mut s = group(16, 22, 18);
    s.members.push(MemberSpec { tier: Tier::Slow, slots: 8, discard: true });
    s.reserve = 4;
    s.volumes.push(crate::scenario::VolumeSpec { chunks: 3, placement: Placement::SlowOnly });
    let of = |volume, s: Step| Step { volume, ..s };
    let prepare = vec![fill(0, 18), flush(), sleep(0, 4000), of(1, fill(0, 2)), flush()];
    let mut steps = vec![evacuate(1), sleep(0, 4000), of(1, step(0, FUA, 2 * CHUNK, 8192)), remove(1)];
    steps.extend([of(1, fill(0, 3)), fill(0, 18), flush()]);
    directed("bound and leaving", s, prepare, steps, false).after(vec![of(1, fill(0, 3)), fill(0, 18), flush()])
}

/// A crash makes kept copies count no more, in memory; then the member that they are on leaves, and no commit has changed
/// the pages that name it: these must be read all the same.
fn leaves_with_forgotten_copies() -> Directed {
    let make = |n: u64| {
        let mut s = two_each();
        (s.seed, s.commit_ms) = (n + 1, 60_000);
        s.volumes[0].chunks = 6;
        s.volumes.push(crate::scenario::VolumeSpec { chunks: 19, placement: Placement::Auto });
        let of = |volume, s: Step| Step { volume, ..s };
        let heat = step(0, Act::Heat { times: 3 }, 0, 6 * CHUNK);
        // The fast tier is full, so that the other volume's chunks are born on the slow one; then they come up.
        let mut prepare = vec![of(1, fill(0, 19)), fill(0, 6), flush(), of(1, step(0, TRIM, 0, 19 * CHUNK)), flush()];
        prepare.extend((0..4).flat_map(|_| [heat, sleep(0, 900)]));
        // These two stay below.
        prepare.extend([step(0, TRIM, 0, CHUNK), step(0, TRIM, 2 * CHUNK, CHUNK)]);
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let point = CrashPoint { steps: 0, events: n };
        let session = s.quiet_session(vec![sleep(0, 1)], End::Crash(Crash::Power, point));
        s.sessions.push(session);
        // Of two disks the emptier one takes what is new. No orderly stop: that would save the heat, and so the page.
        let steps = vec![evacuate(3), remove(3), of(1, step(0, FUA, 8192, 4096)), sleep(0, 1)];
        let point = CrashPoint { steps: 3, events: n % 3 };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
        s.sessions.push(session);
        let read = vec![step(0, Act::Read, 0, 6 * CHUNK), fill(0, 6), of(1, fill(0, 19)), of(1, flush())];
        let session = s.quiet_session(read, End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("leaves with forgotten copies", make, 160)
}

/// A disk is to leave, of which nothing can be read any more, and which has copies of cold chunks of the SSD. New data come: such chunks
/// are let go, or demoted, but not to it. Later it works again.
fn leaves_with_copies() -> Directed {
    let make = |n: u64| {
        let disk = 1 + n as usize % 2;
        let mut s = group(96, 240, 220);
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 240, discard: true });
        (s.seed, s.reserve, s.commit_ms, s.journal) = (n + 1, 24, 1000, 64);
        let mut steps = vec![fill(0, 150), sleep(0, 15_000), step(0, TRIM, 0, 60 * CHUNK), flush(), sleep(0, 3000)];
        // One visit brings them up while there is plenty of room. What was there before is used more.
        steps.extend((0..26).map(|i| step(0, Act::Read, (100 + i * 7 % 26) * CHUNK, 4096)));
        let heat = step(0, Act::Heat { times: 6 }, 60 * CHUNK, 40 * CHUNK);
        steps.extend([sleep(0, 4000), heat, fill(150, 40), sleep(0, 6000)]);
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        let mut steps = vec![evacuate(disk)];
        for i in 0..40 {
            steps.extend([step(0, WRITE, i * 7 % 40 * CHUNK + i % 4 * 4096, 4096), sleep(0, 4)]);
        }
        steps.extend([sleep(0, 3000), step(0, Act::Read, 0, 220 * CHUNK)]);
        let end = match n % 3 {
            0 => End::Stop,
            _ => End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: n % 40 }),
        };
        let mut session = s.quiet_session(steps, end);
        session.faults[disk] = Faults { read_ppm: 1_000_000, data_only: true, limit: u32::MAX, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![remove(disk), step(0, Act::Read, 0, 220 * CHUNK)], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("leaves with copies of what the SSD has", make, 40).finds(&["C9DownToLeaver"])
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        leaves("fast member leaves", 0),
        leaves("slow member leaves", 2),
        leaves_and_another_dies(),
        dies_while_it_leaves("fast member dies while it leaves", 0),
        dies_while_it_leaves("slow member dies while it leaves", 2),
        written_all_the_time(),
        fails_while_it_leaves(),
        dies_as_it_is_called_off(),
        fails_as_it_stays(),
        fails_as_the_group_stops(),
        fails_and_is_back(),
        stands_still_when_it_is_empty(),
        stands_still_as_it_is_told_to_leave(),
        first_stands_still_when_it_is_empty(),
        goes_empty_and_comes(),
        replaced(),
        bound_and_leaving(),
        leaves_with_forgotten_copies(),
        leaves_with_copies(),
        added("fast member added", Tier::Fast),
        added("slow member added", Tier::Slow).finds(&["SlotsBeforeTable"]),
        added_and_alone(),
        room_for_more(),
    ]
}

//! Directed scenarios of volumes that come, go and change: a crash at every step of each, and what comes after it.

use bimetal_format::ENTRIES_PER_PAGE;
use bimetal_volume::units::{Placement, CHUNK};

use super::{directed, fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, Scenario, Step, VolumeSpec};
use crate::world::CrashPoint;

fn of(volume: usize, step: Step) -> Step {
    Step { volume, ..step }
}

fn make(volume: usize, chunks: u64, placement: Placement) -> Step {
    of(volume, step(0, Act::Make { chunks, placement, family: 0 }, 0, 0))
}

fn resize(volume: usize, chunks: u64) -> Step {
    of(volume, step(0, Act::Resize { chunks }, 0, 0))
}

fn delete(volume: usize) -> Step {
    of(volume, step(0, Act::Delete, 0, 0))
}

fn rename(volume: usize) -> Step {
    of(volume, step(0, Act::Rename, 0, 0))
}

fn read_all(volume: usize, chunks: u64) -> Step {
    of(volume, step(0, Act::Read, 0, chunks * CHUNK))
}

/// A group of these volumes.
fn with(fast: u64, slow: u64, volumes: &[u64]) -> Scenario {
    let mut s = group(fast, slow, 0);
    s.volumes = volumes.iter().map(|c| VolumeSpec { chunks: *c, placement: Placement::Auto }).collect();
    s
}

/// After the crash: the same pages are a new volume's, and more commits follow.
fn later(volume: usize, chunks: u64) -> Vec<Step> {
    let write = |i: u64| of(volume, step(0, FUA, i * 3 % chunks * CHUNK + 8192, 4096));
    let made = [make(volume, chunks, Placement::Auto), read_all(volume, chunks), write(0), write(1)];
    made.into_iter().chain([read_all(volume, chunks)]).collect()
}

fn made() -> Directed {
    let mut steps = vec![step(1, WRITE, 4096, 9000), make(1, 6, Placement::Auto)];
    steps.extend((0..4).map(|i| of(1, step(0, if i == 2 { FUA } else { WRITE }, i * CHUNK + 4096, 20_000))));
    steps.extend([step(1, FUA, 2 * CHUNK, 4096), make(2, 4, Placement::Auto), of(2, step(0, FUA, 0, CHUNK)), flush()]);
    directed("volume made", with(12, 24, &[10]), vec![fill(0, 8), flush()], steps, false).after(later(3, 5))
}

/// Written, trimmed and moved while it is copied onto a device, which is gone on with after the crash.
fn dissolved() -> Directed {
    let dissolve = step(0, Act::Dissolve, 0, 0);
    let mut steps = vec![dissolve];
    for i in 0..14 {
        let at = i * 5 % 14 * CHUNK + i * 4096;
        let act = [WRITE, TRIM, FUA][i as usize % 3];
        steps.extend([step(1, act, at, 9000), sleep(1, 1), step(2, WRITE, i * CHUNK / 2, 20_000)]);
    }
    steps.extend([dissolve, flush()]);
    let after = vec![dissolve, fill(0, 3), dissolve];
    directed("dissolved", with(12, 24, &[16]), vec![fill(0, 10), flush()], steps, false).after(after)
}

/// Two clients go on writing while the volume stands still for its copy, which is given up at any moment of that.
fn dissolved_until_given_up() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..with(12, 24, &[16]) };
        let prepare = s.quiet_session(vec![fill(0, 16), flush(), sleep(0, 3000)], End::Stop);
        let mut steps = vec![step(0, Act::Dissolve, 0, 1 + n * 100)];
        for i in 0..200 {
            let at = |by: u8| step(1 + by, WRITE, (i * 5 + u64::from(by) * 7) % 16 * CHUNK + i % 8 * 4096, 4096);
            let pause = |by: u8| Step { len: 800, ..sleep(1 + by, 0) };
            steps.extend([at(0), pause(0), at(1), pause(1)]);
        }
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.extend([prepare, session]);
        s
    };
    Directed::chain("dissolved until given up", make, 700).finds(&["DissolveStaysFrozen", "DissolvedAlthoughThawed"])
}

/// The slow disk dies at any of its requests, and says so or not, while clients write to it. A volume that lives on the SSD alone is
/// copied out of the group, which may take no writes any more.
fn dissolved_beside_a_dead_disk() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..with(12, 40, &[24]) };
        s.volumes.push(VolumeSpec { chunks: 4, placement: Placement::FastOnly });
        let prepare = vec![of(1, fill(0, 4)), fill(0, 24), flush(), sleep(0, 3000)];
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let mut steps: Vec<Step> = (0..24)
            .flat_map(|i| [step(1, if i % 2 == 0 { FUA } else { WRITE }, i * CHUNK, 8192), sleep(1, 5)])
            .collect();
        steps.extend([sleep(0, 400), of(1, step(0, Act::Dissolve, 0, 0)), read_all(1, 4)]);
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[1] = Faults { dies_after: 1 + n as u32 * 3 / 2, tells: n % 2 == 0, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("dissolved beside a dead disk", make, 100).finds(&["DissolveSyncsAll"])
}

/// Moves and requests are under way on what is deleted; its pages are at once another volume's.
fn deleted() -> Directed {
    let mut steps = vec![of(1, step(2, WRITE, 0, CHUNK)), fill(4, 10)];
    steps.extend((0..6).map(|i| step(1, if i % 2 == 0 { WRITE } else { TRIM }, (i * 5 % 16) * CHUNK, 9000)));
    steps.extend((0..3).map(|i| of(1, step(2, WRITE, i * CHUNK, 8192))));
    steps.extend([sleep(0, 2), delete(0), make(2, 15, Placement::Auto), read_all(2, 15)]);
    steps.extend((0..3).map(|i| of(2, step(0, FUA, i * 4 * CHUNK + 4096, 8192))));
    steps.extend([read_all(2, 15), of(1, flush()), delete(2), make(3, 16, Placement::Auto), read_all(3, 16)]);
    let prepare = vec![fill(0, 16), of(1, fill(0, 4)), sleep(0, 3000), flush(), of(1, flush())];
    directed("volume deleted", with(12, 24, &[16, 5]), prepare, steps, false).after(later(4, 14))
}

/// The slow member knows a deleted volume's chunks by heart, and is left alone.
fn deleted_and_alone() -> Directed {
    let prepare = vec![fill(0, 16), flush(), sleep(0, 30_000)];
    let steps =
        vec![sleep(0, 10), delete(0), make(1, 16, Placement::Auto), of(1, step(0, FUA, 3 * CHUNK, 4096)), sleep(0, 20)];
    directed("deleted and alone", with(12, 24, &[16]), prepare, steps, false).then(Damage::Missing(0))
}

/// Long writes wait for a short one, over which the SSD stands still, and their volume is deleted. When they go on, others have taken
/// what it was promised, and what is free was promised to a third volume (I5).
fn deleted_beside_waiting_writes() -> Directed {
    let make = |n: u64| {
        let volume = |chunks, placement| VolumeSpec { chunks, placement };
        let volumes = vec![volume(71, Placement::Auto), volume(8, Placement::FastOnly), volume(8, Placement::FastOnly)];
        let mut s =
            Scenario { seed: n + 1, commit_ms: 60_000, journal: 48, migrate: false, volumes, ..group(40, 60, 0) };
        s.reserve = 1;
        let mut steps = vec![of(1, step(3, WRITE, 0, 4096))];
        steps.extend((80..100).flat_map(|client| [sleep(client, 1), of(1, step(client, WRITE, 0, 8 * CHUNK))]));
        steps.extend([Step { client: 1, ..sleep(1, 2) }, Step { client: 1, ..delete(1) }]);
        steps
            .extend((0..71).flat_map(|i| [sleep(4 + i as u8, 4), step(4 + i as u8, WRITE, i * 37 % 71 * CHUNK, 8192)]));
        let third = [of(2, step(2, Act::Fill, 4 * CHUNK, 4 * CHUNK)), of(2, step(2, FUA, 0, 4096))];
        steps.extend([sleep(2, 1000 + n / 60)].into_iter().chain(third));
        let prepare = s.quiet_session(vec![of(2, fill(0, 4)), of(2, flush())], End::Stop);
        let end = CrashPoint { steps: steps.len() as u64, events: 0 };
        let mut session = s.quiet_session(steps, End::Crash(Crash::Power, end));
        // After what a start asks, roughly.
        session.faults[0] = Faults { stands_after: 10 + n as u32 % 60, stands_ms: 1000, ..Faults::default() };
        s.sessions.extend([prepare, session]);
        s
    };
    Directed::chain("volume deleted beside waiting writes", make, 600).finds(&["I5DeletedTakesSlots"])
}

/// Another client writes and trims behind the new end.
fn shrunk() -> Directed {
    let mut steps = Vec::new();
    for round in 0..4 {
        let at = (10 + round) * CHUNK;
        steps.extend([step(1, WRITE, at, CHUNK), step(1, TRIM, at, CHUNK), step(1, WRITE, at + CHUNK, 8192)]);
        steps.push(step(1, TRIM, 8 * CHUNK, 14 * CHUNK));
        steps.extend([sleep(0, round), resize(0, 8), step(0, FUA, 7 * CHUNK, 8192), resize(0, 20), read_all(0, 20)]);
        steps.push(step(0, if round % 2 == 0 { FUA } else { WRITE }, 9 * CHUNK, 4096));
    }
    directed("volume shrunk", with(12, 24, &[20]), vec![fill(0, 6), fill(12, 3), flush()], steps, false)
        .after([vec![resize(0, 30), read_all(0, 30), resize(0, 7)], later(1, 9)].concat())
}

/// First writes are on their way behind the new end when nothing lives there yet, for as long as they take.
fn shrunk_beside_writes() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..with(14, 28, &[30]) };
        let pause = Step { len: n * 30, ..sleep(0, 0) };
        let beside = vec![step(1, WRITE, 10 * CHUNK, 13 * CHUNK), step(2, WRITE, 23 * CHUNK, 7 * CHUNK)];
        let shrink = vec![pause, resize(0, 3), flush(), resize(0, 30), read_all(0, 30)];
        let steps = [beside, shrink].concat();
        let end = CrashPoint { steps: steps.len() as u64, events: 0 };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, end));
        s.sessions.push(session);
        s
    };
    Directed::chain("volume shrunk beside writes", make, 60)
}

/// A volume whose next pages are another's grows into pages elsewhere, and back; requests cross the border.
fn grown() -> Directed {
    let mut s = with(20, 640, &[300, 10]);
    s.journal = 16;
    let border = 504 * CHUNK;
    let mut steps = vec![step(1, WRITE, 299 * CHUNK, CHUNK), resize(0, 530), step(0, WRITE, border - 70_000, 150_000)];
    steps.extend([step(0, Act::Read, border - CHUNK, 2 * CHUNK), step(1, FUA, 520 * CHUNK, 8192), resize(0, 520)]);
    steps.extend([step(0, TRIM, 500 * CHUNK, 30 * CHUNK), flush(), resize(0, 260), make(2, 20, Placement::Auto)]);
    steps.extend([read_all(2, 20), of(2, step(0, FUA, 0, CHUNK)), resize(0, 520), read_all(0, 520)]);
    steps.push(step(0, FUA, 518 * CHUNK, CHUNK));
    let prepare = vec![fill(0, 6), of(1, fill(0, 3)), flush(), of(1, flush())];
    directed("volume grown", s, prepare, steps, false)
}

fn renamed() -> Directed {
    let steps = vec![
        rename(0),
        step(1, FUA, 4096, 8192),
        rename(0),
        rename(1),
        delete(1),
        make(2, 3, Placement::Auto),
        rename(2),
    ];
    directed("volume renamed", with(12, 24, &[10, 6]), vec![fill(0, 4), of(1, fill(0, 3)), flush()], steps, false)
}

/// The fast tier is full of what may leave it, and a volume is bound to it.
fn bound() -> Directed {
    let mut steps = vec![fill(0, 12), make(1, 4, Placement::FastOnly), of(1, fill(0, 4)), of(1, flush())];
    steps.extend([make(2, 3, Placement::SlowOnly), of(2, fill(0, 3)), of(2, flush()), resize(1, 6), of(1, fill(3, 3))]);
    steps.extend([delete(1), make(3, 5, Placement::FastOnly), read_all(3, 5), of(3, fill(0, 2)), of(3, flush())]);
    directed("bound volumes", with(12, 30, &[14]), vec![], steps, false)
}

/// All slots but the headroom are promised, and nearly all have data: chunks go down until a volume bound to the fast tier
/// has its room (I5).
fn bound_in_a_full_group() -> Directed {
    let steps = vec![make(1, 17, Placement::FastOnly), of(1, fill(0, 17)), of(1, flush()), read_all(0, 50)];
    let prepare = vec![fill(0, 50), flush(), sleep(0, 3000)];
    directed("bound in a full group", with(40, 40, &[50]), prepare, steps, false).after(vec![of(1, fill(0, 17))])
}

/// Volumes take the whole map, up to the last entry of its last page, and that one is used.
fn last_page() -> Directed {
    // The map of such a group has ten pages; each volume has some of its own.
    const LAST: usize = 9;
    let mut prepare: Vec<Step> = (1..LAST).map(|n| make(n, 1, Placement::Auto)).collect();
    prepare.extend([make(LAST, ENTRIES_PER_PAGE as u64, Placement::Auto), fill(0, 8), flush()]);
    let end = (ENTRIES_PER_PAGE as u64 - 2) * CHUNK;
    let mut steps = vec![of(LAST, step(0, WRITE, end, 2 * CHUNK)), of(LAST, flush())];
    steps.extend((0..12).flat_map(|_| [of(LAST, step(0, Act::Read, end, 2 * CHUNK)), sleep(0, 2000)]));
    steps.extend([of(LAST, step(0, TRIM, end, 2 * CHUNK)), of(LAST, step(0, FUA, end + CHUNK, 8192))]);
    directed("last page of the map", with(120, 240, &[10]), prepare, steps, false).finds(&["NeighbourBehindMap"])
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    let volumes = vec![
        made(),
        deleted(),
        deleted_and_alone(),
        deleted_beside_waiting_writes(),
        shrunk(),
        shrunk_beside_writes(),
        grown(),
        renamed(),
    ];
    volumes
        .into_iter()
        .chain([
            bound(),
            bound_in_a_full_group(),
            dissolved(),
            dissolved_until_given_up(),
            dissolved_beside_a_dead_disk(),
            last_page(),
        ])
        .collect()
}

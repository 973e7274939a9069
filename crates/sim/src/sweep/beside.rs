//! Disks that are lost or stand still, beside clients that need nothing of them.

use bimetal_format::ENTRIES_PER_PAGE;
use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::{fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::run::PLENTY;
use crate::scenario::{Act, End, MemberSpec, Scenario, Step, VolumeSpec};
use crate::world::CrashPoint;

/// Chunks of a region of the away bitmap.
pub(super) const REGION: u64 = ENTRIES_PER_PAGE as u64;

/// A step of the client of a volume.
fn of(volume: u8, s: Step) -> Step {
    Step { volume: volume.into(), client: volume, ..s }
}

/// Volumes on the SSD alone and on the disk alone come beside the first one; all hold something, so many chunks of the first.
fn beside_bound_ones(s: &mut Scenario, chunks: u64, rest_ms: u64) {
    s.volumes.push(VolumeSpec { chunks: 5, placement: Placement::FastOnly });
    s.volumes.push(VolumeSpec { chunks: 5, placement: Placement::SlowOnly });
    let prepare = vec![fill(0, chunks), of(1, fill(0, 5)), of(2, fill(0, 5)), flush(), sleep(0, rest_ms)];
    let session = s.quiet_session(prepare, End::Stop);
    s.sessions.push(session);
}

/// A disk stands still for minutes at any of its requests, beside clients of the SSD alone, of the disk alone, and of both.
pub(super) fn stands_still() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: n / 2 % 4 != 0, ..group(20, 40, 24) };
        beside_bound_ones(&mut s, 16, 3000);
        let mut steps = Vec::new();
        for i in 0..30 {
            for volume in 0..3 {
                let (at, act) = (i % 5 * CHUNK, [WRITE, FUA, Act::Read][(i + u64::from(volume)) as usize % 3]);
                steps.extend([of(volume, sleep(0, 700 + i % 7 * 500)), of(volume, step(0, act, at + i * 4096, 8192))]);
                steps.extend((i % 4 == 1).then(|| of(volume, flush())));
            }
        }
        let end = CrashPoint { steps: steps.len() as u64, events: 0 };
        let mut session = s.quiet_session(steps, if n % 3 == 0 { End::Stop } else { End::Crash(Crash::Power, end) });
        let stands_ms = [90_000, 300_000][n as usize / 2 % 2];
        session.faults[n as usize % 2] = Faults { stands_after: 1 + n as u32 / 3, stands_ms, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("stands still", make, 500).finds(&["FuaAsksAll"])
}

/// Zeros are really written to volumes on either tier by more clients than have turns, and the disk stands still.
pub(super) fn zeroing_beside_a_still_disk() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, inflight: PLENTY, ..group(20, 40, 24) };
        beside_bound_ones(&mut s, 8, 3000);
        let zeroes = Act::Zeroes { fua: false, no_hole: true, given_up: false };
        let mut steps = Vec::new();
        for i in 0..12 {
            for client in 2..7 {
                let zeroed = Step { volume: 2, ..step(client, zeroes, u64::from(client - 2) * CHUNK + i * 4096, 8192) };
                steps.extend([zeroed, Step { volume: 2, ..sleep(client, 300) }]);
            }
            steps.extend([of(1, step(0, zeroes, i % 5 * CHUNK, 8192)), of(1, sleep(0, 700))]);
        }
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[1] = Faults { stands_after: 1 + n as u32, stands_ms: 200_000, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("zeroing beside a disk that stands still", make, 60).finds(&["ZeroingsShareAll"])
}

/// A client of the SSD alone changes the map again and again, and one of two disks stands still, over a checkpoint of its own if not before.
pub(super) fn checkpoints_beside_a_still_disk() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, journal: 16, ..group(20, 40, 24) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 60, discard: true });
        beside_bound_ones(&mut s, 8, 3000);
        let mut steps = vec![of(1, sleep(0, 5000))];
        for i in 0..60 {
            let at = i % 5 * CHUNK;
            steps.extend([of(1, step(0, TRIM, at, CHUNK)), of(1, step(0, FUA, at, 8192)), of(1, sleep(0, 300))]);
        }
        let mut session = s.quiet_session(steps, End::Stop);
        let stands_after = 15 + n as u32 / 2;
        session.faults[1 + n as usize % 2] = Faults { stands_after, stands_ms: 200_000, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("checkpoints beside a disk that stands still", make, 60).finds(&["CheckpointsInOneTask"])
}

/// Clients of a volume on the disk take all the room that volumes share, and the disk stands still: what others ask of the SSD is longer than
/// the room that each volume has of its own.
pub(super) fn long_beside_a_still_disk() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, inflight: 2 * CHUNK, ..group(20, 40, 24) };
        beside_bound_ones(&mut s, 8, 3000);
        let mut steps = Vec::new();
        for i in 0..12 {
            for client in 2..7 {
                let written = step(client, WRITE, u64::from(client - 2) * CHUNK, CHUNK);
                steps.extend([written, sleep(client, 300)].map(|s| Step { volume: 2, ..s }));
            }
            let act = [WRITE, Act::Read][i as usize % 2];
            steps.extend([of(1, step(0, act, i % 5 * CHUNK, CHUNK)), of(1, sleep(0, 700))]);
        }
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[1] = Faults { stands_after: 1 + n as u32, stands_ms: 200_000, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("long requests beside a disk that stands still", make, 60).finds(&["LongAsksAll"])
}

/// The larger of two disks is lost, and says so, while new chunks come: they go to the other one.
pub(super) fn new_beside_a_lost_disk() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 30) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 60, discard: true });
        s.volumes[0].placement = [Placement::SlowOnly, Placement::Auto][n as usize % 2];
        let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps = vec![sleep(0, 5000), step(0, Act::Read, 0, 8 * CHUNK), sleep(0, 1000)];
        for first in [8, 14, 20] {
            steps.extend([fill(first, 6), flush(), step(1, FUA, (first + 2) * CHUNK, 8192), sleep(0, 3000)]);
        }
        steps.push(step(0, Act::Read, 0, 30 * CHUNK));
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[2] = Faults { dies_after: 1 + n as u32 / 2, tells: true, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 30 * CHUNK), fill(0, 30), flush()], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("new chunks beside a lost disk", make, 300).finds(&["LostTakesChunks", "LostOwesFailed"])
}

/// The larger of two disks stands still while new chunks come: they go to the other one.
pub(super) fn new_beside_a_still_disk() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, inflight: PLENTY, migrate: n % 4 != 3, ..group(8, 60, 60) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 120, discard: true });
        s.volumes[0].placement = [Placement::SlowOnly, Placement::Auto][n as usize % 2];
        let session = s.quiet_session(vec![fill(0, 8), flush(), sleep(0, 5000)], End::Stop);
        s.sessions.push(session);
        let mut steps = Vec::new();
        for i in 0..16u8 {
            // Each waits for nobody but itself.
            let at = (8 + u64::from(i) * 3) * CHUNK;
            let wait = sleep(i, 1000 + u64::from(i) * 2500);
            steps.extend([wait, step(i, [WRITE, FUA][i as usize % 2], at, CHUNK), step(i, WRITE, at + CHUNK, 8192)]);
        }
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[2] = Faults { stands_after: 1 + n as u32, stands_ms: 200_000, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("new chunks beside a disk that stands still", make, 80).finds(&["StillTakesChunks"])
}

/// What a volume on the SSD alone was promised is taken by chunks that can go down, because the SSD does not answer for a discard and then
/// stands still: its writer waits for the mover for as long as that stands still, and then until it has had its time.
pub(super) fn owed_by_a_still_ssd() -> Directed {
    let make = |n: u64| {
        let mut s =
            Scenario { seed: n + 1, sector: 4096, commit_ms: 5000, journal: 64, reserve: 1, ..group(16, 40, 46) };
        s.members[1].discard = false;
        s.volumes.push(VolumeSpec { chunks: 1, placement: Placement::FastOnly });
        let mut prepare = vec![of(1, fill(0, 1)), of(1, flush())];
        prepare.extend((0..14).map(|i| step(0, WRITE, i * CHUNK, 8192)));
        let crash = End::Crash(Crash::Power, CrashPoint { steps: prepare.len() as u64, events: 0 });
        let (new, end) = (1 + n / 2 % 2, if n % 2 == 0 { crash } else { End::Stop });
        let session = s.quiet_session(prepare, end);
        s.sessions.push(session);
        // The last free slots of the SSD are taken, and the mover waits for the one that comes.
        let mut steps: Vec<Step> = (30..30 + new).map(|i| step(0, WRITE, i * CHUNK, 8192)).collect();
        steps.extend([step(0, TRIM, 0, CHUNK), step(0, WRITE, 8192, 8192), flush()].map(|s| Step { volume: 1, ..s }));
        steps.extend([step(2, WRITE, 0, 8192), sleep(2, 1000 + n * 10), step(2, WRITE, n / 4 % 2 * 40 * CHUNK, 8192)]);
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[0] = Faults { stands_after: 1 + n as u32 / 8, stands_ms: 300_000, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("owed by an SSD that stands still", make, 240).finds(&["I5OwedCountsAll"])
}

/// A volume is encrypted, and its ciphertext goes to a disk that is new and stands still then: chunks go elsewhere, or wait for their turn,
/// and what was on its way there is on its way yet when others find room nowhere else.
pub(super) fn encrypted_beside_a_still_disk() -> Directed {
    const CHUNKS: u64 = 24;
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, inflight: PLENTY, migrate: n % 4 != 3, ..group(8, 34, CHUNKS) };
        s.volumes[0].placement = Placement::SlowOnly;
        s.spares.push(MemberSpec { tier: Tier::Slow, slots: 120, discard: true });
        let new = Act::Make { chunks: 60, placement: Placement::SlowOnly, family: 0 };
        let acts = [Act::AddMember { disk: 2 }, new, Act::MakeFamily { family: 1 }].map(|act| step(0, act, 0, 0));
        let [added, made, family] = acts;
        let prepare = vec![fill(0, CHUNKS), flush(), added, Step { volume: 1, ..made }, family, sleep(0, 5000)];
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let mut steps = vec![step(0, Act::Encrypt { family: 1 }, 0, 0)];
        for i in 0..20u8 {
            // Each waits for nobody but itself.
            let (wait, at) = (sleep(1 + i, u64::from(i) * 400), u64::from(i) * CHUNK);
            let new = Step { volume: 1, ..step(1 + i, [WRITE, FUA][i as usize % 2], at, CHUNK) };
            steps.extend([wait, step(1 + i, WRITE, at + 4096, 8192), new, step(1 + i, Act::Read, at, CHUNK)]);
        }
        steps.extend([
            sleep(0, 260_000),
            step(0, Act::Read, 0, CHUNKS * CHUNK),
            of(1, step(0, Act::Read, 0, 20 * CHUNK)),
        ]);
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[2] = Faults { stands_after: 20 + n as u32 / 2, stands_ms: 200_000, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, CHUNKS * CHUNK), fill(0, 4), flush()], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("encrypted beside a disk that stands still", make, 120).finds(&["AdriftFreedAtOnce"])
}

/// Many write at once to a volume that is being encrypted, and the disk stands still that most of it was to go to: others find their room,
/// which they were promised, taken by what is on its way there, and wait for that.
pub(super) fn encrypted_where_room_is_short() -> Directed {
    const CHUNKS: u64 = 24;
    const NEW: u64 = 16;
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, inflight: PLENTY, migrate: n % 4 != 3, ..group(8, 34, CHUNKS) };
        s.volumes[0].placement = Placement::SlowOnly;
        s.spares.push(MemberSpec { tier: Tier::Slow, slots: 12, discard: true });
        let new = Act::Make { chunks: NEW, placement: Placement::SlowOnly, family: 0 };
        let acts = [Act::AddMember { disk: 2 }, new, Act::MakeFamily { family: 1 }].map(|act| step(0, act, 0, 0));
        let [added, made, family] = acts;
        let prepare = vec![fill(0, CHUNKS), flush(), added, Step { volume: 1, ..made }, family, sleep(0, 5000)];
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let mut steps = vec![step(0, Act::Encrypt { family: 1 }, 0, 0)];
        for i in 0..CHUNKS as u8 {
            steps.extend([sleep(1 + i, 60 + n % 8 * 30), step(1 + i, WRITE, u64::from(i) * CHUNK + 4096, 8192)]);
        }
        for i in 0..NEW as u8 {
            let new = step(30 + i, WRITE, u64::from(i) * CHUNK, CHUNK);
            steps.extend([sleep(30 + i, 5000 + u64::from(i) * 100), Step { volume: 1, ..new }]);
        }
        steps.extend([
            sleep(0, 260_000),
            step(0, Act::Read, 0, CHUNKS * CHUNK),
            of(1, step(0, Act::Read, 0, NEW * CHUNK)),
        ]);
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[2] = Faults { stands_after: 20 + n as u32 / 2, stands_ms: 200_000, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("encrypted where room is short, beside a disk that stands still", make, 120)
        .finds(&["AdriftForgotten"])
}

/// The larger of two disks is lost, and says so, before or while it hears of regions of the map that new data come to; all there is lies on
/// others.
pub(super) fn new_regions_beside_a_lost_disk() -> Directed {
    let make = |n: u64| {
        let ahead = [1, 1, 2, 4][n as usize % 4];
        let mut s = Scenario { seed: n + 1, ahead, journal: 64, ..group(60, 2200, 8 * REGION) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 60, discard: true });
        let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps = vec![sleep(0, 5000)];
        for region in 1..8 {
            let at = region * REGION * CHUNK;
            steps.extend([step(0, WRITE, at, 8192), step(1, FUA, (8 + region) * CHUNK, 8192), flush()]);
            steps.extend([step(1, WRITE, 3 * CHUNK, 4096), sleep(1, 700), step(2, FUA, at - CHUNK, CHUNK + 4096)]);
            steps.extend([sleep(0, 1000), sleep(2, 900)]);
        }
        steps.extend([flush(), step(0, Act::Read, 0, 16 * CHUNK)]);
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[1] = Faults { dies_after: 1 + n as u32, tells: true, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, FUA, 5 * REGION * CHUNK, 8192), fill(0, 20), flush()], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("new regions beside a lost disk", make, 160).finds(&["AwayAtCommit", "AwayFailureLatches"])
}

/// The same of one that stands still: what others write and flush on the SSD is durable in time.
pub(super) fn new_regions_beside_a_still_disk() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ahead: 1, journal: 64, commit_ms: 60_000, ..group(60, 2200, 6 * REGION) };
        beside_bound_ones(&mut s, 8, 5000);
        let mut steps = vec![sleep(0, 3000), of(1, sleep(0, 3500)), of(2, sleep(0, 2000))];
        for i in 0..10 {
            steps.extend([of(2, step(0, Act::Read, i % 5 * CHUNK, 8192)), of(2, sleep(0, 700))]);
            steps.extend([of(1, step(0, WRITE, i % 5 * CHUNK, 8192)), of(1, flush()), of(1, sleep(0, 600))]);
            steps.extend((1..6).contains(&i).then(|| step(0, WRITE, i * REGION * CHUNK, 8192)));
            steps.push(sleep(0, 900));
        }
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[1] = Faults { stands_after: 1 + n as u32, stands_ms: 200_000, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("new regions beside a disk that stands still", make, 80).finds(&["AwayAtCommit"])
}

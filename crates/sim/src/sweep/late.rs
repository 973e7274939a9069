//! Writes fail, and land after all when what they were to change has been copied to another slot: a client reads it, flushes, and must
//! find it again.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::{fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::scenario::{Act, End, MemberSpec, Scenario, Session, Speed, Step, VolumeSpec};

/// Most of a disk's writes to slots fail.
fn failing(session: &mut Session, disk: usize) {
    session.faults[disk] = Faults { write_ppm: 800_000, late: true, limit: 1000, data_only: true, ..Faults::default() };
}

/// One client writes to each chunk, again and again; another makes it certain now and then, and reads all of it.
fn written_and_read(chunks: u64, n: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for i in 0..chunks * 30 {
        steps.extend([step(1, WRITE, i * 7 % chunks * CHUNK, 8192), Step { len: 2000 + n * 500, ..sleep(1, 0) }]);
    }
    for i in 0..100 {
        let at = i * 11 % chunks * CHUNK;
        steps.extend([sleep(2, 40), step(2, FUA, at + 65_536, 4096), Step { client: 2, ..flush() }]);
        steps.push(step(2, Act::Read, 0, chunks * CHUNK));
    }
    steps
}

/// A fast member is emptied, to one that is slow to write.
pub(super) fn moved() -> Directed {
    const CHUNKS: u64 = 40;
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(60, 60, CHUNKS) };
        s.spares.push(MemberSpec { tier: Tier::Fast, slots: 60, discard: false });
        let prepare = vec![fill(0, CHUNKS), flush(), step(0, Act::AddMember { disk: 2 }, 0, 0)];
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let mut steps = vec![step(0, Act::Evacuate { disk: 0 }, 0, 0)];
        steps.extend(written_and_read(CHUNKS, n % 8));
        steps.push(step(0, Act::Read, 0, CHUNKS * CHUNK));
        let mut session = s.quiet_session(steps, End::Stop);
        failing(&mut session, 0);
        session.speed[2] = Speed::Sick;
        s.sessions.push(session);
        s
    };
    Directed::chain("late writes on what moves", make, 60).finds(&["C2TaintedCopied"])
}

/// Chunks on the slow tier are read as a whole, and lifted for that, to a fast member that is slow to write.
pub(super) fn lifted() -> Directed {
    const FIRST: u64 = 41;
    const LIFTED: u64 = 21;
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, journal: 64, ..group(40, 80, 90) };
        let prepare = vec![fill(0, 64), sleep(0, 3000), step(0, TRIM, 0, 30 * CHUNK), flush(), sleep(0, 3500)];
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let mut steps = Vec::new();
        for at in (FIRST..FIRST + LIFTED).map(|c| c * CHUNK) {
            // The second visit makes it wanted.
            steps.extend([step(0, Act::Read, at, CHUNK), sleep(0, 250)]);
            steps.extend([step(0, WRITE, at, 8192), step(0, Act::Read, at, CHUNK), sleep(0, n % 8 * 5)]);
            steps.extend([step(0, FUA, (FIRST + LIFTED) * CHUNK, 4096), flush()]);
            steps.extend([step(0, Act::Read, at, 8192), sleep(0, 500), step(0, Act::Read, at, 8192)]);
        }
        let mut session = s.quiet_session(steps, End::Stop);
        failing(&mut session, 1);
        session.speed = vec![Speed::Sick, Speed::Ssd];
        s.sessions.push(session);
        s
    };
    Directed::chain("late writes on what is lifted", make, 60).finds(&["C2TaintedLifted"])
}

/// Chunks are encrypted, and their ciphertext goes to a disk that is slow to write.
pub(super) fn encrypted() -> Directed {
    const CHUNKS: u64 = 30;
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 80, CHUNKS) };
        s.volumes[0].placement = Placement::SlowOnly;
        s.volumes.push(VolumeSpec { chunks: 10, placement: Placement::SlowOnly });
        s.spares.push(MemberSpec { tier: Tier::Slow, slots: 200, discard: false });
        let prepare =
            [fill(0, CHUNKS), Step { volume: 1, ..fill(0, 10) }, flush(), step(0, Act::AddMember { disk: 2 }, 0, 0)];
        let made = step(0, Act::MakeFamily { family: 1 }, 0, 0);
        let session = s.quiet_session([&prepare[..], &[made]].concat(), End::Stop);
        s.sessions.push(session);
        let mut steps = vec![sleep(0, 20 + n), step(0, Act::Encrypt { family: 1 }, 0, 0)];
        for i in 0..600 {
            steps.extend([step(1, WRITE, i % 6 * CHUNK, 8192), sleep(1, 5)]);
        }
        for i in 0..500 {
            steps.extend([
                sleep(2, 25),
                Step { volume: 1, ..step(2, FUA, i % 10 * CHUNK, 4096) },
                Step { client: 2, ..flush() },
            ]);
            steps.push(step(2, Act::Read, 0, 6 * CHUNK));
        }
        let mut session = s.quiet_session(steps, End::Stop);
        failing(&mut session, 1);
        session.speed = vec![Speed::Ssd, Speed::Ssd, Speed::Sick];
        s.sessions.push(session);
        s
    };
    Directed::chain("late writes on what is encrypted", make, 60).finds(&["C2TaintedEncrypted"])
}

//! Directed scenarios of several crashes, each of which must come at a certain moment for the next to matter: a commit
//! of one or two journal blocks is cut off, then perhaps the recovery from that, then a later commit. Every point has a
//! seed of its own, and so other blocks that survive.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::{fill, flush, sleep, step, Directed, FUA, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Act, End, MemberSpec, Scenario, Step, VolumeSpec};
use crate::world::CrashPoint;

/// Crash points of a commit on three fast members, roughly.
const COMMIT: u64 = 20;
/// Chunks of a commit that takes two journal blocks.
const TWO_BLOCKS: u64 = 7;

fn group(fast: usize, seed: u64, tear: bool) -> Scenario {
    let member = |tier| MemberSpec { tier, slots: 40, discard: false };
    let mut members = vec![member(Tier::Fast); fast];
    members.push(member(Tier::Slow));
    Scenario {
        seed,
        sector: 512,
        journal: 48,
        records: 4,
        tear,
        reserve: 3,
        commit_ms: 60_000,
        burst: 0,
        inflight: 0,
        ahead: 0,
        migrate: false,
        members,
        spares: Vec::new(),
        volumes: vec![VolumeSpec { chunks: 80, placement: Placement::Auto }],
        sessions: Vec::new(),
        liveness: false,
        outlives: false,
    }
}

/// A session that the power ends `events` points after its steps but the last.
fn cut(s: &mut Scenario, steps: Vec<Step>, events: u64) {
    let point = CrashPoint { steps: steps.len().saturating_sub(1) as u64, events };
    let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
    s.sessions.push(session);
}

/// All of these are read back; the power goes when everything is answered.
fn used(s: &mut Scenario, steps: Vec<Step>) {
    let point = CrashPoint { steps: steps.len() as u64, events: 0 };
    let session = s.quiet_session(steps, End::Crash(Crash::Power, point));
    s.sessions.push(session);
    let session = s.quiet_session(vec![step(0, Act::Read, 0, 80 * CHUNK)], End::Stop);
    s.sessions.push(session);
}

fn each(act: Act, chunks: std::ops::Range<u64>) -> Vec<Step> {
    chunks.map(|c| step(0, act, c * CHUNK, CHUNK)).collect()
}

/// Both sides of the away block in the scenario of [`away_unread`].
const AWAY_BLOCK: (u64, u64) = (342, 344);

/// Several chunks in one commit.
fn one_commit() -> Vec<Step> {
    [each(WRITE, 10..10 + TWO_BLOCKS), vec![flush()]].concat()
}

/// A commit is torn, and after the recovery the next one is too, in the same place of the journal.
pub(super) fn torn_twice() -> Directed {
    let make = |n: u64| {
        let mut s = group(3, n + 1, true);
        let session = s.quiet_session(vec![fill(0, 4)], End::Stop);
        s.sessions.push(session);
        for (chunk, events) in [(20, n % COMMIT), (21, n / COMMIT % COMMIT)] {
            cut(&mut s, vec![sleep(0, 1), step(0, FUA, chunk * CHUNK, 4096)], events);
        }
        s
    };
    Directed::chain("torn twice", make, COMMIT * COMMIT * 6)
}

/// A commit is whole on one fast member and half there on another, whose journal began earlier. What is overwritten in
/// place after the recovery needs all of it.
pub(super) fn half_a_commit() -> Directed {
    let make = |n: u64| {
        let mut s = group(2, n + 1, false);
        let mut steps = each(FUA, 0..7);
        // Heat is saved every hour, on the first fast member only: its journal begins anew.
        steps.extend([sleep(0, 3_700_000), step(0, FUA, 7 * CHUNK, CHUNK), sleep(0, 1000)]);
        steps.extend(one_commit());
        cut(&mut s, steps, 6 + n % 8);
        used(&mut s, [each(FUA, 10..10 + TWO_BLOCKS), each(FUA, 30..31)].concat());
        s
    };
    Directed::chain("half a commit", make, 2400)
}

/// A commit that is half there on the first member is appended to it again, and that is cut off in the middle.
pub(super) fn catch_up_cut_off() -> Directed {
    let make = |n: u64| {
        let mut s = group(2, n + 1, false);
        cut(&mut s, [each(FUA, 0..3), one_commit()].concat(), 8 + n % 2);
        cut(&mut s, Vec::new(), 51 + n / 2 % 8);
        used(&mut s, each(FUA, 30..38));
        s
    };
    Directed::chain("catch-up cut off", make, 5000)
}

/// A chunk goes down while a commit is under way, and is trimmed before the next: the record of that names neither its slot
/// nor the slow member, whose journal has the prepared record of the move. It takes a moment that random runs meet once in
/// hundreds of thousands; this is the one that they met, made smaller.
pub(super) fn left_as_soon_as_it_came() -> Directed {
    let make = |n: u64| {
        let found = crate::text::parse(include_str!("left_as_soon_as_it_came.txt"));
        let mut s = found.expect("the file beside this one is a scenario");
        // The moment differs a little from seed to seed: one of them meets it, whatever the mover does by then.
        s.seed += n;
        s
    };
    Directed::chain("left as soon as it came", make, 1000).finds(&["LeftUntold"])
}

/// Away blocks of the slow member cannot be read at one start, and at the next they can: what was to count as all set must be
/// written so, or the slow member alone calls lost data never written. The first was found by a random run, made smaller.
pub(super) fn away_unread() -> Directed {
    let make = |n: u64| {
        let mut s =
            crate::text::parse(include_str!("away_unread.txt")).expect("the file beside this one is a scenario");
        if n > 0 {
            s.seed = n;
            s.sessions[0].faults[1].read_ppm = 400_000;
        }
        s
    };
    Directed::chain("away blocks unread", make, 100)
}

/// The same, of a group that was opened often, and blocks that cannot be read may not take what they count as either: then the
/// start is refused, and at the next the other side must be newer than what comes back.
pub(super) fn away_unwritten() -> Directed {
    let make = |n: u64| {
        let mut s =
            crate::text::parse(include_str!("away_unread.txt")).expect("the file beside this one is a scenario");
        // It takes a certain chance of the faults; the first seed has it.
        s.seed = n + 10_249;
        let (mut faulty, alone) = (s.sessions.remove(0), s.sessions.remove(0));
        for chunk in 0..3 + n % 2 {
            let session = s.quiet_session(vec![step(0, FUA, chunk * CHUNK, 4096)], End::Stop);
            s.sessions.push(session);
        }
        let faults = Faults { write_ppm: 500_000, area: AWAY_BLOCK, ..Faults::default() };
        faulty.faults[1] = Faults { read_ppm: 1_000_000, write_ppm: 1_000_000, limit: 3, ..faults };
        s.sessions.push(faulty.clone());
        faulty.faults[1] = Faults { read_ppm: 500_000, limit: 2, ..faults };
        s.sessions.extend([faulty, alone]);
        s
    };
    Directed::chain("away blocks unwritten", make, 600)
}

/// A client's write to a member fails and lands later, when the volume stands still for the end of its copy: what is compared
/// differs from what was written, and no device is to blame. Found by a random run, made smaller.
pub(super) fn failed_writes_land_late() -> Directed {
    let make = |_| {
        let found = crate::text::parse(include_str!("failed_writes_land_late.txt"));
        found.expect("the file beside this one is a scenario")
    };
    Directed::chain("failed writes land late", make, 1)
}

/// Of a commit's blocks a later one is kept and the first is not. The end that the next start puts in its place, or a
/// short commit after it, must not be continued by what lies behind.
pub(super) fn kept_behind_the_end() -> Directed {
    let make = |n: u64| {
        let mut s = group(1, n + 1, false);
        s.volumes[0].chunks = 60;
        let three_blocks = [each(WRITE, 10..21), vec![flush()]].concat();
        cut(&mut s, [each(FUA, 0..2), three_blocks].concat(), 3 + n / 2 % 3);
        let read = step(0, Act::Read, 0, 60 * CHUNK);
        let short = each(FUA, 30..30 + n / 6 % 2);
        let steps = [vec![read], short].concat();
        let end = CrashPoint { steps: steps.len() as u64, events: 0 };
        let session = s.quiet_session(steps, End::Crash(Crash::Power, end));
        s.sessions.push(session);
        let session = s.quiet_session(vec![read], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("kept behind the end", make, 600).finds(&["C6NoChain"])
}

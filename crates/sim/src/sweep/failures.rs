//! Directed scenarios in which a device fails while requests are on their way. Every point has a seed of its own, and
//! so other moments.

use bimetal_volume::units::{Placement, CHUNK};

use super::{directed, fill, flush, group, hot, records, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::run::{FIRST_PAGE, SLOTS_START};
use crate::scenario::{Act, Damage, End, Scenario, Speed, Step, VolumeSpec};
use crate::world::CrashPoint;

/// Chunks that hold something old behind their first block.
const CHUNKS: u64 = 6;

/// Discards that are carried out a minute or two after what was in the slots has left: nobody waits for them, and nobody else gets
/// those slots meanwhile.
pub(super) fn hanging_discards() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, ..group(16, 24, 30) };
        let trim = |first, chunks| step(0, TRIM, first * CHUNK, chunks * CHUNK);
        let mut steps = vec![fill(0, 26), flush(), trim(n % 8, 4), trim(14, 4), flush(), sleep(0, 40_000)];
        // As much as there is room for: slots that were freed are taken.
        steps.extend([fill(0, 12), fill(26, 2), flush(), sleep(0, 100_000), step(0, Act::Read, 0, 28 * CHUNK)]);
        let end = match n % 3 {
            0 => End::Stop,
            _ => End::Crash(Crash::Power, CrashPoint { steps: 5 + n % 7, events: n % 11 }),
        };
        let mut session = s.quiet_session(steps, end);
        for disk in 0..2 {
            session.faults[disk] = Faults { hang_ppm: 700_000, limit: 2, ..Faults::default() };
        }
        s.sessions.push(session);
        s
    };
    Directed::chain("discards hang", make, 60)
}

/// A volume is bound to the fast tier and was promised nearly all of it; the slow one has much room. Its chunks go, the discard of their
/// slots is not answered, and they come back.
pub(super) fn hung_discards_of_bound() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: n % 2 == 0, ..group(40, 200, 34) };
        s.volumes[0].placement = Placement::FastOnly;
        let all = |act| step(0, act, 0, 34 * CHUNK);
        let steps =
            vec![fill(0, 34), flush(), all(TRIM), flush(), sleep(0, 60_000), fill(0, 34), flush(), all(Act::Read)];
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults[0] = Faults { hang_ppm: 700_000, limit: 2, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("discards hang under a bound volume", make, 40).finds(&["I5KeptBackOfBound"])
}

/// Each disk leaves a discard unanswered when a volume is deleted; then others are made: one of all that there is but for what is kept
/// back, which is refused, and one that fits.
pub(super) fn made_beside_kept_back() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, journal: 64, ..group(40, 100, 8) };
        s.members.extend(vec![s.members[1].clone(); 2]);
        s.volumes.push(VolumeSpec { chunks: 260, placement: Placement::Auto });
        let of = |volume, s: Step| Step { volume, ..s };
        let made =
            |volume, chunks| of(volume, step(0, Act::Make { chunks, placement: Placement::Auto, family: 0 }, 0, 0));
        let mut steps = vec![of(1, fill(0, 260)), of(1, flush()), of(1, step(0, Act::Delete, 0, 0)), sleep(0, 60_000)];
        for (volume, chunks) in [(2, 290 - n % 20), (3, 60)] {
            steps.extend([made(volume, chunks), of(volume, fill(0, chunks)), of(volume, flush())]);
        }
        steps.push(fill(0, 8));
        let mut session = s.quiet_session(steps, End::Stop);
        session.faults.iter_mut().for_each(|f| *f = Faults { hang_ppm: 1_000_000, limit: 1, ..Faults::default() });
        s.sessions.push(session);
        s
    };
    Directed::chain("volume made beside what is kept back", make, 20).finds(&["I5KeptBackPromised"])
}

/// The SSD does not die, but stalls for seconds again and again: what clients and moves do comes to an end all the same.
pub(super) fn sick_ssd() -> Directed {
    let mut steps = vec![fill(0, 14), flush(), sleep(0, 4000), step(1, FUA, 3 * CHUNK, 8192)];
    steps.extend(hot(2));
    steps.extend([step(0, TRIM, 5 * CHUNK, CHUNK), fill(14, 8), flush(), step(1, Act::Read, 0, 22 * CHUNK)]);
    let mut d = directed("sick SSD", group(12, 40, 34), vec![fill(20, 4), flush()], steps, true);
    d.scenario.liveness = true;
    d.scenario.sessions.last_mut().expect("the swept one").speed[0] = Speed::Sick;
    d
}

/// Blocks that were trimmed are written again while a sync fails: what their slots held before must not come back.
pub(super) fn written_while_a_sync_fails() -> Directed {
    let make = |n: u64| {
        // Few have the sync fail at the right moment; the first does.
        let mut s = Scenario { seed: n + 71, migrate: false, ..group(12, 24, 32) };
        let trims = (0..CHUNKS).map(|c| step(0, TRIM, c * CHUNK + 4096, CHUNK - 4096));
        // Neighbours do not lie next to each other, because others are there already: a write of two is two requests, one
        // of which may be done before the sync.
        let fills = [9, 11, 13, 0, 2, 4, 1, 3, 5].map(|c| fill(c, 1)).to_vec();
        let prepare = [fills, vec![flush()], trims.collect(), vec![flush()]].concat();
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let mut steps = Vec::new();
        for i in 0..3 * CHUNKS {
            let (c, client) = (i * 2 % CHUNKS, 1 + i as u8 % 3);
            steps.push(step(0, FUA, (16 + i % 8) * CHUNK, 4096));
            // The first part is done long before the second.
            steps.push(step(client, WRITE, (c + 1) * CHUNK - 8192, CHUNK + 4096));
            steps.push(step(client, Act::Read, c * CHUNK, 2 * CHUNK));
            steps.push(step(client, TRIM, c * CHUNK + 4096, 2 * CHUNK - 8192));
            // Until a commit has taken the change: chunks with one are in doubt anyway.
            steps.push(sleep(client, 2));
        }
        let end = End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 });
        let mut session = s.quiet_session(steps, end);
        session.faults[0] = Faults { sync_ppm: 40_000, limit: 1, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("written while a sync fails", make, 800).finds(&["C11LateMask", "C11ReadUnnoticed"])
}

/// A sync fails, and what it has lost is still shown to the next daemon, which goes on from there. Then the power goes.
pub(super) fn shown_but_lost() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, ..group(24, 24, 32) };
        let session = s.quiet_session(vec![fill(0, 6), flush()], End::Stop);
        s.sessions.push(session);
        let writes = |first: u64| (0..16).map(move |i| step(0, FUA, ((first + i) % 32) * CHUNK, 4096));
        let end = |crash, steps| End::Crash(crash, CrashPoint { steps, events: 0 });
        let mut session = s.quiet_session(writes(8).collect(), end(Crash::Daemon, 16));
        let disk = usize::from(n % 4 == 3);
        session.faults[disk] = Faults { sync_ppm: 60_000, limit: 1, shows: true, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(writes(20).collect(), end(Crash::Power, 4 + n % 12));
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 32 * CHUNK)], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("shown but lost", make, 1000).finds(&["C7ShownIsDurable"])
}

/// The same of the away bits that a start sets after an orderly stop: what is written by the next one is known to the fast member alone,
/// which then is gone.
pub(super) fn away_shown_but_lost() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, ..group(24, 24, 32) };
        let session = s.quiet_session(vec![fill(0, 6), flush()], End::Stop);
        s.sessions.push(session);
        let end = |crash, steps, events| End::Crash(crash, CrashPoint { steps, events });
        let mut session = s.quiet_session(Vec::new(), end(Crash::Daemon, 0, 200));
        session.faults[1] = Faults { sync_ppm: 300_000, limit: 1, shows: true, ..Faults::default() };
        s.sessions.push(session);
        let writes = (0..12).map(|i| step(0, FUA, (10 + i) * CHUNK, 4096)).collect();
        let session = s.quiet_session(writes, end(Crash::Power, 12, n % 7));
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 32 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Missing(0));
        s.sessions.push(session);
        s
    };
    Directed::chain("away bits shown but lost", make, 100).finds(&["C7AwayShownIsDurable"])
}

/// The same of a label that a start writes; the next one is cut off while it writes them.
pub(super) fn labels_shown_but_lost() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, ..group(24, 24, 32) };
        let session = s.quiet_session(vec![fill(0, 6), flush()], End::Stop);
        s.sessions.push(session);
        let end = |crash, events| End::Crash(crash, CrashPoint { steps: 0, events });
        let mut session = s.quiet_session(Vec::new(), end(Crash::Daemon, 200));
        session.faults[n as usize % 2] = Faults { sync_ppm: 300_000, limit: 1, shows: true, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(Vec::new(), end(Crash::Power, 30 + n / 2 % 60));
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 32 * CHUNK)], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("labels shown but lost", make, 600).finds(&["C7LabelShownIsDurable"])
}

/// A map page that a checkpoint writes does not arrive as it was sent: the journal that it stands for must stay.
pub(super) fn garbled_page() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 32) };
        let session = s.quiet_session(vec![fill(0, 4), flush()], End::Stop);
        s.sessions.push(session);
        let steps = records(40, FUA);
        let end = End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 });
        let mut session = s.quiet_session(steps, end);
        // The pages lie behind labels and journal.
        let from = FIRST_PAGE + u64::from(s.journal);
        session.faults[0] = Faults { garbled_ppm: 500_000, garbled_from: from, limit: 1000, ..Faults::default() };
        s.sessions.push(session);
        let again = s.quiet_session(records(4, FUA), End::Stop);
        s.sessions.push(again);
        s
    };
    Directed::chain("garbled page", make, 100)
}

/// The page directory of the slow member cannot be read at a start, which is cut off while it writes that member's map anew: what
/// is there of the old directory and what of the new one must not be taken for one.
pub(super) fn directory_unread() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, tear: n % 4 == 0, ..group(12, 24, 16) };
        s.volumes.push(VolumeSpec { chunks: 12, placement: Placement::Auto });
        let second = |act, chunk| Step { volume: 1, ..step(0, act, chunk * CHUNK, 4096) };
        let session = s.quiet_session(vec![fill(0, 6), second(WRITE, 0), flush()], End::Stop);
        s.sessions.push(session);
        // The page of the first volume is older than the directory, which is on the side that a new one begins with.
        let mut steps = Vec::new();
        for round in 0..2 {
            steps.extend((0..6).map(|i| second(FUA, round * 6 + i)));
            steps.push(sleep(0, 2500));
        }
        let end = End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 });
        let session = s.quiet_session(steps, end);
        s.sessions.push(session);
        // When the map is being written.
        let end = End::Crash(Crash::Power, CrashPoint { steps: 0, events: 48 + n % 60 });
        let mut session = s.quiet_session(Vec::new(), end);
        let pages = FIRST_PAGE + u64::from(s.journal);
        // As often as a start asks.
        session.faults[1] = Faults { read_ppm: 1_000_000, limit: 5, area: (pages, pages + 64), ..Faults::default() };
        s.sessions.push(session);
        let again = s.quiet_session(vec![step(0, Act::Read, 0, 6 * CHUNK)], End::Stop);
        s.sessions.push(again);
        s
    };
    Directed::chain("directory unread, and its map half written", make, 480).finds(&["C5NewUnderOldName"])
}

/// A write fails, the same blocks are written again at once, and then the first one lands after all.
pub(super) fn late_over_newer() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, ..group(12, 24, 16) };
        let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps = Vec::new();
        for i in 0..24 {
            let at = i % 8 * CHUNK + i * 4096;
            steps.push(step(0, WRITE, at, 16_384));
            steps.push(step(0, if i % 2 == 0 { FUA } else { WRITE }, at, 8192));
            steps.push(step(0, Act::Read, at, 16_384));
        }
        let end = End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 });
        let mut session = s.quiet_session(steps, end);
        session.faults[0] = Faults { write_ppm: 300_000, late: true, limit: 40, data_only: true, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("late over newer", make, 100)
}

/// Several writes to one slot fail, the later ones while a sync runs for the first; all may still land, some over what their
/// clients write again meanwhile, some over what comes to the slot next.
pub(super) fn several_fail_beside_a_sync() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: false, commit_ms: 60_000, ..group(12, 24, 16) };
        let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps = Vec::new();
        for i in 0..8 {
            steps.extend([step(0, WRITE, i * CHUNK, 8192), step(0, WRITE, i * CHUNK, 8192), sleep(0, 600)]);
            for client in 1..3 {
                let at = i * CHUNK + u64::from(client) * 16_384;
                // When the sync that the first client waits for has ended.
                steps.extend([step(client, WRITE, at, 8192), sleep(client, 400), step(client, FUA, at, 8192)]);
                steps.extend([step(client, Act::Read, at, 8192), sleep(client, 200)]);
            }
        }
        let end = End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 });
        let mut session = s.quiet_session(steps, end);
        session.faults[0] = Faults { write_ppm: 500_000, late: true, limit: 60, data_only: true, ..Faults::default() };
        session.speed[0] = Speed::Sick;
        s.sessions.push(session);
        s
    };
    Directed::chain("several fail beside a sync", make, 1000).finds(&["C2TaintBySlot"])
}

/// A write gives a chunk its first home, and ends in a block of the next one that cannot be read.
pub(super) fn edge_unread() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: n % 2 == 0, ..group(12, 24, 30) };
        let session = s.quiet_session(vec![fill(0, 20), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps: Vec<Step> = (0..10).map(|i| step(0, TRIM, 2 * i * CHUNK, CHUNK)).collect();
        for i in 0..10 {
            let client = (i % 3) as u8;
            steps.push(step(client, if i % 2 == 0 { FUA } else { WRITE }, 2 * i * CHUNK, CHUNK + 700));
            steps.push(sleep(client, n % 4 * 70));
        }
        let mut session = s.quiet_session(steps, End::Stop);
        for faults in &mut session.faults {
            *faults = Faults { read_ppm: 500_000, limit: 6, data_only: true, ..Faults::default() };
        }
        s.sessions.push(session);
        s
    };
    Directed::chain("edge unread", make, 40)
}

/// Each page of the map gives one slot to two chunks, with a correct checksum: one of them would be served the other's data.
pub(super) fn two_claim_one_slot() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 32) };
        let steps = vec![fill(0, 2 + n % 20), sleep(0, n % 3 * 1500), step(0, FUA, n % 10 * CHUNK, 4096)];
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        let mut session = s.quiet_session(vec![step(0, Act::Read, 0, 24 * CHUNK)], End::Stop);
        session.damage = Some(Damage::Forged);
        s.sessions.push(session);
        s
    };
    Directed::chain("two claim one slot", make, 60)
}

/// A place of each disk takes no write. New data come to it, alone and together with others, and go elsewhere; with `late` the first may
/// land there after all, when others have that place.
pub(super) fn place_takes_no_write() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, migrate: n % 2 == 0, ..group(24, 40, 44) };
        let session = s.quiet_session(vec![fill(0, 8), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps = Vec::new();
        for round in 0..3 {
            for i in 0..10 {
                let (at, len) = ((8 + 3 * i) * CHUNK + i % 2 * 8192, (1 + i % 3) * CHUNK - i % 4 * 4096);
                steps.push(step(0, if (i + round) % 4 == 0 { FUA } else { WRITE }, at, len));
                steps.push(step(1, Act::Read, (6 + 3 * i) * CHUNK, 4 * CHUNK));
            }
            steps.extend([
                flush(),
                step(0, TRIM, 8 * CHUNK, 30 * CHUNK),
                sleep(0, round * 1500),
                sleep(1, round * 1500),
            ]);
        }
        let end = match n % 3 {
            0 => End::Stop,
            _ => End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64 / 2 + n % 30, events: n % 7 }),
        };
        let mut session = s.quiet_session(steps, end);
        let first = SLOTS_START / 4096 + (6 + n % 18) * 32;
        let area = (first, first + 32);
        let bad = Faults { write_ppm: 1_000_000, limit: 1000, late: n % 4 == 1, area, ..Faults::default() };
        session.faults.iter_mut().for_each(|f| *f = bad);
        s.sessions.push(session);
        s
    };
    Directed::chain("a place takes no write", make, 200).finds(&["NewChunkTriedOnce"])
}

/// A disk dies while chunks move in both directions and clients write to both tiers, at any of its requests, and says so or not. It is back
/// for the next start.
pub(super) fn dies_in_use() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 40, 34) };
        let session = s.quiet_session(vec![fill(0, 24), flush()], End::Stop);
        s.sessions.push(session);
        let mut steps = vec![fill(24, 6), step(1, FUA, 3 * CHUNK, 8192)];
        steps.extend(hot(2));
        steps.extend([step(0, TRIM, 5 * CHUNK, CHUNK), step(1, WRITE, 8 * CHUNK, 4 * CHUNK), flush()]);
        steps.extend([step(2, Act::Read, 0, 30 * CHUNK), sleep(0, 20_000), fill(0, 4), flush()]);
        steps.extend([step(1, FUA, 20 * CHUNK, 4096), step(2, Act::Read, 0, 30 * CHUNK)]);
        let end = match n % 3 {
            0 => End::Crash(Crash::Power, CrashPoint { steps: steps.len() as u64, events: 0 }),
            _ => End::Stop,
        };
        let mut session = s.quiet_session(steps, end);
        session.faults[n as usize % 2] =
            Faults { dies_after: 1 + n as u32 / 4, tells: n / 2 % 2 == 0, ..Faults::default() };
        s.sessions.push(session);
        s
    };
    Directed::chain("dies in use", make, 1200)
}

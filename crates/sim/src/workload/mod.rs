//! Random scenarios. Swarm testing: each seed draws which features it uses and how much, so that runs differ in kind.

mod check;
mod crowd;
mod dissolve;
mod dying;
mod family;
mod hanging;
mod left;
mod members;
mod returned;
mod structure;
mod wide;

use bimetal_volume::units::{Placement, Tier, CHUNK};

use crate::disk::Faults;
use crate::oracle::Crash;
use crate::prng::Prng;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Session, Speed, Step, VolumeSpec};
use crate::world::CrashPoint;

const BLOCK: u64 = 4096;
/// Waves of a session.
const WAVES: u64 = 5;
/// Runs in a million that change their volumes.
const CHANGING_PPM: u32 = 400_000;
const CHANGES: u64 = 0x766f_6c75_6d65;
/// Runs in a million that change their members.
const MEMBERS_PPM: u32 = 180_000;
const MEMBERS: u64 = 0x6d65_6d62_6572;
/// Runs in which volumes are copied onto a device.
const DISSOLVES_PPM: u32 = 60_000;
const DISSOLVES: u64 = 0x6c65_6176_6573;
/// Runs in a million that have families.
const FAMILIES_PPM: u32 = 150_000;
const FAMILIES: u64 = 0x6661_6d69_6c79;
/// Runs in a million in which requests wait for each other: they are many, or large, or little may be in flight.
const CROWDS_PPM: u32 = 100_000;
const CROWDS: u64 = 0x63_726f_7764;
/// Runs in a million of which the map has many pages.
const WIDE_PPM: u32 = 60_000;
const WIDE: u64 = 0x7769_6465;
/// Runs in a million in which the group is verified while it is in use.
const CHECKS_PPM: u32 = 100_000;
const CHECKS: u64 = 0x6368_6563_6b73;
/// Of these those in which a check has something to mend.
const MENDS_PPM: u32 = 400_000;
/// Runs in a million in which clients die, and others come in their place.
const DYING_PPM: u32 = 100_000;
const DYING: u64 = 0x64_7969_6e67;
/// Runs in a million in which requests for some zone of the metadata fail.
const AREAS_PPM: u32 = 60_000;
const AREAS: u64 = 0x61_7265_6173;
/// Runs in a million in which pages of the map, or a journal, rot while the group is down, and the start that mends them is cut off.
const ROTS_PPM: u32 = 80_000;
const ROTS: u64 = 0x72_6f74_7061_6765;
/// Runs in a million in which a disk dies while it is used, to be back for the next session.
const DEATHS_PPM: u32 = 160_000;
const DEATHS: u64 = 0x64_6561_7468;
/// Runs in a million in which members that leave are not there at the next start.
const LEFT_PPM: u32 = 120_000;
const LEFT: u64 = 0x6c65_6674;
/// Runs in a million in which a change is cut off, or all disks are copied, and a member is lost or comes back as it was.
const RETURNED_PPM: u32 = 40_000;
const RETURNED: u64 = 0x7265_7475_726e;
/// Runs in a million in which a disk stands still for a while.
const HANGS_PPM: u32 = 50_000;
const HANGS: u64 = 0x68_616e_6773;
/// Runs in a million in which away bits are set for few regions at a time: that of a volume which is made is not set then.
const REGIONS_PPM: u32 = 300_000;
const REGIONS: u64 = 0x72_6567_696f_6e73;

/// What one run likes to do.
struct Taste {
    /// Weights of: read, write, trim, zeroes, flush, cache, sleep, heat.
    weights: [u64; 8],
    fua_ppm: u32,
    /// Requests at any byte, or at sectors of 512, or at blocks.
    grain: u64,
    /// Largest request in bytes.
    largest: u64,
    clients: u64,
    /// Chunks that most requests go to, per volume: first and number.
    hot: Vec<(u64, u64)>,
    hot_ppm: u32,
    /// Longest sleep in microseconds.
    longest_sleep: u64,
    /// Chunks that writes of this run reach at most, per volume.
    reach: Vec<u64>,
    /// Fills everything at first, so that moves and waits for slots are under way from then on.
    fills: bool,
    /// What is hot changes again and again, so that what came up goes down.
    waves: bool,
}

/// The scenario of a seed.
pub fn generate(seed: u64) -> Scenario {
    let mut p = Prng::new(seed);
    let mut s = group(seed, &mut p);
    // Draws of its own: runs without changes of the volumes are what they were before there were any.
    let mut changes = Prng::new(seed ^ CHANGES);
    let changing = changes.chance(CHANGING_PPM);
    if changing {
        structure::shrink_volumes(&mut s, &mut changes);
    }
    let mut crowd = Prng::new(seed ^ CROWDS);
    let crowded = crowd.chance(CROWDS_PPM);
    if crowded {
        crowd::make_room(&mut s, &mut crowd);
    }
    let mut width = Prng::new(seed ^ WIDE);
    let wide = !crowded && width.chance(WIDE_PPM);
    if wide {
        wide::make_room(&mut s, &mut width);
    }
    let mut hanging = Prng::new(seed ^ HANGS);
    let hangs = !crowded && !wide && hanging.chance(HANGS_PPM);
    if hangs {
        hanging::bind(&mut s, &mut hanging);
    }
    let mut taste = taste(&s, &mut p);
    let sessions = p.range(2, 4);
    let mut steps = p.range(120, 360);
    if crowded {
        crowd::widen(&mut s, &mut taste, &mut crowd);
        steps /= 2;
    }
    if wide {
        wide::widen(&s, &mut taste, &mut width);
    }
    for number in 0..sessions {
        let session = session(&s, &taste, number, steps / sessions, &mut p);
        s.sessions.push(session);
    }
    // A member goes back in time only if there was a time.
    let early = s.sessions.first_mut().expect("at least two sessions");
    early.damage = None;
    if changing {
        structure::mix_in(&mut s, &mut changes);
    }
    if crowded {
        crowd::mix_in(&mut s, &mut crowd);
    }
    // Likewise.
    let mut changes = Prng::new(seed ^ MEMBERS);
    if changes.chance(MEMBERS_PPM) {
        members::mix_in(&mut s, &mut changes);
    }
    let mut copies = Prng::new(seed ^ DISSOLVES);
    if copies.chance(DISSOLVES_PPM) {
        dissolve::mix_in(&mut s, &mut copies);
    }
    let mut families = Prng::new(seed ^ FAMILIES);
    if families.chance(FAMILIES_PPM) {
        family::mix_in(&mut s, &mut families);
    }
    let mut checks = Prng::new(seed ^ CHECKS);
    let checked = checks.chance(CHECKS_PPM);
    if checked {
        check::mix_in(&mut s, &mut checks);
    }
    let mut dying = Prng::new(seed ^ DYING);
    if dying.chance(DYING_PPM) {
        dying::mix_in(&mut s, &mut dying);
    }
    let mut areas = Prng::new(seed ^ AREAS);
    if areas.chance(AREAS_PPM) {
        fail_areas(&mut s, &mut areas);
    }
    let mut deaths = Prng::new(seed ^ DEATHS);
    if deaths.chance(DEATHS_PPM) {
        kill_disks(&mut s, &mut deaths);
    }
    let mut rots = Prng::new(seed ^ ROTS);
    if rots.chance(ROTS_PPM) {
        let (session, member) = (rots.range(1, sessions - 1) as usize, rots.below(s.members.len() as u64));
        let (member, events) = (member as usize, rots.below(120));
        // Likewise journals, of a group that was not stopped.
        let journal = rots.chance(300_000);
        s.sessions[session].damage =
            Some(if journal { Damage::Journal(member, events) } else { Damage::Pages(member, events) });
        let fast = s.members.iter().filter(|m| m.tier == Tier::Fast).count() as u64;
        if journal && fast > 1 {
            // Another one has all of it.
            s.sessions[session].damage = Some(Damage::Journal(rots.below(fast) as usize, rots.below(220)));
            let before = &mut s.sessions[session - 1];
            before.end = End::Crash(Crash::Power, CrashPoint { steps: before.steps.len() as u64, events });
        }
    }
    let mut left = Prng::new(seed ^ LEFT);
    if left.chance(LEFT_PPM) {
        left::mix_in(&mut s, &mut left);
    }
    if checked && checks.chance(MENDS_PPM) {
        check::rot(&mut s, &mut checks);
    }
    let mut returned = Prng::new(seed ^ RETURNED);
    if !checked && returned.chance(RETURNED_PPM) {
        returned::mix_in(&mut s, &mut returned);
    }
    if hangs && !checked {
        hanging::mix_in(&mut s, &mut hanging);
    }
    let mut regions = Prng::new(seed ^ REGIONS);
    if regions.chance(REGIONS_PPM) {
        s.ahead = *regions.pick(&[1, 1, 2, 4]);
    }
    s
}

/// In some sessions a disk dies: during the start, or later.
fn kill_disks(s: &mut Scenario, p: &mut Prng) {
    let members = s.members.len() as u64;
    for session in &mut s.sessions {
        if p.coin() {
            continue;
        }
        let faults = &mut session.faults[p.below(members) as usize];
        let most = *p.pick(&[40, 100, 200, 400]);
        faults.dies_after = 1 + p.below(most) as u32;
        faults.tells = p.coin();
    }
}

/// In some sessions requests for labels, the journal, or pages, directory and away bits of a member fail.
fn fail_areas(s: &mut Scenario, p: &mut Prng) {
    let (members, pages) = (s.members.len() as u64, crate::run::FIRST_PAGE + u64::from(s.journal));
    for session in &mut s.sessions {
        if p.coin() {
            continue;
        }
        let from = pages + p.below(48);
        let zones = [(16, 32), (crate::run::FIRST_PAGE, pages), (pages, pages + 64), (from, from + p.range(1, 12))];
        let (area, ppm) = (*p.pick(&zones), *p.pick(&[100_000, 1_000_000]));
        let (read_ppm, write_ppm) = if p.chance(750_000) { (ppm, 0) } else { (0, ppm) };
        let limit = p.range(1, 4) as u32;
        session.faults[p.below(members) as usize] = Faults { read_ppm, write_ppm, limit, area, ..Faults::default() };
    }
}

fn group(seed: u64, p: &mut Prng) -> Scenario {
    let small = p.chance(500_000);
    let mut members = Vec::new();
    for _ in 0..*p.pick(&[1, 1, 1, 2, 2, 3]) {
        let slots = if small { p.range(10, 18) } else { p.range(12, 40) };
        members.push(MemberSpec { tier: Tier::Fast, slots, discard: p.chance(700_000) });
    }
    for _ in 0..*p.pick(&[1, 1, 2]) {
        let slots = if small { p.range(16, 40) } else { p.range(24, 100) };
        members.push(MemberSpec { tier: Tier::Slow, slots, discard: p.chance(300_000) });
    }
    let in_tier = |t| members.iter().filter(|m| m.tier == t).map(|m| m.slots).sum::<u64>();
    let (fast, slow) = (in_tier(Tier::Fast), in_tier(Tier::Slow));
    // The engine keeps an eighth of a small group as swap headroom (I5).
    let mut left = fast + slow - (fast + slow) / 8;
    let mut volumes = Vec::new();
    for _ in 1..*p.pick(&[1, 1, 2, 3]) {
        let placement = *p.pick(&[Placement::Auto, Placement::FastOnly, Placement::SlowOnly]);
        let most = match placement {
            Placement::Auto => left / 3,
            Placement::FastOnly => fast / 5,
            Placement::SlowOnly => slow / 5,
        };
        let chunks = p.range(1, most.max(1));
        left -= chunks;
        volumes.push(VolumeSpec { chunks, placement });
    }
    let rest = if p.chance(700_000) { left } else { p.range(left / 2, left) };
    volumes.push(VolumeSpec { chunks: rest, placement: Placement::Auto });
    // Few records in a block make commits of several blocks.
    let records = *p.pick(&[0, 0, 0, 2, 4, 8]);
    Scenario {
        seed,
        sector: *p.pick(&[4096, 512]),
        journal: if records > 0 { *p.pick(&[48, 64, 96]) } else { *p.pick(&[8, 8, 8, 12, 16, 64]) },
        records,
        tear: p.chance(100_000),
        reserve: p.range(1, (fast / 4).max(1)),
        commit_ms: *p.pick(&[20, 200, 1000, 5000]),
        burst: *p.pick(&[0, 0, 8, 8, 12]),
        inflight: 0,
        ahead: 0,
        migrate: p.chance(950_000),
        members,
        spares: Vec::new(),
        volumes,
        sessions: Vec::new(),
        liveness: p.chance(150_000),
        // Not drawn: what the other seeds do stays as it was.
        outlives: seed % 4 == 3,
    }
}

fn taste(s: &Scenario, p: &mut Prng) -> Taste {
    let mut weights = [30, 50, 8, 5, 10, 2, 8, 3];
    for w in &mut weights {
        *w *= *p.pick(&[0, 1, 1, 1, 3]);
    }
    weights[1] = weights[1].max(10);
    weights[4] = weights[4].max(1);
    let fills = p.chance(420_000);
    let waves = p.chance(if fills { 500_000 } else { 80_000 });
    if fills && p.coin() {
        // Churn: trims of whole chunks that are on the move, and new writes into what they free.
        weights[2] = weights[1];
        weights[6] = weights[6].max(8);
    }
    let mut hot = Vec::new();
    let mut reach = Vec::new();
    for v in &s.volumes {
        let chunks = if p.chance(if fills { 150_000 } else { 600_000 }) { p.skewed(v.chunks) } else { v.chunks };
        let n = p.skewed(chunks.min(8));
        hot.push((p.below(chunks - n + 1), n));
        reach.push(chunks);
    }
    Taste {
        weights,
        fua_ppm: *p.pick(&[0, 20_000, 200_000]),
        grain: *p.pick(&[BLOCK, BLOCK, 512, 512, 1]),
        largest: *p.pick(&[4 << 10, 16 << 10, 16 << 10, 64 << 10, 256 << 10]),
        clients: p.range(1, 4),
        hot,
        hot_ppm: *p.pick(&[0, 500_000, 900_000]),
        longest_sleep: *p.pick(&[1_000, 50_000, 1_000_000, 8_000_000]),
        reach,
        fills,
        waves,
    }
}

fn session(s: &Scenario, t: &Taste, number: u64, steps: u64, p: &mut Prng) -> Session {
    let mut session = s.quiet_session(Vec::new(), End::Stop);
    if number == 0 && t.fills {
        fill(s, t, p, &mut session.steps);
    }
    for i in 0..steps {
        if t.waves && i % (steps / WAVES).max(1) == 0 {
            wave(t, (i * WAVES / steps.max(1)) as u32, p, &mut session.steps);
        }
        let step = step(s, t, p);
        session.steps.push(step);
    }
    if p.chance(100_000) {
        let at = p.below(session.steps.len() as u64 + 1) as usize;
        session.steps.insert(at, Step { client: 0, volume: 0, act: Act::Copy, offset: 0, len: 0 });
    }
    session.end = end(session.steps.len() as u64, p);
    if p.chance(300_000) {
        faults(s, &mut session, p);
    }
    for (m, speed) in s.members.iter().zip(&mut session.speed) {
        *speed = *p.pick(&[Speed::of(m.tier), Speed::of(m.tier), Speed::of(m.tier), Speed::Storm, Speed::Ssd]);
        if p.chance(30_000) {
            *speed = Speed::Sick;
        }
    }
    if p.chance(60_000) {
        let m = p.below(s.members.len() as u64) as usize;
        let first = [Damage::Missing(m), Damage::Stale(m), Damage::Rot(m, 3), Damage::Lost(m), Damage::Forged];
        let more = [Damage::Gap(m), Damage::Fork(m), Damage::Labels(m), Damage::Directory(m, p.below(120))];
        let starts = [Damage::Midst(m, false), Damage::Starts(p.below(220), p.below(60))];
        let Damage::Directory(_, events) = more[3] else { unreachable!("the last of them") };
        let last = [Damage::NoFast, Damage::AtStart(m), Damage::Repair(m, events), Damage::End(m), Damage::Ring(m)];
        let seal = [Damage::Seal(m, events), Damage::Halves(m)];
        session.damage = Some(*p.pick(&[&first[..], &more[..], &starts[..], &last[..], &seal[..]].concat()));
    }
    session
}

/// Writes everything that the run reaches, so that tiers fill up; a run of waves leaves some for later.
fn fill(s: &Scenario, t: &Taste, p: &mut Prng, steps: &mut Vec<Step>) {
    for (volume, chunks) in t.reach.iter().enumerate() {
        let mut first = if t.waves { chunks / 3 } else { 0 };
        while first < *chunks {
            let n = p.range(1, 16).min(chunks - first);
            let client = p.below(t.clients) as u8;
            steps.push(Step { client, volume, act: Act::Fill, offset: first * CHUNK, len: n * CHUNK });
            first += n;
        }
    }
    debug_assert!(s.volumes.len() == t.reach.len());
}

/// Some chunks are read again and again, each wave more often than the one before; then there is time for moves, which
/// leave alone for 10 s what they have just moved.
fn wave(t: &Taste, number: u32, p: &mut Prng, steps: &mut Vec<Step>) {
    let volume = p.below(t.reach.len() as u64) as usize;
    let chunks = p.range(2, 6).min(t.reach[volume]);
    let offset = p.below(t.reach[volume] - chunks + 1) * CHUNK;
    let act = Act::Heat { times: 3 + 2 * number };
    steps.push(Step { client: 0, volume, act, offset, len: chunks * CHUNK });
    let first = p.below(t.reach[volume]);
    let new = p.range(1, 8).min(t.reach[volume] - first);
    steps.push(Step { client: 0, volume, act: Act::Fill, offset: first * CHUNK, len: new * CHUNK });
    steps.push(Step { client: 0, volume, act: Act::Sleep, offset: 0, len: p.range(500_000, 12_000_000) });
}

fn step(s: &Scenario, t: &Taste, p: &mut Prng) -> Step {
    let volume = p.below(s.volumes.len() as u64) as usize;
    let client = p.below(t.clients) as u8;
    let total: u64 = t.weights.iter().sum();
    let mut draw = p.below(total);
    let mut kind = 0;
    while draw >= t.weights[kind] {
        draw -= t.weights[kind];
        kind += 1;
    }
    let fua = p.chance(t.fua_ppm);
    let (offset, len) = range(t, volume, p);
    let act = match kind {
        0 => Act::Read,
        1 => Act::Write { fua },
        2 => Act::Trim { fua },
        // One in four of those that have several steps.
        3 => Act::Zeroes { fua, no_hole: p.coin(), given_up: len > CHUNK && len / 512 % 4 == 1 },
        4 => Act::Flush,
        5 => Act::Cache,
        6 => Act::Sleep,
        _ => Act::Heat { times: p.range(2, 8) as u32 },
    };
    match act {
        Act::Flush => Step { client, volume, act, offset: 0, len: 0 },
        Act::Sleep => Step { client, volume, act, offset: 0, len: p.skewed(t.longest_sleep) },
        Act::Heat { .. } | Act::Cache => {
            let end = (offset / CHUNK + p.range(1, 2)).min(t.reach[volume]);
            let offset = offset / CHUNK * CHUNK;
            Step { client, volume, act, offset, len: end * CHUNK - offset }
        }
        Act::Trim { .. } if p.coin() => {
            let end = (offset / CHUNK + p.skewed(4)).min(t.reach[volume]);
            let offset = offset / CHUNK * CHUNK;
            Step { client, volume, act, offset, len: end * CHUNK - offset }
        }
        _ => Step { client, volume, act, offset, len },
    }
}

/// A range inside the reach of the run.
fn range(t: &Taste, volume: usize, p: &mut Prng) -> (u64, u64) {
    let (hot, n) = t.hot[volume];
    let reach = t.reach[volume] * CHUNK;
    let chunk = if p.chance(t.hot_ppm) { hot + p.below(n) } else { p.below(t.reach[volume]) };
    let grain = t.grain;
    let at = chunk * CHUNK + p.below(CHUNK / grain) * grain;
    // Chunk borders are where splitting goes wrong (PITFALLS 4).
    let at = if p.chance(100_000) { (chunk + 1) * CHUNK - (p.skewed(4) * grain).min(CHUNK) } else { at };
    let len = p.skewed(t.largest / grain) * grain;
    let at = at.min(reach - grain);
    (at, len.min(reach - at))
}

fn end(steps: u64, p: &mut Prng) -> End {
    let crash = if p.chance(650_000) { Crash::Power } else { Crash::Daemon };
    match p.below(100) {
        0..=5 => End::Stop,
        6..=12 => End::StopOr(crash, CrashPoint { steps, events: p.below(60) }),
        // During recovery, or right after it.
        13..=32 => End::Crash(crash, CrashPoint { steps: 0, events: p.below(120) }),
        _ => End::Crash(crash, CrashPoint { steps: p.below(steps + 1), events: p.below(40) }),
    }
}

fn faults(s: &Scenario, session: &mut Session, p: &mut Prng) {
    let kind = p.below(8);
    let one = p.below(s.members.len() as u64) as usize;
    let ppm = *p.pick(&[2_000, 20_000, 100_000]);
    let data_only = p.coin();
    let limit = if data_only { p.range(2, 12) } else { p.range(1, 4) } as u32;
    for (m, f) in session.faults.iter_mut().enumerate() {
        if m != one && p.chance(700_000) {
            continue;
        }
        *f = match kind {
            0 | 1 => Faults { read_ppm: ppm, limit, data_only, ..Faults::default() },
            2 | 3 => Faults { write_ppm: ppm, late: p.coin(), limit, data_only, ..Faults::default() },
            4 | 5 => Faults { sync_ppm: ppm * 2, limit, shows: limit.is_multiple_of(2), ..Faults::default() },
            6 => {
                let late = p.coin();
                Faults { read_ppm: ppm, write_ppm: ppm, sync_ppm: ppm, late, limit, data_only, ..Faults::default() }
            }
            _ => Faults { lies: m == one && p.chance(300_000), ..Faults::default() },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes_volumes(s: &Session) -> bool {
        s.steps.iter().any(|x| x.act.is_structural() && !x.act.is_of_members())
    }

    #[test]
    fn some_runs_change_their_volumes() {
        let changing = (0..200).filter(|seed| generate(*seed).sessions.iter().any(changes_volumes)).count();
        assert!((50..120).contains(&changing), "{changing} of 200");
    }

    #[test]
    fn some_runs_are_crowded() {
        let all: Vec<Scenario> = (0..1000).map(generate).collect();
        let steps = |s: &Scenario| s.sessions.iter().flat_map(|x| x.steps.clone()).collect::<Vec<_>>();
        let crowds = all.iter().filter(|s| steps(s).iter().any(|t| t.client > 5)).count();
        let large = |t: &Step| matches!(t.act, Act::Write { .. }) && t.len > 1 << 20;
        let largest = all.iter().filter(|s| steps(s).iter().any(large)).count();
        let little = all.iter().filter(|s| s.inflight > 0).count();
        let about = 30..150;
        assert!(
            about.contains(&crowds) && about.contains(&largest) && about.contains(&little),
            "{crowds} {largest} {little}"
        );
    }

    #[test]
    fn some_runs_have_maps_of_many_pages() {
        let pages = |s: Scenario| s.volumes.iter().map(|v| v.chunks.div_ceil(252)).sum::<u64>();
        let wide = (0..1000).map(generate).map(pages).filter(|n| *n > 5).count();
        assert!((30..100).contains(&wide), "{wide} of 1000");
    }

    #[test]
    fn some_runs_have_regions_that_are_not_away_at_first() {
        let several = |s: &Scenario| s.volumes.iter().map(|v| v.chunks.div_ceil(252)).sum::<u64>() > u64::from(s.ahead);
        let near = (0..1000).map(generate).filter(|s| s.ahead > 0 && several(s)).count();
        assert!((100..300).contains(&near), "{near} of 1000");
    }

    #[test]
    fn steps_stay_inside_their_volume() {
        for seed in 0..200 {
            let s = generate(seed);
            let slots: u64 = s.members.iter().map(|m| m.slots).sum();
            assert!(s.volumes.iter().map(|v| v.chunks).sum::<u64>() <= slots);
            // Where a disk stands still, changes may have been left out, and steps that came with them are left.
            let hangs = s.sessions.iter().flat_map(|x| &x.faults).any(|f| f.stands_after > 0);
            for step in s.sessions.iter().flat_map(|x| &x.steps) {
                let as_made = !hangs && !s.sessions.iter().any(changes_volumes);
                let first_ones = step.volume < s.volumes.len() && as_made;
                if first_ones && step.act.has_range() {
                    let size = s.volumes[step.volume].chunks * CHUNK;
                    assert!(step.len > 0 && step.offset + step.len <= size, "seed {seed}: {step:?}");
                }
            }
        }
    }
}

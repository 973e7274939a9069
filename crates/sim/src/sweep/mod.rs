//! Directed scenarios, each run again with a crash at every point of its main session, one after the other, and with a
//! second crash during the recovery from the first.

mod alone;
mod anew;
mod beside;
mod budget;
mod chains;
mod check;
mod copies;
mod degraded;
mod dying;
mod failures;
mod family;
mod kept;
mod late;
mod left;
mod members;
mod repair;
mod structure;
mod unread;

use bimetal_volume::units::{Placement, Tier, CHUNK};

use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Step, VolumeSpec};
use crate::world::CrashPoint;

/// A scenario with a name and the session that is swept.
pub struct Directed {
    /// What it is about.
    pub name: &'static str,
    /// Its sessions: preparation, and last the one that is swept.
    pub scenario: Scenario,
    /// Tried on the side after the crash.
    pub damage: Option<Damage>,
    /// Faults of the engine that it was made for, by name: a hunt for one of them goes through it from end to end first. Few of its points
    /// may meet the moment, and which they are follows from the order of tasks.
    pub finds: &'static [&'static str],
    /// If one crash after the other is swept.
    chain: Option<Chain>,
    /// Done after the crashes, before the last one.
    after: Vec<Step>,
}

/// A scenario for each of so many points.
#[derive(Clone, Copy)]
struct Chain {
    make: fn(u64) -> Scenario,
    points: u64,
}

impl Directed {
    /// A scenario for each of so many points.
    fn chain(name: &'static str, make: fn(u64) -> Scenario, points: u64) -> Directed {
        let chain = Some(Chain { make, points });
        Directed { name, scenario: make(0), damage: None, finds: &[], chain, after: Vec::new() }
    }

    fn then(self, damage: Damage) -> Directed {
        Directed { damage: Some(damage), ..self }
    }

    fn finds(self, finds: &'static [&'static str]) -> Directed {
        Directed { finds, ..self }
    }

    fn after(self, after: Vec<Step>) -> Directed {
        Directed { after, ..self }
    }
}

/// Never reached: a session without a crash.
const NEVER: CrashPoint = CrashPoint { steps: u64::MAX, events: u64::MAX };
/// Crash points of a recovery, roughly: the second crash is spread over so many.
const RECOVERY: u64 = 72;

const WRITE: Act = Act::Write { fua: false };
const FUA: Act = Act::Write { fua: true };
const TRIM: Act = Act::Trim { fua: false };

fn group(fast: u64, slow: u64, chunks: u64) -> Scenario {
    let member = |tier, slots| MemberSpec { tier, slots, discard: true };
    Scenario {
        seed: 1,
        sector: 512,
        journal: 8,
        records: 0,
        tear: false,
        reserve: 3,
        commit_ms: 200,
        burst: 0,
        inflight: 0,
        ahead: 0,
        migrate: true,
        members: vec![member(Tier::Fast, fast), member(Tier::Slow, slow)],
        spares: Vec::new(),
        volumes: vec![VolumeSpec { chunks, placement: Placement::Auto }],
        sessions: Vec::new(),
        liveness: false,
        outlives: false,
    }
}

fn step(client: u8, act: Act, offset: u64, len: u64) -> Step {
    Step { client, volume: 0, act, offset, len }
}

fn sleep(client: u8, millis: u64) -> Step {
    step(client, Act::Sleep, 0, millis * 1000)
}

fn flush() -> Step {
    step(0, Act::Flush, 0, 0)
}

fn fill(first: u64, chunks: u64) -> Step {
    step(0, Act::Fill, first * CHUNK, chunks * CHUNK)
}

fn directed(name: &'static str, mut s: Scenario, prepare: Vec<Step>, steps: Vec<Step>, stop: bool) -> Directed {
    if !prepare.is_empty() {
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
    }
    let end = if stop { End::StopOr(Crash::Power, NEVER) } else { End::Crash(Crash::Power, NEVER) };
    let session = s.quiet_session(steps, end);
    s.sessions.push(session);
    Directed { name, scenario: s, damage: None, finds: &[], chain: None, after: Vec::new() }
}

fn hot(times: usize) -> Vec<Step> {
    let heat = Act::Heat { times: 3 };
    (0..times).flat_map(|_| [step(0, heat, 22 * CHUNK, 2 * CHUNK), sleep(0, 700)]).collect()
}

/// Small writes spread over many chunks, each made durable: journal records without end.
fn records(rounds: u64, act: Act) -> Vec<Step> {
    let mut steps = Vec::new();
    for i in 0..rounds {
        steps.push(step((i % 2) as u8, act, i % 24 * CHUNK + i * 4096 % CHUNK, 4096));
        if i % 3 == 2 {
            steps.push(flush());
        }
    }
    steps
}

fn during_moves(act: Act, fua: bool) -> Vec<Step> {
    let mut steps = vec![fill(0, 12)];
    for i in 0..36 {
        let chunk = i % 12;
        steps.push(sleep(1, 3));
        let len = if fua { 8192 } else { CHUNK };
        steps.push(step(1, act, chunk * CHUNK, len));
        if i % 5 == 0 {
            steps.push(flush());
        }
    }
    steps.push(sleep(0, 300));
    steps
}

/// Commits whose entries lie all over a map page.
fn wide_records() -> Vec<Step> {
    let write = |i: u64| {
        [step(0, WRITE, i * 13 % 60 * CHUNK, 8192), step(1, WRITE, i * 29 % 60 * CHUNK + 40_960, 4096), flush()]
    };
    (0..16).flat_map(write).collect()
}

/// Changes homes and masks of what the session before had stored.
fn lost() -> Vec<Step> {
    let change = |i| [step(0, TRIM, i * CHUNK, CHUNK), step(0, WRITE, (i + 9) * CHUNK + 60_000, 20_000), flush()];
    (0..14).flat_map(change).collect()
}

/// One client keeps the fast tier full, so that there is always something to demote; the other trims all over it.
fn trims_of_what_moves() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..6 {
        steps.extend((0..14).map(|i| step(0, WRITE, i * CHUNK, CHUNK)));
        steps.push(sleep(0, 30));
        for i in 0..40 {
            steps.push(step(1, TRIM, (i * 5 + round) % 14 * CHUNK, CHUNK));
            steps.push(Step { len: 700, ..sleep(1, 0) });
        }
        steps.push(sleep(1, 5));
    }
    steps
}

/// Commits of several journal blocks.
fn long_commits() -> Vec<Step> {
    let mut steps = vec![sleep(0, 1)];
    for round in 0..2 {
        steps.extend((0..44).map(|i| step((i % 4) as u8, WRITE, i * CHUNK + round * 8192, 4096)));
        steps.push(sleep(0, 20));
        steps.push(flush());
    }
    steps
}

/// Writes fail and land late, while their slots are wanted by others.
fn late_writes() -> Directed {
    let mut s = group(10, 16, 22);
    (s.migrate, s.commit_ms) = (false, 5000);
    let prepare = vec![fill(0, 22), flush()];
    let mut steps = Vec::new();
    for i in 0..24 {
        let chunk = i * 5 % 22;
        steps.push(step(0, TRIM, chunk * CHUNK, CHUNK));
        steps.push(step(0, WRITE, chunk * CHUNK, CHUNK));
        steps.push(step(0, WRITE, chunk * CHUNK, 8192));
        steps.push(step(0, WRITE, (chunk + 1) % 22 * CHUNK, CHUNK));
        if i % 4 == 3 {
            steps.push(sleep(0, 2100));
            steps.push(step(0, Act::Read, 0, 22 * CHUNK));
            steps.push(flush());
        }
    }
    let mut d = directed("late writes", s, prepare, steps, false);
    let swept = d.swept();
    for f in &mut d.scenario.sessions[swept].faults {
        *f = Faults { write_ppm: 300_000, late: true, limit: 40, data_only: true, ..Faults::default() };
    }
    d
}

/// Nothing is flushed, but every change is to outlive the daemon: new chunks, moves, trims, zeroes, overwrites.
fn outliving() -> Directed {
    let mut s = group(12, 24, 30);
    (s.outlives, s.commit_ms) = (true, 5000);
    let mut steps = vec![fill(0, 12)];
    for i in 0..24 {
        let (client, at) = ((i % 3) as u8, i * 7 % 12 * CHUNK);
        let act = match i % 4 {
            0 => TRIM,
            1 => Act::Zeroes { fua: false, no_hole: i % 8 == 1, given_up: false },
            _ => WRITE,
        };
        steps.push(step(client, act, at + i % 3 * 4096, 12_288));
        steps.push(step(client, WRITE, (12 + i % 8) * CHUNK + i * 4096, 4096));
        steps.push(sleep(client, 40));
    }
    directed("what outlives the daemon", s, vec![], steps, false)
}

/// Zeroings of several steps that are given up after the first, beside reads and writes of what they leave.
fn given_up() -> Directed {
    let mut steps = Vec::new();
    for i in 0..6 {
        let zeroes = Act::Zeroes { fua: false, no_hole: i % 2 == 0, given_up: true };
        steps.push(step(0, zeroes, i * 5000, 20 * CHUNK));
        steps.push(step(0, Act::Read, 0, 22 * CHUNK));
        steps.push(step(1, WRITE, (i * 7 % 22) * CHUNK + 4096, 12_288));
        steps.push(step(0, WRITE, (i * 5 % 22) * CHUNK, CHUNK));
    }
    steps.push(flush());
    directed("zeroing that is given up", group(12, 24, 30), vec![fill(0, 24), flush()], steps, false)
}

/// All directed scenarios.
pub fn all() -> Vec<Directed> {
    let small = || group(12, 24, 30);
    let unaligned = (0..30).flat_map(|i| {
        let at = i * 37_777 % (8 * CHUNK);
        [step((i % 3) as u8, if i % 7 == 0 { FUA } else { WRITE }, at, 700 + i * 411), step(0, Act::Read, at, 3000)]
    });
    let full = vec![fill(0, 31), flush()];
    let mut on_full = Vec::new();
    for i in 0..10 {
        on_full.push(step(0, TRIM, (i * 3 % 31) * CHUNK, CHUNK));
        on_full.push(step(1, WRITE, (i * 5 % 31) * CHUNK + 8192, 20_000));
        on_full.push(step(0, WRITE, (i * 3 % 31) * CHUNK, CHUNK));
    }
    on_full.push(flush());
    let mut members = group(12, 20, 40);
    members.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 10, discard: false });
    members.members.push(MemberSpec { tier: Tier::Slow, slots: 14, discard: false });
    let mut long = group(20, 40, 50);
    (long.journal, long.records) = (48, 4);
    // Wide enough that a map page has entries in several sectors: else no tear can break it.
    let mut torn = group(70, 40, 90);
    torn.tear = true;
    let zeroes = Act::Zeroes { fua: false, no_hole: true, given_up: false };
    let mut zeroing = vec![fill(0, 4), flush()];
    zeroing.extend(
        (0..12).map(|i| step(0, if i % 2 == 0 { zeroes } else { TRIM }, i * 40_000 + i * 512, 30_000 + i * 1024)),
    );
    zeroing.push(flush());
    let plain = vec![
        directed("promote", small(), vec![fill(0, 24), sleep(0, 3000)], hot(5), false),
        directed("demote", small(), vec![], vec![fill(0, 14), sleep(0, 4000), flush()], false),
        directed("trim during a move", small(), vec![], during_moves(TRIM, false), false),
        directed("overwrite during a move", small(), vec![], during_moves(WRITE, true), false),
        directed("FUA during a move", small(), vec![], during_moves(FUA, true), false),
        directed("demoted and alone", group(12, 24, 20), vec![], vec![fill(0, 10), flush(), sleep(0, 30_000)], false)
            .then(Damage::Alone)
            .finds(&["C1NoPreparedRecord"]),
        directed("checkpoint", small(), vec![], records(40, WRITE), false),
        directed("fast member alone", torn, vec![fill(0, 4)], wide_records(), false).then(Damage::Missing(1)),
        directed("lost pages", small(), records(36, FUA), lost(), true).then(Damage::Lost(0)),
        directed("trims of what moves", small(), vec![], trims_of_what_moves(), false),
        directed("journal wrap", small(), vec![], records(60, FUA), false),
        directed("full group", group(12, 24, 31), full, on_full, false),
        directed(
            "several members",
            members,
            vec![],
            [records(16, FUA), vec![fill(20, 16), sleep(0, 2500), flush()]].concat(),
            false,
        ),
        directed("long commits", long, vec![], long_commits(), false),
        late_writes(),
        late::moved(),
        late::lifted(),
        late::encrypted(),
        chains::left_as_soon_as_it_came(),
        chains::away_unread(),
        chains::away_unwritten(),
        chains::failed_writes_land_late(),
        outliving(),
        chains::torn_twice(),
        failures::written_while_a_sync_fails(),
        failures::shown_but_lost(),
        failures::away_shown_but_lost(),
        failures::labels_shown_but_lost(),
        failures::garbled_page(),
        failures::hanging_discards(),
        failures::hung_discards_of_bound(),
        failures::made_beside_kept_back(),
        failures::directory_unread(),
        failures::two_claim_one_slot(),
        failures::sick_ssd(),
        failures::late_over_newer(),
        failures::several_fail_beside_a_sync(),
        failures::edge_unread(),
        failures::place_takes_no_write(),
        failures::dies_in_use(),
        beside::stands_still(),
        beside::zeroing_beside_a_still_disk(),
        beside::checkpoints_beside_a_still_disk(),
        beside::long_beside_a_still_disk(),
        beside::new_beside_a_lost_disk(),
        beside::new_beside_a_still_disk(),
        beside::owed_by_a_still_ssd(),
        beside::encrypted_beside_a_still_disk(),
        beside::encrypted_where_room_is_short(),
        beside::new_regions_beside_a_lost_disk(),
        beside::new_regions_beside_a_still_disk(),
        budget::used_up(),
        chains::half_a_commit(),
        chains::catch_up_cut_off(),
        chains::kept_behind_the_end(),
        kept::written(),
        kept::forgotten(),
        kept::uncopied(),
        kept::dropped(),
        kept::let_go(),
        kept::room_for_drops(),
        kept::alone(),
        kept::one_ssd_gone(),
        kept::lifted(),
        anew::written(),
        anew::failing(),
        anew::full(),
        directed("unaligned writes", small(), vec![], unaligned.collect(), false),
        directed("zeroes and trims", small(), vec![], zeroing, false),
        given_up(),
        directed(
            "clean stop",
            small(),
            vec![],
            vec![fill(0, 11), step(0, WRITE, 4096, 9000), sleep(0, 600), flush(), step(0, TRIM, CHUNK, CHUNK)],
            true,
        ),
        directed("start only", small(), vec![fill(0, 10), flush()], vec![], true),
    ];
    let of_groups = structure::all()
        .into_iter()
        .chain(members::all())
        .chain(left::all())
        .chain(family::all())
        .chain(repair::all())
        .chain(check::all())
        .chain(dying::all())
        .chain(unread::all())
        .chain(copies::all());
    plain.into_iter().chain(degraded::all()).chain(alone::all()).chain(of_groups).collect()
}

impl Directed {
    /// Number of the swept session.
    fn swept(&self) -> usize {
        self.scenario.sessions.len() - 1
    }

    /// The scenario without a crash in the swept session but at its end.
    pub fn whole(&self) -> &Scenario {
        &self.scenario
    }

    /// Crash points to try, given those that [`Directed::whole`] passed in each session.
    pub fn points(&self, passed: &[u64]) -> u64 {
        self.chain.map_or_else(|| passed[self.swept()] + 1, |c| c.points)
    }

    /// The scenario with a crash of this kind at point `n`, and one in the recovery after it.
    pub fn at(&self, n: u64, kind: Crash) -> Scenario {
        if let Some(Chain { make, .. }) = self.chain {
            return make(n * 2 + kind as u64);
        }
        let mut s = self.scenario.clone();
        s.seed = s.seed.wrapping_add(n * 2 + kind as u64);
        let swept = &mut s.sessions[self.swept()];
        let point = CrashPoint { steps: 0, events: n };
        swept.end = match swept.end {
            End::StopOr(..) => End::StopOr(kind, point),
            _ => End::Crash(kind, point),
        };
        let second = if n % 3 == 0 { Crash::Daemon } else { Crash::Power };
        let again = CrashPoint { steps: 0, events: n * 7 % RECOVERY };
        let mut recovery = s.quiet_session(Vec::new(), End::Crash(second, again));
        recovery.damage = self.damage;
        s.sessions.push(recovery);
        // What was half done is met by new commits, and by one more power cut.
        let volume = s.volumes.len() - 1;
        let after = (0..3).flat_map(|i| {
            let write = Step { client: 0, volume, act: FUA, offset: (n + i) % 8 * CHUNK + 5 * 4096, len: 4096 };
            [Step { act: Act::Trim { fua: true }, ..write }, write]
        });
        let end = End::Crash(Crash::Power, CrashPoint { steps: 1 + n % 6 + self.after.len() as u64, events: n % 5 });
        let aftermath = s.quiet_session(self.after.iter().copied().chain(after).collect(), end);
        s.sessions.push(aftermath);
        s
    }
}

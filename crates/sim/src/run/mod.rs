//! Carries a scenario out: makes a group, lives its sessions with their crashes, and judges every answer.
//!
//! 1. After each recovery everything is read back against the oracle (in some sessions later, so that what recovery
//!    left is also used unread).
//! 2. A request may fail only if a fault was injected that justifies it. A start may fail only then, too.
//! 3. At the end, without faults: recovery, everything read back, liveness (I6), an orderly stop, a power cut (a stop
//!    promises durability), the offline check, and a last start.
//!    In some runs clients overwrite then without a flush, and what is older than the commit interval survives another power cut.
//! 4. If any member broke its promise to keep what it had synced, whatever is wrong is that member's fault.

mod apart;
mod check;
mod client;
mod damage;
mod dead;
mod dissolve;
mod dying;
mod family;
mod fates;
mod forge;
mod hung;
mod in_time;
mod judge;
mod leave;
mod left;
mod live;
mod lost;
mod members;
mod mend;
mod repair;
mod session;
mod structure;
mod table;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::env::{Device as _, DeviceTraits};
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Tier, CHUNK};
use bimetal_volume::Group;

use crate::counters::{Marks, Seen};
use crate::disk::SimDisk;
use crate::env::{Ended, SimEnv};
use crate::oracle::Oracle;
use crate::prng::Prng;
use crate::scenario::{Act, Scenario, Speed};
use crate::world::World;

pub use hung::{waits_for_disks_only, PLENTY};

/// Virtual time that a start, a stop or a read-back may take.
const STEP_LIMIT: Duration = Duration::from_secs(600);
/// Virtual time that the requests of a session may take.
const SESSION_LIMIT: Duration = Duration::from_secs(7200);
/// First block of the map pages of a member, were its journal empty.
pub const FIRST_PAGE: u64 = 256;
/// First byte of the slots of a member of the simulator: metadata fits below it.
pub const SLOTS_START: u64 = 2 << 20;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was as it must be.
    Passed,
    /// Something was wrong, and a member had broken its promise.
    BrokenPromise {
        /// Which member.
        member: usize,
        /// What was seen.
        what: String,
    },
    /// The engine did wrong.
    Failed(String),
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What it had.
    pub marks: Marks,
    /// Hash of everything that happened.
    pub trace: u64,
    /// Crash points passed in each session, the last one included.
    pub points: Vec<u64>,
    /// Crash points passed before the group was open, in each session.
    pub open_points: Vec<u64>,
    /// Requests that were answered.
    pub requests: u64,
    /// Crashes.
    pub crashes: u64,
}

/// A reason to end the run: what was wrong.
type Wrong = String;

/// State of a run that outlives the lives of the daemon.
struct Run<'a> {
    scenario: &'a Scenario,
    world: World,
    disks: Vec<SimDisk>,
    shared: Rc<Shared>,
    open_points: Vec<u64>,
    points: Vec<u64>,
    crashes: u64,
    /// Syncs that have failed by the last crash.
    failed_syncs: u64,
    /// What had been injected when the session began, if its disks are as fast as such disks are, and honest.
    calm: Option<crate::world::Injected>,
    /// The last session ended with a stop that nothing hindered.
    stopped_in_order: bool,
    /// Media before the last session, and before the second one, for members that go back in time.
    before: Option<Vec<crate::disk::Image>>,
    oldest: Option<Vec<crate::disk::Image>>,
}

/// What clients share.
struct Shared {
    world: World,
    oracle: RefCell<Oracle>,
    marks: RefCell<Marks>,
    /// First wrong answer.
    wrong: RefCell<Option<Wrong>>,
    /// Ranges being written: volume, first and last byte + 1, and whether it cuts a sector.
    busy: RefCell<Vec<(usize, u64, u64, bool)>>,
    requests: std::cell::Cell<u64>,
    /// Those of clients that died, or may: they go on though the clients are done.
    dying: std::cell::Cell<usize>,
    /// The volumes that must be there.
    table: RefCell<table::Table>,
    /// Who is a member.
    roster: RefCell<members::Roster>,
    /// All disks, what they are made for, the journals of new members, and pages of the map.
    disks: Vec<SimDisk>,
    specs: Vec<crate::scenario::MemberSpec>,
    journal: u32,
    pages: u64,
    /// The mover works.
    migrate: bool,
    /// It does, or entries of the map change in other ways without a write.
    moves: bool,
    /// A change of volumes or members is under way.
    changing: std::cell::Cell<bool>,
    /// The device that volumes are copied onto, if any are; a copy is under way; and the volume that stands still, or may
    /// any moment.
    target: Option<SimDisk>,
    dissolving: std::cell::Cell<bool>,
    frozen: std::cell::Cell<Option<usize>>,
    /// Numbers of volumes that somebody has tried to make.
    used: RefCell<Vec<bool>>,
    /// The families that must be there.
    families: RefCell<family::Families>,
    /// Requests wait for disks and each other only.
    plain: bool,
    /// See the scenario.
    outlives: bool,
    /// All disks as somebody has copied them in the midst of a session, and whether the members must tell these from themselves.
    copies: RefCell<Option<Vec<crate::disk::Image>>>,
    copies_show: std::cell::Cell<bool>,
    /// In the next start they are copied after so many microseconds, if any.
    copy_in_start: std::cell::Cell<u64>,
    /// What members hold may be damaged when a session begins; and was on purpose, and not mended yet.
    damaged: bool,
    rotten: std::cell::Cell<bool>,
}

impl Shared {
    fn fail(&self, wrong: Wrong) {
        self.wrong.borrow_mut().get_or_insert(wrong);
    }

    fn copy_all(&self) {
        *self.copies.borrow_mut() = Some(self.disks.iter().map(|d| d.store().seen()).collect());
        self.copies_show.set(false);
    }

    fn failed(&self) -> bool {
        self.wrong.borrow().is_some()
    }
}

/// Runs a scenario. `log` prints everything that happens to stderr.
pub fn run(scenario: &Scenario, log: bool) -> Report {
    let mut prng = Prng::new(scenario.seed ^ 0x0062_696d_6574_616c);
    let world = World::new(prng.fork(1));
    world.set_log(log);
    let disks = disks(scenario, &world);
    let mut sizes: Vec<u64> = scenario.volumes.iter().map(|v| v.chunks * CHUNK).collect();
    sizes.resize(crate::scenario::MAX_VOLUMES, 0);
    let shared = Rc::new(Shared {
        world: world.clone(),
        oracle: RefCell::new(Oracle::new(&sizes)),
        marks: RefCell::default(),
        wrong: RefCell::default(),
        busy: RefCell::default(),
        requests: std::cell::Cell::new(0),
        dying: std::cell::Cell::new(0),
        table: RefCell::new(table::Table::new(scenario)),
        roster: RefCell::new(members::Roster::new(scenario)),
        pages: pages(scenario, &disks),
        migrate: scenario.migrate,
        moves: scenario.migrate || scenario.sessions.iter().flat_map(|s| &s.steps).any(|s| s.act.is_structural()),
        disks: disks.clone(),
        specs: scenario.disks().cloned().collect(),
        journal: scenario.journal,
        changing: std::cell::Cell::new(false),
        target: target(scenario, &world),
        dissolving: std::cell::Cell::new(false),
        frozen: std::cell::Cell::new(None),
        used: RefCell::new((0..crate::scenario::MAX_VOLUMES).map(|n| n < scenario.volumes.len()).collect()),
        families: RefCell::default(),
        plain: hung::is_plain(scenario),
        outlives: scenario.outlives,
        damaged: scenario.sessions.iter().flat_map(|s| &s.faults).any(|f| f.lies),
        rotten: std::cell::Cell::new(false),
        copies: RefCell::default(),
        copies_show: std::cell::Cell::new(false),
        copy_in_start: std::cell::Cell::new(0),
    });
    world.set_members(disks.len());
    let mut run = Run {
        scenario,
        world,
        disks,
        shared,
        open_points: Vec::new(),
        points: Vec::new(),
        crashes: 0,
        failed_syncs: 0,
        calm: None,
        stopped_in_order: false,
        before: None,
        oldest: None,
    };
    let outcome = run.whole();
    run.world.forget_events();
    run.disks.iter().chain(&run.shared.target).for_each(SimDisk::forget_requests);
    run.report(outcome)
}

/// Pages of the map: as many as the group is made with.
fn pages(scenario: &Scenario, disks: &[SimDisk]) -> u64 {
    let bytes = disks.iter().take(scenario.members.len()).map(|d| d.size()).sum();
    bimetal_format::layout::pages_for(bytes, scenario.volumes.len() as u64)
}

fn disks(scenario: &Scenario, world: &World) -> Vec<SimDisk> {
    let disk = |(i, m): (usize, &crate::scenario::MemberSpec)| {
        let size = SLOTS_START + m.slots * CHUNK + (2 << 20);
        let traits = DeviceTraits { discard: m.discard, rotational: m.tier == Tier::Slow };
        SimDisk::new(world, i, size, traits, Speed::of(m.tier).latency())
    };
    scenario.disks().enumerate().map(disk).collect()
}

/// A device that can take any volume, if one is wanted.
fn target(scenario: &Scenario, world: &World) -> Option<SimDisk> {
    let wanted = scenario.sessions.iter().flat_map(|s| &s.steps).any(|s| s.act == Act::Dissolve);
    let chunks: u64 = scenario.disks().map(|m| m.slots).sum();
    let traits = DeviceTraits { discard: false, rotational: false };
    let number = scenario.disks().count();
    wanted.then(|| SimDisk::new(world, number, chunks * CHUNK, traits, Speed::Ssd.latency()))
}

impl Run<'_> {
    fn whole(&mut self) -> Result<(), Wrong> {
        self.create()?;
        for index in 0..self.scenario.sessions.len() {
            self.session(index)?;
        }
        self.last_session()
    }

    fn create(&mut self) -> Result<(), Wrong> {
        self.world.restart(None);
        let env = SimEnv::new(&self.world);
        let s = self.scenario;
        let members: Vec<(SimDisk, Tier)> = self.disks.iter().cloned().zip(s.members.iter().map(|m| m.tier)).collect();
        let volume = |(i, v): (usize, &crate::scenario::VolumeSpec)| NewVolume {
            name: table::name(i, false),
            size: (v.chunks > 0).then_some(v.chunks * CHUNK),
            placement: v.placement,
        };
        let options = CreateOptions {
            name: "sim".into(),
            volumes: s.volumes.iter().enumerate().map(volume).collect(),
            sector_size: s.sector,
            reserve: (s.reserve > 0).then_some(s.reserve * CHUNK),
            journal_blocks: (s.journal > 0).then_some(s.journal),
        };
        let maker = env.clone();
        let made = env.run(STEP_LIMIT, async move { Group::create(&maker, members, &options).await.map(|_| ()) });
        env.kill();
        match made {
            Ended::Done(Ok(())) => Ok(()),
            Ended::Done(Err(e)) => Err(format!("create failed: {e}")),
            Ended::Crashed => Err("create crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("create hung: {why}")),
        }
    }

    fn open_options(&self) -> OpenOptions {
        let default = OpenOptions::default();
        OpenOptions {
            commit_interval: Duration::from_millis(self.scenario.commit_ms),
            migrate: self.scenario.migrate,
            promotion_burst: match self.scenario.burst {
                0 => default.promotion_burst,
                n => n,
            },
            max_inflight_bytes: match self.scenario.inflight {
                0 => default.max_inflight_bytes,
                n => n,
            },
            // One page after the other in half of the runs, so that commits come in between.
            checkpoint_batch: if self.scenario.seed % 2 == 0 { 1 } else { default.checkpoint_batch },
            away_ahead: match self.scenario.ahead {
                0 => default.away_ahead,
                n => n,
            },
            journal_records: match self.scenario.records {
                0 => default.journal_records,
                n => n as usize,
            },
            ..default
        }
    }

    fn report(&self, outcome: Result<(), Wrong>) -> Report {
        let liar = self.disks.iter().position(|d| d.store().broke_promise);
        let mut marks = *self.shared.marks.borrow();
        let outcome = match (outcome, liar) {
            (Ok(()), _) => Outcome::Passed,
            (Err(what), Some(member)) => {
                marks.mark(Seen::BrokenPromise);
                Outcome::BrokenPromise { member, what }
            }
            (Err(what), None) => Outcome::Failed(what),
        };
        Report {
            outcome,
            marks,
            trace: self.world.trace(),
            points: self.points.clone(),
            open_points: self.open_points.clone(),
            requests: self.shared.requests.get(),
            crashes: self.crashes,
        }
    }
}

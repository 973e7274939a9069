//! The end of a run, without faults: recovery, read-back, liveness (I6), stop, offline check, and a last start.

use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::inspect;
use bimetal_volume::options::{MemberStatus, Status};
use bimetal_volume::units::{Placement, CHUNK};
use bimetal_volume::{Group, Volume};

use super::client::Client;
use super::fates::all_extents;
use super::session::{mover_words, Start};
use super::table::settle;
use super::{Run, Wrong, SESSION_LIMIT, STEP_LIMIT};
use crate::counters::Seen;
use crate::disk::SimDisk;
use crate::env::{Ended, SimEnv};
use crate::scenario::{Act, Damage, End, Step};

/// Virtual time in which the reserve must be back, and a hot chunk on the fast tier.
const LIVENESS: Duration = Duration::from_secs(300);
/// Looks for a move to disturb, and the time between two.
const DISTURBANCES: u32 = 3000;
const DISTURB_GAP: Duration = Duration::from_millis(3);
const LOOK: Duration = Duration::from_millis(500);

impl Run<'_> {
    pub(super) fn last_session(&mut self) -> Result<(), Wrong> {
        self.heal();
        self.world.restart(None);
        let env = SimEnv::new(&self.world);
        let start = self.world.injected();
        let group = self.must_open(&env)?;
        self.read_all(&env, &group)?;
        if self.scenario.liveness && self.scenario.migrate {
            self.liveness(&env, &group)?;
        }
        self.let_encryption_end(&env, &group)?;
        self.points.push(self.world.points());
        let kept = group.status().mover.kept > 0;
        self.stop(&env, &group, start, End::Stop)?;
        drop(group);
        self.check_offline()?;
        self.nothing_secret_is_left()?;
        if kept {
            // After an orderly stop the slow members alone serve kept copies, and those must be right (C9.2).
            self.damaged_start(Damage::Alone, self.scenario.sessions.len())?;
        }
        self.look_at_left_behind()?;
        self.last_look()
    }

    /// A clean start after the stop and its power cut.
    fn last_look(&mut self) -> Result<(), Wrong> {
        self.world.restart(None);
        let env = SimEnv::new(&self.world);
        let group = self.must_open(&env)?;
        self.read_all(&env, &group)?;
        if !self.scenario.liveness {
            drop(group);
            env.kill();
            return Ok(());
        }
        self.overwrite_without_a_flush(&env, group)?;
        self.world.restart(None);
        let env = SimEnv::new(&self.world);
        let group = self.must_open(&env)?;
        let result = self.read_all(&env, &group);
        drop(group);
        env.kill();
        result
    }

    fn must_open(&mut self, env: &SimEnv) -> Result<Group<SimEnv>, Wrong> {
        match self.open(env, true)? {
            Start::Open(group) => Ok(group),
            Start::Refused(e) => Err(format!("start refused without a fault: {e}")),
            Start::Crashed => Err("crashed without a crash point".into()),
        }
    }

    pub(super) fn client(&self, env: &SimEnv, group: &Group<SimEnv>) -> Result<Client, Wrong> {
        let volumes = Rc::new(std::cell::RefCell::new(settle(&self.shared, group)?));
        let (shared, group) = (self.shared.clone(), group.clone());
        let now = self.world.injected();
        Ok(Client { env: env.clone(), shared, group, volumes, start: now, opened: now, elsewhere: Rc::default() })
    }

    fn read_all(&self, env: &SimEnv, group: &Group<SimEnv>) -> Result<(), Wrong> {
        let client = self.client(env, group)?;
        let ended = env.run(SESSION_LIMIT, async move {
            client.check_headers().await;
            for volume in client.numbers() {
                client.read_back(volume).await;
            }
        });
        self.check_wrong()?;
        match ended {
            Ended::Done(()) => Ok(()),
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("read-back hung: {why}")),
        }
    }

    /// The disks that are members.
    fn members(&self) -> Vec<SimDisk> {
        let roster = self.shared.roster.borrow();
        self.disks.iter().enumerate().filter(|(i, _)| roster.has(*i)).map(|(_, d)| d.clone()).collect()
    }

    /// After an orderly stop the offline check finds nothing at all, and writes nothing.
    fn check_offline(&self) -> Result<(), Wrong> {
        self.world.restart(None);
        let env = SimEnv::new(&self.world);
        let (checker, devices) = (env.clone(), self.members());
        let ended = env.run(STEP_LIMIT, async move { inspect::check(checker, devices, &|_, _| {}).await });
        env.kill();
        let report = match ended {
            Ended::Done(Ok(report)) => report,
            Ended::Done(Err(e)) => return Err(format!("offline check refused: {e}")),
            Ended::Crashed => return Err("crashed without a crash point".into()),
            Ended::Hung(why) => return Err(format!("offline check hung: {why}")),
        };
        if report.writes != 0 || self.disks.iter().any(|d| d.store().dirty()) {
            return Err("the offline check wrote to a member".into());
        }
        let problems: Vec<&str> = report.problems.iter().map(|p| p.what.as_str()).collect();
        if !report.clean || !problems.is_empty() {
            let clean = if report.clean { "clean" } else { "not marked clean" };
            return Err(format!("after an orderly stop the offline check says ({clean}): {}", problems.join("; ")));
        }
        Ok(())
    }

    /// I6: the reserve comes back, and a chunk that is used again and again is promoted.
    fn liveness(&self, env: &SimEnv, group: &Group<SimEnv>) -> Result<(), Wrong> {
        self.shared.marks.borrow_mut().mark(Seen::Liveness);
        let client = self.client(env, group)?;
        let watched = group.clone();
        let auto: Vec<usize> = self
            .shared
            .table
            .borrow()
            .living()
            .filter(|(_, k)| k.placement == Placement::Auto)
            .map(|(n, _)| n)
            .collect();
        let ended = env.run(STEP_LIMIT + LIVENESS * 4, async move {
            for volume in client.numbers() {
                client.flush(volume).await;
            }
            disturb(&client, &watched, &auto).await;
            reserve_returns(&client, &watched).await?;
            hot_is_promoted(&client, &watched, &auto).await
        });
        self.check_wrong()?;
        match ended {
            Ended::Done(result) => result.map_err(|e| format!("liveness (I6): {e}; {}", mover_words(group))),
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("liveness phase hung: {why}; {}", mover_words(group))),
        }
    }
}

/// Writes into a chunk while it is copied to the fast tier, so that a move is cancelled: the mover must survive that.
async fn disturb(client: &Client, group: &Group<SimEnv>, auto: &[usize]) {
    let found = auto.iter().find_map(|v| Some((*v, slow_chunk(&client.volume(*v)?)?)));
    let Some((volume, at)) = found else { return };
    let before = group.status().mover.cancelled;
    for round in 0..DISTURBANCES {
        if group.status().mover.cancelled > before || client.shared.failed() {
            return;
        }
        if round % 100 == 0 {
            client.read(volume, at, CHUNK).await;
        }
        if group.status().mover.in_flight > 0 {
            let step = Step { client: 0, volume, act: Act::Write { fua: false }, offset: at, len: 4096 };
            client.step(step).await;
        }
        client.sleep(DISTURB_GAP).await;
    }
}

/// Chunks of `auto` volumes on the fast tier: what could be demoted.
fn movable(status: &Status) -> u64 {
    status.volumes.iter().filter(|v| v.placement == Placement::Auto).map(|v| v.fast_chunks).sum()
}

/// Slow slots that are free or hold a copy that can be dropped, and are not promised to a slow-only volume. Those of a member that is leaving
/// are room for nobody.
fn free_for_all(status: &Status) -> u64 {
    use bimetal_volume::options::MemberState;
    use bimetal_volume::units::Tier;
    let is_room = |m: &&MemberStatus| m.tier == Tier::Slow && m.state == MemberState::InUse;
    let free: u64 = status.members.iter().filter(is_room).map(|m| m.free).sum();
    let bound = status.volumes.iter().filter(|v| v.placement == Placement::SlowOnly);
    (free + status.mover.kept).saturating_sub(bound.map(|v| v.size / CHUNK - v.fast_chunks - v.slow_chunks).sum())
}

async fn reserve_returns(client: &Client, group: &Group<SimEnv>) -> Result<(), Wrong> {
    let deadline = client.shared.world.now() + LIVENESS.as_nanos() as u64;
    loop {
        let status = group.status();
        let slow_free = free_for_all(&status);
        if status.fast_free >= status.keep_free || movable(&status) == 0 || slow_free == 0 {
            return Ok(());
        }
        if client.shared.world.now() > deadline {
            let (free, want) = (status.fast_free / CHUNK, status.keep_free / CHUNK);
            return Err(format!("after {LIVENESS:?} only {free} of {want} reserve slots are free"));
        }
        client.sleep(LOOK).await;
    }
}

/// First chunk of a volume that lives on the slow tier and holds data.
fn slow_chunk(volume: &Volume<SimEnv>) -> Option<u64> {
    let mut at = 0;
    for e in all_extents(volume).ok()? {
        if e.data && e.tier == 2 {
            return Some(at / CHUNK * CHUNK);
        }
        at += e.len;
    }
    None
}

async fn hot_is_promoted(client: &Client, group: &Group<SimEnv>, auto: &[usize]) -> Result<(), Wrong> {
    let found = auto.iter().find_map(|v| Some((*v, slow_chunk(&client.volume(*v)?)?)));
    let Some((volume, at)) = found else { return Ok(()) };
    let fast: u64 =
        group.status().members.iter().filter(|m| m.tier == bimetal_volume::units::Tier::Fast).map(|m| m.slots).sum();
    // What volumes bound to the fast tier may still ask for is theirs already.
    let bound = group
        .status()
        .volumes
        .iter()
        .filter(|v| v.placement == Placement::FastOnly)
        .map(|v| v.size / CHUNK)
        .sum::<u64>();
    if fast <= bound + group.status().keep_free / CHUNK + 1 {
        return Ok(());
    }
    let deadline = client.shared.world.now() + LIVENESS.as_nanos() as u64;
    while client.shared.world.now() < deadline {
        let Some(v) = client.volume(volume) else { return Ok(()) };
        let here = v.extents(at, CHUNK, usize::MAX).map_err(|e| format!("extents: {e}"))?;
        if here.iter().all(|e| e.tier != 2) {
            return Ok(());
        }
        client.read(volume, at, CHUNK).await;
        if client.shared.failed() {
            return Ok(());
        }
        client.sleep(LOOK).await;
    }
    Err(format!(
        "a chunk of volume {volume} at byte {at}, read twice a second for {LIVENESS:?}, is still on the slow tier"
    ))
}

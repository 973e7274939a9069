//! One life of the daemon: start, read back, steps of the clients, end.

use std::collections::BTreeSet;
use std::rc::Rc;

use bimetal_volume::backend::Backend as _;
use bimetal_volume::env::Env as _;
use bimetal_volume::group::OpenError;
use bimetal_volume::options::Uuid;
use bimetal_volume::units::{Placement, BLOCKS_PER_CHUNK, CHUNK};
use bimetal_volume::Group;

use super::client::{Client, MICROS};
use super::table::settle;
use super::{Run, Wrong, SESSION_LIMIT, STEP_LIMIT};
use crate::counters::Seen;
use crate::env::{Ended, SimEnv};
use crate::oracle::Crash;
use crate::prng::mix;
use crate::scenario::{Damage, End, Session, Speed, Step};
use crate::world::Injected;

/// How a start went.
pub(super) enum Start {
    Open(Group<SimEnv>),
    Refused(OpenError),
    Crashed,
}

impl Run<'_> {
    pub(super) fn session(&mut self, index: usize) -> Result<(), Wrong> {
        let scenario = self.scenario;
        let session = &scenario.sessions[index];
        if let Some(damage) = session.damage {
            self.damaged_start(damage, index)?;
        }
        self.look_at_left_behind()?;
        let keep_images = scenario.sessions.iter().any(|s| {
            matches!(
                s.damage,
                Some(Damage::Stale(_) | Damage::Old(_) | Damage::Fork(_) | Damage::Rot(..) | Damage::Lost(_))
            )
        });
        // With data in caches the media are those of a moment within the session before, which no epoch tells from this.
        let settled = !self.disks.iter().any(|d| d.store().dirty());
        let images = (keep_images && settled).then(|| self.disks.iter().map(|d| d.store().image()).collect());
        for ((disk, faults), speed) in self.disks.iter().zip(&session.faults).zip(&session.speed) {
            disk.set_behaviour(*faults, speed.latency());
        }
        self.shared.marks.borrow_mut().mark_if(session.speed.contains(&Speed::Sick), Seen::SickMember);
        self.world.restart(session.end.crash().map(|c| c.1));
        let env = SimEnv::new(&self.world);
        let result = self.live(&env, session, index);
        self.points.push(self.world.points());
        env.kill();
        if images.is_some() {
            if index > 0 && self.oldest.is_none() {
                self.oldest.clone_from(&images);
            }
            self.before = images;
        }
        result
    }

    /// Everything between start and end. The daemon is dead afterwards.
    fn live(&mut self, env: &SimEnv, session: &Session, index: usize) -> Result<(), Wrong> {
        let start = self.world.injected();
        self.stopped_in_order = false;
        let usual = session.speed.iter().all(|s| !matches!(s, Speed::Sick | Speed::Storm));
        let honest = session.faults.iter().all(|f| !f.lies);
        self.calm = (usual && honest).then_some(start);
        let copied = self.copy_beside(env);
        let opened = self.open(env, true)?;
        self.open_points.push(self.world.points());
        let group = match opened {
            Start::Open(group) => {
                self.shared.copies_show.set(!copied);
                let mut marks = self.shared.marks.borrow_mut();
                let unread = |m: &Injected| m.metadata - m.metadata_writes;
                marks.mark_if(unread(&self.world.injected()) > unread(&start), Seen::UnreadAtStart);
                marks.mark_if(group.status().members.iter().any(|m| m.leaving > 0), Seen::SlotsHeld);
                drop(marks);
                group
            }
            Start::Crashed => {
                self.shared.marks.borrow_mut().mark(Seen::CrashInRecovery);
                return self.crash(env, session.end);
            }
            Start::Refused(e) if self.world.injected() != start => {
                self.world.note(30, 0, || format!("start refused: {e}"));
                return self.crash(env, session.end);
            }
            Start::Refused(e) => return Err(format!("start refused without a fault: {e}")),
        };
        let empty = empty_chunks(&group);
        let read_back = mix(self.scenario.seed ^ index as u64) % 5 < 3;
        let ended = self.clients(env, &group, session, start, read_back);
        self.take_marks(&group);
        bound_stay(&group)?;
        let ended = ended?;
        if matches!(ended, Ended::Done(())) && self.shared.dying.get() == 0 {
            none_is_empty(&group, &empty)?;
        }
        match ended {
            Ended::Crashed => self.crash(env, session.end),
            Ended::Hung(why) => Err(format!("session {index} hung: {why}; {}", mover_words(&group))),
            Ended::Done(()) if self.world.injected() == start => {
                self.what_is_encrypted_is(&group.status())?;
                self.end_session(env, &group, session, start)
            }
            Ended::Done(()) => self.end_session(env, &group, session, start),
        }
    }

    /// All steps are done.
    fn end_session(
        &mut self,
        env: &SimEnv,
        group: &Group<SimEnv>,
        session: &Session,
        start: Injected,
    ) -> Result<(), Wrong> {
        if session.end == End::Stop && self.world.injected() == start {
            self.journals_are_kept_short(env, group)?;
        }
        match session.end {
            End::Crash(..) => self.crash(env, session.end),
            End::Stop | End::StopOr(..) => {
                let stopped = self.stop(env, group, start, session.end)?;
                let honest = session.faults.iter().all(|f| !f.lies);
                self.stopped_in_order = stopped && honest && self.world.injected() == start;
                self.shared.copies_show.set(self.stopped_in_order || self.shared.copies_show.get());
                Ok(())
            }
        }
    }

    /// Somebody copies the disks during the start that comes now, if that was asked for.
    fn copy_beside(&self, env: &SimEnv) -> bool {
        let micros = self.shared.copy_in_start.take();
        if micros > 0 {
            let shared = self.shared.clone();
            env.spawn(async move {
                shared.world.sleep(micros * MICROS).await;
                shared.copy_all();
            });
        }
        micros > 0
    }

    pub(super) fn open(&self, env: &SimEnv, writable: bool) -> Result<Start, Wrong> {
        let options =
            bimetal_volume::options::OpenOptions { writable, allow_missing: !writable, ..self.open_options() };
        let (devices, opener) = (self.disks.clone(), env.clone());
        match env.run(STEP_LIMIT, async move { Group::open(opener, devices, options).await }) {
            Ended::Done(Ok(group)) => super::family::unlock_all(&group).map(|()| Start::Open(group)),
            Ended::Done(Err(e)) => Ok(Start::Refused(e)),
            Ended::Crashed => Ok(Start::Crashed),
            Ended::Hung(why) => Err(format!("start hung: {why}")),
        }
    }

    fn clients(
        &self,
        env: &SimEnv,
        group: &Group<SimEnv>,
        session: &Session,
        start: Injected,
        read_back: bool,
    ) -> Result<Ended<()>, Wrong> {
        let volumes = Rc::new(std::cell::RefCell::new(settle(&self.shared, group)?));
        self.shared.dying.set(0);
        let (shared, group) = (self.shared.clone(), group.clone());
        let opened = self.world.injected();
        let client = Client { env: env.clone(), shared, group, volumes, start, opened, elsewhere: Rc::default() };
        let count = session.steps.iter().map(|s| s.client).max().map_or(0, |m| m as usize + 1);
        let mut lists: Vec<Vec<Step>> = vec![Vec::new(); count];
        for step in &session.steps {
            lists[step.client as usize].push(*step);
        }
        let spawner = env.clone();
        let ended = env.run(SESSION_LIMIT, async move {
            client.check_headers().await;
            if read_back {
                for volume in client.numbers() {
                    client.read_back(volume).await;
                }
            }
            let left = Rc::new(std::cell::Cell::new(lists.len()));
            let all_done = Rc::new(crate::world::Signal::default());
            for steps in lists {
                let (client, left, all_done) = (client.clone(), left.clone(), all_done.clone());
                spawner.spawn(async move {
                    client.work(steps).await;
                    left.set(left.get() - 1);
                    if left.get() == 0 {
                        all_done.fire();
                    }
                });
            }
            if left.get() > 0 {
                std::future::poll_fn(|cx| all_done.poll(cx)).await;
            }
        });
        self.check_wrong().map(|()| ended)
    }

    pub(super) fn check_wrong(&self) -> Result<(), Wrong> {
        match self.shared.wrong.borrow_mut().take().or_else(|| self.world.leak()) {
            None => Ok(()),
            Some(wrong) => Err(wrong),
        }
    }

    /// The end that a session has: a crash.
    fn crash(&mut self, env: &SimEnv, end: End) -> Result<(), Wrong> {
        // A session that could not start, or whose stop failed, is killed.
        let kind = end.crash().map_or(Crash::Daemon, |c| c.0);
        env.kill();
        self.die(kind);
        Ok(())
    }

    /// Applies a crash to disks and oracle.
    pub(super) fn die(&mut self, kind: Crash) {
        self.world.note(31, kind as u64, || format!("crash: {kind:?}"));
        for disk in self.disks.iter().chain(&self.shared.target) {
            match kind {
                Crash::Power => disk.power_cut(self.scenario.tear),
                Crash::Daemon => disk.daemon_death(),
            }
        }
        self.crashes += 1;
        self.note_failed_syncs();
        let calm = self.calm.is_some_and(|start| self.world.injected() == start);
        self.shared.oracle.borrow_mut().tick(self.world.now());
        self.shared.oracle.borrow_mut().session_ends(calm);
        let mut marks = self.shared.marks.borrow_mut();
        marks.mark_if(kind == Crash::Daemon, Seen::DaemonDeath);
        marks.mark_if(kind == Crash::Power && self.tore_a_page(), Seen::TornPage);
        self.shared.busy.borrow_mut().clear();
        self.shared.changing.set(false);
        self.shared.dissolving.set(false);
        self.shared.table.borrow_mut().unlock();
        self.shared.frozen.set(None);
        self.shared.oracle.borrow_mut().crash(kind, self.world.sequence());
    }

    /// A sync that failed may have lost what had outlived an earlier daemon, though no client of this one has noticed.
    fn note_failed_syncs(&mut self) {
        let failed = self.world.injected().syncs;
        if failed > self.failed_syncs {
            self.failed_syncs = failed;
            self.shared.oracle.borrow_mut().sync_failed();
        }
    }

    fn tore_a_page(&self) -> bool {
        let (first, last) = (super::FIRST_PAGE + u64::from(self.scenario.journal), super::SLOTS_START / 4096);
        self.disks.iter().any(|d| d.store().torn.iter().any(|b| (first..last).contains(b)))
    }

    /// An orderly stop. It promises durability: the power goes away right after. Whether it came to its end.
    pub(super) fn stop(
        &mut self,
        env: &SimEnv,
        group: &Group<SimEnv>,
        start: Injected,
        end: End,
    ) -> Result<bool, Wrong> {
        let issued = self.world.sequence();
        let stopping = group.clone();
        let stopped = env.run(STEP_LIMIT, async move { stopping.stop().await });
        self.take_marks(group);
        match stopped {
            Ended::Done(Ok(())) => {
                for volume in 0..crate::scenario::MAX_VOLUMES {
                    self.shared.oracle.borrow_mut().flushed(volume, issued, self.world.sequence());
                }
                env.kill();
                self.die(Crash::Power);
                Ok(true)
            }
            Ended::Done(Err(_)) if self.world.injected() != start => self.crash(env, end).map(|()| false),
            Ended::Done(Err(e)) => Err(format!("stop failed without a fault: {e}")),
            Ended::Crashed => self.crash(env, end).map(|()| false),
            Ended::Hung(why) => Err(format!("stop hung: {why}; {}", mover_words(group))),
        }
    }

    /// Remembers what the engine counted in this life.
    fn take_marks(&self, group: &Group<SimEnv>) {
        let (status, counters) = (group.status(), group.counters());
        let injected = self.world.injected();
        let mut marks = self.shared.marks.borrow_mut();
        for (yes, seen) in [
            (status.mover.promoted > 0, Seen::Promotion),
            (status.mover.demoted > 0, Seen::Demotion),
            (status.mover.cancelled > 0, Seen::CancelledMove),
            (status.mover.kept > 0, Seen::KeptCopy),
            (status.mover.demoted_uncopied > 0, Seen::Uncopied),
            (status.mover.let_go > 0, Seen::LetGo),
            (status.mover.lifted > 0, Seen::Lifted),
            (status.mover.doing.contains("sparing"), Seen::Spared),
            (status.mover.kept_ended > 0, Seen::KeptEnded),
            (status.mover.written_anew > 0, Seen::WrittenAnew),
            (status.mover.kept_dropped > 0, Seen::KeptDropped),
            (status.latched.is_some(), Seen::Latched),
            (counters.journal_wraps > 0, Seen::JournalWrap),
            (counters.checkpoints > 0, Seen::Checkpoint),
            (counters.full_waits > 0, Seen::FullGroup),
            (counters.trims_in_motion > 0, Seen::TrimDuringMove),
            (injected.syncs > 0, Seen::FailedSync),
            (injected.writes > 0, Seen::FailedWrite),
            (injected.reads > 0, Seen::FailedRead),
            (self.disks.iter().any(|d| d.has_died()), Seen::DiedInUse),
        ] {
            marks.mark_if(yes, seen);
        }
    }

    /// All faults end, and disks are healthy.
    pub(super) fn heal(&self) {
        for (disk, m) in self.disks.iter().zip(self.scenario.disks()) {
            disk.heal(Speed::of(m.tier).latency());
        }
    }
}

/// R4: a volume bound to one tier has nothing on the other.
fn bound_stay(group: &Group<SimEnv>) -> Result<(), Wrong> {
    for v in group.status().volumes {
        let strayed = match v.placement {
            Placement::Auto => 0,
            Placement::FastOnly => v.slow_chunks,
            Placement::SlowOnly => v.fast_chunks,
        };
        if strayed > 0 {
            return Err(format!("volume {} is {} and has {strayed} chunks on the other tier", v.name, v.placement));
        }
    }
    Ok(())
}

/// Chunks that have a slot and no data, each with its volume. A crash leaves some, whose first write it cut off.
fn empty_chunks(group: &Group<SimEnv>) -> BTreeSet<(Uuid, u64)> {
    let mut found = BTreeSet::new();
    for v in group.status().volumes {
        let Some(volume) = group.volume(&v.name) else { continue };
        for chunk in 0..volume.size().div_ceil(CHUNK) {
            let len = CHUNK.min(volume.size() - chunk * CHUNK);
            let extents = volume.extents(chunk * CHUNK, len, BLOCKS_PER_CHUNK as usize).unwrap_or_default();
            if !extents.is_empty() && extents.iter().all(|e| e.tier != 0 && !e.data) {
                found.insert((v.uuid, chunk));
            }
        }
    }
    found
}

/// I5: when all requests have ended, no chunk holds a slot for nothing but those that did before.
fn none_is_empty(group: &Group<SimEnv>, before: &BTreeSet<(Uuid, u64)>) -> Result<(), Wrong> {
    // A latched group changes no entry any more.
    if group.status().latched.is_some() {
        return Ok(());
    }
    match empty_chunks(group).difference(before).next() {
        Some((volume, chunk)) => Err(format!("chunk {chunk} of volume {volume:?} holds a slot and no data")),
        None => Ok(()),
    }
}

pub(super) fn mover_words(group: &Group<SimEnv>) -> String {
    let m = group.status().mover;
    format!("mover: {} because {}", m.doing, m.why)
}

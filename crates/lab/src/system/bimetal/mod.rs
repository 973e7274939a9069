//! Bimetal itself: the production engine on modelled devices.
//!
//! The engine is the code that is shipped; `env` and `device` stand in for Linux, in virtual time. Data are not kept,
//! the engine's own books are. A request that the engine fails is a fault, and panics.
//!
//! Reading order: `waiting` (events), `env` (clock and tasks), `device` (model and kept blocks), this file,
//! `fill`.

mod device;
mod env;
mod fill;
mod waiting;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

use bimetal_sim::model::{Completion, Op, Request, END_OF_TIME};
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::error::Error;
use bimetal_volume::group::{CreateError, OpenError};
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions, Status};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

pub use self::device::Part;
use self::device::{Device, Port};
use self::env::LabEnv;
use self::fill::Filling;
use super::{Facts, System};

/// Name of group and volume.
const NAME: &str = "lab";

/// Why there is no group on these devices.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// It cannot be made.
    #[error("the group cannot be made: {0}")]
    Create(#[from] CreateError),
    /// It cannot be opened.
    #[error("the group cannot be opened: {0}")]
    Open(#[from] OpenError),
}

/// What a group is made of.
pub struct Setup {
    /// The fast device.
    pub fast: Part,
    /// The slow device.
    pub slow: Part,
    /// Whether chunks are moved.
    pub migrate: bool,
    /// Seed of the engine's chance.
    pub seed: u64,
}

/// Ends of requests, not yet handed to the driver.
type Done = Rc<RefCell<VecDeque<(Completion, Result<(), Error>)>>>;

/// A group of one fast and one slow device, with one volume over all of both.
pub struct Bimetal {
    env: LabEnv,
    /// The fast device, the slow one.
    ports: [Rc<Port>; 2],
    options: OpenOptions,
    /// Absent between a stop and the next open.
    open: Option<Open>,
    done: Done,
    /// Moves of the group before it was opened last.
    earlier: Facts,
    filling: Filling,
}

struct Open {
    group: Group<LabEnv>,
    volume: Volume<LabEnv>,
}

impl Bimetal {
    /// Makes a group with default options, and opens it. Time passes by what that takes.
    pub fn new(setup: Setup) -> Result<Bimetal, SetUpError> {
        let env = LabEnv::new(setup.seed);
        let ports = [setup.fast, setup.slow].map(|part| Rc::new(Port::new(part)));
        ports.iter().for_each(|p| env.add(p.clone()));
        let options = OpenOptions { migrate: setup.migrate, ..OpenOptions::default() };
        let (done, earlier) = Default::default();
        let filling = Filling::No;
        let mut system = Bimetal { env, ports, options, open: None, done, earlier, filling };
        system.create()?;
        system.reopen()?;
        Ok(system)
    }

    /// From the next time it is opened on, promotions are not limited by what the SSD lasts.
    pub fn spend_freely(&mut self) {
        self.options.promotion_burst = u64::MAX;
    }

    fn devices(&self) -> [Device; 2] {
        [0, 1].map(|i| Device::new(self.env.clone(), self.ports[i].clone()))
    }

    fn create(&mut self) -> Result<(), CreateError> {
        let volume = NewVolume { name: NAME.into(), size: None, placement: Placement::Auto };
        let options = CreateOptions {
            name: NAME.into(),
            volumes: vec![volume],
            sector_size: 4096,
            reserve: None,
            journal_blocks: None,
        };
        let [fast, slow] = self.devices();
        let env = self.env.clone();
        let members = vec![(fast, Tier::Fast), (slow, Tier::Slow)];
        self.complete(async move { Group::create(&env, members, &options).await })?;
        Ok(())
    }

    /// Opens the group, if it is stopped.
    pub fn reopen(&mut self) -> Result<(), OpenError> {
        match self.open {
            Some(_) => Ok(()),
            None => self.open_with(self.options.clone()),
        }
    }

    fn open_with(&mut self, options: OpenOptions) -> Result<(), OpenError> {
        let (env, devices) = (self.env.clone(), self.devices().to_vec());
        let group = self.complete(async move { Group::open(env, devices, options).await })?;
        self.open = group.volume(NAME).map(|volume| Open { group, volume });
        Ok(())
    }

    /// Stops the group in order; requests still on their way end first, and are handed out later.
    pub fn stop(&mut self) {
        self.end_filling();
        self.close();
    }

    fn close(&mut self) {
        let moved = self.facts();
        let Some(Open { group, .. }) = self.open.take() else { return };
        let stopped = self.complete(async move { group.stop().await });
        assert!(stopped.is_ok(), "the group does not stop: {stopped:?}");
        self.earlier = Facts { promoted: moved.promoted, demoted: moved.demoted, ..Facts::default() };
    }

    /// From now on chunks are moved, or are not. The group is stopped and opened anew for that.
    pub fn set_migrate(&mut self, on: bool) {
        self.end_filling();
        self.options.migrate = on;
        self.open_anew(on);
    }

    /// What the group tells of itself. It panics between a stop and the next open.
    pub fn status(&self) -> Status {
        self.opened().group.status()
    }

    /// What the mover is doing, and why, in plain words.
    pub fn mover_words(&self) -> (String, String) {
        let mover = self.status().mover;
        (mover.doing, mover.why)
    }

    /// Bytes of memory that the engine's books on the devices take.
    pub fn kept_bytes(&self) -> u64 {
        self.ports.iter().map(|p| p.kept_bytes()).sum()
    }

    fn opened(&self) -> &Open {
        self.open.as_ref().expect("the group is open: its owner stopped it and did not reopen it")
    }

    /// Lets time pass until the future is ready.
    fn complete<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let out = result.clone();
        use bimetal_volume::env::Env;
        self.env.spawn(async move {
            let value = future.await;
            *out.borrow_mut() = Some(value);
        });
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            let went_on = self.env.run_ready() || self.env.advance(END_OF_TIME);
            assert!(went_on, "nothing is ready, and no device request or timer is on its way");
        }
    }

    fn next_done(&mut self) -> Option<Completion> {
        let (done, outcome) = self.done.borrow_mut().pop_front()?;
        self.env.progress();
        assert!(outcome.is_ok(), "the engine failed request {}: {outcome:?}", done.id);
        Some(done)
    }
}

/// Carries out a request.
async fn serve(volume: &Volume<LabEnv>, request: Request) -> Result<(), Error> {
    let Request { op, offset, len } = request;
    match op {
        Op::Read => volume.read(offset, len).await.map(drop),
        // The bytes are whatever the buffer held: nobody looks at them.
        Op::Write => {
            let data = BufMut::with_phase(len as usize, offset).freeze();
            volume.write(offset, data, WriteFlags::default()).await
        }
        Op::Trim => volume.trim(offset, len, WriteFlags::default()).await,
        Op::Flush => volume.flush().await,
    }
}

impl System for Bimetal {
    fn name(&self) -> String {
        match self.options.migrate {
            true => "Bimetal".into(),
            false => "Bimetal without moves".into(),
        }
    }

    fn size(&self) -> u64 {
        self.opened().volume.size()
    }

    fn now(&self) -> u64 {
        self.env.time()
    }

    fn submit(&mut self, id: u64, request: Request) {
        self.end_filling();
        let (volume, done, env) = (self.opened().volume.clone(), self.done.clone(), self.env.clone());
        use bimetal_volume::env::Env;
        self.env.spawn(async move {
            let outcome = serve(&volume, request).await;
            done.borrow_mut().push_back((Completion { id, at: env.time() }, outcome));
        });
    }

    fn run(&mut self, until: u64) -> Option<Completion> {
        self.end_filling();
        let until = until.clamp(self.now(), END_OF_TIME.max(self.now()));
        loop {
            if let Some(done) = self.next_done() {
                return Some(done);
            }
            if !self.env.run_ready() && !self.env.advance(until) {
                self.env.set_time(until);
                return None;
            }
        }
    }

    fn fast_bytes(&self, offset: u64, len: u64) -> u64 {
        let (mut at, end, mut fast) = (offset, offset + len, 0);
        while at < end {
            // An answer may end before the range does.
            let extents = self.opened().volume.extents(at, end - at, usize::MAX).unwrap_or_default();
            fast += extents.iter().filter(|e| e.data && matches!(e.tier, 1 | 3)).map(|e| e.len).sum::<u64>();
            match extents.iter().map(|e| e.len).sum() {
                0 => break,
                told => at += told,
            }
        }
        fast
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts { fast: self.ports[0].traffic(), slow: self.ports[1].traffic(), ..self.earlier };
        if let Some(open) = &self.open {
            let status = open.group.status();
            facts.promoted += status.mover.promoted * CHUNK;
            facts.demoted += status.mover.demoted * CHUNK;
            facts.fast_free = status.fast_free;
        }
        facts
    }
}

impl Drop for Bimetal {
    fn drop(&mut self) {
        // Tasks hold the engine, and the engine its tasks.
        self.open = None;
        self.env.end();
    }
}

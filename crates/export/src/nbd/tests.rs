//! One named test per behaviour, through the client in memory. `World` runs them all.

mod limits;
mod negotiation;
mod requests;
mod room;
mod stopping;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use bimetal_nbd::request::HeaderStyle;
use bimetal_volume::backend::{Backend, Extent, Pieces, Wanted, WriteFlags};
use bimetal_volume::buf::Buf;
use bimetal_volume::error::Error;

use super::*;
use crate::backends::Memory;
use crate::client::{Client, ClientError, ClientOptions};
use crate::testing::{pipe, PipeConn, TestRuntime};

const SIZE: u64 = 8 << 20;

/// A memory volume that counts what reaches it, and holds requests back while its gate is closed.
#[derive(Clone)]
struct Probe {
    memory: Memory,
    gate: Rc<Gate>,
    log: Rc<RefCell<Vec<String>>>,
    fail: Rc<RefCell<Option<Error>>>,
    sector: Rc<Cell<u32>>,
    locked: Rc<Cell<bool>>,
}

#[derive(Default)]
struct Gate {
    closed: Cell<bool>,
    waiting: Cell<usize>,
    changed: Signal,
}

impl Gate {
    fn open(&self) {
        self.closed.set(false);
        self.changed.notify();
    }

    async fn pass(&self) {
        self.waiting.set(self.waiting.get() + 1);
        self.changed.wait_until(|| !self.closed.get()).await;
        self.waiting.set(self.waiting.get() - 1);
    }
}

impl Probe {
    fn new(size: u64) -> Probe {
        let sector = Rc::new(Cell::new(4096));
        Probe {
            memory: Memory::new(size),
            gate: Rc::default(),
            log: Rc::default(),
            fail: Rc::default(),
            sector,
            locked: Rc::default(),
        }
    }

    async fn enter(&self, what: String) -> Result<(), Error> {
        self.log.borrow_mut().push(what);
        self.gate.pass().await;
        self.fail.borrow().clone().map_or(Ok(()), Err)
    }
}

impl Backend for Probe {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn is_locked(&self) -> bool {
        self.locked.get()
    }
    fn sector_size(&self) -> u32 {
        self.sector.get()
    }
    fn arrive(&self) -> u64 {
        self.memory.arrive()
    }
    fn arrivals(&self) -> u64 {
        self.memory.arrivals()
    }
    fn depart(&self) {
        self.memory.depart();
    }
    fn present(&self) -> u64 {
        self.memory.present()
    }
    async fn read(&self, offset: u64, len: u64) -> Result<Pieces, Error> {
        self.enter(format!("read {offset} {len}")).await?;
        self.memory.read(offset, len).await
    }
    async fn write_while(&self, offset: u64, data: Buf, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        let to_block = (4096 - offset as usize % 4096) % 4096;
        if data.len() > to_block {
            assert!(data.slice(to_block, data.len() - to_block).is_aligned(), "whole blocks lie on pages");
        }
        self.enter(format!("write {offset} {} fua {}", data.len(), flags.fua)).await?;
        if !wanted() {
            self.log.borrow_mut().push("not wanted".into());
            return Err(Error::Stopping);
        }
        self.memory.write(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), Error> {
        self.enter("flush".into()).await
    }
    async fn trim_while(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.enter(format!("trim {offset} {len} fua {}", flags.fua)).await?;
        if !wanted() {
            self.log.borrow_mut().push("not wanted".into());
            return Err(Error::Stopping);
        }
        self.memory.trim(offset, len, flags).await
    }
    async fn write_zeroes(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.enter(format!("zero {offset} {len} fua {} no_hole {}", flags.fua, flags.no_hole)).await?;
        if !wanted() {
            self.log.borrow_mut().push("not wanted".into());
            return Err(Error::Stopping);
        }
        self.memory.write_zeroes(offset, len, flags, wanted).await
    }
    async fn cache(&self, offset: u64, len: u64, _wanted: Wanted<'_>) -> Result<(), Error> {
        self.enter(format!("cache {offset} {len}")).await
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, Error> {
        self.memory.extents(offset, len, max)
    }
}

/// A server of some exports, and what it stands on.
#[derive(Clone)]
struct World {
    runtime: TestRuntime,
    server: Server<TestRuntime, Probe>,
    probe: Probe,
    pipe_capacity: usize,
    receive_max: usize,
}

/// A UUID for a volume of this name.
fn uuid_of(name: &str) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    uuid
}

impl World {
    fn with(names: &[&str], limits: Limits) -> World {
        let runtime = TestRuntime::new();
        let probe = Probe::new(SIZE);
        let export = |name: &&str| Export {
            uuid: uuid_of(name),
            name: (*name).to_owned(),
            description: format!("the volume {name}"),
            backend: probe.clone(),
            read_only: name.ends_with("-ro"),
        };
        let server = Server::new(runtime.clone(), names.iter().map(export).collect(), limits);
        World { runtime, server, probe, pipe_capacity: 1 << 20, receive_max: 1 << 20 }
    }

    fn new() -> World {
        World::with(&["main"], Limits::default())
    }

    /// A new connection to the server; this end is the client's.
    fn dial(&self) -> PipeConn {
        let (ours, theirs) = pipe(self.pipe_capacity, self.receive_max);
        self.server.serve(theirs, "test".into());
        ours
    }

    async fn connect(&self, style: HeaderStyle) -> Client<PipeConn> {
        let contexts = ["base:allocation", "bimetal:tier", "bimetal:heat"].map(str::to_owned).to_vec();
        let options = ClientOptions { style, contexts, ..ClientOptions::default() };
        Client::connect(self.dial(), &options).await.expect("the server takes us")
    }

    /// Runs a test, stops the server, and checks that nothing is left over.
    fn run<F: Future<Output = ()> + 'static>(self, test: impl FnOnce(World) -> F) {
        let world = self.clone();
        let main = test(self.clone());
        let finished = self.runtime.block_on(async move {
            main.await;
            world.server.stop().await;
            assert_eq!(world.server.connections(), 0);
        });
        assert!(finished.is_some(), "the test hangs");
        self.runtime.drop_tasks();
        assert_eq!(self.server.in_flight(), (0, 0));
        assert!(self.server.0.pool.is_idle(), "shared room is given back");
    }
}

/// The errno of a request that must have failed.
fn errno_of<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
    match result {
        Err(ClientError::Failed { errno, .. }) => errno,
        other => panic!("no errno but {other:?}"),
    }
}

const STYLES: [HeaderStyle; 3] = [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended];

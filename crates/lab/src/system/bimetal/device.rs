//! A modelled device as the engine sees it: times from the model, contents only where the engine keeps its books.
//!
//! - *Port*: the device itself; a [`Device`] is a handle to it.
//! - *Kept blocks*: blocks outside the slots (labels, journal, map, directory, away bits), each 4 KiB. Where the slots are
//!   is read from the label, when the engine writes it; what was written before, is kept wherever it lies.
//! - *Lead*: how far the model's clock is ahead of the engine's. It grows while the device is *instant*: then each request
//!   is served by the model alone and at once, and takes none of the engine's time.
//!
//! 1. A write to slots is counted, timed and forgotten; a read from them leaves the buffer as it was. Nobody in the lab
//!    looks at data.
//! 2. A kept block that holds only zeros takes no memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::LABEL_A;
use bimetal_sim::model::catalog::Spec;
use bimetal_sim::model::{BadSpec, Model, Request};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{DeviceError, DeviceTraits};
use bimetal_volume::units::{BLOCK, CHUNK};

use super::super::Traffic;
use super::env::LabEnv;

/// Errno of a request that the device does not take.
const EINVAL: i32 = 22;

/// A device for a group: its model, and what it is able to do. Whoever keeps a clone of the model can look at it, and change
/// what its kind lets one change; submitting to it is a fault.
#[derive(Clone)]
pub struct Part {
    /// Gives the times.
    pub model: Rc<RefCell<dyn Model>>,
    /// What the engine is told of it.
    pub traits: DeviceTraits,
}

impl Part {
    /// A disk.
    pub fn disk(model: Rc<RefCell<dyn Model>>) -> Part {
        Part { model, traits: DeviceTraits { discard: false, rotational: true } }
    }

    /// An SSD. Discards reach its model.
    pub fn ssd(model: Rc<RefCell<dyn Model>>) -> Part {
        Part { model, traits: DeviceTraits { discard: true, rotational: false } }
    }

    /// A new device of the catalog. Fails if its parameters were changed to impossible ones.
    pub fn new(spec: &Spec) -> Result<Part, BadSpec> {
        use bimetal_sim::model::{hdd::Hdd, ssd::Ssd};
        Ok(match spec {
            Spec::Hdd(spec) => Part::disk(Rc::new(RefCell::new(Hdd::new(spec.clone())?))),
            Spec::Ssd(spec) => Part::ssd(Rc::new(RefCell::new(Ssd::new(spec.clone())?))),
        })
    }
}

/// The state of a device.
pub(super) struct Port {
    part: Part,
    size: u64,
    traffic: Cell<Traffic>,
    instant: Cell<bool>,
    lead: Cell<u64>,
    /// First byte of the slots, and the first behind them.
    slots: Cell<(u64, u64)>,
    kept: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl Port {
    pub(super) fn new(part: Part) -> Port {
        let size = part.model.borrow().size() / BLOCK * BLOCK;
        let (traffic, instant, lead) = Default::default();
        Port { part, size, traffic, instant, lead, slots: Cell::new((0, 0)), kept: RefCell::default() }
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    pub(super) fn set_instant(&self, on: bool) {
        self.instant.set(on);
    }

    /// Bytes of memory that the kept blocks take.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.borrow().len() as u64 * BLOCK
    }

    /// When something happens next, by the engine's clock.
    pub(super) fn next_event(&self) -> Option<u64> {
        let at = self.part.model.borrow_mut().next_event()?;
        Some(at.saturating_sub(self.lead.get()))
    }

    /// Ends what is complete by now.
    pub(super) fn complete(&self, env: &LabEnv) {
        let now = env.time() + self.lead.get();
        loop {
            let done = self.part.model.borrow_mut().complete(now);
            let Some(done) = done else { return };
            env.happen(done.id as u32);
        }
    }

    /// Lets the model serve everything it has, without any time passing for the engine.
    fn serve_all(&self, env: &LabEnv) {
        loop {
            let done = self.part.model.borrow_mut().wait();
            let Some(done) = done else { return };
            self.lead.set(self.lead.get().max(done.at.saturating_sub(env.time())));
            env.happen(done.id as u32);
        }
    }

    fn in_slots(&self, offset: u64, len: u64) -> bool {
        let (start, end) = self.slots.get();
        start <= offset && offset + len <= end
    }

    fn keep(&self, offset: u64, data: &[u8]) {
        if self.in_slots(offset, data.len() as u64) {
            return;
        }
        let mut kept = self.kept.borrow_mut();
        for (i, block) in data.chunks(BLOCK as usize).enumerate() {
            let number = offset / BLOCK + i as u64;
            if block.iter().all(|b| *b == 0) {
                kept.remove(&number);
            } else if let Some(old) = kept.get_mut(&number) {
                old.copy_from_slice(block);
            } else {
                kept.insert(number, block.into());
            }
        }
        drop(kept);
        if offset == LABEL_A && data.len() == LABEL_SIZE {
            self.learn(data);
        }
    }

    /// A label says where the slots are.
    fn learn(&self, data: &[u8]) {
        let Ok(label) = Label::decode(data, LABEL_A) else { return };
        let layout = label.layout();
        self.slots.set((layout.slots, layout.slots + layout.slot_count * CHUNK));
    }

    fn recall(&self, offset: u64, buf: &mut [u8]) {
        if self.in_slots(offset, buf.len() as u64) {
            return;
        }
        let kept = self.kept.borrow();
        for (i, block) in buf.chunks_mut(BLOCK as usize).enumerate() {
            match kept.get(&(offset / BLOCK + i as u64)) {
                Some(content) => block.copy_from_slice(content),
                None => block.fill(0),
            }
        }
    }
}

/// The engine's handle to a device.
#[derive(Clone)]
pub(super) struct Device {
    env: LabEnv,
    port: Rc<Port>,
}

impl Device {
    pub(super) fn new(env: LabEnv, port: Rc<Port>) -> Device {
        Device { env, port }
    }

    /// Lets the model serve a request.
    async fn serve(&self, request: Request) -> Result<(), DeviceError> {
        let port = &self.port;
        let mut traffic = port.traffic.get();
        traffic.count(&request);
        port.traffic.set(traffic);
        let (n, event) = self.env.event();
        let now = self.env.time() + port.lead.get();
        let taken = port.part.model.borrow_mut().submit(now, u64::from(n), request);
        if taken.is_err() {
            // Nobody else will end the event.
            self.env.happen(n);
            return Err(DeviceError::Io(EINVAL));
        }
        if port.instant.get() {
            port.serve_all(&self.env);
        }
        event.await;
        Ok(())
    }
}

impl bimetal_volume::env::Device for Device {
    fn size(&self) -> u64 {
        self.port.size
    }

    fn traits(&self) -> DeviceTraits {
        self.port.part.traits
    }

    async fn read(&self, offset: u64, mut buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        let result = self.serve(Request::read(offset, buf.len() as u64)).await;
        self.port.recall(offset, &mut buf);
        (buf, result)
    }

    async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        self.port.keep(offset, &buf);
        self.serve(Request::write(offset, buf.len() as u64)).await
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        self.serve(Request::flush()).await
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.serve(Request::trim(offset, len)).await
    }
}

//! A small group in memory, on devices that fail and lose what was not synced. For tests.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;

use bimetal_format::label::{Epoch, Label, MemberCode, MemberRow, PageRun, PlacementCode, Repair, TierCode};
use bimetal_format::label::{VolumeRow, VolumeState};
use bimetal_format::layout::Layout;
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Device, DeviceError, DeviceTraits};

use super::{label_places, BLOCK};

pub(crate) const GROUP: [u8; 16] = [0xab; 16];
/// Bytes of the first member; each further one has 1 MiB more.
pub(crate) const SIZE: u64 = 6 << 20;
/// The epoch of [`group`].
pub(crate) const EPOCH: u64 = 77;

/// Runs what never waits.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("memory makes nobody wait"),
    }
}

/// The power of a machine: it goes after so many writes and syncs.
#[derive(Clone, Default)]
pub(crate) struct Power(Rc<RefCell<Option<u64>>>);

impl Power {
    /// From now on so many writes and syncs are done.
    pub(crate) fn fails_after(&self, n: u64) {
        *self.0.borrow_mut() = Some(n);
    }

    pub(crate) fn is_back(&self) {
        *self.0.borrow_mut() = None;
    }

    fn step(&self) -> Result<(), DeviceError> {
        match &mut *self.0.borrow_mut() {
            Some(0) => Err(DeviceError::Io(5)),
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// A device in memory.
#[derive(Clone)]
pub(crate) struct Memory {
    state: Rc<RefCell<State>>,
    power: Power,
}

struct State {
    content: Vec<u8>,
    /// Content of blocks before they were written, oldest first, as long as that is not synced.
    unsynced: Vec<(u64, Vec<u8>)>,
    bad_blocks: BTreeSet<u64>,
    /// Blocks that cannot be read so many times.
    flaky: BTreeMap<u64, u32>,
    /// A block whose writes are confirmed and do nothing.
    stuck: Option<u64>,
}

impl Memory {
    pub(crate) fn new(content: Vec<u8>, power: &Power) -> Memory {
        let state =
            State { content, unsynced: Vec::new(), bad_blocks: BTreeSet::new(), flaky: BTreeMap::new(), stuck: None };
        Memory { state: Rc::new(RefCell::new(state)), power: power.clone() }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.state.borrow().content.clone()
    }

    /// From now on the block at byte `offset` cannot be read.
    pub(crate) fn make_bad(&self, offset: u64) {
        self.state.borrow_mut().bad_blocks.insert(offset / BLOCK);
    }

    /// The block at byte `offset` cannot be read the next `times` times.
    pub(crate) fn fails(&self, offset: u64, times: u32) {
        self.state.borrow_mut().flaky.insert(offset / BLOCK, times);
    }

    /// From now on writes of the block at byte `offset` change nothing.
    pub(crate) fn keeps(&self, offset: u64) {
        self.state.borrow_mut().stuck = Some(offset);
    }

    /// A power cut: of what was not synced every second block is lost, or all, or nothing.
    pub(crate) fn loses(&self, which: Loss) {
        let mut state = self.state.borrow_mut();
        let unsynced = std::mem::take(&mut state.unsynced);
        for (i, (offset, before)) in unsynced.into_iter().enumerate().rev() {
            if which == Loss::All || which == Loss::EverySecond && i % 2 == 0 {
                state.content[offset as usize..][..before.len()].copy_from_slice(&before);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Nothing,
    EverySecond,
    All,
}

impl Device for Memory {
    fn size(&self) -> u64 {
        self.state.borrow().content.len() as u64
    }

    fn traits(&self) -> DeviceTraits {
        DeviceTraits { discard: false, rotational: false }
    }

    async fn read(&self, offset: u64, mut buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        let mut state = self.state.borrow_mut();
        let blocks = offset / BLOCK..(offset + buf.len() as u64).div_ceil(BLOCK);
        let left = state.flaky.range_mut(blocks.clone()).map(|(_, left)| left).find(|left| **left > 0);
        let fails = left.map(|left| *left -= 1).is_some();
        if fails || state.bad_blocks.range(blocks).next().is_some() {
            return (buf, Err(DeviceError::Io(5)));
        }
        let len = buf.len();
        buf.copy_from_slice(&state.content[offset as usize..][..len]);
        (buf, Ok(()))
    }

    async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        self.power.step()?;
        let mut state = self.state.borrow_mut();
        for (at, block) in (offset..).step_by(BLOCK as usize).zip(buf.chunks(BLOCK as usize)) {
            let place = at as usize..at as usize + block.len();
            let before = state.content[place.clone()].to_vec();
            state.unsynced.push((at, before));
            if state.stuck != Some(at) {
                state.content[place].copy_from_slice(block);
            }
            state.bad_blocks.remove(&(at / BLOCK));
        }
        Ok(())
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        self.power.step()?;
        self.state.borrow_mut().unsynced.clear();
        Ok(())
    }

    async fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }
}

/// Labels of a group of so many members, the first of them fast.
pub(crate) fn labels(members: u8) -> Vec<Label> {
    let size = |i: u8| SIZE + (u64::from(i) << 20);
    let layout = |i: u8| Layout::plan(size(i), 16, 8).expect("large enough");
    let tier = |i: u8| if i == 0 { TierCode::Fast } else { TierCode::Slow };
    let row = |i: u8| MemberRow {
        uuid: [i + 1; 16],
        tier: tier(i),
        size: size(i),
        slots: layout(i).slot_count as u32,
        state: MemberCode::Member,
    };
    let rows: Vec<MemberRow> = (0..members).map(row).collect();
    (0..members).map(|i| label(i, size(i), &layout(i), &rows)).collect()
}

fn label(index: u8, size: u64, layout: &Layout, rows: &[MemberRow]) -> Label {
    let mut present = [0; 32];
    present[0] = ((1u16 << rows.len()) - 1) as u8;
    let volume = VolumeRow {
        uuid: [0xcd; 16],
        name: "main".into(),
        size: 1 << 20,
        id: 1,
        runs: vec![PageRun { first: 0, count: 1 }],
        family: 0,
        placement: PlacementCode::Auto,
        state: VolumeState::Living,
    };
    Label {
        sequence: 9,
        compatible: 0,
        read_only_compatible: 0,
        group: GROUP,
        group_name: "tank".into(),
        member: index,
        created: 1,
        device_size: size,
        reserve: 0,
        sector_size: 4096,
        next_volume: 2,
        clean: true,
        epoch: Epoch {
            id: EPOCH,
            first_generation: 1,
            members: present,
            confirmed: true,
            history: vec![70, 60],
            cut_off: 1,
        },
        journal_tail: 0,
        journal_tail_hash: 5,
        journal_end: 0,
        checkpoint_generation: 0,
        root_generation: 0,
        root_side: 0,
        mirrors_from: 0,
        policy_clock: 0,
        generation: 0,
        tables: 0,
        members_changed: false,
        joining: false,
        zones: layout.zones(),
        members: rows.to_vec(),
        volumes: vec![volume],
        families: Vec::new(),
        next_family: 0,
        keys_side: 0,
        repair: Repair::None,
        repair_id: 0,
        stopped: false,
    }
}

/// Writes the label into both places of an image of the device.
pub(crate) fn put_label(image: &mut [u8], label: &Label) {
    for place in label_places(label.device_size) {
        let bytes = label.encode(place);
        image[place as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
}

/// Images of the devices: labels, something in two of three blocks of the zones, and something else in slots.
pub(crate) fn images(members: u8) -> Vec<Vec<u8>> {
    let image = |label: Label| {
        let mut image = vec![0x55; label.device_size as usize];
        for zone in label.zones.iter().filter(|z| z.kind != bimetal_format::layout::ZoneKind::Slots) {
            let blocks = image[zone.offset as usize..][..zone.len as usize].chunks_mut(BLOCK as usize);
            blocks.enumerate().for_each(|(i, block)| block.fill((i % 3) as u8 * (label.member + 1)));
        }
        put_label(&mut image, &label);
        image
    };
    labels(members).into_iter().map(image).collect()
}

/// Saves devices as file `id`.
pub(crate) async fn save(id: [u8; 16], devices: &[(String, Memory)], path: &std::path::Path) {
    super::write::save_devices(id, 0, devices, path).await.expect("saved");
}

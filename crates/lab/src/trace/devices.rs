//! Where the devices of a recording lie on the volume it is replayed on.
//!
//! A recording may cover several devices, each with addresses from 0. On one volume they are laid one after another, or
//! all but one are left out. No device is larger than [`DEVICE_MAX`]: a request beyond that is wrong, and must not take the
//! room of the others.

use std::collections::BTreeMap;

use super::error::excerpt;
use super::Wrong;

/// More devices than this are a sign of a file that is no trace.
const DEVICES_MAX: usize = 4096;
/// Bytes that no device has more of, 1 PiB: as many devices as there may be fit one after another.
pub(super) const DEVICE_MAX: u64 = 1 << 50;
const _: () = assert!(DEVICE_MAX <= i64::MAX as u64 / DEVICES_MAX as u64);
/// Devices that are laid one after another begin at multiples of this.
const GIB: u64 = 1 << 30;

/// A device of a recording, and its place on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its name in the trace: `host.disk` (msr), the ASU (spc), `major,minor` (blktrace, blkparse), the file (fio).
    pub name: String,
    /// Its first byte on the volume.
    pub start: u64,
    /// Bytes; a request beyond them is dropped or shortened.
    pub len: u64,
}

/// What to do with a trace of several devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// Take only this one, laid at 0.
    Only(String),
    /// Lay them at multiples of so many bytes, in order of their first request.
    Slots(u64),
    /// Lay them like this; those that are not named are left out. [`super::survey`] makes such a list.
    Laid(Vec<Extent>),
}

/// How a device's requests are placed.
enum Rule {
    /// The first device is the only one; another is an error.
    Single,
    Given(Devices),
    /// Everything at its own address, and the highest byte of each device is kept.
    Survey,
}

/// The devices met so far.
pub(super) struct Names {
    rule: Rule,
    by_name: BTreeMap<Box<[u8]>, u32>,
    devices: Vec<Device>,
    /// The one of the last request, as the next is most likely to the same.
    last: Option<(Box<[u8]>, u32)>,
}

/// Where a device lies.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Its first byte on the volume.
    pub(super) start: u64,
    /// Bytes that it may have.
    pub(super) len: u64,
}

struct Device {
    name: String,
    /// `None` if it is left out.
    place: Option<Place>,
    /// One more than the highest byte of the device, as placed by a survey.
    end: u64,
}

impl Names {
    pub(super) fn new(devices: Option<Devices>) -> Names {
        Names::with(devices.map_or(Rule::Single, Rule::Given))
    }

    pub(super) fn surveying() -> Names {
        Names::with(Rule::Survey)
    }

    fn with(rule: Rule) -> Names {
        Names { rule, by_name: BTreeMap::new(), devices: Vec::new(), last: None }
    }

    /// The number of a device, for [`Names::place`].
    pub(super) fn number(&mut self, name: &[u8]) -> Result<u32, Wrong> {
        match &self.last {
            Some((last, n)) if **last == *name => return Ok(*n),
            _ => {}
        }
        let n = match self.by_name.get(name) {
            Some(&n) => n,
            None => self.add(name)?,
        };
        self.last = Some((name.into(), n));
        Ok(n)
    }

    /// Where a device lies; `None` if it is left out. A trace without devices is one at 0.
    pub(super) fn place(&self, device: Option<u32>) -> Option<Place> {
        match device.and_then(|n| self.devices.get(n as usize)) {
            Some(device) => device.place,
            None => Some(Place { start: 0, len: u64::MAX }),
        }
    }

    /// A device's name, empty in a trace without devices.
    pub(super) fn name(&self, device: Option<u32>) -> &str {
        device.and_then(|n| self.devices.get(n as usize)).map_or("", |device| &device.name)
    }

    /// Keeps the highest byte of a device, for [`Names::extents`].
    pub(super) fn reach(&mut self, device: Option<u32>, end: u64) {
        if let Some(device) = device.and_then(|n| self.devices.get_mut(n as usize)) {
            device.end = device.end.max(end);
        }
    }

    /// The devices one after another, in order of their first request, each at a whole GiB.
    pub(super) fn extents(&self) -> Vec<Extent> {
        let mut start = 0u64;
        let mut extents = Vec::with_capacity(self.devices.len());
        for device in &self.devices {
            let len = device.end.max(1).div_ceil(GIB).saturating_mul(GIB);
            extents.push(Extent { name: device.name.clone(), start, len });
            start = start.saturating_add(len);
        }
        extents
    }

    fn add(&mut self, name: &[u8]) -> Result<u32, Wrong> {
        let n = self.devices.len();
        if n >= DEVICES_MAX {
            return Err(Wrong::ManyDevices(DEVICES_MAX));
        }
        let text = String::from_utf8_lossy(name).into_owned();
        let alone = Some(Place { start: 0, len: DEVICE_MAX });
        let place = match &self.rule {
            Rule::Single if n == 0 => alone,
            Rule::Single => {
                return Err(Wrong::SecondDevice { first: self.devices[0].name.clone(), second: excerpt(name) });
            }
            Rule::Survey => alone,
            Rule::Given(Devices::Only(wanted)) => alone.filter(|_| *wanted == text),
            Rule::Given(Devices::Slots(bytes)) => Some(Place { start: bytes.saturating_mul(n as u64), len: *bytes }),
            Rule::Given(Devices::Laid(extents)) => {
                let extent = extents.iter().find(|e| e.name == text);
                extent.map(|e| Place { start: e.start, len: e.len })
            }
        };
        self.devices.push(Device { name: text, place, end: 0 });
        // DEVICES_MAX fits.
        let number = n as u32;
        self.by_name.insert(name.into(), number);
        Ok(number)
    }
}

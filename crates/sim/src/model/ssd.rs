//! An SSD: reads go through channels and a link, writes through one server, and garbage collection slows the writes.
//!
//! - *Channel*: reads a flash page in a fixed time, one read after another. *Link*: carries the bytes of all reads.
//! - *Write server*: takes an overhead and the transfer of each write, one after another.
//! - *Base time*: what a write takes without garbage collection. A page moved by cleaning costs as much as the host's
//!   writes cost per page at present. So the steady speed is the peak divided by the write amplification.
//! - *Debt*: time that cleaning has cost and no write has paid yet. A write pays a slice of it, not all; idle time pays
//!   too.
//! - *Scale*: of a large device only one region in `scale` has its pages modelled; all writes share what cleaning these
//!   regions cost. Regions are picked by a hash within each run of `scale` of them, so that any workload whose pattern
//!   is not made for it is sampled fairly. The modelled flash then cleans in units `scale` times as large, as devices
//!   do that join the blocks of many dies.
//!
//! Reads do not wait for writes or cleaning: the fitted figures have each alone.

use super::ftl::{Counts, Ftl, Geometry, UNITS};
use super::sandforce::{Content, Reducer};
use super::{check, transfer_ns, BadSpec, Completion, Model, Op, Ready, Refused, Request};
use super::{END_OF_TIME, LONGEST_NS, SLOWEST};
use crate::prng::mix;

/// Bytes of a region: the unit of sampling.
const REGION: u64 = 128 << 10;
/// Pages over which the cost of a page is averaged.
const AVERAGED_PAGES: f64 = 4096.0;
/// Nanoseconds to erase a block.
const ERASE_NS: u64 = 2_000_000;
/// A write pays at most so many times its own time of debt (or a slice, if that is more).
const MOST_PAID: u64 = 16;

/// Parameters of an SSD.
#[derive(Clone, Debug, PartialEq)]
pub struct SsdSpec {
    /// Bytes the host sees.
    pub size: u64,
    /// Bytes of flash.
    pub raw: u64,
    /// Bytes of a page, the unit of mapping.
    pub page: u64,
    /// Pages in an erase block.
    pub block_pages: u32,
    /// One region in so many has its pages modelled; 1: all.
    pub scale: u32,
    /// Streams the host may write to; each fills blocks of its own.
    pub streams: u8,
    /// Channels for reads.
    pub channels: usize,
    /// Nanoseconds of a read in its channel.
    pub read_ns: u64,
    /// Nanoseconds of a read on the link besides its bytes.
    pub read_overhead_ns: u64,
    /// Bytes per second of the link.
    pub read_rate: u64,
    /// Nanoseconds of a write in the write server besides its bytes.
    pub write_overhead_ns: u64,
    /// Nanoseconds of a write that keep nobody else waiting.
    pub write_latency_ns: u64,
    /// Bytes per second of the write server, counted as stored.
    pub write_rate: u64,
    /// Bytes per second from the host; matters where less is stored than is written.
    pub host_rate: u64,
    /// Whether the device reduces data.
    pub reduction: bool,
    /// Nanoseconds of cleaning that a write pays at once: the length of a latency spike.
    pub gc_slice_ns: u64,
    /// Nanoseconds without a request after which the device cleans in advance.
    pub idle_delay_ns: u64,
    /// Share of the spare blocks, in percent, that are kept free by cleaning in idle time; 0 switches it off.
    pub idle_free_percent: u32,
    /// Erases a block endures.
    pub endurance: u32,
}

/// An SSD.
#[derive(Clone, Debug)]
pub struct Ssd {
    spec: SsdSpec,
    ftl: Ftl,
    reducer: Reducer,
    stream: u8,
    now: u64,
    channels: Vec<u64>,
    link_free: u64,
    write_free: u64,
    /// When it last had something to do.
    idle_since: u64,
    /// Time of cleaning not paid yet.
    debt_ns: u64,
    /// Until when the flash's own work was counted.
    accounted: u64,
    /// Base time of the last writes, and the pages they programmed; both fade.
    base_ns: f64,
    base_pages: f64,
    /// The page that was written in part, last of all.
    part: Option<u64>,
    /// Free blocks that idle cleaning aims at.
    idle_target: u32,
    ready: Ready,
}

impl Ssd {
    /// A new SSD, erased. Fails if the parameters contradict each other.
    pub fn new(spec: SsdSpec) -> Result<Ssd, BadSpec> {
        if spec.size == 0 || spec.channels == 0 || spec.scale == 0 {
            return Err(BadSpec("size, channels and scale of an SSD must be more than 0"));
        }
        let slowest = spec.read_rate.min(spec.write_rate).min(spec.host_rate);
        let delays = [spec.read_ns, spec.read_overhead_ns, spec.write_overhead_ns, spec.write_latency_ns];
        let longest = delays.into_iter().chain([spec.gc_slice_ns, spec.idle_delay_ns]).max();
        if slowest < SLOWEST || longest > Some(LONGEST_NS) {
            return Err(BadSpec("an SSD moves at least 1 kB/s, and no delay is longer than 1000 s"));
        }
        if spec.page == 0 || !REGION.is_multiple_of(spec.page) || !spec.size.is_multiple_of(spec.page) {
            return Err(BadSpec("a page divides 128 KiB and the size of the SSD"));
        }
        if spec.raw < spec.size {
            return Err(BadSpec("an SSD has at least as much flash as it shows"));
        }
        let ftl = Ftl::new(geometry(&spec)?)?;
        let shape = ftl.geometry();
        let spare = shape.blocks - shape.logical_pages.div_ceil(shape.block_pages);
        let idle_target = (u64::from(spare) * u64::from(spec.idle_free_percent.min(100)) / 100) as u32;
        Ok(Ssd {
            ftl,
            reducer: Reducer::new(Content::Compressed),
            stream: 0,
            now: 0,
            channels: vec![0; spec.channels],
            link_free: 0,
            write_free: 0,
            idle_since: 0,
            debt_ns: 0,
            accounted: 0,
            base_ns: 0.0,
            base_pages: 0.0,
            part: None,
            idle_target,
            ready: Ready::default(),
            spec,
        })
    }

    /// The parameters.
    pub fn spec(&self) -> &SsdSpec {
        &self.spec
    }

    /// The flash; of a scaled device, the part of it that is modelled.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// What the flash did; of a scaled device, the modelled part of it.
    pub fn counts(&self) -> Counts {
        self.ftl.counts()
    }

    /// Counts of the flash begin anew.
    pub fn reset_counts(&mut self) {
        self.ftl.reset_counts();
    }

    /// What is written from now on; only a device that reduces data cares.
    pub fn set_content(&mut self, content: Content) {
        if self.spec.reduction {
            self.reducer.set(content);
        }
    }

    /// The stream that is written to from now on; one the device does not have is the last one.
    pub fn set_stream(&mut self, stream: u8) {
        self.stream = stream.min(self.spec.streams - 1);
    }

    /// Bytes programmed so far into the whole flash.
    pub fn nand_bytes(&self) -> u64 {
        let c = self.ftl.counts();
        (c.host_units + c.moved_units) * self.spec.page / u64::from(UNITS) * u64::from(self.spec.scale)
    }

    /// Mean erases of a block over those it endures.
    pub fn worn(&self) -> f64 {
        let wear = self.ftl.wear();
        let sum: u64 = wear.iter().map(|e| u64::from(*e)).sum();
        sum as f64 / wear.len() as f64 / f64::from(self.spec.endurance.max(1))
    }

    /// The modelled page that stands for this one, if there is one.
    fn modelled(&self, page: u64) -> Option<u32> {
        let scale = u64::from(self.spec.scale);
        if scale == 1 {
            return Some(page as u32);
        }
        let per_region = REGION / self.spec.page;
        let region = page / per_region;
        let run = region / scale;
        (region % scale == mix(run) % scale).then(|| (run * per_region + page % per_region) as u32)
    }

    /// What the flash did by itself since the last request: it pays its debt, and cleans in advance after a while.
    fn pass_idle_time(&mut self, now: u64) {
        let begin = self.write_free.max(self.accounted);
        let paid = now.saturating_sub(begin).min(self.debt_ns);
        self.debt_ns -= paid;
        self.accounted = self.accounted.max(now);
        let begin = (begin + paid).max(self.idle_since + self.spec.idle_delay_ns);
        let mut left = now.saturating_sub(begin);
        let copy_ns = transfer_ns(self.spec.page, self.spec.write_rate);
        let most_live = self.spec.block_pages - 1;
        while left > 0 && self.ftl.free_blocks() < self.idle_target {
            let Some(work) = self.ftl.clean_ahead(most_live) else { break };
            let copied = work.moved_units * copy_ns / u64::from(UNITS);
            let cost = (copied + ERASE_NS) * u64::from(self.spec.scale);
            // The last block may not be done when the request comes.
            self.debt_ns += cost.saturating_sub(left);
            left = left.saturating_sub(cost);
        }
    }

    fn read(&mut self, len: u64) -> u64 {
        let channel = self.channels.iter_mut().min().map(|channel| {
            *channel = (*channel).max(self.now) + self.spec.read_ns;
            *channel
        });
        let arrived = channel.unwrap_or(self.now);
        let carried = self.spec.read_overhead_ns + transfer_ns(len, self.spec.read_rate);
        self.link_free = self.link_free.max(arrived) + carried;
        self.link_free
    }

    fn write(&mut self, offset: u64, len: u64) -> u64 {
        let host = transfer_ns(len, self.spec.host_rate);
        let stored = transfer_ns(self.reducer.stored_bytes(len), self.spec.write_rate);
        let base = self.spec.write_overhead_ns + host.max(stored);
        let (pages, moved) = self.program(offset, len);
        if self.base_pages > AVERAGED_PAGES {
            self.base_ns /= 2.0;
            self.base_pages /= 2.0;
        }
        self.base_ns += base as f64;
        self.base_pages += pages as f64;
        let page_ns = self.base_ns / self.base_pages.max(1.0);
        self.debt_ns = self.debt_ns.saturating_add((moved as f64 * f64::from(self.spec.scale) * page_ns) as u64);
        let paid = self.debt_ns.min(self.spec.gc_slice_ns.max(MOST_PAID * base));
        self.debt_ns -= paid;
        self.write_free = self.write_free.max(self.now) + base + paid;
        self.write_free + self.spec.write_latency_ns
    }

    /// Writes the pages of a range; how many were programmed for the host, and the modelled ones moved.
    fn program(&mut self, offset: u64, len: u64) -> (u64, u64) {
        let (first, end) = (offset / self.spec.page, offset + len);
        let last = (end - 1) / self.spec.page;
        let (mut pages, mut moved) = (0, 0);
        for page in first..=last {
            let start = page * self.spec.page;
            let part = offset > start || end < start + self.spec.page;
            // Parts of one page that come one after another are joined in the buffer.
            let joined = part && self.part == Some(page);
            self.part = part.then_some(page);
            if joined {
                continue;
            }
            pages += 1;
            if let Some(modelled) = self.modelled(page) {
                let units = self.reducer.next_page();
                moved += u64::from(self.ftl.write(modelled, units, self.stream).moved);
            }
        }
        (pages, moved)
    }

    fn trim(&mut self, offset: u64, len: u64) -> u64 {
        let (first, end) = (offset.div_ceil(self.spec.page), (offset + len) / self.spec.page);
        for page in first..end {
            if let Some(modelled) = self.modelled(page) {
                self.ftl.trim(modelled);
            }
        }
        self.now + self.spec.write_overhead_ns
    }
}

/// The modelled part of the flash.
fn geometry(spec: &SsdSpec) -> Result<Geometry, BadSpec> {
    let runs = spec.size.div_ceil(REGION).div_ceil(u64::from(spec.scale));
    let pages = if spec.scale == 1 { spec.size / spec.page } else { runs * (REGION / spec.page) };
    let logical_pages = u32::try_from(pages).map_err(|_| BadSpec("too many pages; use a larger scale"))?;
    // The same spare share as the whole device has.
    let raw_pages = u128::from(pages) * u128::from(spec.raw) / u128::from(spec.size);
    let blocks = u32::try_from(raw_pages / u128::from(spec.block_pages.max(1)))
        .map_err(|_| BadSpec("too many blocks; use a larger scale"))?;
    let SsdSpec { block_pages, streams, reduction, .. } = *spec;
    // Only with cleaned pages apart does a device recover by sequential writes, as they all do.
    Ok(Geometry { logical_pages, blocks, block_pages, streams, reduction, separate: true })
}

impl Model for Ssd {
    fn size(&self) -> u64 {
        self.spec.size
    }

    fn submit(&mut self, now: u64, id: u64, request: Request) -> Result<(), Refused> {
        check(&request, self.spec.size)?;
        self.now = self.now.max(now.min(END_OF_TIME));
        self.pass_idle_time(self.now);
        let Request { op, offset, len } = request;
        let end = match op {
            Op::Read => self.read(len),
            Op::Write => self.write(offset, len),
            Op::Trim => self.trim(offset, len),
            Op::Flush => {
                self.part = None;
                self.write_free.max(self.now) + self.spec.write_latency_ns
            }
        };
        self.idle_since = self.idle_since.max(end);
        self.ready.push(end, id);
        Ok(())
    }

    fn next_event(&mut self) -> Option<u64> {
        self.ready.next()
    }

    fn complete(&mut self, now: u64) -> Option<Completion> {
        self.now = self.now.max(now.min(END_OF_TIME));
        self.ready.pop(now)
    }
}

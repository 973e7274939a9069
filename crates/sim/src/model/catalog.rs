//! Parameters of real devices.
//!
//! *Fitted*: chosen so that the model gives the figures measured in the reviews of 2012 to 2014. *Data sheet*: taken
//! from the maker's published figures, and fitted to them where the model has a parameter that no data sheet names.
//! Figures marked [M] are quoted from memory and were not read again.

use super::hdd::{Hdd, HddSpec, Order};
use super::ssd::{Ssd, SsdSpec};
use super::{BadSpec, Model};

const MB: u64 = 1_000_000;
const GB: u64 = 1000 * MB;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const US: u64 = 1000;
const MS: u64 = 1000 * US;

/// A device of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// A disk.
    Hdd(HddSpec),
    /// An SSD.
    Ssd(SsdSpec),
}

impl Spec {
    /// The device, new. Fails if its parameters were changed to impossible ones.
    pub fn build(&self) -> Result<Box<dyn Model>, BadSpec> {
        Ok(match self {
            Spec::Hdd(spec) => Box::new(Hdd::new(spec.clone())?),
            Spec::Ssd(spec) => Box::new(Ssd::new(spec.clone())?),
        })
    }
}

/// An entry of the catalog.
pub struct Entry {
    /// Its name, as users write it.
    pub name: &'static str,
    /// What it stands for, for people.
    pub words: &'static str,
    /// Its parameters.
    pub spec: fn() -> Spec,
}

/// All devices, the slow ones first, each kind by age.
pub const ENTRIES: [Entry; 9] = [
    Entry { name: "hdd2012", words: "3.5\" 7200 rpm disk of 2012, 1 TB", spec: || Spec::Hdd(hdd2012()) },
    Entry { name: "hdd2014", words: "2.5\" 5400 rpm disk of 2014, 1 TB", spec: || Spec::Hdd(hdd2014()) },
    Entry { name: "hdd16tb", words: "3.5\" 7200 rpm helium disk, 16 TB", spec: || Spec::Hdd(hdd16tb()) },
    Entry { name: "pm830", words: "SATA SSD of 2012, 128 GB (Samsung PM830)", spec: || Spec::Ssd(pm830()) },
    Entry { name: "sf2200", words: "SATA SSD of 2012 with data reduction, 120 GB", spec: || Spec::Ssd(sf2200()) },
    Entry { name: "pcie480", words: "PCIe SSD of 2012, 480 GB", spec: || Spec::Ssd(pcie480()) },
    Entry { name: "sd0128f", words: "PCIe SSD of 2014, 128 GB (SanDisk SD0128F)", spec: || Spec::Ssd(sd0128f()) },
    Entry { name: "sata1tb", words: "current SATA SSD, 1 TB", spec: || Spec::Ssd(sata1tb()) },
    Entry { name: "nvme1tb", words: "current NVMe SSD, 1 TB", spec: || Spec::Ssd(nvme1tb()) },
];

/// The device of this name.
pub fn find(name: &str) -> Option<Spec> {
    ENTRIES.iter().find(|e| e.name == name).map(|e| (e.spec)())
}

/// The disk of machine A (2012): 3.5", 7200 rpm, 1 TB (ST1000DM003). Fitted: mean seek of a write 9.5 ms, whole stroke
/// 18 ms, 0.51 MB/s of random 4 KiB writes. Cache: 64 MB [M].
pub fn hdd2012() -> HddSpec {
    HddSpec {
        size: 1000 * GB,
        rpm: 7200,
        seek_ms: [1.2, 13.5, 3.3],
        outer_rate: 190 * MB,
        inner_rate: 100 * MB,
        overhead_ns: 1200 * US,
        follow_overhead_ns: 50 * US,
        pass_over: 512 << 10,
        read_ahead: MIB,
        queue: 16,
        order: Order::ShortestSeek,
        // Half of its 64 MB; as many writes as it can bring to the platter in about a second.
        cache_bytes: 32 * MIB,
        cache_commands: 128,
        bus_rate: 550 * MB,
    }
}

/// The disk of machine B (2014): 2.5", 5400 rpm, 1 TB. Fitted to the seeks of that class (12 to 13 ms mean, 20 to 21 ms
/// over the whole stroke: HGST, "5K320 SATA OEM specification", 4.4.2) and to 82-88 MB/s in the part that was measured.
pub fn hdd2014() -> HddSpec {
    HddSpec {
        rpm: 5400,
        seek_ms: [1.6, 21.5, -1.6],
        outer_rate: 112 * MB,
        inner_rate: 55 * MB,
        // Half of its 8 MB [M].
        cache_bytes: 4 * MIB,
        cache_commands: 64,
        ..hdd2012()
    }
}

/// A current 3.5" 7200 rpm disk of 16 TB. Data sheet of the Seagate Exos X16 (ST16000NM001G) [M]: 261 MB/s at the outer
/// edge, 256 MB cache, 170 random reads of 4 KiB per second with 16 in the queue. It names no seek times; those here
/// are of the class (WD, "Ultrastar DC HC310 OEM specification", 4.5.1: 7.4 ms reading, 8.2 ms writing on average). The
/// overhead and the order of service are fitted to the random reads; the inner rate is half of the outer, as platters
/// of that size have it.
pub fn hdd16tb() -> HddSpec {
    HddSpec {
        size: 16_000 * GB,
        seek_ms: [0.5, 13.0, 1.1],
        outer_rate: 261 * MB,
        inner_rate: 130 * MB,
        overhead_ns: 200 * US,
        order: Order::ShortestPositioning,
        read_ahead: 2 * MIB,
        cache_bytes: 128 * MIB,
        cache_commands: 256,
        ..hdd2012()
    }
}

/// The SSD of machine A (2012): Samsung PM830, 128 GiB of flash of which 121.3 GB are visible. Fitted: 322 MB/s of
/// sequential 128 KiB writes, 98 MB/s at most of random 4 KiB writes. Reads: 500 MB/s (data sheet [M]). Pages of 8 KiB,
/// blocks of 4 MiB.
pub fn pm830() -> SsdSpec {
    SsdSpec {
        // 15 GiB less than the flash.
        size: 113 * GIB,
        raw: 128 * GIB,
        page: 8 << 10,
        block_pages: 512,
        scale: 1,
        streams: 1,
        channels: 8,
        read_ns: 126 * US,
        read_overhead_ns: 0,
        read_rate: 500 * MB,
        write_overhead_ns: 29 * US,
        write_latency_ns: 0,
        write_rate: 345 * MB,
        host_rate: 550 * MB,
        reduction: false,
        gc_slice_ns: 5 * MS,
        idle_delay_ns: 100 * MS,
        idle_free_percent: 75,
        endurance: 3000,
    }
}

/// The SSD of machine B (2014): SanDisk SD0128F, PCIe, 2 lanes. Fitted: reads 754 MiB/s with 4 in the queue, writes of
/// 256 KiB 391 MiB/s. (The review measured in MiB; so taken, the model reads 128 KiB one by one at 428 MiB/s, and 427
/// were measured.)
pub fn sd0128f() -> SsdSpec {
    SsdSpec { read_rate: 754 * MIB, write_rate: 409 * MIB, host_rate: 1600 * MB, ..pm830() }
}

/// The PCIe SSD of machine C (2012): 480 GB of 512 GiB. Fitted: files of 256 MB, in writes of 1 MiB, at 672 MB/s; reads
/// as fast. Modelled by one region in four.
pub fn pcie480() -> SsdSpec {
    SsdSpec {
        size: 480 * GB,
        raw: 512 * GIB,
        scale: 4,
        channels: 16,
        read_rate: 760 * MB,
        write_rate: 685 * MB,
        host_rate: 1600 * MB,
        ..pm830()
    }
}

/// An SSD with the SandForce SF-2200 (2012): 120 GB of 128 GiB. Fitted: about 500 MB/s of sequential 128 KiB writes
/// that compress well, 231 MB/s of video. Reads: 500 MB/s (the controller's data sheet: 500 both ways).
pub fn sf2200() -> SsdSpec {
    SsdSpec { size: 120_034_123_776, write_rate: 244 * MB, host_rate: 562 * MB, reduction: true, ..pm830() }
}

/// A current SATA SSD of 1 TB. Data sheet of the Samsung 870 EVO: 560 and 530 MB/s; 13 000 reads and 36 000 writes per
/// second one by one, 98 000 and 88 000 with 32 in the queue; 600 TB of writes. No cache of single-bit cells. Modelled
/// by one region in 16.
pub fn sata1tb() -> SsdSpec {
    SsdSpec {
        size: 1_000_204_886_016,
        raw: 1024 * GIB,
        page: 4 << 10,
        block_pages: 1024,
        scale: 16,
        channels: 8,
        read_ns: 66_500,
        read_overhead_ns: 2900,
        read_rate: 560 * MB,
        write_overhead_ns: 3600,
        write_latency_ns: 16_400,
        write_rate: 530 * MB,
        host_rate: 550 * MB,
        gc_slice_ns: 2 * MS,
        // 600 TB at a write amplification of about 2.5.
        endurance: 1500,
        ..pm830()
    }
}

/// A current NVMe SSD of 1 TB. Data sheet of the Samsung 980 PRO: 7000 and 5000 MB/s; 22 000 reads and 60 000 writes
/// per second one by one [M], a million of either with many in the queue; 600 TB of writes. Its faster cache of
/// single-bit cells is not modelled: the write rate holds for any amount. Modelled by one region in 16.
pub fn nvme1tb() -> SsdSpec {
    SsdSpec {
        channels: 48,
        read_ns: 44_500,
        read_overhead_ns: 400,
        read_rate: 7000 * MB,
        write_overhead_ns: 180,
        write_latency_ns: 15_700,
        write_rate: 5000 * MB,
        host_rate: 7000 * MB,
        ..sata1tb()
    }
}

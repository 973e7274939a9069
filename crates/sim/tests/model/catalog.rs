//! The catalog: every device can be made, and the current ones give the figures of their data sheets.

use bimetal_sim::model::catalog::{find, hdd16tb, nvme1tb, sata1tb, Spec, ENTRIES};
use bimetal_sim::model::hdd::Hdd;
use bimetal_sim::model::ssd::{Ssd, SsdSpec};
use bimetal_sim::model::{Model, Op, Request};
use bimetal_sim::prng::Prng;

use crate::{closed_loop, near};

#[test]
fn every_device_can_be_made_and_found_by_its_name() {
    for entry in &ENTRIES {
        let spec = find(entry.name).expect("by its name");
        let mut device = spec.build().expect("sound");
        device.submit(5, 7, Request::write(0, 4096)).expect("fits");
        assert_eq!(device.wait().map(|c| c.id), Some(7), "{}", entry.name);
        assert_eq!(matches!(spec, Spec::Hdd(_)), entry.name.starts_with("hdd"));
    }
    assert!(find("floppy").is_none());
}

fn iops(spec: &SsdSpec, op: Op, depth: usize) -> f64 {
    let mut device = Ssd::new(spec.clone()).expect("sound");
    let mut rng = Prng::new(1);
    closed_loop(&mut device, 0, depth, 1000, 20_000, || Request { op, offset: rng.below(1 << 27) * 4096, len: 4096 })
        .iops()
}

fn mb_per_s(device: &mut dyn Model, op: Op, depth: usize) -> f64 {
    let mut at = 0;
    closed_loop(device, 0, depth, 300, 2000, || {
        at += 1 << 20;
        Request { op, offset: at, len: 1 << 20 }
    })
    .mb_per_s()
}

fn ssd_sheet(name: &str, spec: &SsdSpec, sequential: [f64; 2], single: [f64; 2], deep: [f64; 2], depth: usize) {
    for (i, op) in [Op::Read, Op::Write].into_iter().enumerate() {
        let mut device = Ssd::new(spec.clone()).expect("sound");
        near(&format!("{name} {op:?}, MB/s"), mb_per_s(&mut device, op, 8), sequential[i], 10.0);
        near(&format!("{name} {op:?} one by one, IOPS"), iops(spec, op, 1), single[i], 10.0);
        near(&format!("{name} {op:?} {depth} in flight, IOPS"), iops(spec, op, depth), deep[i], 10.0);
    }
}

#[test]
fn current_ssds_give_their_data_sheets() {
    ssd_sheet("SATA", &sata1tb(), [560.0, 530.0], [13_000.0, 36_000.0], [98_000.0, 88_000.0], 32);
    ssd_sheet("NVMe", &nvme1tb(), [7000.0, 5000.0], [22_000.0, 60_000.0], [1e6, 1e6], 64);
}

#[test]
fn a_current_disk_gives_its_data_sheet() {
    let mut device = Hdd::new(hdd16tb()).expect("sound");
    near("16 TB, outer edge, MB/s", mb_per_s(&mut device, Op::Read, 1), 261.0, 10.0);
    let mut device = Hdd::new(hdd16tb()).expect("sound");
    let (blocks, mut rng) = (device.size() / 4096, Prng::new(2));
    let seen = closed_loop(&mut device, 0, 16, 200, 4000, || Request::read(rng.below(blocks) * 4096, 4096));
    near("16 TB, random 4 KiB reads, 16 in the queue, IOPS", seen.iops(), 170.0, 10.0);
    let [a, b, c] = hdd16tb().seek_ms;
    near("16 TB, mean seek, ms", a + b * 8.0 / 15.0 + c / 3.0, 7.8, 5.0);
}

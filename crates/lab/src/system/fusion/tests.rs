use bimetal_sim::model::catalog::{pm830, Spec};
use bimetal_sim::model::hdd::HddSpec;
use bimetal_sim::model::ssd::SsdSpec;

use super::*;
use crate::system::load::{self, Load, Stop};
use crate::system::meter::Meter;
use crate::system::Op;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// A small Fusion Drive: 256 MiB of SSD, 4 GB of disk, 16 MiB of reserve.
fn small(change: impl Fn(&mut FusionSpec)) -> Fusion {
    let ssd = SsdSpec { size: 256 * MIB, raw: 384 * MIB, ..pm830() };
    let disk = HddSpec { size: 4_000 * MIB, ..bimetal_sim::model::catalog::hdd2012() };
    let mut spec = FusionSpec { reserve: 16 * MIB, pressed: 4 * MIB, stuck_after: 600 * MIB, ..FusionSpec::default() };
    change(&mut spec);
    Fusion::new(&Spec::Ssd(ssd), &Spec::Hdd(disk), spec).expect("sound parameters")
}

fn pass(system: &mut dyn System, op: Op, from: u64, len: u64) -> f64 {
    let load = Load { range: from..from + len, block: MIB, depth: 1, op };
    load::sequential(system, &load, Meter::seconds()).rate()
}

/// Homes and slots say the same, and no slot is lost.
fn check(fusion: &Fusion) {
    let units = (fusion.size / UNIT) as u32;
    let on = |tier| (0..units).filter(|u| fusion.homes.of(*u).is_some_and(|h| h.tier == tier)).count() as u32;
    let (fast, slow) = (256 * 8, 4_000 * 8);
    assert_eq!(on(Tier::Fast) + fusion.homes.free(Tier::Fast), fast);
    assert_eq!(on(Tier::Slow) + fusion.homes.free(Tier::Slow), slow);
    for slot in 0..fast {
        if let Some(unit) = fusion.homes.unit_in(slot) {
            assert_eq!(fusion.homes.of(unit).map(|h| (h.tier, h.number)), Some((Tier::Fast, slot)));
        }
    }
}

#[test]
fn new_data_fill_the_ssd_and_the_reserve_comes_back() {
    let mut fusion = small(|_| ());
    let first = pass(&mut fusion, Op::Write, 0, 250 * MIB);
    assert!((300e6..345e6).contains(&first), "{first}");
    pass(&mut fusion, Op::Write, 250 * MIB, 50 * MIB);
    assert_eq!((fusion.fast_bytes(0, 300 * MIB), fusion.free_bytes()), (256 * MIB, 0));
    // Nothing begins before the delay.
    load::pause(&mut fusion, 19 * SECOND);
    assert_eq!(fusion.facts().demoted, 0);
    load::pause(&mut fusion, 3 * SECOND);
    assert_eq!((fusion.facts().demoted, fusion.free_bytes()), (16 * MIB, 16 * MIB));
    check(&fusion);
}

#[test]
fn what_is_read_again_moves_up_and_is_scattered_there() {
    let mut fusion = small(|_| ());
    pass(&mut fusion, Op::Write, 0, 300 * MIB);
    load::pause(&mut fusion, 60 * SECOND);
    fusion.restart();
    let at = 280 * MIB;
    for (number, on_ssd) in [(1, 0), (2, 0), (3, 8 * MIB)] {
        assert_eq!(fusion.fast_bytes(at, 8 * MIB), on_ssd, "before pass {number}");
        let rate = pass(&mut fusion, Op::Read, at, 8 * MIB);
        if number == 3 {
            // Units one by one: 126 us and 128 KiB at 500 MB/s each.
            assert!((310e6..350e6).contains(&rate), "{rate}");
        }
        load::pause(&mut fusion, 60 * SECOND);
    }
    assert_eq!(fusion.free_bytes(), 16 * MIB);
    check(&fusion);
}

#[test]
fn beside_a_load_moves_have_their_pace_and_leave_what_is_pressed() {
    let mut fusion = small(|spec| spec.lag_ns = 0);
    pass(&mut fusion, Op::Write, 0, 400 * MIB);
    load::pause(&mut fusion, 60 * SECOND);
    let load = Load { range: 300 * MIB..330 * MIB, block: 4096, depth: 16, op: Op::Write };
    let before = fusion.now();
    load::random(&mut fusion, &load, 1, Stop::After(5 * SECOND), Meter::seconds());
    let per_second = fusion.facts().promoted as f64 / UNIT as f64 * 1e9 / (fusion.now() - before) as f64;
    // Reserve less what is pressed are 96 units; 60 of them move in a second until then.
    assert!(per_second > 15.0 && fusion.facts().promoted <= 12 * MIB, "{per_second}");
    assert!(fusion.free_bytes() >= 4 * MIB);
    check(&fusion);
}

#[test]
fn a_write_cancels_the_move_of_its_unit() {
    let mut fusion = small(|_| ());
    pass(&mut fusion, Op::Write, 0, 400 * MIB);
    load::pause(&mut fusion, 60 * SECOND);
    pass(&mut fusion, Op::Read, 300 * MIB, 50 * MIB);
    // Moves are under way: writes come amid.
    load::pause(&mut fusion, 20 * SECOND + SECOND / 10);
    let load = Load { range: 300 * MIB..350 * MIB, block: 4096, depth: 8, op: Op::Write };
    for round in 0..20 {
        load::random(&mut fusion, &load, round, Stop::Requests(50), Meter::seconds());
        load::pause(&mut fusion, 20 * SECOND + 50_000_000);
    }
    load::pause(&mut fusion, 60 * SECOND);
    check(&fusion);
    assert!(fusion.facts().promoted > 0);
    load::once(&mut fusion, Request::trim(300 * MIB, 50 * MIB));
    assert_eq!(fusion.fast_bytes(300 * MIB, 50 * MIB), 0);
    check(&fusion);
}

#[test]
fn after_a_very_long_stream_nothing_moves_until_a_restart() {
    let mut fusion = small(|_| ());
    pass(&mut fusion, Op::Write, 0, 700 * MIB);
    load::pause(&mut fusion, 3600 * SECOND);
    assert!(fusion.is_stuck());
    assert_eq!(fusion.facts().demoted, 0);
    fusion.restart();
    load::pause(&mut fusion, 60 * SECOND);
    assert_eq!(fusion.facts().demoted, 16 * MIB);
}

#[test]
fn holes_take_no_time_and_flushes_reach_both_devices() {
    let mut fusion = small(|_| ());
    assert_eq!(load::once(&mut fusion, Request::read(MIB, MIB)), 0);
    load::once(&mut fusion, Request::write(MIB + 4096, 8192));
    assert!(load::once(&mut fusion, Request::flush()) > 0);
    assert_eq!(fusion.fast_bytes(MIB, MIB), UNIT);
}

#[test]
fn a_concatenated_set_never_moves_anything() {
    let ssd = SsdSpec { size: 256 * MIB, raw: 384 * MIB, ..pm830() };
    let disk = Spec::Hdd(bimetal_sim::model::catalog::hdd2012());
    let mut set = Concat::new(&Spec::Ssd(ssd), &disk).expect("sound parameters");
    pass(&mut set, Op::Write, 0, 300 * MIB);
    for _ in 0..3 {
        let rate = pass(&mut set, Op::Read, 256 * MIB, 40 * MIB);
        assert!((100e6..200e6).contains(&rate), "{rate}");
        load::pause(&mut set, 3600 * SECOND);
    }
    assert_eq!((set.fast_bytes(0, 300 * MIB), set.facts().promoted), (256 * MIB, 0));
    load::once(&mut set, Request::flush());
    // A request over the border goes to both.
    let before = set.facts();
    load::once(&mut set, Request::read(255 * MIB, 2 * MIB));
    assert_eq!(set.facts().fast.read_bytes - before.fast.read_bytes, MIB);
}

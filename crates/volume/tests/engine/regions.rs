//! New data in regions of the map of which slow members have not heard that they may know nothing there (C8.1).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{flush, make, open, pass, small, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

/// Bytes of a volume that a page of the map speaks of.
const REGION: u64 = 252 * CHUNK;

pub(crate) struct Made {
    pub(crate) env: MemoryEnv,
    pub(crate) d: Vec<MemoryDevice>,
    pub(crate) g: Group<MemoryEnv>,
    main: Volume<MemoryEnv>,
    other: Volume<MemoryEnv>,
}

/// An SSD that has room for all, two disks, and two volumes of which the first chunk is in use. Bits of so many regions are set together.
pub(crate) fn group(away_ahead: u32) -> Made {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let d = [4096, 8192, 4096].map(device).to_vec();
    let volume = |name: &str, mib| NewVolume { name: name.into(), size: Some(mib * MIB), placement: Placement::Auto };
    let options =
        CreateOptions { journal_blocks: Some(256), ..small(vec![volume("main", 3000), volume("other", 100)]) };
    make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect(), options);
    let g = open(&env, &d, OpenOptions { away_ahead, ..writable() }).expect("opens");
    let (main, other) = (g.volume("main").expect("there"), g.volume("other").expect("there"));
    for v in [&main, &other] {
        write(&env, v, 0, &[1; CHUNK as usize]).and_then(|()| flush(&env, v)).expect("write");
    }
    pass(&env, 60);
    Made { env, d, g, main, other }
}

impl Made {
    /// Writes a block in this region.
    pub(crate) fn write_in(&self, region: u64) -> Result<(), Error> {
        write(&self.env, &self.main, region * REGION + CHUNK, &[5; 4096])
    }

    /// The same without waiting for it; what it comes to.
    pub(crate) fn begin_in(&self, region: u64) -> Rc<RefCell<Option<Result<(), Error>>>> {
        let ended = Rc::new(RefCell::new(None));
        let (told, v) = (ended.clone(), self.main.clone());
        self.env.spawn(async move {
            let result = v.write(region * REGION, BufMut::zeroed(4096).freeze(), WriteFlags::default()).await;
            *told.borrow_mut() = Some(result);
        });
        ended
    }

    /// What lies on the SSD, where the disks have heard of it, is written and flushed in no time.
    fn others_go_on(&self) {
        assert_eq!(self.g.status().latched, None);
        let begun = self.env.now();
        for v in [&self.main, &self.other] {
            write(&self.env, v, 0, &[6; 4096]).expect("it lies on the SSD");
            write(&self.env, v, self.env.now().0 % 200 * CHUNK, &[6; 4096]).expect("there is room on the SSD");
            flush(&self.env, v).expect("it lies on the SSD");
        }
        let took = self.env.now().since(begun);
        assert!(took < Duration::from_secs(1), "it took {took:?}");
    }
}

#[test]
fn a_write_where_a_lost_disk_has_not_heard_of_any_is_refused_alone() {
    let made = group(1);
    made.d[2].lost.set(true);
    pass(&made.env, 60);
    for region in [1, 50] {
        let refused = made.write_in(region);
        assert!(matches!(refused, Err(Error::Device { member: 2, .. })), "{refused:?}");
        made.others_go_on();
    }
    made.env.kill();
    made.d[2].lost.set(false);
    let g = open(&made.env, &made.d, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    write(&made.env, &v, 50 * REGION, &[5; 4096]).and_then(|()| flush(&made.env, &v)).expect("it hears of it");
}

#[test]
fn a_gib_beyond_what_is_in_use_takes_new_data_while_a_disk_is_lost() {
    let made = group(OpenOptions::default().away_ahead);
    made.d[2].lost.set(true);
    pass(&made.env, 60);
    for region in 1..32 {
        made.write_in(region).expect("the SSD has room");
        made.others_go_on();
    }
    assert!(matches!(made.write_in(80), Err(Error::Device { member: 2, .. })));
    made.others_go_on();
}

#[test]
fn a_write_that_waits_for_a_disk_to_hear_of_its_region_keeps_no_flush_waiting() {
    let made = group(1);
    made.d[2].write_takes.set(Duration::from_secs(300));
    let waits = [made.begin_in(1), made.begin_in(50), made.begin_in(50)];
    pass(&made.env, 20);
    assert!(waits.iter().all(|w| w.borrow().is_none()), "{waits:?}");
    made.others_go_on();
    pass(&made.env, 1000);
    assert!(waits.iter().all(|w| matches!(*w.borrow(), Some(Ok(())))), "{waits:?}");
    flush(&made.env, &made.main).expect("flush");
}

#[test]
fn a_write_that_waits_for_such_a_disk_fails_alone_when_that_is_lost() {
    let made = group(1);
    made.d[2].write_takes.set(Duration::from_secs(300));
    let waits = [made.begin_in(1), made.begin_in(50)];
    pass(&made.env, 20);
    made.d[2].lost.set(true);
    pass(&made.env, 1000);
    for w in &waits {
        assert!(matches!(*w.borrow(), Some(Err(Error::Device { member: 2, .. }))), "{:?}", w.borrow());
    }
    made.others_go_on();
}

#[test]
fn new_data_that_come_one_after_the_other_wait_for_no_disk() {
    let made = group(OpenOptions::default().away_ahead);
    for d in &made.d[1..] {
        d.write_takes.set(Duration::from_secs(2));
    }
    for region in 1..90 {
        let begun = made.env.now();
        made.write_in(region).expect("the SSD has room");
        let took = made.env.now().since(begun);
        assert!(took < Duration::from_millis(100), "region {region}: {took:?}");
        pass(&made.env, 1);
    }
    // Half a GiB is ahead in any case.
    made.d[2].lost.set(true);
    (90..95).for_each(|region| made.write_in(region).expect("the SSD has room"));
    made.others_go_on();
}

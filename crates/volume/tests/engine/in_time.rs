//! What no client flushes is made durable when the commit interval is over (DESIGN D6), whatever is written meanwhile.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::CHUNK;

use crate::image::{create, flush, open, pass, stop, write};
use crate::memory::MemoryEnv;

const TAKES: Duration = Duration::from_millis(10);

#[test]
fn overwrites_that_nobody_flushes_are_synced_every_interval_beside_others_and_after_the_last() {
    let env = MemoryEnv::new();
    let mut devices = create(&env, "tank", &[16], &[64]).0;
    devices.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let group = open(&env, &devices, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let v = group.volume("main").expect("made at creation");
    write(&env, &v, 0, &[1; CHUNK as usize]).expect("write");
    flush(&env, &v).expect("flush");
    pass(&env, 30);
    // So that there is always one under way when a sync ends.
    devices[0].write_takes.set(TAKES);
    let go_on = Rc::new(Cell::new(true));
    let (going, volume) = (go_on.clone(), v.clone());
    env.spawn(async move {
        while going.get() {
            let mut data = BufMut::with_phase(4096, 0);
            data.fill(2);
            volume.write(0, data.freeze(), WriteFlags::default()).await.expect("write");
        }
    });
    let before = devices[0].syncs.get();
    pass(&env, 60);
    let beside = devices[0].syncs.get();
    assert!(beside - before >= 10, "{} syncs in a minute, one every 5 s is promised", beside - before);
    go_on.set(false);
    pass(&env, 10);
    assert!(devices[0].syncs.get() > beside, "what was written last is made durable, too");
    let all = devices[0].syncs.get();
    pass(&env, 60);
    assert_eq!(devices[0].syncs.get(), all, "nothing is owed any more");
    stop(&env, group).expect("stops");
}

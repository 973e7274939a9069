//! Kept copies far from where they are looked for: few of them, on a fast tier of millions of slots.

use bimetal_volume::backend::Backend;
use bimetal_volume::group::structure::StructureError;
use bimetal_volume::options::{NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::Group;

use crate::image::{create_sized, evacuate, open, pass, read, stop, writable, write, MIB};
use crate::memory::MemoryEnv;

fn make_cold(env: &MemoryEnv, g: &Group<MemoryEnv>, chunks: u64) -> Result<(), StructureError> {
    let new = NewVolume { name: "cold".into(), size: Some(chunks * CHUNK), placement: Placement::SlowOnly };
    let g = g.clone();
    env.block_on(async move { g.create_volume(&new).await.map(drop) })
}

#[test]
fn copies_make_room_however_far_they_are_to_seek() {
    let env = MemoryEnv::new();
    // Each member carries the map of all. The large one is empty, and comes first when copies are looked for.
    let m = create_sized(&env, "tank", &[320 << 10, 176], &[208], Some(112 * MIB));
    let g = open(&env, &m.0, OpenOptions::default()).expect("opens");
    evacuate(&env, &g, 0);
    let v = g.volume("main").expect("made at creation");
    let chunks = v.size() / CHUNK;
    (0..chunks).for_each(|c| write(&env, &v, c * CHUNK, &[c as u8; CHUNK as usize]).expect("write"));
    pass(&env, 60);
    for _ in 0..20 {
        (chunks / 2..chunks).for_each(|c| drop(read(&env, &v, c * CHUNK, 4096).expect("read")));
        pass(&env, 30);
    }
    stop(&env, g).expect("orderly stop");
    let g = open(&env, &m.0, writable()).expect("opens");
    let s = g.status();
    let slow = s.members.iter().find(|m| m.tier == Tier::Slow).expect("there is one");
    assert!(s.mover.kept > 60, "{} copies are kept", s.mover.kept);
    let made = make_cold(&env, &g, slow.free + s.mover.kept / 2);
    assert!(made.is_ok(), "{made:?}: {} copies are kept, {slow:?}", g.status().mover.kept);
    stop(&env, g).expect("orderly stop");
}

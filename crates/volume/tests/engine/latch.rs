//! The latch is told to who waits for it.

use std::cell::RefCell;
use std::rc::Rc;

use bimetal_volume::env::Env;
use bimetal_volume::units::CHUNK;

use crate::image::{create, flush, open, pass, writable, write};
use crate::memory::MemoryEnv;

#[test]
fn who_waits_for_the_latch_is_told_why() {
    let env = MemoryEnv::new();
    let members = create(&env, "tank", &[16], &[32]);
    let group = open(&env, &members.0, writable()).expect("opens");
    let volume = group.volume("main").expect("made at creation");
    let told: Rc<RefCell<Option<String>>> = Rc::default();
    let (note, waits) = (told.clone(), group.clone());
    env.spawn(async move { *note.borrow_mut() = Some(waits.until_latched().await) });
    write(&env, &volume, 0, &[1; CHUNK as usize]).expect("written");
    flush(&env, &volume).expect("flushed");
    pass(&env, 1);
    assert_eq!(*told.borrow(), None);
    write(&env, &volume, CHUNK, &[2; CHUNK as usize]).expect("written");
    members.0[0].writes_left.set(0);
    flush(&env, &volume).expect_err("the journal takes nothing");
    pass(&env, 1);
    assert_eq!(*told.borrow(), group.status().latched);
    assert!(told.borrow().as_ref().is_some_and(|why| why.contains("member 0")), "{told:?}");
    // Who comes late is told, too.
    assert_eq!(Some(env.block_on(async move { group.until_latched().await })), *told.borrow());
}

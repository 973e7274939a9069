//! Headers of families are read beside an empty disk that stands still and comes before the SSD.

use std::time::Duration;

use bimetal_volume::group::structure::{NewMember, StructureError};
use bimetal_volume::units::{Tier, CHUNK};
use bimetal_volume::Group;

use crate::beside_flushes::timed;
use crate::family::{family, header, header_block};
use crate::image::{self, evacuate, open, pass, writable, Members};
use crate::leaving_ill::{is_member, new_device, within};
use crate::memory::MemoryEnv;

/// A group with a family, in which disk 1 was emptied; the SSD was replaced once, so that it has the highest index.
fn with_a_new_ssd(env: &MemoryEnv) -> (Members, Group<MemoryEnv>) {
    let (mut m, g) = timed(env, &[16], &[32, 32]);
    let g2 = g.clone();
    env.block_on(async move { g2.create_family(family("home", 7, 1)).await }).expect("made");
    let ssd = new_device(env, 16);
    image::add(env, &g, &ssd, Tier::Fast);
    m.0.push(ssd);
    evacuate(env, &g, 0);
    pass(env, 30);
    let g2 = g.clone();
    env.block_on(async move { g2.remove_member(0).await }).expect("it is empty");
    let v = g.volume("main").expect("there");
    image::write(env, &v, 0, &[1; CHUNK as usize]).expect("written");
    image::flush(env, &v).expect("flushed");
    evacuate(env, &g, 1);
    pass(env, 30);
    assert_eq!(image::used(&g, 0), 0, "it is empty");
    (m, g)
}

/// They are the same on all members.
#[test]
fn headers_are_not_read_from_an_empty_disk_that_stands_still() {
    let env = MemoryEnv::new();
    let (m, g) = with_a_new_ssd(&env);
    m.0[1].answers_left.set(0);
    let g2 = g.clone();
    let read = within(&env, 1, async move { g2.family_header("home").await });
    read.expect("others have it").expect("whole");
    let g2 = g.clone();
    let changed = within(&env, 600, async move {
        g2.create_family(family("work", 8, 1)).await.expect("made");
        g2.stop().await
    });
    changed.expect("somebody waits for the disk").expect("in order");
}

/// What only it may have whole is asked of it, but not for ever.
#[test]
fn a_header_that_only_an_empty_disk_may_have_that_stands_still_is_replaced_on_purpose_only() {
    let env = MemoryEnv::new();
    let (m, g) = with_a_new_ssd(&env);
    m.0[2..].iter().for_each(|d| d.flip(header_block(d, "home") * 4096 + 100, 1));
    m.0[1].answers_left.set(0);
    let g2 = g.clone();
    let made = within(&env, 600, async move { g2.create_family(family("work", 8, 1)).await });
    assert!(matches!(made, Some(Err(StructureError::HeaderUnread { member: 1, .. }))), "{made:?}");
    assert!(is_member(&g, 1));
    let g2 = g.clone();
    let given = within(&env, 900, async move { g2.replace_header("home", None, header(7, 1)).await });
    assert!(matches!(given, Some(Ok(()))), "{given:?}");
    assert!(!is_member(&g, 1), "it was let go");
}

/// Headers are written to the new disk, and somebody has to be asked for them.
#[test]
fn a_disk_is_added_beside_an_empty_one_that_stands_still() {
    for damaged in [false, true] {
        let env = MemoryEnv::new();
        let (m, g) = with_a_new_ssd(&env);
        if damaged {
            m.0[2..].iter().for_each(|d| d.flip(header_block(d, "home") * 4096 + 100, 1));
        }
        m.0[1].answers_left.set(0);
        let (g2, disk) = (g.clone(), new_device(&env, 32));
        let new = NewMember { tier: Tier::Slow, force: false, journal_blocks: Some(16) };
        let added = within(&env, 900, async move { g2.add_member(disk, &new).await.map_err(|e| e.to_string()) });
        assert!(matches!(added, Some(Ok(_))), "damaged {damaged}: {added:?}");
        assert!(is_member(&g, 4));
    }
}

/// After a start a header is written anew on an empty disk that works, and the one that has it whole stands still.
#[test]
fn an_empty_disk_is_not_let_go_because_another_one_stands_still() {
    for answers in 0..16 {
        let env = MemoryEnv::new();
        let (m, g) = with_a_new_ssd(&env);
        image::stop(&env, g).expect("in order");
        m.0[1].flip(header_block(&m.0[1], "home") * 4096 + 100, 1);
        // So that the start ends before headers are read.
        m.0[2].read_takes.set(Duration::from_millis(10));
        let g = open(&env, &m.0[1..], writable()).expect("opens");
        m.0[2].answers_left.set(answers);
        pass(&env, 600);
        assert!(is_member(&g, 1), "after {answers} answers: it has answered all that it was asked");
    }
}

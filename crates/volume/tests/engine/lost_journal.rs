//! Nothing is left of the journal of an SSD after a crash: the label tells that it was not empty. What is lost is not taken for what
//! was never written, and where another SSD knows everything, nothing is.

use bimetal_volume::group::OpenError;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::repair::Plan;
use bimetal_volume::units::{Placement, Tier, CHUNK};

use crate::image::{add, flush, make, open, read, read_only, small, stop, writable, write, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

const CHUNKS: u64 = 8;

fn group(fast: usize) -> Members {
    with_ring(fast, 64)
}

/// So many SSDs and a disk, each with a journal of so many blocks.
pub(crate) fn with_ring(fast: usize, blocks: u32) -> Members {
    let env = MemoryEnv::new();
    let m = Members((0..=fast).map(|_| MemoryDevice::new(64 * MIB)).collect());
    let tier = |i| if i < fast { Tier::Fast } else { Tier::Slow };
    let members = m.0.iter().cloned().enumerate().map(|(i, d)| (d, tier(i))).collect();
    let volumes = vec![NewVolume { name: "main".into(), size: Some(32 * MIB), placement: Placement::Auto }];
    make(&env, members, CreateOptions { journal_blocks: Some(blocks), ..small(volumes) });
    m
}

/// A session that ends with a crash: so many chunks are written, each made durable.
pub(crate) fn crash(m: &Members, chunks: u64, byte: u8) {
    let env = MemoryEnv::new();
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    for n in 0..chunks {
        write(&env, &v, n * CHUNK, &[byte; 4096]).expect("write");
        flush(&env, &v).expect("flush");
    }
    drop((g, v));
    env.kill();
}

/// What `change` makes of the bytes of each block of the ring, by its number.
fn ring(d: &MemoryDevice, change: impl Fn(u64, &mut [u8])) {
    let layout = d.layout();
    for n in 0..layout.journal_blocks {
        let mut block = d.peek(layout.journal_block(n), 4096);
        change(n, &mut block);
        d.poke(layout.journal_block(n), &block);
    }
}

fn rot(d: &MemoryDevice) {
    ring(d, |_, block| block[..128].fill(0xa5));
}

fn got(m: &Members, options: OpenOptions) -> Vec<Option<u8>> {
    let env = MemoryEnv::new();
    let g = open(&env, &m.0, options).expect("opens");
    let v = g.volume("main").expect("there");
    let all = (0..CHUNKS).map(|n| read(&env, &v, n * CHUNK, 4096).ok().map(|d| d[0])).collect();
    drop((g, v));
    env.kill();
    all
}

fn refusal(m: &Members) -> OpenError {
    open(&MemoryEnv::new(), &m.copy().0, writable()).map(|_| ()).expect_err("not to be served for writing")
}

#[test]
fn the_only_journal_is_lost() {
    let m = group(1);
    crash(&m, CHUNKS, 7);
    for way in ["rot", "zeros"] {
        let m = m.copy();
        match way {
            "rot" => rot(&m.0[0]),
            _ => ring(&m.0[0], |_, block| block.fill(0)),
        }
        let why = refusal(&m);
        assert!(matches!(why, OpenError::Damaged { .. }), "{way}: {why}");
        let seen = got(&m, read_only());
        assert!(seen.iter().all(|byte| matches!(byte, None | Some(7))), "{way}: {seen:?}");
        let (e, devices) = (MemoryEnv::new(), m.copy().0);
        let of = e.clone();
        let plan = e.block_on(async move { Plan::new(of, devices, false).await }).expect("a plan");
        assert!(plan.reasons().iter().any(|r| r.contains("journal of member 0")), "{way}: {:?}", plan.reasons());
    }
}

/// Also what lay there before the last session, a whole lap ago or longer, is no empty journal.
#[test]
fn the_only_journal_is_as_it_was_before_the_session() {
    let m = group(1);
    crash(&m, CHUNKS, 7);
    let env = MemoryEnv::new();
    let g = open(&env, &m.0, writable()).expect("opens");
    stop(&env, g).expect("stops");
    let before = m.copy();
    crash(&m, CHUNKS, 9);
    let old: Vec<Vec<u8>> = {
        let layout = before.0[0].layout();
        (0..layout.journal_blocks).map(|n| before.0[0].peek(layout.journal_block(n), 4096)).collect()
    };
    ring(&m.0[0], |n, block| block.copy_from_slice(&old[n as usize]));
    assert!(matches!(refusal(&m), OpenError::Damaged { .. }));
}

#[test]
fn another_ssd_has_the_records_of_a_journal_that_is_lost() {
    for lost in 0..2 {
        let m = group(2);
        crash(&m, CHUNKS, 7);
        rot(&m.0[lost]);
        for options in [read_only(), writable()] {
            assert_eq!(got(&m.copy(), options), vec![Some(7); CHUNKS as usize], "without that of member {lost}");
        }
    }
}

/// Nothing was written since the start: its end is all that the journal has, and that it rots does no harm. Where it is lost together
/// with what lay behind it, there may have been more.
#[test]
fn the_end_that_a_start_has_put_there_rots() {
    for sessions in [1, 9] {
        let m = group(1);
        // A device that was discarded as a whole before.
        ring(&m.0[0], |_, block| block.fill(0));
        (0..sessions).for_each(|_| crash(&m, CHUNKS, 7));
        let env = MemoryEnv::new();
        let g = open(&env, &m.0, writable()).expect("opens");
        stop(&env, g).expect("stops");
        crash(&m, 0, 0);
        let label = m.0[0].label();
        assert_eq!(label.journal_end, label.journal_tail + 1, "the label tells of the end");
        let end = m.0[0].layout().journal_block(label.journal_tail);
        let damaged = |change: &dyn Fn(&mut [u8])| {
            let m = m.copy();
            let mut block = m.0[0].peek(end, 4096);
            change(&mut block);
            m.0[0].poke(end, &block);
            m
        };
        let rotten = damaged(&|block| block[..128].fill(0xa5));
        assert_eq!(got(&rotten, writable()), vec![Some(7); CHUNKS as usize]);
        assert_eq!(got(&rotten, writable()), vec![Some(7); CHUNKS as usize], "and again, after that start");
        assert!(matches!(refusal(&damaged(&|block| block.fill(0))), OpenError::Damaged { .. }));
        let more = damaged(&|block| block[..128].fill(0xa5));
        let next = m.0[0].layout().journal_block(label.journal_tail + 1);
        more.0[0].poke(next, &[0xa5; 4096]);
        assert!(matches!(refusal(&more), OpenError::Damaged { .. }));
    }
}

/// Commits until a checkpoint has given up what the journal had, then so many more.
fn crash_after_a_checkpoint(m: &Members, chunks: u64) {
    let env = MemoryEnv::new();
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    let begun = m.0[0].label().journal_tail;
    let mut n = CHUNKS;
    while m.0[0].label().journal_tail == begun {
        write(&env, &v, n * CHUNK, &[3; 4096]).expect("write");
        flush(&env, &v).expect("flush");
        n += 1;
        assert!(n < 64 + CHUNKS, "a checkpoint comes when the ring is half full");
    }
    for n in 0..chunks {
        write(&env, &v, n * CHUNK, &[7; 4096]).expect("write");
        flush(&env, &v).expect("flush");
    }
    drop((g, v));
    env.kill();
}

/// Nothing lies between the tail and what the label promises.
#[test]
fn the_only_journal_is_lost_after_a_checkpoint() {
    let m = group(1);
    crash_after_a_checkpoint(&m, CHUNKS);
    assert_eq!(got(&m.copy(), read_only()), vec![Some(7); CHUNKS as usize], "before it rots");
    for way in ["rot", "zeros"] {
        let m = m.copy();
        match way {
            "rot" => rot(&m.0[0]),
            _ => ring(&m.0[0], |_, block| block.fill(0)),
        }
        match open(&MemoryEnv::new(), &m.copy().0, writable()).map(|_| ()) {
            Err(OpenError::Damaged { .. }) => {}
            Err(why) => panic!("{way}: {why}"),
            Ok(()) => panic!("{way}: served for writing: {:?}", got(&m, writable())),
        }
    }
}

#[test]
fn another_ssd_has_the_records_after_a_checkpoint() {
    for lost in 0..2 {
        let m = group(2);
        crash_after_a_checkpoint(&m, CHUNKS);
        rot(&m.0[lost]);
        match open(&MemoryEnv::new(), &m.copy().0, writable()).map(|_| ()) {
            Ok(()) => {
                assert_eq!(got(&m.copy(), writable()), vec![Some(7); CHUNKS as usize], "without that of member {lost}")
            }
            Err(why) => panic!("without the journal of member {lost}: {why}"),
        }
    }
}

/// The start that finds that end rotten is cut off after any of its writes.
#[test]
fn the_end_rots_and_the_start_is_cut_off() {
    let m = group(1);
    ring(&m.0[0], |_, block| block.fill(0));
    crash(&m, CHUNKS, 7);
    let env = MemoryEnv::new();
    let g = open(&env, &m.0, writable()).expect("opens");
    stop(&env, g).expect("stops");
    crash(&m, 0, 0);
    let label = m.0[0].label();
    let end = m.0[0].layout().journal_block(label.journal_tail);
    let mut block = m.0[0].peek(end, 4096);
    block[..128].fill(0xa5);
    m.0[0].poke(end, &block);
    let mut refused = Vec::new();
    cut_off_anywhere(&m, |c, case| {
        if let Err(why) = open(&MemoryEnv::new(), &c.copy().0, writable()).map(|_| ()) {
            refused.push((case.to_string(), why.to_string(), got(c, read_only())));
        }
    });
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A start is cut off after each of its writes to each member; and what that leaves.
fn cut_off_anywhere(m: &Members, mut left: impl FnMut(&Members, &str)) {
    for member in 0..m.0.len() {
        for writes in 0.. {
            let c = m.copy();
            c.0[member].writes_left.set(writes);
            let env = MemoryEnv::new();
            let done = open(&env, &c.0, writable()).is_ok();
            env.kill();
            c.0[member].writes_left.set(u64::MAX);
            left(&c, &format!("after {writes} writes to member {member}"));
            if done {
                break;
            }
        }
    }
}

/// The group rests after a checkpoint, and the last block of a commit that it gave up rots: nobody needs that.
#[test]
fn a_rotten_block_before_the_tail_bars_no_start() {
    let m = group(1);
    // Where nothing was written, most devices have zeros.
    ring(&m.0[0], |_, block| block.fill(0));
    crash_after_a_checkpoint(&m, 0);
    let label = m.0[0].label();
    let place = m.0[0].layout().journal_block(label.journal_tail - 1);
    assert_eq!(label.journal_end, label.journal_tail, "nothing is promised");
    let mut block = m.0[0].peek(place, 4096);
    block[..128].fill(0xa5);
    m.0[0].poke(place, &block);
    assert_eq!(got(&m, writable())[0], Some(0));
}

/// The one that was just added, or the one that was there: the other has the records.
#[test]
fn the_journal_of_a_new_member_is_lost() {
    for lost in [0, 2] {
        let mut m = group(1);
        let env = MemoryEnv::new();
        let g = open(&env, &m.0, writable()).expect("opens");
        let new = MemoryDevice::new(64 * MIB);
        add(&env, &g, &new, Tier::Fast);
        m.0.push(new);
        let v = g.volume("main").expect("there");
        for n in 0..CHUNKS {
            write(&env, &v, n * CHUNK, &[7; 4096]).expect("write");
            flush(&env, &v).expect("flush");
        }
        drop((g, v));
        env.kill();
        rot(&m.0[lost]);
        assert_eq!(got(&m, writable()), vec![Some(7); CHUNKS as usize], "without that of member {lost}");
    }
}

/// The start that finds a journal damaged is cut off after any of the writes to any member: the next one opens the group, with all of it.
/// With a member `gone` nothing is shown then but what was shown before.
fn mended_though_cut_off(m: &Members, gone: usize) {
    let without = |m: &Members| {
        let rest = m.copy().0.into_iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, d)| d);
        got(&Members(rest.collect()), read_only())
    };
    let before = without(m);
    assert_eq!(got(&m.copy(), writable()), vec![Some(7); CHUNKS as usize], "not cut off");
    cut_off_anywhere(m, |c, case| {
        let known = |seen: &[Option<u8>]| seen.iter().zip(&before).all(|(now, then)| *now == Some(7) || now == then);
        let seen = without(c);
        assert!(known(&seen), "{case}: {seen:?}, before: {before:?}");
        if let Err(why) = open(&MemoryEnv::new(), &c.copy().0, writable()).map(|_| ()) {
            panic!("{case}: {why}");
        }
        assert_eq!(got(c, writable()), vec![Some(7); CHUNKS as usize], "{case}");
    });
}

#[test]
fn a_journal_is_lost_behind_a_checkpoint_and_the_start_is_cut_off() {
    for lost in 0..2 {
        let m = group(2);
        crash_after_a_checkpoint(&m, CHUNKS);
        rot(&m.0[lost]);
        mended_though_cut_off(&m, 1 - lost);
    }
}

/// Only the bodies of the commits rot, and their heads can be read.
#[test]
fn the_end_of_a_journal_rots_and_the_start_is_cut_off() {
    for lost in 0..2 {
        let m = group(2);
        crash(&m, CHUNKS, 7);
        let end = m.0[lost].label().journal_end;
        for place in (end..end + CHUNKS).map(|n| m.0[lost].layout().journal_block(n)) {
            m.0[lost].flip(place + 64, 64);
        }
        mended_though_cut_off(&m, 1 - lost);
    }
}

/// What could not be read may be read again later: the journal counts for as much then as if no start had come between.
#[test]
fn a_journal_cannot_be_read_and_the_start_is_cut_off() {
    let m = group(2);
    crash_after_a_checkpoint(&m, CHUNKS);
    let alone = |m: &Members| got(&Members(vec![m.copy().0[0].clone(), m.copy().0[2].clone()]), read_only());
    let place = m.0[0].layout().journal_block(m.0[0].label().journal_tail);
    for writes in 0.. {
        let c = m.copy();
        c.0[0].unread.borrow_mut().insert(place / 4096, u32::MAX);
        c.0[0].writes_left.set(writes);
        let env = MemoryEnv::new();
        let done = open(&env, &c.0, writable()).is_ok();
        env.kill();
        c.0[0].writes_left.set(u64::MAX);
        c.0[0].unread.borrow_mut().clear();
        assert_eq!(alone(&c), vec![Some(7); CHUNKS as usize], "after {writes} writes");
        if done {
            break;
        }
    }
}

//! One request over all of a large volume that holds little: the group has one thread, and everything else goes on meanwhile.

use std::cell::Cell;
use std::future::{poll_fn, Future};
use std::rc::Rc;
use std::task::Poll;

use bimetal_volume::backend::{Backend, Extent, WriteFlags, TO_ITS_END};
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::options::NewVolume;
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{create, open, read, small, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

const PLAIN: WriteFlags = WriteFlags { fua: false, no_hole: false, outlives: false };
const MIB_OF_A_TIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Bytes that a page of the map stands for.
const PAGE: u64 = 252 * CHUNK;

struct Rig {
    env: MemoryEnv,
    _group: Group<MemoryEnv>,
    v: Volume<MemoryEnv>,
}

impl Rig {
    /// A volume of nearly 2 TiB, with a block in each of its first `pages` pages of the map.
    fn new(pages: u64) -> Rig {
        let env = MemoryEnv::new();
        let m = create(&env, "tank", &[1024], &[2 * MIB_OF_A_TIB]);
        let group = open(&env, &m.0, writable()).expect("opens");
        let v = group.volume("main").expect("made at creation");
        (0..pages).for_each(|n| write(&env, &v, n * PAGE + CHUNK, &[7; BLOCK as usize]).expect("write"));
        Rig { env, _group: group, v }
    }

    /// How many turns another task has while a request runs.
    fn turns_beside<F>(&self, request: impl FnOnce(Volume<MemoryEnv>) -> F) -> u64
    where
        F: Future<Output = Result<(), Error>> + 'static,
    {
        let turns = Rc::new((Cell::new(0), Cell::new(false)));
        let other = turns.clone();
        self.env.spawn(poll_fn(move |cx| {
            other.0.set(other.0.get() + 1);
            cx.waker().wake_by_ref();
            if other.1.get() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        let request = request(self.v.clone());
        self.env.block_on(async move {
            request.await.expect("it succeeds");
            turns.1.set(true);
            turns.0.get()
        })
    }

    /// All extents, and how many answers they took.
    fn extents(&self) -> (Vec<Extent>, u64) {
        let (mut all, mut at, mut answers) = (Vec::new(), 0, 0);
        while at < self.v.size() {
            let some = self.v.extents(at, self.v.size() - at, usize::MAX).expect("extents");
            at += some.iter().map(|e| e.len).sum::<u64>();
            assert!(some.iter().all(|e| e.len > 0) && !some.is_empty(), "each answer tells of something");
            all.extend(some);
            answers += 1;
        }
        assert_eq!(at, self.v.size());
        (all, answers)
    }
}

#[test]
fn a_group_is_not_made_of_more_than_can_be_addressed_whatever_sizes_are_claimed() {
    for (size, said) in [(1 << 60, "1024 PiB"), (u64::MAX - 4095, "16384 PiB and more are more than format 1 can")] {
        let env = MemoryEnv::new();
        let devices = [MemoryDevice::new(64 * MIB), MemoryDevice::new(size)];
        let members = devices.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect();
        let volume = NewVolume { name: "main".into(), size: Some(16 * MIB), placement: Placement::Auto };
        let (e, options) = (env.clone(), small(vec![volume]));
        let made = env.block_on(async move { Group::create(&e, members, &options).await });
        let refused = made.expect_err("it is too large").to_string();
        assert!(refused.contains(said), "{refused}");
        assert!(devices.iter().all(|d| d.writes.get() == 0), "something was written");
    }
}

#[test]
fn others_have_their_turn_beside_one_request_over_a_whole_large_volume() {
    const PAGES: u64 = 100;
    let r = Rig::new(PAGES);
    let size = r.v.size();
    let enough = PAGES * 252 / 64;
    let turns = r.turns_beside(|v| async move { v.cache(0, size, TO_ITS_END).await });
    assert!(turns > enough, "{turns} turns beside CACHE");
    let turns = r.turns_beside(|v| async move { v.write_zeroes(BLOCK / 2, size - BLOCK, PLAIN, TO_ITS_END).await });
    assert!(turns > enough, "{turns} turns beside WRITE_ZEROES");
    let turns = r.turns_beside(|v| async move { v.trim(0, size, PLAIN).await });
    assert!(turns > enough, "{turns} turns beside TRIM");
    // Some have their turn because it waits, but for what is empty nobody has to.
    assert!(turns < 3 * enough, "{turns} turns beside TRIM: pages in which nothing lives are passed over");
    assert!(read(&r.env, &r.v, 5 * PAGE + CHUNK, BLOCK).expect("read") == [0; BLOCK as usize]);
    assert!(r.extents().0.iter().all(|e| (e.data, e.tier, e.heat) == (false, 0, 0)));
}

#[test]
fn what_is_empty_costs_a_request_nothing() {
    let r = Rig::new(0);
    let size = r.v.size();
    let outlives = WriteFlags { outlives: true, ..PLAIN };
    assert!(r.turns_beside(|v| async move { v.trim(0, size, outlives).await }) < 10);
    assert!(r.turns_beside(|v| async move { v.cache(0, size, TO_ITS_END).await }) < 10);
    assert_eq!(r.extents(), (vec![Extent { len: size, data: false, tier: 0, heat: 0 }], 1));
}

/// A client that asks again for what an answer left out comes to the end, and hears the same as of each chunk alone.
#[test]
fn an_answer_about_a_large_volume_is_short_and_goes_on() {
    const PAGES: u64 = 150;
    let r = Rig::new(PAGES);
    let (found, answers) = r.extents();
    assert!((4..7).contains(&answers), "{answers} answers for {} chunks", PAGES * 252);
    let data: Vec<u64> = found
        .iter()
        .scan(0, |at, e| {
            *at += e.len;
            Some((*at - e.len, e))
        })
        .filter(|(_, e)| e.data)
        .map(|(at, e)| {
            assert_eq!((e.len, e.tier), (BLOCK, 1));
            at
        })
        .collect();
    assert_eq!(data, (0..PAGES).map(|n| n * PAGE + CHUNK).collect::<Vec<_>>());
    // It ends where the range does, also inside a stretch of nothing.
    let tail = r.v.extents(200 * PAGE + 700, 3 * PAGE + 1, 9).expect("extents");
    assert_eq!(tail, [Extent { len: 3 * PAGE + 1, data: false, tier: 0, heat: 0 }]);
    let edge = r.v.extents(149 * PAGE + CHUNK + BLOCK - 10, 2 * PAGE, 9).expect("extents");
    let edge: Vec<_> = edge.iter().map(|e| (e.len, e.data, e.tier)).collect();
    let rest = CHUNK - BLOCK;
    assert_eq!(edge, [(10, true, 1), (rest, false, 1), (2 * PAGE - 10 - rest, false, 0)]);
}

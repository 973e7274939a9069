//! Clock and Bloom filters, smq, and the shadow, against naive forms.

use std::collections::HashSet;

use super::*;
use crate::policy::cache::{Arc, Cache, Lfu, Lru, S3Fifo, TinyLfu};
use crate::policy::fusion::Bloom;
use crate::policy::smq::Levels;

#[test]
fn a_filter_holds_what_was_put_in_and_little_else() {
    let mut filter = Bloom::new(1000);
    (0..1000).for_each(|c| filter.insert(c * 3));
    assert!((0..1000).all(|c| filter.contains(c * 3)));
    let wrong = (0..30_000).filter(|c| c % 3 != 0 && filter.contains(*c)).count();
    assert!(wrong < 100, "{wrong} of 20000");
}

/// Clock and sets, moved at once.
struct NaiveFusion {
    n: usize,
    full: usize,
    /// Per generation: how often each chunk was visited, up to n - 1.
    generations: Vec<Vec<HashSet<u32>>>,
    filled: usize,
    slots: Vec<Option<(u32, u8)>>,
    hand: usize,
}

impl NaiveFusion {
    fn visit(&mut self, c: u32) -> bool {
        if let Some((_, count)) = self.slots.iter_mut().flatten().find(|s| s.0 == c) {
            *count = (*count + 1).min(3);
            return true;
        }
        if self.filled == self.full || self.generations.is_empty() {
            self.generations.push(vec![HashSet::new(); self.n - 1]);
            if self.generations.len() > 4 {
                self.generations.remove(0);
            }
            self.filled = 0;
        }
        self.filled += 1;
        let seen = self.generations.iter().flatten().filter(|s| s.contains(&c)).count();
        if let Some(set) = self.generations.last_mut().and_then(|g| g.iter_mut().find(|s| !s.contains(&c))) {
            set.insert(c);
        }
        if seen + 1 >= self.n {
            self.promote(c);
        }
        false
    }

    fn promote(&mut self, c: u32) {
        let free = match self.slots.iter().position(Option::is_none) {
            Some(free) => free,
            None => loop {
                let at = self.hand;
                self.hand = (at + 1) % self.slots.len();
                match &mut self.slots[at] {
                    Some((_, 0)) => break at,
                    Some((_, count)) => *count -= 1,
                    None => {}
                }
            },
        };
        self.slots[free] = Some((c, 1));
    }
}

fn at_once(slots: u32) -> Setup {
    Setup { reserve: 0, budget: Budget::UNLIMITED, ..Setup::new(slots) }
}

#[test]
fn clock_and_bloom_is_as_the_naive_one() {
    for seed in 0..40 {
        let (slots, n) = (2 + seed % 9, 2 + (seed % 2) as usize);
        let list = mixed(seed, 30, 3000);
        let mut naive = NaiveFusion {
            n,
            full: slots as usize,
            generations: Vec::new(),
            filled: 0,
            slots: vec![None; slots as usize],
            hand: 0,
        };
        let hits = list.iter().filter(|c| naive.visit(**c)).count() as u64;
        let stream = reads(&list);
        assert_eq!(stream.visits(), 3000);
        let got = replay(&stream, &mut Seated(ClockBloom::new(slots as u32, n)), &at_once(slots as u32));
        assert_eq!(got.fast, hits, "seed {seed}");
    }
}

#[test]
fn levels_are_as_naive_ones() {
    for seed in 0..40 {
        let mut rng = Prng::new(seed);
        let mut levels = Levels::new(300);
        // Per level, the most recent first.
        let mut plain: Vec<Vec<u32>> = vec![Vec::new(); 64];
        for _ in 0..2000 {
            let item = rng.below(300) as u32;
            let at = plain.iter().position(|l| l.contains(&item));
            match rng.below(20) {
                0 => {
                    levels.even_out();
                    even_out(&mut plain);
                }
                1 | 2 => {
                    levels.remove(item);
                    plain.iter_mut().for_each(|l| l.retain(|x| *x != item));
                }
                3..=8 if at.is_none() => {
                    levels.insert(item, (item % 64) as usize);
                    plain[(item % 64) as usize].insert(0, item);
                }
                _ => {
                    let by = rng.below(4) as usize;
                    levels.raise(item, by);
                    raise(&mut plain, item, at, by);
                }
            }
            assert_eq!(levels.len(), plain.iter().map(Vec::len).sum::<usize>());
            let each = |item: u32| plain.iter().position(|l| l.contains(&item));
            assert!((0..300).all(|i| levels.level(i) == each(i)), "seed {seed}");
            assert_eq!(levels.least(), plain.iter().find_map(|l| l.last().copied()));
        }
    }
}

fn target(plain: &[Vec<u32>]) -> usize {
    plain.iter().map(Vec::len).sum::<usize>().div_ceil(64).max(1)
}

fn raise(plain: &mut [Vec<u32>], item: u32, at: Option<usize>, by: usize) {
    let Some(at) = at else { return };
    plain[at].retain(|x| *x != item);
    let up = (at + by).min(63);
    let down = if up > at { plain[up].pop() } else { None };
    plain[up].insert(0, item);
    if let Some(down) = down {
        plain[at].insert(0, down);
    }
}

/// All items in one row from the top, each level given its share of it from the top; what is over goes down a level
/// oldest first.
fn even_out(plain: &mut [Vec<u32>]) {
    let target = target(plain);
    for level in (1..64).rev() {
        while plain[level].len() > target {
            let item = plain[level].pop().expect("too many");
            plain[level - 1].insert(0, item);
        }
        while plain[level].len() < target {
            let Some(below) = (0..level).rev().find(|l| !plain[*l].is_empty()) else { break };
            let item = plain[below].remove(0);
            plain[level].insert(0, item);
        }
    }
}

/// With free moves at once, the fast tier serves what the algorithm alone would hit.
#[test]
fn a_shadow_with_free_moves_is_the_algorithm() {
    for seed in 0..30 {
        let list = mixed(seed, 40, 2000);
        let stream = reads(&list);
        let slots = 1 + (seed % 20) as u32;
        let n = stream.chunks;
        let makes: [&dyn Fn() -> Box<dyn Cache>; 3] =
            [&|| Box::new(Lru::new(n, slots as usize)), &|| Box::new(Lfu::new(n, slots as usize, 0)), &|| {
                Box::new(TinyLfu::new(n, slots as usize))
            }];
        for make in makes {
            let mut alone = make();
            let hits = list.iter().filter(|c| alone.access(**c, &mut Vec::new())).count() as u64;
            let got = replay(&stream, &mut Seated(Shadow::new(make())), &at_once(slots));
            assert_eq!((got.fast, got.accesses), (hits, 2000), "{}, seed {seed}", got.policy);
        }
    }
}

/// The reserve is a slot of 64 where nothing is born, and not eight: for baselines as for the policy.
#[test]
fn a_baseline_has_the_part_of_the_reserve_that_nothing_new_asks_for() {
    let list: Vec<u32> = (0..20_000u32).map(|i| i * 29 % 63 * 8).collect();
    let stream = reads(&list);
    let setup = Setup { reserve: 8, ..Setup::new(64) };
    let caches: [Box<dyn Cache>; 2] = [Box::new(Lru::new(stream.chunks, 56)), Box::new(Lfu::new(stream.chunks, 56, 0))];
    for cache in caches {
        let got = replay(&stream, &mut Seated(Shadow::new(cache)), &setup);
        assert!(got.fast_share() > 0.95, "{got:?}");
    }
    let got = replay(&stream, &mut Seated(ClockBloom::new(64, 2)), &setup);
    assert!(got.fast_share() > 0.95, "{got:?}");
}

#[test]
fn first_fit_keeps_what_came_first() {
    let writes: Vec<Access> = (0..20u64)
        .map(|i| Access { time_us: i * 5_000_000, op: Op::Write, offset: i % 10 * CHUNK, len: 4096 })
        .collect();
    let s = Stream::new(writes, Start::Fresh).expect("small enough");
    let got = replay(&s, &mut Seated(FirstFit), &Setup::new(6));
    assert_eq!((got.fast, got.fast_births, got.promotions, got.demotions), (12, 6, 0, 0));
}

#[test]
fn smq_keeps_a_hot_set_through_scans() {
    // 40 hot chunks, visited ten times as often as scans of 400 others.
    let mut rng = Prng::new(4);
    let mut list = Vec::new();
    for i in 0..40_000u32 {
        list.push(if i % 10 == 9 { 320 + (i / 10) % 400 } else { rng.below(40) as u32 * 8 });
    }
    let stream = reads(&list);
    let got = replay(&stream, &mut Seated(Smq::new(stream.chunks, 64)), &Setup { reserve: 2, ..Setup::new(64) });
    // Not all 90 %: where the order of the regions tells well the bar is low, and half of what a scan reads takes a place for a while.
    assert!((0.7..0.9).contains(&got.fast_share()), "{got:?}");
    assert!(got.promotions < 3000, "{got:?}");
}

#[test]
fn what_is_discarded_keeps_no_place_in_a_cache() {
    // 40 chunks are used much, and are gone; 40 others come in their place.
    let used = |first: u32, times: u32| (0..times * 40).map(move |i| (Op::Read, first + i % 40));
    let gone = (0..40).map(|c| (Op::Trim, c));
    let all: Vec<(Op, u32)> = used(0, 50).chain(gone).chain(used(100, 10)).collect();
    let access = |(i, (op, c)): (usize, &(Op, u32))| Access {
        time_us: i as u64 * 5_000_000,
        op: *op,
        offset: u64::from(*c) * CHUNK,
        len: if *op == Op::Read { 4096 } else { CHUNK },
    };
    let stream = Stream::new(all.iter().enumerate().map(access), Start::Aged).expect("small enough");
    let setup = Setup { reserve: 0, budget: Budget::UNLIMITED, ..Setup::new(40) };
    let n = stream.chunks;
    let caches: [Box<dyn Cache>; 5] = [
        Box::new(Lru::new(n, 40)),
        Box::new(Lfu::new(n, 40, 0)),
        Box::new(Arc::new(n, 40)),
        Box::new(S3Fifo::new(n, 40)),
        Box::new(TinyLfu::new(n, 40)),
    ];
    for cache in caches {
        let got = replay(&stream, &mut Seated(Shadow::new(cache)), &setup);
        // All but the first visits of each chunk, or the first two where one is not enough.
        assert!(got.fast >= 48 * 40 + 8 * 40, "{got:?}");
    }
}

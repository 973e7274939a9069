//! Replacement algorithms against naive forms: vectors, linear searches, counts without approximation.

use std::collections::HashMap;

use super::mixed;
use crate::policy::cache::{Arc, Cache, Lfu, Lru, S3Fifo, TinyLfu};

/// A naive form: a visit, and what is held.
trait Naive {
    fn visit(&mut self, c: u32);
    fn held(&self) -> Vec<u32>;
}

/// Front first.
type Queue = Vec<u32>;

fn take(q: &mut Queue, c: u32) -> bool {
    let before = q.len();
    q.retain(|x| *x != c);
    q.len() < before
}

struct NaiveLru(Queue, usize);

impl Naive for NaiveLru {
    fn visit(&mut self, c: u32) {
        take(&mut self.0, c);
        self.0.insert(0, c);
        self.0.truncate(self.1);
    }
    fn held(&self) -> Vec<u32> {
        self.0.clone()
    }
}

struct NaiveLfu {
    counts: HashMap<u32, f64>,
    held: HashMap<u32, u64>,
    capacity: usize,
    period: u64,
    now: u64,
}

impl Naive for NaiveLfu {
    fn visit(&mut self, c: u32) {
        self.now += 1;
        if self.period > 0 && self.now % self.period == 0 {
            self.counts.values_mut().for_each(|n| *n /= 2.0);
        }
        *self.counts.entry(c).or_default() += 1.0;
        if !self.held.contains_key(&c) && self.held.len() == self.capacity {
            let rank = |x: &u32| (self.counts[x], self.held[x]);
            let least = *self.held.keys().min_by(|a, b| rank(a).partial_cmp(&rank(b)).expect("numbers")).expect("full");
            if self.counts[&c] <= self.counts[&least] {
                return;
            }
            self.held.remove(&least);
        }
        self.held.insert(c, self.now);
    }
    fn held(&self) -> Vec<u32> {
        self.held.keys().copied().collect()
    }
}

/// The four cases of the paper's figure, one after the other.
struct NaiveArc {
    t1: Queue,
    t2: Queue,
    b1: Queue,
    b2: Queue,
    p: f64,
    c: usize,
}

impl NaiveArc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && (t1 > self.p || (in_b2 && t1 == self.p)) {
            let x = self.t1.pop().expect("not empty");
            self.b1.insert(0, x);
        } else if let Some(x) = self.t2.pop() {
            self.b2.insert(0, x);
        }
    }
}

impl Naive for NaiveArc {
    fn visit(&mut self, x: u32) {
        let (b1, b2) = (self.b1.len(), self.b2.len());
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.insert(0, x);
        } else if self.b1.contains(&x) {
            let delta = if b1 >= b2 { 1.0 } else { (b2 / b1) as f64 };
            self.p = (self.p + delta).min(self.c as f64);
            self.replace(false);
            take(&mut self.b1, x);
            self.t2.insert(0, x);
        } else if self.b2.contains(&x) {
            let delta = if b2 >= b1 { 1.0 } else { (b1 / b2) as f64 };
            self.p = (self.p - delta).max(0.0);
            self.replace(true);
            take(&mut self.b2, x);
            self.t2.insert(0, x);
        } else {
            let all = self.t1.len() + self.t2.len() + b1 + b2;
            if self.t1.len() + b1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.pop();
                    self.replace(false);
                } else {
                    self.t1.pop();
                }
            } else if all >= self.c {
                if all == 2 * self.c {
                    self.b2.pop();
                }
                self.replace(false);
            }
            self.t1.insert(0, x);
        }
    }
    fn held(&self) -> Vec<u32> {
        [self.t1.clone(), self.t2.clone()].concat()
    }
}

#[derive(Default)]
struct NaiveS3 {
    small: Vec<(u32, u8)>,
    main: Vec<(u32, u8)>,
    ghost: Queue,
    capacity: usize,
}

impl NaiveS3 {
    fn evict(&mut self) {
        let share = (self.capacity / 10).max(1);
        if self.small.len() >= share || self.main.is_empty() {
            while let Some((x, n)) = self.small.pop() {
                if n < 2 {
                    self.ghost.insert(0, x);
                    self.ghost.truncate(self.capacity - share);
                    return;
                }
                self.main.insert(0, (x, 0));
            }
        }
        while let Some((x, n)) = self.main.pop() {
            if n == 0 {
                return;
            }
            self.main.insert(0, (x, n - 1));
        }
    }
}

impl Naive for NaiveS3 {
    fn visit(&mut self, c: u32) {
        if let Some((_, n)) = self.small.iter_mut().chain(&mut self.main).find(|(x, _)| *x == c) {
            *n = (*n + 1).min(3);
            return;
        }
        let ghost = take(&mut self.ghost, c);
        while self.small.len() + self.main.len() >= self.capacity {
            self.evict();
        }
        let to = if ghost { &mut self.main } else { &mut self.small };
        to.insert(0, (c, 0));
    }
    fn held(&self) -> Vec<u32> {
        self.small.iter().chain(&self.main).map(|x| x.0).collect()
    }
}

/// With exact counts: the sketch has room enough for the few chunks of these tests.
struct NaiveTiny {
    window: Queue,
    probation: Queue,
    protected: Queue,
    counts: HashMap<u32, u8>,
    seen: usize,
    capacity: usize,
}

impl Naive for NaiveTiny {
    fn visit(&mut self, c: u32) {
        let n = self.counts.entry(c).or_default();
        *n = (*n + 1).min(15);
        self.seen += 1;
        if self.seen % (10 * self.capacity) == 0 {
            self.counts.values_mut().for_each(|n| *n /= 2);
        }
        let window = (self.capacity / 100).max(1);
        let main = self.capacity - window;
        if take(&mut self.window, c) {
            self.window.insert(0, c);
        } else if take(&mut self.protected, c) {
            self.protected.insert(0, c);
        } else if take(&mut self.probation, c) {
            self.protected.insert(0, c);
            if self.protected.len() > main * 4 / 5 {
                let down = self.protected.pop().expect("not empty");
                self.probation.insert(0, down);
            }
        } else {
            self.window.insert(0, c);
            if self.window.len() <= window {
                return;
            }
            let candidate = self.window.pop().expect("not empty");
            if self.probation.len() + self.protected.len() < main {
                self.probation.insert(0, candidate);
                return;
            }
            let from = if self.probation.is_empty() { &mut self.protected } else { &mut self.probation };
            let count = |x: &u32| self.counts.get(x).copied().unwrap_or(0);
            if from.last().is_some_and(|v| count(&candidate) > count(v)) {
                from.pop();
                self.probation.insert(0, candidate);
            }
        }
    }
    fn held(&self) -> Vec<u32> {
        [&self.window[..], &self.probation, &self.protected].concat()
    }
}

fn naive_of(name: &str, capacity: usize, period: u64) -> Box<dyn Naive> {
    let none = Vec::new;
    match name {
        "LRU" => Box::new(NaiveLru(none(), capacity)),
        "LFU" => Box::new(NaiveLfu { counts: HashMap::new(), held: HashMap::new(), capacity, period, now: 0 }),
        "ARC" => Box::new(NaiveArc { t1: none(), t2: none(), b1: none(), b2: none(), p: 0.0, c: capacity }),
        "S3-FIFO" => Box::new(NaiveS3 { capacity, ..NaiveS3::default() }),
        _ => Box::new(NaiveTiny {
            window: none(),
            probation: none(),
            protected: none(),
            counts: HashMap::new(),
            seen: 0,
            capacity,
        }),
    }
}

/// Runs both over many inputs; after each visit both hold the same, and what was evicted is told truly.
fn check(name: &str, make: impl Fn(u32, usize) -> Box<dyn Cache>, period: u64) {
    let mut hits = 0;
    for seed in 0..60 {
        let chunks = 3 + seed % 40;
        let capacity = 1 + (seed * 7 % chunks) as usize;
        let mut cache = make(chunks as u32, capacity);
        let mut naive = naive_of(name, capacity, period);
        let mut told = Vec::new();
        for (i, c) in mixed(seed, chunks, 2000).into_iter().enumerate() {
            let held = naive.held().contains(&c);
            let mut evicted = Vec::new();
            let hit = cache.access(c, &mut evicted);
            assert_eq!(hit, held, "{name}, seed {seed}, visit {i}");
            naive.visit(c);
            hits += usize::from(hit);
            // What was held and what came in, less what was evicted, is what is held.
            told.push(c);
            told.retain(|x| !evicted.contains(x) && (*x != c || cache.holds(c)));
            let mut expected = naive.held();
            for list in [&mut told, &mut expected] {
                list.sort_unstable();
                list.dedup();
            }
            assert_eq!(told, expected, "{name}, seed {seed}, visit {i}");
            assert!(expected.iter().all(|x| cache.holds(*x)) && cache.len() == expected.len());
            assert!(cache.len() <= capacity);
        }
    }
    assert!(hits > 10_000, "{name}: the inputs have hits ({hits})");
}

#[test]
fn lru_is_as_the_naive_one() {
    check("LRU", |n, k| Box::new(Lru::new(n, k)), 0);
}

#[test]
fn lfu_is_as_the_naive_one() {
    check("LFU", |n, k| Box::new(Lfu::new(n, k, 0)), 0);
}

#[test]
fn aged_lfu_is_as_the_naive_one() {
    // 2000 visits are 285 halvings: scores are scaled down on the way.
    check("LFU", |n, k| Box::new(Lfu::new(n, k, 7)), 7);
}

#[test]
fn arc_is_as_the_naive_one() {
    check("ARC", |n, k| Box::new(Arc::new(n, k)), 0);
}

#[test]
fn s3_fifo_is_as_the_naive_one() {
    check("S3-FIFO", |n, k| Box::new(S3Fifo::new(n, k)), 0);
}

#[test]
fn tiny_lfu_is_as_the_naive_one() {
    check("W-TinyLFU", |n, k| Box::new(TinyLfu::new(n, k)), 0);
}

/// Caches that become smaller and larger while they are used: they tell what leaves, and use all that they have.
#[test]
fn what_a_resized_cache_holds_is_what_came_less_what_it_says_it_let_go() {
    let made: [fn() -> Box<dyn Cache>; 5] = [
        || Box::new(Lru::new(60, 20)),
        || Box::new(Lfu::new(60, 20, 0)),
        || Box::new(Arc::new(60, 20)),
        || Box::new(S3Fifo::new(60, 20)),
        || Box::new(TinyLfu::new(60, 20)),
    ];
    for make in made {
        for seed in 0..20 {
            let (mut cache, mut held, mut capacity) = (make(), Vec::new(), 20);
            for (i, c) in mixed(seed, 60, 4000).into_iter().enumerate() {
                let mut evicted = Vec::new();
                if i % 97 == 0 {
                    capacity = [20, 3, 40, 0, 19, 1][i / 97 % 6];
                    cache.resize(capacity, &mut evicted);
                    held.retain(|x| !evicted.contains(x));
                    evicted.clear();
                }
                cache.access(c, &mut evicted);
                held.push(c);
                held.retain(|x| !evicted.contains(x) && (*x != c || cache.holds(c)));
                held.sort_unstable();
                held.dedup();
                assert!(held.iter().all(|x| cache.holds(*x)), "{}, seed {seed}, visit {i}", cache.name());
                assert!(cache.len() == held.len() && cache.len() <= capacity, "{}, {seed}, {i}", cache.name());
                let must_be_full = i % 97 == 96 && capacity <= 20;
                assert!(!must_be_full || cache.len() == capacity, "{}, {seed}, {i}", cache.name());
            }
        }
    }
}

#[test]
fn a_larger_lru_holds_all_that_a_smaller_one_holds() {
    for seed in 0..20 {
        let mut caches: Vec<Lru> = (1..12).map(|k| Lru::new(30, k)).collect();
        for c in mixed(seed, 30, 1000) {
            for cache in &mut caches {
                cache.access(c, &mut Vec::new());
            }
            for pair in caches.windows(2) {
                assert!((0..30).all(|c| !pair[0].holds(c) || pair[1].holds(c)));
            }
        }
    }
}

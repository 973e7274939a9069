//! Claims in line.

use std::future::Future;
use std::pin::Pin as Pinned;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::*;

const CHUNK: ChunkId = ChunkId(7);

/// Counts how often it was called.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Calls>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Somebody who wants a claim.
struct Wanted<'a> {
    future: Pinned<Box<dyn Future<Output = Claimed<'a>> + 'a>>,
    calls: Arc<Calls>,
}

impl<'a> Wanted<'a> {
    fn new(claims: &'a Claims, mask: u32) -> Wanted<'a> {
        Wanted { future: Box::pin(claims.claim(CHUNK, mask)), calls: Arc::default() }
    }

    fn look(&mut self) -> Option<Claimed<'a>> {
        let waker = Waker::from(self.calls.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(claimed) => Some(claimed),
            Poll::Pending => None,
        }
    }

    /// Begins to wait.
    fn waits(mut self) -> Wanted<'a> {
        assert!(self.look().is_none(), "it should wait");
        self
    }

    fn calls(&self) -> usize {
        self.calls.0.load(Ordering::Relaxed)
    }
}

fn get(claims: &Claims, mask: u32) -> Claimed<'_> {
    Wanted::new(claims, mask).look().expect("nobody has these blocks, or wants them")
}

#[test]
fn who_wants_the_whole_chunk_stands_before_all_who_come_later() {
    let claims = Claims::default();
    let (one, other) = (get(&claims, 1), get(&claims, 2));
    let mut all = Wanted::new(&claims, u32::MAX).waits();
    drop(one);
    let mut again = Wanted::new(&claims, 1).waits();
    drop(other);
    assert_eq!((all.calls(), again.calls(), claims.holders(CHUNK)), (1, 0, 1));
    let all = all.look().expect("its turn");
    assert!(again.look().is_none());
    drop(all);
    drop(again.look().expect("its turn"));
    assert!(claims.claims.borrow().is_empty());
}

#[test]
fn who_wants_other_blocks_overtakes_nobody_and_waits_for_nobody() {
    let claims = Claims::default();
    let one = get(&claims, 1);
    let mut both = Wanted::new(&claims, 0b11).waits();
    let mut behind = Wanted::new(&claims, 0b110).waits();
    let third = get(&claims, 0b1000);
    drop(one);
    // What comes free is the first one's, and the other one still wants a block of it.
    let both = both.look().expect("its turn");
    assert!(behind.look().is_none());
    drop((third, both));
    drop(behind.look().expect("its turn"));
    assert!(claims.claims.borrow().is_empty());
}

#[test]
fn a_wait_that_is_given_up_holds_up_nobody() {
    let claims = Claims::default();
    let one = get(&claims, 1);
    let all = Wanted::new(&claims, u32::MAX).waits();
    let mut behind = Wanted::new(&claims, 2).waits();
    drop(all);
    let behind = behind.look().expect("nobody else wants it");
    // It was called, and did not look.
    let called = Wanted::new(&claims, 1).waits();
    drop(one);
    assert_eq!((called.calls(), claims.holders(CHUNK)), (1, 2));
    drop(called);
    drop((behind, get(&claims, 1)));
    assert!(claims.claims.borrow().is_empty());
}

#[test]
fn each_is_woken_once_however_many_wait() {
    let claims = Claims::default();
    let mut held = Some(get(&claims, u32::MAX));
    let mut line: Vec<Wanted<'_>> = (0..1000).map(|n| Wanted::new(&claims, 1 << (n % 2)).waits()).collect();
    for pair in line.chunks_mut(2) {
        drop(held.take());
        let calls: usize = pair.iter().map(Wanted::calls).sum();
        assert_eq!((calls, claims.holders(CHUNK)), (2, 2));
        let claimed: Vec<_> = pair.iter_mut().map(|w| w.look().expect("its turn")).collect();
        drop(claimed);
    }
    assert!(line.iter().all(|w| w.calls() == 1));
    assert!(claims.claims.borrow().is_empty());
}

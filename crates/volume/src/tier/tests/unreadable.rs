//! Chunks that cannot be read keep no others from moving.

use std::time::Duration;

use super::{group, FAST, RESERVE, SECOND};
use crate::env::Instant;
use crate::tier::toy::Toy;
use crate::tier::{Job, Levels, Policy, Scheduler, View};
use crate::units::{ChunkId, Tier, CHUNK};

/// A group whose fast tier is full but for the reserve, where so many of the coldest chunks cannot be read.
fn with_unreadable(count: u64) -> Toy {
    let mut g = group();
    g.pass(0..u64::from(FAST - RESERVE), true);
    for _ in 0..20_000 {
        g.random(count..u64::from(FAST - RESERVE), false);
        g.w.now = g.w.now.plus(Duration::from_millis(3));
    }
    g.w.unreadable = (0..count).map(ChunkId).collect();
    g
}

/// Small new data take the reserve, as much of it as others can make room for.
fn take_reserve(g: &mut Toy, from: u64) {
    for c in 0..u64::from(RESERVE) {
        g.request((from + c * 9) * CHUNK, 4096, true);
    }
    assert!(g.w.free_fast() < RESERVE / 8);
}

#[test]
fn the_reserve_comes_back_though_hundreds_of_the_coldest_cannot_be_read() {
    for count in [8, 500, 1000] {
        let mut g = with_unreadable(count);
        take_reserve(&mut g, 5000);
        g.quiet(30 * SECOND);
        assert!(g.w.free_fast() >= RESERVE, "{count}: {} free, {} failed", g.w.free_fast(), g.unread);
        assert!(g.unread <= count, "{count}: {}", g.unread);
        // They are asked for again less and less often: after 1, 4, 16, 64 and 256 minutes.
        for (n, hours) in [1, 10, 100].into_iter().enumerate() {
            g.quiet(hours * 3600 * SECOND);
            take_reserve(&mut g, 5001 + n as u64);
            g.quiet(60 * SECOND);
            assert!(g.w.free_fast() >= RESERVE, "{count}: {} free after {hours} hours", g.w.free_fast());
        }
        assert!(g.unread <= count * 4, "{count}: {}", g.unread);
    }
}

#[test]
fn a_drip_beside_a_disk_that_is_never_quiet_comes_past_them() {
    let mut g = with_unreadable(500);
    take_reserve(&mut g, 5000);
    let before = g.demoted;
    for _ in 0..300_000 {
        g.random(12_000..12_400, false);
        g.step(false);
    }
    assert!(g.demoted - before > 200, "{} of {} free, {} failed", g.w.free_fast(), RESERVE, g.unread);
}

#[test]
fn what_is_used_comes_up_though_other_chunks_on_the_disk_cannot_be_read() {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    g.w.unreadable = (6000..6400).map(ChunkId).collect();
    for _ in 0..400 {
        for _ in 0..100 {
            g.random(6000..6800, false);
            g.w.now = g.w.now.plus(Duration::from_millis(9));
        }
        g.w.now = g.w.now.plus(SECOND);
        for _ in 0..8 {
            g.step(true);
        }
    }
    assert!(g.fast_of(6400..6800) >= 390, "{}", g.fast_of(6400..6800));
    assert_eq!(g.fast_of(6000..6400), 0);
    // In a quarter of an hour each was tried at first, after a minute, and after four more.
    assert!(g.unread <= 3 * 400, "{}", g.unread);
    assert!(g.policy.candidate_count() < 8, "{}", g.policy.candidate_count());
}

#[test]
fn what_is_written_whole_trimmed_or_moved_can_be_read_again() {
    let mut g = with_unreadable(30);
    for c in 0..30 {
        g.policy.cannot_read(&mut g.w, ChunkId(c), Tier::Fast);
    }
    assert_eq!(g.policy.unreadable(&g.w), [30, 0]);
    g.request(3 * CHUNK, CHUNK, true);
    g.request(4 * CHUNK, 4096, true);
    g.policy.was_read(ChunkId(5));
    g.demote(ChunkId(6));
    assert_eq!(g.policy.unreadable(&g.w), [27, 0]);
    g.w.forget(ChunkId(7));
    g.w.now = g.w.now.plus(60 * SECOND);
    assert_eq!(g.policy.unreadable(&g.w), [26, 0]);
}

#[test]
fn only_a_device_that_can_read_nothing_makes_the_work_pause_and_status_says_what_is_wrong() {
    let mut s = Scheduler::new(Instant(1));
    let mut l = Levels { free: 0, keep_free: RESERVE, slow_free: 1000, ..Levels::default() };
    let (mut now, mut asked) = (Instant(1), [0; 10]);
    for second in &mut asked {
        for _ in 0..10 {
            let plan = s.plan(&l, now);
            for _ in 0..plan.demote {
                s.cannot_read(Job::Demote, now);
            }
            *second += plan.demote;
            now = now.plus(SECOND / 10);
        }
    }
    assert!(asked[0] + asked[1] > 1024 && asked[8] + asked[9] <= 128, "{asked:?}");
    let mut why = |unreadable| {
        l.unreadable = unreadable;
        s.plan(&l, now).why
    };
    assert!(!why([0, 0]).contains("read"));
    assert!(why([1, 0]).ends_with("; 1 chunk of 128 KiB on the fast tier cannot be read and stays there"));
    assert!(why([0, 7]).ends_with("; 7 chunks of 128 KiB on the slow tier cannot be read and stay there"));
    let both = why([500, 1]);
    assert!(
        both.ends_with("; 500 chunks of 128 KiB on the fast tier and 1 on the slow tier cannot be read and stay there")
    );
}

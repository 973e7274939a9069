//! Room that volumes bound to the slow tier were promised there.

use std::time::Duration;

use crate::env::Instant;
use crate::tier::{DeviceRange, Job, Levels, Scheduler};
use crate::units::Tier;

const MS: Duration = Duration::from_millis(1);
const OWED: u32 = 500;

/// Chunks that come up in so many seconds, each in 10 ms, beside a load on a tier that never pauses.
fn come_up(mut l: Levels, seconds: u64, load: Option<Tier>) -> usize {
    // The SSD has had its share.
    let mut s = Scheduler::with_burst(0, Instant(1));
    let (mut now, mut up, mut under_way) = (Instant(1), 0, Vec::new());
    let range = DeviceRange { member: 0, offset: 0, bytes: 4096 };
    load.into_iter().for_each(|tier| s.foreground_started(tier, now));
    let mut next_plan = now;
    for _ in 0..seconds * 1000 {
        if let Some(tier) = load {
            s.foreground_done(tier, &range, 5 * MS, now);
            s.foreground_started(tier, now);
        }
        let ended = under_way.iter().take_while(|end| **end <= now).count();
        for _ in under_way.drain(..ended) {
            s.moved(Job::Promote, now);
            (l.owed_below, l.promoting, up) = (l.owed_below - 1, l.promoting - 1, up + 1);
        }
        if ended > 0 || next_plan <= now {
            let plan = s.plan(&l, now);
            assert!(plan.next_check >= 10 * MS && plan.demote == 0 && plan.let_go == 0, "{plan:?}");
            assert!(l.promoting + plan.promote <= l.owed_below as usize, "{plan:?} {l:?}");
            l.promoting += plan.promote;
            l.free -= plan.promote as u32;
            under_way.extend((0..plan.promote).map(|_| now.plus(10 * MS)));
            next_plan = now.plus(plan.next_check);
        }
        now = now.plus(MS);
    }
    up
}

#[test]
fn comes_first_from_the_reserve_and_beyond_the_share_of_the_ssd() {
    let l = Levels { fast_slots: 4096, free: 1000, keep_free: 2000, owed_below: OWED, ..Levels::default() };
    assert_eq!(come_up(l, 2, None), OWED as usize);
    assert_eq!(come_up(Levels { candidates: 10_000, ..l }, 2, None), OWED as usize);
}

#[test]
fn comes_beside_any_load() {
    let l = Levels { fast_slots: 4096, free: 1000, keep_free: 200, owed_below: OWED, ..Levels::default() };
    for tier in [Tier::Fast, Tier::Slow] {
        assert_eq!(come_up(l, 60, Some(tier)), OWED as usize, "{tier}");
    }
}

#[test]
fn does_not_come_where_nothing_can_come_up_and_nothing_spins() {
    let mut s = Scheduler::new(Instant(1));
    let l = Levels { fast_slots: 4096, owed_below: OWED, ..Levels::default() };
    let plan = s.plan(&l, Instant(1));
    assert_eq!((plan.promote, plan.doing.as_str()), (0, "waiting for free slots on the fast tier"), "{plan:?}");
    assert!(plan.next_check >= 50 * MS, "{plan:?}");
}

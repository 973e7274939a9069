//! Whatever sleeps is kept from looking hot: heats come round after 512 octaves ([`Clock`]).
//!
//! The group is gone through part by part, on both tiers, as the clock goes on: all of it once in [`ROUND`] octaves, a part or none
//! at a request. On the members nothing changes by it.

use super::heat::Clock;
use super::View;

/// Octaves in which each part has its turn. A chunk that sleeps is found between 256 and 296 octaves, of 480.
const ROUND: u64 = 40;
/// Parts without heats that are passed over at a request, where most of a large group was never used.
const PASSED_OVER: usize = 64;

/// Where the walk is.
#[derive(Default)]
pub(super) struct Sleepers {
    next: u32,
    /// The clock at which the next part has its turn; `None` before the first.
    due: Option<u64>,
}

impl Sleepers {
    /// The clock has gone on. Runs for every request: mostly nothing is due.
    pub(super) fn watch(&mut self, v: &mut impl View, clock: &Clock) {
        if self.due.is_none_or(|due| due <= clock.value()) {
            self.walk(v, clock);
        }
    }

    fn walk(&mut self, v: &mut impl View, clock: &Clock) {
        let parts = v.parts();
        let step = (ROUND << 32) / u64::from(parts.max(1));
        let mut due = self.due.unwrap_or(clock.value());
        for _ in 0..PASSED_OVER {
            if parts == 0 || due > clock.value() {
                break;
            }
            let part = if self.next < parts { self.next } else { 0 };
            (self.next, due) = (part + 1, due + step);
            if v.change_heats(part, |heat| clock.of_sleeper(heat)) {
                break;
            }
        }
        self.due = Some(due);
    }
}

//! What moved lately: the mover's totals, remembered for ten minutes.

use std::collections::VecDeque;

use bimetal_volume::options::MoverStatus;
use bimetal_volume::units::CHUNK;

use crate::api::RecentMoves;

/// Minutes remembered.
const MINUTES: u64 = 10;
/// How often a sample is taken, in seconds.
pub(crate) const SAMPLE_SECONDS: u64 = 10;

/// Samples of the totals, newest last.
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<(u64, u64, u64)>,
}

impl History {
    /// Remembers the totals at `now` seconds.
    pub(crate) fn sample(&mut self, now: u64, mover: &MoverStatus) {
        self.samples.push_back((now, mover.promoted, mover.demoted));
        while self.samples.front().is_some_and(|(t, ..)| t + MINUTES * 60 < now) {
            self.samples.pop_front();
        }
    }

    /// Minutes in which something moved, oldest first.
    pub(crate) fn recent(&self, now: u64, mover: &MoverStatus) -> Vec<RecentMoves> {
        let mut out: Vec<RecentMoves> = Vec::new();
        let last = (now, mover.promoted, mover.demoted);
        let later = self.samples.iter().skip(1).chain([&last]);
        for (before, after) in self.samples.iter().zip(later) {
            let (promoted, demoted) = (after.1.saturating_sub(before.1), after.2.saturating_sub(before.2));
            if promoted + demoted == 0 {
                continue;
            }
            let minutes_ago = now.saturating_sub(after.0) / 60;
            let (promoted_bytes, demoted_bytes) = (promoted * CHUNK, demoted * CHUNK);
            match out.last_mut().filter(|m| m.minutes_ago == minutes_ago) {
                Some(m) => {
                    m.promoted_bytes += promoted_bytes;
                    m.demoted_bytes += demoted_bytes;
                }
                None => out.push(RecentMoves { minutes_ago, promoted_bytes, demoted_bytes }),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(promoted: u64, demoted: u64) -> MoverStatus {
        MoverStatus { promoted, demoted, ..MoverStatus::default() }
    }

    #[test]
    fn moves_are_told_by_minute_and_forgotten_after_ten() {
        let mut h = History::default();
        for (now, promoted, demoted) in [(0, 0, 0), (10, 4, 0), (20, 4, 2), (200, 4, 2)] {
            h.sample(now, &totals(promoted, demoted));
        }
        let recent = h.recent(210, &totals(5, 2));
        let told = recent.iter().map(|r| (r.minutes_ago, r.promoted_bytes / CHUNK, r.demoted_bytes / CHUNK));
        let told: Vec<_> = told.collect();
        assert_eq!(told, [(3, 4, 2), (0, 1, 0)]);
        h.sample(900, &totals(5, 2));
        assert!(h.recent(900, &totals(5, 2)).is_empty());
    }
}

//! How many new chunks come: what has to lie free for them is learned from that.
//!
//! Terms: time goes in *windows* of half as many visits as the fast tier has slots. The *influx* is the most chunks that were born
//! in one of the windows that are remembered, the one that runs now among them. It is unknown until as many were seen from end to end.

/// Windows remembered, the one that runs now among them.
const WINDOWS: usize = 16;

/// Births of the last windows: of chunks that got their first home, or were written anew as a whole.
pub struct Influx {
    /// The one that runs now first.
    born: [u32; WINDOWS],
    /// Windows that ended, as far as they matter.
    ended: usize,
    /// Visits of the one that runs now.
    visits: u32,
}

impl Default for Influx {
    fn default() -> Influx {
        Influx::new()
    }
}

impl Influx {
    /// Nothing is known yet.
    pub fn new() -> Influx {
        Influx { born: [0; WINDOWS], ended: 0, visits: 0 }
    }

    /// A chunk gets its first home.
    pub fn born(&mut self) {
        self.born[0] = self.born[0].saturating_add(1);
    }

    /// A chunk was visited, on a group with so many fast slots.
    pub fn visit(&mut self, fast_slots: u32) {
        self.visits += 1;
        if self.visits >= fast_slots / 2 {
            self.visits = 0;
            self.ended = (self.ended + 1).min(WINDOWS);
            self.born.rotate_right(1);
            self.born[0] = 0;
        }
    }

    /// The most chunks that were born in a window; `None` until that is known.
    pub fn most(&self) -> Option<u64> {
        (self.ended == WINDOWS).then(|| u64::from(self.born.into_iter().max().unwrap_or(0)))
    }

    /// Chunks that were born in all windows that are remembered.
    pub fn of_late(&self) -> u64 {
        self.born.into_iter().map(u64::from).sum()
    }

    /// Whether nothing was born in any window that is remembered, however few they are.
    pub fn is_quiet(&self) -> bool {
        self.of_late() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u32 = 10;

    fn pass_windows(i: &mut Influx, windows: usize, born_in_each: u32) {
        for _ in 0..windows {
            (0..born_in_each).for_each(|_| i.born());
            (0..SLOTS / 2).for_each(|_| i.visit(SLOTS));
        }
    }

    #[test]
    fn nothing_is_known_before_all_windows_were_seen() {
        let mut i = Influx::new();
        pass_windows(&mut i, WINDOWS - 1, 3);
        assert_eq!(i.most(), None);
        pass_windows(&mut i, 1, 0);
        assert_eq!(i.most(), Some(3));
    }

    #[test]
    fn it_is_quiet_until_something_is_born_and_when_all_that_is_forgotten() {
        let mut i = Influx::new();
        assert!(i.is_quiet());
        i.born();
        pass_windows(&mut i, WINDOWS - 1, 0);
        assert!(!i.is_quiet());
        pass_windows(&mut i, 1, 0);
        assert!(i.is_quiet());
    }

    #[test]
    fn a_burst_counts_at_once_and_for_some_windows() {
        let mut i = Influx::new();
        pass_windows(&mut i, WINDOWS, 0);
        assert_eq!(i.most(), Some(0));
        (0..7).for_each(|_| i.born());
        assert_eq!(i.most(), Some(7));
        pass_windows(&mut i, WINDOWS - 1, 2);
        assert_eq!(i.most(), Some(9));
        pass_windows(&mut i, 1, 2);
        assert_eq!(i.most(), Some(2));
    }
}

//! Free slots serve nobody: while there is plenty of them, and nothing is born that would want them, whatever is read in streams
//! fills them. A data set that is read from end to end again and again has its part on the fast tier from its first pass on.
//!
//! - Of a stream that is larger than the fast tier its beginning does, as much as fits: pieces from all over it would make the disk seek.
//! - Filling begins with plenty, which the mover never makes: it frees a few slots at a time, each for a chunk that is used. It goes on
//!   down to what is kept free.
//! - Nothing leaves for what only fills: when the mover asks for victims, those that wait have to show what all others must.
//! - New data end it at once, for as long as births are remembered. What has filled a slot has a copy below, and is colder than what is
//!   born, so it is let go as soon as such slots are wanted.
//! - It takes what the SSD's life has to spare, so that what is used later can still come up ([`View::may_fill`]).

use super::HeadTime;
use crate::tier::View;

/// Whether there is room for everything: nothing has to leave. The mover frees some slots more than it must for promotions,
/// which is not plenty.
pub(super) fn is_plenty(v: &impl View) -> bool {
    v.free_fast() > v.keep_free() + v.reserve() / 4 + 8
}

impl HeadTime {
    /// Filling begins where there is plenty of room.
    pub(super) fn note_room(&mut self, v: &impl View) {
        self.filling = self.filling || is_plenty(v);
    }

    /// Whether what is read in a stream fills free slots now.
    pub(super) fn fills(&self, v: &impl View) -> bool {
        self.filling && v.free_fast() > v.keep_free() && self.influx.is_quiet() && v.may_fill()
    }

    /// Slots are to be freed: filling is over, and what waits only for that is forgotten. Whether it was not over before.
    pub(super) fn end_of_filling(&mut self, v: &impl View) -> bool {
        let filled = std::mem::take(&mut self.filling);
        if filled {
            self.prune(v);
        }
        filled
    }
}

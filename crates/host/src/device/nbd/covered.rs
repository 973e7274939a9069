//! Which part of a read has arrived.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of a read that have arrived, none of them twice. Servers mostly send them in order.
#[derive(Debug, Default)]
pub(super) struct Covered {
    /// All before this has.
    done: usize,
    /// Those that lie apart, behind it: where each begins, and ends.
    apart: BTreeMap<usize, usize>,
}

impl Covered {
    /// Adds a range; false if a part of it was there already.
    #[must_use]
    pub(super) fn add(&mut self, new: Range<usize>) -> bool {
        if new.is_empty() {
            return true;
        }
        let before = self.apart.range(..new.start).next_back().map_or(self.done, |(_, end)| *end);
        let behind = self.apart.range(new.start..).next().map_or(usize::MAX, |(start, _)| *start);
        if new.start < before || new.end > behind {
            return false;
        }
        if new.start != self.done {
            self.apart.insert(new.start, new.end);
            return true;
        }
        self.done = new.end;
        while let Some(end) = self.apart.remove(&self.done) {
            self.done = end;
        }
        true
    }

    /// Whether all of `len` bytes have arrived.
    pub(super) fn is_all(&self, len: usize) -> bool {
        self.done == len && self.apart.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_any_order_make_up_the_whole_and_none_comes_twice() {
        let mut c = Covered::default();
        for (range, fits) in [
            (20..30, true),
            (0..5, true),
            (0..5, false),
            (4..6, false),
            (29..40, false),
            (15..21, false),
            (10..40, false),
            (22..25, false),
            (30..40, true),
            (7..7, true),
            (5..20, true),
            (39..41, false),
        ] {
            assert_eq!(c.add(range.clone()), fits, "{range:?} to {c:?}");
        }
        assert!(c.is_all(40) && !c.is_all(41));
        assert!(c.add(41..50) && !c.is_all(50), "a gap");
    }
}

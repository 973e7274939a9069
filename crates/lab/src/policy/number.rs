//! Numbers for the chunks of a replay, so that its memory follows what a trace touches and not how far it reaches.
//!
//! All state of a replay is in arrays over chunk numbers. On a volume of up to [`PLAIN`] chunks a chunk has the number that
//! it has there. On a larger one *groups* of [`GROUP`] chunks are numbered in the order in which they lie, those that are
//! touched only, and one more wherever some are left out: what is next to each other stays so, what is apart stays apart by
//! more than any run of requests or any policy here looks over, and groups begin where they begin on the volume. Distances
//! beyond that are lost; the head times of a replay ([`super::HeadCost`]) do not ask for them.

use std::collections::BTreeMap;
use std::ops::Range;

/// Chunks that are numbered together: 1 MiB. What policies take together ([`bimetal_volume::tier::GROUP_CHUNKS`], the
/// regions of [`super::Smq`]) is no larger and begins at the same places.
pub(super) const GROUP: u64 = 8;
const _: () = assert!(GROUP % bimetal_volume::tier::GROUP_CHUNKS == 0);

/// Volumes of at most so many chunks, 512 GiB, are numbered as they are.
pub(super) const PLAIN: u64 = 1 << 22;

/// Most numbers of a replay: 6 GiB of state for each thread.
pub const CHUNKS_MAX: u64 = 1 << 26;

/// Numbers while a trace is read, in the order in which groups are met; [`Numbers::settle`] says what they become.
#[derive(Default)]
pub(super) struct Numbers {
    /// Touched groups, and which one each was.
    groups: BTreeMap<u64, u32>,
    last: Option<(u64, u32)>,
    /// Highest chunk + 1.
    end: u64,
}

/// A number, for now.
fn number(met: u32, chunk: u64) -> u32 {
    met * GROUP as u32 + (chunk % GROUP) as u32
}

impl Numbers {
    /// The number of a chunk that is touched.
    pub(super) fn of(&mut self, chunk: u64) -> u32 {
        let group = chunk / GROUP;
        let met = match self.last {
            Some((last, met)) if last == group => met,
            _ => {
                // At most CHUNKS_MAX / GROUP and those of one request: it fits.
                let new = self.groups.len() as u32;
                *self.groups.entry(group).or_insert(new)
            }
        };
        self.last = Some((group, met));
        self.end = self.end.max(chunk + 1);
        number(met, chunk)
    }

    /// Numbers given so far, and those beside them in their groups.
    pub(super) fn given(&self) -> usize {
        self.groups.len() * GROUP as usize
    }

    /// Whether the numbers may be all there are: none of the groups may lie next to another.
    pub(super) fn are_used_up(&self) -> bool {
        self.end > PLAIN && 2 * self.given() as u64 >= CHUNKS_MAX
    }

    /// The chunks of a range in groups that were touched, in their order.
    pub(super) fn known(&self, chunks: Range<u64>) -> impl Iterator<Item = (u64, u32)> + '_ {
        let groups = chunks.start / GROUP..chunks.end.div_ceil(GROUP).max(chunks.start / GROUP);
        let all = |(group, met): (&u64, &u32)| {
            let (first, met) = (group * GROUP, *met);
            (first..first + GROUP).map(move |chunk| (chunk, number(met, chunk)))
        };
        self.groups.range(groups).flat_map(all).filter(move |(chunk, _)| chunks.contains(chunk))
    }

    /// The final number of each group's first chunk, in the order in which groups were met, and how many numbers there are.
    pub(super) fn settle(&self) -> (Vec<u32>, u32) {
        let mut first = vec![0; self.groups.len()];
        if self.end <= PLAIN {
            self.groups.iter().for_each(|(group, met)| first[*met as usize] = (group * GROUP) as u32);
            return (first, self.end as u32);
        }
        let (mut next, mut before) = (0, None);
        for (group, met) in &self.groups {
            if before.is_some_and(|b| b + 1 != *group) {
                next += GROUP as u32;
            }
            first[*met as usize] = next;
            (next, before) = (next + GROUP as u32, Some(*group));
        }
        (first, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The final numbers of chunks, given in this order, and how many there are.
    fn numbers(chunks: &[u64]) -> (Vec<u32>, u32) {
        let mut all = Numbers::default();
        let given: Vec<u32> = chunks.iter().map(|c| all.of(*c)).collect();
        let (first, end) = all.settle();
        let size = GROUP as u32;
        (given.iter().map(|n| first[(n / size) as usize] + n % size).collect(), end)
    }

    #[test]
    fn a_volume_that_is_not_large_is_numbered_as_it_is() {
        assert_eq!(numbers(&[70, PLAIN - 1, 3, 70]), (vec![70, PLAIN as u32 - 1, 3, 70], PLAIN as u32));
        assert_eq!(numbers(&[]), (vec![], 0));
    }

    #[test]
    fn on_a_large_one_neighbours_stay_neighbours_and_others_apart() {
        let far = 1 << 40;
        // Met in any order; the group of `far + 8` follows that of `far`, that of `far + 24` does not.
        let (n, end) = numbers(&[far + 24, 5, far + 8, far + 7, far]);
        assert_eq!(n, [40, 5, 24, 23, 16]);
        assert_eq!(end, 48);
    }

    #[test]
    fn the_known_part_of_a_range_is_found() {
        let mut all = Numbers::default();
        for chunk in [100, 3, 1 << 45] {
            all.of(chunk);
        }
        let known = |range| all.known(range).map(|(c, _)| c).collect::<Vec<_>>();
        assert_eq!(known(6..98), [6, 7, 96, 97]);
        assert_eq!(known(0..u64::MAX).len(), 24);
        assert_eq!(known(9..9), [0; 0]);
    }
}

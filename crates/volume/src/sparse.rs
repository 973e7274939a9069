//! A table of which most rows were never set: memory is taken by *parts*, and only for those in which a row was.

/// Rows of a part: few, since what is used of a large group lies in files of some MiB to GiB; 2 GiB of them have a part
/// where a row is a page of the map.
const PART: usize = 64;

/// So many rows of `T`, each its default at first.
pub(crate) struct Sparse<T> {
    parts: Vec<Option<Box<[T; PART]>>>,
    len: usize,
}

impl<T: Copy + Default + PartialEq> Sparse<T> {
    /// A table of `len` rows, none of them set.
    pub(crate) fn new(len: u64) -> Sparse<T> {
        let len = len as usize;
        Sparse { parts: (0..len.div_ceil(PART)).map(|_| None).collect(), len }
    }

    /// Number of rows, set or not.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, row: usize) -> T {
        assert!(row < self.len, "row {row} of {}", self.len);
        self.parts[row / PART].as_ref().map_or_else(T::default, |part| part[row % PART])
    }

    pub(crate) fn set(&mut self, row: usize, value: T) {
        assert!(row < self.len, "row {row} of {}", self.len);
        let part = &mut self.parts[row / PART];
        if part.is_some() || value != T::default() {
            part.get_or_insert_with(|| Box::new([T::default(); PART]))[row % PART] = value;
        }
    }

    /// The rows that are not their default, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (usize, T)> + '_ {
        let parts = self.parts.iter().enumerate().filter_map(|(n, part)| Some((n * PART, part.as_ref()?)));
        let rows = parts.flat_map(|(first, part)| part.iter().enumerate().map(move |(i, value)| (first + i, *value)));
        rows.filter(|(_, value)| *value != T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_with_a_row_that_was_set_take_memory() {
        let mut table = Sparse::<u64>::new(10_000);
        table.set(9_999, 0);
        assert!(table.parts.iter().all(Option::is_none), "nothing was set to anything else than it was");
        for (row, value) in [(7, 3), (64, 4), (9_999, 5), (64, 0)] {
            table.set(row, value);
        }
        assert_eq!(table.rows().collect::<Vec<_>>(), [(7, 3), (9_999, 5)]);
        assert_eq!((table.get(7), table.get(8), table.get(64), table.get(5_000), table.len()), (3, 0, 0, 0, 10_000));
        assert_eq!(table.parts.iter().flatten().count(), 3);
    }
}

//! A count-min sketch with counters up to 15 that are halved from time to time, as TinyLFU uses it (Einziger, Friedman
//! and Manes, ACM TOS 2017).

use bimetal_sim::prng::mix;

/// Rows, each with a hash of its own.
const ROWS: usize = 4;
/// Most that a counter says.
const COUNT_MAX: u8 = 15;

/// Estimates how often each chunk was seen lately; never too low before the first halving, up to 15.
pub struct Sketch {
    rows: [Vec<u8>; ROWS],
    mask: usize,
    seen: u64,
    /// Visits between halvings.
    period: u64,
}

impl Sketch {
    /// A sketch for a cache of so many chunks: four counters a chunk and row, halved after ten visits a chunk.
    pub fn new(capacity: usize) -> Sketch {
        let width = (capacity * 4).next_power_of_two().max(1024);
        let period = (capacity as u64 * 10).max(10);
        Sketch { rows: std::array::from_fn(|_| vec![0; width]), mask: width - 1, seen: 0, period }
    }

    /// Counts a visit.
    pub fn add(&mut self, chunk: u32) {
        let mask = self.mask;
        for (i, row) in self.rows.iter_mut().enumerate() {
            let counter = &mut row[place(chunk, i) & mask];
            *counter = (*counter + 1).min(COUNT_MAX);
        }
        self.seen += 1;
        if self.seen % self.period == 0 {
            self.rows.iter_mut().flatten().for_each(|c| *c /= 2);
        }
    }

    /// Visits of a chunk lately.
    pub fn count(&self, chunk: u32) -> u8 {
        let row = |i: usize| self.rows[i][place(chunk, i) & self.mask];
        (0..ROWS).map(row).min().unwrap_or(0)
    }
}

fn place(chunk: u32, row: usize) -> usize {
    mix(u64::from(chunk) | (row as u64 + 1) << 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_sim::prng::Prng;

    #[test]
    fn counts_are_never_too_low_and_mostly_exact() {
        let mut rng = Prng::new(8);
        let mut sketch = Sketch::new(100_000);
        let mut exact = vec![0u32; 5000];
        for _ in 0..30_000 {
            let c = rng.skewed(4999) as u32;
            sketch.add(c);
            exact[c as usize] += 1;
        }
        let wrong = exact.iter().enumerate().filter(|(c, n)| {
            let (count, n) = (u32::from(sketch.count(*c as u32)), (**n).min(15));
            assert!(count >= n, "{c}: {count} < {n}");
            count != n
        });
        assert!(wrong.count() < 5);
    }

    #[test]
    fn counts_are_halved() {
        let mut sketch = Sketch::new(2);
        (0..19).for_each(|_| sketch.add(1));
        assert_eq!(sketch.count(1), 15);
        sketch.add(1);
        assert_eq!(sketch.count(1), 7);
        sketch.add(1);
        assert_eq!((sketch.count(1), sketch.count(2)), (8, 0));
    }
}

//! A binary heap over numbered items whose keys may change: the least key first, among equal keys the lowest item.

const OUT: u32 = u32::MAX;

/// Items with keys.
pub(super) struct Heap<K> {
    heap: Vec<(K, u32)>,
    /// Place of each item in the heap.
    place: Vec<u32>,
}

impl<K: Ord + Copy> Heap<K> {
    pub(super) fn new(items: u32) -> Heap<K> {
        Heap { heap: Vec::new(), place: vec![OUT; items as usize] }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn contains(&self, item: u32) -> bool {
        self.place[item as usize] != OUT
    }

    pub(super) fn least(&self) -> Option<(K, u32)> {
        self.heap.first().copied()
    }

    /// Puts an item in, or changes its key.
    pub(super) fn set(&mut self, item: u32, key: K) {
        let at = match self.place[item as usize] {
            OUT => {
                self.heap.push((key, item));
                self.heap.len() - 1
            }
            at => {
                self.heap[at as usize].0 = key;
                at as usize
            }
        };
        self.place[item as usize] = at as u32;
        let at = self.rise(at);
        self.sink(at);
    }

    /// Takes an item out; whether it was in.
    pub(super) fn remove(&mut self, item: u32) -> bool {
        let at = self.place[item as usize];
        if at == OUT {
            return false;
        }
        self.place[item as usize] = OUT;
        self.heap.swap_remove(at as usize);
        if let Some((_, moved)) = self.heap.get(at as usize) {
            self.place[*moved as usize] = at;
            let at = self.rise(at as usize);
            self.sink(at);
        }
        true
    }

    /// Changes every key by a function that keeps their order.
    pub(super) fn rescale(&mut self, f: impl Fn(K) -> K) {
        for (key, _) in &mut self.heap {
            *key = f(*key);
        }
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = (2 * at + 1)..(2 * at + 3).min(self.heap.len());
            let Some(least) = children.min_by_key(|i| self.heap[*i]) else { return };
            if self.heap[at] <= self.heap[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a].1 as usize] = a as u32;
        self.place[self.heap[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_sim::prng::Prng;

    #[test]
    fn the_heap_agrees_with_an_ordered_set() {
        let mut rng = Prng::new(5);
        let mut heap = Heap::new(40);
        let mut plain = std::collections::BTreeMap::new();
        for _ in 0..50_000 {
            let item = rng.below(40) as u32;
            if rng.below(3) == 0 {
                assert_eq!(heap.remove(item), plain.remove(&item).is_some());
            } else {
                let key = rng.below(15);
                heap.set(item, key);
                plain.insert(item, key);
            }
            assert_eq!(heap.least(), plain.iter().map(|(i, k)| (*k, *i)).min());
            assert_eq!((heap.len(), heap.contains(item)), (plain.len(), plain.contains_key(&item)));
        }
    }
}

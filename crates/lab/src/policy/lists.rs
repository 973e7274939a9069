//! Doubly linked lists over numbered items, each in one list at most. All links are in arrays: no allocation per item.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Ends {
    front: u32,
    back: u32,
    len: usize,
}

/// Up to 255 lists over the same items.
pub(super) struct Lists {
    prev: Vec<u32>,
    next: Vec<u32>,
    /// Number of the item's list, plus one.
    on: Vec<u8>,
    ends: Vec<Ends>,
}

impl Lists {
    pub(super) fn new(items: u32, lists: u8) -> Lists {
        let n = items as usize;
        let ends = vec![Ends { front: NONE, back: NONE, len: 0 }; usize::from(lists)];
        Lists { prev: vec![NONE; n], next: vec![NONE; n], on: vec![0; n], ends }
    }

    /// The list an item is in.
    pub(super) fn list_of(&self, item: u32) -> Option<usize> {
        usize::from(self.on[item as usize]).checked_sub(1)
    }

    pub(super) fn len(&self, list: usize) -> usize {
        self.ends[list].len
    }

    pub(super) fn front(&self, list: usize) -> Option<u32> {
        Some(self.ends[list].front).filter(|i| *i != NONE)
    }

    pub(super) fn back(&self, list: usize) -> Option<u32> {
        Some(self.ends[list].back).filter(|i| *i != NONE)
    }

    /// Puts an item at the front of a list, out of the one it was in.
    pub(super) fn put_front(&mut self, list: usize, item: u32) {
        self.remove(item);
        let e = &mut self.ends[list];
        let old = std::mem::replace(&mut e.front, item);
        e.len += 1;
        match old {
            NONE => e.back = item,
            old => self.prev[old as usize] = item,
        }
        self.prev[item as usize] = NONE;
        self.next[item as usize] = old;
        self.on[item as usize] = list as u8 + 1;
    }

    /// Takes an item out of its list; whether it was in one.
    pub(super) fn remove(&mut self, item: u32) -> bool {
        let Some(list) = self.list_of(item) else { return false };
        let (prev, next) = (self.prev[item as usize], self.next[item as usize]);
        let e = &mut self.ends[list];
        e.len -= 1;
        match prev {
            NONE => e.front = next,
            p => self.next[p as usize] = next,
        }
        match next {
            NONE => e.back = prev,
            n => self.prev[n as usize] = prev,
        }
        self.on[item as usize] = 0;
        true
    }

    /// Takes the item at the back of a list.
    pub(super) fn pop_back(&mut self, list: usize) -> Option<u32> {
        let item = self.back(list)?;
        self.remove(item);
        Some(item)
    }

    /// Items of a list, from its front.
    #[cfg(test)]
    pub(super) fn items(&self, list: usize) -> Vec<u32> {
        std::iter::successors(self.front(list), |i| Some(self.next[*i as usize]).filter(|n| *n != NONE)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_sim::prng::Prng;

    #[test]
    fn lists_agree_with_vectors() {
        let mut rng = Prng::new(3);
        let mut lists = Lists::new(20, 3);
        let mut plain: Vec<Vec<u32>> = vec![Vec::new(); 3];
        for _ in 0..20_000 {
            let (item, list) = (rng.below(20) as u32, rng.below(3) as usize);
            match rng.below(4) {
                0 => {
                    let was = plain.iter().any(|l| l.contains(&item));
                    assert_eq!(lists.remove(item), was);
                    plain.iter_mut().for_each(|l| l.retain(|i| *i != item));
                }
                1 => assert_eq!(lists.pop_back(list), plain[list].pop()),
                _ => {
                    lists.put_front(list, item);
                    plain.iter_mut().for_each(|l| l.retain(|i| *i != item));
                    plain[list].insert(0, item);
                }
            }
            for (l, p) in plain.iter().enumerate() {
                assert_eq!((lists.items(l), lists.len(l)), (p.clone(), p.len()));
                assert_eq!((lists.front(l), lists.back(l)), (p.first().copied(), p.last().copied()));
                assert!(p.iter().all(|i| lists.list_of(*i) == Some(l)));
            }
        }
    }
}

//! Where the units of the volume lie.
//!
//! 1. A fast slot holds a unit if and only if that unit's home is the slot.
//! 2. A slot is free if and only if no unit's home is there and no move has taken it.

use bimetal_sim::prng::Prng;
use bimetal_volume::units::Tier;

/// A place of 128 KiB on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) tier: Tier,
    pub(super) number: u32,
}

impl Slot {
    /// The slot behind this one.
    pub(super) fn next(self) -> Slot {
        Slot { number: self.number + 1, ..self }
    }
}

/// `home` of a unit without one; set in a home on the fast device.
const NONE: u32 = u32::MAX;
const FAST: u32 = 1 << 31;
/// No place in the list of free slots; no unit.
const TAKEN: u32 = u32::MAX;

/// The map, both ways, and the free slots.
pub(super) struct Homes {
    home: Vec<u32>,
    /// The unit in each fast slot.
    held: Vec<u32>,
    /// Free fast slots in no order, and where each slot stands in that list.
    free: Vec<u32>,
    at: Vec<u32>,
    /// A bit per slow slot: taken.
    slow: Vec<u64>,
    slow_slots: u32,
    slow_free: u32,
    /// Where new data went last, on either device.
    fast_hand: u32,
    slow_hand: u32,
    rng: Prng,
}

impl Homes {
    pub(super) fn new(units: u32, fast_slots: u32, slow_slots: u32) -> Homes {
        Homes {
            home: vec![NONE; units as usize],
            held: vec![TAKEN; fast_slots as usize],
            free: (0..fast_slots).collect(),
            at: (0..fast_slots).collect(),
            slow: vec![0; slow_slots.div_ceil(64) as usize],
            slow_slots,
            slow_free: slow_slots,
            fast_hand: 0,
            slow_hand: 0,
            rng: Prng::new(0),
        }
    }

    /// The home of a unit.
    pub(super) fn of(&self, unit: u32) -> Option<Slot> {
        match self.home[unit as usize] {
            NONE => None,
            h if h & FAST != 0 => Some(Slot { tier: Tier::Fast, number: h & !FAST }),
            h => Some(Slot { tier: Tier::Slow, number: h }),
        }
    }

    /// The unit in a fast slot.
    pub(super) fn unit_in(&self, slot: u32) -> Option<u32> {
        Some(self.held[slot as usize]).filter(|u| *u != TAKEN)
    }

    /// Free slots of a device.
    pub(super) fn free(&self, tier: Tier) -> u32 {
        match tier {
            Tier::Fast => self.free.len() as u32,
            Tier::Slow => self.slow_free,
        }
    }

    /// Takes the next free slot behind the one that was taken so before: new data lie in the order they came.
    pub(super) fn take_next(&mut self, tier: Tier) -> Option<Slot> {
        if self.free(tier) == 0 {
            return None;
        }
        let number = match tier {
            Tier::Fast => self.next_fast(),
            Tier::Slow => self.next_slow(),
        };
        Some(Slot { tier, number })
    }

    /// Takes any free fast slot: what is promoted is scattered (B13).
    pub(super) fn take_any(&mut self) -> Option<Slot> {
        let i = self.rng.below(self.free.len() as u64) as usize;
        let number = *self.free.get(i)?;
        self.take_fast(number);
        Some(Slot { tier: Tier::Fast, number })
    }

    fn next_fast(&mut self) -> u32 {
        let slots = self.at.len() as u32;
        let mut number = self.fast_hand;
        while self.at[number as usize] == TAKEN {
            number = (number + 1) % slots;
        }
        self.take_fast(number);
        self.fast_hand = (number + 1) % slots;
        number
    }

    fn take_fast(&mut self, number: u32) {
        let i = std::mem::replace(&mut self.at[number as usize], TAKEN);
        self.free.swap_remove(i as usize);
        if let Some(moved) = self.free.get(i as usize) {
            self.at[*moved as usize] = i;
        }
    }

    fn next_slow(&mut self) -> u32 {
        let mut number = self.slow_hand;
        loop {
            let (word, bit) = (number as usize / 64, number % 64);
            let free = !self.slow[word] >> bit << bit;
            number = number / 64 * 64 + free.trailing_zeros();
            if free != 0 && number < self.slow_slots {
                self.slow[word] |= 1 << (number % 64);
                self.slow_free -= 1;
                self.slow_hand = if number + 1 < self.slow_slots { number + 1 } else { 0 };
                return number;
            }
            if number >= self.slow_slots {
                number = 0;
            }
        }
    }

    /// Gives a slot back that holds no unit.
    pub(super) fn release(&mut self, slot: Slot) {
        match slot.tier {
            Tier::Fast => {
                self.at[slot.number as usize] = self.free.len() as u32;
                self.free.push(slot.number);
            }
            Tier::Slow => {
                self.slow[slot.number as usize / 64] &= !(1 << (slot.number % 64));
                self.slow_free += 1;
            }
        }
    }

    /// Makes a taken slot the home of a unit; the old home becomes free.
    pub(super) fn settle(&mut self, unit: u32, slot: Slot) {
        self.forget(unit);
        self.home[unit as usize] = match slot.tier {
            Tier::Fast => slot.number | FAST,
            Tier::Slow => slot.number,
        };
        if slot.tier == Tier::Fast {
            self.held[slot.number as usize] = unit;
        }
    }

    /// Takes a unit's home away; which one it was.
    pub(super) fn forget(&mut self, unit: u32) -> Option<Slot> {
        let slot = self.of(unit)?;
        if slot.tier == Tier::Fast {
            self.held[slot.number as usize] = TAKEN;
        }
        self.home[unit as usize] = NONE;
        self.release(slot);
        Some(slot)
    }
}

//! Moves, carried out: read, write, switch the homes, free the old ones.

use bimetal_volume::units::Tier;

use super::homes::Slot;
use super::moves::{Move, Turn, Wish};
use super::{Fusion, Request, UNIT};
use crate::system::Op;

/// Set in the tags of moves.
pub(super) const MOVE: u64 = 1 << 63;
/// Units of one move: demotions in 1 MiB (POLICY 1e), promotions in up to 512 KiB (B4).
const DOWN: usize = 8;
const UP: usize = 4;

/// Neighbouring slots joined: the first, and how many.
fn runs(slots: &[Slot]) -> Vec<(Slot, u64)> {
    let mut out: Vec<(Slot, u64)> = Vec::new();
    for slot in slots {
        match out.last_mut() {
            Some((first, n)) if first.tier == slot.tier && u64::from(first.number) + *n == u64::from(slot.number) => {
                *n += 1
            }
            _ => out.push((*slot, 1)),
        }
    }
    out
}

impl Fusion {
    /// Begins the move that is due.
    pub(super) fn begin_move(&mut self) {
        let new = match self.moves.turn(&self.spec, self.free_bytes(), self.now) {
            Some(Turn::Demote) => self.demotion(),
            Some(Turn::Promote) => self.promotion(),
            None => return,
        };
        let Some(new) = new else { return self.moves.rest(self.now) };
        let number = self.moves.begin(new);
        self.transfer(number, Op::Read);
    }

    /// What the clock gives up first.
    fn demotion(&mut self) -> Option<Move> {
        let (mut units, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new());
        while units.len() < DOWN && self.homes.free(Tier::Slow) > 0 {
            let (homes, moves) = (&self.homes, &self.moves);
            let held = |slot| homes.unit_in(slot).filter(|u| !moves.is_moving(*u));
            let Some(unit) = self.clock.victim(held) else { break };
            let (Some(old), Some(new)) = (self.homes.of(unit), self.homes.take_next(Tier::Slow)) else { break };
            self.moves.take_up(unit);
            units.push(unit);
            from.push(old);
            to.push(new);
        }
        self.moves.pace(&self.spec, units.len(), None, self.now);
        (!units.is_empty()).then_some(Move { units, from, to, writing: false, waits: 0 })
    }

    /// The oldest wish, and those behind it that go on where it lies.
    fn promotion(&mut self) -> Option<Move> {
        let (mut units, mut from, mut to): (Vec<u32>, Vec<Slot>, Vec<Slot>) = Default::default();
        let mut first_kind = None;
        while let Some(Wish { unit, kind, .. }) = self.moves.first_wish() {
            let home = self.homes.of(unit).filter(|h| h.tier == Tier::Slow && !self.moves.is_moving(unit));
            let Some(home) = home else {
                // It has moved, or is gone.
                self.moves.take_wish();
                continue;
            };
            let goes_on = from.last().is_none_or(|last| last.next() == home && first_kind == Some(kind));
            if !goes_on || units.len() == UP {
                break;
            }
            let Some(slot) = self.homes.take_any() else { break };
            self.moves.take_wish();
            self.moves.take_up(unit);
            first_kind = Some(kind);
            units.push(unit);
            from.push(home);
            to.push(slot);
        }
        self.moves.pace(&self.spec, units.len(), first_kind, self.now);
        (!units.is_empty()).then_some(Move { units, from, to, writing: false, waits: 0 })
    }

    /// Reads or writes what a move carries.
    fn transfer(&mut self, number: u64, op: Op) {
        let Some(m) = self.moves.under_way.get_mut(&number) else { return };
        m.writing = op == Op::Write;
        let runs = runs(if m.writing { &m.to } else { &m.from });
        m.waits = runs.len() as u32;
        for (slot, n) in runs {
            let request = Request { op, offset: u64::from(slot.number) * UNIT, len: n * UNIT };
            self.pair.submit(self.now, slot.tier, MOVE | number, request);
        }
    }

    /// A device request of a move is complete.
    pub(super) fn move_went_on(&mut self, number: u64) {
        let Some(m) = self.moves.under_way.get_mut(&number) else { return };
        m.waits -= 1;
        if m.waits > 0 {
            return;
        }
        match m.writing {
            false => self.transfer(number, Op::Write),
            true => self.end_move(number),
        }
    }

    fn end_move(&mut self, number: u64) {
        let Some(m) = self.moves.under_way.remove(&number) else { return };
        for ((unit, from), to) in m.units.into_iter().zip(m.from).zip(m.to) {
            if self.moves.put_down(unit) {
                self.homes.release(to);
                self.discard(to);
                continue;
            }
            self.homes.settle(unit, to);
            self.discard(from);
            match to.tier {
                Tier::Fast => {
                    self.clock.enter(to.number);
                    self.promoted += UNIT;
                }
                Tier::Slow => self.demoted += UNIT,
            }
        }
    }
}

//! Requests of the host.

use bimetal_volume::units::Tier;

use super::homes::Slot;
use super::watch::Kind;
use super::{Completion, Fusion, Request, UNIT};
use crate::system::Op;

/// A device request whose completion nobody waits for.
const NOBODY: u64 = (1 << 62) - 1;

/// A request that is being carried out.
pub(super) struct Ask {
    id: u64,
    op: Op,
    kind: Kind,
    /// What is left of it.
    offset: u64,
    end: u64,
    /// Device requests on their way.
    waits: u32,
}

/// The units that a range touches, each with the bytes of it.
pub(super) fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u32, u64)> {
    let end = offset + len;
    (offset / UNIT..end.div_ceil(UNIT)).map(move |unit| {
        let bytes = end.min((unit + 1) * UNIT) - offset.max(unit * UNIT);
        (unit as u32, bytes)
    })
}

impl Fusion {
    pub(super) fn ask(&mut self, id: u64, request: Request) {
        self.moves.outstanding += 1;
        let Request { op, offset, len } = request;
        let kind = match op {
            Op::Read | Op::Write => self.streams.kind(&request),
            Op::Trim | Op::Flush => Kind::Random,
        };
        let ask = Ask { id, op, kind, offset, end: offset + len, waits: 0 };
        let tag = self.spare_tags.pop().unwrap_or(self.asks.len());
        if tag == self.asks.len() {
            self.asks.push(None);
        }
        self.asks[tag] = Some(ask);
        match op {
            Op::Read | Op::Write => self.next_extent(tag),
            Op::Flush => self.flush(tag),
            Op::Trim => self.trim(tag),
        }
    }

    /// A device request of an ask is complete.
    pub(super) fn ask_went_on(&mut self, tag: usize) {
        let Some(Some(ask)) = self.asks.get_mut(tag) else { return };
        ask.waits -= 1;
        if ask.waits == 0 {
            self.next_extent(tag);
        }
    }

    /// Carries out the next extent, or ends the ask.
    fn next_extent(&mut self, tag: usize) {
        let Some(mut ask) = self.asks[tag].take() else { return };
        match self.extent(&mut ask) {
            Some((slot, request)) => {
                ask.waits = 1;
                self.asks[tag] = Some(ask);
                self.pair.submit(self.now, slot.tier, tag as u64, request);
            }
            None => {
                self.moves.outstanding -= 1;
                self.moves.last_request = self.now;
                self.spare_tags.push(tag);
                self.done.push_back(Completion { id: ask.id, at: self.now });
            }
        }
    }

    /// Cuts the next extent off an ask: where it begins, and the device request. Holes that are read take no time.
    fn extent(&mut self, ask: &mut Ask) -> Option<(Slot, Request)> {
        let mut found: Option<(Slot, Slot, u64, u64)> = None;
        while ask.offset < ask.end {
            let unit = (ask.offset / UNIT) as u32;
            let bytes = ask.end.min((u64::from(unit) + 1) * UNIT) - ask.offset;
            let known = self.homes.of(unit);
            let home = match (known, ask.op) {
                (Some(home), _) => Some(home),
                (None, Op::Write) => {
                    // A new home goes on where the last one was, or it is a new extent.
                    self.give_home(unit)
                }
                (None, _) => None,
            };
            match (home, &mut found) {
                (Some(home), Some((_, last, _, len))) if home == last.next() => {
                    (*last, *len) = (home, *len + bytes);
                }
                (None, None) => {}
                (Some(home), None) => found = Some((home, home, ask.offset % UNIT, bytes)),
                (_, Some(_)) => break,
            }
            if home.is_some() {
                self.touched(unit, ask, known.is_none());
            }
            ask.offset += bytes;
        }
        let (first, _, within, len) = found?;
        let offset = u64::from(first.number) * UNIT + within;
        Some((first, Request { op: ask.op, offset, len }))
    }

    /// A home for new data: on the SSD as long as there is room.
    fn give_home(&mut self, unit: u32) -> Option<Slot> {
        let slot = self.homes.take_next(Tier::Fast).or_else(|| self.homes.take_next(Tier::Slow))?;
        self.homes.settle(unit, slot);
        if slot.tier == Tier::Fast {
            self.clock.enter(slot.number);
        }
        Some(slot)
    }

    /// Counts a visit; writes count as well as reads (B6), the first one too.
    fn touched(&mut self, unit: u32, ask: &Ask, born: bool) {
        if ask.op == Op::Write {
            self.moves.cancel(unit);
        }
        if !self.correlation.counts(unit, self.now) {
            return;
        }
        match self.homes.of(unit) {
            Some(Slot { tier: Tier::Fast, number }) if !born => self.clock.visit(number),
            Some(Slot { tier: Tier::Slow, .. }) => {
                if self.queue.remember(unit) {
                    self.moves.wish(unit, ask.kind, self.now);
                }
            }
            _ => {}
        }
    }

    fn flush(&mut self, tag: usize) {
        if let Some(ask) = self.asks[tag].as_mut() {
            ask.waits = 2;
        }
        for tier in [Tier::Fast, Tier::Slow] {
            self.pair.submit(self.now, tier, tag as u64, Request::flush());
        }
    }

    /// Units that are trimmed as a whole lose their homes.
    fn trim(&mut self, tag: usize) {
        let Some(ask) = self.asks[tag].as_mut() else { return };
        let (offset, len) = (ask.offset, ask.end - ask.offset);
        ask.offset = ask.end;
        for (unit, _) in pieces(offset, len).filter(|(_, bytes)| *bytes == UNIT) {
            self.moves.cancel(unit);
            if let Some(slot) = self.homes.forget(unit) {
                self.discard(slot);
            }
        }
        self.next_extent(tag);
    }

    /// Tells the SSD that a slot holds nothing any more.
    pub(super) fn discard(&mut self, slot: Slot) {
        if slot.tier == Tier::Fast {
            self.pair.submit(self.now, Tier::Fast, NOBODY, Request::trim(u64::from(slot.number) * UNIT, UNIT));
        }
    }
}

//! Bringing a volume to the state in which an experiment begins, quickly.
//!
//! The engine places every chunk as ever and the devices' models see every request, so that slots, flash pages and
//! heads are where they would be. But no time passes, so moves, which the engine makes when it is quiet, have no place
//! in it.
//!
//! 1. Between two fillings the group stays open without moves; whatever else is asked of it ends the filling first.

use std::ops::Range;

use bimetal_sim::model::Op;
use bimetal_volume::options::OpenOptions;

use super::super::load::{self, Load};
use super::super::meter::Meter;
use super::Bimetal;

/// Bytes of a request that fills a volume, and how many are on their way.
const FILL_BLOCK: u64 = 2 << 20;
const FILL_DEPTH: usize = 4;

/// Whether the volume is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    No,
    Now,
    /// It was, and may be again: the group is open without moves.
    Between,
}

impl Bimetal {
    /// Writes the range once, in order, without time passing and without moves: the devices' models serve the requests,
    /// but nobody waits for them. For the state before an experiment. The group is stopped and opened anew before the
    /// first of several fillings and after the last, as a computer is, so of heat only what survives that is kept. If
    /// less than the reserve is free then, moves to bring it back begin at once. It panics while requests are on their
    /// way.
    pub fn fill(&mut self, range: Range<u64>) {
        self.begin_filling();
        self.filling = Filling::Now;
        let load = Load { range, block: FILL_BLOCK, depth: FILL_DEPTH, op: Op::Write };
        load::sequential(self, &load, Meter::seconds());
        // What the engine does beside ends in no time as well.
        load::pause(self, 0);
        self.filling = Filling::Between;
    }

    fn begin_filling(&mut self) {
        if self.filling != Filling::No {
            return;
        }
        self.set_instant(true);
        if self.options.migrate {
            self.open_anew(false);
        }
    }

    /// The next request or pause is not one of a filling.
    pub(super) fn end_filling(&mut self) {
        if self.filling != Filling::Between {
            return;
        }
        self.filling = Filling::No;
        if self.options.migrate {
            self.open_anew(true);
        }
        self.set_instant(false);
    }

    pub(super) fn open_anew(&mut self, migrate: bool) {
        self.close();
        let opened = self.open_with(OpenOptions { migrate, ..self.options.clone() });
        assert!(opened.is_ok(), "a group that was stopped in order does not open: {opened:?}");
    }

    fn set_instant(&self, on: bool) {
        self.ports.iter().for_each(|p| p.set_instant(on));
    }
}

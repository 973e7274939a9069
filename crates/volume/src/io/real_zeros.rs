//! Zeros that are really written, for ranges that are to keep their room (NBD `NO_HOLE`).
//!
//! 1. All zeroings of a group write from one buffer (I10). It is never written to: the handle that is kept here makes sure that
//!    nobody else has the only one.
//! 2. A zeroing costs its client nothing, however long it is, so thousands may be asked for at once. They take turns, run by run, and
//!    only so many runs are under way that most of the room for requests is left to all others.
//!    Each volume has one run of its own beside those: runs that hang on one disk keep no volume waiting that has nothing on it.
//! 3. A change of the volume waits for one run, not for all: what it would be refused for as a new request ends a zeroing.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::backend::{Wanted, WriteFlags, ZERO_RUN};
use crate::buf::{Buf, BufMut};
use crate::env::Env;
use crate::error::Error;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::mutant::{self, Mutant};
use crate::turns::{Turn, Turns};
use crate::wait;

/// Runs under way at most, beside each volume's own; and they take no more than this part of the room for requests.
const RUNS: u64 = 32;
const PART: u64 = 8;

/// What zeroings share.
pub(crate) struct RealZeros {
    /// Made when it is first needed.
    buffer: OnceCell<Buf>,
    turns: Turns,
}

impl RealZeros {
    /// For a group that may have so many bytes of requests in flight.
    pub(crate) fn new(max_inflight_bytes: u64) -> RealZeros {
        let runs = (max_inflight_bytes / PART / ZERO_RUN).clamp(1, RUNS);
        RealZeros { buffer: OnceCell::new(), turns: Turns::new(runs as usize) }
    }

    /// Zeros for the range, which lies in one run, as a write wants them there.
    fn of(&self, offset: u64, len: u64) -> Buf {
        let all = self.buffer.get_or_init(|| BufMut::zeroed(ZERO_RUN as usize).freeze());
        all.slice((offset % ZERO_RUN) as usize, len as usize)
    }
}

impl<E: Env> Core<E> {
    /// Writes zeros over the range, as long as that is `wanted`.
    pub(super) async fn write_real_zeros(
        self: &Rc<Self>,
        v: &VolumeInfo,
        offset: u64,
        len: u64,
        wanted: Wanted<'_>,
    ) -> Result<(), Error> {
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let n = (ZERO_RUN - at % ZERO_RUN).min(end - at);
            let _turn = self.zeroing_turn(v).await;
            // Also the first time: it may have waited long.
            if !wanted() {
                return Err(Error::Stopping);
            }
            // Whoever deletes, shrinks or locks the volume meanwhile waits for this one: not for hours.
            v.check(offset, len)?;
            self.write_let_in(v, at, self.real_zeros.of(at, n), WriteFlags::default(), wanted).await?;
            at += n;
        }
        Ok(())
    }

    /// Waits for the turn of a run, whichever comes first.
    async fn zeroing_turn<'a>(&'a self, v: &'a VolumeInfo) -> Turn<'a> {
        let shared = self.real_zeros.turns.turn();
        match mutant::on(Mutant::ZeroingsShareAll) {
            true => shared.await,
            false => wait::first(v.zeroing.turn(), shared).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BLOCK;

    #[test]
    fn all_zeros_are_those_of_one_buffer() {
        let zeros = RealZeros::new(256 << 20);
        let (a, b) =
            (zeros.of(3 * ZERO_RUN + 100, BLOCK), zeros.of(7 * ZERO_RUN + 100 + BLOCK, ZERO_RUN - BLOCK - 100));
        assert!(a.join(&b).is_some_and(|both| both.len() as u64 == ZERO_RUN - 100 && both.iter().all(|b| *b == 0)));
        assert_eq!(zeros.of(BLOCK, BLOCK).as_ptr() as u64 % BLOCK, 0, "whole blocks lie on pages");
        drop((a, b));
        assert!(zeros.of(0, ZERO_RUN).try_unfreeze().is_err(), "nobody may write to it");
    }
}

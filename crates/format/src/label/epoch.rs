//! Which start a label belongs to, and which came before it: what tells stale members and forks (C4).

use super::EPOCH_HISTORY;

/// The epoch that a label was written in (C4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Random, not zero.
    pub id: u64,
    /// Commits of this epoch have this generation or a later one.
    pub first_generation: u64,
    /// Bit per member that was present when the epoch began.
    pub members: [u8; 32],
    /// The labels of all members present carry this epoch durably; only then was anything served.
    pub confirmed: bool,
    /// Epochs before this one, newest first.
    pub history: Vec<u64>,
    /// One more than how many of these, the newest ones, were never confirmed; 0: that is not known.
    pub cut_off: u8,
}

impl Epoch {
    /// The `history` of an epoch that comes after this one, and its `cut_off`; `served` tells whether this one was served.
    ///
    /// Starts that are cut off may be any number. Of more epochs than there is room for, those go first that were not served and that
    /// no label carries: without the others a member would look as if it had been used apart.
    pub fn history_after(&self, served: bool, carried: impl Fn(u64) -> bool) -> (Vec<u64>, u8) {
        let mut history: Vec<u64> = std::iter::once(self.id).chain(self.history.iter().copied()).collect();
        let mut unserved = match (served, usize::from(self.cut_off)) {
            (true, _) => Some(0),
            (false, 0) => None,
            (false, n) => Some(n),
        };
        if history.len() > EPOCH_HISTORY {
            let dispensable = unserved.and_then(|n| (1..n.min(history.len())).rev().find(|i| !carried(history[*i])));
            if let Some(i) = dispensable {
                history.remove(i);
                unserved = unserved.map(|n| n - 1);
            }
            history.truncate(EPOCH_HISTORY);
        }
        let cut_off = unserved.filter(|n| *n < EPOCH_HISTORY).map_or(0, |n| n as u8 + 1);
        (history, cut_off)
    }

    /// The last epoch that was served, as far as it is known: this one, or one before it.
    pub fn last_served(&self) -> Option<u64> {
        match self.confirmed {
            true => Some(self.id),
            false => usize::from(self.cut_off).checked_sub(1).and_then(|n| self.history.get(n)).copied(),
        }
    }

    /// Whether epoch `id` is older than one of which it is known that it was served.
    pub fn has_served_since(&self, id: u64) -> bool {
        let back = self.history.iter().position(|e| *e == id);
        let served = match self.confirmed {
            true => return self.id != id,
            false => usize::from(self.cut_off),
        };
        served > 0 && back.is_none_or(|back| back >= served)
    }

    /// Whether member `index` was present when the epoch began.
    pub fn has_member(&self, index: u8) -> bool {
        self.members[index as usize / 8] & 1 << (index % 8) != 0
    }
}

//! Metadata contexts: what BLOCK_STATUS can tell of a range.

use bimetal_nbd::consts::state;
use bimetal_nbd::reply::StatusExtent;
use bimetal_volume::backend::Extent;

/// A metadata context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// `base:allocation`: whether data is stored.
    Allocation,
    /// `bimetal:tier`: 0 unmapped, 1 fast, 2 slow, 3 both.
    Tier,
    /// `bimetal:heat`: 0 to 15.
    Heat,
}

impl Context {
    pub(super) const ALL: [Context; 3] = [Context::Allocation, Context::Tier, Context::Heat];

    /// Its name, as clients ask for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Context::Allocation => "base:allocation",
            Context::Tier => "bimetal:tier",
            Context::Heat => "bimetal:heat",
        }
    }

    /// Its number in replies.
    pub(super) fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
            Context::Tier => 2,
            Context::Heat => 3,
        }
    }

    /// Whether a query of SET_META_CONTEXT selects it: by its full name only.
    pub(super) fn is_selected_by(self, query: &str) -> bool {
        query == self.name()
    }

    /// Whether a query of LIST_META_CONTEXT matches it: by its full name or its namespace.
    pub(super) fn is_listed_by(self, query: &str) -> bool {
        let namespace_end = self.name().find(':').map_or(0, |colon| colon + 1);
        query == self.name() || query == &self.name()[..namespace_end]
    }

    fn status(self, extent: &Extent) -> u64 {
        match self {
            Context::Allocation if extent.data => 0,
            Context::Allocation => u64::from(state::HOLE | state::ZERO),
            Context::Tier => extent.tier.into(),
            Context::Heat => extent.heat.into(),
        }
    }

    /// What this context says of `extents`: neighbours that it does not tell apart are one, and nothing reaches beyond
    /// `limit` bytes.
    pub(super) fn describe(self, extents: &[Extent], limit: u64) -> Vec<StatusExtent> {
        let mut told: Vec<StatusExtent> = Vec::new();
        let mut left = limit;
        for extent in extents {
            let len = extent.len.min(left);
            left -= len;
            let status = self.status(extent);
            match told.last_mut() {
                _ if len == 0 => {}
                Some(last) if last.status == status => last.len += len,
                _ => told.push(StatusExtent { len, status }),
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        assert!(Context::Tier.is_listed_by("bimetal:"));
        assert!(Context::Tier.is_listed_by("bimetal:tier"));
        assert!(!Context::Tier.is_listed_by("base:"));
        assert!(!Context::Tier.is_listed_by("bimetal:heat"));
        assert!(!Context::Allocation.is_selected_by("base:"));
        assert!(Context::Allocation.is_selected_by("base:allocation"));
    }

    #[test]
    fn neighbours_are_merged_and_the_end_is_cut() {
        let fast = Extent { len: 10, data: true, tier: 1, heat: 3 };
        let slow = Extent { tier: 2, ..fast };
        let hole = Extent { len: 100, data: false, tier: 0, heat: 0 };
        let extents = [fast, slow, hole];
        let told = |len, status| StatusExtent { len, status };
        assert_eq!(Context::Allocation.describe(&extents, 50), [told(20, 0), told(30, 3)]);
        assert_eq!(Context::Tier.describe(&extents, 15), [told(10, 1), told(5, 2)]);
        assert_eq!(Context::Heat.describe(&extents, 120), [told(20, 3), told(100, 0)]);
    }
}

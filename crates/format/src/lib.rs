//! Under construction.

/// Entries in one map page.
pub const ENTRIES_PER_PAGE: usize = 252;

//! Whether a member can leave once another has come, asked before anything is written to that one: the engine says no only when
//! it is a member already, and then it has to leave again.

use anyhow::{bail, Result};
use bimetal_format::layout::{default_journal_blocks, Layout};
use bimetal_host::Locator;
use bimetal_volume::group::create::headroom;
use bimetal_volume::units::CHUNK;

use super::{named, Rows};
use crate::api;
use crate::size::approx;

/// Refuses a device of `size` bytes in the place of `old`, as far as it can be known that this cannot leave then.
pub(super) fn refuse_small(rows: &Rows, old: &api::Member, new: &Locator, size: u64) -> Result<()> {
    let Some(slots) = slots_of_new(rows, size) else { return Ok(()) };
    let Some(lack) = lack(rows, old, slots) else { return Ok(()) };
    let (name, have, need) = (named(old), approx(slots * CHUNK), approx(lack * CHUNK));
    bail!(
        "{name} could not leave: {new} would have {have} for data, and {need} more are needed for what the volumes may hold. \
         Nothing was written. Take a larger device, or shrink or delete a volume first"
    )
}

/// How many slots a new device has; `None` if that is not known of the others.
fn slots_of_new(rows: &Rows, size: u64) -> Option<u64> {
    let pages = rows.members.iter().map(|m| m.map_pages).max().filter(|pages| *pages > 0)?;
    // As the engine lays it out, which refuses what is too small in words of its own.
    let least = rows.members.iter().map(|m| m.journal_blocks as u32).min().unwrap_or(0);
    let journal = default_journal_blocks(size).max(least);
    Layout::plan(size, pages, journal).ok().map(|layout| layout.slot_count)
}

/// How many slots are lacking when a member with `slots` has come and `old` is to leave (I5).
fn lack(rows: &Rows, old: &api::Member, slots: u64) -> Option<u64> {
    let stays = |m: &&api::Member| m.present && !m.is_leaving() && m.index != old.index;
    let of_tier =
        |tier: &str| rows.members.iter().filter(stays).filter(|m| m.tier == tier).map(|m| m.slots).sum::<u64>();
    let promised = |placement: Option<&str>| {
        let counts = |v: &&api::Volume| placement.is_none_or(|p| v.placement == p);
        let held = rows.deleting.iter().filter(counts).map(|v| v.fast_bytes + v.slow_bytes);
        rows.volumes.iter().filter(counts).map(|v| v.size_bytes).chain(held).sum::<u64>() / CHUNK
    };
    let short = |need: u64, all: u64| need.saturating_sub(all - headroom(all));
    let bound = if old.tier == "fast" { "fast-only" } else { "slow-only" };
    let (all, tier) = (of_tier("fast") + of_tier("slow") + slots, of_tier(&old.tier) + slots);
    let lack = short(promised(None), all).max(short(promised(Some(bound)), tier));
    (lack > 0).then_some(lack)
}

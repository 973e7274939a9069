//! Random runs in groups whose map has many pages, most of them nearly empty: a slow member has thousands of slots, and requests go all
//! over the last volume. A checkpoint is many writes there, and clients come in between.

use bimetal_volume::units::Tier;

use super::Taste;
use crate::prng::Prng;
use crate::scenario::Scenario;

/// Slots of the slow member that is large: up to two dozen pages of the map, as its disk has room for.
const SLOTS: (u64, u64) = (600, 6000);

/// A slow member gets many more slots, and the last volume what they hold.
pub(super) fn make_room(s: &mut Scenario, p: &mut Prng) {
    let slow: Vec<usize> = (0..s.members.len()).filter(|m| s.members[*m].tier == Tier::Slow).collect();
    let member = &mut s.members[*p.pick(&slow)];
    let more = p.range(SLOTS.0, SLOTS.1);
    member.slots += more;
    let last = s.volumes.last_mut().expect("there is always one");
    last.chunks += more - more.div_ceil(8);
}

/// What is hot is all over the last volume, or nothing is; nothing fills it, which would take the run's whole time.
pub(super) fn widen(s: &Scenario, t: &mut Taste, p: &mut Prng) {
    let last = s.volumes.len() - 1;
    t.reach[last] = s.volumes[last].chunks;
    t.hot[last] = (p.below(t.reach[last] - 7), 8);
    t.hot_ppm = t.hot_ppm.min(500_000);
    t.fills = false;
}

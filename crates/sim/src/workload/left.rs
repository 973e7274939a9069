//! Members that are to leave, and are not there at the next start, mixed into a random scenario: the group goes on without them, if they
//! are empty by then.

use bimetal_volume::units::Tier;

use crate::prng::Prng;
use crate::scenario::{Act, Damage, End, Scenario, Step};

/// More events than a start takes.
const WHOLE: u64 = 400;
/// Longest time that one has to get empty, in microseconds.
const LONGEST: u64 = 20_000_000;

/// One or two members leave in a session, and are gone in the next.
pub(super) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    let has_others = |m: usize| s.members.iter().filter(|o| o.tier == s.members[m].tier).count() > 1;
    let able: Vec<usize> = (0..s.members.len()).filter(|m| has_others(*m)).collect();
    if able.is_empty() {
        // Who is the last of its tier stays.
        return;
    }
    let session = p.below(s.sessions.len() as u64 - 1) as usize;
    let disk = *p.pick(&able);
    leaves(s, session, disk, p);
    let other = *p.pick(&able);
    let apart = s.members[other].tier != s.members[disk].tier || in_tier(s, s.members[disk].tier) > 2;
    let last = s.sessions.len() - 1;
    if other != disk && apart && session + 1 < last {
        leaves(s, session + 1, other, p);
    }
}

fn in_tier(s: &Scenario, tier: Tier) -> usize {
    s.members.iter().filter(|m| m.tier == tier).count()
}

/// It is told to leave in this session, and nobody takes it out.
fn leaves(s: &mut Scenario, session: usize, disk: usize, p: &mut Prng) {
    let of_it = |act: Act| matches!(act, Act::Remove { disk: d } | Act::Keep { disk: d } | Act::Evacuate { disk: d } if d == disk);
    let [this, next] = &mut s.sessions[session..session + 2] else { return };
    for steps in [&mut this.steps, &mut next.steps] {
        steps.retain(|t| !of_it(t.act));
    }
    let client = this.steps.iter().map(|t| t.client).max().unwrap_or(0) + 1;
    let step = Step { client, volume: 0, act: Act::Evacuate { disk }, offset: 0, len: 0 };
    let wait = Step { act: Act::Sleep, len: p.skewed(LONGEST), ..step };
    this.steps.extend([Step { len: p.skewed(200_000), ..wait }, step, wait]);
    if p.chance(700_000) {
        let whole = crate::world::CrashPoint { steps: this.steps.len() as u64, events: p.below(40) };
        this.end = if p.coin() { End::Stop } else { this.end.with_point(whole) };
    }
    next.damage = Some(Damage::Gone(disk, if p.chance(700_000) { WHOLE } else { p.below(WHOLE) }));
}

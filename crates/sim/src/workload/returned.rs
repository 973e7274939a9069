//! Changes of volumes and members that a power cut interrupts, mixed into a random scenario; then a member is lost, and one comes back as
//! it was.

use bimetal_volume::units::Placement;

use crate::oracle::Crash;
use crate::prng::Prng;
use crate::scenario::{Act, Damage, End, Scenario, Session, Step, MAX_VOLUMES};
use crate::world::CrashPoint;

/// Longest time before a change, in microseconds.
const LONGEST: u64 = 2_000_000;
/// Crash points of a change.
const CHANGE: u64 = 90;

/// In one session a change is cut off, or a copy is made of all disks in its midst or in the next start; what follows goes wrong with one
/// member.
pub(super) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    let (volumes, members, spares) = (s.volumes.len(), s.members.len(), s.spares.len());
    let session = p.below(s.sessions.len() as u64 - 1) as usize;
    let disk = p.below(members as u64) as usize;
    if p.coin() {
        let spare = (spares > 0).then(|| members + p.below(spares as u64) as usize);
        let act = change(disk, spare, p);
        let made = matches!(act, Act::Make { .. });
        let volume = if made { MAX_VOLUMES - 1 } else { p.below(volumes as u64) as usize };
        cut_off(&mut s.sessions[session], Step { client: 0, volume, act, offset: 0, len: 0 }, p);
    } else {
        let micros = if p.coin() { 0 } else { p.range(1, 300_000) };
        let steps = &mut s.sessions[session].steps;
        let at = p.below(steps.len() as u64 + 1) as usize;
        steps.insert(at, Step { client: 0, volume: 0, act: Act::Copy, offset: 0, len: micros });
    }
    for later in session + 1..s.sessions.len() {
        s.sessions[later].damage = Some(damage(disk, p));
    }
}

/// A change, of a volume or of who is a member.
fn change(disk: usize, spare: Option<usize>, p: &mut Prng) -> Act {
    let placement = *p.pick(&[Placement::Auto, Placement::FastOnly, Placement::SlowOnly]);
    let of_members = match spare {
        Some(disk) if p.coin() => Act::AddMember { disk },
        _ => Act::Evacuate { disk },
    };
    let chunks = p.skewed(12);
    let made = Act::Make { chunks, placement, family: 0 };
    *p.pick(&[of_members, of_members, Act::Remove { disk }, made, Act::Delete, Act::Resize { chunks }, Act::Rename])
}

/// It is the last thing that is done, and the power goes meanwhile.
fn cut_off(session: &mut Session, change: Step, p: &mut Prng) {
    let client = session.steps.iter().map(|t| t.client).max().unwrap_or(0) + 1;
    let wait = Step { client, act: Act::Sleep, len: p.skewed(LONGEST), ..change };
    let mut steps = vec![wait, Step { client, ..change }];
    if matches!(change.act, Act::Remove { .. }) {
        let Act::Remove { disk } = change.act else { return };
        steps.insert(1, Step { client, act: Act::Evacuate { disk }, ..change });
    }
    session.steps.extend(steps);
    let point = CrashPoint { steps: session.steps.len() as u64 - 1, events: p.below(CHANGE) };
    session.end = End::Crash(Crash::Power, point);
}

/// The member is lost, or comes back as it was.
fn damage(m: usize, p: &mut Prng) -> Damage {
    let old = [Damage::Old(m), Damage::Old(m), Damage::Stale(m), Damage::Midst(m, false), Damage::AtStart(m)];
    let lost = [Damage::Missing(m), Damage::NoFast, Damage::Repair(m, p.below(160)), Damage::Gone(m, 400)];
    let apart = [Damage::Fork(m), Damage::Halves(m)];
    *p.pick(&[&old[..], &lost[..], &apart[..]].concat())
}

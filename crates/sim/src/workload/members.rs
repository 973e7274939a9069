//! Random changes of the members, mixed into a random scenario: disks come, and with them room for more; disks go.

use bimetal_volume::units::{Tier, CHUNK};

use crate::disk::Faults;
use crate::prng::Prng;
use crate::scenario::{Act, MemberSpec, Scenario, Speed, Step};

/// Draws disks, and adds steps with them to the sessions.
pub(super) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    for _ in 0..p.range(1, 2) {
        let tier = *p.pick(&[Tier::Fast, Tier::Slow]);
        s.spares.push(MemberSpec { tier, slots: p.range(10, 40), discard: p.coin() });
    }
    let founders = s.members.len();
    let spares = s.spares.clone();
    let size = s.volumes[0].chunks * CHUNK;
    for session in &mut s.sessions {
        for m in &spares {
            session.speed.push(Speed::of(m.tier));
            session.faults.push(faults(p));
        }
        let clients = session.steps.iter().map(|t| t.client).max().map_or(1, |c| u64::from(c) + 1);
        for i in 0..spares.len() {
            if p.chance(700_000) {
                let client = p.below(clients) as u8;
                let at = p.below(session.steps.len() as u64 + 1) as usize;
                let steps = change(founders + i, client, size, p);
                session.steps.splice(at..at, steps);
            }
        }
        for disk in 0..founders + spares.len() {
            if p.chance(250_000) {
                let client = p.below(clients) as u8;
                let at = p.below(session.steps.len() as u64 + 1) as usize;
                let later = at + p.below((session.steps.len() - at) as u64 + 1) as usize;
                let of = |act| Step { client, volume: 0, act, offset: 0, len: 0 };
                let end = if p.chance(800_000) { Act::Remove { disk } } else { Act::Keep { disk } };
                session.steps.insert(later, of(end));
                session.steps.insert(at, of(Act::Evacuate { disk }));
            }
        }
    }
}

/// A disk that is added may fail like any other.
fn faults(p: &mut Prng) -> Faults {
    match p.below(10) {
        0 => Faults { write_ppm: 30_000, limit: 2, late: p.coin(), ..Faults::default() },
        1 => Faults { sync_ppm: 60_000, limit: 1, ..Faults::default() },
        2 => Faults { read_ppm: 60_000, limit: 2, ..Faults::default() },
        _ => Faults::default(),
    }
}

/// A disk is added; what is written then, to a volume of `size` bytes, goes to it too.
fn change(disk: usize, client: u8, size: u64, p: &mut Prng) -> Vec<Step> {
    let volume = 0;
    let mut steps = vec![Step { client, volume, act: Act::AddMember { disk }, offset: 0, len: 0 }];
    for _ in 0..p.below(4) {
        let act = *p.pick(&[Act::Fill, Act::Read, Act::Write { fua: true }]);
        let (offset, len) = (p.below(30) * CHUNK % size, p.range(1, 3) * CHUNK);
        let len = if act == (Act::Write { fua: true }) { 8192 } else { len.min(size - offset) };
        steps.push(Step { client, volume, act, offset, len });
    }
    steps
}

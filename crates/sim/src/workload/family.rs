//! Families, mixed into a random scenario: they come and go, their headers are replaced, they are locked; volumes are made
//! in them, and such as hold plaintext are given one.

use bimetal_volume::units::{Placement, CHUNK};

use crate::prng::Prng;
use crate::scenario::{Act, Damage, Scenario, Step, MAX_FAMILIES, MAX_VOLUMES};

/// Adds steps with families to every session.
pub(super) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    let made = s.sessions.iter().flat_map(|x| &x.steps).filter(|t| matches!(t.act, Act::Make { .. }));
    let mut next = made.map(|t| t.volume + 1).max().unwrap_or(0).max(s.volumes.len());
    let clients = s.sessions.iter().flat_map(|x| &x.steps).map(|t| t.client).max().unwrap_or(0) + 1;
    let (volumes, members) = (s.volumes.len() as u64, s.members.len() as u64);
    for (i, session) in s.sessions.iter_mut().enumerate() {
        if i > 0 && session.damage.is_none() && p.chance(200_000) {
            session.damage = Some(Damage::Keys(p.below(members) as usize));
        }
        for t in &mut session.steps {
            if let Act::Make { family, .. } = &mut t.act {
                *family = p.below(3) as u8;
            }
        }
        let steps = &mut session.steps;
        let add = |steps: &mut Vec<Step>, act, volume, p: &mut Prng, early: bool| {
            let room = steps.len() as u64;
            let at = p.below(if early { room / 3 + 1 } else { room + 1 }) as usize;
            let step = Step { client: p.below(clients.into()) as u8, volume, act, offset: 0, len: 0 };
            steps.insert(at, step);
        };
        let family = |p: &mut Prng| 1 + p.below(MAX_FAMILIES.into()) as u8;
        if i == 0 || p.coin() {
            for family in 1..=p.range(1, MAX_FAMILIES.into()) as u8 {
                add(steps, Act::MakeFamily { family }, 0, p, true);
            }
        }
        for _ in 0..p.below(4) {
            let (family, volume) = (family(p), p.below(volumes) as usize);
            match p.below(10) {
                8..=9 => add(steps, Act::Relock { family: 1 }, 0, p, false),
                0..=3 => add(steps, Act::Encrypt { family }, volume, p, false),
                4 => add(steps, Act::NewHeader { family }, 0, p, false),
                5 => add(steps, Act::DropFamily { family }, 0, p, false),
                6 => add(steps, Act::Relock { family: 1 }, 0, p, false),
                _ if next < MAX_VOLUMES => {
                    let act = Act::Make { chunks: p.skewed(12), placement: Placement::Auto, family };
                    add(steps, act, next, p, false);
                    let fill = Step { client: 0, volume: next, act: Act::Fill, offset: 0, len: 6 * CHUNK };
                    steps.push(fill);
                    next += 1;
                    continue;
                }
                _ => {}
            }
        }
    }
}

//! A disk stands still for a while in a random scenario, beside clients of volumes that have nothing on it, and of such as have.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use crate::disk::Faults;
use crate::prng::Prng;
use crate::scenario::{Act, Scenario, Step, VolumeSpec};
use crate::world::CrashPoint;

const BLOCK: u64 = 4096;
/// Largest volume of one tier, in chunks.
const LARGEST: u64 = 6;
/// Requests of each of their clients.
const REQUESTS: u64 = 25;

/// The first two volumes are on one tier each, if there is room.
pub(super) fn bind(s: &mut Scenario, p: &mut Prng) {
    let slots = |tier| s.members.iter().filter(|m| m.tier == tier).map(|m| m.slots).sum::<u64>();
    let mut chunks = |tier| p.range(1, (slots(tier) / 10).clamp(1, LARGEST));
    let of_tiers = [(chunks(Tier::Fast), Placement::FastOnly), (chunks(Tier::Slow), Placement::SlowOnly)];
    let last = s.volumes.last_mut().expect("there is always one");
    let all: u64 = of_tiers.iter().map(|v| v.0).sum();
    if last.chunks > 2 * all {
        last.chunks -= all;
        s.volumes.splice(0..0, of_tiers.map(|(chunks, placement)| VolumeSpec { chunks, placement }));
    }
}

/// In one session a disk stands still, and nothing else is wrong with any.
pub(super) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    if p.chance(700_000) {
        for session in &mut s.sessions {
            session.steps.retain(|t| crate::run::waits_for_disks_only(t.act));
        }
    }
    let bound: Vec<(usize, u64)> = s.volumes.iter().map(|v| v.chunks).enumerate().take(2).collect();
    let (session, disk) = (p.below(s.sessions.len() as u64) as usize, p.below(s.members.len() as u64) as usize);
    let session = &mut s.sessions[session];
    session.faults.fill(Faults::default());
    let most = *p.pick(&[30, 100, 300, 600]);
    let stands_ms = *p.pick(&[3_000, 20_000, 60_000, 150_000, 300_000]);
    session.faults[disk] = Faults { stands_after: 1 + p.below(most) as u32, stands_ms, ..Faults::default() };
    let client = session.steps.iter().map(|t| t.client).max().map_or(0, |c| c + 1);
    for (volume, chunks) in bound {
        session.steps.extend(client_of(volume, chunks, client + volume as u8, p));
    }
    if p.chance(700_000) {
        let whole = CrashPoint { steps: session.steps.len() as u64, events: p.below(40) };
        session.end = session.end.with_point(whole);
    }
}

/// A client that fills a volume, and goes on reading and writing for a minute or so.
fn client_of(volume: usize, chunks: u64, client: u8, p: &mut Prng) -> Vec<Step> {
    let all = Step { client, volume, act: Act::Fill, offset: 0, len: chunks.min(2 * LARGEST) * CHUNK };
    let flush = Step { act: Act::Flush, offset: 0, len: 0, ..all };
    let mut steps = vec![all, flush];
    for _ in 0..REQUESTS {
        let act = *p.pick(&[Act::Read, Act::Read, Act::Write { fua: false }, Act::Write { fua: true }, Act::Flush]);
        let len = p.range(1, 16) * BLOCK;
        let request = Step { act, offset: p.below((all.len - len) / BLOCK + 1) * BLOCK, len, ..all };
        let pause = Step { act: Act::Sleep, offset: 0, len: p.skewed(6_000_000), ..all };
        steps.extend([pause, if act == Act::Flush { flush } else { request }]);
    }
    steps
}

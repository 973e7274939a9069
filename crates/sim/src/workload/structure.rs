//! Random changes of the volumes, mixed into a random scenario: volumes come, go and change their size beside
//! everything else.

use bimetal_volume::units::{Placement, CHUNK};

use crate::prng::Prng;
use crate::scenario::{Act, Scenario, Step, MAX_VOLUMES};

const BLOCK: u64 = 4096;
/// Largest volume that is made, in chunks.
const LARGEST: u64 = 24;

/// Mostly leaves room for volumes that come later.
pub(crate) fn shrink_volumes(s: &mut Scenario, p: &mut Prng) {
    let full = p.chance(400_000);
    for v in s.volumes.iter_mut().filter(|_| !full) {
        v.chunks = p.range(v.chunks.div_ceil(3), v.chunks);
    }
}

/// Adds changes, and requests to what they make, to every session.
pub(crate) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    let mut next = s.volumes.len();
    let clients = s.sessions.iter().flat_map(|x| &x.steps).map(|t| t.client).max().unwrap_or(0) + 1;
    for session in &mut s.sessions {
        for _ in 0..p.range(1, 6) {
            let client = p.below(clients.into()) as u8;
            let at = p.below(session.steps.len() as u64 + 1) as usize;
            let new = change(&mut next, client, p);
            session.steps.splice(at..at, new);
        }
    }
}

/// A change, and what follows it.
fn change(next: &mut usize, client: u8, p: &mut Prng) -> Vec<Step> {
    let volume = p.below(*next as u64) as usize;
    let of = |volume, act| Step { client, volume, act, offset: 0, len: 0 };
    match p.below(10) {
        0..=3 if *next < MAX_VOLUMES => {
            *next += 1;
            let placement = *p.pick(&[Placement::Auto, Placement::Auto, Placement::FastOnly, Placement::SlowOnly]);
            let most = if placement == Placement::Auto { LARGEST } else { 5 };
            let mut steps = vec![of(*next - 1, Act::Make { chunks: p.skewed(most), placement, family: 0 })];
            steps.extend(use_of(*next - 1, client, p));
            steps
        }
        4..=5 => {
            let mut steps = use_of(volume, client, p);
            steps.push(of(volume, Act::Delete));
            steps
        }
        6..=8 => {
            let mut steps = Vec::new();
            if p.coin() {
                // Empty at the end, so that it can shrink; and at once larger again.
                let first = p.below(LARGEST);
                steps.push(Step { len: 400 * CHUNK, offset: first * CHUNK, ..of(volume, Act::Trim { fua: p.coin() }) });
                steps.push(of(volume, Act::Resize { chunks: first.max(1) + p.below(2) }));
            }
            steps.push(of(volume, Act::Resize { chunks: p.skewed(2 * LARGEST) }));
            steps.extend(use_of(volume, client, p));
            steps
        }
        _ => vec![of(volume, Act::Rename)],
    }
}

/// A few requests to a volume.
fn use_of(volume: usize, client: u8, p: &mut Prng) -> Vec<Step> {
    let one = |p: &mut Prng| {
        let chunk = p.below(LARGEST);
        let act = *p.pick(&[
            Act::Write { fua: false },
            Act::Write { fua: true },
            Act::Fill,
            Act::Trim { fua: false },
            Act::Read,
            Act::Flush,
        ]);
        let (offset, len) = match act {
            Act::Fill | Act::Read | Act::Trim { .. } => (chunk * CHUNK, p.range(1, 4) * CHUNK),
            Act::Flush => (0, 0),
            _ => (chunk * CHUNK + p.below(28) * BLOCK, p.range(1, 4) * BLOCK),
        };
        Step { client, volume, act, offset, len }
    };
    (0..p.below(8)).map(|_| one(p)).collect()
}

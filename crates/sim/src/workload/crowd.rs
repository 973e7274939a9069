//! Random runs in which requests wait for each other: many clients, requests of several MiB, and little that may be in flight.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::Taste;
use crate::prng::Prng;
use crate::scenario::{Act, Scenario, Step, VolumeSpec};
use crate::world::CrashPoint;

const MIB: u64 = 1 << 20;
/// Sessions in a million in which a volume is deleted that many write to.
const DELETES_PPM: u32 = 300_000;
/// Such runs in a million that have volumes made for that.
const BIND_PPM: u32 = 500_000;
/// Longest write to a volume that is deleted, in chunks.
const LONGEST: u64 = 48;
/// Clients that fill the last volume beside that, at most.
const FILLERS: u64 = 6;

/// A group that is several times as large, so that long requests find room.
pub(super) fn make_room(s: &mut Scenario, p: &mut Prng) {
    let times = p.range(1, 4);
    s.members.iter_mut().for_each(|m| m.slots *= times);
    s.volumes.iter_mut().for_each(|v| v.chunks *= times);
    // An eighth of the whole may be more than so many times an eighth of the part, rounded down.
    let last = s.volumes.last_mut().expect("there is always one");
    last.chunks = last.chunks.saturating_sub(times - 1).max(1);
    s.reserve *= times;
    if p.chance(BIND_PPM) {
        bind(s, p);
    }
}

/// Two volumes bound to the fast tier, of which one may go while a write to all of it waits until others are done.
fn bind(s: &mut Scenario, p: &mut Prng) {
    let fast: u64 = s.members.iter().filter(|m| m.tier == Tier::Fast).map(|m| m.slots).sum();
    let chunks = p.range(1, (fast / 10).max(1)).min(LONGEST);
    let last = s.volumes.last_mut().expect("there is always one");
    if last.chunks > 2 * chunks {
        last.chunks -= 2 * chunks;
        s.volumes.splice(0..0, [(); 2].map(|()| VolumeSpec { chunks, placement: Placement::FastOnly }));
        s.inflight = chunks * CHUNK + *p.pick(&[0, 64 << 10, 512 << 10]);
        s.migrate = p.coin();
    }
}

pub(super) fn widen(s: &mut Scenario, t: &mut Taste, p: &mut Prng) {
    if p.chance(700_000) {
        t.clients = p.range(6, 20);
    }
    if p.chance(600_000) {
        t.largest = *p.pick(&[MIB, 2 * MIB, 4 * MIB, 10 * MIB]);
    }
    if s.inflight == 0 && p.chance(700_000) {
        s.inflight = *p.pick(&[64 << 10, 256 << 10, MIB, 4 * MIB]);
    }
}

/// Volumes go while long writes to them wait for their turn, and others write to what is left.
pub(super) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    let bound: Vec<usize> = (0..s.volumes.len()).filter(|v| s.volumes[*v].placement != Placement::Auto).collect();
    let clients = s.sessions.iter().flat_map(|x| &x.steps).map(|t| t.client).max().unwrap_or(0) + 1;
    for session in &mut s.sessions {
        if p.chance(DELETES_PPM) {
            let gone = match bound.is_empty() || p.chance(300_000) {
                true => p.below(s.volumes.len() as u64) as usize,
                false => *p.pick(&bound),
            };
            let at = p.below(session.steps.len() as u64 / 4 + 1) as usize;
            session.steps.splice(at..at, deleted(gone, &s.volumes, clients, p));
            if p.coin() {
                // Most crashes come before all of that is done.
                let point = CrashPoint { steps: session.steps.len() as u64, events: 0 };
                session.end = session.end.with_point(point);
            }
        }
    }
}

/// The chunks of a volume, and of the last one, are new; the last one is filled again by many, and so are the others. Meanwhile
/// the volume goes, and a write to it waits.
fn deleted(gone: usize, volumes: &[VolumeSpec], clients: u8, p: &mut Prng) -> Vec<Step> {
    let any = |p: &mut Prng| p.below(clients.into()) as u8;
    let all = |client, volume: usize, act| Step { client, volume, act, offset: 0, len: volumes[volume].chunks * CHUNK };
    let (writer, other, last) = (any(p), any(p), volumes.len() - 1);
    let wait = Step { len: p.skewed(20_000), ..all(other, gone, Act::Sleep) };
    let write = all(writer, gone, Act::Write { fua: false });
    let mut steps =
        vec![all(any(p), last, Act::Trim { fua: p.coin() }), all(writer, gone, Act::Trim { fua: p.coin() })];
    steps.extend([Step { len: write.len.min(LONGEST * CHUNK), ..write }, wait, all(other, gone, Act::Delete)]);
    let part = volumes[last].chunks.div_ceil(FILLERS);
    for i in 0..FILLERS {
        steps.push(Step { offset: i * part * CHUNK, len: part * CHUNK, ..all(any(p), last, Act::Fill) });
    }
    steps.extend((0..last).map(|v| all(any(p), v, Act::Fill)));
    steps
}

//! Disks that stand still for a while: who needs nothing of them is served meanwhile, and whoever waited for them goes on when they answer
//! again.
//!
//! What needs nothing of such a disk: a read whose chunks live elsewhere; a write to chunks that live elsewhere; a flush, if no commit
//! needs the disk, which is a slow one on which nothing is to be synced: no commit waits until one has heard of a region. To be durable,
//! or to outlive the daemon, a write over data that are committed already needs its own disk only. A zeroing that is really written waits for others of its volume, and for those of all: it needs no more than a
//! write if all that its volume has is on the same tier.
//!
//! A chunk that has no place yet gets none on such a disk while there is room on another one of its tier: only the regions that are new
//! all slow ones must hear of.
//!
//! Beside a slow one that stands still the journals of fast members are kept short: else each commit that finds a full one writes all of a
//! checkpoint itself, with every flush behind it.

use std::ops::Range;
use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::options::{MemberState, MemberStatus, Status};
use bimetal_volume::units::{MemberIndex, Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use super::client::Client;
use super::forge::own_uuid;
use super::{Run, Shared, Wrong, STEP_LIMIT};
use crate::disk::SimDisk;
use crate::env::{Ended, SimEnv};
use crate::scenario::{Act, Scenario, Session};

const BLOCK: u64 = 4096;
const SECOND: u64 = 1_000_000_000;
/// What a request takes at most that needs nothing of a disk that stands still.
const BESIDE: u64 = 20 * SECOND;
/// What one takes at most beside the time that disks stand still.
const BEHIND: u64 = 300 * SECOND;

/// A disk that has left a request unanswered for so long is known to stand still.
const KNOWN: u64 = 5 * SECOND;
/// Free slots of another one that are room for a chunk, whatever else comes.
const ROOM: u64 = 16;

/// Within so many seconds after the last request fast members have had their checkpoints.
const SHORTENED: u32 = 60;

/// Room for all bytes that clients have in flight at once.
pub const PLENTY: u64 = 32 << 20;

/// A request under way in a session in which a disk stands still sooner or later.
pub(super) struct Begun {
    at: u64,
    /// What it is about.
    chunks: Range<u64>,
    /// Where that lives.
    homes: Vec<Option<MemberIndex>>,
    /// The members that stand still, where others have room.
    shunned: Vec<MemberIndex>,
    needs: Needs,
}

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// The disks that its chunks live on.
    Homes,
    /// The same, of a write that is to be durable, if all of its chunks is so before and afterwards.
    HomesSynced,
    /// These, and a commit that needs none that stands still.
    Commit,
    /// Whatever others need.
    More,
}

fn takes_more(m: &MemberStatus) -> bool {
    m.state == MemberState::InUse && m.free > ROOM
}

fn homes(v: &Volume<SimEnv>, chunks: Range<u64>) -> Vec<Option<MemberIndex>> {
    chunks.map(|c| v.members_of(c * CHUNK).next()).collect()
}

/// Whether a range holds data in each of its blocks.
fn all_is_data(v: &Volume<SimEnv>, offset: u64, len: u64) -> bool {
    v.extents(offset, len, usize::MAX).is_ok_and(|all| all.iter().all(|e| e.data))
}

/// Whether beside such a step requests wait for nothing but disks and each other.
pub fn waits_for_disks_only(act: Act) -> bool {
    !act.is_structural() && !matches!(act, Act::Dying { .. } | Act::Dissolve | Act::Check { .. })
}

/// The same of all steps of a run.
pub(super) fn is_plain(s: &Scenario) -> bool {
    has_room(s) && s.sessions.iter().flat_map(|x| &x.steps).all(|t| waits_for_disks_only(t.act))
}

/// Whether no request waits for room that those hold which hang on another disk: there is plenty, or each volume has one client, for whose
/// requests it has room of its own, however long they are. Those of the only disk wait for that anyway.
fn has_room(s: &Scenario) -> bool {
    let one_disk = s.members.iter().filter(|m| m.tier == Tier::Slow).count() == 1;
    let hangs_anyway = |volume: usize| one_disk && s.volumes[volume].placement == Placement::SlowOnly;
    let has_one_client = |x: &Session, volume: usize| {
        let mut clients = x.steps.iter().filter(|t| t.volume == volume && t.act != Act::Sleep).map(|t| t.client);
        let first = clients.next();
        clients.all(|c| Some(c) == first)
    };
    let zeroes = |x: &Session| x.steps.iter().any(|t| matches!(t.act, Act::Zeroes { .. }));
    let has_own = |x: &Session| (0..s.volumes.len()).all(|v| hangs_anyway(v) || has_one_client(x, v));
    s.inflight == 0 || s.inflight >= PLENTY || s.sessions.iter().all(|x| has_own(x) && !zeroes(x))
}

impl Shared {
    /// No commit needs a disk that stands still.
    fn commits_go_on(&self) -> bool {
        let idle = |i: usize| {
            let disk = &self.disks[i];
            self.specs[i].tier == Tier::Slow && !disk.owes_a_sync() && !disk.answers_still()
        };
        let goes_on = |i: usize| match self.disks[i].stood_still() {
            Some((_, until)) => until <= self.world.now() || idle(i),
            // It may begin to any moment.
            None => !self.disks[i].will_stand_still(),
        };
        (0..self.disks.len()).all(goes_on)
    }
}

fn journals_are_short(status: &Status) -> bool {
    let mut fast = status.members.iter().filter(|m| m.tier == Tier::Fast);
    status.latched.is_some() || fast.all(|m| m.journal_used * 2 <= m.journal_blocks)
}

impl Run<'_> {
    /// Clients have done their work, and nothing is wrong but that disks stand still.
    pub(super) fn journals_are_kept_short(&self, env: &SimEnv, group: &Group<SimEnv>) -> Result<(), Wrong> {
        let stands = |i: usize| self.disks[i].stood_still().is_some_and(|(_, until)| until > self.world.now());
        let may_stand = |i: usize| self.disks[i].will_stand_still();
        let (fast, slow): (Vec<_>, Vec<_>) =
            (0..self.disks.len()).partition(|i| self.shared.specs[*i].tier == Tier::Fast);
        if fast.into_iter().any(may_stand) || !slow.into_iter().any(stands) {
            return Ok(());
        }
        let (waiting, group) = (env.clone(), group.clone());
        let ended = env.run(STEP_LIMIT, async move {
            for _ in 0..SHORTENED {
                if journals_are_short(&group.status()) {
                    return true;
                }
                waiting.sleep(Duration::from_secs(1)).await;
            }
            false
        });
        match ended {
            Ended::Done(true) => Ok(()),
            _ => Err("a fast member gets no checkpoint beside a slow one that stands still".into()),
        }
    }
}

impl Client {
    /// A request for a range begins.
    pub(super) fn begins(&self, v: &Volume<SimEnv>, offset: u64, len: u64, needs: Needs) -> Option<Begun> {
        let shared = &self.shared;
        if !shared.disks.iter().any(|d| d.will_stand_still()) {
            return None;
        }
        let chunks = offset / CHUNK..(offset + len).div_ceil(CHUNK);
        let needs = match needs {
            Needs::Commit if !shared.commits_go_on() => Needs::More,
            _ if !shared.plain => Needs::More,
            needs => needs,
        };
        let shunned = if shared.plain { self.shunned() } else { Vec::new() };
        Some(Begun { at: shared.world.now(), homes: homes(v, chunks.clone()), chunks, shunned, needs })
    }

    /// Members that are known to stand still, and whose tier has room elsewhere.
    fn shunned(&self) -> Vec<MemberIndex> {
        let (shared, members) = (&self.shared, self.group.status().members);
        let known = |d: &SimDisk| d.waits_for().is_some_and(|at| shared.world.now() - at > KNOWN);
        let stands = |m: &MemberStatus| shared.disks.iter().any(|d| own_uuid(d) == Some(m.uuid) && known(d));
        let (still, others): (Vec<_>, Vec<_>) = members.iter().partition(|m| stands(m));
        let elsewhere = |m: &&MemberStatus| others.iter().any(|o| o.tier == m.tier && takes_more(o));
        still.into_iter().filter(elsewhere).map(|m| m.index).collect()
    }

    /// Whether a request has put new chunks on a member that stood still, though there was room elsewhere to its end.
    fn badly_placed(&self, begun: &Begun, now_there: &[Option<MemberIndex>]) -> bool {
        let members = self.group.status().members;
        let still_room =
            |tier| members.iter().any(|o| o.tier == tier && takes_more(o) && !begun.shunned.contains(&o.index));
        let placed = now_there.iter().zip(&begun.homes).filter(|(_, before)| before.is_none());
        let mut badly = placed.filter_map(|(now, _)| *now).filter(|m| begun.shunned.contains(m));
        let waits_anyway = begun.homes.iter().flatten().any(|m| begun.shunned.contains(m));
        !waits_anyway && badly.any(|m| still_room(members[m as usize].tier))
    }

    /// The same of a write: another one of the same blocks may go first, and what has no place yet gets one.
    pub(super) fn write_begins(
        &self,
        volume: usize,
        v: &Volume<SimEnv>,
        (offset, len): (u64, u64),
        durable: bool,
    ) -> Option<Begun> {
        let unit = if durable { CHUNK } else { BLOCK };
        let (from, to) = (offset / unit * unit, (offset + len).next_multiple_of(unit));
        let clashes = self.shared.busy.borrow().iter().filter(|b| b.0 == volume && b.1 < to && from < b.2).count();
        let begun = self.begins(v, offset, len, if durable { Needs::Commit } else { Needs::Homes })?;
        let is_placed = begun.homes.iter().all(Option::is_some) && clashes <= 1;
        let needs = match begun.needs {
            _ if !is_placed => Needs::More,
            // A block that holds nothing yet changes the chunk's entry.
            Needs::More if durable && self.is_committed(volume, &begun.chunks) && all_is_data(v, offset, len) => {
                Needs::HomesSynced
            }
            needs => needs,
        };
        Some(Begun { needs, ..begun })
    }

    /// Whether a volume has all on one tier.
    pub(super) fn is_bound(&self, volume: usize) -> bool {
        self.shared.table.borrow().get(volume).is_some_and(|k| k.placement != Placement::Auto)
    }

    /// Whether all of these chunks is durable, in a volume of which nothing moves.
    fn is_committed(&self, volume: usize, chunks: &Range<u64>) -> bool {
        let len = (chunks.end - chunks.start) * CHUNK;
        self.shared.plain
            && self.is_bound(volume)
            && !self.shared.oracle.borrow().is_unsure(volume, chunks.start * CHUNK, len)
    }

    /// It was answered.
    pub(super) fn ends(&self, begun: Option<Begun>, (volume, v): (usize, &Volume<SimEnv>), what: impl Fn() -> String) {
        let Some(begun) = begun else { return };
        let shared = &self.shared;
        let now = shared.world.now();
        let took = now - begun.at;
        if took <= BESIDE {
            return;
        }
        let stood = |(from, until): (u64, u64)| until.min(now).saturating_sub(from.max(begun.at));
        let still: Vec<u64> = shared.disks.iter().map(|d| d.stood_still().map_or(0, stood)).collect();
        if took - still.iter().max().copied().unwrap_or(0) > BEHIND {
            shared.fail(format!("{} took {} s, long beyond disks that stand still", what(), took / SECOND));
        }
        let now_there = homes(v, begun.chunks.clone());
        if self.badly_placed(&begun, &now_there) {
            shared.fail(format!("{} put new chunks on a disk that stood still, and took {} s", what(), took / SECOND));
        }
        let homes: Vec<MemberIndex> = now_there.into_iter().chain(begun.homes).flatten().collect();
        let members = self.group.status().members;
        let lives_on = |disk: usize| {
            let uuid = own_uuid(&shared.disks[disk]);
            // The label of a disk cannot be told while it is written.
            uuid.is_none() || members.iter().any(|m| Some(m.uuid) == uuid && homes.contains(&m.index))
        };
        let waits = (0..still.len()).filter(|i| still[*i] > 0).any(lives_on);
        let needs_more = match begun.needs {
            Needs::More => true,
            // Others may have changed them meanwhile.
            Needs::HomesSynced => !self.is_committed(volume, &begun.chunks),
            Needs::Homes | Needs::Commit => false,
        };
        if !needs_more && !waits && still.iter().any(|s| *s > BESIDE / 2) {
            shared.fail(format!("{} took {} s, and needs nothing of a disk that stood still", what(), took / SECOND));
        }
    }
}

//! From the engine's status to the API's JSON.

use bimetal_host::HostEnv;
use bimetal_volume::backend::Backend;
use bimetal_volume::group::Group;
use bimetal_volume::options::{Encrypting, FamilyStatus, MemberStatus, MoverStatus, Status, VolumeStatus, Waiting};
use bimetal_volume::units::CHUNK;

use super::shared::{Facts, Snapshot};
use crate::api;
use crate::config::uuid_text;
use crate::words;

/// Bytes of a volume that one question about fates looks at: a few milliseconds of the group's thread.
const FATES_RANGE: u64 = 16 << 30;
/// Runs that one answer holds.
const FATES_RUNS: usize = 32_768;

/// The answer to `GET /v1/volumes/NAME/fates/FROM`.
pub(crate) fn fates(group: &Group<HostEnv>, name: &str, from: u64) -> Option<api::Fates> {
    let volume = group.volume(name)?;
    let size = volume.size();
    let runs = volume.fates(from, size.checked_sub(from)?.min(FATES_RANGE), FATES_RUNS).ok()?;
    let until = runs.last().map_or(from, |r| r.offset + r.len);
    let runs = runs.into_iter().map(api::FateRun::from).collect();
    Some(api::Fates { schema: api::SCHEMA, volume: name.into(), size_bytes: size, until_bytes: until, runs })
}

/// The answer to `GET /v1/status`.
pub(crate) fn status(facts: &Facts, snapshot: &Snapshot, attachments: Vec<api::Attachment>) -> api::Status {
    let s = &snapshot.status;
    api::Status {
        schema: api::SCHEMA,
        group: s.name.clone(),
        uuid: uuid_text(&s.uuid),
        state: "serving".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        process_began: bimetal_host::attach::began(std::process::id()),
        uptime_seconds: facts.since.elapsed().as_secs(),
        read_only: s.read_only,
        latched: s.latched.clone(),
        summary: words::summary(s, &facts.locators(), &snapshot.recent),
        generation: s.generation,
        commits: s.commits,
        pending_changes: s.pending,
        reserve_bytes: s.reserve,
        keep_free_bytes: s.keep_free,
        room_at_once_bytes: s.room_at_once,
        fast_free_bytes: s.fast_free,
        members: s.members.iter().map(|m| member_row(&facts.locators(), m)).collect(),
        volumes: s.volumes.iter().map(|v| volume_row(facts.sector_bytes, s, v)).collect(),
        families: families(s),
        deleting: s.deleting.iter().map(|v| volume_row(facts.sector_bytes, s, v)).collect(),
        mover: mover(&s.mover),
        recent_moves: snapshot.recent.clone(),
        recovery: s.recovery.clone(),
        exports: snapshot.exports.clone(),
        clients: snapshot.clients.clone(),
        files: snapshot.files.clone(),
        attachments,
        dissolving: snapshot.dissolving.clone(),
        last_check: snapshot.last_check.clone(),
        stop_waits_for: Vec::new(),
    }
}

/// A member as the API shows it; `locators` by UUID.
pub(crate) fn member_row(locators: &[(String, String)], m: &MemberStatus) -> api::Member {
    let uuid = uuid_text(&m.uuid);
    api::Member {
        index: m.index,
        tier: m.tier.to_string(),
        locator: locators.iter().find(|(u, _)| *u == uuid).map(|(_, l)| l.clone()),
        uuid,
        present: m.present,
        state: words::member_state(m).into(),
        size_bytes: m.size,
        slots: m.slots,
        free_slots: m.free,
        leaving_slots: m.leaving,
        quarantined_slots: m.quarantined,
        journal_used_blocks: m.journal_used,
        journal_blocks: m.journal_blocks,
        map_pages: m.map_pages,
        reads: m.reads,
        read_bytes: m.read_bytes,
        writes: m.writes,
        written_bytes: m.write_bytes,
        syncs: m.syncs,
        discarded_bytes: m.discard_bytes,
        errors: m.errors,
        unanswered: m.unanswered,
        unanswered_seconds: m.unanswered_for.as_secs(),
        lost: m.lost.clone(),
    }
}

/// A volume as the API shows it.
pub(crate) fn volume_row(sector_bytes: u32, s: &Status, v: &VolumeStatus) -> api::Volume {
    api::Volume {
        name: v.name.clone(),
        uuid: uuid_text(&v.uuid),
        size_bytes: v.size,
        sector_bytes,
        placement: v.placement.to_string(),
        fast_bytes: v.fast_chunks * CHUNK,
        slow_bytes: v.slow_chunks * CHUNK,
        family: v.family.clone(),
        locked: v.locked,
        encrypting: v.encrypting.map(|e| encrypting(s, v, e)),
    }
}

/// How far the encryption of a volume is. First its chunks are encrypted, then all slots of the group are gone through.
fn encrypting(s: &Status, v: &VolumeStatus, e: Encrypting) -> api::Encrypting {
    let slots: u64 = s.members.iter().filter(|m| m.present).map(|m| m.slots).sum();
    let chunks = v.fast_chunks + v.slow_chunks;
    let slots_left = if e.slots_to_wipe > 0 { e.slots_to_wipe } else { slots };
    let (all, left) = (chunks + slots, e.plain_chunks + slots_left);
    api::Encrypting {
        plain_bytes: e.plain_chunks * CHUNK,
        to_overwrite_bytes: e.slots_to_wipe * CHUNK,
        done_percent: all.saturating_sub(left) * 100 / all.max(1),
        waits_for: e.waits_for.map(|why| match why {
            Waiting::Locked => "locked".into(),
            Waiting::Failing => "failing".into(),
        }),
    }
}

/// The families as the API shows them.
pub(crate) fn families(s: &Status) -> Vec<api::Family> {
    let volumes = |name: &str| {
        let own = s.volumes.iter().filter(|v| v.family.as_deref() == Some(name));
        own.map(|v| v.name.clone()).collect()
    };
    let row = |f: &FamilyStatus| api::Family {
        volumes: volumes(&f.name),
        name: f.name.clone(),
        uuid: uuid_text(&f.uuid),
        unlocked: f.unlocked,
        header_bytes: f.header,
    };
    s.families.iter().map(row).collect()
}

fn mover(m: &MoverStatus) -> api::Mover {
    api::Mover {
        promoted_chunks: m.promoted,
        demoted_chunks: m.demoted,
        demoted_uncopied_chunks: m.demoted_uncopied,
        let_go_chunks: m.let_go,
        written_anew_chunks: m.written_anew,
        kept_chunks: m.kept,
        cancelled_chunks: m.cancelled,
        failed_chunks: m.failed,
        in_flight_chunks: m.in_flight,
        candidate_chunks: m.candidates,
        doing: m.doing.clone(),
        why: m.why.clone(),
    }
}

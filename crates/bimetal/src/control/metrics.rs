//! Metrics in Prometheus' text format.

use std::fmt::Write;

use bimetal_volume::options::{VolumeStatus, Waiting};
use bimetal_volume::units::CHUNK;

use crate::daemon::Snapshot;

struct Text {
    out: String,
    group: String,
}

impl Text {
    /// One metric with its samples; each sample has extra labels such as `member="0"`.
    fn metric(&mut self, name: &str, kind: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        // Writing to a String cannot fail.
        let _ = write!(self.out, "# HELP bimetal_{name} {help}\n# TYPE bimetal_{name} {kind}\n");
        for (labels, value) in samples {
            let comma = if labels.is_empty() { "" } else { "," };
            let _ = writeln!(self.out, "bimetal_{name}{{group=\"{}\"{comma}{labels}}} {value}", self.group);
        }
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.metric(name, kind, help, [(String::new(), value)]);
    }
}

/// The whole page.
pub(crate) fn text(snapshot: &Snapshot) -> String {
    let s = &snapshot.status;
    let mut t = Text { out: String::new(), group: s.name.clone() };
    t.one("up", "gauge", "1 while writes are accepted, 0 when refused.", u64::from(!s.read_only));
    t.one("latched", "gauge", "1 after an error that made the group refuse writes.", s.latched.is_some().into());
    t.one("generation", "counter", "Number of the newest durable commit.", s.generation);
    t.one("commits_total", "counter", "Commits made.", s.commits);
    t.one("pending_changes", "gauge", "Changes of the map that wait for a commit.", s.pending);
    t.one("reserve_bytes", "gauge", "Fast space for new data.", s.reserve);
    t.one("keep_free_bytes", "gauge", "Fast space of it to be kept free.", s.keep_free);
    t.one("room_at_once_bytes", "gauge", "Fast space of the rest that is to be had at once.", s.room_at_once);
    t.one("fast_free_bytes", "gauge", "Fast space that is free.", s.fast_free);
    t.one("promoted_bytes_total", "counter", "Moved to the fast tier.", s.mover.promoted * CHUNK);
    t.one("demoted_bytes_total", "counter", "Moved to the slow tier.", s.mover.demoted * CHUNK);
    let uncopied = s.mover.demoted_uncopied * CHUNK;
    t.one("let_go_bytes_total", "counter", "Sent there to make room for new data.", s.mover.let_go * CHUNK);
    t.one("demoted_uncopied_bytes_total", "counter", "Moved to a kept place, without copying.", uncopied);
    let anew = s.mover.written_anew * CHUNK;
    t.one("written_anew_bytes_total", "counter", "Came to the fast tier because a client wrote all of it.", anew);
    t.one("kept_bytes", "gauge", "On the fast tier, with the place on the slow tier kept.", s.mover.kept * CHUNK);
    t.one("moves_cancelled_total", "counter", "Moves given up because a write came.", s.mover.cancelled);
    t.one("moves_failed_total", "counter", "Moves that failed on a device error.", s.mover.failed);
    t.one("moves_in_flight", "gauge", "Chunks being moved.", s.mover.in_flight);
    t.one("promotion_candidates", "gauge", "Chunks that wait to be promoted.", s.mover.candidates);
    t.one("nbd_clients", "gauge", "Connected NBD clients.", snapshot.clients.len() as u64);
    let files = snapshot.files.as_ref();
    t.one("files_mounted", "gauge", "1 while the volumes are files in a FUSE mount.", files.is_some().into());
    t.one("file_requests_total", "counter", "FUSE requests answered in this mount.", files.map_or(0, |f| f.requests));
    if let Some(check) = &snapshot.last_check {
        let left = check.problems.saturating_sub(check.mended);
        t.one(
            "check_age_seconds",
            "gauge",
            "Since the last check of what members hold beside data.",
            check.seconds_ago,
        );
        t.one("check_problems", "gauge", "What it found damaged and could not write anew.", left);
        t.one("check_mended", "gauge", "What it found damaged and wrote anew.", check.mended);
    }
    members(&mut t, snapshot);
    let volume = |name: &str, extra: &str| format!("volume=\"{name}\"{extra}");
    let v = &s.volumes;
    t.metric("volume_size_bytes", "gauge", "Size.", v.iter().map(|v| (volume(&v.name, ""), v.size)));
    let tiers = v.iter().flat_map(|v| {
        [
            (volume(&v.name, ",tier=\"fast\""), v.fast_chunks * CHUNK),
            (volume(&v.name, ",tier=\"slow\""), v.slow_chunks * CHUNK),
        ]
    });
    t.metric("volume_stored_bytes", "gauge", "Where its data lies.", tiers);
    families(&mut t, snapshot);
    t.out
}

fn families(t: &mut Text, snapshot: &Snapshot) {
    let s = &snapshot.status;
    let unlocked = s.families.iter().map(|f| (format!("family=\"{}\"", f.name), u64::from(f.unlocked)));
    t.metric("family_unlocked", "gauge", "1 while the key of the family is in memory.", unlocked);
    let of = |v: &VolumeStatus| format!("volume=\"{}\"", v.name);
    let encrypted = s.volumes.iter().filter(|v| v.family.is_some());
    let locked = encrypted.map(|v| (of(v), u64::from(v.locked)));
    t.metric("volume_locked", "gauge", "1 while the volume waits for a passphrase.", locked);
    let encrypting = || s.volumes.iter().filter_map(|v| v.encrypting.map(|e| (v, e)));
    let failing = encrypting().map(|(v, e)| (of(v), u64::from(e.waits_for == Some(Waiting::Failing))));
    t.metric("volume_encrypting_failing", "gauge", "1 if something of it cannot be encrypted or overwritten.", failing);
    let left = encrypting().map(|(v, e)| (of(v), e.plain_chunks));
    t.metric("volume_encrypting_chunks_left", "gauge", "Chunks that are plaintext yet.", left);
    let left = encrypting().map(|(v, e)| (of(v), e.slots_to_wipe));
    t.metric("volume_encrypting_slots_left", "gauge", "Slots that may hold old plaintext of it.", left);
}

fn members(t: &mut Text, snapshot: &Snapshot) {
    type Field = fn(&bimetal_volume::options::MemberStatus) -> u64;
    let fields: [(&str, &str, &str, Field); 14] = [
        ("member_present", "gauge", "1 if the member is there.", |m| m.present.into()),
        ("member_slot_bytes", "gauge", "Space for data.", |m| m.slots * CHUNK),
        ("member_free_bytes", "gauge", "Free space for data.", |m| m.free * CHUNK),
        ("member_quarantined_bytes", "gauge", "Set aside after failed writes.", |m| m.quarantined * CHUNK),
        ("member_reads_total", "counter", "Read requests.", |m| m.reads),
        ("member_read_bytes_total", "counter", "Bytes read.", |m| m.read_bytes),
        ("member_writes_total", "counter", "Write requests, metadata included.", |m| m.writes),
        ("member_written_bytes_total", "counter", "Bytes written, metadata included.", |m| m.write_bytes),
        ("member_syncs_total", "counter", "Syncs.", |m| m.syncs),
        ("member_discarded_bytes_total", "counter", "Bytes discarded.", |m| m.discard_bytes),
        ("member_errors_total", "counter", "Failed requests.", |m| m.errors),
        ("member_unanswered_requests", "gauge", "Requests that it has not answered yet.", |m| m.unanswered),
        ("member_unanswered_seconds", "gauge", "How long the oldest of them has waited.", |m| {
            m.unanswered_for.as_secs()
        }),
        ("member_connection_lost", "gauge", "1 if all requests fail until the group is started anew.", |m| {
            m.lost.is_some().into()
        }),
    ];
    for (name, kind, help, field) in fields {
        let samples = snapshot.status.members.iter();
        t.metric(name, kind, help, samples.map(|m| (format!("member=\"{}\",tier=\"{}\"", m.index, m.tier), field(m))));
    }
}

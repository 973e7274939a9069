//! `status` in plain words: what tiering is doing and why, what waits, what needs a person.

use std::time::Duration;

use bimetal_volume::options::{Encrypting, FamilyStatus, MemberState, MemberStatus, Status, VolumeStatus, Waiting};
use bimetal_volume::units::{Tier, CHUNK};

use crate::api::{RecentMoves, LEAVING};
use crate::size::approx;
use crate::uuid::uuid_text;

/// A request may take so long without a word: a disk that spins up, or tries to read a bad place.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

/// Where members were found, by UUID.
pub(crate) type Places = [(String, String)];

/// The sentences, most urgent first.
pub(crate) fn summary(s: &Status, places: &Places, recent: &[RecentMoves]) -> Vec<String> {
    let mut out = troubles(s, places);
    out.extend(leaving(s));
    out.extend(locked(s));
    out.extend(encrypting(s));
    out.push(occupation(s));
    out.push(reserve(s));
    if s.latched.is_some() {
        // What the mover last planned, and what waits for a commit, is without meaning by now.
        out.push("Nothing is moved while writes are refused.".to_string());
    } else {
        out.extend(plans(s));
    }
    out.push(kept(s));
    out.push(moved(recent));
    out.retain(|line| !line.is_empty());
    out
}

/// What the mover is about to do, and what waits for a commit.
fn plans(s: &Status) -> Vec<String> {
    let mut out = Vec::new();
    if !s.mover.doing.is_empty() {
        out.push(match s.mover.why.as_str() {
            "" => sentence(&s.mover.doing),
            why => sentence(&format!("{}: {why}", s.mover.doing)),
        });
    }
    if s.mover.candidates > 0 {
        let size = approx(s.mover.candidates * CHUNK);
        out.push(format!("{size} on the slow tier wait to be promoted."));
    }
    if s.pending > 0 {
        let changes = counted(s.pending, "change", "changes");
        out.push(format!("{changes} of the map wait for the next commit, at most a few seconds."));
    }
    out
}

/// How far members are that leave.
fn leaving(s: &Status) -> Vec<String> {
    let all = s.members.iter().filter(|m| m.state == MemberState::Leaving && m.present);
    let line = |m: &MemberStatus| match m.slots.saturating_sub(m.free + m.quarantined) * CHUNK {
        0 => format!(
            "The {} member {} is leaving, and empty: `bimetal member remove {} {}` takes it out.",
            m.tier, m.index, s.name, m.index
        ),
        used => format!("The {} member {} is leaving: {} are still on it.", m.tier, m.index, approx(used)),
    };
    all.map(line).collect()
}

/// What cannot be read or written until somebody types a passphrase.
fn locked(s: &Status) -> Vec<String> {
    let line = |f: &FamilyStatus| {
        let own: Vec<&str> =
            s.volumes.iter().filter(|v| v.family.as_ref() == Some(&f.name)).map(|v| v.name.as_str()).collect();
        // One without volumes keeps nobody waiting.
        let what = (!own.is_empty()).then(|| own.join(", "))?;
        let name = &f.name;
        Some(format!(
            "Family '{name}' is locked, and its volumes ({what}) cannot be read or written: `bimetal family unlock \
             {}/{name}`.",
            s.name
        ))
    };
    s.families.iter().filter(|f| !f.unlocked).filter_map(line).collect()
}

/// How far volumes are that are being encrypted.
fn encrypting(s: &Status) -> Vec<String> {
    let line = |v: &VolumeStatus, e: &Encrypting| {
        let what = format!("Volume '{}' is being encrypted", v.name);
        match (e.waits_for, e.plain_chunks, e.slots_to_wipe) {
            (Some(Waiting::Locked), ..) => {
                format!("{what}, which waits until its family is unlocked: members may hold plaintext of it.")
            }
            (_, 0, 0) => format!("{what}."),
            (_, 0, slots) => format!(
                "{what}: its data is; {} of the members may still hold old plaintext of it, and are being overwritten.",
                approx(slots * CHUNK)
            ),
            (_, chunks, _) => format!("{what}: {} of its data are still plain.", approx(chunks * CHUNK)),
        }
    };
    s.volumes.iter().filter_map(|v| v.encrypting.as_ref().map(|e| line(v, e))).collect()
}

/// What a member is in its group.
pub(crate) fn member_state(m: &MemberStatus) -> &'static str {
    match (m.present, m.state) {
        (false, _) => "missing",
        (true, MemberState::InUse) if m.lost.is_some() => "connection lost",
        (true, MemberState::InUse) => "in use",
        (true, MemberState::Joining) => "being added",
        (true, MemberState::Leaving) => LEAVING,
    }
}

/// "1 page", "2 pages".
pub(crate) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Seconds for people.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// "slow member 1 (nbd://host/disk)".
pub(crate) fn member_name(m: &MemberStatus, places: &Places) -> String {
    let uuid = uuid_text(&m.uuid);
    let place = places.iter().find(|(u, _)| *u == uuid).map(|(_, place)| format!(" ({place})"));
    format!("{} member {}{}", m.tier, m.index, place.unwrap_or_default())
}

/// That the connection to a member is lost, if it is.
pub(crate) fn lost(m: &MemberStatus, places: &Places) -> Option<String> {
    let why = m.lost.as_ref()?;
    Some(format!(
        "The connection to {} is lost: {why}. Its requests fail; stop and start the group once the server is back.",
        member_name(m, places)
    ))
}

/// That a member does not answer, if that has lasted for a while.
pub(crate) fn silent(m: &MemberStatus, places: &Places) -> Option<String> {
    if m.unanswered_for < SILENCE {
        return None;
    }
    let (name, seconds) = (member_name(m, places), m.unanswered_for.as_secs());
    let waiting = counted(m.unanswered, "request waits", "requests wait");
    Some(match m.silent_for < SILENCE {
        false => sentence(&format!("{name} has not answered for {} s; {waiting}", m.silent_for.as_secs())),
        true => sentence(&format!("{name} has left a request unanswered for {seconds} s; {waiting}")),
    })
}

/// What is wrong with a member.
fn member_troubles(m: &MemberStatus, places: &Places) -> Vec<String> {
    let mut out: Vec<String> = lost(m, places).into_iter().chain(silent(m, places)).collect();
    if !m.present {
        out.push(format!("The {} member {} is missing: what lies only there cannot be read.", m.tier, m.index));
    }
    // Those of one that is lost say nothing that is not said.
    if m.errors > 0 && m.lost.is_none() {
        out.push(format!(
            "The {} member {} has failed {}: look at the kernel log (dmesg), or at the server of a member behind NBD.",
            m.tier,
            m.index,
            counted(m.errors, "request", "requests")
        ));
    }
    if m.quarantined > 0 {
        let size = approx(m.quarantined * CHUNK);
        out.push(format!("{size} of the {} member {} are set aside after failed writes.", m.tier, m.index));
    }
    out
}

/// What is wrong, if anything.
pub(crate) fn troubles(s: &Status, places: &Places) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(why) = &s.latched {
        // The engine's reason says what to do, too.
        out.push(format!("WRITES ARE REFUSED since an error: {why}. What was flushed is still on the members."));
    } else if s.read_only {
        out.push("The group is open read-only.".to_string());
    }
    out.extend(s.members.iter().flat_map(|m| member_troubles(m, places)));
    let failing = |v: &&VolumeStatus| v.encrypting.is_some_and(|e| e.waits_for == Some(Waiting::Failing));
    for v in s.volumes.iter().filter(failing) {
        out.push(format!(
            "Volume '{}' cannot be encrypted to the end: something could not be read, written or overwritten. It is tried \
             again, at the next start at the latest, and members may hold plaintext of it meanwhile. 128 KiB with a sector \
             that cannot be read take no writes until it is trimmed (delete the file, and fstrim).",
            v.name
        ));
    }
    // Nothing is tried again while a member is lost.
    if s.mover.failed > 0 && s.members.iter().all(|m| m.lost.is_none()) {
        let moves = counted(s.mover.failed, "move", "moves");
        out.push(format!("{moves} failed on device errors and will be tried again later."));
    }
    out
}

/// Used bytes of a tier, and all.
pub(crate) fn used_of(s: &Status, tier: Tier) -> (u64, u64) {
    // What a missing member holds is not known.
    let of_tier = || s.members.iter().filter(|m| m.tier == tier && m.present);
    let all: u64 = of_tier().map(|m| m.slots).sum();
    let free: u64 = of_tier().map(|m| m.free).sum();
    // A kept place is given up when its room is wanted.
    let kept = if tier == Tier::Slow { s.mover.kept } else { 0 };
    (all.saturating_sub(free + kept) * CHUNK, all * CHUNK)
}

fn occupation(s: &Status) -> String {
    let (fast, fast_all) = used_of(s, Tier::Fast);
    let (slow, slow_all) = used_of(s, Tier::Slow);
    format!(
        "{} of {} used on the fast tier, {} of {} on the slow tier.",
        approx(fast),
        approx(fast_all),
        approx(slow),
        approx(slow_all)
    )
}

fn reserve(s: &Status) -> String {
    let (free, reserve, target) = (approx(s.fast_free), approx(s.reserve), approx(s.keep_free));
    let rest = s.reserve.saturating_sub(s.keep_free);
    // What is free beyond what has to be is in use by nobody.
    let in_use = s.reserve.saturating_sub(s.fast_free.max(s.keep_free)).saturating_sub(s.room_at_once);
    if s.fast_free >= s.keep_free {
        let at_once = match s.room_at_once.min(rest) {
            0 => String::new(),
            n => {
                format!(", and {} of cold data make room at once, because the slow tier has a copy of them", approx(n))
            }
        };
        let lent = match in_use {
            0 => String::new(),
            n => format!(", of which {} are in use meanwhile: few new data have come of late", approx(n)),
        };
        format!("{free} of fast space are free for new writes{at_once} (reserve {reserve}{lent}).")
    } else {
        let (used, _) = used_of(s, Tier::Slow);
        let slow_full = used_of(s, Tier::Slow).1 == used;
        let next = if s.latched.is_some() {
            "it cannot be restored now"
        } else if s.read_only {
            "nothing is moved in a group that is open read-only"
        } else if slow_full {
            "the slow tier is full, so it cannot be restored"
        } else {
            "cold data will be demoted to restore it"
        };
        let whole = if rest == 0 { "the reserve of " } else { "what should be free of the reserve, " };
        format!("{free} of fast space are free, less than {whole}{target}: {next}.")
    }
}

fn kept(s: &Status) -> String {
    if s.mover.kept == 0 {
        return String::new();
    }
    let bytes = approx(s.mover.kept * CHUNK);
    format!(
        "{bytes} on the fast tier still have their old place on the slow tier, and would go back without being copied."
    )
}

fn moved(recent: &[RecentMoves]) -> String {
    let promoted: u64 = recent.iter().map(|r| r.promoted_bytes).sum();
    let demoted: u64 = recent.iter().map(|r| r.demoted_bytes).sum();
    if promoted + demoted == 0 {
        return String::new();
    }
    format!("Moved within ten minutes: {} to the fast tier, {} to the slow tier.", approx(promoted), approx(demoted))
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    let text: String = first.to_uppercase().chain(chars).collect();
    if text.ends_with('.') {
        text
    } else {
        text + "."
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bimetal_volume::options::{MemberStatus, MoverStatus};

    fn member(index: u8, tier: Tier, slots: u64, free: u64) -> MemberStatus {
        MemberStatus {
            index,
            uuid: [index; 16],
            tier,
            present: true,
            state: MemberState::InUse,
            size: slots * CHUNK,
            slots,
            free,
            leaving: 0,
            quarantined: 0,
            journal_used: 0,
            journal_blocks: 8,
            map_pages: 1,
            reads: 0,
            read_bytes: 0,
            writes: 0,
            write_bytes: 0,
            syncs: 0,
            discard_bytes: 0,
            errors: 0,
            unanswered: 0,
            unanswered_for: Duration::ZERO,
            silent_for: Duration::ZERO,
            lost: None,
        }
    }

    /// A healthy group at rest.
    pub(crate) fn status() -> Status {
        Status {
            name: "tank".into(),
            uuid: [1; 16],
            read_only: false,
            latched: None,
            generation: 7,
            commits: 3,
            pending: 0,
            reserve: 16 * CHUNK,
            keep_free: 16 * CHUNK,
            room_at_once: 0,
            fast_free: 20 * CHUNK,
            members: vec![member(0, Tier::Fast, 80, 20), member(1, Tier::Slow, 800, 700)],
            volumes: Vec::new(),
            families: Vec::new(),
            deleting: Vec::new(),
            mover: MoverStatus { doing: "idle".into(), why: "nothing to move".into(), ..MoverStatus::default() },
            recovery: Vec::new(),
        }
    }

    #[test]
    fn a_healthy_group_says_what_it_does() {
        let lines = summary(&status(), &[], &[]);
        assert_eq!(
            lines,
            [
                "7.50 MiB of 10 MiB used on the fast tier, 12.5 MiB of 100 MiB on the slow tier.",
                "2.50 MiB of fast space are free for new writes (reserve 2 MiB).",
                "Idle: nothing to move.",
            ]
        );
        assert!(troubles(&status(), &[]).is_empty());
    }

    /// A group with a family of one volume, half encrypted.
    fn with_family() -> Status {
        let mut s = status();
        s.families.push(FamilyStatus { name: "private".into(), uuid: [2; 16], unlocked: true, header: 163_840 });
        s.volumes.push(VolumeStatus {
            name: "home".into(),
            uuid: [3; 16],
            size: 100 * CHUNK,
            placement: bimetal_volume::units::Placement::Auto,
            fast_chunks: 20,
            slow_chunks: 10,
            family: Some("private".into()),
            locked: false,
            encrypting: Some(Encrypting { plain_chunks: 8, slots_to_wipe: 0, waits_for: None }),
        });
        s
    }

    #[test]
    fn families_that_are_locked_say_what_opens_them() {
        let mut s = with_family();
        assert!(!summary(&s, &[], &[]).join("\n").contains("locked"));
        (s.families[0].unlocked, s.volumes[0].encrypting) = (false, None);
        let text = summary(&s, &[], &[]).join("\n");
        assert!(text.contains("Family 'private' is locked") && text.contains("(home)"), "{text}");
        assert!(text.contains("`bimetal family unlock tank/private`"), "{text}");
        s.volumes.clear();
        assert!(!summary(&s, &[], &[]).join("\n").contains("locked"), "nobody waits for it");
    }

    #[test]
    fn encryption_says_how_far_it_is_and_why_it_waits() {
        let mut s = with_family();
        let says = |s: &Status, words: &str| {
            let text = summary(s, &[], &[]).join("\n");
            assert!(text.contains(words), "{text}");
        };
        says(&s, "1 MiB of its data are still plain");
        s.volumes[0].encrypting = Some(Encrypting { plain_chunks: 0, slots_to_wipe: 80, waits_for: None });
        says(&s, "10 MiB of the members may still hold old plaintext");
        s.volumes[0].encrypting = Some(Encrypting { waits_for: Some(Waiting::Locked), ..Encrypting::default() });
        says(&s, "waits until its family is unlocked");
        assert!(troubles(&s, &[]).is_empty(), "that is no trouble");
        s.volumes[0].encrypting = Some(Encrypting { waits_for: Some(Waiting::Failing), ..Encrypting::default() });
        assert!(troubles(&s, &[])[0].contains("cannot be encrypted to the end"), "{:?}", troubles(&s, &[]));
    }

    #[test]
    fn trouble_comes_first() {
        let mut s = status();
        s.latched = Some("the sync of member 1 failed".into());
        s.members[1].errors = 2;
        let lines = summary(&s, &[], &[]);
        assert!(lines[0].contains("REFUSED") && lines[0].contains("the sync of member 1 failed"), "{}", lines[0]);
        assert!(lines[1].contains("2 requests"), "{}", lines[1]);
    }

    /// Where the members of [`status`] are.
    pub(crate) fn places() -> Vec<(String, String)> {
        vec![(uuid_text(&[1; 16]), "nbd://far/disk".into())]
    }

    #[test]
    fn a_member_that_does_not_answer_is_named_after_ten_seconds() {
        let mut s = status();
        let m = &mut s.members[1];
        (m.unanswered, m.unanswered_for, m.silent_for) = (3, Duration::from_millis(9999), Duration::from_millis(9999));
        assert!(troubles(&s, &places()).is_empty());
        let m = &mut s.members[1];
        (m.unanswered_for, m.silent_for) = (Duration::from_secs(43), Duration::from_secs(42));
        let words = "Slow member 1 (nbd://far/disk) has not answered for 42 s; 3 requests wait.";
        assert_eq!(troubles(&s, &places()), [words]);
        // Others were answered a moment ago.
        (s.members[1].unanswered, s.members[1].silent_for) = (1, Duration::from_secs(1));
        let words = "Slow member 1 has left a request unanswered for 43 s; 1 request waits.";
        assert_eq!(troubles(&s, &[]), [words]);
    }

    #[test]
    fn a_lost_connection_says_why_and_what_to_do() {
        let mut s = status();
        s.members[1].lost = Some("the server closed the connection".into());
        (s.members[1].errors, s.mover.failed) = (9, 4);
        let all = troubles(&s, &places());
        let words =
            "The connection to slow member 1 (nbd://far/disk) is lost: the server closed the connection. Its requests \
                     fail; stop and start the group once the server is back.";
        assert_eq!(all, [words], "the rest follows from it");
        assert_eq!(member_state(&s.members[1]), "connection lost");
        s.members[1].state = MemberState::Leaving;
        assert_eq!(member_state(&s.members[1]), LEAVING);
    }

    #[test]
    fn a_latched_group_promises_no_moves() {
        let mut s = status();
        (s.latched, s.fast_free, s.mover.candidates) = (Some("a sync of member 1 failed".into()), 0, 5);
        let text = summary(&s, &[], &[]).join("\n");
        assert!(text.contains("Nothing is moved") && text.contains("cannot be restored now"), "{text}");
        assert!(!text.contains("wait to be promoted") && !text.contains("nothing to move"), "{text}");
    }

    #[test]
    fn a_short_reserve_says_what_happens_next() {
        let mut s = status();
        s.fast_free = 0;
        s.members[0].free = 0;
        assert!(summary(&s, &[], &[]).iter().any(|l| l.contains("less than the reserve")));
        s.keep_free = 4 * CHUNK;
        assert!(summary(&s, &[], &[])
            .iter()
            .any(|l| l.contains("less than what should be free of the reserve, 512 KiB")));
    }

    #[test]
    fn what_makes_room_at_once_is_told_apart_from_what_is_free() {
        let mut s = status();
        assert!(summary(&s, &[], &[])
            .iter()
            .any(|l| l.contains("2.50 MiB of fast space are free for new writes (reserve 2 MiB)")));
        (s.keep_free, s.room_at_once) = (4 * CHUNK, 12 * CHUNK);
        let lines = summary(&s, &[], &[]);
        assert!(lines.iter().any(|l| l.contains("and 1.50 MiB of cold data make room at once")), "{lines:?}");
        assert!(lines.iter().any(|l| l.contains("(reserve 2 MiB)")), "{lines:?}");
        // Little has to be free, and more is.
        (s.keep_free, s.room_at_once) = (2 * CHUNK, 0);
        let lines = summary(&s, &[], &[]);
        assert!(
            lines.iter().any(|l| l.contains("2.50 MiB of fast space are free for new writes (reserve 2 MiB).")),
            "{lines:?}"
        );
        s.fast_free = 4 * CHUNK;
        let lines = summary(&s, &[], &[]);
        assert!(lines.iter().any(|l| l.contains("512 KiB of fast space are free for new writes (reserve 2 MiB, of which 1.50 MiB are in use meanwhile: few new")), "{lines:?}");
    }
}

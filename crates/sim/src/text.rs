//! Scenarios as text: one line per fact, so that a failing run can be read, changed by hand and replayed.

use std::fmt::Write as _;
use std::str::SplitWhitespace;

use bimetal_volume::units::{Placement, Tier};

use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{
    Act, Asked, Damage, End, MemberSpec, Scenario, Session, Speed, Step, VolumeSpec, MAX_FAMILIES, MAX_VOLUMES,
};
use crate::world::CrashPoint;

/// First line of a file.
const HEAD: &str = "bimetal scenario 1";

/// Why a text is no scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// Line, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

fn flag(on: bool, name: &str) -> String {
    if on {
        format!(" {name}")
    } else {
        String::new()
    }
}

fn act_text(act: Act) -> String {
    match act {
        Act::Read => "read".into(),
        Act::Write { fua } => format!("write{}", flag(fua, "fua")),
        Act::Trim { fua } => format!("trim{}", flag(fua, "fua")),
        Act::Zeroes { fua, no_hole, given_up } => {
            format!("zeroes{}{}{}", flag(fua, "fua"), flag(no_hole, "no-hole"), flag(given_up, "given-up"))
        }
        Act::Dying { change, after } => {
            let name = Asked::ALL.iter().find(|a| a.0 == change).map_or("", |a| a.1);
            format!("{name} after={after}")
        }
        Act::Flush => "flush".into(),
        Act::Cache => "cache".into(),
        Act::Sleep => "sleep".into(),
        Act::Heat { times } => format!("heat times={times}"),
        Act::Fill => "fill".into(),
        Act::Make { chunks, placement, family } => format!("make {placement} chunks={chunks} family={family}"),
        Act::MakeFamily { family } => format!("make-family family={family}"),
        Act::DropFamily { family } => format!("drop-family family={family}"),
        Act::NewHeader { family } => format!("new-header family={family}"),
        Act::Relock { family } => format!("relock family={family}"),
        Act::Encrypt { family } => format!("encrypt family={family}"),
        Act::Delete => "delete".into(),
        Act::Resize { chunks } => format!("resize chunks={chunks}"),
        Act::Rename => "rename".into(),
        Act::Dissolve => "dissolve".into(),
        Act::Copy => "copy-members".into(),
        Act::Rot { disk } => format!("rot disk={disk}"),
        Act::RotLabel { disk } => format!("rot-label disk={disk}"),
        Act::RotMap { disk } => format!("rot-map disk={disk}"),
        Act::RotKeys { disk, family } => format!("rot-keys disk={disk} family={family}"),
        Act::Check { mend } => format!("check{}", flag(mend, "mend")),
        Act::AddMember { disk } => format!("add-member disk={disk}"),
        Act::Evacuate { disk } => format!("evacuate disk={disk}"),
        Act::Keep { disk } => format!("keep-member disk={disk}"),
        Act::Remove { disk } => format!("remove-member disk={disk}"),
    }
}

/// A step as text.
pub fn step_text(s: &Step) -> String {
    let act = act_text(s.act);
    let (verb, flags) = act.split_once(' ').unwrap_or((&act, ""));
    let line = format!("client {} volume {} {verb} {} {} {flags}", s.client, s.volume, s.offset, s.len);
    line.trim_end().to_string()
}

/// A scenario as text.
pub fn print(s: &Scenario) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{HEAD}\nseed {}", s.seed);
    let _ = writeln!(
        out,
        "group sector={} journal={} records={} tear={} reserve={} commit_ms={} burst={} migrate={} liveness={} outlives={}{}{}",
        s.sector,
        s.journal,
        s.records,
        s.tear,
        s.reserve,
        s.commit_ms,
        s.burst,
        s.migrate,
        s.liveness,
        s.outlives,
        // Came later, one after the other: files of before do not have them.
        if s.inflight > 0 || s.ahead > 0 { format!(" inflight={}", s.inflight) } else { String::new() },
        if s.ahead > 0 { format!(" ahead={}", s.ahead) } else { String::new() }
    );
    let all = s.members.iter().map(|m| ("member", m)).chain(s.spares.iter().map(|m| ("spare", m)));
    for (what, m) in all {
        let _ = writeln!(out, "{what} {} slots={} discard={}", m.tier, m.slots, m.discard);
    }
    for v in &s.volumes {
        let _ = writeln!(out, "volume {} chunks={}", v.placement, v.chunks);
    }
    for session in &s.sessions {
        print_session(&mut out, s, session);
    }
    out
}

fn print_session(out: &mut String, s: &Scenario, session: &Session) {
    let _ = writeln!(out, "session");
    match session.damage {
        None => {}
        Some(Damage::Missing(m)) => drop(writeln!(out, "missing {m}")),
        Some(Damage::Old(m)) => drop(writeln!(out, "old {m}")),
        Some(Damage::Stale(m)) => drop(writeln!(out, "stale {m}")),
        Some(Damage::Midst(m, always)) => drop(writeln!(out, "midst {m} always={always}")),
        Some(Damage::MidstBesideGap(m)) => drop(writeln!(out, "midst-beside-gap {m}")),
        Some(Damage::AtStart(m)) => drop(writeln!(out, "at-start {m}")),
        Some(Damage::Fork(m)) => drop(writeln!(out, "fork {m}")),
        Some(Damage::Halves(m)) => drop(writeln!(out, "halves {m}")),
        Some(Damage::NoFast) => drop(writeln!(out, "no-fast")),
        Some(Damage::Decay(m)) => drop(writeln!(out, "decayed-pages {m}")),
        Some(Damage::NoFastNorPages(m)) => drop(writeln!(out, "no-fast-nor-pages {m}")),
        Some(Damage::Alone) => drop(writeln!(out, "alone")),
        Some(Damage::Lost(m)) => drop(writeln!(out, "lost-pages {m}")),
        Some(Damage::Forged) => drop(writeln!(out, "forged")),
        Some(Damage::Keys(m)) => drop(writeln!(out, "rotten-keys {m}")),
        Some(Damage::Gap(m)) => drop(writeln!(out, "journal-gap {m}")),
        Some(Damage::End(m)) => drop(writeln!(out, "journal-end {m}")),
        Some(Damage::Ring(m)) => drop(writeln!(out, "journal-ring {m}")),
        Some(Damage::Hole(m)) => drop(writeln!(out, "journal-hole {m}")),
        Some(Damage::Unflushed(m)) => drop(writeln!(out, "unflushed {m}")),
        Some(Damage::Journal(m, n)) => drop(writeln!(out, "journal-lost {m} events={n}")),
        Some(Damage::Seal(m, n)) => drop(writeln!(out, "journal-seal {m} events={n}")),
        Some(Damage::Rot(m, n)) => drop(writeln!(out, "rot {m} blocks={n}")),
        Some(Damage::Labels(m)) => drop(writeln!(out, "rotten-labels {m}")),
        Some(Damage::Directory(m, n)) => drop(writeln!(out, "rotten-directory {m} events={n}")),
        Some(Damage::Pages(m, n)) => drop(writeln!(out, "rotten-pages {m} events={n}")),
        Some(Damage::Hidden(m, n)) => drop(writeln!(out, "hidden-root {m} events={n}")),
        Some(Damage::Repair(m, n)) => drop(writeln!(out, "repair {m} events={n}")),
        Some(Damage::Back(m, gone, back)) => drop(writeln!(out, "back {m} gone={gone} back={back}")),
        Some(Damage::Starts(first, then)) => drop(writeln!(out, "starts first={first} then={then}")),
        Some(Damage::Gone(m, n)) => drop(writeln!(out, "gone {m} events={n}")),
    }
    for (i, f) in session.faults.iter().enumerate() {
        if *f != Faults::default() {
            // Came later, one after the other: files of before do not have them.
            let stands = f.stands_after > 0 || f.shows || f.stands_ms > 0;
            let dies = f.dies_after > 0 || stands;
            let _ = writeln!(
                out,
                "faults {i} read={} write={} late={} sync={} limit={} data_only={} lies={} garbled={} from={} area={}-{}{}{}{}{}{}",
                f.read_ppm,
                f.write_ppm,
                f.late,
                f.sync_ppm,
                f.limit,
                f.data_only,
                f.lies,
                f.garbled_ppm,
                f.garbled_from,
                f.area.0,
                f.area.1,
                if f.hang_ppm > 0 || dies { format!(" hang={}", f.hang_ppm) } else { String::new() },
                if dies { format!(" dies={} tells={}", f.dies_after, f.tells) } else { String::new() },
                if stands { format!(" stands={}", f.stands_after) } else { String::new() },
                if f.shows || f.stands_ms > 0 { format!(" shows={}", f.shows) } else { String::new() },
                if f.stands_ms > 0 { format!(" for_ms={}", f.stands_ms) } else { String::new() }
            );
        }
    }
    for (i, speed) in session.speed.iter().enumerate() {
        if s.disks().nth(i).is_some_and(|m| *speed != Speed::of(m.tier)) {
            let name = Speed::ALL.iter().find(|a| a.0 == *speed).map_or("", |a| a.1);
            let _ = writeln!(out, "speed {i} {name}");
        }
    }
    for step in &session.steps {
        let _ = writeln!(out, "{}", step_text(step));
    }
    if matches!(session.end, End::Stop | End::StopOr(..)) {
        let _ = writeln!(out, "stop");
    }
    if let Some((kind, p)) = session.end.crash() {
        let kind = if kind == Crash::Power { "power-cut" } else { "daemon-death" };
        let _ = writeln!(out, "{kind} steps={} events={}", p.steps, p.events);
    }
}

type Parsed<T> = Result<T, String>;

struct Words<'a>(SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Parsed<&'a str> {
        self.0.next().ok_or_else(|| "a word is missing".to_string())
    }

    fn number<T: std::str::FromStr>(&mut self) -> Parsed<T> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("`{word}` should be a number"))
    }

    /// `key=value`.
    fn value<T: std::str::FromStr>(&mut self, key: &str) -> Parsed<T> {
        let word = self.word()?;
        let value = word.strip_prefix(key).and_then(|w| w.strip_prefix('='));
        value.and_then(|v| v.parse().ok()).ok_or_else(|| format!("`{word}` should be `{key}=...`"))
    }

    fn at_end(&self) -> bool {
        self.0.clone().next().is_none()
    }

    fn area(&mut self) -> Parsed<(u64, u64)> {
        let words: String = self.value("area")?;
        let (first, end) = words.split_once('-').ok_or_else(|| format!("`{words}` should be two blocks"))?;
        let block = |word: &str| word.parse().map_err(|_| format!("`{word}` should be a block"));
        Ok((block(first)?, block(end)?))
    }

    fn has(&mut self, flag: &str) -> bool {
        self.0.clone().any(|w| w == flag)
    }
}

fn empty() -> Scenario {
    Scenario {
        seed: 0,
        sector: 4096,
        journal: 0,
        records: 0,
        tear: false,
        reserve: 0,
        commit_ms: 5000,
        burst: 0,
        inflight: 0,
        ahead: 0,
        migrate: true,
        members: Vec::new(),
        spares: Vec::new(),
        volumes: Vec::new(),
        sessions: Vec::new(),
        liveness: false,
        outlives: false,
    }
}

/// Reads a scenario. Empty lines and lines that begin with `#` are skipped.
pub fn parse(text: &str) -> Result<Scenario, ParseError> {
    let mut s = empty();
    let mut seen_head = false;
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let result = if seen_head {
            parse_line(&mut s, line)
        } else {
            seen_head = true;
            (line == HEAD).then_some(()).ok_or_else(|| format!("a scenario begins with `{HEAD}`"))
        };
        result.map_err(|what| ParseError { line: i + 1, what })?;
    }
    let enough = !s.members.is_empty() && !s.volumes.is_empty();
    enough.then_some(s).ok_or_else(|| ParseError { line: text.lines().count(), what: "no member or no volume".into() })
}

fn parse_line(s: &mut Scenario, line: &str) -> Parsed<()> {
    let mut w = Words(line.split_whitespace());
    match w.word()? {
        "seed" => s.seed = w.number()?,
        "group" => {
            s.sector = w.value("sector")?;
            s.journal = w.value("journal")?;
            s.records = w.value("records")?;
            s.tear = w.value("tear")?;
            s.reserve = w.value("reserve")?;
            s.commit_ms = w.value("commit_ms")?;
            s.burst = w.value("burst")?;
            s.migrate = w.value("migrate")?;
            s.liveness = w.value("liveness")?;
            s.outlives = w.value("outlives")?;
            s.inflight = if w.at_end() { 0 } else { w.value("inflight")? };
            s.ahead = if w.at_end() { 0 } else { w.value("ahead")? };
        }
        what @ ("member" | "spare") => {
            let tier = match w.word()? {
                "fast" => Tier::Fast,
                "slow" => Tier::Slow,
                other => return Err(format!("`{other}` is no tier")),
            };
            let list = if what == "member" { &mut s.members } else { &mut s.spares };
            list.push(MemberSpec { tier, slots: w.value("slots")?, discard: w.value("discard")? });
        }
        "volume" => {
            let placement = placement(&mut w)?;
            s.volumes.push(VolumeSpec { chunks: w.value("chunks")?, placement });
        }
        "session" => {
            // Until a line says otherwise, it ends when its steps do.
            let end = End::Crash(Crash::Power, CrashPoint { steps: u64::MAX, events: 0 });
            let session = s.quiet_session(Vec::new(), end);
            s.sessions.push(session);
        }
        verb => {
            let members = s.disks().count();
            let session = s.sessions.last_mut().ok_or("this line must come after `session`")?;
            parse_session_line(session, verb, &mut w, members)?;
        }
    }
    Ok(())
}

fn placement(w: &mut Words<'_>) -> Parsed<Placement> {
    let word = w.word()?;
    let all = [Placement::Auto, Placement::FastOnly, Placement::SlowOnly];
    let found = all.into_iter().find(|p| p.to_string() == word);
    found.ok_or_else(|| format!("`{word}` is no placement"))
}

fn family(w: &mut Words<'_>) -> Parsed<u8> {
    let n = w.value("family")?;
    (1..=MAX_FAMILIES).contains(&n).then_some(n).ok_or_else(|| format!("there is no family {n}"))
}

fn parse_session_line(s: &mut Session, verb: &str, w: &mut Words<'_>, members: usize) -> Parsed<()> {
    let member = |w: &mut Words<'_>| -> Parsed<usize> {
        let m = w.number()?;
        (m < members).then_some(m).ok_or_else(|| format!("there is no member {m}"))
    };
    match verb {
        "missing" => s.damage = Some(Damage::Missing(member(w)?)),
        "old" => s.damage = Some(Damage::Old(member(w)?)),
        "stale" => s.damage = Some(Damage::Stale(member(w)?)),
        "midst" => s.damage = Some(Damage::Midst(member(w)?, w.value("always")?)),
        "midst-beside-gap" => s.damage = Some(Damage::MidstBesideGap(member(w)?)),
        "at-start" => s.damage = Some(Damage::AtStart(member(w)?)),
        "starts" => s.damage = Some(Damage::Starts(w.value("first")?, w.value("then")?)),
        "gone" => s.damage = Some(Damage::Gone(member(w)?, w.value("events")?)),
        "fork" => s.damage = Some(Damage::Fork(member(w)?)),
        "halves" => s.damage = Some(Damage::Halves(member(w)?)),
        "rotten-labels" => s.damage = Some(Damage::Labels(member(w)?)),
        "rotten-pages" => s.damage = Some(Damage::Pages(member(w)?, w.value("events")?)),
        "rotten-directory" => s.damage = Some(Damage::Directory(member(w)?, w.value("events")?)),
        "hidden-root" => s.damage = Some(Damage::Hidden(member(w)?, w.value("events")?)),
        "repair" => s.damage = Some(Damage::Repair(member(w)?, w.value("events")?)),
        "back" => s.damage = Some(Damage::Back(member(w)?, w.value("gone")?, w.value("back")?)),
        "rot" => s.damage = Some(Damage::Rot(member(w)?, w.value("blocks")?)),
        "lost-pages" => s.damage = Some(Damage::Lost(member(w)?)),
        "no-fast" => s.damage = Some(Damage::NoFast),
        "decayed-pages" => s.damage = Some(Damage::Decay(member(w)?)),
        "no-fast-nor-pages" => s.damage = Some(Damage::NoFastNorPages(member(w)?)),
        "alone" => s.damage = Some(Damage::Alone),
        "forged" => s.damage = Some(Damage::Forged),
        "rotten-keys" => s.damage = Some(Damage::Keys(member(w)?)),
        "journal-gap" => s.damage = Some(Damage::Gap(member(w)?)),
        "journal-end" => s.damage = Some(Damage::End(member(w)?)),
        "journal-ring" => s.damage = Some(Damage::Ring(member(w)?)),
        "journal-hole" => s.damage = Some(Damage::Hole(member(w)?)),
        "unflushed" => s.damage = Some(Damage::Unflushed(member(w)?)),
        "journal-lost" => s.damage = Some(Damage::Journal(member(w)?, w.value("events")?)),
        "journal-seal" => s.damage = Some(Damage::Seal(member(w)?, w.value("events")?)),
        "faults" => {
            let m = member(w)?;
            s.faults[m] = Faults {
                read_ppm: w.value("read")?,
                write_ppm: w.value("write")?,
                late: w.value("late")?,
                sync_ppm: w.value("sync")?,
                limit: w.value("limit")?,
                data_only: w.value("data_only")?,
                lies: w.value("lies")?,
                garbled_ppm: w.value("garbled")?,
                garbled_from: w.value("from")?,
                area: w.area()?,
                hang_ppm: if w.at_end() { 0 } else { w.value("hang")? },
                dies_after: if w.at_end() { 0 } else { w.value("dies")? },
                tells: if w.at_end() { false } else { w.value("tells")? },
                stands_after: if w.at_end() { 0 } else { w.value("stands")? },
                shows: if w.at_end() { false } else { w.value("shows")? },
                stands_ms: if w.at_end() { 0 } else { w.value("for_ms")? },
            };
        }
        "speed" => {
            let m = member(w)?;
            let name = w.word()?;
            let found = Speed::ALL.iter().find(|a| a.1 == name);
            s.speed[m] = found.ok_or_else(|| format!("`{name}` is no speed"))?.0;
        }
        "client" => s.steps.push(parse_step(w)?),
        "stop" => s.end = End::Stop,
        "power-cut" | "daemon-death" => {
            let kind = if verb == "power-cut" { Crash::Power } else { Crash::Daemon };
            let point = CrashPoint { steps: w.value("steps")?, events: w.value("events")? };
            s.end = if s.end == End::Stop { End::StopOr(kind, point) } else { End::Crash(kind, point) };
        }
        other => return Err(format!("`{other}` is not known")),
    }
    Ok(())
}

fn parse_step(w: &mut Words<'_>) -> Parsed<Step> {
    let client = w.number()?;
    let _ = w.word()?;
    let volume = w.number()?;
    if volume >= MAX_VOLUMES {
        return Err(format!("there is no volume {volume}"));
    }
    let verb = w.word()?;
    let (offset, len) = (w.number()?, w.number()?);
    let (fua, no_hole, given_up) = (w.has("fua"), w.has("no-hole"), w.has("given-up"));
    let act = match verb {
        "read" => Act::Read,
        "write" => Act::Write { fua },
        "trim" => Act::Trim { fua },
        "zeroes" => Act::Zeroes { fua, no_hole, given_up },
        "flush" => Act::Flush,
        "cache" => Act::Cache,
        "sleep" => Act::Sleep,
        "heat" => Act::Heat { times: w.value("times")? },
        "fill" => Act::Fill,
        "make" => Act::Make { placement: placement(w)?, chunks: w.value("chunks")?, family: w.value("family")? },
        "make-family" => Act::MakeFamily { family: family(w)? },
        "drop-family" => Act::DropFamily { family: family(w)? },
        "new-header" => Act::NewHeader { family: family(w)? },
        "relock" => Act::Relock { family: family(w)? },
        "encrypt" => Act::Encrypt { family: family(w)? },
        "delete" => Act::Delete,
        "resize" => Act::Resize { chunks: w.value("chunks")? },
        "rename" => Act::Rename,
        "dissolve" => Act::Dissolve,
        "copy-members" => Act::Copy,
        "rot" => Act::Rot { disk: w.value("disk")? },
        "rot-label" => Act::RotLabel { disk: w.value("disk")? },
        "rot-map" => Act::RotMap { disk: w.value("disk")? },
        "rot-keys" => Act::RotKeys { disk: w.value("disk")?, family: w.value("family")? },
        "check" => Act::Check { mend: w.has("mend") },
        "add-member" => Act::AddMember { disk: w.value("disk")? },
        "evacuate" => Act::Evacuate { disk: w.value("disk")? },
        "keep-member" => Act::Keep { disk: w.value("disk")? },
        "remove-member" => Act::Remove { disk: w.value("disk")? },
        other => match Asked::ALL.iter().find(|a| a.1 == other) {
            Some((change, _)) => Act::Dying { change: *change, after: w.value("after")? },
            None => return Err(format!("`{other}` is no act")),
        },
    };
    Ok(Step { client, volume, act, offset, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_scenarios_come_back_from_text() {
        for seed in 0..50 {
            let s = crate::workload::generate(seed);
            let text = print(&s);
            assert_eq!(parse(&text), Ok(s), "{text}");
        }
    }

    #[test]
    fn what_a_file_of_before_does_not_say_is_as_it_was() {
        let s = Scenario { inflight: 0, ahead: 0, ..crate::workload::generate(1) };
        assert!(!print(&s).contains("inflight"), "versions of before can read it");
        let little = Scenario { inflight: 4096, ..s.clone() };
        let near = Scenario { ahead: 2, ..s.clone() };
        for one in [&s, &little, &near] {
            assert_eq!(parse(&print(one)).as_ref(), Ok(one));
        }
        let mut hanging = s;
        hanging.sessions[0].faults[0] = Faults { hang_ppm: 7, limit: 1, ..Faults::default() };
        assert_eq!(parse(&print(&hanging)), Ok(hanging.clone()));
        hanging.sessions[0].faults[0] = Faults { dies_after: 9, tells: true, ..Faults::default() };
        assert_eq!(parse(&print(&hanging)), Ok(hanging.clone()));
        hanging.sessions[0].faults[0] = Faults { stands_after: 9, ..Faults::default() };
        assert_eq!(parse(&print(&hanging)), Ok(hanging.clone()));
        hanging.sessions[0].faults[0] = Faults { stands_after: 9, stands_ms: 7, ..Faults::default() };
        assert_eq!(parse(&print(&hanging)), Ok(hanging));
    }

    #[test]
    fn errors_name_line_and_word() {
        let text = format!("{HEAD}\nseed 1\nmember quick slots=8 discard=true\n");
        assert_eq!(parse(&text).expect_err("no tier").to_string(), "line 3: `quick` is no tier");
        assert!(parse("hello").is_err() && parse("").is_err());
        assert!(parse(&format!("{HEAD}\nclient 0 volume 0 read 0 1\n")).is_err());
    }
}

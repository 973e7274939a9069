//! What `bimetal rescue` says.

use bimetal_volume::family::lost::LostFamily;

use super::ask::{State, VolumeState};
use super::files::{Hit, Report};
use crate::api::Fate;
use crate::cli::Rescue;
use crate::output::{table, wrapped};
use crate::size::approx;

/// Everything.
pub(super) fn all(
    group: &str,
    state: &State,
    volumes: &[&VolumeState],
    args: &Rescue,
    files: Option<&Report>,
) -> String {
    let mut text = String::new();
    for m in &state.missing {
        text += &format!("Missing: {m}\n");
    }
    for f in state.findings.iter().filter(|f| !f.starts_with("missing")) {
        text += &format!("Note: {f}\n");
    }
    let sums = total(volumes);
    text += &volume_table(volumes);
    text += &lost_families(&state.lost_families);
    state.given_up.iter().for_each(|back| text += &wrapped(back));
    let something_else = !state.lost_families.is_empty() || !state.given_up.is_empty();
    text += &meaning(&sums, !state.missing.is_empty(), something_else);
    text += &see_to(&state.at_hand);
    if let Some(path) = &args.map {
        text += &format!("The map is in '{}'.\n", path.display());
    }
    match files {
        Some(report) => text += &files_words(report, &sums),
        None if is_hurt(&sums) => text += &next(group, state),
        None => {}
    }
    text
}

fn total(volumes: &[&VolumeState]) -> [u64; Fate::COUNT] {
    volumes.iter().fold([0; Fate::COUNT], |mut sums, v| {
        sums.iter_mut().zip(v.sums()).for_each(|(a, b)| *a += b);
        sums
    })
}

fn is_hurt(sums: &[u64; Fate::COUNT]) -> bool {
    sums[Fate::PossiblyStale as usize..].iter().any(|s| *s > 0)
}

fn volume_table(volumes: &[&VolumeState]) -> String {
    let header = ["VOLUME", "SIZE", "NEVER WRITTEN", "WHOLE", "MAY BE OLD", "OLD COPY", "PERHAPS LOST", "LOST"];
    let row = |v: &&VolumeState| {
        let sizes = std::iter::once(v.size).chain(v.sums());
        std::iter::once(v.name.clone()).chain(sizes.map(approx)).collect()
    };
    let rows: Vec<Vec<String>> = volumes.iter().map(row).collect();
    format!("\n{}\n", table(&header, &rows, &[1, 2, 3, 4, 5, 6, 7]))
}

/// What the columns mean that are not zero.
fn meaning(sums: &[u64; Fate::COUNT], missing: bool, something_else: bool) -> String {
    let lost = match missing {
        true => {
            "LOST: it is on a member that is missing. It reads as an I/O error. If the member comes back, so does the data."
        }
        false => "LOST: what the group knew of its place is damaged on every member that had it. It reads as an I/O error.",
    };
    let all = [
        (
            Fate::PossiblyStale,
            "MAY BE OLD: it can be read, but the slow tier alone does not know whether it was moved to the fast tier and \
             written there in the last seconds before the group ended. Compare it, where you can, with something else.",
        ),
        (
            Fate::KeptCopy,
            "OLD COPY: it was on the fast tier; the slow tier still has it as it was when it was moved up, perhaps older \
             than the newest. It reads as an error unless you serve with --kept-copies.",
        ),
        (
            Fate::PerhapsLost,
            "PERHAPS LOST: the slow tier alone does not know whether there was anything. It reads as an I/O error, never as \
             zeros; in free space of the file system nothing is missing.",
        ),
        (Fate::Lost, lost),
    ];
    let said: String = all.iter().filter(|(f, _)| sums[*f as usize] > 0).map(|(_, words)| wrapped(words)).collect();
    match said.is_empty() {
        true if something_else => "Nothing else is lost.\n".into(),
        true => "Nothing is lost.\n".into(),
        false => said,
    }
}

/// What comes before giving anything up.
fn see_to(at_hand: &[String]) -> String {
    let devices = at_hand.iter().map(|device| wrapped(&format!("- {device}"))).collect::<String>();
    match at_hand.is_empty() {
        true => String::new(),
        false => wrapped(
            "What is on a member that is missing may be there again. See first to what is there, or may be, and cannot be used as it is:",
        ) + &devices,
    }
}

/// Families that nobody can open with the members at hand: that their volumes are whole is of no use then.
pub(crate) fn lost_families(lost: &[LostFamily]) -> String {
    let one = |f: &LostFamily| {
        let volumes = match f.volumes.is_empty() {
            true => "It has no volume.".into(),
            false => format!("What is in {} cannot be decrypted.", f.volumes.join(", ")),
        };
        wrapped(&format!(
            "NOT TO BE OPENED: family '{}', because no member at hand has its header whole. {volumes} A member that is missing may have the \
             header: wait for it. One that was exported is put back by `bimetal family import-header`.",
            f.name
        ))
    };
    lost.iter().map(one).collect()
}

fn next(group: &str, state: &State) -> String {
    let serve = match state.served {
        true => String::new(),
        false => format!("  bimetal serve {group} --read-only --allow-missing\n"),
    };
    format!(
        "\nNext, to get at what is left, and to learn which files are hit:\n{serve}  bimetal attach {group}/VOLUME\n  \
         mount -o ro,noload DEVICE /mnt        (xfs: ro,norecovery)\n  bimetal rescue {group}/VOLUME --files /mnt\n\
         Nothing was written to any member.\n"
    )
}

fn files_words(report: &Report, sums: &[u64; Fate::COUNT]) -> String {
    let mut text = String::new();
    for hit in &report.hits {
        text += &format!("{}  {}\n", what(hit), hit.path.display());
    }
    let whole = report.seen.saturating_sub(report.hits.len() as u64);
    text += &format!(
        "\n{} files and folders were seen; {} are listed, {whole} are whole.\n",
        report.seen,
        report.hits.len()
    );
    let ownerless = |f: Fate| sums[f as usize].saturating_sub(report.owned[f as usize]);
    let lost = ownerless(Fate::Lost) + ownerless(Fate::PerhapsLost) + ownerless(Fate::KeptCopy);
    if lost > 0 {
        text += &wrapped(&format!(
            "{} of what is lost belong to no file that was found: structures of the file system, files below folders that \
             cannot be read, deleted files or free space.",
            approx(lost)
        ));
    }
    if sums[Fate::PossiblyStale as usize] > 0 {
        text += &wrapped(
            "Structures of the file system may be old too: then files that were changed in the last seconds before the end \
             may be missing here, or be shown as they were.",
        );
    }
    text
}

fn what(hit: &Hit) -> String {
    let kind = if hit.folder { "folder, " } else { "" };
    let unreadable = hit.unreadable.iter().map(|why| {
        let below = if hit.folder { ", nor what is in it" } else { "" };
        format!("cannot be read{below} ({why})")
    });
    let parts = [
        (Fate::Lost, "lost"),
        (Fate::PerhapsLost, "perhaps lost"),
        (Fate::KeptCopy, "old copy"),
        (Fate::PossiblyStale, "may be old"),
    ];
    let hurt = parts.iter().filter(|(f, _)| hit.bytes[*f as usize] > 0);
    let said = hurt.map(|(f, words)| format!("{} {words}", approx(hit.bytes[*f as usize])));
    format!("{kind}{}", said.chain(unreadable).collect::<Vec<_>>().join(", "))
}

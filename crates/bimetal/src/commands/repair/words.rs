//! What `bimetal repair` says.

use bimetal_host::{HostEnv, Locator};
use bimetal_volume::family::lost::LostFamily;
use bimetal_volume::repair::{Kept, Plan};

use super::new::{Bare, NewDevice};
use super::{sums, Done};
use crate::api::Fate;
use crate::commands::rescue;
use crate::members::Members;
use crate::output::{table, wrapped};
use crate::size::approx;

/// Why nothing is done yet: what cannot be read now may be read later.
pub(super) fn unread(bytes: u64, reasons: &[String]) -> String {
    const SAID: usize = 3;
    let mut why = reasons.iter().take(SAID).cloned().collect::<Vec<_>>();
    if reasons.len() > SAID {
        why.push(format!("and {} more", reasons.len() - SAID));
    }
    format!(
        "where up to {} of the volumes are cannot be read now, because a device fails ({}). A repair would give that up for good, \
         though it may be there: see to cable, controller, power or server first, or copy the device to a sound one (ddrescue), and \
         repair then. If it is gone, repair with --give-up-unread",
        approx(bytes),
        why.join("; ")
    )
}

/// Why nothing is repaired in the midst of a restore.
pub(super) fn restoring(way: &str) -> String {
    format!(
        "nothing was repaired. {way}. A repair would write over what that brings back. Only if FILE is gone for good, and nothing can \
         complete it: --give-up-restore repairs what is there, which may be of two times"
    )
}

/// Why no member is struck off that is at hand.
pub(super) fn unnamed(locator: &Locator, group: &str) -> String {
    format!("{locator} carries a label of group '{group}' and was not named: name it too, or disconnect it")
}

/// Why no member is struck off whose device is there, or may be.
pub(super) fn unread_members(unread: &[String]) -> String {
    format!(
        "a device that may be a member of the group is there, or may be, and cannot be used now ({}). A repair would strike that member off, \
         and give up what is on it for good, though all of it may be there: see to cable, controller, power or server first, or copy the device \
         to a sound one (ddrescue); with it there may be nothing to repair. If it is gone, repair with --give-up-unread",
        unread.join("; ")
    )
}

/// The same as a part of the question, where that was asked for.
pub(super) fn given_up_unread(unread: &[String]) -> String {
    unread.iter().fold(String::new(), |text, device| {
        text + "\n"
            + wrapped(&format!(
                "{device}. If it is a member, it is struck off, and what is on it is GIVEN UP (--give-up-unread)."
            ))
            .trim_end()
    })
}

/// Why devices that were named as new ones are not taken: they are members, as what is on them besides labels shows.
pub(super) fn unlabelled(group: &str, known: &[&Bare], members: &str, found: &Members) -> String {
    let named: Vec<String> = known.iter().map(|b| format!("--{} {}", b.tier, b.locator)).collect();
    let places: Vec<String> = known.iter().map(|b| b.locator.to_string()).collect();
    let (are, labels) = match known.len() {
        1 => ("is no new device: it is", "its label is"),
        _ => ("are no new devices: they are", "their labels are"),
    };
    let way = match known.iter().all(|b| b.configured) {
        true => format!("bimetal repair {group}"),
        false => {
            let all = found.opened.iter().map(|m| m.locator.to_string()).chain(places.iter().cloned());
            format!("bimetal repair {group} --member {}", all.collect::<Vec<_>>().join(" "))
        }
    };
    format!(
        "{} {are} member {members} of group '{group}'; {labels} gone, but what else was on it is there, and would be given up. Nothing \
         was changed. Leave {} out, and it is kept: {way}",
        places.join(" and "),
        named.join(" and ")
    )
}

/// Why members without labels are not struck off that were not named.
pub(super) fn unnamed_without_labels(group: &str, known: &[String], members: &str) -> String {
    let (was, its) = match known.len() {
        1 => ("was not named, and carries no label: it is", "it"),
        _ => ("were not named, and carry no labels: they are", "them"),
    };
    format!(
        "{} {was} member {members} of group '{group}', as what else is there shows, and would be given up. Nothing was changed. Name {its} with \
         the other members, or disconnect {its}: bimetal repair {group} --member {} ...",
        known.join(" and "),
        known.join(" ")
    )
}

/// What is asked before anything is done.
pub(super) fn question(
    plan: &Plan<HostEnv>,
    reasons: &[String],
    volumes: &[Kept],
    lost_families: &[LostFamily],
    new: &[NewDevice],
    found: &Members,
    older_copies: bool,
) -> String {
    let mut text = format!("Group '{}' cannot be started as it is:\n", plan.group());
    reasons.iter().for_each(|r| text += &format!("  {r}\n"));
    found.absent.iter().for_each(|a| text += &format!("  not used: {a}\n"));
    found.elsewhere(!plan.missing().is_empty()).iter().for_each(|way| text += &format!("  {way}\n"));
    text += "After a repair its members are:\n";
    let members = plan.members().iter().filter_map(|at| found.opened.get(*at));
    members.for_each(|m| text += &format!("  {}\n", m.locator));
    for n in new {
        text += &format!("  {} ({}, new: everything on it is lost{})\n", n.locator, n.tier, n.lost_with);
    }
    for m in plan.missing() {
        text += &format!("Struck off for ever, also if it comes back: member {m}\n");
    }
    text += &volume_table(volumes, older_copies);
    let lost: u64 = volumes.iter().map(|v| given_up(v, older_copies)).sum();
    text += &rescue::lost_families(lost_families);
    let given_up = found.given_up();
    given_up.iter().for_each(|back| text += &wrapped(back));
    text += &match lost {
        0 if !given_up.is_empty() => "Nothing is given up but what that repair gives up.".into(),
        0 if !lost_families.is_empty() => "Nothing else is given up.".into(),
        0 if plan.is_not_whole() => "Nothing is given up but what is not there any more: it reads as zeros, or as what lies in its place.".into(),
        0 => "Nothing is given up.".into(),
        _ => wrapped(
            "What is GIVEN UP reads as zeros afterwards. Before you go on: if the missing device may come back, wait for it, \
             and all is there again; `bimetal rescue` lists what is hit, by bytes and by files, now and not afterwards.",
        ),
    };
    text.trim_end().to_string()
}

fn given_up(volume: &Kept, older_copies: bool) -> u64 {
    let sums = sums(volume);
    let copies = if older_copies { 0 } else { sums[Fate::KeptCopy as usize] };
    sums[Fate::Lost as usize] + sums[Fate::PerhapsLost as usize] + copies
}

fn volume_table(volumes: &[Kept], older_copies: bool) -> String {
    let row = |v: &Kept| {
        let sums = sums(v);
        let old = sums[Fate::PossiblyStale as usize] + if older_copies { sums[Fate::KeptCopy as usize] } else { 0 };
        let bytes =
            [v.size, sums[Fate::NeverWritten as usize], sums[Fate::Whole as usize], old, given_up(v, older_copies)];
        std::iter::once(v.name.clone()).chain(bytes.map(approx)).collect()
    };
    let rows: Vec<Vec<String>> = volumes.iter().map(row).collect();
    let header = ["VOLUME", "SIZE", "NEVER WRITTEN", "WHOLE", "MAY BE OLD", "GIVEN UP"];
    format!("\n{}\n", table(&header, &rows, &[1, 2, 3, 4, 5]))
}

/// What was done.
pub(super) fn done(group: &str, done: &Done) -> String {
    let mut text = format!("Group '{group}' is repaired.\n");
    for m in &done.report.struck_off {
        text += &format!("  member {m} is struck off: should its device come back, it is left alone\n");
    }
    for (index, locator) in done.report.new.iter().zip(&done.new) {
        text += &format!("  {locator} is member {index}\n");
    }
    done.not_noted.iter().for_each(|why| text += &format!("{why}\n"));
    let saved = done.saved.file.display();
    text += &match (done.not_saved.is_empty(), done.went_on) {
        (true, false) => format!("To undo it, before the group is started again: bimetal restore {saved}\n"),
        (true, true) => format!(
            "It went on with a repair that was cut off. To undo both, before the group is started again: bimetal restore {saved}, which \
             leads back to where that one was cut off, and then bimetal restore FILE, the file that the first one saved\n"
        ),
        (false, _) => format!(
            "It cannot be undone: the metadata of {} could not be saved. That of the others is in {saved}\n",
            done.not_saved.join(", ")
        ),
    };
    done.saved.not_saved.iter().for_each(|line| text += &format!("Not in it: {line}.\n"));
    text + &format!("Next: bimetal attach {group}/VOLUME, and check the file system on it before it is mounted\n")
}

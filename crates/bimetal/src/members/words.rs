//! What is said of the members that were found: who they are, why they cannot be opened, and what leads on.

use anyhow::{bail, Result};
use bimetal_format::label::{Label, LabelError};
use bimetal_host::device::nbd::WRITER_CAME;
use bimetal_host::probe::sysfs;
use bimetal_host::Locator;
use bimetal_volume::env::{Device, DeviceError};
use bimetal_volume::group;

use super::{tier_name, Members, Opened};
use crate::restoring;
use crate::saved::own_tier;
use crate::standing::{asked, is_given_up};

impl Opened {
    /// That it has no label, for lists.
    pub(crate) fn bare_words(&self) -> String {
        match self.newer {
            Some(_) => format!("{} carries a Bimetal label of a newer version", self.locator),
            None => format!("{} carries no sound Bimetal label", self.locator),
        }
    }

    /// Why it is no member as it is, whatever it holds.
    pub(crate) fn lacks_of_its_size(&self) -> Option<String> {
        match (self.device.size(), &self.label) {
            (0, _) if is_cut_off(&self.locator) && self.locator.path().is_some() => Some(
                "it is empty: what was in it was cut off. Bring the whole file (a copy that was interrupted?)".into(),
            ),
            (0, _) => Some("it has no size at this moment; see whether it is connected".into()),
            (size, Some(label)) if size < label.device_size => Some(format!(
                "it has {size} bytes, but had {} bytes when it joined the group; {}",
                label.device_size,
                way_to_size(&self.locator, size)
            )),
            _ => None,
        }
    }

    /// Why nothing is to be done with it, if a newer version would know what it is.
    pub(crate) fn refusal_of_newer(&self) -> Option<String> {
        self.newer.as_ref().map(|why| newer_words(&self.locator.to_string(), why))
    }
}

/// Whether what became smaller was cut off: a file keeps nothing behind its end, nor does what is made of one, or shown by a server. Behind
/// the end of a partition or of a logical volume the data are where they were.
fn is_cut_off(locator: &Locator) -> bool {
    let Some(path) = locator.path() else { return true };
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let of_block = |name| sysfs::backing_file(&std::path::Path::new("/sys/class/block").join(name)).is_some();
    std::fs::metadata(&real).is_ok_and(|meta| meta.is_file()) || real.file_name().is_some_and(of_block)
}

/// What is to be done with a device that has become smaller.
pub(crate) fn way_to_size(locator: &Locator, size: u64) -> String {
    match is_cut_off(locator) {
        false => "give it its size back".into(),
        true => format!(
            "it was cut off, and what lay behind byte {size} is not in it: bring the whole file (a copy that was interrupted?). Do not make \
             it larger instead: that gives zeros where data were"
        ),
    }
}

/// That the label of a device is one of a newer version, and what that means.
pub(crate) fn newer_words(locator: &str, why: &LabelError) -> String {
    format!("{locator} carries a whole label, which only a newer version of Bimetal can read ({why}): what it holds is somebody's")
}

impl Members {
    /// What the engine calls "device N", for its error messages.
    pub(crate) fn legend(&self) -> String {
        let named = self.opened.iter().enumerate().map(|(i, m)| match m.device.answering().lost {
            None => format!("device {i} is {}", m.locator),
            Some(why) => format!("device {i} is {}, and the connection to it is lost: {why}", m.locator),
        });
        let all: Vec<String> = named.chain(self.absent.iter().map(|a| format!("not used: {a}"))).collect();
        all.join("; ")
    }

    /// For an error of the engine: what it is that failed, and of whom it speaks.
    pub(crate) fn cannot(&self, what: &str) -> String {
        format!("the members cannot be {what} ({})", self.legend())
    }

    /// Refuses to say anything of members that somebody has come to write to meanwhile: what was read is neither what was there before nor
    /// what is there now, and what cannot be read any more is not damaged. `what` they were to be.
    pub(crate) fn refuse_taken(&self, what: &str) -> Result<()> {
        let lost = self.opened.iter().filter_map(|m| Some(format!("{}: {}", m.locator, m.device.answering().lost?)));
        match lost.chain(self.unread.iter().cloned()).find(|why| why.contains(WRITER_CAME)) {
            Some(why) => bail!("the group was not {what}: {why}. What was read until then says nothing of it"),
            None => Ok(()),
        }
    }

    /// Why the engine refuses group `name`, in words that lead on.
    pub(crate) fn refusal(&self, name: &str, error: group::OpenError) -> anyhow::Error {
        self.leading_on(name, error).context(format!("group '{name}' cannot be opened ({})", self.legend()))
    }

    /// Why the members cannot be what was asked for; if the group was named, in words that lead on.
    pub(crate) fn refusal_to_be(&self, what: &str, name: Option<&str>, error: group::OpenError) -> anyhow::Error {
        let error = match (name, self.way_past_a_copy(&error)) {
            (Some(name), _) => self.leading_on(name, error),
            (None, Some(way)) => anyhow::anyhow!("{error}. {way}"),
            (None, None) => error.into(),
        };
        error.context(self.cannot(what))
    }

    fn leading_on(&self, name: &str, error: group::OpenError) -> anyhow::Error {
        // What else could be advised would give up, or write over, what the newer version has.
        let first = self.way_to_newer().or_else(|| self.way_to_restored());
        let first = first.or_else(|| self.way_to_unread(name)).or_else(|| self.way_without_labels());
        let elsewhere = match &error {
            group::OpenError::Incomplete { .. } => self.elsewhere(true),
            group::OpenError::Label { .. } => self.elsewhere(false),
            group::OpenError::RepairCutOff { .. } => self.given_up(),
            _ => Vec::new(),
        };
        let last = way_on(name, &error).or_else(|| self.way_past_a_copy(&error));
        let usual = || Some(elsewhere.into_iter().chain([last?]).collect::<Vec<_>>().join(" "));
        match first.or_else(usual) {
            None => error.into(),
            Some(way) => anyhow::anyhow!("{error}. {way}"),
        }
    }

    /// Where members may be that nobody has looked at, before what would give them up. `is_missing`: one was not found.
    pub(crate) fn elsewhere(&self, is_missing: bool) -> Vec<String> {
        let bare = || self.opened.iter().filter(|m| m.label.is_none() && m.newer.is_none());
        // Devices are looked for by their labels, files are not.
        let is_file = |at: &Locator| at.path().is_some_and(|at| std::fs::metadata(at).is_ok_and(|meta| meta.is_file()));
        let moved = |m: &Opened| {
            format!(
                "If {} is another file than the member, and that was moved, say in the configuration where it is, or name all members: \
                 --member.",
                m.locator
            )
        };
        // Of a place where nothing is it has been said.
        match is_missing && self.absent.is_empty() && bare().next().is_none() {
            true => vec!["If one is there, and was not looked at, name all members: --member.".into()],
            false => bare().filter(|m| is_file(&m.locator)).map(moved).collect(),
        }
    }

    /// Members that a repair which was cut off has given up, and that are there all the same, in sentences that lead back to what they hold.
    pub(crate) fn given_up(&self) -> Vec<String> {
        let former = self.strangers.iter().filter_map(|s| Some((s.locator.clone(), s.former.as_deref()?)));
        let labelled = self.labelled().map(|(locator, label)| (locator.to_string(), label));
        let all: Vec<(String, &Label)> = labelled.chain(former).collect();
        let members = asked(all.iter().map(|(_, label)| *label));
        let words = |locator: &str, label: &Label| {
            format!(
                "{locator} was {} member {}, which the repair that was cut off has given up, and is there: to have what is on it do not go \
                 on with that repair, but undo it: `bimetal restore FILE`, the file that it has saved.",
                tier_name(own_tier(label)),
                label.member
            )
        };
        let given_up = all.iter().filter(|(_, label)| is_given_up(label, &members));
        given_up.map(|(locator, label)| words(locator, label)).collect()
    }

    /// The first device whose label is one of a newer version, in words.
    pub(crate) fn newer(&self) -> Option<String> {
        self.opened.iter().find_map(Opened::refusal_of_newer)
    }

    /// What can be done if a newer version knows what a device is: nothing, by this one.
    fn way_to_newer(&self) -> Option<String> {
        let newer = self.opened.iter().find(|m| m.newer.is_some())?;
        Some(format!(
            "The label of {} is whole, and a newer version reads it: nothing was changed, and nothing is to be repaired or restored",
            newer.locator
        ))
    }

    /// How a restore is completed that was cut off. A member of it without a label seems to be lost, and what else could be advised would
    /// give up what the file of that restore brings back.
    pub(crate) fn way_to_restored(&self) -> Option<String> {
        let marked: Vec<String> = self.restoring.iter().map(Locator::to_string).collect();
        let labelled = self.labelled().map(|(locator, _)| locator.to_string());
        let all: Vec<String> = labelled.chain(marked.iter().cloned()).collect();
        (!marked.is_empty()).then(|| restoring::way_on(&marked, &all))
    }

    /// What can be done where two devices are one member. Which of them is the copy is the owner's to know.
    pub(crate) fn way_past_a_copy(&self, error: &group::OpenError) -> Option<String> {
        let group::OpenError::Doubled { first, second, name, .. } = error else { return None };
        let at = |i: usize| self.opened.get(i).map(|m| m.locator.to_string());
        let without = |i: usize| {
            let others = (0..self.opened.len()).filter(|at| *at != i).filter_map(at);
            format!("--member {}", others.collect::<Vec<_>>().join(" "))
        };
        let (a, b) = (at(*first)?, at(*second)?);
        Some(format!(
            "Or leave it out: `bimetal check {name} {}` verifies the group with {a}, `bimetal check {name} {}` with {b}, and `bimetal serve` \
             takes them so. Only if the one that is left out is a copy on a device of its own, and not needed, with the group stopped: \
             `bimetal destroy {name} --member COPY` wipes it, and nothing else",
            without(*second),
            without(*first)
        ))
    }

    /// What the engine says, with the device named that it only numbers.
    pub(crate) fn named(&self, said: &str) -> String {
        let numbered = said.strip_prefix("device ").and_then(|rest| rest.split_once(' '));
        let device = numbered.and_then(|(number, rest)| Some((self.opened.get(number.parse::<usize>().ok()?)?, rest)));
        device.map_or_else(|| said.into(), |(m, rest)| format!("{} {rest}", m.locator))
    }

    /// Devices that may be members that are missing, and are there, or may be, but cannot be used as they are: all that is on them may be
    /// there again.
    pub(crate) fn at_hand(&self) -> Vec<String> {
        let all = self.opened.iter().filter_map(|m| m.lacks_of_its_size().map(|why| format!("{}: {why}", m.locator)));
        self.unread.iter().cloned().chain(all).collect()
    }

    /// What is to be done before anything that gives data up, if a device that may be a member cannot be used at this moment.
    fn way_to_unread(&self, name: &str) -> Option<String> {
        let at_hand = self.at_hand();
        (!at_hand.is_empty()).then(|| {
            format!(
                "See first to what is there, or may be, and cannot be used as it is ({}): when that can be used, whole, all may be there \
                 again. `bimetal rescue {name}` says what would be lost, `bimetal serve {name} --read-only --allow-missing` serves the rest",
                at_hand.join("; ")
            )
        })
    }

    /// What can be done if no device says any more that it is a member: nothing that reads metadata can.
    pub(crate) fn way_without_labels(&self) -> Option<String> {
        let is_gone = |m: &Opened| m.label.is_none() && m.newer.is_none();
        let gone = !self.opened.is_empty() && self.opened.iter().all(is_gone);
        let places: Vec<String> = self.opened.iter().map(|m| m.locator.to_string()).collect();
        gone.then(|| {
            format!(
                "No label is left on any of these devices. If the data are still there, and `bimetal dump --save` has saved the \
                 metadata to a FILE since the last start: `bimetal restore FILE --member {} --force`",
                places.join(" ")
            )
        })
    }
}

/// What a person can do about members that are missing, or do not fit together.
fn way_on(name: &str, error: &group::OpenError) -> Option<String> {
    match error {
        group::OpenError::Incomplete { .. } => Some(format!(
            "`bimetal rescue {name}` says what is lost, `bimetal serve {name} --read-only --allow-missing` serves the rest, \
             and `bimetal repair {name}` goes on without what is gone for good"
        )),
        group::OpenError::Damaged { .. } | group::OpenError::RepairCutOff { .. } | group::OpenError::Label { .. } => {
            Some(format!("`bimetal repair {name}` says what can be done, and does it"))
        }
        group::OpenError::NotWhole { .. } => Some(format!(
            "If there is nothing else: `bimetal serve {name} --read-only` serves what is there, and `bimetal repair {name}` takes it as it is"
        )),
        group::OpenError::Member { source: DeviceError::NoSpace, .. } => Some(format!(
            "Nothing of it is damaged: free some of that file system and start again. Until then `bimetal serve {name} --read-only` \
             serves the group"
        )),
        group::OpenError::Member { .. } => Some(format!(
            "If that does not pass, with cable, controller, power or server seen to: `bimetal repair {name}` says what can be done \
             without what cannot be read"
        )),
        group::OpenError::Unflushed { .. } => Some(format!(
            "`bimetal rescue {name}` says what can be had, `bimetal serve {name} --read-only` serves it"
        )),
        group::OpenError::Stale { .. } | group::OpenError::Fork { .. } => Some(format!(
            "To see what one side has, as it was when that side was last in use, name its members only: \
             `bimetal rescue {name} --member DEVICE`; to read it: \
             `bimetal serve {name} --read-only --allow-missing --member DEVICE`"
        )),
        _ => None,
    }
}

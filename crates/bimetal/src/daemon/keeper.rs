//! The end that was wished: a thread of its own waits for those who use the devices, takes the devices away and tells the
//! group's thread. Detaching needs the group, so it must still be serving then.
//!
//! This thread waits for nothing without a limit, and for no request of a device of this daemon: if the daemon died
//! meanwhile its process would wait for the next one. Another process writes out what the page cache holds.

use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use tokio::sync::oneshot;

use super::shared::{Ask, Shared};
use crate::beside::{self, Outcome, Work};
use crate::commands::detach;
use crate::config::uuid_bytes;
use crate::holders::InUse;
use crate::{api, holders, log, runstate};

/// How often a waiting stop looks whether the holders are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// How long the page cache of a device that nobody holds may take. What is not written by then stays with the device,
/// for the next daemon.
const FLUSHING: Duration = Duration::from_secs(20);
/// How long the list of what is attached is waited for by a stop that is forced, and for each device at least.
const FORCED: Duration = Duration::from_secs(1);
/// How long the group's thread may take to remove a device.
const REMOVING: Duration = Duration::from_secs(15);

/// Devices that could not be taken away.
#[derive(Default)]
struct Left {
    devices: Vec<String>,
    /// Why those of them stay that somebody uses, in words.
    used: Vec<String>,
    /// The same of those that are dead without this daemon: a ublk device waits for the next one.
    cut_off: Vec<String>,
}

impl Shared {
    /// Runs until a wished stop can happen, and makes it happen.
    pub(crate) fn keep_until_stop(&self) {
        self.wait_for_the_wish();
        let mut left = Left::default();
        loop {
            self.wait_for_the_users(&left.used);
            left = self.take_all_down(&left);
            // Nobody attaches anything from here on. Who does not come to an end with that is not waited for.
            let held = (!self.is_forced()).then(|| runstate::hold_attachments(&self.facts.group, self.list_end()));
            if let Some(Err(e)) = &held {
                log::warn(&format!("{e:#}"));
            }
            let is_new = |a: &api::Attachment| !left.devices.contains(&a.device);
            let attached = || self.wait_for_all_attachments().is_ok_and(|all| all.iter().any(is_new));
            let waits = !left.used.is_empty() || matches!(held, Some(Ok(_))) && attached();
            let waits = waits || !self.users_of_files_that_stay().is_empty();
            if self.is_forced() || !waits {
                self.cut_off(left.cut_off);
                while !self.ask(Ask::Shutdown) {
                    std::thread::sleep(LOOK_AGAIN);
                }
                return;
            }
            drop(held);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Until when the list of what is attached is waited for.
    fn list_end(&self) -> Instant {
        Instant::now() + if self.is_forced() { FORCED } else { runstate::LIST_PATIENCE }
    }

    /// Takes all devices away but those that cannot be, as somebody uses them who has come meanwhile, or for another reason. What
    /// was said of those that stayed `before` is not said again.
    fn take_all_down(&self, before: &Left) -> Left {
        let mut left = Left::default();
        let all = match self.wait_for_all_attachments() {
            Ok(all) => all,
            Err(e) => {
                log::warn(&format!("nothing is detached: {e:#}"));
                return left;
            }
        };
        let end = self.list_end();
        for attachment in all {
            let Err(e) = self.take_down(&attachment, end) else { continue };
            let words = format!("{} could not be detached: {e:#}", attachment.device);
            if !before.used.contains(&words) {
                log::warn(&words);
            }
            if is_used(&attachment, &e) {
                left.cut_off.extend((attachment.via != "ublk").then(|| words.clone()));
                left.used.push(words);
            }
            left.devices.push(attachment.device);
        }
        left
    }

    fn wait_for_the_wish(&self) {
        let mut stop = self.lock_stop();
        while !stop.wished {
            stop = self.wait_for_change(stop, None);
        }
    }

    /// Until nobody uses an attached device or the file of a volume, or the stop is forced. What was `kept` when they were to be taken
    /// away is waited for still, and will be tried again.
    fn wait_for_the_users(&self, kept: &[String]) {
        let mut told = false;
        loop {
            let users = self.all_users();
            let mut stop = self.lock_stop();
            if stop.forced || users.is_empty() {
                stop.waits_for = if stop.forced { Vec::new() } else { kept.to_vec() };
                return;
            }
            if stop.waits_for != users || !told {
                told = true;
                log::warn(&format!(
                    "still serving, because {}; release it, or send SIGTERM again (`bimetal stop --force`) to stop now",
                    users.join(", ")
                ));
            }
            stop.waits_for = users;
            drop(self.wait_for_change(stop, Some(LOOK_AGAIN)));
        }
    }

    /// The same, who has files of volumes open, and who cannot be seen. May take seconds, unless the stop is forced: then nobody is
    /// waited for.
    fn all_users(&self) -> Vec<String> {
        let mut users = users_among(self.wait_for_all_attachments());
        if self.is_forced() {
            return users;
        }
        users.extend(self.users_of_files());
        users.extend(self.nameless_to_wait_for());
        if !users.is_empty() {
            return users;
        }
        let all = self.wait_for_all_attachments();
        all.map_or_else(|error| vec![format!("{error:#}")], |all| holders::hidden_of_all(&all))
    }

    fn take_down(&self, attachment: &api::Attachment, end: Instant) -> Result<()> {
        match attachment.via == "ublk" {
            true => self.remove_ublk(attachment)?,
            false => detach::take_away(&self.facts.group, attachment)?,
        }
        detach::forget(&self.facts.group, attachment, end.max(Instant::now() + FORCED))
    }

    fn remove_ublk(&self, attachment: &api::Attachment) -> Result<()> {
        let users = holders::users(&attachment.device);
        if !users.is_empty() {
            return Err(InUse(users.all.join(", ")).into());
        }
        // Its last user may have gone a moment ago, and the kernel be writing out what it left.
        if beside::ask(&attachment.device, Work::Flush, FLUSHING)? == Outcome::Held {
            return Err(InUse(beside::held(&attachment.device)).into());
        }
        let (sender, mut receiver) = oneshot::channel();
        let (volume, uuid) = (attachment.volume.clone(), uuid_bytes(&attachment.volume_uuid));
        if !self.ask(Ask::Detach { volume, uuid, force: false, reply: sender }) {
            bail!("the group does not answer");
        }
        let end = Instant::now() + REMOVING;
        loop {
            match receiver.try_recv() {
                Ok(removed) => return removed.map_err(anyhow::Error::msg),
                Err(oneshot::error::TryRecvError::Empty) if Instant::now() < end => {}
                Err(e) => return Err(e).context("the kernel does not let it go; see dmesg"),
            }
            std::thread::sleep(LOOK_AGAIN / 10);
        }
    }
}

/// Who uses attached devices, as far as that can be seen from here. A list that cannot be read may name some that are used.
pub(super) fn users_among(attached: Result<Vec<api::Attachment>>) -> Vec<String> {
    attached.map_or_else(|error| vec![format!("{error:#}")], holders::of_all)
}

/// Whether a device that could not be taken away for this reason is used. Who kept it may not be found by another look.
fn is_used(attachment: &api::Attachment, why: &anyhow::Error) -> bool {
    if detach::is_anothers(attachment) {
        return false;
    }
    holders::is_in_use(why) || !holders::users(&attachment.device).is_empty()
}

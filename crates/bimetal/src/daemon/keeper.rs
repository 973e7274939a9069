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
    /// Somebody uses one of them.
    used: bool,
}

impl Shared {
    /// Runs until a wished stop can happen, and makes it happen.
    pub(crate) fn keep_until_stop(&self) {
        self.wait_for_the_wish();
        loop {
            self.wait_for_the_users();
            let left = self.take_all_down();
            // Nobody attaches anything from here on. Who does not come to an end with that is not waited for.
            let held = (!self.is_forced()).then(|| runstate::hold_attachments(&self.facts.group, self.list_end()));
            if let Some(Err(e)) = &held {
                log::warn(&format!("{e:#}"));
            }
            let is_new = |a: &api::Attachment| !left.devices.contains(&a.device);
            let attached = || self.attachments().is_ok_and(|all| all.iter().any(is_new));
            let waits = left.used || matches!(held, Some(Ok(_))) && attached();
            if self.is_forced() || !waits {
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

    /// Takes all devices away but those that cannot be, as somebody uses them who has come meanwhile, or for another reason.
    fn take_all_down(&self) -> Left {
        let mut left = Left::default();
        let all = match self.attachments() {
            Ok(all) => all,
            Err(e) => {
                log::warn(&format!("nothing is detached: {e:#}"));
                return left;
            }
        };
        let end = self.list_end();
        for attachment in all {
            let Err(e) = self.take_down(&attachment, end) else { continue };
            log::warn(&format!("{} could not be detached: {e:#}", attachment.device));
            let used = match attachment.via == "nbd" {
                // The kernel's client is a process that has it open.
                true => !detach::held(&attachment).is_empty(),
                false => !holders::users(&attachment.device).is_empty(),
            };
            left.used |= used && !detach::is_anothers(&attachment);
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

    /// Until nobody uses an attached device, or the stop is forced.
    fn wait_for_the_users(&self) {
        let mut told = false;
        loop {
            let users = self.all_users();
            let mut stop = self.lock_stop();
            if stop.forced || users.is_empty() {
                stop.waits_for.clear();
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

    /// Who uses attached devices, as far as that can be seen from here. A list that cannot be read may name some that are used.
    pub(super) fn users(&self) -> Vec<String> {
        self.attachments().map_or_else(|error| vec![format!("{error:#}")], holders::of_all)
    }

    /// The same, and who cannot be seen. May take seconds, unless the stop is forced: then nobody is waited for.
    fn all_users(&self) -> Vec<String> {
        let users = self.users();
        if !users.is_empty() || self.lock_stop().forced {
            return users;
        }
        self.attachments().map_or_else(|error| vec![format!("{error:#}")], |all| holders::hidden_of_all(&all))
    }

    fn take_down(&self, attachment: &api::Attachment, end: Instant) -> Result<()> {
        match attachment.via == "ublk" {
            true => self.remove_ublk(attachment)?,
            false => detach::take_away(&self.facts.group, attachment, false)?,
        }
        detach::forget(&self.facts.group, attachment, end.max(Instant::now() + FORCED))
    }

    fn remove_ublk(&self, attachment: &api::Attachment) -> Result<()> {
        let users = holders::users(&attachment.device);
        if !users.is_empty() {
            bail!("{}", users.all.join(", "));
        }
        // Its last user may have gone a moment ago, and the kernel be writing out what it left.
        if beside::ask(&attachment.device, Work::Flush, FLUSHING)? == Outcome::Held {
            bail!("{}", beside::held(&attachment.device));
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

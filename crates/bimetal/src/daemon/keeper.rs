//! The end that was wished: a thread of its own waits for those who use the devices, takes the devices away and tells the
//! group's thread. Detaching needs the group, so it must still be serving then.
//!
//! This thread waits for nothing without a limit, and for no request of a device of this daemon: if the daemon died
//! meanwhile its process would wait for the next one. Another process writes out what the page cache holds.

use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use tokio::sync::oneshot;

use super::shared::{Ask, Shared};
use crate::commands::{detach, ublk};
use crate::{api, holders, log};

/// How often a waiting stop looks whether the holders are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// How long the page cache of a device that nobody holds may take. What is not written by then stays with the device,
/// for the next daemon.
const FLUSHING: Duration = Duration::from_secs(20);
/// How long the group's thread may take to remove a device.
const REMOVING: Duration = Duration::from_secs(15);

impl Shared {
    /// Runs until a wished stop can happen, and makes it happen.
    pub(crate) fn keep_until_stop(&self) {
        self.wait_for_the_wish();
        self.wait_for_the_users();
        for attachment in self.attachments() {
            if let Err(e) = self.take_down(&attachment) {
                log::warn(&format!("{} could not be detached: {e:#}", attachment.device));
            }
        }
        while !self.ask(Ask::Shutdown) {
            std::thread::sleep(LOOK_AGAIN);
        }
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
            let users = self.users();
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

    /// Who uses attached devices.
    pub(super) fn users(&self) -> Vec<String> {
        holders::of_all(self.attachments())
    }

    fn take_down(&self, attachment: &api::Attachment) -> Result<()> {
        if attachment.via != "ublk" {
            return detach::take_down(&self.facts.group, attachment, false);
        }
        let users = holders::users(&attachment.device);
        if !users.is_empty() {
            bail!("{}", users.all.join(", "));
        }
        // Its last user may have gone a moment ago, and the kernel be writing out what it left.
        ublk::flush_beside(&attachment.device, FLUSHING)?;
        let (sender, mut receiver) = oneshot::channel();
        if !self.ask(Ask::Detach { volume: attachment.volume.clone(), force: false, reply: sender }) {
            bail!("the group does not answer");
        }
        let end = Instant::now() + REMOVING;
        loop {
            match receiver.try_recv() {
                Ok(removed) => break removed.map_err(anyhow::Error::msg)?,
                Err(oneshot::error::TryRecvError::Empty) if Instant::now() < end => {}
                Err(e) => return Err(e).context("the kernel does not let it go; see dmesg"),
            }
            std::thread::sleep(LOOK_AGAIN / 10);
        }
        detach::forget(&self.facts.group, attachment)
    }
}

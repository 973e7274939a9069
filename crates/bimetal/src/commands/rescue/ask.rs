//! What has become of a group's volumes: asked of the daemon that serves it, else of the members themselves.

use anyhow::{Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{Locator, Reactor};
use bimetal_volume::backend::Backend;
use bimetal_volume::family::lost::LostFamily;
use bimetal_volume::group::Group;
use bimetal_volume::options::{MemberStatus, OpenOptions};

use crate::api::{self, Fate, FateRun};
use crate::config::uuid_text;
use crate::size::approx;
use crate::{loss, members, runstate};

/// What has become of a volume.
pub(super) struct VolumeState {
    pub(super) name: String,
    /// Bytes.
    pub(super) size: u64,
    /// In order, without gaps, neighbours differ.
    pub(super) runs: Vec<FateRun>,
}

impl VolumeState {
    /// Bytes of each fate.
    pub(super) fn sums(&self) -> [u64; Fate::COUNT] {
        let mut sums = [0; Fate::COUNT];
        self.runs.iter().for_each(|r| sums[r.fate as usize] += r.length_bytes);
        sums
    }

    /// Adds a run, which begins where the last one ended.
    fn add(&mut self, run: FateRun) {
        match self.runs.last_mut() {
            Some(last) if last.fate == run.fate => last.length_bytes += run.length_bytes,
            _ => self.runs.push(run),
        }
    }
}

/// What has become of a group.
pub(super) struct State {
    /// A daemon was asked.
    pub(super) served: bool,
    /// Members that are not there, in words.
    pub(super) missing: Vec<String>,
    /// What recovery has found, in sentences.
    pub(super) findings: Vec<String>,
    /// Devices that are there, or may be, and cannot be used as they are, in words.
    pub(super) at_hand: Vec<String>,
    /// Members that a repair which was cut off has given up, and that are there, in sentences.
    pub(super) given_up: Vec<String>,
    /// Folder in which the daemon shows the volumes as files.
    pub(super) folder: Option<String>,
    pub(super) volumes: Vec<VolumeState>,
    /// What nobody can decrypt.
    pub(super) lost_families: Vec<LostFamily>,
}

/// Asks about group `name`; `explicit` members are opened whatever serves.
pub(super) fn state(name: &str, explicit: &[Locator]) -> Result<State> {
    match runstate::daemon(name)?.filter(|_| explicit.is_empty()) {
        Some(daemon) => of_daemon(name, daemon.get("/v1/status")?),
        None => offline(name, explicit),
    }
}

fn of_daemon(name: &str, status: api::Status) -> Result<State> {
    let missing = status.members.iter().filter(|m| !m.present);
    let mut state = State {
        served: true,
        missing: missing.map(|m| member(m.index, &m.tier, m.size_bytes, &m.uuid)).collect(),
        findings: status.recovery,
        at_hand: Vec::new(),
        given_up: Vec::new(),
        folder: status.files.map(|f| f.folder),
        volumes: Vec::new(),
        lost_families: Vec::new(),
    };
    for family in status.families {
        let daemon = runstate::daemon(name)?.context("the daemon has ended meanwhile")?;
        let header = daemon.get::<api::FamilyHeader>(&format!("/v1/families/{}/header", family.name));
        let own = status.volumes.iter().filter(|v| v.family.as_ref() == Some(&family.name));
        match header {
            Ok(header) if header.lost.is_some() => {
                let volumes = own.map(|v| v.name.clone()).collect();
                state.lost_families.push(LostFamily { name: family.name, volumes });
            }
            Ok(_) => {}
            Err(e) => {
                let unknown = "whether a member has the header of this family whole is not known";
                state.findings.push(format!("family '{}': {unknown}: {e:#}", family.name));
            }
        }
    }
    for v in status.volumes {
        let mut volume = VolumeState { name: v.name, size: v.size_bytes, runs: Vec::new() };
        let mut from = 0;
        while from < volume.size {
            let daemon = runstate::daemon(name)?.context("the daemon has ended meanwhile")?;
            let part: api::Fates = daemon.get(&format!("/v1/volumes/{}/fates/{from}", volume.name))?;
            part.runs.into_iter().for_each(|r| volume.add(r));
            volume.size = part.size_bytes;
            anyhow::ensure!(part.until_bytes > from, "the daemon's answer leads nowhere");
            from = part.until_bytes;
        }
        state.volumes.push(volume);
    }
    Ok(state)
}

fn offline(name: &str, explicit: &[Locator]) -> Result<State> {
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let (name, explicit) = (name.to_owned(), explicit.to_vec());
    reactor.block_on(async move {
        let name = name.as_str();
        let found = members::open(&env, Some(name), &explicit, Access::INSPECT).await?;
        let options = OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() };
        let syncs = loss::watch_syncs(&env, name);
        let opened = Group::open(env.clone(), found.devices(), options).await;
        drop(syncs);
        found.refuse_taken("looked at")?;
        let group = opened.map_err(|e| found.refusal(name, e))?;
        let status = group.status();
        anyhow::ensure!(status.name == name, "these members belong to group '{}', not to '{name}'", status.name);
        let missing = status.members.iter().filter(|m| !m.present).map(missing_member).collect();
        let findings = status.recovery.iter().map(|f| found.named(f)).chain(found.absent.iter().cloned()).collect();
        let lost_families = group.lost_families().await;
        let at_hand = if status.members.iter().all(|m| m.present) { Vec::new() } else { found.at_hand() };
        let given_up = found.way_to_restored().into_iter().chain(found.given_up()).collect();
        let volumes = Vec::new();
        let mut state =
            State { served: false, missing, findings, at_hand, given_up, folder: None, volumes, lost_families };
        for name in group.volume_names() {
            let Some(v) = group.volume(&name) else { continue };
            let mut volume = VolumeState { name, size: v.size(), runs: Vec::new() };
            v.fates(0, volume.size, usize::MAX)?.into_iter().for_each(|r| volume.add(r.into()));
            state.volumes.push(volume);
        }
        found.refuse_taken("looked at")?;
        Ok(state)
    })
}

fn missing_member(m: &MemberStatus) -> String {
    member(m.index, &m.tier.to_string(), m.size, &uuid_text(&m.uuid))
}

fn member(index: u8, tier: &str, size: u64, uuid: &str) -> String {
    format!("member {index} ({tier}, {}, uuid {uuid})", approx(size))
}

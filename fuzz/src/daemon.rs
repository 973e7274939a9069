//! Stands for the daemon's group under the control API: a stored group of the engine's tests, opened once.

#[path = "../../crates/bimetal/src/daemon/jobs.rs"]
mod jobs;

use std::path::PathBuf;
use std::sync::Arc;

use bimetal_crypt::FamilyKey;
use bimetal_volume::options::{OpenOptions, Status};
use bimetal_volume::Group;

use crate::api;
use crate::memory::MemoryEnv;

/// When a process began, as far as anybody asks here.
pub(crate) fn began(_process: u32) -> Option<u64> {
    None
}

/// The group's state at one moment.
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) clients: Vec<api::Client>,
    pub(crate) files: Option<api::Files>,
    pub(crate) last_check: Option<api::LastCheck>,
    pub(crate) losses: Vec<String>,
}

/// What came of the wish for a ublk device.
pub(crate) enum Made {
    Device { path: PathBuf, new: bool },
    Impossible(String),
}

/// What is known of the group from outside it.
pub(crate) struct Facts {
    pub(crate) group: String,
}

impl Facts {
    /// Where the members are: nobody has said.
    pub(crate) fn locators(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// Whether these words say that nobody knows what has become of a request. Here each is answered.
pub(crate) fn is_silence(_words: &str) -> bool {
    false
}

/// A change of the families, with its key.
#[derive(Debug)]
#[allow(dead_code, reason = "nobody carries it out")]
pub(crate) enum FamilyWork {
    Unlock { name: String, key: FamilyKey },
    Lock { name: String, uuid: Option<[u8; 16]>, force: bool },
    Change(FamilyTable),
}

/// A change of their table.
#[derive(Debug)]
#[allow(dead_code, reason = "nobody carries it out")]
pub(crate) enum FamilyTable {
    Create { name: String, uuid: [u8; 16], key: FamilyKey, header: Vec<u8> },
    Header { name: String, key: FamilyKey, before: Option<Vec<u8>>, header: Vec<u8> },
    Rename { name: String, new_name: String },
    Delete { name: String, uuid: Option<[u8; 16]> },
}

/// Answers the API's questions.
pub(crate) struct Shared {
    pub(crate) facts: Facts,
    status: Status,
    pub(crate) jobs: jobs::Jobs,
}

impl Shared {
    pub(crate) fn of_stored_group() -> Arc<Shared> {
        let env = MemoryEnv::new();
        let devices = crate::image::stored_group();
        let e = env.clone();
        let options = OpenOptions { writable: false, migrate: false, ..OpenOptions::default() };
        let group = env.block_on(async move { Group::open(e, devices, options).await }).expect("it opens");
        let facts = Facts { group: group.status().name };
        Arc::new(Shared { facts, status: group.status(), jobs: jobs::Jobs::default() })
    }

    pub(crate) fn silence(&self) -> &'static str {
        "a stored group has no thread"
    }

    pub(crate) fn has_ended(&self) -> bool {
        false
    }

    pub(crate) async fn snapshot(&self) -> Option<Snapshot> {
        Some(Snapshot {
            status: self.status.clone(),
            clients: Vec::new(),
            files: None,
            last_check: None,
            losses: Vec::new(),
        })
    }

    pub(crate) fn nameless(&self) -> Vec<String> {
        Vec::new()
    }

    /// The group's thread does not answer: the API must say so.
    pub(crate) async fn status(&self) -> Option<api::Status> {
        None
    }

    pub(crate) async fn show_files(&self) -> Option<Result<PathBuf, String>> {
        Some(Err("a stored group has no thread".into()))
    }

    /// Taken if it names a device.
    pub(crate) async fn dissolve(&self, request: api::DissolveRequest) -> Result<api::Dissolving, String> {
        match request.cancel || request.onto.is_empty() {
            true => Err(format!("volume '{}' is not being copied", request.volume)),
            false => Ok(api::Dissolving {
                run: 1,
                volume: request.volume,
                volume_uuid: String::new(),
                onto: request.onto,
                phase: "copying".into(),
                done_bytes: 0,
                total_bytes: 0,
                written_bytes: 0,
                unsure_bytes: 0,
                waits_for: None,
                error: None,
            }),
        }
    }

    /// The length of the name decides.
    pub(crate) async fn attach(&self, request: api::VolumeRequest) -> Result<Made, String> {
        let volume = request.volume;
        match volume.len() % 3 {
            0 => Ok(Made::Device { path: "/dev/ublkb0".into(), new: true }),
            1 => Ok(Made::Impossible("a stored group has no kernel".into())),
            _ => Err(format!("there is no volume '{volume}'")),
        }
    }

    pub(crate) async fn detach(&self, request: api::VolumeRequest) -> Result<(), String> {
        let force = request.force;
        match self.attach(request).await {
            Ok(Made::Device { new, .. }) if new || force => Ok(()),
            Ok(_) => Err("nothing is attached".into()),
            Err(why) => Err(why),
        }
    }

    /// Every volume is lost.
    pub(crate) async fn fates(&self, volume: String, from: u64) -> Option<Option<api::Fates>> {
        let size_bytes = self.status.volumes.iter().find(|v| v.name == volume)?.size;
        let run = api::FateRun {
            offset_bytes: from,
            length_bytes: size_bytes.checked_sub(from)?,
            fate: bimetal_volume::fate::Fate::Lost.into(),
        };
        Some(Some(api::Fates { schema: api::SCHEMA, volume, size_bytes, until_bytes: size_bytes, runs: vec![run] }))
    }

    pub(crate) async fn may_change(&self, change: &api::VolumeChange) -> Result<(), String> {
        match change {
            api::VolumeChange::Rename { name, .. } => Err(format!("volume '{name}' is attached")),
            _ => Ok(()),
        }
    }

    /// Every change has ended when it is asked for.
    pub(crate) fn change_volumes(&self, change: api::VolumeChange) -> Result<Arc<jobs::Job>, String> {
        let job = self.jobs.begin()?;
        job.finish(match change {
            api::VolumeChange::Create { size_bytes, .. } => Ok(done(size_bytes)),
            api::VolumeChange::Resize { size_bytes, .. } => Ok(done(Some(size_bytes))),
            _ => Err("a stored group does not change".into()),
        });
        Ok(job)
    }

    pub(crate) fn change_members(&self, change: api::MemberChange) -> Result<Arc<jobs::Job>, String> {
        let job = self.jobs.begin()?;
        job.finish(Err(format!("a stored group does not change: {change:?}")));
        Ok(job)
    }

    pub(crate) fn check(&self, request: api::CheckRequest) -> Result<Arc<jobs::Job>, String> {
        let job = self.jobs.begin()?;
        job.is_over(0, 0);
        job.finish(Err(format!("a stored group is not in use: {request:?}")));
        Ok(job)
    }

    /// Whoever can unlock has the right key.
    pub(crate) fn change_families(&self, work: FamilyWork) -> Result<Arc<jobs::Job>, String> {
        let job = match &work {
            FamilyWork::Lock { name, uuid, force: true } => self.jobs.begin_to_lock(name, *uuid)?.0,
            _ => self.jobs.begin()?,
        };
        job.finish(match work {
            FamilyWork::Unlock { key, .. } if key.as_bytes() == &[7; 32] => Ok(done(None)),
            work => Err(format!("a stored group does not change: {work:?}")),
        });
        Ok(job)
    }

    pub(crate) async fn family_header(&self, family: String) -> Result<api::FamilyHeader, String> {
        match family.len() % 2 {
            0 => Err(format!("there is no family '{family}'")),
            _ => Ok(api::FamilyHeader {
                schema: api::SCHEMA,
                family,
                uuid: String::new(),
                header: None,
                lost: Some("it is damaged on every member".into()),
            }),
        }
    }

    pub(crate) async fn all_attachments(&self) -> anyhow::Result<Vec<api::Attachment>> {
        Ok(Vec::new())
    }

    pub(crate) async fn ask_to_stop(&self, force: bool) -> Vec<String> {
        if force {
            Vec::new()
        } else {
            vec!["somebody".into()]
        }
    }
}

fn done(size: Option<u64>) -> jobs::Done {
    jobs::Done { size, ..jobs::Done::default() }
}

//! Stands for the daemon's group under the control API: a stored group of the engine's tests, opened once.

use std::sync::Arc;

use bimetal_volume::options::{OpenOptions, Status};
use bimetal_volume::Group;

use crate::api;
use crate::memory::MemoryEnv;

/// The group's state at one moment.
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) clients: Vec<api::Client>,
    pub(crate) files: Option<api::Files>,
}

/// Answers the API's questions.
pub(crate) struct Shared(Status);

impl Shared {
    pub(crate) fn of_stored_group() -> Arc<Shared> {
        let env = MemoryEnv::new();
        let devices = crate::image::stored_group();
        let e = env.clone();
        let options = OpenOptions { writable: false, migrate: false, ..OpenOptions::default() };
        let group = env.block_on(async move { Group::open(e, devices, options).await }).expect("it opens");
        Arc::new(Shared(group.status()))
    }

    pub(crate) async fn snapshot(&self) -> Option<Snapshot> {
        Some(Snapshot { status: self.0.clone(), clients: Vec::new(), files: None })
    }

    /// The group's thread does not answer: the API must say so.
    pub(crate) async fn status(&self) -> Option<api::Status> {
        None
    }

    pub(crate) async fn show_files(&self) -> Option<Result<std::path::PathBuf, String>> {
        Some(Err("a stored group has no thread".into()))
    }

    pub(crate) fn attachments(&self) -> Vec<api::Attachment> {
        Vec::new()
    }

    pub(crate) fn ask_to_stop(&self, force: bool) -> Vec<String> {
        if force {
            Vec::new()
        } else {
            vec!["somebody".into()]
        }
    }
}

//! The group is verified while it is served, once at a time.

use std::cell::Cell;
use std::sync::Arc;

use bimetal_host::HostEnv;
use bimetal_volume::Group;

use super::jobs::{Done, Job, Outcome};
use super::report::member_row;
use super::shared::Shared;
use crate::api::{CheckRequest, Checked};
use crate::log;

/// Whether a check is under way.
#[derive(Default)]
pub(super) struct Desk(Cell<bool>);

impl Desk {
    /// Carries a check out; `job` hears how far it is.
    pub(super) async fn check(
        &self,
        group: &Group<HostEnv>,
        shared: &Shared,
        request: CheckRequest,
        job: &Arc<Job>,
    ) -> Outcome {
        if self.0.replace(true) {
            return Err("the group is just being checked; wait for the end of that".into());
        }
        let result = group.check(request.mend, &|over, of| job.is_over(over, of)).await;
        self.0.set(false);
        let (status, locators) = (group.status(), shared.facts.locators());
        let row = |index| status.members.iter().find(|m| m.index == index).map(|m| member_row(&locators, m));
        let place = |index| row(index).map_or_else(Default::default, |m| (m.tier, m.locator));
        let checked = Checked::of(result.map_err(|e| e.to_string())?, place);
        for p in &checked.problems {
            let place = p.member.map_or(String::new(), |m| format!("member {m}: "));
            let mended = if p.mended { " (mended)" } else { "" };
            log::warn(&format!("check: {place}{}{mended}", p.what));
        }
        Ok(Done { checked: Some(checked), ..Done::default() })
    }
}

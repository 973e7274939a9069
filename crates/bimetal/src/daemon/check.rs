//! The group is verified while it is served, once at a time: when somebody asks for it, and of the daemon's own accord now and then. What
//! rots on a member is harmless as long as the daemon has it in memory; at the next start it may be the only copy.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bimetal_host::HostEnv;
use bimetal_volume::env::{Env, Instant};
use bimetal_volume::Group;

use super::jobs::{Done, Job, Outcome};
use super::report::member_row;
use super::shared::Shared;
use crate::api::{CheckRequest, Checked, LastCheck};
use crate::log;
use crate::words::{counted, duration};

/// When the daemon verifies the group of its own accord, after it has begun to serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Regular {
    /// The first time: not beside all that happens when a machine starts.
    pub(super) first: Duration,
    /// From one time to the next; never if it is zero.
    pub(super) every: Duration,
}

/// Whether a check is under way, and what came of the last one.
#[derive(Default)]
pub(super) struct Desk {
    busy: Cell<bool>,
    last: RefCell<Option<(Instant, LastCheck)>>,
}

impl Desk {
    /// Carries a check out that somebody asked for; `job` hears how far it is.
    pub(super) async fn check(
        &self,
        env: &HostEnv,
        group: &Group<HostEnv>,
        shared: &Shared,
        request: CheckRequest,
        job: &Job,
    ) -> Outcome {
        let over = |part, of| job.is_over(part, of);
        let checked = self.verify(env, group, shared, request.mend, Some(&over)).await?;
        Ok(Done { checked: Some(checked), ..Done::default() })
    }

    /// Verifies the group now and then for as long as the daemon lives, and mends what it finds.
    pub(super) async fn regularly(&self, env: &HostEnv, group: &Group<HostEnv>, shared: &Shared, times: Regular) {
        if times.every.is_zero() {
            return;
        }
        env.sleep(times.first.min(times.every)).await;
        loop {
            let status = group.status();
            // A group that is not written cannot be mended; and one that has latched is to be started anew first.
            if !status.read_only && status.latched.is_none() {
                if let Err(why) = self.verify(env, group, shared, true, None).await {
                    log::info(&format!("the regular check did not come to its end: {why}"));
                }
            }
            env.sleep(times.every).await;
        }
    }

    /// What came of the last check, if there was one since the daemon began.
    pub(super) fn last(&self, now: Instant) -> Option<LastCheck> {
        let last = self.last.borrow();
        last.as_ref().map(|(at, last)| LastCheck { seconds_ago: now.since(*at).as_secs(), ..last.clone() })
    }

    async fn verify(
        &self,
        env: &HostEnv,
        group: &Group<HostEnv>,
        shared: &Shared,
        mend: bool,
        over: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Checked, String> {
        if self.busy.replace(true) {
            return Err("the group is just being checked; wait for the end of that".into());
        }
        let result = group.check(mend, over.unwrap_or(&|_, _| {})).await;
        self.busy.set(false);
        let (status, locators) = (group.status(), shared.facts.locators());
        let row = |index| status.members.iter().find(|m| m.index == index).map(|m| member_row(&locators, m));
        let place = |index| row(index).map_or_else(Default::default, |m| (m.tier, m.locator));
        let checked = Checked::of(result.map_err(|e| e.to_string())?, place);
        for p in &checked.problems {
            let place = p.member.map_or(String::new(), |m| format!("member {m}: "));
            let mended = if p.mended { " (mended)" } else { "" };
            log::warn(&format!("check: {place}{}{mended}", p.what));
        }
        *self.last.borrow_mut() = Some((env.now(), summed_up(&checked, over.is_none())));
        Ok(checked)
    }
}

fn summed_up(checked: &Checked, by_itself: bool) -> LastCheck {
    let problems = &checked.problems;
    LastCheck {
        seconds_ago: 0,
        by_itself,
        problems: problems.len() as u64 + checked.untold,
        mended: problems.iter().filter(|p| p.mended).count() as u64,
        serious: problems.iter().any(|p| p.serious && !p.mended),
    }
}

/// What a person should know of the last check: nothing if all was in order.
pub(super) fn words(group: &str, last: &LastCheck) -> Option<String> {
    let LastCheck { problems, mended, .. } = *last;
    let (found, ago) = (counted(problems, "thing", "things"), duration(last.seconds_ago));
    match (problems, problems.saturating_sub(mended)) {
        (0, _) => None,
        (_, 0) => Some(format!(
            "A check {ago} ago found {found} damaged beside the data on the members, and wrote all of it anew; the log says what. Look after the \
             disk (smartctl)."
        )),
        (_, left) => Some(format!(
            "A check {ago} ago found {found} damaged beside the data on the members, or out of reach, and {left} of them still are: bimetal check {group}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_order_is_not_worth_a_word() {
        let of = |problems, mended| {
            words("tank", &LastCheck { seconds_ago: 5, by_itself: true, problems, mended, serious: false })
        };
        assert_eq!(of(0, 0), None);
        assert!(of(2, 2).is_some_and(|w| w.starts_with("A check 5 s ago found 2 things damaged") && w.contains("anew")));
        assert!(of(1, 0).is_some_and(|w| w.contains("1 thing damaged") && w.ends_with("bimetal check tank")));
    }
}

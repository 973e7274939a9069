//! The limit of a forced end: it waits for each member as long as that answers something, and for a silent one no longer than
//! [`LIMIT`]. The connection to a server is given up then, so that its requests fail and the group ends as it does after any error;
//! of a disk of this machine only the kernel can end the requests, so the daemon ends beside them. Either way nothing is marked
//! clean that is not.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bimetal_host::HostEnv;
use bimetal_volume::env::{Env, Instant};
use bimetal_volume::group::Group;
use bimetal_volume::options::{MemberStatus, Status};
use bimetal_volume::units::MemberIndex;

use super::Shared;
use crate::{log, words};

/// Without any answer of a member, from the moment on at which the end was forced.
const LIMIT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Which members are not waited for any longer.
#[derive(Debug, Default)]
struct Overdue {
    forced: Option<Instant>,
    /// Those that were overdue at the last look: this process may have stood still itself, and the answer be there.
    late: BTreeSet<MemberIndex>,
}

impl Overdue {
    fn members<'a>(&mut self, status: &'a Status, forced: bool, now: Instant) -> Vec<&'a MemberStatus> {
        if !forced {
            return Vec::new();
        }
        let waited = now.since(*self.forced.get_or_insert(now));
        let silent = |m: &&MemberStatus| m.unanswered > 0 && m.lost.is_none() && m.silent_for.min(waited) >= LIMIT;
        let late: Vec<&MemberStatus> = status.members.iter().filter(silent).collect();
        let before = std::mem::replace(&mut self.late, late.iter().map(|m| m.index).collect());
        late.into_iter().filter(|m| before.contains(&m.index)).collect()
    }
}

/// Members that were given up, in words.
#[derive(Debug, Default)]
pub(super) struct GivenUp(RefCell<Vec<String>>);

impl GivenUp {
    /// All of them, if there are any.
    pub(super) fn words(&self) -> Option<String> {
        let all = self.0.borrow();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Carries the end of a group out. `None` if a disk of this machine keeps it from ending.
    pub(super) async fn within_limit<T>(
        &self,
        env: &HostEnv,
        group: &Group<HostEnv>,
        shared: &Shared,
        end: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut end, mut hangs) = (pin!(end), pin!(self.until_a_disk_hangs(env, group, shared)));
        poll_fn(|cx| match end.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => hangs.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    async fn until_a_disk_hangs(&self, env: &HostEnv, group: &Group<HostEnv>, shared: &Shared) {
        let mut overdue = Overdue::default();
        loop {
            let status = group.status();
            let mut hangs = false;
            for m in overdue.members(&status, shared.is_forced(), env.now()) {
                let name = words::member_name(m, &shared.facts.locators());
                let words = format!("{name} has not answered for {} s and is not waited for", m.silent_for.as_secs());
                log::warn(&words);
                let why = "it did not answer, and the group was stopped by force";
                hangs |= !group.device(m.index).is_some_and(|device| device.give_up(why));
                self.0.borrow_mut().push(words);
            }
            if hangs {
                return;
            }
            env.sleep(LOOK_AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::tests::status;

    fn at(seconds: u64) -> Instant {
        Instant(0).plus(Duration::from_secs(seconds))
    }

    /// The members that are overdue at the looks at these seconds: when that is, whether the end is forced by then, and for how
    /// long the slow member has been silent.
    fn looks(looks: &[(u64, bool, u64)]) -> Vec<usize> {
        let (mut overdue, mut s) = (Overdue::default(), status());
        let mut look = |(now, forced, silent): &(u64, bool, u64)| {
            s.members[1].unanswered = (*silent > 0).into();
            s.members[1].silent_for = Duration::from_secs(*silent);
            overdue.members(&s, *forced, at(*now)).len()
        };
        looks.iter().map(&mut look).collect()
    }

    #[test]
    fn a_silent_member_is_overdue_half_a_minute_after_the_end_was_forced() {
        assert_eq!(looks(&[(100, false, 90), (101, true, 91), (130, true, 120), (131, true, 121)]), [0, 0, 0, 0]);
        assert_eq!(looks(&[(100, true, 90), (130, true, 120), (131, true, 121)]), [0, 0, 1]);
    }

    #[test]
    fn one_that_answers_is_waited_for() {
        assert_eq!(
            looks(&[(100, true, 90), (130, true, 120), (131, true, 1), (160, true, 30), (161, true, 31)]),
            [0, 0, 0, 0, 1]
        );
        assert_eq!(looks(&[(100, true, 0), (200, true, 0), (201, true, 0)]), [0, 0, 0]);
    }

    #[test]
    fn one_that_is_given_up_already_is_none() {
        let (mut overdue, mut s) = (Overdue::default(), status());
        (s.members[1].unanswered, s.members[1].silent_for) = (1, Duration::from_secs(99));
        s.members[1].lost = Some("the server closed the connection".into());
        let all = [0, 40, 41].map(|now| overdue.members(&s, true, at(now)).len());
        assert_eq!(all, [0, 0, 0]);
    }
}

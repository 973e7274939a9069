//! What the log tells of trouble: each kind once when it begins, errors of a member and its silence again when they have doubled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::group::Group;
use bimetal_volume::options::{MemberStatus, Status};
use bimetal_volume::units::MemberIndex;

use super::{nameless, Shared};
use crate::log;
use crate::words::{self, Places};

/// How often it is looked for trouble.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Tells the log of trouble for as long as the daemon lives, also while it ends.
pub(super) async fn watch(env: &HostEnv, group: &Group<HostEnv>, shared: &Shared) {
    let mut alarms = Alarms::default();
    loop {
        for line in alarms.news(&group.status(), &shared.facts.locators()) {
            log::warn(&line);
        }
        let files = shared.facts.files();
        let nameless = env.blocking(move || nameless::among(&files)).await.unwrap_or_default();
        for n in nameless.iter().filter(|n| alarms.nameless.insert(n.uuid.clone())) {
            log::warn(&n.words(&shared.facts.group));
        }
        env.sleep(LOOK_AGAIN).await;
    }
}

/// What was told already.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    latched: bool,
    /// By member. Members leave; an index is never given to another.
    members: BTreeMap<MemberIndex, Told>,
    /// Members whose file has no name any more.
    nameless: BTreeSet<String>,
}

/// What was told of a member.
#[derive(Debug, Default)]
struct Told {
    errors: u64,
    unanswered_for: Duration,
    lost: bool,
}

impl Told {
    /// Whether something is worse. A disk that fails for days must not fill the log.
    fn is_worse(&mut self, m: &MemberStatus) -> bool {
        let mut worse = m.lost.is_some() && !self.lost;
        self.lost |= worse;
        // What fails at a lost connection is no news.
        if m.errors > self.errors * 2 && !self.lost {
            self.errors = m.errors;
            worse = true;
        }
        if m.unanswered_for >= words::SILENCE.max(self.unanswered_for * 2) {
            self.unanswered_for = m.unanswered_for;
            worse = true;
        }
        worse
    }

    /// For how long it had not answered, if that was told and is over.
    fn is_over(&mut self, m: &MemberStatus) -> bool {
        let over = !self.unanswered_for.is_zero() && m.unanswered_for < words::SILENCE && m.lost.is_none();
        if over {
            self.unanswered_for = Duration::ZERO;
        }
        over
    }
}

impl Alarms {
    /// Lines for the log, if something is worse than when this was asked last, or better.
    pub(super) fn news(&mut self, status: &Status, places: &Places) -> Vec<String> {
        let mut worse = status.latched.is_some() && !self.latched;
        self.latched |= worse;
        let mut better = Vec::new();
        for member in &status.members {
            let told = self.members.entry(member.index).or_default();
            worse |= told.is_worse(member);
            if told.is_over(member) {
                better.push(format!("{} answers again", words::member_name(member, places)));
            }
        }
        let troubles = if worse { words::troubles(status, places) } else { Vec::new() };
        better.into_iter().chain(troubles).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::tests::{places, status};

    #[test]
    fn trouble_is_told_once_and_again_when_it_has_doubled() {
        let (mut alarms, mut s) = (Alarms::default(), status());
        assert!(alarms.news(&s, &[]).is_empty());
        s.members[1].errors = 3;
        assert_eq!(alarms.news(&s, &[]).len(), 1);
        s.members[1].errors = 6;
        assert!(alarms.news(&s, &[]).is_empty());
        s.members[1].errors = 7;
        assert!(alarms.news(&s, &[])[0].contains("7 requests"));
        s.latched = Some("a sync of member 1 failed".into());
        assert!(alarms.news(&s, &[])[0].contains("a sync of member 1 failed"));
        assert!(alarms.news(&s, &[]).is_empty());
    }
    #[test]
    fn silence_is_told_when_it_has_doubled_and_when_it_ends() {
        let (mut alarms, mut s) = (Alarms::default(), status());
        let mut after = |seconds| {
            s.members[1].unanswered = (seconds > 0).into();
            s.members[1].unanswered_for = Duration::from_secs(seconds);
            s.members[1].silent_for = Duration::from_secs(seconds);
            alarms.news(&s, &places())
        };
        assert!(after(9).is_empty());
        assert_eq!(after(11), ["Slow member 1 (nbd://far/disk) has not answered for 11 s; 1 request waits."]);
        assert!(after(21).is_empty());
        assert!(after(22)[0].contains("22 s"));
        assert_eq!(after(0), ["slow member 1 (nbd://far/disk) answers again"]);
        assert!(after(0).is_empty());
        assert_eq!(after(10).len(), 1);
    }

    #[test]
    fn a_lost_connection_is_told_once_whatever_fails_after_it() {
        let (mut alarms, mut s) = (Alarms::default(), status());
        s.members[1].lost = Some("the server closed the connection".into());
        s.members[1].errors = 1;
        assert!(alarms.news(&s, &places())[0].contains("The connection to slow member 1 (nbd://far/disk) is lost"));
        s.members[1].errors = 100;
        assert!(alarms.news(&s, &places()).is_empty());
    }
}

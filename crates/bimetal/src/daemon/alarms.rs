//! What the log tells of trouble: each kind once when it begins, errors of a member again when they have doubled.

use std::collections::BTreeMap;

use bimetal_volume::options::Status;
use bimetal_volume::units::MemberIndex;

use crate::words;

/// What was told already.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    latched: bool,
    /// Errors of each member when they were told last. Members leave; an index is never given to another.
    errors: BTreeMap<MemberIndex, u64>,
}

impl Alarms {
    /// Lines for the log, if something is worse than when this was asked last.
    pub(super) fn news(&mut self, status: &Status) -> Vec<String> {
        let mut worse = status.latched.is_some() && !self.latched;
        self.latched |= worse;
        for member in &status.members {
            let told = self.errors.entry(member.index).or_default();
            // A disk that fails for days must not fill the log.
            if member.errors > *told * 2 {
                *told = member.errors;
                worse = true;
            }
        }
        if worse {
            words::troubles(status)
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::tests::status;

    #[test]
    fn trouble_is_told_once_and_again_when_it_has_doubled() {
        let (mut alarms, mut s) = (Alarms::default(), status());
        assert!(alarms.news(&s).is_empty());
        s.members[1].errors = 3;
        assert_eq!(alarms.news(&s).len(), 1);
        s.members[1].errors = 6;
        assert!(alarms.news(&s).is_empty());
        s.members[1].errors = 7;
        assert!(alarms.news(&s)[0].contains("7 requests"));
        s.latched = Some("a sync of member 1 failed".into());
        assert!(alarms.news(&s)[0].contains("a sync of member 1 failed"));
        assert!(alarms.news(&s).is_empty());
    }
}

//! What is known of a wished end: whether it is wished at all, who is waited for, and when somebody insists.
//!
//! A SIGHUP never insists. It comes by itself: twice when a terminal is closed in which the daemon runs, and right behind the SIGTERM
//! with which a session ends (systemd's `SendSIGHUP=`). Whoever has a file system of the group mounted then would lose what it holds.

/// See the head of this file.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) wished: bool,
    pub(super) forced: bool,
    /// Who uses a device, in words.
    pub(super) waits_for: Vec<String>,
    /// Who is not waited for, in words, and gets errors when the daemon has ended.
    pub(super) cut_off: Vec<String>,
    /// Somebody has asked by a signal that can insist.
    asked: bool,
}

impl Ending {
    /// A signal of this name wishes the end; the second one that somebody has sent insists. Returns what to say, if there is something
    /// new.
    pub(super) fn signalled(&mut self, name: &str, is_sent: bool) -> Option<String> {
        let before = std::mem::replace(&mut self.wished, true);
        if !is_sent {
            return (!before).then(|| format!("{name}: stopping"));
        }
        if std::mem::replace(&mut self.asked, true) {
            self.forced = true;
            return Some(format!("{name} again: stopping now"));
        }
        Some(format!("{name}: stopping"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(signals: &[&str]) -> Ending {
        let mut ending = Ending::default();
        signals.iter().for_each(|name| drop(ending.signalled(name, *name != "SIGHUP")));
        ending
    }

    #[test]
    fn whoever_asks_twice_insists() {
        assert!(after(&["SIGTERM"]).wished && !after(&["SIGTERM"]).forced);
        for twice in [["SIGTERM", "SIGTERM"], ["SIGINT", "SIGINT"], ["SIGINT", "SIGTERM"]] {
            assert!(after(&twice).forced, "{twice:?}");
        }
    }

    #[test]
    fn a_hangup_wishes_and_never_insists() {
        for signals in
            [&["SIGHUP"][..], &["SIGHUP", "SIGHUP"], &["SIGTERM", "SIGHUP"], &["SIGHUP", "SIGTERM", "SIGHUP"]]
        {
            let ending = after(signals);
            assert!(ending.wished && !ending.forced, "{signals:?}");
        }
        assert!(after(&["SIGTERM", "SIGHUP", "SIGTERM"]).forced);
    }

    /// A `stop` that waits is no signal.
    #[test]
    fn the_first_signal_after_a_wish_does_not_insist() {
        let mut ending = Ending { wished: true, ..Ending::default() };
        assert!(ending.signalled("SIGTERM", true).is_some() && !ending.forced);
        assert!(ending.signalled("SIGTERM", true).is_some() && ending.forced);
    }
}

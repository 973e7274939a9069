//! How long a server may be silent, and what is said of one whose connection has ended.

use std::io;
use std::time::Duration;

use bimetal_nbd::consts::cmd;
use bimetal_nbd::WireError;
use bimetal_volume::env::{Answering, Instant};

/// Before its first answer: whoever opens a member waits for it.
const FIRST: Duration = Duration::from_secs(30);
/// From then on. A FLUSH may take minutes behind a server with a large page cache.
const LATER: Duration = Duration::from_secs(300);
/// A connection that is due gets this much more: this process may have stood still itself, and the answer be there.
const GRACE: Duration = Duration::from_secs(1);

/// How long a server may be silent while something waits for it. Any whole answer ends a silence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) first: Duration,
    pub(super) later: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { first: FIRST, later: LATER }
    }
}

impl Patience {
    /// How long a silence may last now.
    pub(super) fn limit(self, has_answered: bool) -> Duration {
        if has_answered {
            self.later
        } else {
            self.first
        }
    }

    /// When the server is given up, if nothing comes until then; `None` while nothing waits for it.
    pub(super) fn due(self, answering: &Answering, has_answered: bool) -> Option<Instant> {
        Some(answering.silent_since?.plus(self.limit(has_answered)))
    }

    pub(super) fn grace(self) -> Duration {
        GRACE.min(self.first)
    }
}

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("{}", ended(.0))]
    Io(#[from] io::Error),
    #[error("the server broke the protocol: {0}")]
    Wire(#[from] WireError),
    #[error("the server sent {0}")]
    Peer(&'static str),
    #[error("the server does not answer {what}: nothing came for {seconds} s", what = plural(*.command), seconds = .silent.as_secs())]
    Silent { command: u16, silent: Duration },
    #[error(
        "this daemon, the server or the way to it stood still in the middle of a write for so long that somebody else may have the \
         member; what was half sent could neither be finished nor taken back"
    )]
    HalfSent,
    #[error(
        "this daemon, the server or the way to it stood still for so long that somebody else may have the member; writes that were on \
         the way were dropped, for they would have come over what that one writes"
    )]
    Unsent,
    #[error("{0}")]
    GivenUp(String),
}

fn ended(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server closed the connection".into(),
        _ => error.to_string(),
    }
}

fn plural(command: u16) -> &'static str {
    match command {
        cmd::READ => "reads",
        cmd::WRITE => "writes",
        cmd::FLUSH => "flushes",
        cmd::TRIM => "trims",
        _ => "requests",
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::waits::answering;
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0).plus(Duration::from_secs(seconds))
    }

    fn due(waiting: &[u64], answered: Option<u64>) -> Option<Instant> {
        let last = answered.map_or(Instant(0), at);
        Patience::default().due(&answering(waiting.iter().map(|s| at(*s)), last), answered.is_some())
    }

    #[test]
    fn a_lone_request_gets_all_the_time_and_every_answer_gives_it_to_those_that_wait() {
        assert_eq!(due(&[], Some(4)), None);
        // A FLUSH at 100, long after the last answer.
        assert_eq!(due(&[100], Some(4)), Some(at(400)));
        // Others are answered meanwhile.
        assert_eq!(due(&[100, 390], Some(391)), Some(at(691)));
    }

    #[test]
    fn a_server_that_never_answered_gets_less() {
        assert_eq!(due(&[7, 9], None), Some(at(37)));
    }

    #[test]
    fn the_end_of_a_connection_is_told_in_words() {
        let silent = Broken::Silent { command: cmd::READ, silent: Duration::from_secs(30) };
        assert_eq!(silent.to_string(), "the server does not answer reads: nothing came for 30 s");
        let closed = Broken::from(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert_eq!(closed.to_string(), "the server closed the connection");
    }
}

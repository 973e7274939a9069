//! The thin client of the control API: HTTP/1.1 over the daemon's unix socket, one request per connection.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_host::net::connect_at_once;
use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::api::{Failure, NO_SUCH_PATH, UNKNOWN_FIELD};

/// An answer longer than this is not from our daemon.
const ANSWER_MAX: u64 = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_AGAIN: Duration = Duration::from_millis(20);

/// The daemon is of an earlier version, which cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the daemon is of an earlier version, which cannot do that; nothing was changed. Restart it with this version")]
pub(crate) struct TooOld;

/// The daemon ended before it had answered. What it was asked for may have been done.
#[derive(Debug, thiserror::Error)]
#[error("the daemon ended before it had answered")]
pub(crate) struct Ended;

/// The daemon has refused what it was asked for, in these words: it has not begun with it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// A daemon that can be asked.
pub(crate) struct Client {
    stream: UnixStream,
}

/// Connects to a socket whose queue is full as soon as there is room, but waits no longer than for an answer.
fn connect_in_time(socket: &Path) -> std::io::Result<UnixStream> {
    let end = Instant::now() + TIMEOUT;
    loop {
        match connect_at_once(socket) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(CONNECT_AGAIN);
            }
            connected => return connected,
        }
    }
}

/// Connects to the daemon behind `socket`; `None` if none is there.
pub(crate) fn connect(socket: &Path) -> Result<Option<Client>> {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied, WouldBlock};
    match connect_in_time(socket) {
        Ok(stream) => {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(Some(Client { stream }))
        }
        Err(e) if matches!(e.kind(), NotFound | ConnectionRefused) => Ok(None),
        Err(e) if e.kind() == PermissionDenied => {
            bail!("no right to use {}; run this as the user of the daemon, or join the group bimetal", socket.display())
        }
        Err(e) if e.kind() == WouldBlock => Err(ended(e, "the daemon does not listen")),
        Err(e) => Err(e).with_context(|| format!("cannot connect to {}", socket.display())),
    }
}

impl Client {
    /// `GET path`.
    pub(crate) fn get<T: DeserializeOwned>(self, path: &str) -> Result<T> {
        self.ask("GET", path, "")
    }

    /// `POST path` with `body` as JSON.
    pub(crate) fn post<T: DeserializeOwned>(self, path: &str, body: &impl Serialize) -> Result<T> {
        let body = serde_json::to_string(body)?;
        self.ask("POST", path, &body)
    }

    fn ask<T: DeserializeOwned>(mut self, method: &str, path: &str, body: &str) -> Result<T> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: bimetal\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let sent = self.stream.write_all(head.as_bytes()).and_then(|()| self.stream.write_all(body.as_bytes()));
        sent.map_err(|e| ended(e, "the daemon does not listen"))?;
        let mut answer = Vec::new();
        let read = self.stream.take(ANSWER_MAX).read_to_end(&mut answer);
        read.map_err(|e| ended(e, "the daemon does not answer"))?;
        if answer.is_empty() {
            bail!(Ended);
        }
        let (status, body) = split_answer(&answer)?;
        if status == 200 {
            return serde_json::from_slice(body)
                .context("the daemon's answer is not understood; are both the same version?");
        }
        match serde_json::from_slice::<Failure>(body) {
            Ok(_) if status == 410 => bail!(Ended),
            Ok(f) if status == 404 && f.error.starts_with(NO_SUCH_PATH) => bail!(TooOld),
            // It has never heard of something that this version asks for.
            Ok(f) if status == 400 && f.error.starts_with(UNKNOWN_FIELD) => bail!(TooOld),
            // Not those from 500 on: what was asked for may have been begun all the same.
            Ok(f) if status < 500 => bail!(Refused(f.error)),
            Ok(f) => bail!("{}", f.error),
            Err(_) => bail!("the daemon answered with status {status}"),
        }
    }
}

/// Of a connection that failed: [`Ended`] if its other end is gone, `otherwise` if not.
fn ended(error: std::io::Error, otherwise: &'static str) -> anyhow::Error {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
    match error.kind() {
        BrokenPipe | ConnectionReset => Ended.into(),
        WouldBlock | TimedOut => anyhow::anyhow!(
            "{otherwise} within {} s: its process may be stopped, or the machine be short of memory. If it had begun with what it was asked \
             for it goes on with that later, else it does not begin any more: see `bimetal status` when it answers again",
            TIMEOUT.as_secs()
        ),
        _ => anyhow::Error::new(error).context(otherwise),
    }
}

/// Status code and body. Our daemon sends a length and closes, so the body is what follows the head.
fn split_answer(answer: &[u8]) -> Result<(u16, &[u8])> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").context("the daemon's answer is cut off")?;
    let head = std::str::from_utf8(&answer[..end]).context("the daemon's answer is not HTTP")?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|h| h.get(..3)).and_then(|s| s.parse().ok());
    let status = status.context("the daemon's answer is not HTTP")?;
    let body = &answer[end + 4..];
    let length = head.lines().find_map(|l| {
        let (name, value) = l.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    match length {
        Some(n) if n != body.len() => bail!("the daemon's answer is cut off ({} of {n} bytes)", body.len()),
        _ => Ok((status, body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client says of this answer.
    fn told(answer: &str) -> anyhow::Error {
        let (stream, mut daemon) = UnixStream::pair().expect("a pair");
        daemon.write_all(answer.as_bytes()).expect("written");
        daemon.shutdown(std::net::Shutdown::Write).expect("shut down");
        Client { stream }.post::<serde_json::Value>("/v1/dissolve", &1).expect_err("no answer that is wanted")
    }

    #[test]
    fn only_words_of_refusal_say_that_nothing_was_begun() {
        let failure = |status: &str| {
            let body = r#"{"schema":1,"error":"not so"}"#;
            told(&format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
        };
        assert!(failure("409").is::<Refused>() && failure("409").to_string() == "not so");
        assert!(failure("404").is::<Refused>() && failure("410").is::<Ended>());
        assert!(!failure("503").is::<Refused>() && failure("503").to_string() == "not so");
        let old =
            r#"{"schema":1,"error":"the request is not understood: unknown field `uuid`, expected `name` or `force`"}"#;
        let old = told(&format!("HTTP/1.1 400 X\r\ncontent-length: {}\r\n\r\n{old}", old.len()));
        assert!(old.is::<TooOld>() && old.to_string().contains("earlier version"), "{old}");
        for cut_off in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 409 X\r\ncontent-length: 9\r\n\r\n{"] {
            assert!(!told(cut_off).is::<Refused>(), "{cut_off}");
        }
    }

    #[test]
    fn answers_are_taken_apart() {
        let (status, body) = split_answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").expect("whole");
        assert_eq!((status, body), (200, &b"{}"[..]));
        for bad in [&b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}"[..], b"", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 2"] {
            assert!(split_answer(bad).is_err());
        }
    }
}

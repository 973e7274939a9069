//! Signals that ask the daemon to end, as something a task can wait for.

use std::cell::RefCell;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, Ordering};

use bimetal_volume::buf::BufMut;

use crate::net::Stream;
use crate::reactor::HostEnv;

/// Where the handler writes; -1 before the first use.
static PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn handler(signal: libc::c_int) {
    let byte = signal as u8;
    // SAFETY: `write` may be called from a signal handler, the byte is valid for the call, and errno is put back. If
    // the socket is full, signals enough are waiting there.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let _ = libc::send(
            PIPE.load(Ordering::Relaxed),
            (&raw const byte).cast(),
            1,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        );
        *errno = before;
    }
}

/// The signals of this process that ask it to end (SIGTERM, SIGINT, SIGHUP).
pub struct Signals {
    from: Stream,
    buf: RefCell<Option<BufMut>>,
}

impl Signals {
    /// Catches them from now on. A second call takes them over from the first.
    pub fn catch(env: &HostEnv) -> io::Result<Rc<Signals>> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let theirs: OwnedFd = theirs.into();
        // The handler may run at any moment until the process ends: its end is never closed.
        PIPE.store(theirs.into_raw_fd(), Ordering::Relaxed);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            // SAFETY: a sigaction of zeros is the empty one; the handler only does what a handler may.
            let rc = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut())
            };
            if rc < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let from = Stream::from_fd(env, ours.into(), "signals");
        Ok(Rc::new(Signals { from, buf: RefCell::new(None) }))
    }

    /// The number of the next signal. One task may wait at a time.
    pub async fn next(&self) -> io::Result<i32> {
        let buf = self.buf.borrow_mut().take().unwrap_or_else(|| BufMut::new(1));
        let (buf, result) = self.from.recv_all(buf, 0..1).await;
        let signal = buf.first().copied();
        *self.buf.borrow_mut() = Some(buf);
        result?;
        Ok(i32::from(signal.unwrap_or_default()))
    }
}

/// Has writes beyond a limit on the size of files (`ulimit -f`) fail as others do: the kernel would end the process, in the midst of
/// whatever it does and without a word.
pub fn ignore_file_size_limit() {
    // SAFETY: ignoring a signal runs no code of ours, and both arguments are the kernel's own constants.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The name of a signal, for logs.
pub fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGTERM => "SIGTERM",
        libc::SIGINT => "SIGINT",
        libc::SIGHUP => "SIGHUP",
        _ => "signal",
    }
}

/// Whether a signal comes only if somebody sends it: a hangup comes by itself, when a terminal is closed or a session ends.
pub fn is_sent(signal: i32) -> bool {
    signal != libc::SIGHUP
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::Reactor;

    #[test]
    fn a_signal_reaches_the_task_that_waits() {
        let reactor = Reactor::new().expect("io_uring");
        let env = reactor.env();
        let got = reactor.block_on(async move {
            let signals = Signals::catch(&env).expect("handlers");
            // SAFETY: sends a signal that is handled to this very process.
            unsafe { libc::kill(libc::getpid(), libc::SIGHUP) };
            signals.next().await.expect("a signal")
        });
        assert_eq!((name(got), is_sent(got)), ("SIGHUP", false));
        assert!([libc::SIGTERM, libc::SIGINT].into_iter().all(is_sent));
    }
}

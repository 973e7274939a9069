//! Sockets on the ring: unix and TCP listeners and streams.
//!
//! A receive or accept whose future is dropped is cancelled; what it had received by then is lost, so this is for
//! connections that end. A send whose future is dropped goes on as far as the socket takes it.

mod at_once;
mod listener;
pub(crate) mod message;

use std::cell::Cell;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use io_uring::{opcode, types::Fd};

use crate::reactor::{HostEnv, Keep, OnDrop};
pub use at_once::{connect_at_once, is_listened_at};
pub use listener::Listener;
pub(crate) use message::Message;
pub use message::Part;

/// `IORING_RECVSEND_POLL_FIRST`: wait until there is something before the first attempt (Linux 5.19).
const POLL_FIRST: u16 = 1;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the kernel of a remote peer may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// A peer of whom nothing was heard for so long is asked whether it is there...
const PROBE_AFTER: Duration = Duration::from_secs(15);
/// ... and again, so often.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Whether a send may go on is asked so often while the peer takes nothing.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// A pause before it is looked again whether a peer that sends no more is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A connected stream socket. Cloning gives another handle; the last one closes it.
#[derive(Clone)]
pub struct Stream {
    env: HostEnv,
    file: Rc<OwnedFd>,
    peer: Rc<str>,
    /// The last receive took all there was: the next one waits for more without looking first.
    drained: Rc<Cell<bool>>,
    /// The message of the last send, to be used again.
    spare: Rc<Cell<Option<Box<Message>>>>,
}

/// Which way of a connection to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing more is read; a waiting receive ends.
    Read,
    /// Nothing more is sent; the peer sees the end of the stream.
    Write,
    /// Both.
    Both,
}

/// What becomes of what the kernel has taken, and not sent yet, when the last handle of a TCP connection is closed. The end of the
/// process closes it, too, whatever ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The kernel goes on sending it for minutes, which whoever connects next knows nothing of.
    Sent,
    /// It is dropped, and the peer is told of a reset.
    Dropped,
}

/// How far a send came that could be forbidden.
#[derive(Debug)]
pub(crate) enum Sent {
    /// To the end.
    All,
    /// It was forbidden before the first byte.
    Nothing,
    /// It was forbidden in the middle: what follows would be taken for the rest.
    Part,
    /// The connection failed.
    Failed(io::Error),
}

impl Stream {
    /// Connects to a unix socket.
    pub async fn connect_unix(env: &HostEnv, path: PathBuf) -> io::Result<Stream> {
        let name = path.display().to_string();
        let stream = env.blocking(move || UnixStream::connect(path)).await??;
        Ok(Stream::wrap(env, stream.into(), name))
    }

    /// Connects to a host and port, trying each of its addresses.
    pub async fn connect_tcp(env: &HostEnv, host: String, port: u16) -> io::Result<Stream> {
        let name = format!("{host}:{port}");
        let connect = move || {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in (host.as_str(), port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, CONNECT) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        let stream = env.blocking(connect).await??;
        stream.set_nodelay(true)?;
        give_up_on_the_dead(&stream)?;
        let stream = Stream::wrap(env, stream.into(), name);
        stream.set_unsent(Unsent::Dropped)?;
        Ok(stream)
    }

    /// Two connected unix sockets.
    pub fn pair(env: &HostEnv) -> io::Result<(Stream, Stream)> {
        let (a, b) = UnixStream::pair()?;
        Ok((Stream::wrap(env, a.into(), "pair".into()), Stream::wrap(env, b.into(), "pair".into())))
    }

    /// Takes over a connected stream socket, for instance one that was passed by the service manager.
    pub fn from_fd(env: &HostEnv, fd: OwnedFd, peer: &str) -> Stream {
        Stream::wrap(env, fd, peer.into())
    }

    pub(crate) fn wrap(env: &HostEnv, fd: OwnedFd, peer: String) -> Stream {
        Stream { env: env.clone(), file: Rc::new(fd), peer: peer.into(), drained: Rc::default(), spare: Rc::default() }
    }

    /// Who is at the other end, for people.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// User id of the process at the other end of a unix socket.
    pub fn peer_uid(&self) -> Option<u32> {
        self.credentials().map(|c| c.uid)
    }

    /// Process id at the other end of a unix socket.
    pub fn peer_pid(&self) -> Option<i32> {
        self.credentials().map(|c| c.pid)
    }

    fn credentials(&self) -> Option<libc::ucred> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the pointers are to a ucred and its length, both valid for the call.
        let rc = unsafe {
            libc::getsockopt(
                self.file.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &mut len,
            )
        };
        (rc == 0 && found.uid != u32::MAX).then_some(found)
    }

    /// Receives what is there, at least one byte, into `buf[range]`, and gives the buffer back with the number of
    /// bytes. 0 means that the peer closed (or that the range is empty).
    pub async fn recv(&self, buf: BufMut, range: Range<usize>) -> (BufMut, io::Result<usize>) {
        self.recv_with(buf, range, 0).await
    }

    /// Fills all of `buf[range]`; an end of the stream before that is an `UnexpectedEof`.
    pub async fn recv_all(&self, mut buf: BufMut, mut range: Range<usize>) -> (BufMut, io::Result<()>) {
        while !range.is_empty() {
            let result;
            (buf, result) = self.recv_with(buf, range.clone(), libc::MSG_WAITALL).await;
            match result {
                Ok(0) => return (buf, Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => range.start += n,
                Err(error) => return (buf, Err(error)),
            }
        }
        (buf, Ok(()))
    }

    async fn recv_with(&self, mut buf: BufMut, range: Range<usize>, flags: i32) -> (BufMut, io::Result<usize>) {
        if range.is_empty() {
            return (buf, Ok(0));
        }
        loop {
            let part = &mut buf[range.clone()];
            let len = part.len().min(1 << 30) as u32;
            let hint = if self.drained.get() { POLL_FIRST } else { 0 };
            let entry = opcode::Recv::new(Fd(self.file.as_raw_fd()), part.as_mut_ptr(), len);
            let entry = entry.flags(flags).ioprio(hint).build();
            // SAFETY: `part` lies in the memory of `buf`, whose pages do not move with it; both are handed over.
            let op = unsafe { self.env.core().start(entry, Keep::Read(buf), Some(self.file.clone()), OnDrop::Cancel) };
            let (result, keep) = op.await;
            let Keep::Read(back) = keep else { unreachable!("an operation gives back what it was given") };
            buf = back;
            match usize::try_from(result) {
                Ok(n) => {
                    self.drained.set(n < len as usize);
                    return (buf, Ok(n));
                }
                Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => {}
                Err(_) => return (buf, Err(io::Error::from_raw_os_error(-result))),
            }
        }
    }

    /// Sends all parts in order, as one stream of bytes, and gives them back. One send at a time per connection: two at
    /// once may mix their bytes.
    pub async fn send(&self, parts: Vec<Part>) -> (Vec<Part>, io::Result<()>) {
        let mut message = self.spare.take().unwrap_or_else(Message::new);
        message.begin(parts);
        loop {
            if !message.prepare() {
                return self.sent(message, Ok(()));
            }
            let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
            let entry = opcode::SendMsg::new(Fd(self.file.as_raw_fd()), message.header()).flags(flags).build();
            let keep = Keep::Message(message);
            // SAFETY: the header and all it points to are owned by the boxed message, which is handed over.
            let op = unsafe { self.env.core().start(entry, keep, Some(self.file.clone()), OnDrop::Finish) };
            let (result, keep) = op.await;
            let Keep::Message(back) = keep else { unreachable!("an operation gives back what it was given") };
            message = back;
            match usize::try_from(result) {
                Ok(n) => message.advance(n),
                Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => {}
                Err(_) => return self.sent(message, Err(io::Error::from_raw_os_error(-result))),
            }
        }
    }

    /// Sends all parts in order as [`Stream::send`] does, but no byte without asking `may` just before, with whether some is sent:
    /// whoever has stood still meanwhile must not go on without a question. It is asked again and again while the peer takes nothing.
    /// What the kernel has taken it sends until the connection is closed or [given up](Stream::abort).
    pub(crate) async fn send_while(&self, parts: Vec<Part>, may: impl Fn(bool) -> bool) -> (Vec<Part>, Sent) {
        let mut message = self.spare.take().unwrap_or_else(Message::new);
        message.begin(parts);
        let mut begun = false;
        let sent = loop {
            if !message.prepare() {
                break Sent::All;
            }
            if !may(begun) {
                break if begun { Sent::Part } else { Sent::Nothing };
            }
            match self.send_now(&message) {
                Ok(n) => {
                    begun = true;
                    message.advance(n);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _in_time = self.env.timeout(ASK_AGAIN, self.poll(libc::POLLOUT)).await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Sent::Failed(error),
            }
        };
        let (parts, _) = self.sent(message, Ok(()));
        (parts, sent)
    }

    /// Hands over what the kernel takes at once. Not by the ring, where a request waits for the end of the turn: what was asked before
    /// it would be old by then.
    fn send_now(&self, message: &Message) -> io::Result<usize> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the header and all it points to are owned by the message, which outlives the call.
        let sent = unsafe { libc::sendmsg(self.file.as_raw_fd(), message.header(), flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn sent(&self, mut message: Box<Message>, result: io::Result<()>) -> (Vec<Part>, io::Result<()>) {
        let parts = message.take_parts();
        self.spare.set(Some(message));
        (parts, result)
    }

    /// Completes when the peer is gone: the connection is closed in both directions, or has failed. A peer that only says
    /// that it will send no more is still there. May never complete.
    pub async fn hung_up(&self) {
        self.poll(libc::POLLHUP | libc::POLLERR).await;
    }

    /// Completes when the peer sends no more, or the connection has failed. Of one that has closed it no more is seen over TCP, until
    /// something is sent to it, nor through a tunnel. May never complete.
    pub async fn half_closed(&self) {
        self.poll(libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR).await;
    }

    /// Completes when one of these is so.
    async fn poll(&self, events: libc::c_short) {
        loop {
            let entry = opcode::PollAdd::new(Fd(self.file.as_raw_fd()), events as u32).build();
            // SAFETY: the entry points to no memory, and the file is handed over.
            let op = unsafe { self.env.core().start(entry, Keep::None, Some(self.file.clone()), OnDrop::Cancel) };
            let (result, _) = op.await;
            // An end is an answer to any question: the next call tells what it was.
            if result > 0 && result & i32::from(events | libc::POLLHUP | libc::POLLERR) != 0 {
                return;
            }
            // An error, or half of an end, which the ring tells of whether asked or not.
            self.env.sleep(LOOK_AGAIN).await;
        }
    }

    /// Closes one way or both; what waits there ends.
    pub fn shutdown(&self, way: Way) -> io::Result<()> {
        let how = match way {
            Way::Read => libc::SHUT_RD,
            Way::Write => libc::SHUT_WR,
            Way::Both => libc::SHUT_RDWR,
        };
        // SAFETY: takes two integers; the descriptor is open while `self.file` lives.
        if unsafe { libc::shutdown(self.file.as_raw_fd(), how) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Gives the connection up: of what the kernel has not sent yet nothing is, over TCP, and what waits here ends.
    pub fn abort(&self) {
        let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
        // SAFETY: the pointer is to an address of that size, valid for the call.
        // An error means that the connection has ended already, or that it is a unix socket: what that has taken, the peer has.
        let _ = unsafe { libc::connect(self.file.as_raw_fd(), &raw const none, size_of_val(&none) as libc::socklen_t) };
        // A kernel that forbids it while somebody waits (Linux 6.4 to 6.6) drops it with the last handle.
        let _ = self.shutdown(Way::Both);
    }

    /// How many of the last bytes that were sent over TCP the peer's kernel may not have: this one goes on sending them until the
    /// connection is [given up](Stream::abort). None over a unix socket: what that has taken the peer has, and keeps when the connection
    /// ends. (Asked the same, it tells what memory the peer has not read takes.)
    pub(crate) fn unacknowledged(&self) -> u64 {
        let fd = self.file.as_raw_fd();
        if get_option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).is_ok_and(|domain| domain == libc::AF_UNIX) {
            return 0;
        }
        let mut bytes: libc::c_int = 0;
        // SAFETY: the pointer is to an int, valid for the call. The request is SIOCOUTQ, by its other name.
        let rc = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
        // Where that is not known, none has arrived.
        u64::try_from(bytes).ok().filter(|_| rc == 0).unwrap_or(u64::MAX)
    }

    /// Says what becomes of what was not sent when the connection is closed.
    pub fn set_unsent(&self, unsent: Unsent) -> io::Result<()> {
        let linger = libc::linger { l_onoff: libc::c_int::from(unsent == Unsent::Dropped), l_linger: 0 };
        let fd = self.file.as_raw_fd();
        set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
    }
}

/// Lets a connection fail when the peer has not said for [`SILENCE`] that it is still there: a machine that lost its power sends no
/// farewell. It may take as long as it likes to receive, for instance while its machine is paused, as long as the machine's kernel answers. If
/// that is dead and something was sent to it, the kernel gives up after a quarter of an hour; who is owed an answer has limits of its own.
fn give_up_on_the_dead(stream: &TcpStream) -> io::Result<()> {
    let probes = (SILENCE - PROBE_AFTER).as_secs() / PROBE_EVERY.as_secs();
    set(stream, libc::TCP_KEEPIDLE, PROBE_AFTER.as_secs() as libc::c_int)?;
    set(stream, libc::TCP_KEEPINTVL, PROBE_EVERY.as_secs() as libc::c_int)?;
    set(stream, libc::TCP_KEEPCNT, probes as libc::c_int)?;
    set_option(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1)
}

fn set(stream: &TcpStream, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_option(stream.as_raw_fd(), libc::IPPROTO_TCP, name, &value)
}

fn set_option<T>(socket: RawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer is to a value of that size, valid for the call.
    match unsafe { libc::setsockopt(socket, level, name, (&raw const *value).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get_option(socket: RawFd, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let (mut value, mut len) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the pointers are to an int and its length, both valid for the call.
    match unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast(), &mut len) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;

use std::future::Future;

use super::*;
use crate::reactor::Reactor;
use bimetal_volume::env::Env;

#[test]
fn parts_arrive_in_order_over_a_unix_socket() {
    let reactor = Reactor::new().expect("io_uring");
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("s");
    let env = reactor.env();
    let listener = Listener::bind_unix(&env, &path, 0o600).expect("bind");
    let at = path.clone();
    reactor.block_on(async move {
        let server = listener.clone();
        env.spawn(async move {
            let stream = server.accept().await.expect("accept");
            assert!(stream.peer_uid().is_some());
            let data = BufMut::copy_of(&vec![7u8; 3 << 20]).freeze();
            let parts = vec![Part::Bytes(b"head".to_vec()), Part::Zero(100_000), Part::Buf(data)];
            let (parts, result) = stream.send(parts).await;
            result.expect("all sent");
            assert_eq!(parts.len(), 3);
        });
        let stream = Stream::connect_unix(&env, at).await.expect("connect");
        let total = 4 + 100_000 + (3 << 20);
        let (buf, result) = stream.recv_all(BufMut::new(total), 0..total).await;
        result.expect("all received");
        assert_eq!(&buf[..4], b"head");
        assert!(buf[4..100_004].iter().all(|b| *b == 0));
        assert!(buf[100_004..].iter().all(|b| *b == 7));
        let (_, end) = stream.recv(buf, 0..10).await;
        assert_eq!(end.expect("orderly end"), 0);
    });
    drop(reactor);
    assert!(!path.exists(), "the socket file goes with the listener");
}

#[test]
fn a_dropped_receive_is_cancelled_and_the_buffer_comes_back() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let (a, b) = Stream::pair(&env).expect("pair");
        {
            let waiting = a.recv(BufMut::new(100), 0..100);
            let short = env.sleep(Duration::from_millis(5));
            let mut waiting = Box::pin(waiting);
            let mut short = Box::pin(short);
            std::future::poll_fn(|cx| {
                assert!(waiting.as_mut().poll(cx).is_pending());
                short.as_mut().poll(cx)
            })
            .await;
        }
        b.send(vec![Part::Bytes(b"late".to_vec())]).await.1.expect("sent");
        let (buf, n) = a.recv(BufMut::new(100), 0..100).await;
        assert_eq!(&buf[..n.expect("received")], b"late", "the cancelled receive took nothing");
    });
}

/// What a peer over TCP, which reads nothing until then, gets to read when the connection to it ends in this way. The kernel has taken more by
/// then than the peer's has room for.
fn read_after(end: impl FnOnce(Stream) + 'static) -> io::Result<u64> {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("listen");
    let port = listener.local_addr().expect("address").port();
    let mut peer = reactor.block_on(async move {
        let stream = Stream::connect_tcp(&env, "127.0.0.1".into(), port).await.expect("connect");
        let (peer, _) = listener.accept().expect("accept");
        let since = env.now();
        let may = |_| env.now().since(since) < Duration::from_millis(100);
        let (_, sent) = stream.send_while(vec![Part::Zero(64 << 20)], may).await;
        assert!(matches!(sent, Sent::Part), "{sent:?}");
        end(stream);
        env.sleep(Duration::from_millis(50)).await;
        peer
    });
    io::copy(&mut peer, &mut io::sink())
}

#[test]
fn what_the_kernel_has_not_sent_is_not_sent_after_an_end_but_an_orderly_one() {
    let reset = |end: io::Result<u64>| assert_eq!(end.expect_err("a reset").kind(), io::ErrorKind::ConnectionReset);
    // The end of a process closes its connections.
    reset(read_after(drop));
    reset(read_after(|s| {
        s.set_unsent(Unsent::Sent).expect("set");
        s.abort();
    }));
    let all = read_after(|s| s.set_unsent(Unsent::Sent).expect("set")).expect("an orderly end");
    assert!(all > 0);
}

#[test]
fn a_peer_that_is_gone_is_noticed_although_it_left_something_to_read() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let (a, b) = Stream::pair(&env).expect("pair");
        b.send(vec![Part::Bytes(b"last words".to_vec())]).await.1.expect("sent");
        b.shutdown(Way::Write).expect("shutdown");
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(20));
        assert!(env.timeout(long, a.half_closed()).await.is_some());
        assert!(env.timeout(short, a.hung_up()).await.is_none(), "it still takes answers");
        a.send(vec![Part::Bytes(b"answer".to_vec())]).await.1.expect("sent");
        drop(b);
        assert!(env.timeout(long, a.hung_up()).await.is_some());
        let (buf, n) = a.recv(BufMut::new(100), 0..100).await;
        assert_eq!(&buf[..n.expect("received")], b"last words");
    });
}

/// No more is seen of it than the end of its stream, until something is sent to it.
#[test]
fn a_peer_that_is_gone_over_tcp_is_noticed() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let listener = Listener::bind_tcp(&env, ([127, 0, 0, 1], 0).into()).expect("bind");
        let client = std::net::TcpStream::connect(listener.address().expect("address")).expect("connect");
        let server = listener.accept().await.expect("accept");
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(20));
        assert!(env.timeout(short, server.half_closed()).await.is_none(), "it is there");
        drop(client);
        assert!(env.timeout(long, server.half_closed()).await.is_some());
        server.send(vec![Part::Bytes(b"answer".to_vec())]).await.1.expect("taken");
        assert!(env.timeout(long, server.hung_up()).await.is_some());
    });
}

/// Whether the kernel looks after a silent peer, after how many seconds, how often in between and in all, and for how many milliseconds
/// what was sent may be unconfirmed.
fn patience(s: &Stream) -> [libc::c_int; 5] {
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    ];
    options.map(|(level, name)| {
        let (mut value, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the pointers are to an int and its length, both valid for the call.
        let rc = unsafe { libc::getsockopt(s.file.as_raw_fd(), level, name, (&raw mut value).cast(), &mut len) };
        assert_eq!(rc, 0);
        value
    })
}

#[test]
fn tcp_connects_and_a_refused_port_says_so() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let listener = Listener::bind_tcp(&env, "127.0.0.1:0".parse().expect("address")).expect("bind");
        let port = listener.address().expect("tcp").port();
        let server = listener.clone();
        env.spawn(async move {
            let s = server.accept().await.expect("accept");
            assert_eq!(patience(&s), [1, 15, 5, 9, 0], "a client that is paused may come back to its answers");
            s.send(vec![Part::Bytes(b"hi".to_vec())]).await.1.expect("sent");
        });
        let s = Stream::connect_tcp(&env, "127.0.0.1".into(), port).await.expect("connect");
        assert_eq!(patience(&s), [1, 15, 5, 9, 0], "so may a server; for its answers there are limits elsewhere");
        let (buf, result) = s.recv_all(BufMut::new(2), 0..2).await;
        result.expect("received");
        assert_eq!(&buf[..], b"hi");
        drop(listener);
        s.shutdown(Way::Both).expect("shutdown");
    });
}

#[test]
fn a_socket_in_use_is_left_alone_and_a_dead_one_replaced() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("s");
    let first = Listener::bind_unix(&env, &path, 0o600).expect("bind");
    let again = Listener::bind_unix(&env, &path, 0o600).err().expect("in use");
    assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    drop(first);
    drop(std::os::unix::net::UnixListener::bind(&path).expect("leaves its file behind"));
    Listener::bind_unix(&env, &path, 0o600).expect("a dead socket is replaced");
    std::fs::write(&path, b"data").expect("a file");
    assert!(Listener::bind_unix(&env, &path, 0o600).is_err());
    assert_eq!(std::fs::read(&path).expect("untouched"), b"data");
}

#[test]
fn a_send_that_is_forbidden_before_its_first_byte_has_sent_nothing_and_later_it_has_sent_a_part() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let (a, b) = Stream::pair(&env).expect("pair");
        let allowed = Cell::new(true);
        let short = Duration::from_millis(50);
        // Fills the socket.
        let first = a.send_while(vec![Part::Zero(4 << 20)], |_| allowed.get());
        let mut first = std::pin::pin!(first);
        assert!(env.timeout(short, first.as_mut()).await.is_none());
        let second = a.send_while(vec![Part::Zero(5)], |_| allowed.get());
        let mut second = std::pin::pin!(second);
        assert!(env.timeout(short, second.as_mut()).await.is_none(), "there is no room");
        allowed.set(false);
        let (buf, received) = b.recv(BufMut::new(4 << 20), 0..4 << 20).await;
        received.expect("received");
        let long = Duration::from_secs(20);
        let (parts, nothing) = env.timeout(long, second).await.expect("it ends");
        assert!(matches!(nothing, Sent::Nothing) && parts.len() == 1, "{nothing:?}");
        let (_, part) = env.timeout(long, first).await.expect("it ends");
        assert!(matches!(part, Sent::Part), "{part:?}");
        drop(b);
        allowed.set(true);
        let failed = a.send_while(vec![Part::Zero(buf.len())], |_| allowed.get()).await.1;
        assert!(matches!(failed, Sent::Failed(_)), "{failed:?}");
    });
}

#[test]
fn the_end_of_a_listener_leaves_the_socket_of_another_alone() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("s.sock");
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let first = Listener::bind_unix(&env, &path, 0o600).expect("bind");
    std::fs::remove_file(&path).expect("removed before its end");
    let second = Listener::bind_unix(&env, &path, 0o600).expect("bind");
    drop(first);
    assert!(path.exists(), "it is the second one's");
    drop(second);
    assert!(!path.exists());
}

#[test]
fn who_listens_and_stands_still_keeps_the_socket_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("s.sock");
    let other = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    // SAFETY: takes integers. Its queue has room for one connection now.
    assert_eq!(unsafe { libc::listen(other.as_raw_fd(), 0) }, 0);
    let waits = connect_at_once(&path).expect("connect");
    assert_eq!(connect_at_once(&path).expect_err("the queue is full").kind(), io::ErrorKind::WouldBlock);
    let reactor = Reactor::new().expect("io_uring");
    let bind = || Listener::bind_unix(&reactor.env(), &path, 0o600);
    let refused = bind().err().expect("it is another's");
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    assert!(refused.to_string().contains("is in use: a process listens there"), "{refused}");
    drop((other, waits));
    drop(bind().expect("nobody listens any more"));

    let datagrams = std::os::unix::net::UnixDatagram::bind(&path).expect("bind");
    assert!(bind().is_err(), "another kind of socket has an owner, too");
    drop(datagrams);
    drop(bind().expect("it has none any more"));
    let long = dir.path().join("x".repeat(200));
    assert_eq!(connect_at_once(&long).expect_err("too long").kind(), io::ErrorKind::InvalidInput);
}

//! What the kernel still has to send when somebody else may have the member.

use std::future::Future;

use super::lease::take_when_told;
use super::*;
use crate::device::nbd::lease::{hold, Held};

/// Longer than a holder that is starting may finish what it has begun.
const LONG: Duration = Duration::from_millis(600);

/// Does something with a member whose server takes nothing until `LONG` after that, by TCP or else by a unix socket. Why the connection
/// was lost by then, and how many bytes the server has in the end.
fn beside_a_standstill(
    by_tcp: bool,
    test: impl AsyncFnOnce(&HostEnv, &NbdDevice) + 'static,
) -> (Option<String>, usize) {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let dir = tempfile::tempdir().expect("temp dir");
    let socket = dir.path().join("s");
    let listener = match by_tcp {
        true => Listener::bind_tcp(&env, ([127, 0, 0, 1], 0).into()).expect("bound"),
        false => Listener::bind_unix(&env, &socket, 0o600).expect("bound"),
    };
    let server = listener.address().map_or(NbdServer::Unix(socket), |a| NbdServer::Tcp(a.ip().to_string(), a.port()));
    reactor.block_on(async move {
        let (told, taken) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None)));
        let (beginning, end, its) = (told.clone(), taken.clone(), env.clone());
        env.spawn(async move {
            take_when_told(its, listener.accept().await.expect("a client"), beginning, end).await;
        });
        let locator = NbdLocator { server, export: String::new() };
        let device = NbdDevice::open(&env, &locator, UNLOCKED).await.expect("opens");
        hold(&env, &device, Held::new(&env, None, Some(0)));
        test(&env, &device).await;
        env.sleep(LONG).await;
        let lost = device.answering().lost;
        told.set(true);
        // It takes what is there.
        env.sleep(LONG).await;
        device.give_up("the test ends");
        while taken.get().is_none() {
            env.sleep(Duration::from_millis(5)).await;
        }
        (lost, taken.get().unwrap_or_default())
    })
}

/// Asks for something that is never answered.
fn ask(env: &HostEnv, request: impl Future<Output = Result<(), DeviceError>> + 'static) {
    env.spawn(async move { assert_eq!(request.await, Err(DeviceError::Disconnected)) });
}

#[test]
fn a_write_that_the_kernel_has_still_to_send_is_dropped_before_another_may_have_the_member() {
    let (lost, taken) = beside_a_standstill(true, async |env, device| {
        // More than the server's kernel takes, and less than ours does.
        let write = device.clone();
        ask(env, async move { write.write(0, pattern(1, 512 << 10)).await });
    });
    assert!(lost.as_ref().is_some_and(|why| why.contains("on the way were dropped")), "{lost:?}");
    assert!(taken < 512 << 10, "{taken}");
}

#[test]
fn a_connection_on_which_only_reads_and_flushes_wait_outlasts_an_outage() {
    let (lost, taken) = beside_a_standstill(true, async |env, device| {
        // The server's kernel takes it.
        let write = device.clone();
        ask(env, async move { write.write(0, pattern(1, 4096)).await });
        env.sleep(Duration::from_millis(20)).await;
        while device.handle.client.unacknowledged() > 0 {
            env.sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..16384 {
            let flush = device.clone();
            ask(env, async move { flush.sync().await });
        }
        env.sleep(Duration::from_millis(100)).await;
        assert!(device.handle.client.unacknowledged() > 0, "the server's kernel takes no more");
    });
    assert_eq!(lost, None);
    assert_eq!(taken, Request::COMPACT_SIZE + 4096 + 16384 * Request::COMPACT_SIZE);
}

#[test]
fn what_a_unix_socket_has_taken_the_server_has() {
    let (lost, taken) = beside_a_standstill(false, async |env, device| {
        let write = device.clone();
        ask(env, async move { write.write(0, pattern(1, 64 << 10)).await });
        env.sleep(Duration::from_millis(20)).await;
        assert_eq!(device.handle.client.unacknowledged(), 0);
    });
    assert_eq!(lost, None, "to give it up would take nothing back");
    assert_eq!(taken, Request::COMPACT_SIZE + (64 << 10));
}

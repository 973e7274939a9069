//! Who only reads a member, beside others.

use bimetal_volume::env::Device;

use super::super::lease::{is_gone_by, of_this_process};
use super::lease::{holder, on_a_member, peek, serve, serve_elsewhere, serve_here_as, serve_in_use, UNUSED};
use super::*;

async fn inspect(env: &HostEnv, locator: &NbdLocator) -> Result<NbdDevice, String> {
    NbdDevice::open(env, locator, Access::READ).await.map_err(|e| e.to_string())
}

#[test]
fn who_only_reads_is_refused_while_somebody_serves_and_leaves_nothing_behind() {
    on_a_member(async |env, locator, _server| {
        let first = serve_in_use(&env, &locator).await;
        let refused = inspect(&env, &locator).await.err().expect("the first has it");
        assert!(refused.contains("in use by this very command, by another name"), "{refused}");
        let refused = serve_here_as(&env, &locator, Access::READ).await.err().expect("the first has it");
        assert!(refused.contains("slow.img is in use by this very command"), "{refused}");
        first.write(UNUSED, pattern(1, 4096)).await.expect("the refusals cost the first nothing");
        drop(first);
        serve_here_as(&env, &locator, Access::READ).await.expect("the first has let go");
        let (one, other) = (inspect(&env, &locator).await, inspect(&env, &locator).await);
        for device in [one, other] {
            let (bytes, result) = device.expect("several may read").read(UNUSED, BufMut::new(4096)).await;
            result.expect("read");
            assert!(bytes[..] == pattern(1, 4096)[..]);
        }
        let left = holder(&peek(&env, &locator).await).await.expect("a mark");
        assert!(left.is_mark() && is_gone_by(&left, &of_this_process(&env), |_| None), "nobody has to be waited for");
        serve(&env, &locator).await.expect("who reads keeps no writer out");
    });
}

#[test]
fn who_only_reads_believes_nothing_once_somebody_has_come_to_write() {
    on_a_member(async |env, locator, _server| {
        let device = inspect(&env, &locator).await.expect("nobody has it");
        let (_, result) = device.read(UNUSED, BufMut::new(4096)).await;
        result.expect("nobody is there");
        serve_elsewhere(locator);
        let (bytes, result) = device.read(UNUSED, BufMut::new(4096)).await;
        let others = bytes[..] == pattern(2, 4096)[..];
        assert_eq!(result, Err(DeviceError::Disconnected), "what the other wrote: {others}");
        let lost = device.answering().lost.expect("lost");
        assert!(lost.contains("a daemon that writes has come"), "{lost}");
    });
}

/// That one holds no lease, and its kernel's lock keeps nobody out who has the member by a server.
#[test]
fn who_only_reads_believes_nothing_once_somebody_has_come_to_write_where_the_device_is() {
    on_a_member(async |env, locator, _server| {
        let readers = [inspect(&env, &locator).await, inspect(&env, &locator).await];
        let writer = serve_here_as(&env, &locator, Access::SERVE).await.expect("the server locks nothing");
        writer.write(UNUSED, pattern(2, 4096)).await.expect("written");
        for device in readers {
            let device = device.expect("several may read");
            let (_, result) = device.read(UNUSED, BufMut::new(4096)).await;
            assert_eq!(result, Err(DeviceError::Disconnected));
        }
        drop(writer);
        assert_eq!(holder(&peek(&env, &locator).await).await, None, "what it leaves names nobody, and is no mark");
    });
}

/// Opens the member beside another who has begun to so long ago.
async fn beside(
    env: &HostEnv,
    locator: &NbdLocator,
    after: Duration,
    accesses: [Access; 2],
) -> [Result<NbdDevice, String>; 2] {
    let other: Rc<Cell<Option<Result<NbdDevice, String>>>> = Rc::default();
    let (theirs, env2, locator2) = (other.clone(), env.clone(), locator.clone());
    env.spawn(async move {
        let opened = NbdDevice::open(&env2, &locator2, accesses[1]).await;
        theirs.set(Some(opened.map_err(|e| e.to_string())));
    });
    env.sleep(after).await;
    let one = NbdDevice::open(env, locator, accesses[0]).await.map_err(|e| e.to_string());
    loop {
        match other.take() {
            Some(other) => break [one, other],
            None => env.sleep(Duration::from_millis(5)).await,
        }
    }
}

/// On a member each, the second one comes so long after the first: from the same moment to when that one has its answer.
fn at_some_moments(test: impl AsyncFn(HostEnv, NbdLocator, Duration) + Copy + 'static) {
    for after in [0, 1, 5, 20, 40, 60] {
        on_a_member(async move |env, locator, _server| test(env, locator, Duration::from_millis(after)).await);
    }
}

#[test]
fn two_who_come_to_read_at_the_same_time_both_read() {
    at_some_moments(async |env, locator, after| {
        for device in beside(&env, &locator, after, [Access::READ; 2]).await {
            let (_, result) = device.expect("it reads").read(UNUSED, BufMut::new(4096)).await;
            result.expect("read");
        }
    });
}

async fn read_beside_a_writer(reader: Result<NbdDevice, String>, writer: Result<NbdDevice, String>) {
    let _writer = writer.expect("who reads keeps no writer out");
    if let Ok(reader) = reader {
        let (_, result) = reader.read(UNUSED, BufMut::new(4096)).await;
        assert_eq!(result, Err(DeviceError::Disconnected), "a writer has come");
    }
}

#[test]
fn who_comes_to_write_while_somebody_comes_to_read_is_not_refused() {
    at_some_moments(async |env, locator, after| {
        let [writer, reader] = beside(&env, &locator, after, [Access::SERVE, Access::READ]).await;
        read_beside_a_writer(reader, writer).await;
    });
    at_some_moments(async |env, locator, after| {
        let [reader, writer] = beside(&env, &locator, after, [Access::READ, Access::SERVE]).await;
        read_beside_a_writer(reader, writer).await;
    });
}

#[test]
fn what_cannot_be_written_is_read_beside_what_a_dead_holder_left() {
    on_a_member(async |env, locator, server| {
        drop(serve(&env, &locator).await.expect("nobody has it"));
        let NbdServer::Unix(socket) = &locator.server else { unreachable!("on a unix socket") };
        let file = format!("file={}", socket.with_file_name("slow.img").display());
        drop(server);
        let dir = tempfile::tempdir().expect("temp dir");
        let Some((_server, locator)) = nbdkit(dir.path(), &["-r", "file", &file]) else { return };
        let device = inspect(&env, &locator).await.expect("it is gone");
        let (_, result) = device.read(UNUSED, BufMut::new(4096)).await;
        result.expect("read");
    });
}

/// An inspection writes nothing, and so can only find who is on this machine.
#[test]
fn who_inspects_leaves_a_dead_holders_lease_where_it_is() {
    on_a_member(async |env, locator, _server| {
        drop(serve(&env, &locator).await.expect("nobody has it"));
        let before = holder(&peek(&env, &locator).await).await;
        assert!(before.is_some(), "a holder that ends leaves its lease");
        NbdDevice::open(&env, &locator, Access::INSPECT).await.expect("it is gone");
        assert_eq!(holder(&peek(&env, &locator).await).await.map(|h| h.nonce), before.map(|h| h.nonce));
    });
}

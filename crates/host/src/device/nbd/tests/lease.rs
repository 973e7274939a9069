//! Who may serve a member behind a server.

use std::future::{poll_fn, Future};
use std::task::Poll;

use bimetal_format::{label::Label, layout, layout::LABEL_A, lease::Lease, BLOCK};
use bimetal_volume::group::Group;
use bimetal_volume::options::{CreateOptions, NewVolume};
use bimetal_volume::units::{Placement, Tier};

use super::super::lease::{label_of, look, Held};
use super::*;
use crate::device::HostDevice;
use crate::reactor::clock::tests::SLEPT;
use crate::Locator;

pub(super) const SIZE: u64 = 64 << 20;
/// Longer than a holder goes on without seeing its own lease.
const STANDSTILL: Duration = Duration::from_millis(800);

/// A group on two files, the second of which is behind a server.
pub(super) fn on_a_member(test: impl AsyncFnOnce(HostEnv, NbdLocator, Server) + 'static) {
    let dir = tempfile::tempdir().expect("temp dir");
    let paths = ["fast.img", "slow.img"].map(|name| dir.path().join(name));
    for path in &paths {
        std::fs::File::create(path).and_then(|f| f.set_len(SIZE)).expect("a file");
    }
    let file = format!("file={}", paths[1].display());
    let Some((server, locator)) = nbdkit(dir.path(), &["file", &file]) else { return };
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let mut members = Vec::new();
        for (path, tier) in paths.iter().zip([Tier::Fast, Tier::Slow]) {
            let locator = Locator::parse(path.to_str().expect("a name")).expect("a path");
            let device = HostDevice::open(&env, &locator, Access::SERVE).await.expect("opens");
            members.push((device, tier));
        }
        let volume = NewVolume { name: "main".into(), size: None, placement: Placement::Auto };
        let options = CreateOptions {
            name: "leased".into(),
            volumes: vec![volume],
            sector_size: 4096,
            reserve: None,
            journal_blocks: Some(16),
        };
        Group::create(&env, members, &options).await.expect("creation");
        test(env, locator, server).await;
    });
}

pub(super) async fn serve(env: &HostEnv, locator: &NbdLocator) -> Result<NbdDevice, String> {
    NbdDevice::open(env, locator, Access::SERVE).await.map_err(|e| e.to_string())
}

/// The same of one that has been in use for a while, which may stand still for longer: the machine may be busy.
pub(super) async fn serve_in_use(env: &HostEnv, locator: &NbdLocator) -> NbdDevice {
    let device = serve(env, locator).await.expect("nobody has it");
    device.handle.client.lease.get().expect("a holder").has_begun();
    device
}

pub(super) async fn peek(env: &HostEnv, locator: &NbdLocator) -> NbdDevice {
    let access = Access { write: true, lock: false, ask: false };
    NbdDevice::open(env, locator, access).await.expect("opens")
}

/// Opens the file behind the server.
async fn serve_here(env: &HostEnv, locator: &NbdLocator) -> Result<HostDevice, String> {
    serve_here_as(env, locator, Access::SERVE).await
}

pub(super) async fn serve_here_as(env: &HostEnv, locator: &NbdLocator, access: Access) -> Result<HostDevice, String> {
    let NbdServer::Unix(socket) = &locator.server else { unreachable!("on a unix socket") };
    HostDevice::open(env, &Locator::Path(socket.with_file_name("slow.img")), access).await.map_err(|e| e.to_string())
}

/// Writes the lease of a holder on another machine.
async fn challenge(device: &NbdDevice) {
    challenge_as(device, 7).await;
}

async fn challenge_as(device: &NbdDevice, nonce: u64) {
    let stranger = Lease { group: [1; 16], nonce, boot: [9; 16], namespace: 4, process: 1, began: 3 };
    let mut block = BufMut::new(BLOCK);
    stranger.encode(&mut block);
    device.write(layout::lease(SIZE), block.freeze()).await.expect("written");
}

pub(super) async fn holder(device: &NbdDevice) -> Option<Lease> {
    let (block, result) = device.read(layout::lease(SIZE), BufMut::new(BLOCK)).await;
    result.expect("read");
    Lease::decode(&block)
}

#[test]
fn a_second_one_is_refused_while_the_first_serves_and_not_afterwards() {
    on_a_member(async |env, locator, _server| {
        let first = serve(&env, &locator).await.expect("nobody has it");
        let refused = serve(&env, &locator).await.err().expect("the first has it");
        assert!(refused.contains("in use by this very command, by another name"), "{refused}");
        // The refusal cost the first nothing.
        first.write(0, pattern(1, 4096)).await.expect("written");
        drop(first);
        serve(&env, &locator).await.expect("the first has let go");
    });
}

#[test]
fn who_died_on_another_machine_is_waited_for_and_then_replaced() {
    on_a_member(async |env, locator, _server| {
        let looks = peek(&env, &locator).await;
        let clean = label_of(&looks).await.expect("read").expect("a label").clean;
        challenge(&looks).await;
        let began = env.now();
        let device = serve(&env, &locator).await.expect("nobody answers");
        let waited = env.now().since(began);
        assert!(waited >= Duration::from_millis(700) || clean && waited >= Duration::from_millis(240), "{waited:?}");
        assert_eq!(holder(&looks).await.map(|l| l.process), Some(std::process::id()));
        device.write(0, pattern(1, 4096)).await.expect("written");
    });
}

#[test]
fn a_holder_takes_the_lease_back_from_a_challenger() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        let looks = peek(&env, &locator).await;
        for nonce in 0..3 {
            challenge_as(&looks, nonce).await;
            env.sleep(Duration::from_millis(400)).await;
            assert_eq!(holder(&looks).await.map(|l| l.process), Some(std::process::id()));
        }
        device.write(0, pattern(1, 4096)).await.expect("it goes on");
    });
}

#[test]
fn who_opens_the_file_of_a_member_that_is_served_by_a_server_is_refused_until_that_ends() {
    on_a_member(async |env, locator, _server| {
        let first = serve(&env, &locator).await.expect("nobody has it");
        let refused = serve_here(&env, &locator).await.err().expect("the first has it");
        assert!(refused.contains("slow.img is in use by this very command, by another name"), "{refused}");
        first.write(UNUSED, pattern(1, 4096)).await.expect("the refusal cost the first nothing");
        drop(first);
        serve_here(&env, &locator).await.expect("the first has let go");
        assert_eq!(holder(&peek(&env, &locator).await).await, None, "nobody has to be waited for");
    });
}

#[test]
fn who_died_elsewhere_is_waited_for_by_who_opens_the_file_and_not_again() {
    on_a_member(async |env, locator, _server| {
        let looks = peek(&env, &locator).await;
        challenge(&looks).await;
        let began = env.now();
        serve_here(&env, &locator).await.expect("nobody answers");
        assert!(env.now().since(began) >= Duration::from_millis(240));
        assert_eq!(holder(&looks).await, None);
    });
}

/// A service manager tries again and again to serve what is served elsewhere.
#[test]
fn challengers_that_follow_one_another_at_once_do_not_wear_a_holder_down() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        let looks = peek(&env, &locator).await;
        for nonce in 0..8 {
            challenge_as(&looks, nonce).await;
            while holder(&looks).await.map(|l| l.nonce) == Some(nonce) {
                assert!(!device.is_lost(), "it gave the member up");
                env.sleep(Duration::from_millis(5)).await;
            }
        }
        device.write(0, pattern(1, 4096)).await.expect("it goes on");
    });
}

/// Somebody else challenges the holder while nothing runs here.
fn stand_still_beside_a_challenger(locator: NbdLocator) {
    challenge_elsewhere(locator);
    std::thread::sleep(STANDSTILL);
}

/// Nothing runs here until the challenge is there.
fn challenge_elsewhere(locator: NbdLocator) {
    let other = std::thread::spawn(move || {
        let reactor = Reactor::new().expect("io_uring");
        let env = reactor.env();
        reactor.block_on(async move { challenge(&peek(&env, &locator).await).await });
    });
    other.join().expect("challenged");
}

/// Begins a request, and no other task.
pub(super) async fn begun<F: Future>(mut request: std::pin::Pin<&mut F>) {
    let waits = poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx).is_pending())).await;
    assert!(waits, "for the device");
}

async fn is_unwritten(device: &NbdDevice, place: u64) -> bool {
    let (bytes, result) = device.read(place, BufMut::new(4096)).await;
    result.expect("read");
    bytes.iter().all(|b| *b == 0)
}

/// In the slots, where nobody writes but a test.
pub(super) const UNUSED: u64 = 32 << 20;

#[test]
fn a_holder_that_stood_still_writes_nothing_once_another_may_have_the_member() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        let looks = peek(&env, &locator).await;
        stand_still_beside_a_challenger(locator);
        assert_eq!(device.write(UNUSED, pattern(1, 4096)).await, Err(DeviceError::Disconnected));
        assert_eq!(device.discard(0, 4096).await, Err(DeviceError::Disconnected));
        assert!(is_unwritten(&looks, UNUSED).await);
        assert_eq!(holder(&looks).await.map(|l| l.nonce), Some(7), "the other's lease stays");
    });
}

#[test]
fn a_holder_that_stood_still_in_the_middle_of_a_look_takes_nothing_back() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        let looks = peek(&env, &locator).await;
        let held = device.handle.client.lease.get().expect("it bears a label");
        let mut look = std::pin::pin!(look(&device, held));
        begun(look.as_mut()).await;
        stand_still_beside_a_challenger(locator);
        look.await;
        assert_eq!(holder(&looks).await.map(|l| l.nonce), Some(7), "the other's lease stays");
        assert_eq!(device.write(1 << 20, pattern(1, 4096)).await, Err(DeviceError::Disconnected));
    });
}

#[test]
fn what_was_asked_for_before_a_standstill_is_not_sent_after_it_over_the_data_of_another() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        let looks = peek(&env, &locator).await;
        let mut write = std::pin::pin!(device.write(UNUSED, pattern(1, 4096)));
        begun(write.as_mut()).await;
        stand_still_beside_a_challenger(locator);
        assert_eq!(write.await, Err(DeviceError::Disconnected));
        assert!(is_unwritten(&looks, UNUSED).await);
    });
}

#[test]
fn a_machine_that_slept_has_stood_still() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        let looks = peek(&env, &locator).await;
        challenge_elsewhere(locator);
        SLEPT.set(Duration::from_secs(15));
        assert_eq!(device.write(UNUSED, pattern(1, 4096)).await, Err(DeviceError::Disconnected));
        assert!(is_unwritten(&looks, UNUSED).await);
        assert_eq!(holder(&looks).await.map(|l| l.nonce), Some(7), "the other's lease stays");
    });
}

#[test]
fn a_holder_that_stood_still_alone_goes_on() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        let mut write = std::pin::pin!(device.write(UNUSED, pattern(1, 4096)));
        begun(write.as_mut()).await;
        std::thread::sleep(STANDSTILL);
        let written = env.timeout(Duration::from_secs(20), write).await.expect("it has looked");
        written.expect("nobody was there");
    });
}

/// Another daemon serves the member meanwhile, in order, and nothing runs here.
pub(super) fn serve_elsewhere(locator: NbdLocator) {
    let other = std::thread::spawn(move || {
        let reactor = Reactor::new().expect("io_uring");
        let env = reactor.env();
        reactor.block_on(async move {
            let second = serve(&env, &locator).await.expect("the first one stands still");
            second.write(UNUSED, pattern(2, 4096)).await.expect("written");
        });
    });
    other.join().expect("served elsewhere");
}

#[test]
fn a_holder_that_stood_still_believes_no_answer_once_another_may_have_the_member() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        device.write(UNUSED, pattern(1, 4096)).await.expect("written");
        let mut flush = std::pin::pin!(device.sync());
        begun(flush.as_mut()).await;
        serve_elsewhere(locator);
        let (bytes, result) = device.read(UNUSED, BufMut::new(4096)).await;
        let others = bytes[..] == pattern(2, 4096)[..];
        assert_eq!(result, Err(DeviceError::Disconnected), "what the other wrote: {others}");
        assert_eq!(flush.await, Err(DeviceError::Disconnected), "others may have written over what it made durable");
    });
}

#[test]
fn what_is_read_after_a_standstill_alone_is_good() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        device.write(UNUSED, pattern(1, 4096)).await.expect("written");
        let mut read = std::pin::pin!(device.read(UNUSED, BufMut::new(4096)));
        begun(read.as_mut()).await;
        std::thread::sleep(STANDSTILL);
        let (bytes, result) = env.timeout(Duration::from_secs(20), read).await.expect("it has looked");
        result.expect("nobody was there");
        assert!(bytes[..] == pattern(1, 4096)[..]);
    });
}

/// Its label is clean, so that challengers wait for less: as if it were only starting.
#[test]
fn a_holder_that_comes_to_its_end_and_stands_still_writes_nothing_once_another_has_the_member() {
    on_a_member(async |env, locator, _server| {
        let device = serve(&env, &locator).await.expect("nobody has it");
        let looks = peek(&env, &locator).await;
        let held = device.handle.client.lease.get().expect("it bears a label");
        for clean in [false, true] {
            let mut label = label_of(&device).await.expect("read").expect("a label");
            (label.clean, label.sequence) = (clean, label.sequence + 1);
            let bytes = BufMut::copy_of(&label.encode(LABEL_A)).freeze();
            device.write(LABEL_A, bytes).await.expect("written");
            look(&device, held).await;
        }
        serve_elsewhere(locator);
        let written = device.write(UNUSED, pattern(1, 4096)).await;
        let (bytes, result) = looks.read(UNUSED, BufMut::new(4096)).await;
        result.expect("read");
        let over = bytes[..] == pattern(1, 4096)[..];
        assert_eq!(written, Err(DeviceError::Disconnected), "written over what the second wrote: {over}");
    });
}

#[test]
fn a_holder_has_short_times_from_before_its_label_is_clean_until_that_is_seen_to_be_in_use() {
    on_a_member(async |env, locator, _server| {
        let device = peek(&env, &locator).await;
        let label = label_of(&device).await.expect("read").expect("a label");
        let _ = device.handle.client.lease.set(Held::new(&env, Some(&label), Some(layout::lease(SIZE))));
        let held = device.handle.client.lease.get().expect("just set");
        // Longer than one that is starting may finish what it has begun.
        let is_long = || held.may_finish(held.seen_at().plus(Duration::from_millis(300)));
        let bytes = |clean| BufMut::copy_of(&Label { clean, ..label.clone() }.encode(LABEL_A)).freeze();
        assert!(!is_long());
        device.write(LABEL_A, bytes(false)).await.expect("written");
        assert!(!is_long(), "a look has to find it");
        look(&device, held).await;
        assert!(is_long());
        let mut write = std::pin::pin!(device.write(LABEL_A, bytes(true)));
        begun(write.as_mut()).await;
        assert!(!is_long(), "it may be sent at any moment");
        held.has_begun();
        assert!(!is_long(), "a look that was under way has found the label before");
        write.await.expect("written");
        device.write(LABEL_A, bytes(false)).await.expect("written");
        look(&device, held).await;
        assert!(is_long(), "it is in use again");
        device.discard(LABEL_A, 4096).await.expect("trimmed");
        assert!(!is_long(), "there is no label");
    });
}

#[test]
fn what_waits_for_the_lease_is_sent_by_the_look_that_finds_it() {
    on_a_member(async |env, locator, _server| {
        let (device, looks) = (peek(&env, &locator).await, peek(&env, &locator).await);
        // Nothing looks at this one by itself.
        let mut label = label_of(&device).await.expect("read").expect("a label");
        label.clean = false;
        let _ = device.handle.client.lease.set(Held::new(&env, Some(&label), Some(layout::lease(SIZE))));
        let held = device.handle.client.lease.get().expect("just set");
        look(&device, held).await;
        env.sleep(STANDSTILL).await;
        let mut write = std::pin::pin!(device.write(UNUSED, pattern(1, 4096)));
        assert!(env.timeout(Duration::from_millis(100), write.as_mut()).await.is_none(), "it waits");
        assert!(is_unwritten(&looks, UNUSED).await, "it is not sent");
        look(&device, held).await;
        let written = env.timeout(Duration::from_secs(20), write).await.expect("it is sent");
        written.expect("written");
    });
}

/// A server that takes nothing more after the handshake until it is told to; what it has taken by the end.
pub(super) async fn take_when_told(env: HostEnv, stream: Stream, told: Rc<Cell<bool>>, taken: Rc<Cell<Option<usize>>>) {
    let mut input = shake_hands(&stream).await;
    while !told.get() {
        env.sleep(Duration::from_millis(5)).await;
    }
    let mut count = 0;
    while input.take(1).await.is_ok() {
        count += 1;
    }
    taken.set(Some(count));
}

/// A write of which half is sent when the server takes nothing more; `stall` takes longer than the term. What became of the write
/// until a moment after the server goes on, why the connection was lost, and how many bytes the server has in the end.
fn half_sent(stall: impl AsyncFnOnce(&HostEnv) + 'static) -> (Option<Result<(), DeviceError>>, Option<String>, usize) {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let dir = tempfile::tempdir().expect("temp dir");
    let socket = dir.path().join("s");
    let listener = Listener::bind_unix(&env, &socket, 0o600).expect("bound");
    reactor.block_on(async move {
        let (told, taken) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None)));
        let (beginning, end, its) = (told.clone(), taken.clone(), env.clone());
        env.spawn(async move {
            take_when_told(its, listener.accept().await.expect("a client"), beginning, end).await;
        });
        let locator = NbdLocator { server: NbdServer::Unix(socket), export: String::new() };
        let device = NbdDevice::open(&env, &locator, UNLOCKED).await.expect("opens");
        // More than a socket holds. It is begun before there is a lease, for that would be over soon.
        let mut write = std::pin::pin!(device.write(0, pattern(1, 1 << 20)));
        assert!(env.timeout(Duration::from_millis(100), write.as_mut()).await.is_none(), "the server takes nothing");
        let _ = device.handle.client.lease.set(Held::new(&env, None, Some(0)));
        stall(&env).await;
        told.set(true);
        let written = env.timeout(Duration::from_millis(500), write).await;
        let lost = device.answering().lost;
        device.give_up("the test ends");
        while taken.get().is_none() {
            env.sleep(Duration::from_millis(5)).await;
        }
        (written, lost, taken.get().unwrap_or_default())
    })
}

#[test]
fn a_write_is_not_finished_in_the_middle_of_which_the_holder_stood_still() {
    is_given_up(half_sent(async |_| std::thread::sleep(STANDSTILL)));
}

#[test]
fn a_write_is_not_finished_that_the_server_did_not_take_before_another_may_have_the_member() {
    is_given_up(half_sent(async |env| env.sleep(STANDSTILL).await));
}

fn is_given_up((written, lost, taken): (Option<Result<(), DeviceError>>, Option<String>, usize)) {
    assert_eq!(written, Some(Err(DeviceError::Disconnected)));
    assert!(lost.as_ref().is_some_and(|why| why.contains("half sent")), "{lost:?}");
    assert!(taken > 0 && taken < 1 << 20, "{taken}");
}

#[test]
fn what_is_begun_may_be_finished_for_a_little_longer_than_something_may_be_begun() {
    let reactor = Reactor::new().expect("io_uring");
    let held = Held::new(&reactor.env(), None, Some(0));
    // Times of a holder that is starting, in these tests: 150 ms, 200 ms; a challenger waits for 250 ms.
    let at = |millis| held.seen_at().plus(Duration::from_millis(millis));
    let may = |millis| (held.is_fresh(at(millis)), held.may_finish(at(millis)));
    assert_eq!([may(149), may(151), may(199), may(201)], [(true, true), (false, true), (false, true), (false, false)]);
}

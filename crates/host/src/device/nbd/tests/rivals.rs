//! Two who hold one member, and how one is taken for gone.

use std::sync::mpsc;

use bimetal_format::layout;
use bimetal_format::lease::Lease;

use super::lease::{begun, holder, on_a_member, peek, serve, serve_in_use, SIZE, UNUSED};
use super::*;
use crate::attach;
use crate::device::nbd::lease::{block_of, held, is_gone_by, label_of, look, of_this_process, Held};

#[test]
fn who_cannot_be_seen_is_not_gone_as_long_as_its_number_is_there() {
    let reactor = Reactor::new().expect("io_uring");
    let own = of_this_process(&reactor.env());
    // Any process that ends with the test.
    let mut child =
        Server(Command::new("sleep").arg("1000").stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"));
    let process = child.0.id();
    let began = attach::began(process).expect("it is there");
    let other = Lease { process, began, ..own };
    assert!(!is_gone_by(&other, &own, attach::began));
    assert!(!is_gone_by(&other, &own, |_| None), "/proc hides it, as with hidepid");
    assert!(is_gone_by(&other, &own, |_| Some(began + 1)), "its number is another's by now");
    assert!(!is_gone_by(&Lease { began: 0, ..other }, &own, attach::began), "its beginning is not known");
    assert!(!is_gone_by(&other, &Lease { began: 0, ..own }, |_| Some(began + 1)), "/proc is another namespace's");
    let elsewhere = Lease { namespace: own.namespace ^ 7 << 32, ..own };
    assert!(!is_gone_by(&other, &elsewhere, |_| Some(began + 1)), "times are told another way there");
    child.0.kill().expect("killed");
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !is_gone_by(&other, &own, attach::began) {
        assert!(std::time::Instant::now() < deadline, "it has ended, though nobody has waited for it");
        std::thread::yield_now();
    }
    assert!(!is_gone_by(&Lease { began: 0, ..other }, &own, attach::began), "/proc may tell of another one");
    drop(child);
    assert!(is_gone_by(&other, &own, |_| None));
    assert!(!is_gone_by(&other, &elsewhere, |_| None));
}

#[test]
fn of_two_holders_one_goes_and_one_stays() {
    on_a_member(async |env, locator, _server| {
        let first = serve(&env, &locator).await.expect("nobody has it");
        let second = peek(&env, &locator).await;
        let label = label_of(&second).await.expect("read").expect("a label");
        let _ = second.handle.client.lease.set(Held::new(&env, Some(&label), Some(layout::lease(SIZE))));
        let held = second.handle.client.lease.get().expect("just set");
        for _ in 0..50 {
            look(&second, held).await;
            // As often as the first one looks.
            env.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!([first.is_lost(), second.is_lost()].iter().filter(|lost| **lost).count(), 1);
    });
}

/// Waits until a holder has just looked: the next look is as far away as can be.
async fn has_looked(env: &HostEnv, holder: &NbdDevice) {
    let seen = || holder.handle.client.lease.get().expect("a holder").seen_at();
    let before = seen();
    while seen() == before {
        env.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn who_asked_a_holder_and_ended_before_that_one_looked_has_taken_nothing_over() {
    on_a_member(async |env, locator, _server| {
        let first = serve_in_use(&env, &locator).await;
        let looks = peek(&env, &locator).await;
        has_looked(&env, &first).await;
        let own = holder(&looks).await;
        {
            let mut asks = std::pin::pin!(serve(&env, &locator));
            while holder(&looks).await == own {
                begun(asks.as_mut()).await;
            }
        }
        assert!(holder(&looks).await.is_some_and(|left| left.asks()), "it has ended, and the first has not looked");
        let refused = serve(&env, &locator).await.err().expect("the first one has it");
        assert!(refused.contains("which serves it"), "{refused}");
        first.write(UNUSED, pattern(1, 4096)).await.expect("it serves");
        assert!(holder(&looks).await.is_some_and(|now| !now.asks()), "a holder asks no more");
    });
}

#[test]
fn who_came_to_read_and_ended_before_the_holder_looked_has_taken_nothing_over() {
    on_a_member(async |env, locator, _server| {
        let first = serve_in_use(&env, &locator).await;
        let looks = peek(&env, &locator).await;
        has_looked(&env, &first).await;
        let asked = Lease::mark([1; 16], env.random()).asking();
        looks.write(layout::lease(SIZE), block_of(&asked).freeze()).await.expect("asked");
        let refused = serve(&env, &locator).await.err().expect("the first one has it");
        assert!(refused.contains("which serves it"), "{refused}");
        first.write(UNUSED, pattern(1, 4096)).await.expect("it serves");
    });
}

/// Whoever has opened the device itself leaves nothing in place of a lease.
#[test]
fn who_asks_while_somebody_opens_the_device_itself_is_refused() {
    on_a_member(async |env, locator, _server| {
        let looks = peek(&env, &locator).await;
        let mut asks = std::pin::pin!(serve(&env, &locator));
        while holder(&looks).await.is_none() {
            begun(asks.as_mut()).await;
        }
        looks.write(layout::lease(SIZE), BufMut::zeroed(4096).freeze()).await.expect("emptied");
        let refused = asks.await.err().expect("that one has it");
        assert!(refused.contains("somebody who does not say who it is"), "{refused}");
    });
}

/// Has the member although another has it, which it takes for gone; says so, and after a while whether it still has it.
fn serve_wrongly(locator: NbdLocator, has_it: mpsc::Sender<()>) -> (Result<(), DeviceError>, Option<String>) {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let device = serve(&env, &locator).await.expect("nobody looks meanwhile");
        has_it.send(()).expect("awaited");
        env.sleep(Duration::from_millis(1000)).await;
        (device.write(UNUSED, pattern(2, 4096)).await, device.answering().lost)
    })
}

#[test]
fn who_took_a_living_holder_for_gone_leaves_and_that_one_stays() {
    on_a_member(async |env, locator, _server| {
        let first = serve_in_use(&env, &locator).await;
        let nonce = holder(&first).await.expect("the first").nonce;
        held().remove(&nonce);
        let (has_it, awaited) = mpsc::channel();
        let second = std::thread::spawn(move || serve_wrongly(locator, has_it));
        awaited.recv().expect("it has it");
        while !second.is_finished() {
            env.sleep(Duration::from_millis(10)).await;
        }
        let (written, lost) = second.join().expect("ended");
        assert_eq!(written, Err(DeviceError::Disconnected));
        assert!(lost.as_ref().is_some_and(|why| why.contains("at the same time")), "{lost:?}");
        first.write(UNUSED, pattern(1, 4096)).await.expect("it stays");
        assert_eq!(holder(&first).await.map(|l| l.nonce), Some(nonce));
    });
}

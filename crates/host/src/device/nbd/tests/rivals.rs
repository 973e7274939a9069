//! Two who hold one member, and how one is taken for gone.

use std::sync::mpsc;

use bimetal_format::layout;
use bimetal_format::lease::Lease;

use super::lease::{holder, on_a_member, peek, serve, serve_in_use, SIZE, UNUSED};
use super::*;
use crate::attach;
use crate::device::nbd::lease::{block_of, held, is_gone_by, label_of, look, of_this_process, Held};

#[test]
fn who_cannot_be_seen_is_not_gone_as_long_as_its_number_is_there() {
    let reactor = Reactor::new().expect("io_uring");
    let own = of_this_process(&reactor.env());
    // Any process that ends with the test.
    let child =
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

#[test]
fn who_asked_a_holder_and_ended_before_that_one_looked_has_taken_nothing_over() {
    on_a_member(async |env, locator, _server| {
        let first = serve_in_use(&env, &locator).await;
        let looks = peek(&env, &locator).await;
        let ended = of_this_process(&env);
        for who in [ended, Lease::mark([1; 16], env.random())] {
            // Right after the first one has looked, so that the next look is as far away as can be.
            let seen = first.handle.client.lease.get().expect("a holder").seen_at();
            while first.handle.client.lease.get().expect("a holder").seen_at() == seen {
                env.sleep(Duration::from_millis(1)).await;
            }
            looks.write(layout::lease(SIZE), block_of(&who.asking()).freeze()).await.expect("asked");
            let refused = serve(&env, &locator).await.err().expect("the first one has it");
            assert!(refused.contains("which serves it"), "{refused}");
            first.write(UNUSED, pattern(1, 4096)).await.expect("it serves");
        }
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

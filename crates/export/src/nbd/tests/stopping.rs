use bimetal_nbd::consts::{cmd, cmd_flag, errno};

use super::*;
use crate::conn::{Conn, Part};
use crate::stats::Phase;

#[test]
fn goodbye_is_taken_after_everything_is_answered() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Simple).await;
        w.probe.gate.closed.set(true);
        let cookie = c.submit(cmd::READ, 0, 0, 512, None).await.expect("sent");
        c.disconnect().await.expect("sent");
        w.runtime.sleep(Duration::from_secs(5)).await;
        assert_eq!(w.server.status().connections[0].phase, Phase::Ending);
        w.probe.gate.open();
        c.collect(cookie).await.expect("answered");
        assert!(matches!(c.read(0, 1, 0).await, Err(ClientError::Stream(_))), "closed");
    });
}

#[test]
fn stopping_answers_what_was_taken_and_refuses_what_comes_later() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Structured).await;
        w.probe.gate.closed.set(true);
        let data = bimetal_volume::buf::BufMut::copy_of(&[5; 4096]).freeze();
        let taken = c.submit(cmd::WRITE, 0, 0, 4096, Some(data)).await.expect("sent");
        w.runtime.sleep(Duration::from_micros(1)).await;
        let stop = w.server.clone();
        w.runtime.spawn(async move { stop.stop().await });
        w.runtime.sleep(Duration::from_micros(1)).await;
        let late = c.submit(cmd::READ, 0, 0, 4096, None).await.expect("sent");
        assert_eq!(errno_of(c.collect(late).await), errno::ESHUTDOWN);
        assert!(w.server.status().stopping);
        assert!(Client::greet(w.dial()).await.is_err(), "no new connections");
        w.probe.gate.open();
        c.collect(taken).await.expect("answered");
        w.runtime.sleep(Duration::from_micros(1)).await;
        assert!(matches!(c.read(0, 1, 0).await, Err(ClientError::Stream(_))), "closed");
        w.runtime.sleep(Duration::from_secs(2)).await;
        assert_eq!(w.server.connections(), 0);
        let began = w.runtime.now();
        assert!(began.since(Default::default()) < Duration::from_secs(3), "a client that hangs up is not waited for");
    });
}

/// A zeroing of terabytes takes hours, a TRIM may.
#[test]
fn stopping_does_not_wait_for_the_end_of_a_zeroing_or_trim() {
    for (command, flags) in [(cmd::WRITE_ZEROES, cmd_flag::NO_HOLE), (cmd::TRIM, 0)] {
        World::new().run(move |w| async move {
            let mut c = w.connect(HeaderStyle::Structured).await;
            w.probe.gate.closed.set(true);
            let taken = c.submit(command, flags, 0, SIZE, None).await.expect("sent");
            w.runtime.sleep(Duration::from_micros(1)).await;
            let stop = w.server.clone();
            w.runtime.spawn(async move { stop.stop().await });
            w.runtime.sleep(Duration::from_micros(1)).await;
            w.probe.gate.open();
            assert_eq!(errno_of(c.collect(taken).await), errno::ESHUTDOWN);
            assert_eq!(w.probe.log.borrow().last().map(String::as_str), Some("not wanted"));
        });
    }
}

/// What waits may be overtaken by the next client, whose writes it must not undo.
#[test]
fn nothing_is_changed_for_a_client_that_is_dead() {
    for command in [cmd::WRITE, cmd::TRIM] {
        World::new().run(move |w| async move {
            let mut c = w.connect(HeaderStyle::Structured).await;
            w.probe.gate.closed.set(true);
            let data = bimetal_volume::buf::BufMut::copy_of(&[5; 4096]).freeze();
            c.submit(command, 0, 0, 4096, (command == cmd::WRITE).then_some(data)).await.expect("sent");
            w.runtime.sleep(Duration::from_micros(1)).await;
            c.conn().close();
            w.runtime.sleep(Duration::from_micros(1)).await;
            w.probe.gate.open();
            w.runtime.sleep(Duration::from_micros(1)).await;
            assert_eq!(w.probe.log.borrow().last().map(String::as_str), Some("not wanted"), "{command}");
            assert_eq!(w.server.connections(), 0);
        });
    }
}

/// The protocol wants all to be carried out that was asked for before.
#[test]
fn a_write_is_carried_out_for_a_client_that_took_its_leave() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Structured).await;
        w.probe.gate.closed.set(true);
        let data = bimetal_volume::buf::BufMut::copy_of(&[5; 4096]).freeze();
        c.submit(cmd::WRITE, 0, 0, 4096, Some(data)).await.expect("sent");
        c.disconnect().await.expect("sent");
        w.runtime.sleep(Duration::from_micros(1)).await;
        c.conn().close();
        w.runtime.sleep(Duration::from_micros(1)).await;
        w.probe.gate.open();
        w.runtime.sleep(Duration::from_micros(1)).await;
        assert!(w.probe.log.borrow().iter().all(|l| l != "not wanted"), "{:?}", w.probe.log.borrow());
        assert_eq!(w.server.connections(), 0);
    });
}

/// `nbd-client -d` takes leave of what hangs, and the kernel has failed everything by then.
#[test]
fn what_one_asked_for_who_took_leave_undoes_nothing_of_the_next() {
    for (command, by_nbd) in [(cmd::WRITE, true), (cmd::WRITE, false), (cmd::TRIM, true)] {
        World::new().run(move |w| async move {
            let data = |byte| bimetal_volume::buf::BufMut::copy_of(&[byte; 4096]).freeze();
            let mut c = w.connect(HeaderStyle::Structured).await;
            w.probe.gate.closed.set(true);
            c.submit(command, 0, 0, 4096, (command == cmd::WRITE).then(|| data(5))).await.expect("sent");
            c.disconnect().await.expect("sent");
            w.runtime.sleep(Duration::from_micros(1)).await;
            c.conn().close();
            w.runtime.sleep(Duration::from_micros(1)).await;
            // What comes now has nothing to wait for.
            w.probe.gate.closed.set(false);
            if by_nbd {
                let mut next = w.connect(HeaderStyle::Structured).await;
                next.write(0, &[9; 4096], 0).await.expect("written");
                next.command(cmd::FLUSH, 0, 0, 0).await.expect("flushed");
                next.disconnect().await.expect("sent");
            } else {
                // A file that is opened, or a block device.
                w.probe.memory.arrive();
                w.probe.memory.write(0, data(9), WriteFlags::default()).await.expect("written");
            }
            w.probe.gate.open();
            w.runtime.sleep(Duration::from_micros(1)).await;
            assert_eq!(w.probe.log.borrow().last().map(String::as_str), Some("not wanted"));
            let now = w.probe.memory.read(0, 4096).await.expect("read");
            assert_eq!(bimetal_volume::gather(&now), [9; 4096], "{command}");
        });
    }
}

fn page(byte: u8) -> bimetal_volume::buf::Buf {
    bimetal_volume::buf::BufMut::copy_of(&[byte; 4096]).freeze()
}

/// Asks for a WRITE or TRIM of the first page.
async fn ask(c: &mut Client<PipeConn>, command: u16) -> u64 {
    c.submit(command, 0, 0, 4096, (command == cmd::WRITE).then(|| page(5))).await.expect("sent")
}

/// What the first page has when the disk goes on, after the next client has written and flushed.
async fn overtaken(w: &World) -> u8 {
    w.runtime.sleep(Duration::from_secs(5)).await;
    w.probe.gate.closed.set(false);
    let mut next = w.connect(HeaderStyle::Structured).await;
    next.write(0, &[9; 4096], 0).await.expect("written");
    next.command(cmd::FLUSH, 0, 0, 0).await.expect("flushed");
    w.probe.gate.open();
    w.runtime.sleep(Duration::from_micros(1)).await;
    next.disconnect().await.expect("sent");
    first_byte(w).await
}

async fn first_byte(w: &World) -> u8 {
    bimetal_volume::gather(&w.probe.memory.read(0, 4096).await.expect("read"))[0]
}

/// Over TCP no more is seen of a client that has closed its connection than the end of its stream, and where it took its leave
/// nobody reads that.
#[test]
fn what_one_asked_for_who_sends_no_more_undoes_nothing_of_the_next() {
    for (command, says_goodbye) in [(cmd::WRITE, true), (cmd::TRIM, true), (cmd::WRITE, false), (cmd::TRIM, false)] {
        World::new().run(move |w| async move {
            let mut c = w.connect(HeaderStyle::Structured).await;
            w.probe.gate.closed.set(true);
            ask(&mut c, command).await;
            if says_goodbye {
                c.disconnect().await.expect("sent");
            }
            c.conn().end_sending();
            assert_eq!(overtaken(&w).await, 9, "{command}, goodbye: {says_goodbye}");
            c.conn().close();
        });
    }
}

/// A client may say good-bye and keep its connection open.
#[test]
fn what_one_asked_for_who_took_leave_and_stays_undoes_nothing_of_the_next() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Structured).await;
        w.probe.gate.closed.set(true);
        let asked = ask(&mut c, cmd::WRITE).await;
        c.disconnect().await.expect("sent");
        assert_eq!(overtaken(&w).await, 9);
        assert_eq!(errno_of(c.collect(asked).await), errno::ESHUTDOWN, "it is told");
        c.conn().close();
    });
}

/// The server reads nothing while it waits for room, be it the client's own or what all share.
#[test]
fn what_one_asked_for_who_sends_no_more_while_room_is_waited_for_undoes_nothing_of_the_next() {
    let own = Limits { requests_per_connection: 4, ..Limits::default() };
    let shared = Limits { own_requests: 2, requests: 2, ..Limits::default() };
    for limits in [own, shared] {
        World::with(&["main"], limits).run(|w| async move {
            let mut c = w.connect(HeaderStyle::Structured).await;
            w.probe.gate.closed.set(true);
            for _ in 0..7 {
                ask(&mut c, cmd::WRITE).await;
            }
            c.conn().end_sending();
            assert_eq!(overtaken(&w).await, 9);
            c.conn().close();
        });
    }
}

/// Whoever sends all it has to ask for, and then waits, as a pipeline does.
#[test]
fn one_who_sends_no_more_gets_all_answers_and_what_it_asked_for_is_carried_out() {
    for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
        let limits = Limits { requests_per_connection: 4, ..Limits::default() };
        World::with(&["main"], limits).run(move |w| async move {
            // Who was there before and has left does not matter.
            let mut before = w.connect(HeaderStyle::Structured).await;
            before.write(0, &[7; 4096], 0).await.expect("written");
            before.disconnect().await.expect("sent");
            w.runtime.sleep(Duration::from_micros(1)).await;
            let mut c = w.connect(HeaderStyle::Structured).await;
            w.probe.gate.closed.set(true);
            let mut asked = Vec::new();
            for _ in 0..7 {
                asked.push(ask(&mut c, command).await);
            }
            c.conn().end_sending();
            w.runtime.sleep(Duration::from_secs(5)).await;
            w.probe.gate.open();
            for cookie in asked {
                c.collect(cookie).await.expect("carried out");
            }
            assert_eq!(first_byte(&w).await, if command == cmd::WRITE { 5 } else { 0 });
            c.conn().close();
            w.runtime.sleep(Duration::from_micros(1)).await;
            assert_eq!(w.probe.present(), 0);
        });
    }
}

/// The kernel's client asks another of its connections for what one that it has given up did not answer.
#[test]
fn what_a_connection_asked_for_that_sends_no_more_undoes_nothing_of_one_that_was_there_before() {
    World::new().run(|w| async move {
        let mut other = w.connect(HeaderStyle::Structured).await;
        let mut c = w.connect(HeaderStyle::Structured).await;
        w.probe.gate.closed.set(true);
        let asked = ask(&mut c, cmd::WRITE).await;
        c.conn().end_sending();
        w.runtime.sleep(Duration::from_secs(5)).await;
        w.probe.gate.closed.set(false);
        other.write(0, &[9; 4096], 0).await.expect("written");
        other.command(cmd::FLUSH, 0, 0, 0).await.expect("flushed");
        other.disconnect().await.expect("sent");
        w.runtime.sleep(Duration::from_micros(1)).await;
        w.probe.gate.open();
        assert_eq!(errno_of(c.collect(asked).await), errno::ESHUTDOWN);
        assert_eq!(first_byte(&w).await, 9);
        c.conn().close();
    });
}

/// The end of a stream has arrived, and what came before it is not read yet: that is as old as what waits.
#[test]
fn what_was_not_read_yet_of_one_who_sends_no_more_undoes_nothing_of_the_next() {
    for command in [cmd::WRITE, cmd::TRIM] {
        World::new().run(move |w| async move {
            // A header at a time.
            let (ours, theirs) = pipe(1 << 20, 28);
            w.server.serve(theirs.clone(), "held".into());
            let options = ClientOptions { style: HeaderStyle::Structured, ..ClientOptions::default() };
            let mut c = Client::connect(ours, &options).await.expect("the server takes us");
            theirs.hold(true);
            for _ in 0..20 {
                ask(&mut c, command).await;
            }
            c.conn().end_sending();
            let mut next = w.connect(HeaderStyle::Structured).await;
            next.write(0, &[9; 4096], 0).await.expect("written");
            next.command(cmd::FLUSH, 0, 0, 0).await.expect("flushed");
            theirs.hold(false);
            w.runtime.sleep(Duration::from_secs(1)).await;
            assert_eq!(first_byte(&w).await, 9, "{command}");
            next.disconnect().await.expect("sent");
            c.conn().close();
        });
    }
}

#[test]
fn a_zeroing_goes_on_for_nobody_who_has_gone() {
    for (says_goodbye, requests) in [(false, 1), (true, 1), (false, 7)] {
        let limits = Limits { requests_per_connection: 4, ..Limits::default() };
        World::with(&["main"], limits).run(move |w| async move {
            let mut c = w.connect(HeaderStyle::Structured).await;
            w.probe.gate.closed.set(true);
            for _ in 0..requests {
                c.submit(cmd::WRITE_ZEROES, cmd_flag::NO_HOLE, 0, SIZE, None).await.expect("sent");
            }
            if says_goodbye {
                c.disconnect().await.expect("sent");
            }
            w.runtime.sleep(Duration::from_micros(1)).await;
            c.conn().close();
            w.runtime.sleep(Duration::from_micros(1)).await;
            w.probe.gate.open();
            w.runtime.sleep(Duration::from_micros(1)).await;
            let log = w.probe.log.borrow();
            let count = |begin: &str| log.iter().filter(|l| l.starts_with(begin)).count();
            assert!(count("zero") >= requests.min(4));
            assert_eq!(count("not wanted"), count("zero"), "{requests} requests, goodbye: {says_goodbye}");
            assert_eq!(w.server.connections(), 0);
        });
    }
}

#[test]
fn a_client_that_does_not_read_cannot_hold_up_the_stop_for_ever() {
    let world = World { pipe_capacity: 4096, ..World::new() };
    world.run(|w| async move {
        let mut c = w.connect(HeaderStyle::Simple).await;
        c.write(0, &[1; 64 << 10], 0).await.expect("write");
        c.submit(cmd::READ, 0, 0, 64 << 10, None).await.expect("sent");
        w.runtime.sleep(Duration::from_micros(1)).await;
        let began = w.runtime.now();
        w.server.stop().await;
        assert_eq!(w.runtime.now().since(began), Limits::default().grace);
        assert_eq!(w.server.connections(), 0);
    });
}

#[test]
fn stopping_ends_negotiations() {
    World::new().run(|w| async move {
        let mut c = Client::greet(w.dial()).await.expect("greeting");
        w.server.stop().await;
        assert!(c.list().await.is_err());
    });
}

#[test]
fn bytes_out_of_step_end_their_own_connection_alone() {
    World::new().run(|w| async move {
        let (mut a, mut b) = (w.connect(HeaderStyle::Simple).await, w.connect(HeaderStyle::Simple).await);
        let cookie = a.submit(cmd::READ, 0, 0, 512, None).await.expect("sent");
        a.send(vec![Part::Bytes(vec![0x55; 28])]).await.expect("sent");
        a.collect(cookie).await.expect("what came before is answered");
        assert!(matches!(a.read(0, 1, 0).await, Err(ClientError::Stream(_))));
        b.read(0, 512, 0).await.expect("unharmed");
        // A payload beyond the limit cannot be skipped in reasonable time.
        b.submit(cmd::WRITE, 0, 0, (32 << 20) + 1, None).await.expect("sent");
        assert!(matches!(b.read(0, 1, 0).await, Err(ClientError::Stream(_))));
        b.conn().close();
    });
}

#[test]
fn exports_come_go_and_change_their_names_while_others_are_used() {
    World::with(&["a", "b"], Limits::default()).run(|w| async move {
        let options = |name: &str| ClientOptions { export: name.into(), ..ClientOptions::default() };
        let mut on_a = Client::connect(w.dial(), &options("a")).await.expect("a is there");
        let mut on_b = Client::connect(w.dial(), &options("b")).await.expect("b is there");
        let (a, b, c) = (uuid_of("a"), uuid_of("b"), uuid_of("c"));
        let new = Export {
            uuid: c,
            name: "c".into(),
            description: String::new(),
            backend: w.probe.clone(),
            read_only: false,
        };
        w.server.add_export(new);
        w.server.rename_export(&b, "d");
        assert_eq!((w.server.connections_to(&a), w.server.connections_to(&b)), (1, 1));
        assert_eq!(w.server.connections_to(&c), 0);
        w.probe.gate.closed.set(true);
        let taken = on_a.submit(cmd::READ, 0, 0, 512, None).await.expect("sent");
        w.runtime.sleep(Duration::from_micros(1)).await;
        let server = w.server.clone();
        w.runtime.spawn(async move { server.remove_export(&a).await });
        w.runtime.sleep(Duration::from_micros(1)).await;
        assert!(Client::connect(w.dial(), &options("a")).await.is_err(), "nobody finds it any more");
        w.probe.gate.open();
        on_a.collect(taken).await.expect("what was taken is answered");
        assert!(matches!(on_a.read(0, 1, 0).await, Err(ClientError::Stream(_))), "its connections are ended");
        on_b.read(0, 512, 0).await.expect("unharmed");
        Client::connect(w.dial(), &options("c")).await.expect("the new one").disconnect().await.expect("sent");
        let mut names: Vec<String> = Client::greet(w.dial())
            .await
            .expect("greeting")
            .list()
            .await
            .expect("list")
            .into_iter()
            .map(|e| e.0)
            .collect();
        names.sort();
        assert_eq!(names, ["c", "d"]);
        w.runtime.sleep(Duration::from_secs(2)).await;
        assert_eq!(w.server.connections_to(&a), 0);
    });
}

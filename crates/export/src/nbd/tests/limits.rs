use bimetal_nbd::consts::cmd;

use super::*;
use crate::conn::Conn;

/// Lets everything run that can.
async fn settle(w: &World) {
    w.runtime.sleep(Duration::from_micros(1)).await;
}

fn small() -> Limits {
    Limits { requests_per_connection: 4, bytes_per_connection: 64 << 10, ..Limits::default() }
}

#[test]
fn requests_overtake_each_other() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Simple).await;
        w.probe.gate.closed.set(true);
        let slow = c.submit(cmd::READ, 0, 0, 512, None).await.expect("sent");
        settle(&w).await;
        assert_eq!(w.probe.gate.waiting.get(), 1);
        w.probe.gate.closed.set(false);
        let quick = c.submit(cmd::READ, 0, 4096, 512, None).await.expect("sent");
        c.collect(quick).await.expect("answered although the first one waits");
        w.probe.gate.open();
        c.collect(slow).await.expect("answered");
    });
}

#[test]
fn the_socket_is_not_read_beyond_the_limit_of_requests() {
    World::with(&["main"], small()).run(|w| async move {
        let mut c = w.connect(HeaderStyle::Simple).await;
        w.probe.gate.closed.set(true);
        let mut cookies = Vec::new();
        for i in 0..10 {
            cookies.push(c.submit(cmd::READ, 0, i * 4096, 512, None).await.expect("sent"));
        }
        settle(&w).await;
        assert_eq!(w.probe.gate.waiting.get(), 4);
        assert_eq!(w.server.status().connections[0].in_flight, 4);
        w.probe.gate.open();
        for cookie in cookies {
            c.collect(cookie).await.expect("answered");
        }
    });
}

#[test]
fn bytes_in_flight_are_limited_and_one_large_request_still_passes() {
    World::with(&["main"], small()).run(|w| async move {
        let mut c = w.connect(HeaderStyle::Simple).await;
        w.probe.gate.closed.set(true);
        let mut cookies = Vec::new();
        for i in 0..3 {
            cookies.push(c.submit(cmd::READ, 0, i * 40_000, 40_000, None).await.expect("sent"));
        }
        settle(&w).await;
        assert_eq!(w.probe.gate.waiting.get(), 1);
        assert_eq!(w.server.status().connections[0].bytes_in_flight, 40_000);
        w.probe.gate.open();
        for cookie in cookies {
            c.collect(cookie).await.expect("answered");
        }
        c.read(0, 1 << 20, 0).await.expect("larger than the limit, but alone");
        c.write(0, &vec![1; 1 << 20], 0).await.expect("larger than the limit, but alone");
    });
}

#[test]
fn a_client_that_does_not_read_answers_is_not_read_from() {
    let limits = Limits { bytes_per_connection: 256 << 10, ..Limits::default() };
    let world = World { pipe_capacity: 4096, ..World::with(&["main"], limits) };
    world.run(|w| async move {
        let mut c = w.connect(HeaderStyle::Simple).await;
        c.write(0, &[7; 64 << 10], 0).await.expect("write");
        let mut cookies = Vec::new();
        for _ in 0..50 {
            cookies.push(c.submit(cmd::READ, 0, 0, 64 << 10, None).await.expect("sent"));
        }
        settle(&w).await;
        let status = &w.server.status().connections[0];
        assert!(status.bytes_in_flight <= 256 << 10, "{} bytes wait", status.bytes_in_flight);
        for cookie in cookies {
            assert_eq!(c.collect(cookie).await.expect("answered").data, [7; 64 << 10]);
        }
    });
}

#[test]
fn the_limit_of_all_connections_is_shared_in_turn() {
    let limits = Limits { bytes: 64 << 10, own_bytes: 0, ..Limits::default() };
    World::with(&["main"], limits).run(|w| async move {
        let (mut a, mut b) = (w.connect(HeaderStyle::Simple).await, w.connect(HeaderStyle::Simple).await);
        w.probe.gate.closed.set(true);
        let first = a.submit(cmd::READ, 0, 0, 32 << 10, None).await.expect("sent");
        settle(&w).await;
        let large = b.submit(cmd::READ, 0, 0, 1 << 20, None).await.expect("sent");
        settle(&w).await;
        let late = a.submit(cmd::READ, 0, 0, 16 << 10, None).await.expect("sent");
        settle(&w).await;
        assert_eq!(w.probe.gate.waiting.get(), 1, "the late one fits, but does not overtake the large one");
        w.probe.gate.open();
        a.collect(first).await.expect("answered");
        b.collect(large).await.expect("answered");
        a.collect(late).await.expect("answered");
    });
}

#[test]
fn too_many_connections_are_closed() {
    let limits = Limits { connections: 2, ..Limits::default() };
    World::with(&["main"], limits).run(|w| async move {
        let _a = w.connect(HeaderStyle::Simple).await;
        let b = w.connect(HeaderStyle::Simple).await;
        assert!(Client::greet(w.dial()).await.is_err());
        assert_eq!(w.server.status().turned_away, 1);
        b.conn().close();
        settle(&w).await;
        w.connect(HeaderStyle::Simple).await;
    });
}

#[test]
fn clients_that_left_before_they_were_answered_keep_nobody_out() {
    let limits = Limits { connections: 5, ..Limits::default() };
    World::with(&["main"], limits).run(|w| async move {
        w.probe.gate.closed.set(true);
        for _ in 0..8 {
            let mut c = w.connect(HeaderStyle::Simple).await;
            c.submit(cmd::READ, 0, 0, 512, None).await.expect("sent");
            settle(&w).await;
            c.conn().close();
            settle(&w).await;
        }
        assert_eq!((w.server.connections(), w.server.status().turned_away), (8, 0));
        w.probe.gate.open();
        settle(&w).await;
        assert_eq!(w.server.connections(), 0);
    });
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    for style in STYLES {
        World::new().run(move |w| async move {
            let mut c = w.connect(style).await;
            w.probe.gate.closed.set(true);
            for i in 0..20 {
                c.submit(cmd::READ, 0, i * 4096, 4096, None).await.expect("sent");
            }
            settle(&w).await;
            assert_eq!(w.probe.gate.waiting.get(), 20);
            c.conn().close();
            settle(&w).await;
            assert_eq!(w.server.connections(), 1, "its requests are still under way");
            w.probe.gate.open();
            settle(&w).await;
            assert_eq!(w.server.connections(), 0);
        });
    }
}

#[test]
fn a_client_that_vanishes_within_a_payload_leaves_nothing_behind() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Simple).await;
        let half = bimetal_volume::buf::BufMut::zeroed(3000).freeze();
        c.submit(cmd::WRITE, 0, 0, 4096, Some(half)).await.expect("sent");
        settle(&w).await;
        assert_eq!(w.server.status().connections[0].bytes_in_flight, 4096);
        c.conn().close();
        settle(&w).await;
        assert_eq!(w.server.connections(), 0);
        assert!(w.probe.log.borrow().is_empty(), "half a write is none");
    });
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    World::new().run(|w| async move {
        let before = w.runtime.live_tasks();
        for _ in 0..50 {
            w.dial().close();
            w.connect(HeaderStyle::Simple).await.disconnect().await.expect("sent");
            settle(&w).await;
        }
        assert_eq!(w.server.status().accepted, 100);
        assert_eq!((w.server.connections(), w.runtime.live_tasks()), (0, before));
    });
}

//! Clients that hold room, and others that want some.

use bimetal_nbd::consts::{cmd, errno};
use bimetal_volume::env::Instant;

use super::*;
use crate::conn::Conn;

const KIB: u64 = 1 << 10;

/// A server whose shared room two clients fill, over pipes that hold next to nothing.
fn world(names: &[&str]) -> World {
    let limits = Limits {
        requests_per_connection: 64,
        bytes_per_connection: 512 * KIB,
        own_requests: 4,
        own_bytes: 64 * KIB,
        requests: 100,
        bytes: 2 * 448 * KIB,
        ..Limits::default()
    };
    World { pipe_capacity: 4096, ..World::with(names, limits) }
}

async fn settle(w: &World) {
    w.runtime.sleep(Duration::from_micros(1)).await;
}

/// Clients that ask for all they may, and do not read the answers.
async fn who_do_not_read(w: &World) -> Vec<Client<PipeConn>> {
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut c = w.connect(HeaderStyle::Simple).await;
        for _ in 0..2 {
            c.submit(cmd::READ, 0, 0, 256 * KIB, None).await.expect("sent");
        }
        clients.push(c);
    }
    settle(w).await;
    clients
}

/// Clients that announce large writes, and send no data.
async fn who_do_not_send(w: &World) -> Vec<Client<PipeConn>> {
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut c = w.connect(HeaderStyle::Simple).await;
        c.submit(cmd::WRITE, 0, 0, 512 * KIB, None).await.expect("sent");
        clients.push(c);
    }
    settle(w).await;
    clients
}

/// What the server warns of.
fn warnings(w: &World) -> Rc<RefCell<Vec<String>>> {
    let heard = Rc::<RefCell<Vec<String>>>::default();
    let place = heard.clone();
    w.server.warn_by(move |words| place.borrow_mut().push(words.to_owned()));
    heard
}

fn seconds(w: &World) -> u64 {
    w.runtime.now().since(Instant::default()).as_secs()
}

#[test]
fn clients_that_do_nothing_stop_no_other() {
    for reads in [true, false] {
        world(&["main"]).run(move |w| async move {
            let mut early = w.connect(HeaderStyle::Simple).await;
            let idle = if reads { who_do_not_read(&w).await } else { who_do_not_send(&w).await };
            let mut late = w.connect(HeaderStyle::Simple).await;
            for c in [&mut early, &mut late] {
                for i in 0..20 {
                    c.write(i * 4096, &[i as u8; 4096], 0).await.expect("written");
                }
                c.read(0, 64 * KIB, 0).await.expect("read");
            }
            assert_eq!(seconds(&w), 0);
            assert_eq!(w.server.status().cut_off, 0);
            drop(idle);
        });
    }
}

#[test]
fn clients_with_many_small_answers_unread_stop_no_other() {
    world(&["main"]).run(|w| async move {
        let mut idle = Vec::new();
        for _ in 0..2 {
            let mut c = w.connect(HeaderStyle::Simple).await;
            w.probe.gate.closed.set(true);
            for _ in 0..50 {
                c.submit(cmd::READ, 0, 0, 512, None).await.expect("sent");
            }
            settle(&w).await;
            idle.push(c);
        }
        w.probe.gate.open();
        settle(&w).await;
        w.connect(HeaderStyle::Simple).await.read(0, 4096, 0).await.expect("read");
    });
}

#[test]
fn who_keeps_a_large_request_waiting_is_cut_off_after_a_while() {
    for reads in [true, false] {
        world(&["main"]).run(move |w| async move {
            let heard = warnings(&w);
            let idle = if reads { who_do_not_read(&w).await } else { who_do_not_send(&w).await };
            w.runtime.sleep(Duration::from_secs(1000)).await;
            assert_eq!(w.server.status().cut_off, 0, "nobody waits");
            let mut c = w.connect(HeaderStyle::Simple).await;
            let began = seconds(&w);
            c.read(0, 512 * KIB, 0).await.expect("there is room at last");
            let took = seconds(&w) - began;
            assert!((30..=35).contains(&took), "{took} s");
            let cut_off = w.server.status().cut_off;
            assert!(cut_off > 0, "those who occupied shared room");
            let said = if reads { "has not read its answers" } else { "has not sent the data" };
            assert_eq!(heard.borrow().len() as u64, cut_off);
            assert!(heard.borrow().iter().all(|words| words.contains(said)), "{heard:?}");
            drop(idle);
        });
    }
}

#[test]
fn slow_clients_that_get_on_are_left_alone() {
    world(&["main"]).run(|w| async move {
        let idle = who_do_not_read(&w).await;
        let mut c = w.connect(HeaderStyle::Simple).await;
        w.runtime.spawn({
            let w = w.clone();
            async move {
                let mut idle = idle;
                for c in &mut idle {
                    w.runtime.sleep(Duration::from_secs(9)).await;
                    for cookie in 1..=2 {
                        c.collect(cookie).await.expect("answered");
                    }
                }
                w.runtime.sleep(Duration::from_secs(100)).await;
            }
        });
        c.read(0, 1024 * KIB, 0).await.expect("read in its turn");
        assert_eq!(w.server.status().cut_off, 0);
    });
}

#[test]
fn a_client_that_leaves_while_it_waits_for_room_is_forgotten_at_once() {
    world(&["main"]).run(|w| async move {
        let idle = who_do_not_read(&w).await;
        let mut c = w.connect(HeaderStyle::Simple).await;
        c.submit(cmd::READ, 0, 0, 512 * KIB, None).await.expect("sent");
        settle(&w).await;
        assert_eq!(w.server.connections(), 3);
        c.conn().close();
        settle(&w).await;
        assert_eq!(w.server.connections(), 2);
        assert!(w.server.0.pool.first_waiter().is_none(), "it stands in nobody's way");
        drop(idle);
    });
}

#[test]
fn an_export_is_removed_although_a_client_of_it_waits_for_room() {
    world(&["main", "other"]).run(|w| async move {
        let options = ClientOptions { export: "other".into(), ..ClientOptions::default() };
        let mut idle = Vec::new();
        for _ in 0..2 {
            let mut c = Client::connect(w.dial(), &ClientOptions { export: "main".into(), ..options.clone() })
                .await
                .expect("main");
            c.submit(cmd::WRITE, 0, 0, 512 * KIB, None).await.expect("sent");
            idle.push(c);
        }
        settle(&w).await;
        let mut c = Client::connect(w.dial(), &options).await.expect("other");
        let waiting = c.submit(cmd::READ, 0, 0, 512 * KIB, None).await.expect("sent");
        settle(&w).await;
        assert_eq!(w.server.connections_to(&uuid_of("other")), 1);
        let began = seconds(&w);
        w.server.remove_export(&uuid_of("other")).await;
        assert!(seconds(&w) - began <= 2, "{} s", seconds(&w) - began);
        assert_eq!(errno_of(c.collect(waiting).await), errno::ESHUTDOWN);
        assert_eq!(w.server.connections(), 2);
    });
}

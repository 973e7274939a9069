use bimetal_nbd::consts::{export_flag, opt, rep};
use bimetal_nbd::handshake::encode_option;

use super::*;
use crate::conn::{Conn, Part};

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
    match result {
        Err(ClientError::Refused { kind, .. }) => kind,
        other => panic!("not refused but {other:?}"),
    }
}

#[test]
fn exports_are_listed_and_chosen_by_name() {
    World::with(&["main", "boot-ro"], Limits::default()).run(|w| async move {
        let mut c = Client::greet(w.dial()).await.expect("greeting");
        let names: Vec<String> = c.list().await.expect("list").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["main", "boot-ro"]);
        assert_eq!(refused(c.info(opt::INFO, "other").await), rep::ERR_UNKNOWN);
        assert_eq!(refused(c.info(opt::GO, "").await), rep::ERR_UNKNOWN, "no default among several");
        c.info(opt::INFO, "boot-ro").await.expect("info");
        assert_ne!(c.flags & export_flag::READ_ONLY, 0);
        c.info(opt::GO, "main").await.expect("go");
        assert_eq!(c.flags & export_flag::READ_ONLY, 0);
        assert_eq!((c.size, c.block_sizes), (SIZE, Some((1, 4096, 32 << 20))));
        assert_eq!(c.infos, ["main", "the volume main"]);
        assert_eq!(w.server.status().connections[0].export.as_deref(), Some("main"));
    });
}

#[test]
fn a_locked_export_is_refused_in_words_until_it_is_unlocked() {
    World::new().run(|w| async move {
        w.probe.locked.set(true);
        let mut c = Client::greet(w.dial()).await.expect("greeting");
        assert_eq!(c.list().await.expect("list").len(), 1, "it is no secret that it is there");
        for option in [opt::INFO, opt::GO] {
            let Err(ClientError::Refused { kind, words, .. }) = c.info(option, "main").await else { panic!("taken") };
            assert_eq!(kind, rep::ERR_POLICY);
            assert!(words.contains("main is locked") && words.contains("bimetal family unlock"), "{words}");
        }
        let options = ClientOptions { export: "main".into(), export_name: true, ..ClientOptions::default() };
        assert!(matches!(Client::connect(w.dial(), &options).await, Err(ClientError::Stream(_))));
        w.probe.locked.set(false);
        c.info(opt::GO, "main").await.expect("go");
    });
}

#[test]
fn the_empty_name_is_the_only_export() {
    World::new().run(|w| async move {
        let c = w.connect(HeaderStyle::Simple).await;
        assert_eq!(c.size, SIZE);
        assert_ne!(c.flags & export_flag::CAN_MULTI_CONN, 0);
    });
}

#[test]
fn export_name_works_for_old_clients() {
    World::new().run(|w| async move {
        let options = ClientOptions { export: "main".into(), export_name: true, ..ClientOptions::default() };
        let mut c = Client::connect(w.dial(), &options).await.expect("connects");
        assert_eq!(c.size, SIZE);
        c.write(0, b"old", 0).await.expect("write");
        assert_eq!(c.read(0, 3, 0).await.expect("read").data, b"old");
        let options = ClientOptions { export: "none".into(), ..options };
        assert!(matches!(Client::connect(w.dial(), &options).await, Err(ClientError::Stream(_))));
    });
}

#[test]
fn contexts_are_listed_by_namespace_and_set_by_name() {
    World::new().run(|w| async move {
        let mut c = Client::greet(w.dial()).await.expect("greeting");
        assert_eq!(refused(c.meta(opt::SET_META_CONTEXT, "", &["base:allocation"]).await), rep::ERR_INVALID);
        c.simple_option(opt::STRUCTURED_REPLY).await.expect("structured replies");
        let names = |found: Vec<(String, u32)>| found.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
        let all = c.meta(opt::LIST_META_CONTEXT, "main", &[]).await.expect("list");
        assert_eq!(names(all), ["base:allocation", "bimetal:tier", "bimetal:heat"]);
        let own = c.meta(opt::LIST_META_CONTEXT, "", &["bimetal:", "other:x"]).await.expect("list");
        assert_eq!(names(own), ["bimetal:tier", "bimetal:heat"]);
        assert_eq!(c.meta(opt::SET_META_CONTEXT, "", &[]).await.expect("set").len(), 0);
        let set = c.meta(opt::SET_META_CONTEXT, "", &["bimetal:heat", "base:"]).await.expect("set");
        assert_eq!(names(set), ["bimetal:heat"]);
        assert_eq!(refused(c.meta(opt::SET_META_CONTEXT, "none", &["bimetal:heat"]).await), rep::ERR_UNKNOWN);
    });
}

#[test]
fn options_that_do_not_fit_are_refused_and_the_session_goes_on() {
    World::new().run(|w| async move {
        let mut c = Client::greet(w.dial()).await.expect("greeting");
        assert_eq!(refused(c.option(opt::STARTTLS, &[]).await), rep::ERR_POLICY);
        assert_eq!(refused(c.option(4711, b"abc").await), rep::ERR_UNSUP);
        assert_eq!(refused(c.option(opt::LIST, b"abc").await), rep::ERR_INVALID);
        assert_eq!(refused(c.option(opt::GO, b"abc").await), rep::ERR_INVALID);
        assert_eq!(refused(c.option(opt::INFO, &vec![0; 100 << 10]).await), rep::ERR_TOO_BIG);
        c.simple_option(opt::EXTENDED_HEADERS).await.expect("extended headers");
        assert_eq!(refused(c.option(opt::EXTENDED_HEADERS, &[]).await), rep::ERR_INVALID);
        assert_eq!(refused(c.option(opt::STRUCTURED_REPLY, &[]).await), rep::ERR_EXT_HEADER_REQD);
        c.info(opt::GO, "main").await.expect("go");
    });
}

#[test]
fn abort_is_answered_and_closes() {
    World::new().run(|w| async move {
        let mut c = Client::greet(w.dial()).await.expect("greeting");
        c.simple_option(opt::ABORT).await.expect("acknowledged");
        assert!(matches!(c.list().await, Err(ClientError::Stream(_))));
        assert_eq!(w.server.connections(), 0);
    });
}

#[test]
fn a_client_that_says_nothing_is_closed_in_time() {
    World::new().run(|w| async move {
        let c = Client::greet(w.dial()).await.expect("greeting");
        let buf = bimetal_volume::buf::BufMut::new(16);
        let (_, end) = c.conn().recv(buf, 0..16).await;
        assert!(matches!(end, Ok(0) | Err(_)));
        assert_eq!(w.runtime.now().since(Default::default()), Limits::default().handshake);
    });
}

#[test]
fn options_may_arrive_in_one_piece_and_byte_by_byte() {
    for receive_max in [1, 3, 1 << 20] {
        let world = World { receive_max, ..World::new() };
        world.run(|w| async move {
            let conn = w.dial();
            let mut bytes = 3u32.to_be_bytes().to_vec();
            encode_option(opt::EXTENDED_HEADERS, &[], &mut bytes);
            encode_option(opt::EXPORT_NAME, b"main", &mut bytes);
            conn.send(vec![Part::Bytes(bytes)]).await.1.expect("sent");
            let (mut got, mut buf) = (0, bimetal_volume::buf::BufMut::new(64));
            loop {
                let result;
                (buf, result) = conn.recv(buf, got..64).await;
                match result {
                    Ok(n) if n > 0 => got += n,
                    _ => break,
                }
            }
            // The greeting, the acknowledgement, and nothing: EXPORT_NAME cannot follow extended headers.
            assert_eq!(got, 18 + 20);
        });
    }
}

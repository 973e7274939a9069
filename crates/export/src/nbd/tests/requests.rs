use bimetal_nbd::consts::{cmd, cmd_flag, errno};
use bimetal_nbd::reply::StatusExtent;
use bimetal_volume::env::DeviceError;

use super::*;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

#[test]
fn what_is_written_is_read_in_every_style_and_however_frames_are_torn() {
    for style in STYLES {
        for receive_max in [7, 4096, 1 << 20] {
            let world = World { receive_max, ..World::new() };
            world.run(move |w| async move {
                let mut c = w.connect(style).await;
                assert_eq!(c.style(), style);
                for (offset, len) in [(0, 1), (511, 1000), (4096, 4096), (130_000, 5000), (1 << 20, 200_000)] {
                    let data = pattern(len, len as u8);
                    c.write(offset, &data, 0).await.expect("write");
                    assert_eq!(c.read(offset, len as u64, 0).await.expect("read").data, data);
                }
                assert_eq!(c.read(0, SIZE, 0).await.expect("read").data.len() as u64, SIZE);
            });
        }
    }
}

#[test]
fn holes_cost_no_data_where_the_client_knows_them() {
    World::new().run(|w| async move {
        for style in STYLES {
            let mut c = w.connect(style).await;
            c.write(128 << 10, &pattern(128 << 10, 1), 0).await.expect("write");
            let reply = c.read(0, 512 << 10, 0).await.expect("read");
            assert_eq!(reply.data[128 << 10..256 << 10], pattern(128 << 10, 1)[..]);
            assert!(reply.data[256 << 10..].iter().all(|b| *b == 0));
            if style == HeaderStyle::Simple {
                assert_eq!(reply.hole_bytes, 0);
                continue;
            }
            assert_eq!(reply.hole_bytes, 384 << 10);
            let whole = c.read(0, 512 << 10, cmd_flag::DF).await.expect("read in one chunk");
            assert_eq!((whole.content_chunks, whole.hole_bytes), (1, 0));
            assert_eq!(whole.data, reply.data);
        }
    });
}

#[test]
fn flags_reach_the_volume() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Structured).await;
        c.write(0, &[1; 4096], cmd_flag::FUA).await.expect("write");
        c.command(cmd::FLUSH, 0, 0, 0).await.expect("flush");
        c.command(cmd::TRIM, cmd_flag::FUA, 0, 8192).await.expect("trim");
        c.command(cmd::WRITE_ZEROES, cmd_flag::NO_HOLE, 1, 5).await.expect("zero");
        c.command(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, 1, 5).await.expect("zero");
        c.command(cmd::CACHE, 0, 4096, 4096).await.expect("cache");
        let expected = [
            "write 0 4096 fua true",
            "flush",
            "trim 0 8192 fua true",
            "zero 1 5 fua false no_hole true",
            "zero 1 5 fua false no_hole false",
            "cache 4096 4096",
        ];
        assert_eq!(*w.probe.log.borrow(), expected);
    });
}

#[test]
fn a_trim_of_sectors_inside_blocks_zeroes_them_on_volumes_of_small_sectors() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Structured).await;
        c.command(cmd::TRIM, 0, 512, 4096).await.expect("trim");
        w.probe.sector.set(512);
        c.write(0, &[7; 12288], 0).await.expect("write");
        c.command(cmd::TRIM, 0, 4096, 4096).await.expect("trim");
        c.command(cmd::TRIM, cmd_flag::FUA, 512, 8192).await.expect("trim");
        let data = c.read(0, 12288, 0).await.expect("read").data;
        assert!(data.iter().enumerate().all(|(i, b)| *b == if (512..8704).contains(&i) { 0 } else { 7 }));
        let expected = [
            "trim 512 4096 fua false",
            "write 0 12288 fua false",
            "trim 4096 4096 fua false",
            "zero 512 8192 fua true no_hole false",
            "read 0 12288",
        ];
        assert_eq!(*w.probe.log.borrow(), expected);
    });
}

#[test]
fn refused_requests_never_reach_the_volume_and_do_no_harm() {
    for style in STYLES {
        World::with(&["main-ro"], Limits::default()).run(move |w| async move {
            let mut c = w.connect(style).await;
            assert_eq!(errno_of(c.write(0, &[1; 100_000], 0).await), errno::EPERM);
            assert_eq!(errno_of(c.command(cmd::TRIM, 0, 0, 10).await), errno::EPERM);
            assert_eq!(errno_of(c.read(SIZE, 1, 0).await), errno::EINVAL);
            assert_eq!(errno_of(c.command(77, 0, 0, 0).await), errno::EINVAL);
            assert!(w.probe.log.borrow().is_empty());
            assert_eq!(w.server.status().refused, 4);
            assert_eq!(c.read(0, 10, 0).await.expect("still in step").data, [0; 10]);
        });
    }
}

#[test]
fn errors_of_the_volume_get_an_errno_and_words() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Structured).await;
        for (error, errno) in [
            (Error::Device { member: 1, source: DeviceError::Io(5) }, errno::EIO),
            (Error::Device { member: 1, source: DeviceError::NoSpace }, errno::ENOSPC),
            (Error::ReadOnly, errno::EPERM),
            (Error::Latched("a sync failed".into()), errno::EIO),
            (Error::Stopping, errno::ESHUTDOWN),
        ] {
            *w.probe.fail.borrow_mut() = Some(error.clone());
            match c.read(0, 512, 0).await {
                Err(ClientError::Failed { errno: e, words }) => assert_eq!((e, words), (errno, error.to_string())),
                other => panic!("{other:?}"),
            }
            assert_eq!(errno_of(c.write(0, &[0; 512], 0).await), errno);
        }
        let stats = &w.server.status().requests;
        assert_eq!((stats[Kind::Read as usize].failed, stats[Kind::Write as usize].failed), (5, 5));
    });
}

#[test]
fn block_status_tells_each_context() {
    World::new().run(|w| async move {
        for style in [HeaderStyle::Structured, HeaderStyle::Extended] {
            let mut c = w.connect(style).await;
            // The second part of the memory volume shows as slow, the third as fast.
            c.write(128 << 10, &[1; 256 << 10], 0).await.expect("write");
            let reply = c.command(cmd::BLOCK_STATUS, 0, 0, 512 << 10).await.expect("status");
            let told = |name: &str| {
                reply.status[&c.contexts[name]].iter().map(|e| (e.len >> 10, e.status)).collect::<Vec<_>>()
            };
            assert_eq!(told("base:allocation"), [(128, 3), (256, 0), (128, 3)]);
            assert_eq!(told("bimetal:tier"), [(128, 0), (128, 2), (128, 1), (128, 0)]);
            assert_eq!(told("bimetal:heat"), [(128, 0), (128, 1), (128, 2), (128, 0)]);
            let one = c.command(cmd::BLOCK_STATUS, cmd_flag::REQ_ONE, 128 << 10, 512 << 10).await.expect("status");
            let (allocation, tier) = (c.contexts["base:allocation"], c.contexts["bimetal:tier"]);
            assert_eq!(one.status[&allocation], [StatusExtent { len: 256 << 10, status: 0 }]);
            assert_eq!(one.status[&tier], [StatusExtent { len: 128 << 10, status: 2 }]);
        }
    });
}

#[test]
fn block_status_can_be_limited_to_some_contexts() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Extended).await;
        let (tier, heat) = (c.contexts["bimetal:tier"], c.contexts["bimetal:heat"]);
        let reply = c.filtered_status(0, SIZE, vec![heat]).await.expect("status");
        assert_eq!(reply.status.keys().collect::<Vec<_>>(), [&heat]);
        assert_eq!(errno_of(c.filtered_status(0, SIZE, vec![99]).await), errno::EINVAL);
        assert_eq!(errno_of(c.filtered_status(0, SIZE, vec![tier, tier]).await), errno::EINVAL);
        assert_eq!(errno_of(c.filtered_status(0, SIZE, vec![]).await), errno::EINVAL);
        assert_eq!(errno_of(c.filtered_status(0, SIZE + 1, vec![tier]).await), errno::EINVAL);
        assert_eq!(errno_of(c.filtered_status(0, 0, vec![tier]).await), errno::EINVAL);
    });
}

#[test]
fn extended_headers_carry_64_bit_lengths() {
    let runtime = TestRuntime::new();
    let size = 20 << 40;
    let export = Export {
        uuid: [1; 16],
        name: "huge".into(),
        description: String::new(),
        backend: crate::backends::Null::new(size),
        read_only: false,
    };
    let server = Server::new(runtime.clone(), vec![export], Limits::default());
    let done = runtime.block_on(async move {
        let (ours, theirs) = pipe(1 << 16, 1 << 16);
        server.serve(theirs, "test".into());
        let contexts = vec!["base:allocation".to_owned()];
        let options = ClientOptions { style: HeaderStyle::Extended, contexts, ..ClientOptions::default() };
        let mut c = Client::connect(ours, &options).await.expect("connects");
        c.command(cmd::TRIM, 0, 4096, size - 4096).await.expect("trim");
        c.command(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, 0, size).await.expect("zero");
        let reply = c.command(cmd::BLOCK_STATUS, 0, 0, size).await.expect("status");
        assert_eq!(reply.status[&c.contexts["base:allocation"]], [StatusExtent { len: size, status: 3 }]);
        assert_eq!(errno_of(c.read(0, (32 << 20) + 1, 0).await), errno::EINVAL);
        assert_eq!(errno_of(c.read(0, (32 << 20) + 1, cmd_flag::DF).await), errno::EOVERFLOW);
        assert_eq!(c.read(size - (32 << 20), 32 << 20, 0).await.expect("read").hole_bytes, 32 << 20);
        server.stop().await;
    });
    assert!(done.is_some(), "the test hangs");
    runtime.drop_tasks();
}

#[test]
fn requests_of_no_bytes_succeed() {
    for style in STYLES {
        World::new().run(move |w| async move {
            let mut c = w.connect(style).await;
            assert!(c.read(SIZE, 0, 0).await.expect("read").data.is_empty());
            c.command(cmd::TRIM, 0, 0, 0).await.expect("trim");
            c.command(cmd::WRITE_ZEROES, 0, SIZE, 0).await.expect("zero");
            assert!(w.probe.log.borrow().is_empty());
        });
    }
}

#[test]
fn statistics_count_requests_by_kind() {
    World::new().run(|w| async move {
        let mut c = w.connect(HeaderStyle::Simple).await;
        c.write(0, &[1; 4096], 0).await.expect("write");
        c.read(0, 4096, 0).await.expect("read");
        c.read(0, 8192, 0).await.expect("read");
        let status = w.server.status();
        let read = &status.requests[Kind::Read as usize];
        assert_eq!((read.answered, read.failed, read.bytes, read.latency.count()), (2, 0, 12288, 2));
        assert_eq!(status.requests[Kind::Write as usize].bytes, 4096);
        assert_eq!(status.connections[0].requests, 3);
        assert_eq!(status.connections[0].peer, "test");
    });
}

//! What a trace becomes.

use super::*;

fn cut(start: Start, list: &[(u64, Op, u64, u64)]) -> Stream {
    let accesses =
        list.iter().map(|(time_us, op, offset, len)| Access { time_us: *time_us, op: *op, offset: *offset, len: *len });
    Stream::new(accesses, start).expect("small enough")
}

#[test]
fn a_request_is_cut_at_chunk_borders() {
    let s = cut(Start::Fresh, &[(7, Op::Write, CHUNK - 1000, CHUNK + 3000)]);
    let seen: Vec<_> = s.pieces.iter().map(|p| (p.time_ns, p.chunk, p.offset, p.len, p.kind, p.follows)).collect();
    let chunk = CHUNK as u32;
    assert_eq!(
        seen,
        [
            (7000, 0, chunk - 1000, 1000, Kind::Birth, Follows::Nothing),
            (7000, 1, 0, chunk, Kind::Birth, Follows::Before),
            (7000, 2, 0, 2000, Kind::Birth, Follows::Before),
        ]
    );
    assert_eq!((s.chunks, s.footprint, s.user_bytes), (3, 3, CHUNK + 3000));
}

#[test]
fn a_piece_knows_how_many_chunks_its_run_went_through_before() {
    let list = [
        (0, Op::Read, 10 * CHUNK - 4096, 4096),
        (1, Op::Read, 10 * CHUNK, 2 * CHUNK + 4096),
        (2, Op::Read, 12 * CHUNK + 4096, CHUNK),
        (3, Op::Read, 13 * CHUNK, 4096),
        (4, Op::Read, 0, 300 * CHUNK),
    ];
    let behind: Vec<_> = cut(Start::Aged, &list).pieces.iter().map(|p| p.behind).collect();
    assert_eq!(behind[..7], [0, 1, 2, 3, 3, 4, 0]);
    assert_eq!(behind[behind.len() - 300..], (0..300).map(|n: u32| n.min(255) as u8).collect::<Vec<_>>()[..]);
}

#[test]
fn what_was_read_first_was_there_before() {
    let list = [
        (0, Op::Read, 0, 4096),
        (1, Op::Write, 0, 4096),
        (2, Op::Write, CHUNK, 4096),
        (3, Op::Write, CHUNK, 4096),
        (4, Op::Trim, CHUNK, CHUNK),
        (5, Op::Read, CHUNK, 4096),
        (6, Op::Trim, CHUNK, CHUNK),
        (7, Op::Write, CHUNK, 4096),
        (8, Op::Trim, 0, 4096),
        (9, Op::Flush, 0, 0),
    ];
    let kinds = |start| cut(start, &list).pieces.iter().map(|p| p.kind).collect::<Vec<_>>();
    use Kind::{Birth, Read, Trim, Write};
    assert_eq!(kinds(Start::Fresh), [Read, Write, Birth, Write, Trim, Birth]);
    assert_eq!(kinds(Start::Aged), [Read, Write, Write, Write, Trim, Birth]);
}

#[test]
fn requests_go_on_where_others_ended_and_count_once() {
    let second = 1_000_000;
    let list = [
        (0, Op::Read, 0, 4096),
        (1, Op::Read, 10 * CHUNK, CHUNK),
        (2, Op::Read, 4096, 4096),
        (3, Op::Read, 11 * CHUNK + 4096, 4096),
        (second / 10, Op::Read, 8192 + 64 * 1024, 512),
        (3 * second, Op::Read, 64 * 1024, 512),
    ];
    let s = cut(Start::Aged, &list);
    use Follows::{Before, Nothing, Same};
    let seen: Vec<_> = s.pieces.iter().map(|p| (p.follows, p.visit)).collect();
    let expected = [(Nothing, true), (Nothing, true), (Same, false), (Before, true), (Same, false), (Nothing, true)];
    assert_eq!(seen, expected);
    assert_eq!((s.accesses(), s.visits()), (6, 4));
}

#[test]
fn a_request_beyond_any_device_is_refused() {
    let end = i64::MAX as u64;
    let access = |offset, len| [Access { time_us: 0, op: Op::Read, offset, len }];
    assert_eq!(Stream::new(access(end - 512, 1024), Start::Aged).err(), Some(TooLarge { end: end + 512 }));
    assert_eq!(Stream::new(access(u64::MAX, 512), Start::Aged).err(), Some(TooLarge { end: u64::MAX }));
    assert!(Stream::new(access(end - 512, 512), Start::Aged).is_ok());
}

/// Reads and writes that hardly touch a volume of 16 TB, up to its end, and discards of all of it.
#[test]
fn what_a_replay_holds_follows_what_is_touched_and_not_how_far_it_reaches() {
    let end = 16_000_900_661_248;
    let list = [
        (0, Op::Read, end - 4096, 4096),
        (1, Op::Write, 3 * CHUNK, 2 * CHUNK),
        (2, Op::Write, end / 2, 4096),
        (3, Op::Trim, 0, end),
        (4, Op::Read, end / 2, 4096),
        (5, Op::Write, end / 2, 4096),
    ];
    let s = cut(Start::Fresh, &list);
    use Kind::{Birth, Read, Trim};
    let kinds: Vec<_> = s.pieces.iter().map(|p| p.kind).collect();
    assert_eq!(kinds, [Read, Birth, Birth, Birth, Trim, Trim, Trim, Trim, Birth]);
    // In the order in which they lie: three groups of 8, and a free one between each two.
    let chunks: Vec<_> = s.pieces.iter().map(|p| p.chunk).collect();
    assert_eq!((chunks[1], chunks[2], chunks[8]), (3, 4, 16 + chunks[8] % 8));
    assert_eq!((chunks[4..8].to_vec(), s.chunks), (vec![3, 4, chunks[8], chunks[0]], 40));
    assert!(chunks[0] >= 32 && s.footprint == 4 && !s.cut);
}

/// All that policies and costs know of a trace is the same wherever on a large volume its parts lie.
#[test]
fn a_large_volume_is_replayed_like_a_small_one() {
    let near = requests(3, 400, 4000);
    // In the same order, the second half far behind the first.
    let far = |a: &Access| Access { offset: a.offset + if a.offset < 200 * CHUNK { 0 } else { 1 << 50 }, ..*a };
    let list: Vec<Access> =
        near.into_iter().filter(|a| (a.offset + a.len > 200 * CHUNK) == (a.offset >= 200 * CHUNK)).collect();
    let (small, large) = (list.clone(), list.iter().map(far).collect::<Vec<_>>());
    let replayed = |accesses: Vec<Access>| {
        let stream = Stream::new(accesses, Start::Aged).expect("small enough");
        let setup = Setup::new(40);
        let lru = replay(&stream, &mut Seated(Shadow::new(cache::Lru::new(stream.chunks, 40))), &setup);
        let smq = replay(&stream, &mut Seated(Smq::new(stream.chunks, 40)), &setup);
        let ours = replay(&stream, &mut Production::new(40), &setup);
        ((lru, smq, stream.footprint, stream.user_bytes), ours.foreground_ns as f64)
    };
    let (small, large) = (replayed(small), replayed(large));
    assert_eq!(small.0, large.0);
    // It hashes numbers of chunks, so that chance is another.
    assert!((small.1 / large.1 - 1.0).abs() < 0.05, "{} and {}", small.1, large.1);
}

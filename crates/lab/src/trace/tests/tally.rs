//! The numbers of a trace, from one that can be counted by hand.

use super::*;

const CHUNK: u64 = 128 << 10;

fn summary(accesses: &[Access]) -> Summary {
    let mut tally = Tally::default();
    for access in accesses {
        tally.add(access).unwrap();
    }
    tally.summary()
}

#[test]
fn counted_by_hand() {
    let s = summary(&[
        access(0, Op::Write, 0, 4096),
        // The last byte of chunk 0 and the first of chunk 1.
        access(5, Op::Read, CHUNK - 1, 2),
        // Exactly chunk 2.
        access(6, Op::Read, 2 * CHUNK, CHUNK),
        access(7, Op::Trim, 8 * CHUNK, CHUNK),
        access(8, Op::Flush, 0, 0),
        access(1_000_000, Op::Write, 100, 1),
    ]);
    assert_eq!((s.requests(), s.reads, s.writes, s.trims, s.flushes), (6, 2, 2, 1, 1));
    assert_eq!((s.bytes_read, s.bytes_written, s.bytes_trimmed), (CHUNK + 2, 4097, CHUNK));
    assert_eq!((s.chunks, s.accesses, s.footprint()), (3, 5, 3 * CHUNK));
    assert_eq!((s.duration_us, s.end), (1_000_000, 9 * CHUNK));
    // One chunk is the hottest 1 % and 10 % of three: chunk 0, used three times.
    assert_eq!(s.hottest_1, Hottest { chunks: 1, accesses: 3 });
    assert_eq!(s.hottest_10, s.hottest_1);
    assert_eq!((s.used_once, s.read_share()), (2, 0.5));
    assert!(s.to_string().contains("hottest 10 %    60.0 % of accesses"), "{s}");
}

#[test]
fn shares_of_a_uniform_pattern_are_those_of_the_chunks() {
    let accesses: Vec<Access> = (0..2000).map(|i| access(i, Op::Read, i % 1000 * CHUNK, 512)).collect();
    let s = summary(&accesses);
    assert_eq!((s.hottest_1_share(), s.hottest_10_share(), s.used_once_share()), (0.01, 0.1, 0.0));
    let nothing = summary(&[]);
    assert_eq!((nothing.read_share(), nothing.hottest_10_share(), nothing.used_once_share()), (0.0, 0.0, 0.0));
}

#[test]
fn a_footprint_without_end_costs_no_memory_without_end() {
    let mut tally = Tally::with_limit(100);
    for i in 0..200 {
        tally.add(&access(i, Op::Read, i % 100 * CHUNK, 512)).unwrap();
    }
    let before = tally.summary();
    assert_eq!(tally.add(&access(200, Op::Read, 100 * CHUNK, 1 << 50)), Err(FootprintTooLarge { chunks_max: 100 }));
    assert_eq!(tally.summary().chunks, before.chunks);
    assert!(tally.add(&access(201, Op::Read, 0, 512)).is_ok());
}

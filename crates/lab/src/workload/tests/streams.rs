//! Workloads of a given order: scans, films, starts, commits.

use super::*;

#[test]
fn a_scan_reads_everything_once_while_somebody_works() {
    let spec = Scan { pause_us: 1_000_000, ..Scan::default() };
    let scanned = part(GIB, 800_000);
    let accesses = take(&spec, GIB, 5, 40_000);
    let (scan, work): (Vec<&Access>, Vec<&Access>) = accesses.iter().partition(|a| a.len > 16 << 10);
    let mut at = 0;
    let mut passes = 0;
    for access in &scan {
        assert_eq!((access.op, access.offset), (Op::Read, at));
        at += access.len;
        if at == scanned {
            (at, passes) = (0, passes + 1);
        }
    }
    assert!(passes >= 3, "{passes}");
    // 100 MiB/s: a pass of 819.2 MiB in 8.192 s, and a second of pause.
    let pass: Vec<&&Access> = scan.iter().take_while(|a| a.offset + a.len < scanned).collect();
    assert!((pass[pass.len() - 1].time_us as f64 / 8.192e6 - 1.0).abs() < 0.01);
    assert!(plausible(work.iter().filter(|a| a.op == Op::Write).count(), work.len(), 1.0 / 3.0));
    let rate = work.len() as f64 * 20_000.0 / accesses[39_999].time_us as f64;
    assert!((rate - 1.0).abs() < 0.1, "{rate}");
}

#[test]
fn a_film_is_read_here_and_written_there() {
    let spec = FilmCopy { pause_us: 7_000_000, ..FilmCopy::default() };
    let accesses = take(&spec, GIB, 5, 30_000);
    let copy: Vec<&Access> = accesses.iter().filter(|a| a.len > 16 << 10).collect();
    let sum = |op| copy.iter().filter(|a| a.op == op).map(|a| a.len).sum::<u64>();
    let (read, written) = (sum(Op::Read), sum(Op::Write));
    assert!(read > 200 * MIB && read - written <= MIB, "{read} {written}");
    let half = GIB / 2;
    for access in &copy {
        assert_eq!(access.op == Op::Write, access.offset >= half);
        assert!(access.op == Op::Write || access.offset + access.len <= half);
    }
    // A film ends where there is a pause; sizes are from a quarter of the largest to that.
    let largest = part(GIB, 50_000);
    let mut films = vec![0u64];
    for pair in copy.windows(2) {
        if pair[0].op == Op::Write {
            *films.last_mut().unwrap() += pair[0].len;
        }
        if pair[1].time_us - pair[0].time_us >= 7_000_000 {
            films.push(0);
        }
    }
    films.pop();
    assert!(films.len() > 5 && films.iter().all(|f| (largest / 4 / PAGE * PAGE..=largest).contains(f)), "{films:?}");
}

#[test]
fn every_morning_is_the_same_and_favourites_are_started_again() {
    let spec = Boot { launches: 300, ..Boot::default() };
    let (boot, launch) = (part(4 * GIB, spec.boot_ppm), part(4 * GIB, spec.launch_ppm));
    // Starts, each with what it reads in order; a start ends when it has read all.
    let mut starts: Vec<Vec<(u64, u64)>> = vec![Vec::new()];
    let mut left = boot;
    let mut mornings = vec![0];
    let mut last_us = 0;
    for access in take(&spec, 4 * GIB, 3, 300_000) {
        assert_eq!(access.op, Op::Read);
        if left == 0 {
            starts.push(Vec::new());
            left = launch;
            if access.time_us - last_us >= spec.night_us {
                mornings.push(starts.len() - 1);
                left = boot;
            }
        }
        last_us = access.time_us;
        left -= access.len;
        starts.last_mut().unwrap().push((access.offset, access.len));
    }
    assert!(mornings.len() >= 10, "{}", mornings.len());
    assert!(mornings.windows(2).all(|m| m[1] - m[0] == 301));
    assert!(mornings[..mornings.len() - 1].iter().all(|&i| starts[i] == starts[0]));
    let mut programs: BTreeMap<&[(u64, u64)], usize> = BTreeMap::new();
    let whole = mornings[mornings.len() - 1];
    for (i, start) in starts[..whole].iter().enumerate() {
        if !mornings.contains(&i) {
            *programs.entry(start).or_default() += 1;
        }
    }
    assert!(programs.len() <= 60 && programs.len() > 55, "{}", programs.len());
    let launches = programs.values().sum::<usize>();
    let favourite = *programs.values().max().unwrap();
    let harmonic: f64 = (1..=60).map(|k| 1.0 / f64::from(k)).sum();
    assert!(plausible(favourite, launches, 1.0 / harmonic), "{favourite} of {launches}");
}

#[test]
fn every_commit_is_flushed() {
    let spec = SyncWrites::default();
    let (journal, tables) = (part(GIB, spec.journal_ppm), part(GIB, spec.tables_ppm));
    let accesses = take(&spec, GIB, 3, 100_000);
    let (mut at, mut commits, mut pages, mut reads) = (0, 0, 0u64, 0);
    for (i, access) in accesses[..99_000].iter().enumerate() {
        match access.op {
            Op::Write if access.offset < journal => {
                // Round and round.
                assert!(access.offset == at || access.offset == 0 && at + (16 << 10) > journal, "{access:?}");
                at = access.offset + access.len;
                assert_eq!(accesses[i + 1].op, Op::Flush);
                commits += 1;
            }
            Op::Write | Op::Read => {
                assert!((journal..journal + tables).contains(&access.offset) && access.len == 4096);
                match access.op {
                    Op::Read => reads += 1,
                    _ => pages += 1,
                }
            }
            Op::Flush => {
                // After a commit, or after the last page of a checkpoint.
                assert!(accesses[i - 1].op == Op::Write && accesses[i - 1].time_us == access.time_us);
            }
            Op::Trim => panic!("no discards"),
        }
    }
    assert!(commits > 30_000 && plausible(reads, commits, 0.5), "{reads} of {commits}");
    assert_eq!(pages / 100, commits as u64 / 200);
}

#[test]
fn streams_side_by_side_keep_their_order() {
    let volume = GIB;
    let parts = || vec![VmImage::default().accesses(volume, 1).unwrap(), Boot::default().accesses(volume, 2).unwrap()];
    let both: Vec<Access> = interleave(parts()).take(20_000).collect();
    assert!(both.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us));
    let mut apart = parts();
    let mut next: Vec<Access> = apart.iter_mut().map(|s| s.next().unwrap()).collect();
    for access in both {
        let i = (0..2).find(|&i| next[i] == access).expect("the next of one of them");
        next[i] = apart[i].next().unwrap();
    }
    let two = vec![Access { time_us: 3, op: Op::Read, offset: 0, len: 512 }; 2];
    assert_eq!(interleave(vec![Box::new(two.clone().into_iter())]).collect::<Vec<_>>(), two);
    assert_eq!(interleave(Vec::new()).count(), 0);
}

//! One block of metadata is rotten or cannot be read, beside a start, a stop or a repair that was cut off: what another member knows
//! is not lost, and nothing is refused that need not be.

use std::time::Duration;

use bimetal_volume::env::Env as _;
use bimetal_volume::inspect;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::repair::Plan;
use bimetal_volume::units::{Placement, Tier, BLOCK, CHUNK};

use crate::image::places::{journal_blocks, places};
use crate::image::*;
use crate::memory::{MemoryDevice, MemoryEnv};

const ALWAYS: u32 = 1_000_000;

fn group(env: &MemoryEnv, fast: usize, slow: usize, placement: Placement) -> Members {
    let mut m = Members((0..fast + slow).map(|_| MemoryDevice::new(64 * MIB)).collect());
    m.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let tier = |i| if i < fast { Tier::Fast } else { Tier::Slow };
    let members = m.0.iter().cloned().enumerate().map(|(i, d)| (d, tier(i))).collect();
    let volume = |name: &str, size, placement| NewVolume { name: name.into(), size: Some(size), placement };
    let volumes = vec![volume("main", 40 * MIB, Placement::Auto), volume("other", 8 * MIB, placement)];
    make(env, members, CreateOptions { journal_blocks: Some(64), ..small(volumes) });
    m
}

/// Writes the first block of chunks of `main`, each made durable.
fn put(env: &MemoryEnv, m: &Members, chunks: impl IntoIterator<Item = u64>, stopped: bool) {
    let g = open(env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("main");
    for n in chunks {
        write(env, &v, n * CHUNK, &[1 + n as u8; 4096]).expect("write");
        flush(env, &v).expect("flush");
    }
    drop(v);
    match stopped {
        true => stop(env, g).expect("stop"),
        false => drop(g),
    }
    env.kill();
}

/// The first byte of these chunks.
fn got(m: &Members, name: &str, options: OpenOptions, chunks: impl Iterator<Item = u64>) -> Vec<Option<u8>> {
    let env = MemoryEnv::new();
    let g = open(&env, &m.0, options).expect("opens");
    let v = g.volume(name).expect("there");
    let all = chunks.map(|n| read(&env, &v, n * CHUNK, BLOCK).ok().map(|d| d[0])).collect();
    drop((g, v));
    env.kill();
    all
}

fn plan<T: 'static>(m: &Members, look: impl FnOnce(&Plan<MemoryEnv>) -> T + 'static) -> T {
    let (env, devices) = (MemoryEnv::new(), m.0.clone());
    let of = env.clone();
    env.block_on(async move { look(&Plan::new(of, devices, false).await.expect("a plan")) })
}

/// A journal whose tail is its second block ends with a run of one: its first. Nobody needs what is there.
#[test]
fn one_unreadable_block_of_a_journal_is_no_dead_device() {
    let env = MemoryEnv::new();
    let m = group(&env, 2, 2, Placement::SlowOnly);
    put(&env, &m, 0..1, true);
    put(&env, &m, 1..2, false);
    let mut seen = 0;
    for member in 0..4 {
        let (label, layout) = (m.0[member].label(), m.0[member].layout());
        if label.journal_tail % layout.journal_blocks != 1 {
            continue;
        }
        seen += 1;
        for options in [read_only(), writable()] {
            let c = m.copy();
            c.0[member].unread.borrow_mut().insert(layout.journal_block(0) / BLOCK, ALWAYS);
            assert_eq!(got(&c, "main", options, 0..2), [Some(1), Some(2)], "member {member}");
        }
    }
    assert!(seen > 0, "no journal is in that state");
}

/// A journal block in use is asked for again; one that is not read is a reason to ask before anything is given up.
#[test]
fn a_journal_block_is_read_patiently() {
    let env = MemoryEnv::new();
    let m = group(&env, 1, 1, Placement::Auto);
    put(&env, &m, 0..3, false);
    let blocks = journal_blocks(&m.0[0]);
    let at = blocks[blocks.len() - 2] / BLOCK;
    let c = m.copy();
    c.0[0].unread.borrow_mut().insert(at, 4);
    assert_eq!(got(&c, "main", writable(), 0..3), [Some(1), Some(2), Some(3)]);
    m.0[0].unread.borrow_mut().insert(at, ALWAYS);
    assert!(plan(&m, Plan::unread) > 0, "what would be given up may be read another time");
}

/// The directory of the only SSD cannot be read, a repair is begun and cut off, and the directory can be read again: the group is as it
/// was, or as the repair would have left it.
#[test]
fn a_repair_that_is_cut_off_mixes_no_maps() {
    let env = MemoryEnv::new();
    let m = group(&env, 1, 1, Placement::Auto);
    // The current copies of the two pages lie on different sides.
    put(&env, &m, [0, 252], true);
    put(&env, &m, [1], true);
    put(&env, &m, [2], false);
    let chunks = [0, 1, 2, 252];
    let before = chunks.map(|n| Some(1 + n as u8)).to_vec();
    let root = places(&m).into_iter().find(|p| p.member == 0 && p.what == "root").expect("there").bytes.start / BLOCK;
    let mut ends = Vec::new();
    for writes in 0.. {
        let c = m.copy();
        c.0[0].unread.borrow_mut().insert(root, ALWAYS);
        c.0[0].writes_left.set(writes);
        let done = repair(&MemoryEnv::new(), &c.0).is_ok();
        c.0[0].unread.borrow_mut().clear();
        c.0[0].writes_left.set(u64::MAX);
        ends.push(got(&c, "main", read_only(), chunks.into_iter()));
        if done {
            break;
        }
    }
    let after = ends.last().expect("it ends").clone();
    assert!(ends.len() > 4 && before != after);
    assert!(ends.iter().all(|e| *e == before || *e == after), "{ends:?}");
}

/// After an orderly stop a disk knows everything: what cannot be read on the SSD refuses a start, which may come too early, but a
/// repair knows why, and gives nothing up.
#[test]
fn a_directory_that_stays_unread_is_a_reason_for_a_repair() {
    for what in ["root", "directory"] {
        let env = MemoryEnv::new();
        let m = group(&env, 1, 1, Placement::Auto);
        put(&env, &m, 0..3, true);
        let p = places(&m).into_iter().find(|p| p.member == 0 && p.what == what).expect("there");
        m.0[0].unread.borrow_mut().insert(p.bytes.start / BLOCK, ALWAYS);
        assert!(open(&env, &m.0, writable()).is_err());
        let report = check(&env, &m.0).expect("checked");
        let told = |p: &inspect::Problem| p.serious && p.what.contains("bimetal repair");
        assert!(report.problems.iter().any(told), "{what}: no start mends it: {:?}", report.problems);
        let reasons = plan(&m, Plan::reasons);
        assert!(reasons.iter().any(|why| why.contains("directory")), "{what}: {reasons:?}");
        assert_eq!(plan(&m, Plan::unread), 0);
        // A disk that is written reads again.
        m.0[0].unread.borrow_mut().clear();
        assert_eq!(repair(&env, &m.0).expect("repaired").given_up, 0);
        assert_eq!(got(&m, "main", writable(), 0..3), [Some(1), Some(2), Some(3)]);
    }
}

/// An orderly stop, and a start or stop that is cut off between its labels: the disk still knows everything.
#[test]
fn what_a_disk_knows_from_a_stop_outlives_a_start_that_is_cut_off() {
    let mut tried = 0;
    for (what, limited) in ["page", "directory", "root"].into_iter().flat_map(|what| [(what, 0), (what, 1)]) {
        for stopping in [false, true] {
            for writes in 0.. {
                let env = MemoryEnv::new();
                let m = group(&env, 1, 1, Placement::Auto);
                put(&env, &m, 0..2, true);
                put(&env, &m, 252..253, !stopping);
                m.0[limited].writes_left.set(writes);
                let started = open(&env, &m.0, writable());
                let whole = match (started, stopping) {
                    (Ok(g), true) => stop(&env, g).is_ok(),
                    (started, _) => started.is_ok(),
                };
                env.kill();
                m.0[limited].writes_left.set(u64::MAX);
                if whole {
                    break;
                }
                let disk = m.0[1].label();
                if !disk.stopped {
                    continue;
                }
                tried += 1;
                let p = places(&m).into_iter().find(|p| p.member == 0 && p.what == what).expect("there");
                m.0[0].flip(p.bytes.start + 100, 1);
                let at = format!("{what}, {writes} writes to {limited}, stopping {stopping}");
                let content = got(&m, "main", writable(), [0, 1, 252].into_iter());
                assert_eq!(content, [Some(1), Some(2), Some(253)], "{at}");
            }
        }
    }
    assert!(tried > 20, "{tried} cut-offs");
}

/// Two disks claim a chunk that has just gone from one to the other, and a page of the SSD rots: its journal knows whose it is.
#[test]
fn of_two_disks_that_claim_a_chunk_the_journal_knows_which() {
    let env = MemoryEnv::new();
    let m = group(&env, 1, 2, Placement::SlowOnly);
    let g = open(&env, &m.0, OpenOptions { migrate: false, ..writable() }).expect("opens");
    let cold = g.volume("other").expect("there");
    for n in 0..40 {
        write(&env, &cold, n * CHUNK, &[1 + n as u8; CHUNK as usize]).expect("write");
    }
    let leaving = cold.members_of(0).next().expect("on a disk");
    stop(&env, g).expect("stop");
    drop(cold);
    let g = open(&env, &m.0, writable()).expect("opens");
    let (main, cold) = (g.volume("main").expect("there"), g.volume("other").expect("there"));
    // The SSD's page is newer than the disks', and its journal begins behind that.
    write(&env, &cold, 41 * CHUNK, &[3; 4096]).expect("write");
    let begun = m.0[0].label().journal_tail;
    for n in 0..200 {
        write(&env, &main, n % 40 * CHUNK, &[3; 4096]).expect("write");
        flush(&env, &main).expect("flush");
    }
    assert!(m.0[0].label().journal_tail > begun);
    evacuate(&env, &g, usize::from(leaving));
    // The disk that is being emptied is busy: its journal hears of it later.
    m.0[usize::from(leaving)].write_takes.set(Duration::from_millis(500));
    let on = |n: u64| cold.members_of(n * CHUNK).next();
    let first = || (0..40).find(|n| on(*n) != Some(leaving) && on(*n).is_some());
    let before: Vec<_> = (0..40).map(on).collect();
    for _ in 0..2_000_000 {
        if (0..40).any(|n| on(n) != before[n as usize]) {
            break;
        }
        env.block_on(env.sleep(Duration::from_micros(1)));
    }
    assert!(first().is_some());
    flush(&env, &cold).expect("flush");
    drop((g, main, cold));
    env.kill();
    m.0.iter().for_each(|d| d.write_takes.set(Duration::ZERO));
    let mut pages = places(&m).into_iter().filter(|p| p.member == 0 && p.what == "page");
    let last = pages.next_back().expect("that of the other volume");
    m.0[0].flip(last.bytes.start + 100, 1);
    let want: Vec<_> = (0..40).map(|n| Some(1 + n as u8)).collect();
    assert_eq!(got(&m, "other", read_only(), 0..40), want);
}

/// Of two SSDs one has made its checkpoint, and on the other the only block of the last commit rots: it lacks that one commit, which
/// the first one's pages have.
#[test]
fn the_block_of_the_last_commit_rots_beside_a_checkpoint() {
    let env = MemoryEnv::new();
    let m = group(&env, 2, 1, Placement::Auto);
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("main");
    m.0[1].write_takes.set(Duration::from_millis(50));
    let mut n = 0;
    while m.0[0].label().checkpoint_generation == 0 {
        write(&env, &v, n * CHUNK, &[1 + n as u8; 4096]).expect("write");
        flush(&env, &v).expect("flush");
        n += 1;
        env.block_on(env.sleep(Duration::from_millis(1)));
    }
    drop((g, v));
    env.kill();
    m.0.iter().for_each(|d| d.write_takes.set(Duration::ZERO));
    assert_eq!(m.0[1].label().checkpoint_generation, 0);
    let last = *journal_blocks(&m.0[1]).last().expect("some");
    m.0[1].flip(last + 100, 1);
    let want: Vec<_> = (0..n).map(|n| Some(1 + n as u8)).collect();
    for options in [read_only(), writable()] {
        assert_eq!(got(&m.copy(), "main", options, 0..n), want);
    }
}

/// What a start could not write names the member that failed.
#[test]
fn a_start_names_the_member_that_fails() {
    let env = MemoryEnv::new();
    let m = group(&env, 1, 2, Placement::SlowOnly);
    put(&env, &m, 0..3, true);
    let away: Vec<_> = places(&m).into_iter().filter(|p| p.member == 2 && p.what == "away").collect();
    m.0[2].bad.borrow_mut().extend(away.iter().map(|p| p.bytes.start / BLOCK));
    let why = open(&env, &m.0, writable()).err().expect("nothing may be served").to_string();
    assert!(why.starts_with("member 2:"), "{why}");
}

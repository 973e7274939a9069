//! A disk that stands still, beside another one of its tier: what the other can do is not left to it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::NewFamily;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{evacuate, flush, make, open, pass, read, small, used, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv, HELD};

const HOUR: Duration = Duration::from_secs(3600);

/// What a write has come to, if it has.
type Told = Rc<RefCell<Option<Result<(), Error>>>>;

struct Made {
    env: MemoryEnv,
    d: Vec<MemoryDevice>,
    g: Group<MemoryEnv>,
    v: Volume<MemoryEnv>,
}

/// An SSD, a disk, and a larger one, with a volume of this placement.
fn group(placement: Placement) -> Made {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let d = [256, 512, 1024].map(device).to_vec();
    let volume = NewVolume { name: "main".into(), size: Some(400 * MIB), placement };
    make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect(), small(vec![volume]));
    let g = open(&env, &d, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    // All disks hear of the regions that chunks come to.
    write(&env, &v, 240 * CHUNK, &[7; 4096]).and_then(|()| flush(&env, &v)).expect("write");
    pass(&env, 60);
    Made { env, d, g, v }
}

impl Made {
    /// Begins to write so many whole chunks from this one on; what they come to.
    fn begin(&self, first: u64, chunks: u64) -> Vec<Told> {
        let begin = |chunk: u64| {
            let ended = Rc::new(RefCell::new(None));
            let (told, v) = (ended.clone(), self.v.clone());
            self.env.spawn(async move {
                let data = BufMut::zeroed(CHUNK as usize).freeze();
                let result = v.write(chunk * CHUNK, data, WriteFlags::default()).await;
                *told.borrow_mut() = Some(result);
            });
            ended
        };
        (first..first + chunks).map(begin).collect()
    }

    /// The members that these chunks live on.
    fn homes(&self, chunks: std::ops::Range<u64>) -> Vec<u8> {
        chunks.filter_map(|c| self.v.members_of(c * CHUNK).next()).collect()
    }
}

#[test]
fn new_chunks_go_to_a_disk_that_answers_while_the_larger_one_stands_still() {
    let made = group(Placement::SlowOnly);
    let (env, v) = (&made.env, &made.v);
    // It answers nothing any more, and something waits for it: the first of these.
    made.d[2].stands_until.set(env.now().plus(HOUR));
    let first = made.begin(0, 1);
    pass(env, 5);
    assert!(first[0].borrow().is_none(), "the larger disk is the emptiest");
    // Beside it, and elsewhere.
    for chunk in [1, 2, 3, 40, 41, 100] {
        let begun = env.now();
        write(env, v, chunk * CHUNK, &[7; CHUNK as usize]).expect("there is room on the other disk");
        assert!(env.now().since(begun) < Duration::from_secs(1), "chunk {chunk}");
    }
    flush(env, v).expect("nothing of it lies on the disk that stands still");
    assert!(made.homes(1..200).iter().all(|m| *m == 1));
    pass(env, 3600);
    assert!(matches!(*first[0].borrow(), Some(Ok(()))));
    write(env, v, 200 * CHUNK, &[7; CHUNK as usize]).expect("it answers again");
    assert_eq!(made.homes(200..201), [2]);
}

#[test]
fn what_fits_nowhere_else_waits_for_a_disk_that_stands_still() {
    let made = group(Placement::SlowOnly);
    let env = &made.env;
    made.d[2].stands_until.set(env.now().plus(Duration::from_secs(300)));
    made.begin(3199, 1);
    pass(env, 5);
    // More than there is room for on the smaller disk.
    made.d[1].stands_until.set(env.now().plus(Duration::from_secs(300)));
    let all = made.begin(0, 64);
    pass(env, 100);
    assert!(all.iter().all(|w| w.borrow().is_none()));
    pass(env, 300);
    assert!(all.iter().all(|w| matches!(*w.borrow(), Some(Ok(())))));
}

/// One that leaves a discard unanswered goes on with all else.
#[test]
fn a_disk_that_hangs_over_a_discard_takes_new_chunks() {
    let made = group(Placement::SlowOnly);
    let (env, v) = (&made.env, &made.v);
    write(env, v, 0, &[7; CHUNK as usize]).and_then(|()| flush(env, v)).expect("write");
    assert_eq!(made.homes(0..1), [2]);
    made.d[2].discard_hangs.set(true);
    let trimmed = v.clone();
    env.block_on(async move { trimmed.trim(0, CHUNK, WriteFlags::default()).await }).expect("trim");
    flush(env, v).expect("flush");
    pass(env, 10);
    assert!(made.g.status().members[2].unanswered > 0, "the discard");
    write(env, v, 40 * CHUNK, &[7; CHUNK as usize]).expect("write");
    assert_eq!(made.homes(40..41), [2]);
}

/// Reads these chunks some times, in no order that looks like a stream; waits for none of it.
fn use_much(made: &Made, chunks: &[u64]) {
    let (env, v, chunks) = (made.env.clone(), made.v.clone(), chunks.to_vec());
    made.env.spawn(async move {
        for i in 0..6 * chunks.len() {
            let (v, at) = (v.clone(), chunks[i * 7 % chunks.len()] * CHUNK + 8192);
            env.spawn(async move { drop(v.read(at, 4096).await) });
            env.sleep(Duration::from_millis(if i % chunks.len() == 0 { 300 } else { 5 })).await;
        }
    });
}

/// What is used on one disk comes up, and cold chunks go there, while what is moved from and to the other one hangs, and requests do.
#[test]
fn chunks_change_places_with_a_disk_beside_one_that_stands_still() {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let d = [256, 1024, 1024].map(device).to_vec();
    let volume = NewVolume { name: "main".into(), size: Some(800 * MIB), placement: Placement::Auto };
    let options = CreateOptions { reserve: None, journal_blocks: Some(64), ..small(vec![volume]) };
    make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect(), options);
    let g = open(&env, &d, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..6000).for_each(|c| write(&env, &v, c * CHUNK + 8192, &[3; 4096]).expect("write"));
    pass(&env, 200);
    let made = Made { env, d, g, v };
    let home = |c: u64| made.v.members_of(c * CHUNK).next();
    let on = |member: u8| (0..6000).filter(|c| home(*c) == Some(member)).collect::<Vec<u64>>();
    // The one that has more stands still.
    let still = if on(1).len() > on(2).len() { 1 } else { 2 };
    let (first, second) = (on(3 - still), on(still));
    assert!(first.len() > 300 && second.len() > 1000, "{} {}", first.len(), second.len());
    // It does so before its chunks have come up: as many of them are on their way as there ever are.
    for i in 0..5400 {
        let _read = read(&made.env, &made.v, second[i * 7 % 900] * CHUNK + 8192, 4096);
        made.env.block_on(made.env.sleep(Duration::from_micros(100)));
    }
    made.d[still as usize].stands_until.set(made.env.now().plus(HOUR));
    pass(&made.env, 20);
    let s = made.g.status();
    assert!(s.mover.in_flight >= 60, "{s:?}");
    for round in 0..6 {
        let used = &first[round * 40..][..40];
        use_much(&made, used);
        pass(&made.env, 8);
        let came = used.iter().filter(|c| home(**c) == Some(0)).count();
        let s = made.g.status();
        assert!(s.members[still as usize].silent_for > Duration::from_secs(20), "it stands still");
        assert!(came >= 30, "round {round}: {came} of 40, {:?}", s.mover);
    }
    pass(&made.env, 3600);
    let before = made.g.status().mover.promoted;
    use_much(&made, &second[910..950]);
    pass(&made.env, 120);
    assert!(made.g.status().mover.promoted > before, "it answers again");
}

/// Writes go on to a chunk that leaves its member, and that is written all the time, when the disk that it goes to stands still.
#[test]
fn nobody_waits_for_a_chunk_that_leaves_for_as_long_as_a_disk_stands_still() {
    let made = group(Placement::SlowOnly);
    let (env, v) = (&made.env, &made.v);
    (0..100).for_each(|c| write(env, v, c * CHUNK, &[7; CHUNK as usize]).expect("write"));
    let hot = (0..100).find(|c| made.homes(*c..c + 1) == [2]).expect("the larger disk has some");
    let longest = Rc::new(Cell::new(Duration::ZERO));
    made.d.iter().for_each(|d| d.hold_for.set(Duration::from_millis(5)));
    for lane in 0..3 {
        let (v, env, longest) = (v.clone(), env.clone(), longest.clone());
        env.clone().spawn(async move {
            env.sleep(Duration::from_millis(lane * 2)).await;
            loop {
                let (begun, mut data) = (env.now(), BufMut::zeroed(4096));
                data.fill(HELD);
                if v.write(hot * CHUNK + lane * 8192, data.freeze(), WriteFlags::default()).await.is_err() {
                    return;
                }
                longest.set(longest.get().max(env.now().since(begun)));
            }
        });
    }
    evacuate(env, &made.g, 2);
    while used(&made.g, 2) > 1 {
        env.block_on(env.sleep(Duration::from_millis(1)));
    }
    assert_eq!(used(&made.g, 2), 1, "all the others have gone");
    made.d[1].stands_until.set(env.now().plus(Duration::from_secs(300)));
    pass(env, 280);
    assert!(longest.get() > Duration::from_secs(2), "it was tried: {:?}", longest.get());
    assert!(longest.get() < Duration::from_secs(8), "a write took {:?}", longest.get());
    assert!(made.g.status().members[1].unanswered > 0);
    pass(env, 120);
    assert_eq!(used(&made.g, 2), 0, "it goes when the disk answers again");
}

/// Plaintext on the smaller disk, whose volume is given a family as the larger one, where there is more room, comes to a standstill.
fn encrypted_beside_one_that_stands_still() -> Made {
    let made = group(Placement::SlowOnly);
    let (env, v) = (&made.env, &made.v);
    made.d[2].stands_until.set(env.now().plus(Duration::from_secs(60)));
    made.begin(300, 1);
    pass(env, 5);
    (0..100).for_each(|c| write(env, v, c * CHUNK, &[c as u8; CHUNK as usize]).expect("write"));
    flush(env, v).expect("flush");
    assert!(made.homes(0..100).iter().all(|m| *m == 1));
    pass(env, 120);
    let key = || FamilyKey::from_bytes(&[7; 32]);
    let family = NewFamily { name: "home".into(), uuid: [7; 16], key: key(), header: vec![7; 4096] };
    let (g, d, e) = (made.g.clone(), made.d[2].clone(), env.clone());
    d.write_takes.set(Duration::from_millis(5));
    env.block_on(async move {
        g.create_family(family).await.expect("a family");
        g.encrypt_volume("main", "home").await.expect("begun");
        d.stands_until.set(e.now().plus(Duration::from_secs(300)));
    });
    made
}

/// Writes to a chunk that is being encrypted, and to others that are plaintext yet, wait for no disk that takes no ciphertext.
#[test]
fn nobody_waits_for_a_chunk_that_is_encrypted_for_as_long_as_a_disk_stands_still() {
    let made = encrypted_beside_one_that_stands_still();
    let (env, v) = (&made.env, &made.v);
    let until = env.now().plus(Duration::from_secs(290));
    for chunk in 0..100 {
        let begun = env.now();
        write(env, v, chunk * CHUNK + 4096, &[0x99; 4096]).expect("write");
        assert!(env.now().since(begun) < Duration::from_secs(8), "chunk {chunk}: {:?}", env.now().since(begun));
    }
    flush(env, v).expect("nothing of it lies on the disk that stands still");
    assert!(env.now() < until, "it still stands still");
    assert!(made.homes(0..100).iter().all(|m| *m == 1));
    let plain = |made: &Made| made.g.status().volumes[0].encrypting.as_ref().map(|e| e.plain_chunks);
    pass(env, 100);
    assert!(plain(&made) <= Some(2), "{:?}", plain(&made));
    // What is on its way to the disk still is: what comes to other chunks there would be undone.
    let on_their_way = used(&made.g, 2);
    assert!(on_their_way > 2, "{on_their_way}");
    assert!(env.now() < until, "it still stands still");
    pass(env, 1000);
    assert_eq!(plain(&made), None, "all of it is done");
    let live = made.homes(0..3200).iter().filter(|m| **m == 2).count();
    assert_eq!(used(&made.g, 2), live as u64, "nothing else keeps a slot there");
    for chunk in 0..100 {
        let read = read(env, v, chunk * CHUNK, CHUNK).expect("read");
        let right = |(i, b): (usize, &u8)| *b == if i / 4096 == 1 { 0x99 } else { chunk as u8 };
        assert!(read.iter().enumerate().all(right), "chunk {chunk}");
    }
}

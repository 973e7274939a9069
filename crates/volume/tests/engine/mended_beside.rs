//! A check of a group in use mends a member beside commits, of which one fails or is cut off: what it leaves in that member's journal says
//! nothing of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::units::CHUNK;
use bimetal_volume::{Group, Volume};

use crate::image::places::places;
use crate::image::sample::{sample, stamp, Sample};
use crate::image::{flush, open, pass, read, writable, write, Members};
use crate::memory::{MemoryDevice, MemoryEnv};

const BLOCK: u64 = 4096;

/// A group in use of which one thing is damaged.
struct Damaged {
    sample: Sample,
    env: MemoryEnv,
    members: Members,
    group: Group<MemoryEnv>,
    volume: Volume<MemoryEnv>,
    /// A block that was never written.
    unused: u64,
}

fn damaged(member: usize, what: &str) -> Damaged {
    let sample = sample(&MemoryEnv::new(), &[6], &[10], false);
    let env = MemoryEnv::new();
    let timed = |d: MemoryDevice| MemoryDevice { env: Some(env.clone()), ..d };
    let members = Members(sample.members.copy().0.into_iter().map(timed).collect());
    let group = open(&env, &members.0, writable()).expect("opens");
    let volume = group.volume("main").expect("made at creation");
    let place = places(&members).into_iter().find(|p| p.member == member && p.what == what).expect("there is one");
    members.0[member].flip(place.bytes.start + 70, 2);
    let blocks = sample.now.len() as u64 / BLOCK;
    let unused = (0..blocks).rev().find(|b| sample.now[(b * BLOCK) as usize] == 0).expect("it is not full");
    Damaged { sample, env, members, group, volume, unused }
}

impl Damaged {
    /// A change of the map, for the next commit.
    fn change(&self) {
        write(&self.env, &self.volume, self.unused * BLOCK, &stamp(self.unused, 99)).expect("written");
    }

    /// Mends the group beside all else. Tells when that has ended.
    fn begin_to_mend(&self) -> Rc<Cell<bool>> {
        let ended = Rc::new(Cell::new(false));
        let (group, end) = (self.group.clone(), ended.clone());
        self.env.spawn(async move {
            drop(group.check(true, &|_, _| {}).await);
            end.set(true);
        });
        ended
    }

    /// The daemon dies; the next one opens the group, with all that was flushed before.
    fn starts_again(self) {
        self.env.kill();
        let env = MemoryEnv::new();
        let group = open(&env, &self.members.copy().0, writable()).unwrap_or_else(|e| panic!("{e}"));
        let volume = group.volume("main").expect("made at creation");
        let now = &self.sample.now;
        for at in (0..now.len() as u64).step_by(CHUNK as usize).filter(|at| at / CHUNK != self.unused * BLOCK / CHUNK) {
            let got = read(&env, &volume, at, CHUNK).unwrap_or_else(|e| panic!("{at}: {e}"));
            assert!(got == now[at as usize..][..CHUNK as usize], "other data at {at}");
        }
    }
}

/// One write of a commit fails while `what` of a member is being read; then the check comes to mending it.
fn a_commit_fails_beside(member: usize, what: &str) {
    let d = damaged(member, what);
    d.members.0[member].read_takes.set(Duration::from_secs(1));
    let ended = d.begin_to_mend();
    pass(&d.env, 1);
    d.change();
    d.members.0[0].writes_left.set(0);
    flush(&d.env, &d.volume).expect_err("the journal takes nothing");
    d.members.0[0].writes_left.set(u64::MAX);
    assert!(!ended.get() && d.group.status().latched.is_some());
    pass(&d.env, 1000);
    assert!(ended.get());
    d.starts_again();
}

#[test]
fn a_fast_member_is_mended_when_a_commit_has_failed() {
    a_commit_fails_beside(0, "label");
}

#[test]
fn a_slow_member_is_mended_when_a_commit_has_failed() {
    a_commit_fails_beside(1, "directory");
}

/// The commit has its number, and waits for the disk to have its data; there the check mends, and then the power goes.
#[test]
fn a_slow_member_is_mended_beside_a_commit_that_is_cut_off() {
    let d = damaged(1, "directory");
    d.change();
    d.members.0[1].sync_takes.set(Duration::from_secs(30));
    d.members.0[1].write_takes.set(Duration::from_secs(10));
    let volume = d.volume.clone();
    d.env.spawn(async move { drop(volume.flush().await) });
    pass(&d.env, 1);
    d.begin_to_mend();
    pass(&d.env, 15);
    d.starts_again();
}

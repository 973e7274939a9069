//! Directed scenarios of families: a crash at every step of making them, of new headers, and of encrypting what was there.

use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::{directed, fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Act, Damage, End, MemberSpec, Scenario, Speed, Step, VolumeSpec};
use crate::world::CrashPoint;

fn act(act: Act) -> Step {
    step(0, act, 0, 0)
}

fn of(volume: usize, step: Step) -> Step {
    Step { volume, ..step }
}

/// Families come and go, their headers change, volumes are made in them and are moved like any other.
fn families() -> Directed {
    let make = Act::Make { chunks: 10, placement: Placement::Auto, family: 1 };
    let mut steps = vec![act(Act::MakeFamily { family: 1 }), of(1, act(make)), of(1, fill(0, 8)), of(1, flush())];
    steps.extend([
        act(Act::MakeFamily { family: 2 }),
        act(Act::NewHeader { family: 1 }),
        act(Act::Relock { family: 1 }),
    ]);
    steps.extend((0..6).map(|i| of(1, step(1, if i % 2 == 0 { FUA } else { WRITE }, i * CHUNK + 5000, 9000))));
    steps.extend([
        act(Act::NewHeader { family: 2 }),
        act(Act::DropFamily { family: 2 }),
        sleep(0, 900),
        of(1, flush()),
    ]);
    let after = vec![act(Act::NewHeader { family: 1 }), act(Act::MakeFamily { family: 3 }), sleep(0, 50)];
    directed("families", group(12, 24, 14), vec![fill(0, 6), flush()], steps, false).after(after)
}

/// What is to be encrypted is written, trimmed and moved meanwhile; after the crash that goes on.
fn encrypting() -> Directed {
    let prepare =
        vec![fill(0, 14), step(0, TRIM, 3 * CHUNK + 8192, 40_960), flush(), act(Act::MakeFamily { family: 1 })];
    let mut steps = vec![act(Act::Encrypt { family: 1 })];
    for i in 0..16 {
        let at = i * 5 % 18 * CHUNK + i % 7 * 4096;
        let what = [WRITE, TRIM, FUA, WRITE][i as usize % 4];
        steps.extend([step(1, what, at, 9000), sleep(1, 2), step(2, WRITE, i * CHUNK / 2, 20_000), sleep(2, 3)]);
    }
    steps.extend([sleep(0, 40), flush(), sleep(0, 400)]);
    directed("encrypting", group(12, 24, 18), prepare, steps, false).after(vec![sleep(0, 700), step(0, WRITE, 0, 9000)])
}

/// Two volumes share the slots; the one that stays plaintext is written while what slots hold of the other is overwritten.
fn overwriting() -> Directed {
    let mut s = group(10, 20, 8);
    s.volumes.push(s.volumes[0].clone());
    let mut prepare = vec![fill(0, 8), flush(), of(1, fill(0, 8)), of(1, flush())];
    prepare.extend([step(0, TRIM, 0, 4 * CHUNK), flush(), act(Act::MakeFamily { family: 1 })]);
    let mut steps = vec![act(Act::Encrypt { family: 1 })];
    for i in 0..30 {
        let at = i * 3 % 8 * CHUNK;
        steps.push(of(1, step(1, TRIM, at, CHUNK)));
        steps.extend((0..4).map(|j| of(1, step(1, WRITE, at + j * 24_576, 8192))));
        steps.push(of(1, step(2, if i % 4 == 0 { FUA } else { WRITE }, (i * 5 % 8) * CHUNK + 98_304, 12_288)));
        steps.push(sleep(1, 7));
    }
    steps.extend([sleep(0, 300), flush()]);
    directed("overwriting plaintext", s, prepare, steps, false).after(vec![sleep(0, 500)])
}

/// The same, with nothing to encrypt first: what slots hold is overwritten from the first chunk on, and written from the last
/// one back, so both are at one chunk at some time.
fn overwriting_and_written() -> Directed {
    const CHUNKS: u64 = 16;
    let mut s = group(24, 24, CHUNKS);
    s.volumes.push(s.volumes[0].clone());
    let mut prepare = vec![of(1, fill(0, CHUNKS))];
    prepare.extend((0..CHUNKS).map(|c| of(1, step(0, TRIM, c * CHUNK + 4096, CHUNK - 4096))));
    prepare.extend([of(1, flush()), act(Act::MakeFamily { family: 1 })]);
    let mut steps = vec![act(Act::Encrypt { family: 1 })];
    steps.extend((0..CHUNKS).rev().map(|c| of(1, step(0, WRITE, c * CHUNK + 4096, CHUNK - 8192))));
    steps.extend([of(1, flush()), sleep(0, 300)]);
    directed("overwritten and written", s, prepare, steps, false).after(vec![sleep(0, 500)])
}

/// Blocks are trimmed while what slots hold of the plaintext is overwritten: until the TRIM is durable they may be needed.
fn trimmed_and_overwritten() -> Directed {
    let mut s = group(14, 20, 16);
    s.commit_ms = 5000;
    let mut prepare = vec![fill(0, 12)];
    // All slots have something to overwrite, one after another.
    prepare.extend((0..12).map(|chunk| step(0, TRIM, chunk * CHUNK + 40_960, 4096)));
    prepare.extend([flush(), act(Act::MakeFamily { family: 1 })]);
    // The chunks are encrypted then, and the session after this one goes on with the slots.
    prepare.extend([act(Act::Encrypt { family: 1 }), sleep(0, 15)]);
    let mut steps = Vec::new();
    for i in 0..60 {
        let at = (71 - i) % 12 * CHUNK + (i * 3 % 30) * 4096;
        steps.extend([step(1, TRIM, at, 8192), Step { len: 300 * (i / 12), ..sleep(1, 0) }]);
    }
    steps.push(sleep(0, 100));
    directed("trimmed and overwritten", s, prepare, steps, false)
}

/// Reads take long, and what they are to find is trimmed and overwritten meanwhile, in the slot that its chunk lives in. When
/// that comes to a chunk is left open: all of them are read and trimmed all the while.
fn trimmed_and_overwritten_under_reads() -> Directed {
    let make = |n: u64| {
        let mut s = group(14, 20, 12);
        (s.seed, s.commit_ms) = (n + 1, 5000);
        let prepare = vec![fill(0, 12), flush(), act(Act::MakeFamily { family: 1 })];
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let mut steps = vec![act(Act::Encrypt { family: 1 })];
        for round in 0..30 {
            for c in 0..12 {
                let reader = 2 + c as u8;
                steps.extend([step(reader, Act::Read, c * CHUNK, CHUNK), sleep(reader, 5)]);
                steps.push(step(1, TRIM, c * CHUNK + round * 4096, 4096));
            }
            steps.push(sleep(1, 80 + n % 3 * 50));
        }
        let mut session = s.quiet_session(steps, End::Stop);
        session.speed[0] = Speed::Storm;
        s.sessions.push(session);
        s
    };
    Directed::chain("trimmed and overwritten under reads", make, 100).finds(&["WipedUnderReader"])
}

/// What slots held of the plaintext is overwritten, and the discards of that hang: nobody waits for them, and what is written meanwhile
/// does not get those slots.
fn overwritten_and_hanging() -> Directed {
    let make = |n: u64| {
        // What is kept back must not be missed: it is as much as one discard had in it.
        let mut s = group(14, 60, 24);
        s.seed = n + 1;
        let session = s.quiet_session(vec![fill(0, 12), flush(), act(Act::MakeFamily { family: 1 })], End::Stop);
        s.sessions.push(session);
        let mut steps = vec![act(Act::Encrypt { family: 1 }), sleep(0, 60_000), fill(12, 10), flush()];
        steps.extend([sleep(0, 150_000), step(0, Act::Read, 0, 22 * CHUNK)]);
        let mut session = s.quiet_session(steps, End::Stop);
        for disk in 0..2 {
            session.faults[disk] = Faults { hang_ppm: 500_000, limit: 1 + (n % 3) as u32, ..Faults::default() };
        }
        s.sessions.push(session);
        s
    };
    Directed::chain("overwritten, and discards hang", make, 40)
}

/// The last valid block of a chunk is trimmed while a larger write to it fails, and then the chunk is encrypted and written again.
fn emptied_and_encrypted() -> Directed {
    let make = |n: u64| {
        let mut s = group(20, 24, 16);
        (s.seed, s.commit_ms) = (n + 1, 60_000);
        // Of each chunk the first block; the next one's has to be read for a write across both that ends within it.
        let mut prepare: Vec<Step> = (0..16).map(|c| step(0, FUA, c * CHUNK, 4096)).collect();
        prepare.push(act(Act::MakeFamily { family: 1 }));
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let mut steps = Vec::new();
        for c in (0..16).step_by(2) {
            let client = 1 + c as u8;
            steps.push(step(client, WRITE, (c + 1) * CHUNK - 4096, 4096 + 512));
            steps.push(step(client + 1, Act::Read, c * CHUNK, 4096));
            steps.extend([step(0, TRIM, c * CHUNK, 4096)]);
        }
        steps.extend([sleep(0, 100), act(Act::Encrypt { family: 1 })]);
        steps.extend((0..16).step_by(2).map(|c| step(0, WRITE, c * CHUNK, 4096)));
        let point = CrashPoint { steps: steps.len() as u64, events: n % 4 };
        let mut session = s.quiet_session(steps, End::Crash([Crash::Daemon, Crash::Power][n as usize % 2], point));
        let faults = Faults { read_ppm: 400_000, limit: 6, data_only: true, ..Faults::default() };
        session.faults.iter_mut().for_each(|f| *f = faults);
        s.sessions.push(session);
        let session = s.quiet_session(vec![step(0, Act::Read, 0, 16 * CHUNK)], End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("emptied and encrypted", make, 200)
}

/// Free slots cannot be overwritten, or so it seems: the zeros land late. Meanwhile a member leaves, and what lives on it goes
/// to those slots.
fn overwritten_late() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(10, 46, 6) };
        s.members.push(MemberSpec { tier: Tier::Slow, slots: 80, discard: n % 4 < 2 });
        s.volumes.push(VolumeSpec { chunks: 40, placement: Placement::SlowOnly });
        let prepare = [fill(0, 6), of(1, fill(0, 40)), flush(), act(Act::MakeFamily { family: 1 })];
        let session = s.quiet_session(prepare.to_vec(), End::Stop);
        s.sessions.push(session);
        let read = [of(1, step(0, Act::Read, 0, 40 * CHUNK)), step(0, Act::Read, 0, 6 * CHUNK)];
        let mut steps = vec![act(Act::Encrypt { family: 1 }), act(Act::Evacuate { disk: 2 }), sleep(0, 2500)];
        steps.extend(read);
        let mut session = s.quiet_session(steps, End::Stop);
        let write_ppm = 300_000 << (n / 2 % 2);
        session.faults[1] = Faults { write_ppm, late: true, limit: 300, data_only: true, ..Faults::default() };
        s.sessions.push(session);
        let session = s.quiet_session(read.to_vec(), End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("overwritten late", make, 200)
}

/// A volume is deleted while it is encrypted and written to.
fn deleted_meanwhile() -> Directed {
    let mut s = group(12, 30, 6);
    s.volumes.push(VolumeSpec { chunks: 16, placement: Placement::Auto });
    let prepare = vec![of(1, fill(0, 16)), of(1, flush()), act(Act::MakeFamily { family: 1 })];
    let mut steps = vec![of(1, act(Act::Encrypt { family: 1 })), sleep(0, 2), of(1, act(Act::Delete)), sleep(0, 500)];
    for i in 0..40 {
        let client = 1 + (i % 3) as u8;
        let at = (i * 7 % 6) * CHUNK + 8192;
        let zeroes = Act::Zeroes { fua: false, no_hole: true, given_up: false };
        let act = if i % 4 == 3 { zeroes } else { WRITE };
        // Long ones: the volume is deleted when a part of them is done.
        steps.push(of(1, step(client, act, at, 9 * CHUNK)));
    }
    directed("deleted while it is encrypted", s, prepare, steps, false)
}

/// Encrypted chunks go down, and the fast member dies.
fn alone() -> Directed {
    let make = Act::Make { chunks: 20, placement: Placement::Auto, family: 1 };
    let prepare = vec![act(Act::MakeFamily { family: 1 }), of(1, act(make))];
    let steps = vec![of(1, fill(0, 10)), of(1, flush()), sleep(0, 30_000)];
    directed("encrypted and alone", group(12, 30, 4), prepare, steps, false)
        .then(Damage::Alone)
        .finds(&["PreparedWithoutFlag"])
}

/// The keys of one member rot.
fn rotten() -> Directed {
    let make = Act::Make { chunks: 10, placement: Placement::Auto, family: 1 };
    let prepare = vec![act(Act::MakeFamily { family: 1 }), of(1, act(make)), of(1, fill(0, 5)), of(1, flush())];
    let steps = vec![act(Act::NewHeader { family: 1 }), of(1, step(0, FUA, 0, 9000)), sleep(0, 20)];
    directed("keys rot", group(12, 24, 8), prepare, steps, false).then(Damage::Keys(0))
}

/// The keys of one member rot, and the others cannot read theirs just when another header is replaced: what is whole stays whole.
fn unread() -> Directed {
    let mut s = group(12, 24, 8);
    s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 10, discard: true });
    let prepare = vec![fill(0, 4), flush(), act(Act::MakeFamily { family: 1 }), act(Act::MakeFamily { family: 2 })];
    let steps = vec![
        started(),
        rot(0, 0),
        act(Act::NewHeader { family: 2 }),
        act(Act::NewHeader { family: 2 }),
        step(0, FUA, 0, 9000),
    ];
    let anew = act(Act::NewHeader { family: 2 });
    let mut d = directed("keys rot and cannot be read", s, prepare, steps, false)
        .after(vec![anew])
        .finds(&["HeaderUnreadLost"]);
    // The start asks for each of two, and each copy is asked for twice, and once more for what is left of it.
    let faults = |limit| Faults { read_ppm: 1_000_000, limit, area: (32, 256), ..Faults::default() };
    let session = d.scenario.sessions.last_mut().expect("the one that is swept");
    (session.faults[1], session.faults[2]) = (faults(4 + 4), faults(4 + 2));
    d
}

/// A group with three members in which two families are made first.
fn with_headers(name: &'static str, more: MemberSpec, rot_first: Option<Step>, steps: Vec<Step>) -> Directed {
    let mut s = Scenario { tear: true, ..group(12, 24, 8) };
    s.members.insert(if more.tier == Tier::Fast { 0 } else { 2 }, more);
    let mut prepare = vec![fill(0, 4), flush(), act(Act::MakeFamily { family: 1 }), act(Act::MakeFamily { family: 2 })];
    prepare.extend(rot_first);
    directed(name, s, prepare, steps, false)
}

/// A start has put the headers in order by then.
fn started() -> Step {
    sleep(0, 300)
}

fn rot(disk: usize, family: u8) -> Step {
    act(Act::RotKeys { disk, family })
}

/// One header rots on one member, the other on all others, and a check mends: no member has both whole before.
fn mended_beside_whole_ones() -> Directed {
    let steps =
        vec![started(), rot(0, 1), rot(1, 2), rot(2, 2), act(Act::Check { mend: true }), sleep(0, 20), rot(1, 0)];
    let fast = MemberSpec { tier: Tier::Fast, slots: 10, discard: true };
    with_headers("headers mended beside whole ones", fast, None, steps)
}

/// The headers of one member rot while the group is stopped; those of the others when it has been in use for a while.
fn mended_by_a_start() -> Directed {
    let steps = vec![sleep(0, 500), rot(1, 0), rot(2, 0), step(0, FUA, 0, 9000), sleep(0, 20)];
    let fast = MemberSpec { tier: Tier::Fast, slots: 10, discard: true };
    with_headers("headers mended by a start", fast, Some(rot(0, 0)), steps).finds(&["HeadersNotMended"])
}

/// The headers of all members rot but of the one that leaves.
fn last_header_leaves() -> Directed {
    let leave = [act(Act::Evacuate { disk: 2 }), sleep(0, 50), act(Act::Remove { disk: 2 })];
    let steps =
        [vec![started(), rot(0, 0), rot(1, 0)], leave.to_vec(), vec![step(0, FUA, 0, 9000), sleep(0, 20)]].concat();
    let slow = MemberSpec { tier: Tier::Slow, slots: 24, discard: true };
    with_headers("the last whole header leaves", slow, None, steps).finds(&["LastHeaderLeaves"])
}

/// Writes to one side of the keys of a member fail, where the next headers are to go or those lie that were replaced: nothing but the change
/// fails, in this session and after the next start.
fn headers_cannot_be_written() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(12, 24, 8) };
        let family = || act(Act::NewHeader { family: 1 });
        // So many changes decide which side is in use.
        let mut prepare = vec![fill(0, 6), flush(), act(Act::MakeFamily { family: 1 })];
        prepare.extend((0..n % 2).map(|_| family()));
        let session = s.quiet_session(prepare, End::Stop);
        s.sessions.push(session);
        let steps = |more| {
            [vec![started(), step(0, FUA, 0, 9000)], more, vec![sleep(0, 50), step(0, FUA, CHUNK, 9000)]].concat()
        };
        let changes = vec![family(), step(0, FUA, 5000, 9000), family(), act(Act::MakeFamily { family: 2 })];
        let ends = [
            End::Stop,
            End::Crash([Crash::Daemon, Crash::Power][n as usize % 2], CrashPoint { steps: 7, events: n % 5 }),
        ];
        for (more, end) in [(changes, ends[n as usize / 2 % 2]), (Vec::new(), End::Stop)] {
            let mut session = s.quiet_session(steps(more), end);
            let faults =
                Faults { write_ppm: 400_000 + 200_000 * (n as u32 % 4), late: n % 3 == 0, ..Faults::default() };
            session.faults[n as usize / 4 % 2] = Faults { limit: 1 + (n % 30) as u32 * 8, area: (32, 256), ..faults };
            s.sessions.push(session);
        }
        s
    };
    Directed::chain("headers cannot be written", make, 200).finds(&["HeaderFailureLatches"])
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        unread(),
        mended_beside_whole_ones(),
        mended_by_a_start(),
        last_header_leaves(),
        headers_cannot_be_written(),
        trimmed_and_overwritten_under_reads(),
        overwritten_and_hanging(),
        emptied_and_encrypted(),
        families(),
        encrypting(),
        overwriting(),
        overwriting_and_written(),
        trimmed_and_overwritten(),
        overwritten_late(),
        deleted_meanwhile(),
        alone(),
        rotten(),
    ]
}

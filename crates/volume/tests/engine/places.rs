//! Where chunks come to lie: what is read together lies together, also when it was not written in order, and stays so when
//! a member leaves.

use std::collections::BTreeMap;

use bimetal_volume::backend::Backend;
use bimetal_volume::units::{Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::sample::stamp;
use crate::image::{
    add, create, create_sized, evacuate, flush, open, pass, read, stop, used, writable, write, Members, MIB,
};
use crate::memory::{MemoryDevice, MemoryEnv};

/// Chunks of a MiB, and slots of a group of slots.
const RUN: u64 = 8;

/// What a chunk holds here: nothing else does.
fn content(chunk: u64) -> Vec<u8> {
    stamp(chunk, 1).repeat(32)
}

/// The chunk that lies in each slot of a device.
fn chunks_on(d: &MemoryDevice) -> BTreeMap<u64, u64> {
    let (layout, slots) = (d.layout(), d.label().members[usize::from(d.label().member)].slots);
    let chunk = |slot| {
        let block = d.peek(layout.slot(slot), 4096);
        let word = u64::from_le_bytes(block[..8].try_into().expect("8 bytes"));
        (block == stamp(word >> 20, 1)).then_some((u64::from(slot), word >> 20))
    };
    (0..slots).filter_map(chunk).collect()
}

/// Member and slot of each chunk.
fn slots_of(members: &Members) -> BTreeMap<u64, (usize, u64)> {
    let on = |(m, d)| chunks_on(d).into_iter().map(move |(slot, chunk)| (chunk, (m, slot)));
    members.0.iter().enumerate().flat_map(on).collect()
}

/// The numbers up to `n` in an order without order.
fn shuffled(n: u64) -> Vec<u64> {
    let (mut all, mut random) = ((0..n).collect::<Vec<_>>(), 1u64);
    for i in (1..all.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.swap(i, (random >> 33) as usize % (i + 1));
    }
    all
}

fn start(env: &MemoryEnv, members: &Members) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
    let g = open(env, &members.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    (g, v)
}

fn put(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunks: impl IntoIterator<Item = u64>) {
    chunks.into_iter().for_each(|c| write(env, v, c * CHUNK, &content(c)).expect("write"));
}

/// Fills a volume MiB by MiB in an order without order, and leaves holes of all sizes in it. Gives the chunks that are left.
fn fill(env: &MemoryEnv, v: &Volume<MemoryEnv>) -> Vec<u64> {
    let mibs = shuffled(v.size() / MIB);
    put(env, v, mibs.iter().flat_map(|m| m * RUN..(m + 1) * RUN));
    let written = |mib| mibs.iter().position(|m| *m == mib).expect("all were");
    let (gone, rest) = (0..v.size() / CHUNK).partition(|c| written(c / RUN) % 13 < 3 || c * c % 11 == 5);
    give_up(env, v, gone);
    rest
}

fn give_up(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunks: Vec<u64>) {
    for chunk in chunks {
        let v = v.clone();
        env.block_on(async move { v.trim(chunk * CHUNK, CHUNK, Default::default()).await }).expect("trim");
    }
    flush(env, v).expect("flush");
    pass(env, 60);
}

/// Empties member 1, and gives what lay there and what lies on the other slow member then, of the same chunks: both in the
/// order of their slots.
fn moved(env: &MemoryEnv, g: &Group<MemoryEnv>, m: &Members) -> [Vec<(u64, u64)>; 2] {
    let before: Vec<_> = chunks_on(&m.0[1]).into_iter().collect();
    assert!(before.len() > 100, "{}", before.len());
    assert!(!before.is_sorted_by_key(|(_, chunk)| *chunk), "slots have another order than chunks");
    evacuate(env, g, 1);
    pass(env, 300);
    assert_eq!(used(g, 1), 0, "it is empty");
    let was_there = |chunk: u64| before.iter().any(|(_, c)| *c == chunk);
    let after = chunks_on(&m.0[2]).into_iter().filter(|(_, chunk)| was_there(*chunk)).collect();
    [before, after]
}

fn order(placed: &[(u64, u64)]) -> Vec<u64> {
    placed.iter().map(|(_, chunk)| *chunk).collect()
}

/// A disk is replaced. Copying it is one pass over both, and what lay in one piece there does here. Within a MiB the room for
/// what is not there stays.
#[test]
fn what_leaves_for_an_empty_member_lies_there_as_it_lay() {
    let env = MemoryEnv::new();
    let mut m = create_sized(&env, "tank", &[16], &[48], Some(40 * MIB));
    let (g, v) = start(&env, &m);
    let chunks = fill(&env, &v);
    m.0.push(MemoryDevice::new(64 * MIB));
    add(&env, &g, &m.0[2], Tier::Slow);
    let [before, after] = moved(&env, &g, &m);
    assert_eq!(order(&before), order(&after), "the order of the slots");
    let apart = |w: &[(u64, u64)]| w[1].0 - w[0].0;
    let mut far = 0;
    for (was, is) in before.windows(2).map(apart).zip(after.windows(2).map(apart)) {
        assert!((was == is || was > RUN) && is < 2 * RUN, "{was} slots apart there, {is} here");
        far += u64::from(was >= 2 * RUN);
    }
    assert!(far > 0, "there are holes that nobody needs");
    for chunk in chunks {
        assert!(read(&env, &v, chunk * CHUNK, CHUNK).expect("read") == content(chunk));
    }
    stop(&env, g).expect("orderly stop");
}

/// The same where others live already: between them, from the first to the last, in groups of slots that are wholly free.
#[test]
fn what_leaves_for_a_member_in_use_keeps_its_order_there() {
    let env = MemoryEnv::new();
    let m = create_sized(&env, "tank", &[16], &[64, 80], Some(78 * MIB));
    let (g, v) = start(&env, &m);
    fill(&env, &v);
    // Every other group has one left, in the middle.
    let (rest, gone): (Vec<_>, _) = chunks_on(&m.0[2]).into_iter().partition(|(slot, _)| slot % (2 * RUN) == RUN + 3);
    assert!(rest.len() > 5, "{rest:?}");
    give_up(&env, &v, order(&gone));
    // The search for room begins anew.
    stop(&env, g).expect("orderly stop");
    let (g, _v) = start(&env, &m);
    let [before, after] = moved(&env, &g, &m);
    assert_eq!(before.len(), after.len(), "all of it went there");
    let place: BTreeMap<u64, u64> = after.iter().map(|(slot, chunk)| (*chunk, *slot)).collect();
    for w in before.windows(2) {
        let [(was, chunk), (was_next, next)] = *w else { unreachable!("two") };
        let (is, is_next) = (place[&chunk], place[&next]);
        assert!(is < is_next, "chunks {chunk} and {next}, from slots {was} and {was_next} to {is} and {is_next}");
        let together = was / RUN == was_next / RUN;
        assert!(!together || is_next - is == was_next - was, "chunks {chunk} and {next} of a MiB: {is} and {is_next}");
    }
    stop(&env, g).expect("orderly stop");
}

#[test]
fn a_chunk_joins_its_own_mib_before_it_follows_the_last_one() {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[16], &[32]);
    let (_g, v) = start(&env, &m);
    put(&env, &v, [9, 7]);
    let at = slots_of(&m);
    assert_eq!((at[&9].1 % RUN, at[&7].1 % RUN), (1, 7), "each begins a group, and leaves room for its neighbours");
    assert!(at[&9].1 / RUN != at[&7].1 / RUN);
    put(&env, &v, [8]);
    assert_eq!(slots_of(&m)[&8].1, at[&9].1 - 1, "beside the one of its MiB");
    // Where nobody of its MiB is, it follows.
    put(&env, &v, [15, 16]);
    let at = slots_of(&m);
    assert_eq!(at[&16].1, at[&15].1 + 1);
}

/// A MiB in two pieces: what comes next goes on with the piece that it follows.
#[test]
fn a_chunk_follows_the_one_before_it_rather_than_another_of_its_mib() {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[16], &[32]);
    let (_g, v) = start(&env, &m);
    // Chunks 24 to 26 follow 23, to where 8 to 10 would have a place before 13: so 10 finds another.
    put(&env, &v, [23, 13, 24, 25, 26, 10]);
    let at = slots_of(&m);
    assert_eq!(at[&26].1, at[&13].1 - 3, "{at:?}");
    assert!(at[&10].1 / RUN != at[&13].1 / RUN, "{at:?}");
    put(&env, &v, [11]);
    assert_eq!(slots_of(&m)[&11].1, at[&10].1 + 1);
}

/// With several members in a tier, and in no order at all.
#[test]
fn of_what_is_written_at_random_nearly_every_mib_lies_in_one_piece() {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[48, 48], &[32]);
    let (_g, v) = start(&env, &m);
    let mibs = 64;
    put(&env, &v, shuffled(mibs * RUN));
    let at = slots_of(&m);
    assert!(at.values().all(|(member, _)| *member < 2), "there is room on the fast tier");
    let first = |mib| at[&(mib * RUN)];
    let in_one_piece = |mib: &u64| (0..RUN).all(|i| at[&(mib * RUN + i)] == (first(*mib).0, first(*mib).1 + i));
    let whole: Vec<u64> = (0..mibs).filter(in_one_piece).collect();
    assert!(whole.len() as u64 >= mibs * 7 / 8, "only {} of {mibs}", whole.len());
    let on_first = whole.iter().filter(|mib| first(**mib).0 == 0).count();
    assert!((20..44).contains(&on_first), "both members take part: {on_first}");
}

//! Groups with changed metadata: opened, read, checked, dumped, written to, stopped, opened again. Anything may be
//! refused; nothing may panic, hang, or write where the engine has no business.
//!
//! The input is a list of changes of six bytes: what to do, where (two bytes), at which offset (two bytes), a value.

use std::cell::OnceCell;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::CHUNK;
use bimetal_volume::{gather, inspect, Group, Volume};

use crate::members::Members;
use crate::memory::{MemoryDevice, MemoryEnv};

const KILLED: &[u8] = include_bytes!("../../crates/volume/tests/engine/golden/v1-killed.img");
const STOPPED: &[u8] = include_bytes!("../../crates/volume/tests/engine/golden/v1-stopped.img");

/// Values that decoders and arithmetic like least.
const EXTREMES: [u64; 8] = [0, 1, u64::MAX, 1 << 31, u32::MAX as u64, (1 << 62) - 1, 1 << 63, i64::MAX as u64];

thread_local! {
    static KILLED_GROUP: OnceCell<Members> = const { OnceCell::new() };
    static STOPPED_GROUP: OnceCell<Members> = const { OnceCell::new() };
}

/// A group that was killed in the middle of its work.
pub fn killed(data: &[u8]) {
    KILLED_GROUP.with(|g| run(g.get_or_init(|| Members::load(KILLED)), data));
}

/// A group that was stopped in order.
pub fn stopped(data: &[u8]) {
    STOPPED_GROUP.with(|g| run(g.get_or_init(|| Members::load(STOPPED)), data));
}

/// The members of the group that was stopped.
pub(crate) fn stored_group() -> Vec<MemoryDevice> {
    Members::load(STOPPED).devices
}

fn run(base: &Members, data: &[u8]) {
    let members = base.copy();
    for change in data.chunks_exact(6).take(32) {
        apply(&members, base, change);
    }
    let reading = OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() };
    look(&members.devices);
    use_group(&members.devices, reading.clone());
    use_group(&members.devices[..1], reading.clone());
    use_group(&members.devices[1..], reading);
    use_group(&members.devices, OpenOptions::default());
    use_group(&members.devices, OpenOptions::default());
    look(&members.devices);
}

/// An offset that matters: in a label one of a field in use, in a block mostly one of its beginning.
fn offset(n: usize, len: usize) -> usize {
    if len > 4096 {
        let parts = [0..816, 4096..4240, 8192..8320, 24576..24704];
        let mut n = n % parts.iter().map(|p| p.len()).sum::<usize>();
        for p in parts {
            if n < p.len() {
                return p.start + n;
            }
            n -= p.len();
        }
    }
    if n >= 1 << 15 {
        n % 4096
    } else {
        n % 256
    }
}

/// Makes one change.
fn apply(members: &Members, base: &Members, change: &[u8]) {
    let number = |i: usize| usize::from(u16::from_le_bytes([change[i], change[i + 1]]));
    let place = members.places[number(1) % members.places.len()];
    let mut bytes = members.peek(place);
    let at = offset(number(3), bytes.len());
    let value = change[5];
    let word_at = at / 8 * 8;
    match change[0] % 8 {
        0 => bytes[at] = value,
        1 | 2 => bytes[at] ^= value | 1,
        3 | 4 => bytes[word_at..word_at + 8].copy_from_slice(&EXTREMES[usize::from(value % 8)].to_le_bytes()),
        5 => bytes[word_at..word_at + 8].rotate_left(usize::from(value % 8)),
        6 => bytes.fill(value),
        // What another place holds, perhaps of another member.
        _ => bytes = base.peek(base.places[at % base.places.len()]),
    }
    // Mostly under a right checksum; else little but the checksum would be tested.
    members.poke(place, bytes, change[0] < 224);
}

/// Check and dump, which write nothing.
fn look(devices: &[MemoryDevice]) {
    let before: Vec<u64> = devices.iter().map(|d| d.writes.get()).collect();
    let env = MemoryEnv::new();
    let (e, d) = (env.clone(), devices.to_vec());
    if let Ok(report) = env.block_on(async move { inspect::check(e, d, &|_, _| {}).await }) {
        assert_eq!(report.writes, 0);
    }
    let (e, d) = (env.clone(), devices.to_vec());
    let what = inspect::DumpOptions { entries: true, records: true };
    if let Ok(tree) = env.block_on(async move { inspect::dump(e, d, what).await }) {
        assert!(!tree.to_text().is_empty());
    }
    env.kill();
    let after: Vec<u64> = devices.iter().map(|d| d.writes.get()).collect();
    assert_eq!(before, after, "looking wrote something");
}

/// Opens, reads everything, and uses it if it is writable.
fn use_group(devices: &[MemoryDevice], options: OpenOptions) {
    let env = MemoryEnv::new();
    let (e, d, writable) = (env.clone(), devices.to_vec(), options.writable);
    env.block_on(async move {
        let group = match Group::open(e, d, options).await {
            Ok(g) => g,
            Err(e) => return assert!(!e.to_string().is_empty()),
        };
        for name in group.volume_names() {
            let Some(v) = group.volume(&name) else { continue };
            read_all(&v).await;
            if writable {
                write_some(&v).await;
            }
        }
        let status = group.status();
        assert!(status.recovery.iter().all(|finding| finding.contains(' ')));
        // A group may have latched; then a stop says so.
        let _ = group.stop().await;
    });
    env.kill();
}

/// Reads of the first chunks and the last; an error is an answer.
async fn read_all(v: &Volume<MemoryEnv>) {
    let size = v.size();
    for c in (0..(size / CHUNK).min(256)).chain([(size / CHUNK).saturating_sub(1)]) {
        if let Ok(pieces) = v.read(c * CHUNK + 100, 12000).await {
            assert_eq!(gather(&pieces).len(), 12000);
        }
        let extents = v.extents(c * CHUNK, CHUNK, 64).expect("inside");
        assert!(extents.iter().map(|e| e.len).sum::<u64>() <= CHUNK && !extents.is_empty());
    }
}

/// What is written and acknowledged is read back, whatever the damage around it was.
async fn write_some(v: &Volume<MemoryEnv>) {
    let chunks = v.size() / CHUNK;
    let block = |value: u8| {
        let mut b = BufMut::with_phase(4096, 0);
        b.fill(value);
        b.freeze()
    };
    for (i, c) in [0, chunks / 2, chunks - 1].into_iter().enumerate() {
        let at = c * CHUNK + 8192;
        if v.write(at, block(i as u8 + 1), WriteFlags::default()).await.is_ok() {
            let back = v.read(at, 4096).await.map(|p| gather(&p));
            // The last of the chunks that are the same.
            assert!(back.is_ok_and(|b| b == [i as u8 + 1; 4096]), "what was written is not read back");
        }
    }
    // Any of these may be refused by a group that has latched.
    let _ = v.flush().await;
    let _ = v.trim(0, (4 * CHUNK).min(v.size()), WriteFlags::default()).await;
    let _ = v.flush().await;
}

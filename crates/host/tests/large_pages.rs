//! Large tables under the allocator of the program.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bimetal_host::memory::LargePages;

#[global_allocator]
static MEMORY: LargePages = LargePages;

const LARGE: usize = 2 << 20;

/// What is mapped where is of the whole program: where one test has given memory back, another's may lie at once.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn flags_of(at: usize) -> String {
    flags_at(at).unwrap_or_else(|| panic!("{at:x} is not mapped"))
}

/// The flags of the mapping that this address is in, as `/proc/self/smaps` has them.
fn flags_at(at: usize) -> Option<String> {
    let all = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let mut inside = false;
    for line in all.lines() {
        let range = line.split(' ').next().and_then(|r| r.split_once('-'));
        let hex = |s| usize::from_str_radix(s, 16).ok();
        if let Some((Some(from), Some(to))) = range.map(|(a, b)| (hex(a), hex(b))) {
            inside = (from..to).contains(&at);
        } else if inside && line.starts_with("VmFlags:") {
            return Some(line.to_string());
        }
    }
    None
}

#[test]
fn a_table_is_aligned_advised_and_keeps_its_content_as_it_grows_and_shrinks() {
    let _alone = alone();
    let mut table: Vec<u32> = Vec::with_capacity(100_000);
    let mut seen_large = 0;
    for i in 0..3_000_000 {
        if table.len() == table.capacity() && table.capacity() * 4 >= LARGE {
            assert_eq!(table.as_ptr() as usize % LARGE, 0);
            seen_large += 1;
        }
        table.push(i);
    }
    assert!(seen_large > 1, "it was a table at several sizes");
    match std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        true => assert!(flags_of(table.as_ptr() as usize).contains(" hg"), "the system was advised"),
        false => println!("skipped: a kernel without transparent huge pages takes no advice on them"),
    }
    assert!(table.iter().enumerate().all(|(i, n)| i as u32 == *n));
    for shorter in [700_001, 1000] {
        table.truncate(shorter);
        table.shrink_to_fit();
        assert!(table.iter().enumerate().all(|(i, n)| i as u32 == *n));
    }
}

#[test]
fn zeroed_tables_are_zero_and_given_back() {
    let _alone = alone();
    for _ in 0..50 {
        let mut table = vec![0u8; 5 * LARGE + 12_345];
        assert!(table.iter().all(|b| *b == 0));
        table.fill(0xa5);
        assert_eq!(table.as_ptr() as usize % LARGE, 0);
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let kib = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    assert!(kib.expect("VmRSS") < 200 << 10, "fifty tables of 10 MiB one after the other: {status}");
}

#[test]
fn no_memory_is_no_table() {
    let _alone = alone();
    let layout = Layout::from_size_align(1 << 60, 8).expect("a layout");
    // SAFETY: the layout has a size; nothing is done with what comes back.
    assert!(unsafe { MEMORY.alloc(layout) }.is_null());
}

#[test]
fn what_is_aligned_and_no_buffer_is_the_systems() {
    let _alone = alone();
    for size in [LARGE + 4096, 3 * 4096] {
        let layout = Layout::from_size_align(size, 4096).expect("a layout");
        // SAFETY: the layout has a size, and what came of it is given back with it.
        unsafe {
            let at = MEMORY.alloc(layout);
            assert!(!at.is_null() && (at as usize).is_multiple_of(4096));
            at.write_bytes(1, size);
            assert!(!flags_of(at as usize).contains(" hg"));
            MEMORY.dealloc(at, layout);
        }
    }
}

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * 4096, 4096).expect("a layout")
}

/// Fills memory, which must be zero, with a byte that tells it from others.
///
/// # Safety
/// It came of `of`, and nobody else uses it.
unsafe fn fill(at: *mut u8, of: Layout, fill: u8) {
    // SAFETY: the caller's promises.
    unsafe {
        assert!(std::slice::from_raw_parts(at, of.size()).iter().all(|b| *b == 0), "what comes is zero");
        at.write_bytes(fill, of.size());
    }
}

/// # Safety
/// It came of `of`, and nobody else uses it.
unsafe fn holds(at: *mut u8, len: usize, fill: u8) -> bool {
    // SAFETY: the caller's promises.
    unsafe { std::slice::from_raw_parts(at, len).iter().all(|b| *b == fill) }
}

#[test]
fn buffers_are_cut_from_large_pages_and_leave_nothing_behind() {
    let _alone = alone();
    let advised = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    let mut held = Vec::new();
    for round in 0..200usize {
        let of = layout(1 << (round % 10));
        let byte = round as u8 | 1;
        // SAFETY: the layout has a size; what comes is written within it, read after that, and given back once with it.
        unsafe {
            let at = MEMORY.alloc_zeroed(of);
            assert_eq!(at as usize % of.size(), 0, "a buffer lies at a multiple of its size");
            assert!(!advised || flags_of(at as usize).contains(" hg"));
            fill(at, of, byte);
            held.push((at, of, byte));
            if round % 3 != 0 {
                let (at, of, byte) = held.swap_remove(round * 7 % held.len());
                assert!(holds(at, of.size(), byte), "round {round}");
                MEMORY.dealloc(at, of);
            }
        }
    }
    // SAFETY: as above.
    held.into_iter().for_each(|(at, of, _)| unsafe { MEMORY.dealloc(at, of) });
}

#[test]
fn buffers_keep_their_content_as_they_become_others() {
    let _alone = alone();
    // From one buffer to another, to what is none, and back.
    let sizes = [4, 8, 6, 16, 1024, 2, 1];
    // SAFETY: the layouts have sizes; each is given back once, as the last one that it became.
    unsafe {
        let mut at = MEMORY.alloc(layout(sizes[0]));
        at.write_bytes(7, sizes[0] * 4096);
        for pair in sizes.windows(2) {
            at = MEMORY.realloc(at, layout(pair[0]), pair[1] * 4096);
            assert!(holds(at, pair[0].min(pair[1]) * 4096, 7), "{pair:?}");
            at.write_bytes(7, pair[1] * 4096);
        }
        MEMORY.dealloc(at, layout(1));
    }
}

#[test]
fn memory_of_many_buffers_goes_back_to_the_system() {
    let _alone = alone();
    let of = layout(512);
    // SAFETY: the layout has a size; each is given back once with it.
    let blocks: Vec<*mut u8> = (0..40).map(|_| unsafe { MEMORY.alloc(of) }).collect();
    // SAFETY: as above.
    blocks.iter().for_each(|at| unsafe { MEMORY.dealloc(*at, of) });
    let mapped = blocks.iter().filter(|at| flags_at(**at as usize).is_some()).count();
    assert!(mapped <= 20, "{mapped} of 40 blocks are still mapped");
}

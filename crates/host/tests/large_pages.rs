//! Large tables under the allocator of the program.

use std::alloc::{GlobalAlloc, Layout};

use bimetal_host::memory::LargePages;

#[global_allocator]
static MEMORY: LargePages = LargePages;

const LARGE: usize = 2 << 20;

/// The flags of the mapping that this address is in, as `/proc/self/smaps` has them.
fn flags_of(at: usize) -> String {
    let all = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let mut inside = false;
    for line in all.lines() {
        let range = line.split(' ').next().and_then(|r| r.split_once('-'));
        let hex = |s| usize::from_str_radix(s, 16).ok();
        if let Some((Some(from), Some(to))) = range.map(|(a, b)| (hex(a), hex(b))) {
            inside = (from..to).contains(&at);
        } else if inside && line.starts_with("VmFlags:") {
            return line.to_string();
        }
    }
    panic!("{at:x} is not mapped");
}

#[test]
fn a_table_is_aligned_advised_and_keeps_its_content_as_it_grows_and_shrinks() {
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
    let layout = Layout::from_size_align(1 << 60, 8).expect("a layout");
    // SAFETY: the layout has a size; nothing is done with what comes back.
    assert!(unsafe { MEMORY.alloc(layout) }.is_null());
}

#[test]
fn what_is_aligned_and_no_buffer_is_the_systems() {
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

#[test]
fn buffers_are_cut_from_large_pages_and_zero_when_asked() {
    let layout = |pages: usize| Layout::from_size_align(pages * 4096, 4096).expect("a layout");
    let advised = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    let mut held = Vec::new();
    for round in 0..600 {
        let of = layout(1 << (round % 10));
        // SAFETY: the layout has a size; what comes is written within it, read after that, and given back with it.
        unsafe {
            let at = if round % 3 == 0 { MEMORY.alloc_zeroed(of) } else { MEMORY.alloc(of) };
            assert_eq!(at as usize % of.size(), 0, "a buffer lies at a multiple of its size");
            assert!(!advised || flags_of(at as usize).contains(" hg"));
            if round % 3 == 0 {
                assert!(std::slice::from_raw_parts(at, of.size()).iter().all(|b| *b == 0), "round {round}");
            }
            at.write_bytes(round as u8 | 1, of.size());
            held.push((at, of, round as u8 | 1));
            if round % 2 == 1 {
                let (at, of, fill) = held.swap_remove(round * 7 % held.len());
                assert!(std::slice::from_raw_parts(at, of.size()).iter().all(|b| *b == fill), "round {round}");
                MEMORY.dealloc(at, of);
            }
        }
    }
    // SAFETY: as above; each is given back once, the first grown before.
    unsafe {
        let (at, of, fill) = held.remove(0);
        let grown = MEMORY.realloc(at, of, 2 * of.size());
        assert!(std::slice::from_raw_parts(grown, of.size()).iter().all(|b| *b == fill), "realloc keeps the content");
        MEMORY.dealloc(grown, layout(of.size() / 2048));
        held.into_iter().for_each(|(at, of, _)| MEMORY.dealloc(at, of));
    }
}

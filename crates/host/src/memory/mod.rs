//! Memory of large tables in large pages. A group's map and its tables of slots are gigabytes on large members and asked
//! for at random: with pages of 4 KiB, most requests would wait for an address to be translated as well as for the line.
//!
//! What is large and asks for less alignment than a page is such a table; buffers of I/O are aligned, and are cut from large
//! pages too (see [`buffers`]). The rest is left to the system's allocator.

mod buffers;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::{Mutex, PoisonError};

use buffers::{is_buffer, Buffers};

/// A large page of x86-64, and of arm64 with small pages of 4 KiB; what is smaller is not treated here.
const LARGE: usize = 2 << 20;

/// The system's allocator, but for buffers and large tables: these are mappings, or parts of them, aligned to large pages,
/// and the system is advised to back them with such (`MADV_HUGEPAGE`, see `madvise(2)`). Where it has none to give, or is
/// told never to, they are as they were. Install it with `#[global_allocator]`.
pub struct LargePages;

/// What memory is for, as far as its layout tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Buffer,
    Other,
}

fn kind(layout: Layout) -> Kind {
    match (layout.size(), layout.align()) {
        (size, align) if size >= LARGE && align < 4096 => Kind::Table,
        (size, align) if is_buffer(size, align) => Kind::Buffer,
        _ => Kind::Other,
    }
}

/// Buffers are kept by who uses them and seldom come here, so that one list for all threads is enough. The memory of the list
/// is no buffer, so that it is not asked for here while it is locked.
static BUFFERS: Mutex<Buffers> = Mutex::new(Buffers::new());

fn take_buffer(size: usize) -> *mut u8 {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).take(size)
}

/// # Safety
/// [`take_buffer`] gave it for this size, and nobody uses it any more.
unsafe fn give_buffer(at: *mut u8, size: usize) {
    // SAFETY: the caller's promises; then a mapping of this size that `take` made and that has no buffer in it any more.
    unsafe {
        at.write_bytes(0, size);
        let spare = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).give(at, size);
        if let Some(start) = spare {
            libc::munmap(start.cast(), LARGE);
        }
    }
}

/// The length of a mapping for so many bytes.
fn whole_pages(size: usize) -> usize {
    // SAFETY: takes an integer only.
    size.next_multiple_of(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize)
}

/// A mapping of `size` bytes of zeros that begins on a large page; null if there is no memory.
fn map(size: usize) -> *mut u8 {
    // No overflow: the size of a layout is at most `isize::MAX`.
    let room = whole_pages(size + LARGE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping, wherever there is room.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), room, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(LARGE).min(LARGE);
    let used = whole_pages(size);
    let after = room.saturating_sub(before + used);
    // SAFETY: within the mapping that was just made: what lies before and behind the part that is kept, in whole pages.
    // Nobody knows of it yet.
    unsafe {
        let kept = start.add(before);
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        if after > 0 {
            libc::munmap(kept.add(used).cast(), after);
        }
        libc::madvise(kept.cast(), used, libc::MADV_HUGEPAGE);
        kept
    }
}

// SAFETY: other layouts are the system's allocator's, from beginning to end, since what is a table or a buffer depends on the
// layout alone. A table is a mapping of its own of at least the size that was asked for, aligned to more than any alignment
// that `kind` lets in, and it is unmapped only by `dealloc`. A buffer is a part of such a mapping that nobody else has
// (invariant 1 of `buffers`), aligned to its size, which is not less than a page, and zero (invariant 4); the mapping is unmapped
// when no buffer is in it. Neither panics: a poisoned lock is taken, the list grows by `try_reserve`, and what was not given out
// ends the program.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match kind(layout) {
            Kind::Table => map(layout.size()),
            Kind::Buffer => take_buffer(layout.size()),
            // SAFETY: the caller's promises.
            Kind::Other => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match kind(layout) {
            Kind::Table => map(layout.size()),
            Kind::Buffer => take_buffer(layout.size()),
            // SAFETY: the caller's promises.
            Kind::Other => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match kind(layout) {
            // SAFETY: what `map` returned for this size.
            Kind::Table => unsafe {
                libc::munmap(at.cast(), whole_pages(layout.size()));
            },
            // SAFETY: the caller's promises.
            Kind::Buffer => unsafe { give_buffer(at, layout.size()) },
            // SAFETY: the caller's promises.
            Kind::Other => unsafe { System.dealloc(at, layout) },
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that this is a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if (kind(layout), kind(new)) == (Kind::Other, Kind::Other) {
            // SAFETY: the caller's promises.
            return unsafe { System.realloc(at, layout, size) };
        }
        // SAFETY: the caller's promises; the two do not overlap, and as much as both have is copied.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                std::ptr::copy_nonoverlapping(at, moved, layout.size().min(size));
                self.dealloc(at, layout);
            }
            moved
        }
    }
}

//! Page-aligned buffers that can be handed to a device without a copy.
//!
//! [`BufMut`] is owned and writable; [`BufMut::freeze`] turns it into a [`Buf`], which is read-only, cheap to clone and
//! to slice. Memory comes from per-thread free lists by power-of-two size class and returns there, together with its
//! count of handles, when the last handle is dropped, so that a steady load allocates nothing. Recycled memory keeps
//! its old content: whoever takes a buffer fills all of it (reads do), or calls [`BufMut::zeroed`].

use std::cell::RefCell;
use std::rc::Rc;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment of every buffer, in bytes.
pub const PAGE: usize = 4096;

/// Free buffers kept per size class; the rest goes back to the allocator.
const KEEP_BYTES_PER_CLASS: usize = 16 << 20;

/// One page of memory.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// The count of handles lies apart: beside pages it would take a page of its own.
type Pages = Rc<Box<[Page]>>;

thread_local! {
    static FREE: RefCell<Vec<Vec<Pages>>> = const { RefCell::new(Vec::new()) };
}

fn class_of(pages: usize) -> usize {
    pages.next_power_of_two().trailing_zeros() as usize
}

fn take_pages(pages: usize) -> Pages {
    let class = class_of(pages.max(1));
    let recycled = FREE.with(|f| f.borrow_mut().get_mut(class).and_then(Vec::pop));
    recycled.unwrap_or_else(|| {
        let new = <[Page]>::new_box_zeroed_with_elems(1 << class);
        Rc::new(new.expect("buffer sizes are bounded and fit the address space"))
    })
}

fn give_pages(pages: Pages) {
    let class = class_of(pages.len());
    // The free lists may be gone when a thread ends; the buffer is then simply freed.
    let _ = FREE.try_with(|f| {
        let mut lists = f.borrow_mut();
        if lists.len() <= class {
            lists.resize_with(class + 1, Vec::new);
        }
        let keep = (KEEP_BYTES_PER_CLASS / (PAGE << class)).max(1);
        if lists[class].len() < keep {
            lists[class].push(pages);
        }
    });
}

/// Overwrites the memory of this thread that waits to be used again: what passed through it is not to stay.
pub fn wipe_recycled() {
    FREE.with(|f| {
        for pages in f.borrow_mut().iter_mut().flatten() {
            let only = Rc::get_mut(pages).expect("what waits to be used again has one handle");
            only.as_mut_bytes().fill(0);
        }
    });
}

/// A handle of a buffer's memory; the last one gives it back.
#[derive(Clone)]
struct Handle(Option<Pages>);

impl Handle {
    fn pages(&self) -> &Pages {
        self.0.as_ref().expect("taken only by drop")
    }

    fn is_last(&self) -> bool {
        Rc::strong_count(self.pages()) == 1
    }

    /// The memory, writable: whoever asks holds the only handle.
    fn bytes_mut(&mut self) -> &mut [u8] {
        let pages = self.0.as_mut().and_then(Rc::get_mut);
        pages.expect("a writable buffer has one owner").as_mut_bytes()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(pages) = self.0.take().filter(|p| Rc::strong_count(p) == 1) {
            give_pages(pages);
        }
    }
}

/// A writable buffer with one owner. Its memory begins on a page, its data `start` bytes later.
pub struct BufMut {
    pages: Handle,
    start: usize,
    len: usize,
}

impl BufMut {
    /// A buffer of `len` bytes with arbitrary content.
    pub fn new(len: usize) -> BufMut {
        BufMut::with_phase(len, 0)
    }

    /// A buffer of `len` bytes whose data starts `phase % 4096` bytes into a page. A request at byte `offset` of a
    /// volume uses `phase = offset`, so that every whole block of it is page-aligned in memory.
    pub fn with_phase(len: usize, phase: u64) -> BufMut {
        let start = (phase % PAGE as u64) as usize;
        BufMut { pages: Handle(Some(take_pages((start + len).div_ceil(PAGE)))), start, len }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> BufMut {
        let mut b = BufMut::new(len);
        b.fill(0);
        b
    }

    /// A buffer with a copy of `data`.
    pub fn copy_of(data: &[u8]) -> BufMut {
        let mut b = BufMut::new(data.len());
        b.copy_from_slice(data);
        b
    }

    /// Ends writing; the result can be shared.
    pub fn freeze(self) -> Buf {
        let BufMut { pages, start, len } = self;
        Buf { pages, start, len }
    }

    /// Shortens the buffer to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len);
        self.len = len;
    }
}

impl std::ops::Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages.pages().as_bytes()[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[self.start..self.start + self.len]
    }
}

/// A read-only range of a shared buffer.
#[derive(Clone)]
pub struct Buf {
    pages: Handle,
    start: usize,
    len: usize,
}

impl Buf {
    /// The bytes from `from` on, `len` of them, without a copy.
    #[must_use]
    pub fn slice(&self, from: usize, len: usize) -> Buf {
        assert!(from + len <= self.len, "slice {from}+{len} of a buffer of {}", self.len);
        Buf { pages: self.pages.clone(), start: self.start + from, len }
    }

    /// Whether the data begins on a page of memory, as a device wants it.
    pub fn is_aligned(&self) -> bool {
        self.start % PAGE == 0
    }

    /// This range and `next` as one, if `next` follows it in the same memory.
    pub fn join(&self, next: &Buf) -> Option<Buf> {
        let follows = Rc::ptr_eq(self.pages.pages(), next.pages.pages()) && self.start + self.len == next.start;
        follows.then(|| Buf { pages: self.pages.clone(), start: self.start, len: self.len + next.len })
    }

    /// The buffer as writable again, if this is the only handle.
    pub fn try_unfreeze(self) -> Result<BufMut, Buf> {
        match self.pages.is_last() {
            true => Ok(BufMut { pages: self.pages, start: self.start, len: self.len }),
            false => Err(self),
        }
    }
}

impl std::ops::Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages.pages().as_bytes()[self.start..self.start + self.len]
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

impl std::fmt::Debug for BufMut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufMut({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_page_aligned_and_recycled() {
        let b = BufMut::new(5000);
        let at = b.as_ptr() as usize;
        assert_eq!(at % PAGE, 0);
        drop(b.freeze());
        let again = BufMut::new(8000);
        assert_eq!(again.as_ptr() as usize, at, "same size class, same memory");
    }

    #[test]
    fn phase_keeps_whole_blocks_aligned() {
        let b = BufMut::with_phase(10_000, 4096 * 7 + 512).freeze();
        assert!(!b.is_aligned());
        assert!(b.slice(4096 - 512, 4096).is_aligned());
    }

    #[test]
    fn unfreeze_needs_the_last_handle() {
        let b = BufMut::copy_of(b"abc").freeze();
        let c = b.clone();
        let b = b.try_unfreeze().expect_err("shared");
        drop(c);
        assert_eq!(&*b.try_unfreeze().expect("alone"), b"abc");
    }
}

//! Memory that the kernel knows by a number: it pins its pages once, and not for every request (`io_uring_register(2)`).
//!
//! Only what stays where it is for ever is made known, a large page at the first request in it. Where that is refused (of locked
//! memory there may be little, for whoever is not root) requests name addresses, as for other memory.

use std::cell::Cell;

use io_uring::IoUring;

use crate::memory::{Lasting, LASTING};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// Nobody has asked.
    New,
    Known,
    Refused,
}

/// What one ring knows of the area of buffers.
pub(super) struct Registered {
    pages: [Cell<Page>; LASTING],
}

impl Registered {
    /// Makes the table of a ring.
    pub(super) fn new(ring: &IoUring) -> Registered {
        let first = match ring.submitter().register_buffers_sparse(LASTING as u32) {
            Ok(()) => Page::New,
            Err(_) => Page::Refused,
        };
        Registered { pages: std::array::from_fn(|_| Cell::new(first)) }
    }

    /// The number under which the ring knows these bytes, if it does. `ring` is called to make them known.
    pub(super) fn number(&self, at: *const u8, len: usize, ring: impl FnOnce(Lasting) -> bool) -> Option<u16> {
        let lasting = Lasting::of(at, len)?;
        let page = &self.pages[lasting.number];
        if page.get() == Page::New {
            page.set(if ring(lasting) { Page::Known } else { Page::Refused });
        }
        (page.get() == Page::Known).then_some(lasting.number as u16)
    }
}

/// Makes a page known to a ring; whether it is.
pub(super) fn make_known(ring: &IoUring, page: Lasting) -> bool {
    // SAFETY: it is mapped for ever (invariant 2 of `memory::buffers`).
    unsafe { ring.submitter().register_buffers_update(page.number as u32, &[page.bytes()], None) }.is_ok()
}

#[cfg(test)]
mod tests {
    use bimetal_volume::buf::BufMut;

    use super::*;
    use crate::reactor::setup;

    /// A buffer in the area: other tests may have used it up for a moment.
    fn in_the_area() -> BufMut {
        loop {
            let buffer = BufMut::new(8192);
            if Lasting::of(buffer.as_ptr(), buffer.len()).is_some() {
                return buffer;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_page_is_made_known_once() {
        let ring = setup::ring().expect("a ring");
        let registered = Registered::new(&ring);
        let buffer = in_the_area();
        let page = Lasting::of(buffer.as_ptr(), buffer.len()).expect("in the area");
        let mut asked = 0;
        for _ in 0..3 {
            let number = registered.number(buffer.as_ptr(), buffer.len(), |page| {
                asked += 1;
                make_known(&ring, page)
            });
            assert_eq!(number, Some(page.number as u16));
        }
        assert_eq!(asked, 1);
    }

    #[test]
    fn who_is_refused_does_not_ask_again_and_other_memory_is_not_known() {
        let ring = setup::ring().expect("a ring");
        let registered = Registered::new(&ring);
        let buffer = in_the_area();
        let mut asked = 0;
        for _ in 0..3 {
            let refuse = |_: Lasting| {
                asked += 1;
                false
            };
            assert_eq!(registered.number(buffer.as_ptr(), buffer.len(), refuse), None);
        }
        assert_eq!(asked, 1);
        let other = [0u8; 16];
        assert_eq!(registered.number(other.as_ptr(), 16, |_| true), None);
    }
}

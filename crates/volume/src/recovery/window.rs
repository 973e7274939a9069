//! Map pages read in windows of 1 MiB: one request for all current copies of a window that lie on the same side.

use std::ops::Range;

use bimetal_format::directory::Expected;
use bimetal_format::Salt;

use crate::buf::BufMut;
use crate::env::Device;
use crate::member::Member;
use crate::units::BLOCK;

/// Pages of a window.
const WINDOW: u32 = 256;

/// Some page copies of one side.
pub(super) struct Window {
    side: u8,
    pages: Vec<(u32, Expected)>,
    /// From the first page to the last; `None` if the member could not read it.
    content: Option<BufMut>,
}

/// Windows read side by side: enough to keep a device busy, 8 MiB of memory.
const AT_ONCE: usize = 8;

/// The windows and sides of a map of so many pages, in batches to be read side by side.
pub(super) fn batches(pages: u32) -> impl Iterator<Item = Vec<(Range<u32>, u8)>> {
    let mut windows = (0..pages).step_by(WINDOW as usize).flat_map(move |first| {
        let window = first..(first + WINDOW).min(pages);
        [(window.clone(), 0), (window, 1)]
    });
    std::iter::from_fn(move || {
        let batch: Vec<_> = windows.by_ref().take(AT_ONCE).collect();
        (!batch.is_empty()).then_some(batch)
    })
}

/// The copies of these pages on one side; zeros, which are no page, where one of them cannot be read. `None` if none can be.
async fn read_pages<D: Device>(m: &Member<D>, side: u8, first: u32, last: u32) -> Option<BufMut> {
    let (place, pages) = (m.layout.page(first, side), (last - first + 1) as usize);
    let size = BLOCK as usize;
    if let Ok(all) = m.read(place, BufMut::new(pages * size)).await {
        return Some(all);
    }
    let (mut all, mut any) = (BufMut::zeroed(pages * size), false);
    for (n, page) in all.chunks_exact_mut(size).enumerate() {
        if let Ok(one) = m.read(place + (n * size) as u64, BufMut::new(size)).await {
            page.copy_from_slice(&one);
            any = true;
        }
    }
    any.then_some(all)
}

impl Window {
    /// Reads the copies of a window that are current, on `side`, and wanted. `None` if there are none.
    pub(super) async fn read<D: Device>(
        m: &Member<D>,
        (window, side): (Range<u32>, u8),
        wanted: impl Fn(u32, Expected) -> bool,
    ) -> Option<Window> {
        let pages: Vec<(u32, Expected)> = {
            let d = m.directory.borrow();
            let all = window.map(|p| (p, d.pages.get(p as usize)));
            all.filter(|(p, e)| e.is_some() && e.side() == side && wanted(*p, *e)).collect()
        };
        let (first, last) = (pages.first()?.0, pages.last()?.0);
        let content = read_pages(m, side, first, last).await;
        Some(Window { side, pages, content })
    }

    /// Each page with what is expected of it, and its bytes with their salt if they could be read.
    pub(super) fn copies<'a, D: Device>(
        &'a self,
        m: &'a Member<D>,
    ) -> impl Iterator<Item = (u32, Expected, Option<(&'a [u8], Salt)>)> + 'a {
        let first = self.pages[0].0;
        self.pages.iter().map(move |(page, expected)| {
            let at = (page - first) as usize * BLOCK as usize;
            let salt = m.salt(m.layout.page(*page, self.side));
            (*page, *expected, self.content.as_ref().map(|c| (&c[at..at + BLOCK as usize], salt)))
        })
    }
}

//! Map pages read in windows of 1 MiB: one request for all current copies of a window that lie on the same side.

use std::collections::BTreeSet;
use std::ops::Range;

use bimetal_format::directory::Expected;
use bimetal_format::Salt;

use super::patience::read_patiently;
use crate::buf::BufMut;
use crate::env::{Device, Env};
use crate::member::Member;
use crate::units::BLOCK;

/// Pages of a window.
const WINDOW: u32 = 256;

/// Some page copies of one side.
pub(super) struct Window {
    side: u8,
    pages: Vec<(u32, Expected)>,
    /// From the first page to the last.
    content: BufMut,
    /// Pages that the member could not read. What is there is not known: it may be read the next time.
    unread: BTreeSet<u32>,
}

/// Windows read side by side: enough to keep a device busy, 8 MiB of memory.
const AT_ONCE: usize = 8;

/// The windows and sides of these pages, in batches to be read side by side.
pub(super) fn batches(pages: Range<u32>) -> impl Iterator<Item = Vec<(Range<u32>, u8)>> {
    let mut windows = pages.clone().step_by(WINDOW as usize).flat_map(move |first| {
        let window = first..(first + WINDOW).min(pages.end);
        [(window.clone(), 0), (window, 1)]
    });
    std::iter::from_fn(move || {
        let batch: Vec<_> = windows.by_ref().take(AT_ONCE).collect();
        (!batch.is_empty()).then_some(batch)
    })
}

/// The copies of these pages on one side, and those that cannot be read.
async fn read_pages<E: Env>(
    env: &E,
    m: &Member<E::Device>,
    side: u8,
    pages: &[(u32, Expected)],
) -> (BufMut, BTreeSet<u32>) {
    let (size, first, last) = (BLOCK as usize, pages[0].0, pages[pages.len() - 1].0);
    let len = (last - first + 1) as usize * size;
    if let Ok(all) = m.read(m.layout.page(first, side), BufMut::new(len)).await {
        return (all, BTreeSet::new());
    }
    let (mut all, mut unread) = (BufMut::zeroed(len), BTreeSet::new());
    for (page, _) in pages {
        match read_patiently(env, m, m.layout.page(*page, side)).await {
            Ok(one) => all[(page - first) as usize * size..][..size].copy_from_slice(&one),
            Err(_) => drop(unread.insert(*page)),
        }
    }
    (all, unread)
}

impl Window {
    /// Reads the copies of a window that are current, on `side`, and wanted. `None` if there are none.
    pub(super) async fn read<E: Env>(
        env: &E,
        m: &Member<E::Device>,
        (window, side): (Range<u32>, u8),
        wanted: impl Fn(u32, Expected) -> bool,
    ) -> Option<Window> {
        let pages: Vec<(u32, Expected)> = {
            let d = m.directory.borrow();
            let all = window.map(|p| (p, d.pages.get(p as usize)));
            all.filter(|(p, e)| e.is_some() && e.side() == side && wanted(*p, *e)).collect()
        };
        if pages.is_empty() {
            return None;
        }
        let (content, unread) = read_pages(env, m, side, &pages).await;
        Some(Window { side, pages, content, unread })
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
            let copy = (&self.content[at..at + BLOCK as usize], salt);
            (*page, *expected, (!self.unread.contains(page)).then_some(copy))
        })
    }
}

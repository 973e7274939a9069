//! Replacement algorithms: what a cache of so many chunks would hold after each visit. They know nothing of tiers or of
//! moves; [`super::shadow::Shadow`] makes placement policies of them.

mod arc;
mod lfu;
mod lru;
mod s3fifo;
mod sketch;
mod tinylfu;

pub use arc::Arc;
pub use lfu::Lfu;
pub use lru::Lru;
pub use s3fifo::S3Fifo;
pub use sketch::Sketch;
pub use tinylfu::TinyLfu;

/// A replacement algorithm.
pub trait Cache {
    /// Its usual name.
    fn name(&self) -> &'static str;

    /// A visit of a chunk; whether the cache held it. What leaves is added to `evicted`; the chunk itself may be
    /// refused and is then not held, which is not told.
    fn access(&mut self, chunk: u32, evicted: &mut Vec<u32>) -> bool;

    /// Whether the cache holds the chunk.
    fn holds(&self, chunk: u32) -> bool;

    /// From now on it holds so many chunks at most; what has to leave is added to `evicted`.
    fn resize(&mut self, capacity: usize, evicted: &mut Vec<u32>);

    /// The chunk is discarded: what it was is nothing any more.
    fn forget(&mut self, chunk: u32);

    /// Chunks held.
    fn len(&self) -> usize;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<C: Cache + ?Sized> Cache for Box<C> {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn access(&mut self, chunk: u32, evicted: &mut Vec<u32>) -> bool {
        (**self).access(chunk, evicted)
    }
    fn holds(&self, chunk: u32) -> bool {
        (**self).holds(chunk)
    }
    fn resize(&mut self, capacity: usize, evicted: &mut Vec<u32>) {
        (**self).resize(capacity, evicted);
    }
    fn forget(&mut self, chunk: u32) {
        (**self).forget(chunk);
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

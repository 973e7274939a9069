//! What may be moved beside a load that never pauses.
//!
//! A disk that is always busy gains most from promotions, and has no quiet moment for them. So one chunk may change places
//! for every [`REQUESTS_PER_CHUNK`] requests that the disk serves. That delays some of them; what is saved up goes together, so
//! that they are few.

/// Requests of the slow tier for each chunk that is moved.
const REQUESTS_PER_CHUNK: u64 = 16;
/// Chunks whose requests are saved up at most: they go together.
const TOGETHER: u64 = 8;

/// Counts requests of the slow tier.
#[derive(Default)]
pub(super) struct Share {
    requests: u64,
}

impl Share {
    /// The slow tier got a request.
    pub(super) fn request(&mut self) {
        self.requests = (self.requests + 1).min(REQUESTS_PER_CHUNK * TOGETHER);
    }

    /// Takes up to `max` chunks that may be moved now.
    pub(super) fn take(&mut self, max: usize) -> usize {
        let chunks = (self.requests / REQUESTS_PER_CHUNK).min(max as u64);
        self.requests -= chunks * REQUESTS_PER_CHUNK;
        chunks as usize
    }

    /// Moves go freely: nothing is saved up.
    pub(super) fn clear(&mut self) {
        self.requests = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_for_so_many_requests() {
        let mut share = Share::default();
        let mut moved = 0;
        for _ in 0..100 * REQUESTS_PER_CHUNK {
            share.request();
            moved += share.take(5);
        }
        assert_eq!(moved, 100);
        (0..100 * REQUESTS_PER_CHUNK).for_each(|_| share.request());
        assert_eq!((share.take(1), share.take(9), share.take(9)), (1, TOGETHER as usize - 1, 0));
    }
}

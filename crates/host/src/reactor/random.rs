//! Random numbers from the kernel, fetched a few at a time.

const POOL: usize = 32;

/// Numbers that were fetched and not yet given out.
#[derive(Default)]
pub(super) struct Pool {
    left: Vec<u64>,
}

impl Pool {
    pub(super) fn next(&mut self) -> u64 {
        if self.left.is_empty() {
            self.fill();
        }
        self.left.pop().expect("was filled")
    }

    fn fill(&mut self) {
        let mut bytes = [0u8; POOL * 8];
        let mut have = 0;
        while have < bytes.len() {
            let rest = &mut bytes[have..];
            // SAFETY: the pointer and length describe `rest`.
            let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
            match usize::try_from(n) {
                Ok(n) => have += n,
                // Interrupted by a signal. With these arguments there is no other error on Linux >= 3.17.
                Err(_) => std::thread::yield_now(),
            }
        }
        let words = bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().expect("8 bytes")));
        self.left.extend(words);
    }
}

//! What the demo writes: bytes that tell which file, place and version they belong to, so that a mix-up is seen.

/// Fills `out` with the content of `file` from byte `offset` on, in version `version`. Offsets and lengths are
/// multiples of 8.
pub(crate) fn fill(file: u64, version: u64, offset: u64, out: &mut [u8]) {
    let seed = mix(file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version.rotate_left(32));
    for (i, word) in out.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mix(seed ^ (offset / 8 + i as u64)).to_le_bytes());
    }
}

/// Whether `data` is that content.
pub(crate) fn matches(file: u64, version: u64, offset: u64, data: &[u8]) -> bool {
    let mut expected = vec![0; data.len()];
    fill(file, version, offset, &mut expected);
    expected == data
}

/// A number that looks random, from one that does not.
pub(crate) fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Numbers below `n` in a mixed order, the same each time.
pub(crate) fn shuffled(n: u64, seed: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..n).collect();
    all.sort_by_key(|i| mix(i ^ mix(seed)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_file_version_and_place() {
        let mut a = vec![0; 4096];
        fill(1, 1, 8192, &mut a);
        assert!(matches(1, 1, 8192, &a));
        assert!(matches(1, 1, 8192 + 800, &a[800..]), "content does not depend on how it is cut");
        assert!(!matches(2, 1, 8192, &a) && !matches(1, 2, 8192, &a) && !matches(1, 1, 4096, &a));
    }

    #[test]
    fn shuffling_keeps_everything() {
        let mut s = shuffled(100, 7);
        assert_ne!(s, (0..100).collect::<Vec<_>>());
        s.sort();
        assert_eq!(s, (0..100).collect::<Vec<_>>());
    }
}

//! The family key in memory.

use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

use super::{recovery, KEY_BYTES};

/// The key of a family. It stays where it is in memory and is overwritten when it is dropped.
pub struct FamilyKey(Box<[u8; KEY_BYTES]>);

impl FamilyKey {
    /// A key for a new family, from the kernel's random numbers.
    pub fn random() -> FamilyKey {
        let mut key = FamilyKey::zero();
        recovery::fill(&mut key[..]);
        key
    }

    pub(super) fn zero() -> FamilyKey {
        FamilyKey(Box::new([0; KEY_BYTES]))
    }
}

impl Deref for FamilyKey {
    type Target = [u8; KEY_BYTES];

    fn deref(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl DerefMut for FamilyKey {
    fn deref_mut(&mut self) -> &mut [u8; KEY_BYTES] {
        &mut self.0
    }
}

impl Drop for FamilyKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for FamilyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FamilyKey(..)")
    }
}

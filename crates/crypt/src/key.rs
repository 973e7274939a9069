//! The keys of families and of volumes.

use std::convert::Infallible;
use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::hkdf;
use crate::xts::Xts;

/// Bytes of a block, the data unit of the encryption.
pub const BLOCK_SIZE: usize = 4096;

// Both are part of the format: a change makes every encrypted volume unreadable.
const VOLUME_KEY: &[u8] = b"bimetal volume key v1";
const FAMILY_CHECK: &[u8] = b"bimetal family check v1";

/// The secret of a family of volumes: 32 bytes that cannot be guessed, not a passphrase.
///
/// It stays at one place on the heap, so that moving it leaves no copies, and is wiped when it is dropped.
pub struct FamilyKey(Box<Zeroizing<[u8; 32]>>);

impl FamilyKey {
    /// Copies the key; wiping the original is up to the caller. [`fill`](Self::fill) needs no original.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self::fill(|key| key.copy_from_slice(bytes))
    }

    /// Lets `fill` write the key, which is zeros before, to where it stays.
    pub fn fill(fill: impl FnOnce(&mut [u8; 32])) -> Self {
        let Ok(key) = Self::try_fill(|key| {
            fill(key);
            Ok::<(), Infallible>(())
        });
        key
    }

    /// Like [`fill`](Self::fill), for sources that may fail; what they have written by then is wiped.
    pub fn try_fill<E>(fill: impl FnOnce(&mut [u8; 32]) -> Result<(), E>) -> Result<Self, E> {
        let mut key = Box::new(Zeroizing::new([0; 32]));
        fill(&mut key)?;
        Ok(Self(key))
    }

    /// The secret itself, to store or to wrap it.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A public value by which a wrong key is known: stored on members, it says nothing about the key.
    ///
    /// HKDF-SHA-256 (RFC 5869) without salt, with the info `bimetal family check v1` and the 16 bytes of the family's
    /// UUID.
    pub fn check_value(&self, family: &[u8; 16]) -> [u8; 16] {
        let mut value = [0; 16];
        self.derive(&[FAMILY_CHECK, family], &mut value);
        value
    }

    /// Whether `check` is the [`check_value`](Self::check_value) of this key. The time it takes does not depend on how
    /// much of it is equal.
    pub fn confirms(&self, family: &[u8; 16], check: &[u8; 16]) -> bool {
        self.check_value(family).ct_eq(check).into()
    }

    /// The 64 bytes of a volume's key, for tools that hand them to dm-crypt: the key of the data, then the key of the
    /// tweaks, which is the order of IEEE Std 1619 and of Linux.
    ///
    /// HKDF-SHA-256 (RFC 5869) without salt, with the info `bimetal volume key v1` and the 16 bytes of the volume's UUID.
    pub fn derived_bytes(&self, volume: &[u8; 16]) -> Box<Zeroizing<[u8; 64]>> {
        let mut key = Box::new(Zeroizing::new([0; 64]));
        self.derive(&[VOLUME_KEY, volume], &mut **key);
        assert_halves_differ(&key);
        key
    }

    /// The key of the volume with this UUID, ready to encrypt.
    pub fn volume_key(&self, volume: &[u8; 16]) -> VolumeKey {
        let key = expand(&self.derived_bytes(volume));
        wipe_stack();
        key
    }

    fn derive(&self, info: &[&[u8]], to: &mut [u8]) {
        hkdf::derive(self.as_bytes(), info, to);
        wipe_stack();
    }
}

impl ZeroizeOnDrop for FamilyKey {}

impl fmt::Debug for FamilyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FamilyKey(..)")
    }
}

/// With equal halves XTS is open to a chosen-ciphertext attack, and FIPS 140 forbids them (Implementation Guidance,
/// "XTS-AES Key Generation Requirements"). HKDF gives them once in 2^256 volumes: that they are seen means that the
/// computation went wrong, and with such a key nothing may be written.
pub(crate) fn assert_halves_differ(key: &[u8; 64]) {
    let (data, tweak) = key.split_at(32);
    assert!(!bool::from(data.ct_eq(tweak)), "both halves of a volume's key are the same: its derivation is broken");
}

/// Apart from its caller, so that the stack it used is free when the caller wipes it.
#[inline(never)]
fn expand(key: &[u8; 64]) -> VolumeKey {
    VolumeKey(Box::new(Xts::new(key)))
}

/// Overwrites what the functions called before left on the stack: the hash and the cipher move key material through
/// local variables that nobody wipes.
#[inline(never)]
fn wipe_stack() {
    [0u8; 16 << 10].zeroize();
}

/// Does `work` of the cipher and overwrites what that left on the stack: there are more round keys than registers. What stays there is
/// copied on with whatever is moved from there before all of it was written, to the heap as well, where no later wipe finds it.
fn traceless(work: impl FnOnce()) {
    apart(work);
    wipe_cipher();
}

#[inline(never)]
fn apart(work: impl FnOnce()) {
    work();
}

/// Runs for every request: in words, since each is written apart.
#[inline(never)]
fn wipe_cipher() {
    [0u64; 1 << 10].zeroize();
}

/// Encrypts and decrypts the blocks of one volume by AES-256-XTS (IEEE Std 1619-2018, NIST SP 800-38E).
///
/// Each block is a data unit of its own, whose tweak is its number in the volume as a little-endian number of 128 bits.
/// Nothing is allocated. The expanded keys stay at one place on the heap and are wiped when this is dropped.
pub struct VolumeKey(Box<Xts>);

impl VolumeKey {
    /// Encrypts blocks in place, of which the first has the number `first_block`.
    ///
    /// # Panics
    ///
    /// Unless `data` is whole blocks, whose numbers fit in 64 bits.
    pub fn encrypt(&self, first_block: u64, data: &mut [u8]) {
        check(first_block, data);
        traceless(|| self.0.encrypt::<BLOCK_SIZE>(first_block, None, data));
    }

    /// Encrypts blocks into another buffer; cheaper than a copy that is then encrypted in place.
    ///
    /// # Panics
    ///
    /// Unless `from` is whole blocks, whose numbers fit in 64 bits, and `to` is as long.
    pub fn encrypt_to(&self, first_block: u64, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "clear text and ciphertext are equally long");
        check(first_block, from);
        traceless(|| self.0.encrypt::<BLOCK_SIZE>(first_block, Some(from), to));
    }

    /// Decrypts blocks in place, of which the first has the number `first_block`.
    ///
    /// # Panics
    ///
    /// Unless `data` is whole blocks, whose numbers fit in 64 bits.
    pub fn decrypt(&self, first_block: u64, data: &mut [u8]) {
        check(first_block, data);
        traceless(|| self.0.decrypt::<BLOCK_SIZE>(first_block, None, data));
    }
}

/// In release builds too: a rest that is no block would silently stay clear text.
fn check(first_block: u64, data: &[u8]) {
    assert_eq!(data.len() % BLOCK_SIZE, 0, "only whole blocks are encrypted");
    let last = (data.len() / BLOCK_SIZE).saturating_sub(1) as u64;
    assert!(first_block.checked_add(last).is_some(), "numbers of blocks have 64 bits");
}

impl ZeroizeOnDrop for VolumeKey {}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VolumeKey(..)")
    }
}

//! AES-256-XTS over data units (IEEE Std 1619-2018, NIST SP 800-38E).
//!
//! With the key halves K1 and K2, AES block `j` of data unit `n` is encrypted as `C = E(K1, P ^ T) ^ T`, where
//! `T = E(K2, n) * x^j` in GF(2^128) modulo `x^128 + x^7 + x^2 + x + 1`; numbers are little-endian. Units are multiples
//! of the AES block, so ciphertext stealing never occurs.
//!
//! Fast is what keeps the cipher's pipeline full: the tweaks of [`BATCH`] blocks are made together, then the blocks are
//! XORed, encrypted and XORed again. All of it runs inside the cipher's backend (`encrypt_with_backend`), because only
//! there the compiler may use the wide instructions that the CPU was found to have.

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend, BlockCipherEncClosure,
    BlockCipherEncrypt, BlockSizeUser, KeyInit,
};
use aes::{Aes256, Aes256Enc, Block};

/// Bytes of an AES block.
const BLOCK: usize = 16;
/// AES blocks whose tweaks are made together: as many as the widest backend (VAES with AVX-512) takes at once. With 32
/// that one would go block by block, at less than half the speed.
const BATCH: usize = 64;
/// Data units whose first tweaks are encrypted together.
const GROUP: usize = 32;

/// An element of GF(2^128): the coefficients of x^0..x^63 and of x^64..x^127.
type Tweak = [u64; 2];

/// The two ciphers of XTS, with round keys that are wiped when dropped.
pub(crate) struct Xts {
    data: Aes256,
    tweak: Aes256Enc,
}

impl Xts {
    /// Expands K1 and K2, the two halves of `key`.
    pub(crate) fn new(key: &[u8; 64]) -> Self {
        let (data, tweak) = key.split_at(32);
        let sized = "half of 64 bytes";
        Self { data: Aes256::new_from_slice(data).expect(sized), tweak: Aes256Enc::new_from_slice(tweak).expect(sized) }
    }

    /// Encrypts the data units `first..` of `UNIT` bytes: from `from`, which is as long, or in place.
    pub(crate) fn encrypt<const UNIT: usize>(&self, first: u64, from: Option<&[u8]>, to: &mut [u8]) {
        self.in_groups::<UNIT>(first, from, to, |units| self.data.encrypt_with_backend(units));
    }

    /// Decrypts like [`encrypt`](Self::encrypt) encrypts.
    pub(crate) fn decrypt<const UNIT: usize>(&self, first: u64, from: Option<&[u8]>, to: &mut [u8]) {
        self.in_groups::<UNIT>(first, from, to, |units| self.data.decrypt_with_backend(units));
    }

    /// Like [`encrypt`](Self::encrypt) with another implementation of the cipher.
    #[cfg(test)]
    pub(crate) fn encrypt_with<const UNIT: usize>(
        &self,
        data: &impl BlockCipherEncBackend<BlockSize = U16>,
        first: u64,
        to: &mut [u8],
    ) {
        self.in_groups::<UNIT>(first, None, to, |units| BlockCipherEncClosure::call(units, data));
    }

    /// Like [`decrypt`](Self::decrypt) with another implementation of the cipher.
    #[cfg(test)]
    pub(crate) fn decrypt_with<const UNIT: usize>(
        &self,
        data: &impl BlockCipherDecBackend<BlockSize = U16>,
        first: u64,
        to: &mut [u8],
    ) {
        self.in_groups::<UNIT>(first, None, to, |units| BlockCipherDecClosure::call(units, data));
    }

    fn in_groups<const UNIT: usize>(
        &self,
        first: u64,
        from: Option<&[u8]>,
        to: &mut [u8],
        apply: impl Fn(Units<'_, UNIT>),
    ) {
        let mut number = first;
        for (i, to) in to.chunks_mut(GROUP * UNIT).enumerate() {
            let from = from.map(|from| &from[i * GROUP * UNIT..][..to.len()]);
            let mut tweaks = [Block::default(); GROUP];
            let tweaks = &mut tweaks[..to.len() / UNIT];
            for tweak in &mut *tweaks {
                tweak[..8].copy_from_slice(&number.to_le_bytes());
                number = number.wrapping_add(1);
            }
            self.tweak.encrypt_blocks(tweaks);
            apply(Units { tweaks, from, to });
        }
    }
}

/// Data units with their first tweaks: the work that is brought to the cipher's backend.
struct Units<'a, const UNIT: usize> {
    tweaks: &'a [Block],
    from: Option<&'a [u8]>,
    to: &'a mut [u8],
}

impl<const UNIT: usize> Units<'_, UNIT> {
    #[inline(always)]
    fn run(self, cipher: &impl InPlace) {
        const { assert!(UNIT % BLOCK == 0 && (UNIT / BLOCK % BATCH == 0 || UNIT / BLOCK < BATCH)) }
        let mut tweaks = [[0; 2]; BATCH];
        for (u, (first, to)) in self.tweaks.iter().zip(self.to.chunks_exact_mut(UNIT)).enumerate() {
            start(&mut tweaks, first);
            for (b, to) in to.chunks_mut(BATCH * BLOCK).enumerate() {
                if b > 0 {
                    advance(&mut tweaks);
                }
                match self.from {
                    Some(from) => xor_to(to, &from[u * UNIT + b * BATCH * BLOCK..], &tweaks),
                    None => xor(to, &tweaks),
                }
                cipher.apply(Array::cast_slice_from_core_mut(to.as_chunks_mut().0));
                xor(to, &tweaks);
            }
        }
    }
}

/// AES in one direction over blocks that do not depend on each other.
trait InPlace {
    fn apply(&self, blocks: &mut [Block]);
}

struct Encrypt<'a, B>(&'a B);
struct Decrypt<'a, B>(&'a B);

impl<B: BlockCipherEncBackend<BlockSize = U16>> InPlace for Encrypt<'_, B> {
    #[inline(always)]
    fn apply(&self, blocks: &mut [Block]) {
        let (batches, rest) = Array::slice_as_chunks_mut(blocks);
        for batch in batches {
            self.0.encrypt_par_blocks_inplace(batch);
        }
        self.0.encrypt_tail_blocks_inplace(rest);
    }
}

impl<B: BlockCipherDecBackend<BlockSize = U16>> InPlace for Decrypt<'_, B> {
    #[inline(always)]
    fn apply(&self, blocks: &mut [Block]) {
        let (batches, rest) = Array::slice_as_chunks_mut(blocks);
        for batch in batches {
            self.0.decrypt_par_blocks_inplace(batch);
        }
        self.0.decrypt_tail_blocks_inplace(rest);
    }
}

impl<const UNIT: usize> BlockSizeUser for Units<'_, UNIT> {
    type BlockSize = U16;
}

impl<const UNIT: usize> BlockCipherEncClosure for Units<'_, UNIT> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.run(&Encrypt(backend));
    }
}

impl<const UNIT: usize> BlockCipherDecClosure for Units<'_, UNIT> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.run(&Decrypt(backend));
    }
}

/// `tweak * x^N`, for N up to 64.
#[inline(always)]
fn times_x_to<const N: u32>([low, high]: Tweak) -> Tweak {
    let (over, low, high) =
        if N == 64 { (high, 0, low) } else { (high >> (64 - N), low << N, high << N | low >> (64 - N)) };
    // x^128 = x^7 + x^2 + x + 1, and that times up to 64 bits is up to 71 bits.
    [low ^ over ^ over << 1 ^ over << 2 ^ over << 7, high ^ over >> 63 ^ over >> 62 ^ over >> 57]
}

/// The tweaks of the first blocks of a unit. Each step doubles their number, so that few depend on each other: one by
/// one they would take longer than the encryption.
#[inline(always)]
fn start(tweaks: &mut [Tweak; BATCH], first: &Block) {
    #[inline(always)]
    fn double<const N: u32>(tweaks: &mut [Tweak; BATCH]) {
        let (done, rest) = tweaks.split_at_mut(N as usize);
        for (to, from) in rest.iter_mut().zip(done) {
            *to = times_x_to::<N>(*from);
        }
    }
    let first = u128::from_le_bytes(first.0);
    tweaks[0] = [first as u64, (first >> 64) as u64];
    double::<1>(tweaks);
    double::<2>(tweaks);
    double::<4>(tweaks);
    double::<8>(tweaks);
    double::<16>(tweaks);
    double::<32>(tweaks);
}

/// From the tweaks of one batch to those of the next.
#[inline(always)]
fn advance(tweaks: &mut [Tweak; BATCH]) {
    for tweak in tweaks {
        *tweak = times_x_to::<{ BATCH as u32 }>(*tweak);
    }
}

#[inline(always)]
fn xor(data: &mut [u8], tweaks: &[Tweak; BATCH]) {
    for (data, tweak) in data.as_chunks_mut().0.iter_mut().zip(tweaks.as_flattened()) {
        *data = (u64::from_ne_bytes(*data) ^ tweak.to_le()).to_ne_bytes();
    }
}

#[inline(always)]
fn xor_to(to: &mut [u8], from: &[u8], tweaks: &[Tweak; BATCH]) {
    for ((to, from), tweak) in to.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0).zip(tweaks.as_flattened()) {
        *to = (u64::from_ne_bytes(*from) ^ tweak.to_le()).to_ne_bytes();
    }
}

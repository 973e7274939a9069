//! Encryption of volumes: a pure computation, without I/O, threads, a clock or randomness of its own.
//!
//! A family of volumes has one secret, the [`FamilyKey`]. Each volume has a [`VolumeKey`] derived from it, with which its
//! blocks of [`BLOCK_SIZE`] bytes are encrypted by AES-256-XTS. A member thus holds the same bytes that Linux dm-crypt
//! would write with the cipher `aes-xts-plain64`, the options `sector_size:4096` and `iv_large_sectors`, and the key
//! that [`FamilyKey::derived_bytes`] gives, so volumes stay readable without this program.
//!
//! What XTS gives and what not (NIST SP 800-38E, IEEE Std 1619-2018): equal blocks at different places or in different
//! volumes look different, and nothing is learned from one state of a medium. Who sees several states learns which
//! 16-byte pieces changed and which changed back. Nothing is authenticated: a changed ciphertext decrypts to noise in
//! 16 bytes, an old one to the old content.
//!
//! Keys live on the heap and are wiped when they are dropped; what the derivation leaves on the stack is wiped as far as
//! safe code can. Registers and what the allocator or the kernel (swap, core dumps) copy are beyond this crate.

mod hkdf;
mod key;
#[cfg(test)]
mod tests;
mod xts;

pub use key::{FamilyKey, VolumeKey, BLOCK_SIZE};

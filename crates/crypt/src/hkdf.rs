//! HKDF with SHA-256 (RFC 5869).
//!
//! Over the crate `hmac` rather than from the crate `hkdf`, which leaves the pseudorandom key and the derived bytes
//! behind in memory: here both are wiped.

use hmac::digest::CtOutput;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a SHA-256 value.
const HASH: usize = 32;

/// A value of HMAC. It is wiped when it is dropped.
type Value = CtOutput<Hmac<Sha256>>;

/// Fills `to` with key material derived from `secret`, without a salt, for the purpose that the parts of `info` name
/// together.
// Apart from its caller, so that the stack it used is free when the caller wipes it.
#[inline(never)]
pub(crate) fn derive(secret: &[u8], info: &[&[u8]], to: &mut [u8]) {
    // No salt means zeros (section 2.2), with which HMAC pads its key anyway.
    expand(&extract(&[], secret), info, to);
}

/// Section 2.2.
pub(crate) fn extract(salt: &[u8], secret: &[u8]) -> Value {
    hmac(salt).chain_update(secret).finalize()
}

/// Section 2.3.
pub(crate) fn expand(key: &Value, info: &[&[u8]], to: &mut [u8]) {
    let key = hmac(key.as_bytes());
    let mut previous: Option<Value> = None;
    for (i, to) in to.chunks_mut(HASH).enumerate() {
        let mut block = key.clone();
        if let Some(previous) = &previous {
            block.update(previous.as_bytes());
        }
        for part in info {
            block.update(part);
        }
        block.update(&[u8::try_from(i + 1).expect("HKDF gives at most 255 hash values")]);
        let value = block.finalize();
        to.copy_from_slice(&value.as_bytes()[..to.len()]);
        previous = Some(value);
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of every length")
}

//! Recovery keys: passphrases that nobody chose, to be written on paper.
//!
//! The form is that of `systemd-cryptenroll --recovery-key`: 256 random bits as 64 letters in eight groups, of letters
//! that lie at the same place on most keyboards ("modhex").

use zeroize::{Zeroize, Zeroizing};

const LETTERS: &[u8; 16] = b"cbdefghijklnrtuv";
const BYTES: usize = 32;
const GROUP: usize = 8;

/// A new recovery key. Its text, with the dashes and in small letters, is the passphrase.
pub fn recovery_key() -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0u8; BYTES]);
    fill(&mut bytes[..]);
    let letters = bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|n| LETTERS[usize::from(n)]);
    grouped(letters)
}

/// What someone typed, if it is a recovery key, as it was given out: dashes and spaces may be missing or elsewhere,
/// and letters large.
pub fn normalize(typed: &str) -> Option<Zeroizing<String>> {
    let letters = || typed.bytes().filter(|b| *b != b'-' && !b.is_ascii_whitespace()).map(|b| b.to_ascii_lowercase());
    let right = letters().count() == 2 * BYTES && letters().all(|b| LETTERS.contains(&b));
    right.then(|| grouped(letters()))
}

fn grouped(letters: impl Iterator<Item = u8>) -> Zeroizing<String> {
    // With all of its room from the start, so that growing leaves no pieces behind.
    let mut text = Zeroizing::new(String::with_capacity(2 * BYTES + 2 * BYTES / GROUP));
    for (i, letter) in letters.enumerate() {
        if i > 0 && i % GROUP == 0 {
            text.push('-');
        }
        text.push(char::from(letter));
    }
    text
}

/// Fills with random numbers from the kernel.
pub(super) fn fill(mut bytes: &mut [u8]) {
    bytes.zeroize();
    while !bytes.is_empty() {
        // SAFETY: the pointer and length describe `bytes`.
        let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => bytes = &mut bytes[n..],
            // Interrupted by a signal. With these arguments there is no other error on Linux >= 3.17.
            Err(_) => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_key_can_be_typed() {
        let key = recovery_key();
        assert_eq!(key.len(), 71);
        assert_eq!(key.split('-').map(str::len).collect::<Vec<_>>(), [8; 8]);
        assert_ne!(*key, *recovery_key());
        assert_eq!(normalize(&key).as_ref(), Some(&key));
        let typed = format!(" {}\n", key.to_uppercase().replace('-', " "));
        assert_eq!(normalize(&typed).as_ref(), Some(&key));
        assert_eq!(normalize(&key.replace('-', "")).as_ref(), Some(&key));
        for wrong in ["", "cbde", &key[1..], &key.replace(|_| true, "x"), "\u{e4}", "correct horse battery staple"] {
            assert!(normalize(wrong).is_none(), "{wrong}");
        }
    }
}

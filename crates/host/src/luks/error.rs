//! Why a header could not be made, read or unlocked, for a person.

use super::library::Failure;
use super::{KEY_BYTES, MAX_BYTES, MAX_LABEL, MAX_SLOTS};

/// Why a header could not be made, read or unlocked.
#[derive(Debug, thiserror::Error)]
pub enum LuksError {
    /// libcryptsetup is not on this machine.
    #[error(
        "passphrases need the library libcryptsetup, which cannot be loaded ({why}); install it: libcryptsetup12 on \
         Debian, Ubuntu and SUSE, cryptsetup-libs on Fedora, RHEL and Alpine, cryptsetup on Arch"
    )]
    Missing {
        /// What the system said.
        why: String,
    },
    /// libcryptsetup lacks something.
    #[error("libcryptsetup on this machine is too old, it has no {function}; update it to 2.4 or newer")]
    TooOld {
        /// The missing function.
        function: &'static str,
    },
    /// There is no file in memory to work on.
    #[error("no file in memory for the header, {step} failed: {why}; /proc must be mounted, memory must be free")]
    Workspace {
        /// What was tried.
        step: &'static str,
        /// What the system said.
        why: std::io::Error,
    },
    /// It is something else.
    #[error(
        "this is no LUKS2 header: neither of its two copies begins like one; take the right file or an older copy"
    )]
    NotLuks,
    /// It is LUKS1.
    #[error("this is a header of LUKS1, and only LUKS2 is used here; it belongs to something else than Bimetal")]
    Luks1,
    /// Neither copy of the metadata is good.
    #[error("the header is damaged beyond repair: {why}; take an exported copy of it")]
    Damaged {
        /// What was found.
        why: String,
    },
    /// It is too large.
    #[error("{bytes} bytes are too many for a header, which has at most {MAX_BYTES}; is this an image of a disk?")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It holds a key that is none of a family.
    #[error(
        "slot {slot} of the header holds a key of {bytes} bytes, and that of a family has {KEY_BYTES}; the header \
         belongs to something else than Bimetal"
    )]
    OtherKey {
        /// The slot.
        slot: u32,
        /// Its size.
        bytes: u64,
    },
    /// The passphrase fits no slot.
    #[error(
        "wrong passphrase: no slot of the header opens with it ({slots} tried); if you are sure of it, slots may be \
         damaged: then try an exported copy of the header"
    )]
    WrongPassphrase {
        /// Slots that it was tried on.
        slots: usize,
    },
    /// There is nothing to unlock.
    #[error(
        "the header has no slot that a passphrase could open, all were removed; take an exported copy from before"
    )]
    NoSlots,
    /// Not forced to remove the last slot.
    #[error(
        "slot {number} is the last one that opens this family by a passphrase or recovery key: without it all of its volumes \
         are lost for ever (Bimetal asks no security chip or token); add another passphrase first, or force it if that is \
         what you want"
    )]
    LastSlot {
        /// The slot.
        number: u32,
    },
    /// There is no such slot.
    #[error("the header has no slot {number}; list its slots to see which there are")]
    NoSuchSlot {
        /// What was asked for.
        number: u32,
    },
    /// No room for another.
    #[error("the header has no room for another passphrase, all {slots} slots are taken; remove one first")]
    Full {
        /// Slots taken.
        slots: usize,
    },
    /// Nothing is no passphrase.
    #[error("the passphrase is empty; say at least something")]
    EmptyPassphrase,
    /// A bad UUID.
    #[error("{uuid:?} is no UUID; it looks like 6d1f0c2e-5a3b-4c77-9e10-2b4d8f60a1c3")]
    Uuid {
        /// What was given.
        uuid: String,
    },
    /// A bad label.
    #[error("{label:?} cannot be the label of a header: it has at most {MAX_LABEL} bytes, none of them zero")]
    Label {
        /// What was given.
        label: String,
    },
    /// A bad number of slots.
    #[error("a header cannot have room for {asked} passphrases, but for 1 to {MAX_SLOTS}")]
    Slots {
        /// What was given.
        asked: u32,
    },
    /// Deriving the key takes more memory than there is.
    #[error(
        "not enough memory to try the passphrase{}; free some, or unlock on a machine with more",
        kib.map(|kib| format!(", which takes {} MiB", kib.div_ceil(1024))).unwrap_or_default()
    )]
    Memory {
        /// What the most demanding slot takes.
        kib: Option<u32>,
    },
    /// The library refused, and here is why.
    #[error("{step} failed: {why}")]
    Refused {
        /// What was tried.
        step: &'static str,
        /// What it said.
        why: String,
    },
}

impl Failure {
    /// As an error of this step.
    pub(super) fn at(self, step: &'static str) -> LuksError {
        LuksError::Refused { step, why: self.to_string() }
    }
}

/// Why bytes were not taken for a header.
pub(super) fn not_loaded(bytes: &[u8], failure: &Failure) -> LuksError {
    /// Where the second copy may begin.
    const SECOND: [usize; 9] =
        [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];
    let at = |offset: usize, magic: &[u8]| bytes.get(offset..).is_some_and(|b| b.starts_with(magic));
    if at(0, b"LUKS\xba\xbe\x00\x01") {
        return LuksError::Luks1;
    }
    if !at(0, b"LUKS\xba\xbe") && !SECOND.iter().any(|offset| at(*offset, b"SKUL\xba\xbe")) {
        return LuksError::NotLuks;
    }
    let said = if failure.words.is_empty() { String::new() } else { format!(" ({failure})") };
    LuksError::Damaged { why: format!("neither of its two copies is whole{said}") }
}

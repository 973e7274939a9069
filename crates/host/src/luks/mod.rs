//! LUKS2 headers kept in memory: how a passphrase becomes the key of a family of volumes.
//!
//! A family has a random key of 32 bytes. It is the volume key of a *detached* LUKS2 header, whose bytes Bimetal stores
//! itself: no device carries it. What LUKS2 gives is what should not be invented again: slow derivation from a
//! passphrase (Argon2id), several passphrases for one key, anti-forensic storage, and the tools that people know. An
//! exported header is an ordinary file for `cryptsetup luksDump`, `open --test-passphrase`, `luksAddKey`,
//! `luksChangeKey`, `luksKillSlot` and for `systemd-cryptenroll`.
//!
//! All work is done by libcryptsetup, which is loaded when it is first needed: a machine without it runs everything but
//! encrypted families. In reading order: [`Luks`] (what is asked), [`Header`], `opened` (how it is done), `image` (the
//! file in memory that the library works on), `library` (the only place with foreign code), `dump` (what a header says
//! about itself), [`recovery`].
//!
//! **What the header says of itself.** It carries the key of no device, and says so where LUKS2 has words for it:
//! the subsystem and a token are called `bimetal`, and its data begin at [`NOWHERE`], where no device reaches. So
//! whoever holds header and passphrase cannot map a device with it by mistake and write garbage. The cipher of the data
//! is therefore never used on data; it is named because tools take it for the key slots that they add. It is
//! [`CIPHER`]-[`MODE`], of which 32 bytes are the full key: with XTS the same 32 bytes would mean AES-128.
//!
//! Passphrases are bytes, and every byte counts: a newline at the end is for the caller to take off.
//!
//! All of this belongs into the process of the person who types, never into the daemon. It blocks for seconds.

mod dump;
mod error;
mod header;
mod image;
mod library;
mod opened;
pub mod recovery;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tools;

use std::ffi::CString;

pub use bimetal_crypt::FamilyKey;
pub use dump::{Priority, SlotInfo};
pub use error::LuksError;
pub use header::{Header, HeaderInfo, Unlocked};
use image::Image;
use library::Library;
use opened::{not_empty, Opened};
pub use recovery::recovery_key;

/// Bytes of a family key.
pub const KEY_BYTES: usize = 32;
/// Key slots that LUKS2 has at most.
pub const MAX_SLOTS: u32 = 32;
/// Bytes of the label of a header, at most.
pub const MAX_LABEL: usize = 47;
/// Bytes of a header that are not key slots: two copies of the metadata, 16 KiB each.
pub const METADATA_BYTES: u64 = 2 * METADATA_COPY;
/// Bytes of a key slot: 4000 stripes of 32 bytes, in whole blocks of 4 KiB.
pub const SLOT_BYTES: u64 = 128 << 10;
/// A header is no larger than this. Headers of Bimetal have little more than 4 MiB at most; cryptsetup's own have 16.
pub const MAX_BYTES: usize = 16 << 20;
/// The cipher that a header names.
pub const CIPHER: &str = "aes";
/// Its mode.
pub const MODE: &str = "cbc-essiv:sha256";
/// Where the data begin, as the header says: 4 EiB into a device.
pub const NOWHERE: u64 = 1 << 62;
/// How headers are marked, in the subsystem and in a token.
pub const MARK: &str = "bimetal";

const METADATA_COPY: u64 = 16 << 10;
/// Says to those who look closer what the header is for. A token of no slot is one that no tool tries or removes.
const MARK_TOKEN: &str = concat!(
    r#"{"type":"bimetal","keyslots":[],"#,
    r#""note":"The key of a family of Bimetal volumes. No device can be opened with this header alone."}"#
);
/// How `systemd-cryptenroll` marks the slot of a recovery key. Ours has the same form, so it is marked the same way.
const RECOVERY_TOKEN: &str = "systemd-recovery";

/// What deriving a key from a passphrase shall cost, now and each time that it is unlocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// What libcryptsetup takes on this machine: Argon2id, measured so that it takes two seconds, with up to 1 GiB of
    /// memory (but half of what there is). Where the system is in FIPS mode it is PBKDF2.
    #[default]
    Default,
    /// Next to nothing, for tests. It protects nothing.
    Light,
}

/// libcryptsetup, loaded.
#[derive(Clone, Copy)]
pub struct Luks {
    library: &'static Library,
}

impl Luks {
    /// Loads libcryptsetup.
    pub fn load() -> Result<Luks, LuksError> {
        Ok(Luks { library: Library::get()? })
    }

    /// Makes a header with room for `max_slots` passphrases, of which this is the first.
    pub fn format(
        &self,
        uuid: &str,
        label: &str,
        key: &[u8; KEY_BYTES],
        max_slots: u32,
        passphrase: &[u8],
        cost: Cost,
    ) -> Result<Header, LuksError> {
        not_empty(passphrase)?;
        if !is_uuid(uuid) {
            return Err(LuksError::Uuid { uuid: uuid.to_owned() });
        }
        if label.len() > MAX_LABEL {
            return Err(LuksError::Label { label: label.to_owned() });
        }
        if !(1..=MAX_SLOTS).contains(&max_slots) {
            return Err(LuksError::Slots { asked: max_slots });
        }
        let bytes = Header::size_for(max_slots);
        let text = |s: &str| CString::new(s).map_err(|_| LuksError::Label { label: s.to_owned() });
        let (uuid, label, mark) = (text(uuid)?, text(label)?, text(MARK_TOKEN)?);
        let image = Image::empty(bytes)?;
        let context = self.library.open(&image)?;
        let key_slots = bytes - METADATA_BYTES;
        context.format(&image, &uuid, &label, key, key_slots, cost).map_err(|f| f.at("making a header"))?;
        context.add_by_key(key, passphrase).map_err(|f| f.at("adding the first passphrase"))?;
        context.set_token(None, Some(&mark)).map_err(|f| f.at("marking the header"))?;
        drop(context);
        Opened::open(self.library, &image.read(bytes)?)?.header()
    }

    /// Looks at bytes that may be a header, also one followed by other things, and makes it whole.
    pub fn check(&self, bytes: &[u8]) -> Result<HeaderInfo, LuksError> {
        let opened = Opened::open(self.library, bytes)?;
        let header = opened.header()?;
        let Opened { dump, repaired, .. } = opened;
        let (label, uuid) = (header.text(24..72), header.text(168..208).to_ascii_lowercase());
        let max_slots = u32::try_from(dump.key_slots_bytes / SLOT_BYTES).unwrap_or(MAX_SLOTS).min(MAX_SLOTS);
        let ours = dump.tokens.iter().any(|t| t.kind == MARK);
        Ok(HeaderInfo { header, repaired, uuid, label, ours, max_slots, slots: dump.slots })
    }

    /// The slots of a header.
    pub fn slots(&self, header: &Header) -> Result<Vec<SlotInfo>, LuksError> {
        Ok(Opened::open(self.library, &header.0)?.dump.slots)
    }

    /// The family key. A wrong passphrase takes as long as all slots together.
    pub fn unlock(&self, header: &Header, passphrase: &[u8]) -> Result<Unlocked, LuksError> {
        let opened = Opened::open(self.library, &header.0)?;
        let (key, slot) = opened.unlock(passphrase)?;
        let repaired = if opened.repaired { Some(opened.header()?) } else { None };
        Ok(Unlocked { key, slot, repaired })
    }

    /// The header with one more passphrase.
    pub fn add_passphrase(
        &self,
        header: &Header,
        existing: &[u8],
        new: &[u8],
        cost: Cost,
    ) -> Result<Header, LuksError> {
        let opened = Opened::open(self.library, &header.0)?;
        opened.add(existing, new, cost)?;
        opened.header()
    }

    /// The header with a recovery key ([`recovery_key`]), marked as `systemd-cryptenroll` does. It is a passphrase like
    /// any other.
    pub fn add_recovery_key(
        &self,
        header: &Header,
        existing: &[u8],
        recovery_key: &str,
        cost: Cost,
    ) -> Result<Header, LuksError> {
        let opened = Opened::open(self.library, &header.0)?;
        let slot = opened.add(existing, recovery_key.as_bytes(), cost)?;
        let token = format!(r#"{{"type":"{RECOVERY_TOKEN}","keyslots":["{slot}"]}}"#);
        let token = CString::new(token).expect("has no zero bytes");
        opened.context.set_token(None, Some(&token)).map_err(|f| f.at("marking the recovery key"))?;
        opened.header()
    }

    /// The header with another passphrase in place of one. The slot keeps its number, and loses its token: what that
    /// was for (a recovery key, a security chip) is gone.
    pub fn change_passphrase(
        &self,
        header: &Header,
        existing: &[u8],
        new: &[u8],
        cost: Cost,
    ) -> Result<Header, LuksError> {
        not_empty(new)?;
        let opened = Opened::open(self.library, &header.0)?;
        opened.set_cost(cost)?;
        let changed = opened.context.change(existing, new);
        let slot = changed.map_err(|f| opened.failed(f, "changing a passphrase"))?;
        if !opened.dump.slots.iter().any(|s| s.number == slot && s.opens) {
            return Err(opened.wrong_passphrase());
        }
        opened.drop_tokens(slot)?;
        opened.header()
    }

    /// The header without a slot. The last one is only removed by `force`: after that, nothing opens this header.
    pub fn remove_slot(&self, header: &Header, number: u32, force: bool) -> Result<Header, LuksError> {
        let opened = Opened::open(self.library, &header.0)?;
        opened.remove(number, force)?;
        opened.header()
    }

    /// The header without the slot that this passphrase fits. As for the last one, see [`Luks::remove_slot`].
    pub fn remove_passphrase(&self, header: &Header, passphrase: &[u8], force: bool) -> Result<Header, LuksError> {
        let opened = Opened::open(self.library, &header.0)?;
        let (_key, slot) = opened.unlock(passphrase)?;
        opened.remove(slot, force)?;
        opened.header()
    }
}

/// A key for a new family, from the kernel's random numbers.
pub fn random_key() -> FamilyKey {
    FamilyKey::fill(|key| recovery::fill(key))
}

/// A new UUID (version 4), from the same.
pub fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    recovery::fill(&mut uuid);
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn is_uuid(text: &str) -> bool {
    let dash = |i| matches!(i, 8 | 13 | 18 | 23);
    text.len() == 36 && text.bytes().enumerate().all(|(i, b)| if dash(i) { b == b'-' } else { b.is_ascii_hexdigit() })
}

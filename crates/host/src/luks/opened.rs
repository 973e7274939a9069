//! A header under work: loaded, looked at, changed, and read back.

use super::dump::Dump;
use super::image::Image;
use super::library::{Context, Failure, Library};
use super::{error, Cost, FamilyKey, Header, LuksError, KEY_BYTES, MAX_BYTES};

/// A header under work.
pub(super) struct Opened {
    /// Before the image, so that it ends before its file does.
    pub(super) context: Context,
    image: Image,
    pub(super) dump: Dump,
    bytes: u64,
    pub(super) repaired: bool,
}

impl Opened {
    /// Takes bytes for a header, and makes it whole.
    pub(super) fn open(library: &'static Library, bytes: &[u8]) -> Result<Opened, LuksError> {
        if bytes.len() > MAX_BYTES {
            return Err(LuksError::TooLarge { bytes: bytes.len() });
        }
        let image = Image::holding(bytes)?;
        // Makes a bad copy from the good one, whatever else seems to lie there. Then it fails, for want of a device
        // that reaches to where our data begin: so its verdict says nothing, and that of loading counts.
        let _ = library.open(&image)?.repair();
        let context = library.open(&image)?;
        context.load().map_err(|failure| error::not_loaded(bytes, &failure))?;
        let dump = dump_of(&context)?;
        // Also for safety: the library copies as many bytes as the slot says, and trusts that all slots say the same.
        if let Some(other) = dump.slots.iter().find(|s| s.opens && s.key_bytes != KEY_BYTES as u64) {
            return Err(LuksError::OtherKey { slot: other.number, bytes: other.key_bytes });
        }
        let bytes_used = dump.header_bytes().filter(|n| *n <= bytes.len() as u64);
        let bytes_used = bytes_used.ok_or(LuksError::Damaged { why: "its end is missing".to_owned() })?;
        let repaired = image.read(bytes_used)? != bytes[..bytes_used as usize];
        Ok(Opened { context, image, dump, bytes: bytes_used, repaired })
    }

    /// As it is now. Where there is no slot, or none any more, the library leaves random bytes, which nobody needs:
    /// zeros there are not stored, and members have little room for headers.
    pub(super) fn header(&self) -> Result<Header, LuksError> {
        const BLOCK: usize = 4096;
        let mut bytes = self.image.read(self.bytes)?;
        let dump = dump_of(&self.context)?;
        let unused = bytes.chunks_mut(BLOCK).enumerate().filter(|(n, _)| dump.is_unused((n * BLOCK) as u64));
        unused.for_each(|(_, block)| block.fill(0));
        Ok(Header(bytes))
    }

    /// The key, and the slot that the passphrase fits.
    pub(super) fn unlock(&self, passphrase: &[u8]) -> Result<(FamilyKey, u32), LuksError> {
        let mut slot = 0;
        let key = FamilyKey::try_fill(|key| {
            slot = self.context.key(key, passphrase)?;
            Ok(())
        });
        Ok((key.map_err(|f| self.failed(f, "unlocking"))?, slot))
    }

    pub(super) fn set_cost(&self, cost: Cost) -> Result<(), LuksError> {
        self.context.set_cost(cost).map_err(|f| f.at("setting the cost of a passphrase"))
    }

    pub(super) fn add(&self, existing: &[u8], new: &[u8], cost: Cost) -> Result<u32, LuksError> {
        not_empty(new)?;
        self.set_cost(cost)?;
        // Not by the library's way for two passphrases: that would also take a slot that holds some other key.
        let (key, _) = self.unlock(existing)?;
        let added = self.context.add_by_key(key.as_bytes(), new);
        added.map_err(|f| match self.dump.is_full() {
            true => LuksError::Full { slots: self.dump.slots.len() },
            false => self.failed(f, "adding a passphrase"),
        })
    }

    pub(super) fn remove(&self, number: u32, force: bool) -> Result<(), LuksError> {
        let slot = self.dump.slots.iter().find(|s| s.number == number).ok_or(LuksError::NoSuchSlot { number })?;
        let others = self.dump.slots.iter().filter(|s| s.number != number && s.is_known_to_people()).count();
        if slot.opens && others == 0 && !force {
            return Err(LuksError::LastSlot { number });
        }
        self.context.destroy(number).map_err(|f| f.at("removing a slot"))?;
        self.drop_tokens(number)
    }

    /// Removes the tokens of this slot alone.
    pub(super) fn drop_tokens(&self, slot: u32) -> Result<(), LuksError> {
        for token in self.dump.tokens.iter().filter(|t| t.slots == [slot]) {
            self.context.set_token(Some(token.number), None).map_err(|f| f.at("removing the token of a slot"))?;
        }
        Ok(())
    }

    pub(super) fn wrong_passphrase(&self) -> LuksError {
        LuksError::WrongPassphrase { slots: self.dump.tried() }
    }

    /// What it means that a step with a passphrase failed.
    pub(super) fn failed(&self, failure: Failure, step: &'static str) -> LuksError {
        match failure.errno {
            // The library says ENOENT also if it knows no way at all to open a slot.
            libc::EPERM | libc::ENOENT if self.dump.tried() > 0 => self.wrong_passphrase(),
            libc::EPERM | libc::ENOENT => LuksError::NoSlots,
            libc::ENOMEM => LuksError::Memory { kib: self.dump.slots.iter().filter_map(|s| s.memory_kib).max() },
            _ => failure.at(step),
        }
    }
}

fn dump_of(context: &Context) -> Result<Dump, LuksError> {
    let json = context.json().map_err(|f| f.at("reading the header"))?;
    Dump::parse(&json).map_err(|e| LuksError::Damaged { why: format!("its metadata: {e}") })
}

/// There must be something to type.
pub(super) fn not_empty(passphrase: &[u8]) -> Result<(), LuksError> {
    if passphrase.is_empty() {
        return Err(LuksError::EmptyPassphrase);
    }
    Ok(())
}

//! Where blocks become ciphertext and plaintext again: on their way from and to a client, never on a member.

use std::rc::Rc;

use bimetal_crypt::VolumeKey;
use smallvec::SmallVec;

use crate::backend::{Piece, Pieces};
use crate::buf::{Buf, BufMut};
use crate::error::Error;
use crate::group::volume::VolumeInfo;
use crate::mutant::{self, Mutant};
use crate::units::BLOCK;

/// Whether each piece of an answer holds ciphertext.
pub(crate) type Encrypted = SmallVec<[bool; 4]>;

/// The key of a volume of which something is to be read or written.
pub(crate) fn key_of(v: &VolumeInfo) -> Result<Rc<VolumeKey>, Error> {
    v.cipher.key().ok_or(Error::Locked)
}

/// Decrypts what was read: whole blocks from byte `start` of the volume on.
pub(crate) fn decrypt(v: &VolumeInfo, start: u64, pieces: Pieces, encrypted: &Encrypted) -> Result<Pieces, Error> {
    if !encrypted.contains(&true) {
        return Ok(pieces);
    }
    let key = key_of(v)?;
    let mut block = start / BLOCK;
    let mut out = Pieces::new();
    for (piece, encrypted) in pieces.into_iter().zip(encrypted) {
        let blocks = piece.len() / BLOCK;
        out.push(match piece {
            Piece::Data(data) if *encrypted => Piece::Data(decrypted(&key, block, data)),
            other => other,
        });
        block += blocks;
    }
    Ok(out)
}

/// In place, unless somebody else holds the ciphertext (a lift does).
fn decrypted(key: &VolumeKey, block: u64, data: Buf) -> Buf {
    let mut own = data.try_unfreeze().unwrap_or_else(|shared| BufMut::copy_of(&shared));
    key.decrypt(block, &mut own);
    own.freeze()
}

/// Decrypts one block.
pub(crate) fn decrypt_block(v: &VolumeInfo, at: u64, data: &mut [u8]) -> Result<(), Error> {
    key_of(v)?.decrypt(at / BLOCK, data);
    Ok(())
}

/// The whole blocks that a request writes, in one piece of memory, so that neighbours on a member go in one request.
pub(crate) struct Writing {
    key: Rc<VolumeKey>,
    out: BufMut,
    filled: usize,
}

impl Writing {
    /// Begins with room for `len` bytes.
    pub(crate) fn new(v: &VolumeInfo, len: u64) -> Result<Writing, Error> {
        Ok(Writing { key: key_of(v)?, out: BufMut::new(len as usize), filled: 0 })
    }

    /// Adds blocks that begin at byte `at` of the volume.
    pub(crate) fn add(&mut self, at: u64, content: &[u8], encrypted: bool) {
        let room = &mut self.out[self.filled..][..content.len()];
        let at = if mutant::on(Mutant::TweakOfChunk) { at % crate::units::CHUNK } else { at };
        match encrypted && !mutant::on(Mutant::PlaintextWritten) {
            true => self.key.encrypt_to(at / BLOCK, content, room),
            false => room.copy_from_slice(content),
        }
        self.filled += content.len();
    }

    /// What was added, to be sliced in the order in which it was.
    pub(crate) fn finish(self) -> Buf {
        self.out.freeze()
    }
}

//! Content of a piece: what was read of the volume, against what the device holds.

use crate::backend::{Piece, Pieces};
use crate::buf::BufMut;

/// Whether a device holds what was read of a volume.
pub(super) fn is_equal(content: &Pieces, there: &[u8]) -> bool {
    let mut rest = there;
    content.iter().all(|piece| {
        let (mine, others) = rest.split_at(piece.len() as usize);
        rest = others;
        match piece {
            Piece::Data(data) => data[..] == *mine,
            Piece::Zero(_) => is_zero(mine),
        }
    })
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // Compared with itself, moved by one: as fast as memory is.
    bytes.split_first().is_none_or(|(first, rest)| *first == 0 && *rest == bytes[..rest.len()])
}

/// The content in one buffer.
pub(super) fn whole(content: &Pieces, len: u64) -> BufMut {
    let mut buf = BufMut::new(len as usize);
    let mut at = 0;
    for piece in content {
        let to = &mut buf[at..at + piece.len() as usize];
        match piece {
            Piece::Data(data) => to.copy_from_slice(data),
            Piece::Zero(_) => to.fill(0),
        }
        at += to.len();
    }
    buf
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(data: &[u8], zeros: u64) -> Pieces {
        let mut buf = BufMut::new(data.len());
        buf.copy_from_slice(data);
        [Piece::Zero(zeros), Piece::Data(buf.freeze()), Piece::Zero(zeros)].into_iter().collect()
    }

    #[test]
    fn any_byte_that_differs_is_seen() {
        let content = pieces(&[7; 100], 50);
        let whole = whole(&content, 200);
        assert!(whole[..50] == [0; 50] && whole[50..150] == [7; 100] && whole[150..] == [0; 50]);
        assert!(is_equal(&content, &whole));
        for at in 0..200 {
            let mut other = whole.to_vec();
            other[at] ^= 1;
            assert!(!is_equal(&content, &other), "byte {at}");
        }
    }

    #[test]
    fn zeros_are_only_zeros() {
        assert!(is_zero(&[]) && is_zero(&[0]) && is_zero(&[0; 4096]));
        for at in [0, 1, 2047, 4095] {
            let mut bytes = [0; 4096];
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "byte {at}");
        }
        assert!(!is_zero(&[5; 64]));
    }
}

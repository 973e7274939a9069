//! An answer: a small head, then data without a copy. Boxes of it are used again, so that a steady load allocates none.

use bimetal_volume::backend::{Piece, Pieces};

use crate::net::message::{push, push_zeros};

/// Room for the largest head: that of an answer with the attributes of a name.
const HEAD: usize = 160;

/// What is sent to the kernel in one write.
pub struct Answer {
    /// The first bytes.
    pub head: Vec<u8>,
    /// What follows them.
    pub data: Pieces,
    list: Vec<libc::iovec>,
}

impl Default for Answer {
    fn default() -> Answer {
        Answer { head: Vec::with_capacity(HEAD), data: Pieces::new(), list: Vec::with_capacity(4) }
    }
}

impl Answer {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.head.clear();
        self.data.clear();
        self.list.clear();
    }

    /// All bytes in a row, for tests.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        for piece in &self.data {
            match piece {
                Piece::Data(buf) => bytes.extend_from_slice(buf),
                Piece::Zero(n) => bytes.resize(bytes.len() + *n as usize, 0),
            }
        }
        bytes
    }

    /// Where its parts lie; valid while the answer is neither changed nor dropped.
    pub(super) fn list(&mut self) -> &[libc::iovec] {
        self.list.clear();
        push(&mut self.list, &self.head);
        for piece in &self.data {
            match piece {
                Piece::Data(buf) => push(&mut self.list, buf),
                Piece::Zero(n) => push_zeros(&mut self.list, *n as usize),
            }
        }
        &self.list
    }
}

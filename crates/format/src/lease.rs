//! Who holds a member that no kernel can lock, one behind a server: a block that the holder writes and looks at again and again.
//! Whoever wants the member writes there too, and waits whether the holder takes it back.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::block::crc32c;
use crate::document::{fields, Field};
use crate::BLOCK;

/// The first bytes of the block.
pub const MAGIC: [u8; 16] = *b"BIMETAL LEASE 1\n";

/// A holder; or the mark of those who only read the member, which names nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// UUID of the group; zeros of one who asks.
    pub group: [u8; 16],
    /// Random: tells this opening of the member from all others.
    pub nonce: u64,
    /// The boot of the machine on which the holder runs.
    pub boot: [u8; 16],
    /// The namespace of process numbers in which it does.
    pub namespace: u64,
    /// Its process number; 0 of one who only reads.
    pub process: u32,
    /// When that process began, in the kernel's ticks since the boot.
    pub began: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawLease {
    magic: [u8; 16],
    crc: U32,
    process: U32,
    group: [u8; 16],
    nonce: U64,
    boot: [u8; 16],
    namespace: U64,
    began: U64,
}

fn sealed(mut raw: RawLease) -> RawLease {
    raw.crc = U32::ZERO;
    raw.crc = U32::new(crc32c(raw.as_bytes()));
    raw
}

impl Lease {
    /// What who only reads leaves: as long as it is there nobody has come to write.
    pub fn mark(group: [u8; 16], nonce: u64) -> Lease {
        Lease { group, nonce, boot: [0; 16], namespace: 0, process: 0, began: 0 }
    }

    /// The same while whoever writes it still asks whether the member can be had: who finds that knows nothing of those before.
    pub fn asking(self) -> Lease {
        Lease { group: [0; 16], ..self }
    }

    /// Whether whoever wrote this still asked.
    pub fn asks(&self) -> bool {
        self.group == [0; 16]
    }

    /// Whether it was written by somebody who only reads, and so names nobody.
    pub fn reads(&self) -> bool {
        self.process == 0
    }

    /// Whether this is a mark, so that nobody has to be waited for.
    pub fn is_mark(&self) -> bool {
        self.reads() && !self.asks()
    }

    /// Writes it into `block`, all of which it takes.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK);
        let raw = sealed(RawLease {
            magic: MAGIC,
            crc: U32::ZERO,
            process: U32::new(self.process),
            group: self.group,
            nonce: U64::new(self.nonce),
            boot: self.boot,
            namespace: U64::new(self.namespace),
            began: U64::new(self.began),
        });
        block.fill(0);
        block[..size_of::<RawLease>()].copy_from_slice(raw.as_bytes());
    }

    /// The holder that a block names. `None` if it names none, for what is damaged says nothing.
    pub fn decode(block: &[u8]) -> Option<Lease> {
        let (raw, _) = RawLease::read_from_prefix(block).ok()?;
        let (magic, crc) = (raw.magic, raw.crc);
        let raw = sealed(raw);
        (magic == MAGIC && crc == raw.crc).then(|| Lease {
            group: raw.group,
            nonce: raw.nonce.get(),
            boot: raw.boot,
            namespace: raw.namespace.get(),
            process: raw.process.get(),
            began: raw.began.get(),
        })
    }
}

pub(crate) fn fields() -> Vec<Field> {
    fields!(RawLease { magic, crc, process, group, nonce, boot, namespace, began })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_and_who_reads_is_told_apart() {
        let holder = Lease { group: [3; 16], nonce: 5, boot: [7; 16], namespace: 1, process: 11, began: 13 };
        let mark = Lease::mark([3; 16], 5);
        let told = |lease: Lease| (lease.asks(), lease.reads(), lease.is_mark());
        assert_eq!([holder, holder.asking()].map(told), [(false, false, false), (true, false, false)]);
        assert_eq!([mark, mark.asking()].map(told), [(false, true, true), (true, true, false)]);
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_not() {
        let lease = Lease { group: [3; 16], nonce: 5, boot: [7; 16], namespace: 1 << 40, process: 11, began: 13 };
        let mut block = vec![0xa5; BLOCK];
        assert_eq!(Lease::decode(&block), None);
        assert_eq!(Lease::decode(&[]), None);
        lease.encode(&mut block);
        assert_eq!(Lease::decode(&block), Some(lease));
        for at in 0..size_of::<RawLease>() {
            block[at] ^= 1;
            assert_eq!(Lease::decode(&block), None, "byte {at}");
            block[at] ^= 1;
        }
        assert_eq!(Lease::decode(&block), Some(lease));
    }
}

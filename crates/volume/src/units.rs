//! The units of DESIGN: blocks, chunks, slots, and the small types that name them.

/// Unit of validity and TRIM, in bytes.
pub const BLOCK: u64 = 4096;
/// Unit of placement, in bytes; a slot has the same size.
pub const CHUNK: u64 = 128 << 10;
/// Blocks in a chunk.
pub const BLOCKS_PER_CHUNK: u32 = (CHUNK / BLOCK) as u32;

/// The two kinds of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// SSD, NVMe.
    Fast,
    /// Hard disk, remote disk.
    Slow,
}

impl Tier {
    /// The other tier.
    #[must_use]
    pub fn other(self) -> Tier {
        match self {
            Tier::Fast => Tier::Slow,
            Tier::Slow => Tier::Fast,
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Tier::Fast => "fast",
            Tier::Slow => "slow",
        })
    }
}

/// Where the chunks of a volume may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Both tiers, by use.
    Auto,
    /// The fast tier only.
    FastOnly,
    /// The slow tier only.
    SlowOnly,
}

impl Placement {
    /// That of volumes bound to a tier.
    pub(crate) fn bound_to(tier: Tier) -> Placement {
        match tier {
            Tier::Fast => Placement::FastOnly,
            Tier::Slow => Placement::SlowOnly,
        }
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Placement::Auto => "auto",
            Placement::FastOnly => "fast-only",
            Placement::SlowOnly => "slow-only",
        })
    }
}

/// Index of a member within its group, 0 to 254.
pub type MemberIndex = u8;
/// Index of a slot in a member's data zone.
pub type SlotIndex = u32;

/// A slot of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId {
    /// The member.
    pub member: MemberIndex,
    /// The slot on it.
    pub slot: SlotIndex,
}

/// A chunk of a volume, numbered through the whole group: `map page * entries per page + index in the page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(pub u64);

impl ChunkId {
    /// The map page that holds its entry.
    pub fn page(self) -> u32 {
        (self.0 / bimetal_format::ENTRIES_PER_PAGE as u64) as u32
    }

    /// Its place within that page.
    pub fn index(self) -> usize {
        (self.0 % bimetal_format::ENTRIES_PER_PAGE as u64) as usize
    }
}

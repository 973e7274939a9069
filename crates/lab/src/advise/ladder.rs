//! The half-lives at which chunks are ranked, and the steps in which SSD sizes are counted.

/// Rankings. Ranking i serves sizes around 512 chunks (64 MiB) times 4^i.
pub(super) const RANKINGS: usize = 8;
/// Half-life of ranking 0, in visits: the least that the policy takes.
const HALF_LIFE_FIRST: u64 = 4096;
/// Visits per fast slot after which a visit counts half: that of the policy.
const HALF_LIFE_PER_SLOT: u64 = 8;

/// Steps per doubling of the size.
const STEPS: u32 = 16;
/// Doublings that are told apart: 2^34 chunks are 2 PiB.
const DOUBLINGS: u32 = 34;
/// Steps in all; the last takes everything beyond, and what no size serves.
pub(super) const LEVELS: usize = (STEPS * DOUBLINGS) as usize + 1;
/// The rank of a chunk that no SSD holds.
pub(super) const NEVER: u64 = u64::MAX;

/// Half-life of a ranking, in visits.
pub(super) fn half_life(ranking: usize) -> u64 {
    HALF_LIFE_FIRST << (2 * ranking)
}

/// Fast slots of the size that a ranking is made for.
pub(super) fn slots(ranking: usize) -> u64 {
    half_life(ranking) / HALF_LIFE_PER_SLOT
}

/// The ranking for an SSD of so many chunks: the one whose size is within a factor of 2, or the outermost.
pub(super) fn ranking_of(chunks: u64) -> usize {
    (0..RANKINGS - 1).find(|i| chunks < 2 * slots(*i)).unwrap_or(RANKINGS - 1)
}

/// The step of a rank: below `STEPS`, the rank itself; from there on 16 steps per doubling.
pub(super) fn level(rank: u64) -> usize {
    let n = rank.saturating_add(u64::from(STEPS));
    let doublings = n.ilog2() - STEPS.ilog2();
    if doublings >= DOUBLINGS - STEPS.ilog2() {
        return LEVELS - 1;
    }
    let within = (n >> doublings) as u32 - STEPS;
    (doublings * STEPS + within) as usize
}

/// The lowest rank of a step.
pub(super) fn lowest(level: usize) -> u64 {
    let (doublings, within) = (level as u32 / STEPS, level as u32 % STEPS);
    (u64::from(STEPS + within) << doublings) - u64::from(STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_narrow_and_cover_all_ranks() {
        for l in 0..LEVELS - 1 {
            let (low, next) = (lowest(l), lowest(l + 1));
            assert!(low < next && (next - low) * 16 <= low + 16 * 16, "{l}: {low} {next}");
            if l < LEVELS - 1 - 4 * 16 {
                assert_eq!((level(low), level(next - 1)), (l, l));
            }
        }
        assert_eq!(level(NEVER), LEVELS - 1);
        assert_eq!([0, 1, 15, 16, 17, 100].map(level).map(|l| lowest(l) <= 100), [true; 6]);
    }

    #[test]
    fn every_size_has_a_ranking_with_about_its_half_life() {
        assert_eq!([1, 1000, 1024, 4000, 5000].map(ranking_of), [0, 0, 1, 1, 2]);
        let of_128_gb = 128_000_000_000 / (128 << 10);
        let (want, have) = (8 * of_128_gb, half_life(ranking_of(of_128_gb)));
        assert!(have >= want / 2 && have <= want * 2, "{want} {have}");
    }
}

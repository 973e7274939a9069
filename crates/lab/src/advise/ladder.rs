//! The sizes of SSD that are tried, and how much of each is reserved for new data.

use bimetal_volume::units::CHUNK;

/// The reserve that a new group has by default, from the smallest SSD that is sold on.
const RESERVE: u64 = 4 << 30;
/// The smallest SSD that is sold.
pub(super) const SOLD_FROM: u64 = 32_000_000_000;
/// On smaller ones, which stand for larger ones, the share that the reserve has of 128 GB.
const RESERVE_SHARE: u64 = 32;

/// Bytes of an SSD that are reserved for new data.
pub(super) fn reserve(size: u64) -> u64 {
    if size >= SOLD_FROM {
        RESERVE
    } else {
        size / RESERVE_SHARE
    }
}

/// 1, 2, 4 ... 512 MB, GB, TB: from a hundredth of the footprint (or 32 GB, if that is less) to the first that holds
/// it beside the reserve.
pub(super) fn sizes(footprint: u64) -> Vec<u64> {
    let units = [1_000_000u64, 1_000_000_000, 1_000_000_000_000];
    let all = units.into_iter().flat_map(|unit| (0..10).map(move |i| unit << i));
    let from = SOLD_FROM.min(footprint / 100);
    let mut out = Vec::new();
    for size in all.filter(|s| *s >= from) {
        out.push(size);
        if (size - reserve(size)) / CHUNK * CHUNK >= footprint {
            break;
        }
    }
    out
}

/// "128 GB".
pub fn size_name(size: u64) -> String {
    match size {
        0..=999_999_999 => format!("{} MB", size / 1_000_000),
        1_000_000_000..=999_999_999_999 => format!("{} GB", size / 1_000_000_000),
        _ => format!("{} TB", size / 1_000_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_reach_from_a_hundredth_to_all() {
        let names = |footprint| sizes(footprint).into_iter().map(size_name).collect::<Vec<_>>();
        assert_eq!(names(0), ["1 MB"]);
        assert_eq!(names(700_000_000), ["8 MB", "16 MB", "32 MB", "64 MB", "128 MB", "256 MB", "512 MB", "1 GB"]);
        // A size that is sold is among them however much is touched.
        assert_eq!(names(40_000_000_000_000)[0], "32 GB");
        // The reserve counts: 32 GB do not hold 31.
        assert_eq!(names(31_000_000_000).last().map(String::as_str), Some("64 GB"));
        assert_eq!(names(u64::MAX).last().map(String::as_str), Some("512 TB"));
    }
}

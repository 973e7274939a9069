use super::*;
use crate::prng::Prng;

/// Invariants 1 and 2, from the arrays alone.
fn assert_state(ftl: &Ftl) {
    let stride = ftl.geometry.stride();
    let mut live = vec![0u32; ftl.geometry.blocks as usize];
    let mut mapped = 0;
    for (page, place) in ftl.place.iter().enumerate().filter(|(_, place)| **place != NONE) {
        assert_eq!(ftl.held[*place as usize] as usize, page);
        let block = (place / stride) as usize;
        assert!(place % stride < ftl.entries[block]);
        live[block] += u32::from(ftl.units(page as u32));
        mapped += 1;
    }
    assert_eq!(live, ftl.live);
    assert_eq!(mapped, ftl.mapped);
    for block in &ftl.free {
        assert_eq!((ftl.live[*block as usize], ftl.entries[*block as usize]), (0, 0));
    }
    let erases: u64 = ftl.erases.iter().map(|e| u64::from(*e)).sum();
    assert_eq!(erases, ftl.counts.erases);
}

#[test]
fn the_state_is_sound_after_any_mix_of_calls() {
    for (seed, reduction, streams) in [(1, false, 1), (2, true, 1), (3, false, 3), (4, true, 2)] {
        let separate = seed % 2 == 0;
        let g = Geometry { logical_pages: 32 * 14, blocks: 48, block_pages: 16, streams, reduction, separate };
        let mut ftl = Ftl::new(g).expect("fits");
        let mut rng = Prng::new(seed);
        for i in 0..60_000 {
            let page = rng.below(u64::from(g.logical_pages)) as u32;
            match rng.below(20) {
                0 => ftl.trim(page),
                1 => {
                    ftl.clean_ahead(8);
                }
                _ => {
                    ftl.write(page, rng.range(1, 64) as u8, rng.below(u64::from(streams)) as u8);
                }
            }
            if i % 997 == 0 {
                assert_state(&ftl);
            }
        }
        assert_state(&ftl);
    }
}

/// The tightest shape that is accepted survives full pages written without end.
#[test]
fn the_least_spare_is_enough() {
    for (reduction, separate) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut g = Geometry { logical_pages: 1, blocks: 40, block_pages: 8, streams: 2, reduction, separate };
        while Ftl::new(Geometry { logical_pages: g.logical_pages + 1, ..g }).is_ok() {
            g.logical_pages += 1;
        }
        let mut ftl = Ftl::new(g).expect("the last that was accepted");
        let mut rng = Prng::new(5);
        for page in 0..g.logical_pages {
            ftl.write(page, UNITS, 0);
        }
        for i in 0..20_000 {
            let units = if i < 10_000 { UNITS } else { rng.range(33, 64) as u8 };
            ftl.write(rng.below(u64::from(g.logical_pages)) as u32, units, rng.below(2) as u8);
        }
        assert_eq!(ftl.mapped_pages(), g.logical_pages);
        assert_state(&ftl);
    }
}

#[test]
fn shapes_without_spare_and_calls_without_sense_are_refused() {
    let good =
        Geometry { logical_pages: 100, blocks: 40, block_pages: 8, streams: 1, reduction: false, separate: false };
    for bad in [
        Geometry { logical_pages: 0, ..good },
        Geometry { logical_pages: 40 * 8, ..good },
        Geometry { block_pages: 0, ..good },
        Geometry { streams: 0, ..good },
        Geometry { blocks: u32::MAX, block_pages: u32::MAX, ..good },
        Geometry { block_pages: 1 << 27, ..good },
        Geometry { blocks: 4, ..good },
    ] {
        assert!(Ftl::new(bad).is_err(), "{bad:?}");
    }
    let mut ftl = Ftl::new(good).expect("good");
    ftl.write(100, UNITS, 0);
    ftl.write(0, UNITS, 1);
    ftl.trim(u32::MAX);
    assert_eq!((ftl.mapped_pages(), ftl.counts()), (0, Counts::default()));
}

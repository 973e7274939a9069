//! The flash translation layer: the notes' section 5.

use bimetal_sim::model::ftl::{Ftl, Geometry, UNITS};
use bimetal_sim::model::sandforce::{Content, Reducer};
use bimetal_sim::model::theory;
use bimetal_sim::prng::Prng;

use crate::near;

const RHO: [f64; 10] = [0.07, 0.10, 0.133, 0.171, 0.20, 0.28, 0.40, 0.50, 0.75, 1.0];

/// A flash whose pages have all been written once, in their order.
fn filled(geometry: Geometry) -> Ftl {
    let mut ftl = Ftl::new(geometry).expect("enough spare");
    for page in 0..geometry.logical_pages {
        ftl.write(page, UNITS, 0);
    }
    ftl
}

/// Write amplification of uniform random writes once it is steady: `warm` and then `measured` times the capacity.
fn random_steady(ftl: &mut Ftl, rng: &mut Prng, warm: f64, measured: f64) -> f64 {
    let pages = ftl.geometry().logical_pages;
    for part in [warm, measured] {
        ftl.reset_counts();
        for _ in 0..(f64::from(pages) * part) as u64 {
            ftl.write(rng.below(u64::from(pages)) as u32, UNITS, 0);
        }
    }
    ftl.counts().write_amplification()
}

/// Steady write amplification with this spare: measured over one capacity of writes, after two.
fn greedy(blocks: u32, block_pages: u32, rho: f64) -> f64 {
    let mut ftl = filled(Geometry::with_spare(blocks, block_pages, rho));
    random_steady(&mut ftl, &mut Prng::new(17), 2.0, 1.0)
}

/// The notes give 8.1 for rho 0.07, which is above their own formula (7.82), though greedy cleaning cannot be worse
/// than it. That is what few blocks do, of which the open ones take a part of the spare: 8.05 with 512 blocks. With
/// more the figure falls to 7.61 (16 384 blocks), so here the formula is what must be met.
#[test]
fn greedy_cleaning_of_large_blocks() {
    let wanted = [7.82, 5.8, 4.5, 3.65, 3.2, 2.5, 1.96, 1.72, 1.40, 1.26];
    for (rho, wanted) in RHO.into_iter().zip(wanted) {
        let a = greedy(4096, 256, rho);
        near(&format!("256 pages, rho {rho}"), a, wanted, 5.0);
        near(&format!("256 pages, rho {rho}, formula"), a, theory::amplification(1.0 + rho), 5.0);
    }
    near("256 pages, rho 0.07, few blocks", greedy(512, 256, 0.07), 8.1, 5.0);
}

#[test]
fn greedy_cleaning_of_small_blocks() {
    let wanted = [6.5, 5.0, 4.0, 3.3, 3.0, 2.3, 1.9, 1.65, 1.37, 1.23];
    for (rho, wanted) in RHO.into_iter().zip(wanted) {
        near(&format!("32 pages, rho {rho}"), greedy(8192, 32, rho), wanted, 5.0);
    }
}

#[test]
fn sequential_fill_costs_nothing() {
    let g = Geometry::with_spare(512, 64, 0.07);
    let mut ftl = filled(g);
    for _ in 0..3 {
        for page in 0..g.logical_pages {
            ftl.write(page, UNITS, 0);
        }
    }
    let c = ftl.counts();
    assert_eq!((c.moved_pages, c.write_amplification()), (0, 1.0));
    assert!(c.erases > 0);
}

/// Slots are given out log-like in segments of several blocks, and a segment is trimmed as a whole before it is used
/// again.
#[test]
fn whole_segment_trims_cost_nothing() {
    let g = Geometry::with_spare(512, 64, 0.07);
    let mut ftl = Ftl::new(g).expect("enough spare");
    let segment = 4 * 64;
    let segments = g.logical_pages / segment;
    let mut rng = Prng::new(4);
    let write = |ftl: &mut Ftl, s: u32, trim: bool| {
        for page in s * segment..(s + 1) * segment {
            if trim {
                ftl.trim(page);
            } else {
                ftl.write(page, UNITS, 0);
            }
        }
    };
    for s in 0..segments {
        write(&mut ftl, s, false);
    }
    for _ in 0..4 * segments {
        let s = rng.below(u64::from(segments)) as u32;
        write(&mut ftl, s, true);
        write(&mut ftl, s, false);
    }
    assert_eq!((ftl.counts().moved_pages, ftl.counts().write_amplification()), (0, 1.0));
}

/// Chunks overwritten at random die alone: an erase block of 512 pages is one of 32 chunks, and pays like it.
#[test]
fn chunk_sized_writes_are_amplified_like_pages_of_small_blocks() {
    let g = Geometry::with_spare(1024, 512, 0.133);
    let mut ftl = filled(g);
    let chunks = u64::from(g.logical_pages / 16);
    let mut rng = Prng::new(6);
    for _ in 0..2 {
        ftl.reset_counts();
        for _ in 0..3 * chunks / 2 {
            let chunk = rng.below(chunks) as u32;
            for page in 16 * chunk..16 * (chunk + 1) {
                ftl.write(page, UNITS, 0);
            }
        }
    }
    let c = ftl.counts();
    near("chunks, rho 0.133", c.write_amplification(), 4.0, 5.0);
    // What the move of a chunk costs the flash.
    let moves = c.host_pages / 16;
    near("flash bytes per chunk, KiB", (c.host_pages + c.moved_pages) as f64 * 8.0 / moves as f64, 4.0 * 128.0, 5.0);
    near("erases per chunk", c.erases as f64 / moves as f64, 4.0 * 16.0 / 512.0, 5.0);
}

#[test]
fn trimmed_space_counts_as_spare() {
    for (q, wanted) in [(0.0, 4.4), (0.1, 2.5), (0.2, 1.7), (0.3, 1.3)] {
        let g = Geometry::with_spare(1024, 256, 0.133);
        let mut ftl = filled(g);
        let mut rng = Prng::new(8);
        let pages = u64::from(g.logical_pages);
        // The share in use takes long to settle: begin with it.
        let unused = ((1.0 - theory::used_share(q)) * 1e6) as u32;
        let mut used: Vec<bool> = (0..pages).map(|_| !rng.chance(unused)).collect();
        for page in (0..pages as usize).filter(|page| !used[*page]) {
            ftl.trim(page as u32);
        }
        for _ in 0..2 {
            ftl.reset_counts();
            for _ in 0..2 * pages {
                let mut page = rng.below(pages) as usize;
                if rng.chance((q * 1e6) as u32) {
                    while !used[page] {
                        page = rng.below(pages) as usize;
                    }
                    used[page] = false;
                    ftl.trim(page as u32);
                } else {
                    used[page] = true;
                    ftl.write(page as u32, UNITS, 0);
                }
            }
        }
        near(&format!("share in use, q {q}"), f64::from(ftl.mapped_pages()) / pages as f64, theory::used_share(q), 1.0);
        near(&format!("A with trims, q {q}"), ftl.counts().write_amplification(), wanted, 5.0);
    }
}

/// 137.4 GB of flash and what lives on it; trimmed space is spare.
#[test]
fn the_reserve_is_spare_only_if_it_is_trimmed() {
    let raw = 137.44;
    for (trimmed, rho, wanted) in [(0.0, 0.133, 4.4), (4.0, 0.172, 3.6), (8.0, 0.213, 3.0), (21.0, 0.37, 2.0)] {
        let live = 121.3 - trimmed;
        near(&format!("rho with {trimmed} GB trimmed"), raw / live - 1.0, rho, 3.0);
        let mut ftl = filled(Geometry::with_spare(1024, 256, 0.133));
        let pages = ftl.geometry().logical_pages;
        let live_pages = (f64::from(pages) * live / 121.3) as u32;
        for page in live_pages..pages {
            ftl.trim(page);
        }
        let mut rng = Prng::new(2);
        for _ in 0..2 {
            ftl.reset_counts();
            for _ in 0..2 * pages {
                ftl.write(rng.below(u64::from(live_pages)) as u32, UNITS, 0);
            }
        }
        near(&format!("A with {trimmed} GB trimmed"), ftl.counts().write_amplification(), wanted, 5.0);
    }
}

/// 80 % of the writes go to 20 % of the pages. It hardly matters whether cleaned pages lie apart.
#[test]
fn hot_and_cold_in_one_stream_and_in_two() {
    for (rho, mixed, apart) in [(0.133, 4.7, 4.4), (0.28, 2.7, 2.5)] {
        for (streams, separate, wanted) in [(1, false, mixed), (1, true, mixed), (2, false, apart)] {
            let g = Geometry { streams, separate, ..Geometry::with_spare(1024, 256, rho) };
            let mut ftl = Ftl::new(g).expect("enough spare");
            let hot = g.logical_pages / 5;
            let stream = |page: u32| u8::from(page < hot && streams == 2);
            for page in 0..g.logical_pages {
                ftl.write(page, UNITS, stream(page));
            }
            let mut rng = Prng::new(12);
            for part in [6, 3] {
                ftl.reset_counts();
                for _ in 0..part * g.logical_pages {
                    let page = match rng.below(5) {
                        0 => u64::from(hot) + rng.below(u64::from(g.logical_pages - hot)),
                        _ => rng.below(u64::from(hot)),
                    } as u32;
                    ftl.write(page, UNITS, stream(page));
                }
            }
            near(&format!("80/20, rho {rho}, streams {streams}"), ftl.counts().write_amplification(), wanted, 10.0);
        }
    }
}

#[test]
fn reduction_acts_twice() {
    for (r, wanted) in [(1.0, 2.5), (0.75, 1.1), (0.5, 0.56), (0.3, 0.30)] {
        let g = Geometry { reduction: true, ..Geometry::with_spare(1024, 256, 0.28) };
        let mut ftl = Ftl::new(g).expect("enough spare");
        let mut reducer = Reducer::new(Content::Factor(r));
        let mut rng = Prng::new(21);
        for page in 0..g.logical_pages {
            ftl.write(page, reducer.next_page(), 0);
        }
        for _ in 0..2 {
            ftl.reset_counts();
            for _ in 0..2 * g.logical_pages {
                ftl.write(rng.below(u64::from(g.logical_pages)) as u32, reducer.next_page(), 0);
            }
        }
        let a = ftl.counts().write_amplification();
        near(&format!("stored size {r}"), a, wanted, 5.0);
        near(&format!("stored size {r}, formula"), a, theory::amplification_reduced(1.28, r), 5.0);
        assert!(a >= r * 0.999, "less was programmed than was stored");
        assert!(r < 1.0 || a > 1.0, "below 1 only with reduction");
    }
}

#[test]
fn wear_is_what_was_programmed() {
    let mut ftl = filled(Geometry::with_spare(256, 64, 0.2));
    let a = random_steady(&mut ftl, &mut Prng::new(3), 2.0, 20.0);
    let c = ftl.counts();
    near("erases", c.erases as f64, a * c.host_pages as f64 / 64.0, 1.0);
    let wear = ftl.wear();
    let mean = wear.iter().sum::<u32>() as f64 / wear.len() as f64;
    let most = f64::from(wear.iter().copied().max().unwrap_or(0));
    // All pages are equally hot, so no block stays behind for long.
    assert!(most < 1.5 * mean, "{most} of {mean}");
}

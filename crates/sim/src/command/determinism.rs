//! `sim determinism`: the same seed twice is the same run.

use super::many::{catch_panics, guarded};
use super::Args;
use crate::workload::generate;

pub(super) fn determinism(args: &Args<'_>) -> Result<bool, String> {
    let (start, seeds) = (args.number("--start", 1)?, args.number("--seeds", 200)?);
    catch_panics();
    let mut different = 0;
    for seed in start..start + seeds {
        let (a, b) = (guarded(&generate(seed), false), guarded(&generate(seed), false));
        if (a.trace(), &a.outcome) != (b.trace(), &b.outcome) {
            different += 1;
            println!("seed {seed} is not the same run twice: {:016x} {:016x}", a.trace(), b.trace());
        }
    }
    println!("{} passed, {different} failed", seeds - different);
    Ok(different == 0)
}

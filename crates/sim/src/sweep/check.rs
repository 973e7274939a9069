//! Metadata rots under a group in use, and a check mends it beside the requests of a client: the power goes at every step.

use bimetal_volume::units::{Tier, CHUNK};

use super::{directed, fill, flush, group, sleep, step, Directed, FUA, TRIM, WRITE};
use crate::scenario::{Act, MemberSpec, Scenario, Step};

fn rots(name: &'static str, disk: usize, tear: bool) -> Directed {
    let mut s = Scenario { tear, ..group(12, 40, 40) };
    s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 10, discard: false });
    let prepare = vec![fill(0, 24), step(0, TRIM, 21 * CHUNK + 8192, 16_384), flush(), sleep(0, 3000)];
    let of = |client, steps: Vec<Step>| steps.into_iter().map(move |s| Step { client, ..s });
    let checker =
        [Act::Rot { disk }, Act::Check { mend: false }, Act::Check { mend: true }, Act::Check { mend: false }];
    // Once while all of the map is on the members, and once beside writes.
    let checker = [checker.as_slice(), &[Act::Sleep], &checker].concat();
    let mut steps =
        vec![sleep(0, 400), step(0, WRITE, 27 * CHUNK + 4096, 20_000), step(0, TRIM, 2 * CHUNK, CHUNK), flush()];
    steps.extend(of(1, checker.into_iter().map(|act| step(0, act, 0, 100_000)).collect()));
    steps.extend([step(0, FUA, 4096, 4096), fill(28, 4), flush(), step(0, WRITE, 9 * CHUNK, 8192), flush()]);
    directed(name, s, prepare, steps, false)
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        rots("mended in use, first", 0, false),
        rots("mended in use, second", 1, false),
        rots("mended in use, torn", 0, true),
    ]
}

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

/// One label after the other rots and is mended, with nothing beside it: most of the points are in the writing of labels.
fn labels_rot() -> Directed {
    let mut s = group(10, 10, 8);
    s.members.insert(0, MemberSpec { tier: Tier::Fast, slots: 10, discard: true });
    s.tear = true;
    let mend = |i| [step(0, Act::Rot { disk: i }, 0, 0), step(0, Act::Check { mend: true }, 0, 0), sleep(0, 20)];
    directed(
        "labels mended in use",
        s,
        vec![fill(0, 2), flush()],
        (0..8).map(|i| i % 2).flat_map(mend).collect(),
        false,
    )
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![
        labels_rot(),
        rots("mended in use, first", 0, false),
        rots("mended in use, second", 1, false),
        rots("mended in use, slow", 2, true).finds(&["MendSkipsAway"]),
        rots("mended in use, torn", 0, true).finds(&["MendOverGoodLabel"]),
    ]
}

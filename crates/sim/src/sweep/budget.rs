//! The endurance budget is used up, and used chunks must move up all the same, in time (I6).

use bimetal_volume::units::CHUNK;

use super::{fill, group, sleep, step, Directed};
use crate::scenario::{Act, End, Scenario};

/// Chunks that may be promoted at once: fewer than are used.
const BURST: u64 = 2;

/// Several chunks of the slow tier are used; at the end of each run comes the liveness phase.
pub(super) fn used_up() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, burst: BURST, liveness: true, ..group(16, 48, 40) };
        let used = (20..30).map(|c| step(0, Act::Heat { times: 4 }, c * CHUNK, CHUNK));
        let steps = [vec![fill(0, 36), sleep(0, 3000)], used.collect(), vec![sleep(0, 3000)]].concat();
        let session = s.quiet_session(steps, End::Stop);
        s.sessions.push(session);
        s
    };
    Directed::chain("budget used up", make, 10).finds(&["OwedBeforeWrite"])
}

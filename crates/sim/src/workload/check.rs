//! Checks of a group in use, mixed into a random scenario.

use bimetal_volume::units::Tier;

use crate::disk::Faults;
use crate::prng::Prng;
use crate::run::FIRST_PAGE;
use crate::scenario::{Act, End, Scenario, Session, Step};
use crate::world::CrashPoint;

/// Crash points of a check that mends, roughly.
const MENDING: u64 = 300;

/// Adds checks, by a client of their own, to all sessions.
pub(crate) fn mix_in(s: &mut Scenario, p: &mut Prng) {
    for session in &mut s.sessions {
        let client = session.steps.iter().map(|t| t.client).max().unwrap_or(0) + 1;
        for _ in 0..p.range(1, 4) {
            let step = Step { client, volume: 0, act: Act::Check { mend: p.coin() }, offset: 0, len: 0 };
            let pause = Step { act: Act::Sleep, len: p.skewed(400_000), ..step };
            session.steps.extend([pause, step]);
        }
    }
}

/// What a slow member holds of the map rots in some sessions, or a label of a fast one, beside clients that commit, and a check mends it; in
/// half of them one write of a journal fails meanwhile. Nothing else goes wrong, and nobody comes or leaves.
pub(crate) fn rot(s: &mut Scenario, p: &mut Prng) {
    let of = |tier| (0..s.members.len()).filter(|m| s.members[*m].tier == tier).collect::<Vec<_>>();
    let (disk, fast) = (*p.pick(&of(Tier::Slow)), *p.pick(&of(Tier::Fast)));
    let journal = (FIRST_PAGE, FIRST_PAGE + u64::from(s.journal));
    for session in &mut s.sessions {
        session.damage = None;
        session.faults.fill(Faults::default());
        session.steps.retain(|t| !t.act.is_of_members() && !matches!(t.act, Act::Check { .. }));
        let client = session.steps.iter().map(|t| t.client).max().map_or(0, |c| c + 1);
        let step = |act, len| Step { client, volume: 0, act, offset: 0, len };
        // What the session before has left rotten.
        session.steps.insert(0, step(Act::Check { mend: true }, 0));
        let of_label = p.coin();
        let rot = if of_label { Act::RotLabel { disk: fast } } else { Act::RotMap { disk } };
        for _ in 0..p.below(8) {
            let pause = step(Act::Sleep, p.skewed(300_000));
            session.steps.extend([pause, step(rot, 0), step(Act::Check { mend: true }, 0)]);
        }
        if p.coin() {
            let write_ppm = *p.pick(&[10_000, 30_000, 100_000]);
            session.faults[fast] = Faults { write_ppm, limit: 1, area: journal, ..Faults::default() };
        }
        match of_label {
            // The other one is not to be torn before that.
            true => session.end = session.end.with_point(CrashPoint { steps: session.steps.len() as u64, events: 0 }),
            false => cut_off(session, p),
        }
    }
    // All of it is whole in the end.
    let check = Step { client: 0, volume: 0, act: Act::Check { mend: true }, offset: 0, len: 0 };
    let last = s.quiet_session(vec![check], End::Stop);
    s.sessions.push(last);
}

/// The power goes rather late, or whenever it was to.
fn cut_off(session: &mut Session, p: &mut Prng) {
    if p.chance(700_000) {
        let steps = session.steps.len() as u64;
        let point = CrashPoint { steps: p.range(steps / 2, steps), events: p.below(MENDING) };
        session.end = session.end.with_point(point);
    }
}

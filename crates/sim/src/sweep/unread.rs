//! What a start could not read, or wrote anew, and what is made of it later. Both were found by a reader and made smaller.

use bimetal_volume::units::CHUNK;

use super::{group, step, Directed, FUA, NEVER};
use crate::disk::Faults;
use crate::oracle::Crash;
use crate::scenario::{Damage, End, Scenario};

/// Reads of a page in a start: all of its window at once, and then as often as a start has patience.
const READS: u64 = 6;

/// A slow member was not told yet that chunks have left it, and its page cannot be read at the next start; later it can. Meanwhile
/// the slots are another volume's.
fn page_unread() -> Directed {
    let make = |n: u64| {
        let mut s =
            crate::text::parse(include_str!("page_unread.txt")).expect("the file beside this one is a scenario");
        s.seed = n + 1;
        s.sessions[2].faults[1].limit = (READS + 1 - n % READS) as u32;
        s
    };
    Directed::chain("page unread, and its slots given away", make, 24)
}

/// A member whose map was mended at a start loses its labels, and the repair that knows it by that map is cut off.
fn mended_without_labels() -> Directed {
    let make = |n: u64| {
        let text = include_str!("mended_without_labels.txt");
        let mut s = crate::text::parse(text).expect("the file beside this one is a scenario");
        s.seed = n + 1;
        let last = s.sessions.len() - 1;
        s.sessions[last].damage = Some(Damage::Directory(0, 48 + n % 30));
        s
    };
    Directed::chain("mended, without labels, and its repair cut off", make, 150).finds(&["SealNotRebuilt"])
}

/// The two copies of the away block of so small a group lie so many blocks behind the journal. Should that change, the hunt for the mutant
/// that this is made for says so.
const AWAY: u64 = 22;

/// Neither copy of an away block can be read, and the first, which is the newer one, and clear, cannot be written either; so the start ends.
/// The next one goes on with the second copy. Then the first can be read again, and is alone with what it said.
fn away_unread_twice() -> Directed {
    let make = |n: u64| {
        let mut s = Scenario { seed: n + 1, ..group(10, 20, 24) };
        let first = crate::run::FIRST_PAGE + u64::from(s.journal) + AWAY;
        let bad = |blocks, limit| Faults {
            read_ppm: 1_000_000,
            write_ppm: 1_000_000,
            limit,
            area: (first, first + blocks),
            ..Faults::default()
        };
        let write = |chunk: u64| vec![step(0, FUA, chunk * CHUNK, 4096)];
        let cut = End::Crash(Crash::Power, NEVER);
        // Bits are set by a start and cleared by a stop, each time in the older copy; after a crash they are written anew.
        for (chunk, end) in [End::Stop, cut, End::Stop].into_iter().enumerate() {
            s.sessions.push(s.quiet_session(write(chunk as u64), end));
        }
        // Both reads, and the first write.
        let mut unread = s.quiet_session(Vec::new(), End::Stop);
        unread.faults[1] = bad(2, 3);
        let mut half = s.quiet_session(write(20), cut);
        half.faults[1] = bad(1, u32::MAX);
        let mut alone = s.quiet_session(Vec::new(), End::Stop);
        alone.damage = Some(Damage::Missing(0));
        s.sessions.extend([unread, half, alone]);
        s
    };
    Directed::chain("away block unread twice", make, 40).finds(&["AwaySequenceAnew"])
}

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![page_unread(), mended_without_labels(), away_unread_twice()]
}

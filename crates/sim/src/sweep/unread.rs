//! What a start could not read, or wrote anew, and what is made of it later. Both were found by a reader and made smaller.

use super::Directed;
use crate::scenario::Damage;

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

/// All of them.
pub(super) fn all() -> Vec<Directed> {
    vec![page_unread(), mended_without_labels()]
}

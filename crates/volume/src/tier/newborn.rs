//! How warm a new chunk is: as warm as new chunks have turned out to be.
//!
//! A new chunk has one visit to show, its birth. Where new data are read and written again soon that says as much as any
//! other visit; where they are an archive it says nothing, and each new chunk would drive out an older one that is
//! used. So chunks that are new are followed: heat is the number of visits of late, each halved in a half-life, and a
//! chunk that is visited at an even rate has that rate times half-life / ln 2. The rate at which new chunks are visited
//! makes the heat that a birth stands for.
//!
//! Terms: how *young* a chunk is: 1 at its birth, half of it after a half-life. All chunks that are followed count with
//! their youth, what happens to them too.

use super::heat::{LIGHT, OCTAVE};

/// How a chunk got its first home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Birth {
    /// By itself, or in a short run.
    Random,
    /// In a stream.
    Stream,
}

impl Birth {
    /// What it stands for where nothing is known, in fine steps.
    pub(super) fn usual(self) -> i32 {
        FIRST[self as usize] * OCTAVE
    }
}

/// Octaves that a birth stands for until it is known better: a visit, or a visit in a stream.
const FIRST: [i32; 2] = [0, -LIGHT];
/// That counts like so many chunks followed for a half-life.
const DOUBT: f64 = 32.0;
/// Octaves that a birth stands for at least; at most it stands for a visit.
const LEAST: f64 = -8.0;
/// What was learned before loses this part from lesson to lesson.
const FADE: f64 = 1.0 / 32.0;

struct Kind {
    first: i32,
    /// The youth of all chunks followed.
    young: f64,
    /// For how long chunks were followed, in chunks times half-life / ln 2.
    followed: f64,
    /// Visits of theirs.
    visits: f64,
    /// Heat of a birth, in fine steps.
    heat: i32,
}

/// What new chunks have turned out to be.
pub(super) struct Newborns {
    kinds: [Kind; 2],
    /// In visits of all chunks that are followed.
    half_life: f64,
}

impl Newborns {
    pub(super) fn new(half_life: u64) -> Newborns {
        let kind = |first: i32| Kind { first, young: 0.0, followed: 0.0, visits: 0.0, heat: first * OCTAVE };
        Newborns { kinds: FIRST.map(kind), half_life: half_life.max(1) as f64 }
    }

    /// From now on so many visits are a half-life. What was learned stays.
    pub(super) fn set_half_life(&mut self, half_life: u64) {
        self.half_life = half_life.max(1) as f64;
    }

    /// Heat of a birth relative to now, in fine steps.
    pub(super) fn heat(&self, birth: Birth) -> i32 {
        self.kinds[birth as usize].heat
    }

    /// One of the chunks that are followed was visited or born.
    pub(super) fn pass(&mut self) {
        let part = std::f64::consts::LN_2 / self.half_life;
        for kind in &mut self.kinds {
            kind.young -= kind.young * part;
            kind.followed += kind.young * part;
        }
    }

    /// A chunk was born that is followed from now on.
    pub(super) fn born(&mut self, birth: Birth) {
        self.kinds[birth as usize].young += 1.0;
    }

    /// A chunk is visited `age` visits after its birth.
    pub(super) fn visited(&mut self, birth: Birth, age: u32) {
        self.kinds[birth as usize].visits += (-f64::from(age) / self.half_life).exp2();
    }

    /// Draws the lesson from what was seen.
    pub(super) fn learn(&mut self) {
        for kind in &mut self.kinds {
            let first = f64::from(kind.first).exp2() * DOUBT;
            let octaves = ((kind.visits + first) / (kind.followed + DOUBT)).log2();
            kind.heat = (octaves.clamp(LEAST, 0.0) * f64::from(OCTAVE)) as i32;
            kind.visits -= kind.visits * FADE;
            kind.followed -= kind.followed * FADE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heat of a birth after chunks were born one after the other, each of which was visited so often during its
    /// first half-life.
    fn heat(visits: u32) -> i32 {
        let mut n = Newborns::new(1000);
        for round in 0..40_000u32 {
            n.pass();
            if round % 10 == 0 {
                n.born(Birth::Random);
            }
            // Of the hundred chunks born in the last half-life one after the other gets its share.
            if round * visits % 10 < visits {
                n.visited(Birth::Random, round / 10 % 100 * 10);
            }
            if round % 256 == 0 {
                n.learn();
            }
        }
        n.heat(Birth::Random)
    }

    #[test]
    fn what_is_born_and_forgotten_is_cold_and_what_is_used_is_not() {
        assert!(heat(0) < -3 * OCTAVE, "{}", heat(0));
        assert!((-OCTAVE..0).contains(&heat(1)), "{}", heat(1));
        assert_eq!(heat(10), 0);
    }

    #[test]
    fn nothing_is_said_of_what_was_not_seen() {
        let mut n = Newborns::new(1000);
        (0..10_000).for_each(|_| n.pass());
        n.learn();
        assert_eq!((n.heat(Birth::Random), n.heat(Birth::Stream)), (0, -LIGHT * OCTAVE));
    }
}

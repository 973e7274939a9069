//! What new chunks are taken for.

use super::{runs, HeadTime, RETRO_CHUNKS};
use crate::tier::heat::OCTAVE;
use crate::tier::newborn::Birth;
use crate::tier::stream::Run;
use crate::tier::View;
use crate::units::{ChunkId, Tier, CHUNK};

impl HeadTime {
    /// Counts a birth. What was born before its run was a stream was born too warm: one such chunk is cooled for each
    /// that follows.
    pub(super) fn born(&mut self, v: &mut impl View, c: ChunkId, run: &Run) {
        let length = run.bytes / CHUNK;
        let stream = length >= RETRO_CHUNKS;
        let birth = if stream { Birth::Stream } else { Birth::Random };
        // New data make older data older, whatever they weigh.
        self.clock.visit(0);
        self.half_life.visit(&mut self.clock, c, Some(birth));
        let lighter = if stream { 0 } else { runs::weight(run.bytes) };
        let weight = self.birth_weight(v, c, birth) + lighter;
        self.heat_up(v, c, weight, true, run.number);
        self.use_of_birth(v, c, birth);
        self.observe(v);
        if run.born && stream && length < 2 * RETRO_CHUNKS {
            self.cool(v, ChunkId(c.0.saturating_sub(RETRO_CHUNKS)));
        }
    }

    /// A birth is a use where new chunks turn out to be used, and never in a stream.
    fn use_of_birth(&mut self, v: &impl View, c: ChunkId, birth: Birth) {
        if birth == Birth::Random && self.half_life.heat_of(birth) > -OCTAVE {
            self.used(v, c);
        } else if let Some(slot) = v.fast_slot(c) {
            self.recency.forget(slot);
        }
    }

    /// What a birth stands for. A new chunk on the slow tier takes nobody's place, and what is known of others is not
    /// held against it: a file that was written and is read once has been used twice.
    fn birth_weight(&self, v: &impl View, c: ChunkId, birth: Birth) -> i32 {
        let learned = self.half_life.heat_of(birth);
        match v.tier_of(c) {
            Some(Tier::Slow) => learned.max(birth.usual()),
            _ => learned,
        }
    }

    fn cool(&mut self, v: &mut impl View, c: ChunkId) {
        let weight = self.birth_weight(v, c, Birth::Stream);
        // Only what has the heat of one birth: what was used since is left alone.
        let heat = self.clock.relative(v.heat(c));
        if v.tier_of(c).is_some() && heat > weight && heat <= OCTAVE / 4 {
            let random = v.random();
            v.set_heat(c, self.clock.absolute(weight, random));
            self.note_region(v, c);
        }
    }
}

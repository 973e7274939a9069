//! What a group tells about itself.

use std::time::Duration;

use super::core::Core;
use crate::env::{Env, Instant};
use crate::member::{Member, Standing};
use crate::options::{MemberState, MemberStatus, MoverStatus, Status, VolumeStatus};
use crate::tier::Policy;
use crate::units::{Tier, CHUNK};

impl<E: Env> Core<E> {
    pub(crate) fn status(&self) -> Status {
        Status {
            name: self.name.clone(),
            uuid: self.uuid,
            read_only: !self.writable || self.health.is_latched(),
            latched: self.health.latched(),
            generation: self.commit.durable_generation.get(),
            commits: self.commit.count.get(),
            pending: self.commit.pending.borrow().len() as u64,
            reserve: self.reserve_slots() * CHUNK,
            keep_free: self.keep_free_slots() * CHUNK,
            room_at_once: self.room_at_once_slots() * CHUNK,
            fast_free: self.free_in(Tier::Fast) * CHUNK,
            members: self.members.iter().map(|m| self.member_status(m)).collect(),
            volumes: self.volumes.living().iter().map(|v| self.volume_status(v)).collect(),
            families: self.family_status(),
            deleting: self.volumes.all().iter().filter(|v| v.deleted.get()).map(|v| self.volume_status(v)).collect(),
            mover: self.mover_status(),
            recovery: self.findings.borrow().iter().map(|f| f.what.clone()).collect(),
        }
    }

    fn member_status(&self, m: &Member<E::Device>) -> MemberStatus {
        let label = m.label.borrow();
        let row = &label.members[m.index as usize];
        let c = &m.counters;
        let answering = m.answering();
        let waited = |since: Option<Instant>| since.map_or(Duration::ZERO, |at| self.env.now().since(at));
        MemberStatus {
            index: m.index,
            uuid: row.uuid,
            tier: m.tier,
            present: m.is_present(),
            state: match m.standing.get() {
                Standing::Joining => MemberState::Joining,
                Standing::Full => MemberState::InUse,
                Standing::Leaving | Standing::Gone => MemberState::Leaving,
            },
            size: row.size,
            slots: u64::from(row.slots),
            free: if m.is_present() { m.free.borrow().free() } else { 0 },
            leaving: m.on_the_way.get(),
            quarantined: self.kept_back_on(m.index),
            journal_used: m.journal.borrow().used(),
            journal_blocks: m.layout.journal_blocks,
            map_pages: label.layout().pages,
            reads: c.reads.get(),
            read_bytes: c.read_bytes.get(),
            writes: c.writes.get(),
            write_bytes: c.write_bytes.get(),
            syncs: c.syncs.get(),
            discard_bytes: c.discard_bytes.get(),
            errors: c.errors.get(),
            unanswered: answering.waiting,
            unanswered_for: waited(answering.oldest),
            silent_for: waited(answering.silent_since),
            lost: answering.lost,
        }
    }

    fn volume_status(&self, v: &super::volume::VolumeInfo) -> VolumeStatus {
        let mut status = VolumeStatus {
            name: v.name.borrow().clone(),
            uuid: v.uuid,
            size: v.size.get(),
            placement: v.placement,
            fast_chunks: v.fast_chunks.get(),
            slow_chunks: v.slow_chunks.get(),
            family: None,
            locked: false,
            encrypting: None,
        };
        self.add_cipher_status(&v.cipher, &mut status);
        status
    }

    fn mover_status(&self) -> MoverStatus {
        let m = &self.mover;
        let (doing, why) = m.words.borrow().clone();
        MoverStatus {
            promoted: m.promoted.get(),
            demoted: m.demoted.get(),
            demoted_uncopied: self.kept.used.get(),
            let_go: self.kept.let_go.get(),
            lifted: m.lifts.get(),
            written_anew: m.written_anew.get(),
            kept: self.copies(),
            kept_ended: self.kept.ended.get(),
            kept_dropped: self.kept.dropped.get(),
            evacuated: m.evacuated.get(),
            cancelled: m.cancelled.get(),
            failed: m.failed.get(),
            in_flight: self.claims.motions() as u64,
            candidates: self.policy.borrow().candidate_count() as u64,
            doing,
            why,
        }
    }
}

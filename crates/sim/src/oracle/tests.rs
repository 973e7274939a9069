use super::*;
use bimetal_volume::backend::{Piece, Pieces};
use bimetal_volume::buf::BufMut;
use smallvec::smallvec;

const B: u64 = BLOCK;

fn data(o: &Oracle, offset: u64, id: u64, len: u64) -> Pieces {
    let mut buf = BufMut::with_phase(len as usize, offset);
    o.fill(0, offset, id, &mut buf);
    smallvec![Piece::Data(buf.freeze())]
}

fn zeros(len: u64) -> Pieces {
    smallvec![Piece::Zero(len)]
}

/// Writes block 0 at the given times; returns the write's id.
fn write(o: &mut Oracle, fua: bool, issued: u64, answered: u64) -> u64 {
    let id = o.write_id();
    let promise = if fua { Promise::Durable } else { Promise::None };
    let w = o.issue(0, 0, B, Value::write(id), promise, issued);
    if answered != 0 {
        o.answered(w, answered);
    }
    id
}

fn reads(o: &mut Oracle, id: u64, issued: u64) -> bool {
    let pieces = if id == 0 { zeros(B) } else { data(o, 0, id, B) };
    o.check(0, 0, &pieces, issued).is_ok()
}

fn oracle() -> Oracle {
    Oracle::new(&[64 * B])
}

#[test]
fn fresh_volumes_read_zeros_and_nothing_else() {
    let mut o = oracle();
    assert!(reads(&mut o, 0, 10));
    let id = o.write_id();
    assert!(!reads(&mut o, id, 12));
    let mut poison = BufMut::new(B as usize);
    for (i, s) in poison.chunks_exact_mut(SECTOR).enumerate() {
        crate::content::fill_sector(s, crate::content::poison_code(0, i as u64));
    }
    let wrong = o.check(0, 0, &smallvec![Piece::Data(poison.freeze())], 14).expect_err("poison");
    assert!(wrong.to_string().contains("never written or discarded"), "{wrong}");
}

#[test]
fn a_read_sees_the_last_answered_write_and_no_older_one() {
    let mut o = oracle();
    let a = write(&mut o, false, 10, 12);
    let b = write(&mut o, false, 14, 16);
    assert!(reads(&mut o, a, 13) && reads(&mut o, b, 13), "a read that overlaps may see both");
    assert!(!reads(&mut o, a, 18), "stale");
    assert!(!reads(&mut o, 0, 18), "lost");
    assert!(reads(&mut o, b, 18));
}

#[test]
fn data_of_another_place_is_wrong() {
    let mut o = oracle();
    let a = write(&mut o, false, 10, 12);
    let other = data(&o, B, a, B);
    assert!(o.check(0, 0, &other, 14).is_err());
}

#[test]
fn unflushed_writes_may_be_lost_sector_by_sector_and_then_stay_so() {
    let mut o = oracle();
    let a = write(&mut o, false, 10, 12);
    o.crash(Crash::Power, 20);
    let mut torn = BufMut::zeroed(B as usize);
    o.fill(0, SECTOR_BYTES, a, &mut torn[SECTOR..3 * SECTOR]);
    let torn: Pieces = smallvec![Piece::Data(torn.freeze())];
    assert!(o.check(0, 0, &torn, 22).is_ok(), "torn at sectors");
    assert!(!reads(&mut o, a, 24), "what was lost cannot come back");
    o.crash(Crash::Power, 30);
    assert!(o.check(0, 0, &torn, 32).is_ok() && !reads(&mut o, 0, 34));
}

#[test]
fn flushed_and_fua_writes_survive() {
    let mut o = oracle();
    let a = write(&mut o, false, 10, 12);
    o.flushed(0, 14, 15);
    let b = write(&mut o, false, 18, 20);
    o.crash(Crash::Power, 30);
    assert!(!reads(&mut o, 0, 32), "flushed, must survive");
    assert!(reads(&mut o, b, 32) && !reads(&mut o, a, 34));

    let mut o = oracle();
    let a = write(&mut o, true, 10, 12);
    o.crash(Crash::Daemon, 20);
    assert!(!reads(&mut o, 0, 22) && reads(&mut o, a, 24));
}

#[test]
fn what_outlives_the_daemon_may_be_lost_by_a_power_cut_only() {
    let outliving = |o: &mut Oracle| {
        let id = o.write_id();
        let w = o.issue(0, 0, B, Value::write(id), Promise::OutlivesDaemon, 10);
        o.answered(w, 12);
        id
    };
    let mut o = oracle();
    let a = outliving(&mut o);
    o.crash(Crash::Daemon, 20);
    assert!(!reads(&mut o, 0, 22), "lost by the death of the daemon");
    assert!(reads(&mut o, a, 22));
    o.crash(Crash::Daemon, 26);
    assert!(!reads(&mut o, 0, 28) && reads(&mut o, a, 28), "nor by the next");
    o.crash(Crash::Power, 30);
    assert!(reads(&mut o, 0, 32), "never flushed");

    let mut o = oracle();
    outliving(&mut o);
    o.sync_failed();
    o.crash(Crash::Daemon, 20);
    assert!(reads(&mut o, 0, 22), "the device has lost it");
}

#[test]
fn a_flush_issued_before_the_answer_promises_nothing() {
    let mut o = oracle();
    write(&mut o, false, 10, 16);
    o.flushed(0, 14, 15);
    o.crash(Crash::Power, 30);
    assert!(reads(&mut o, 0, 32));
}

#[test]
fn after_a_daemon_death_the_cache_may_still_be_lost_until_a_flush() {
    let mut o = oracle();
    let a = write(&mut o, false, 10, 12);
    o.crash(Crash::Daemon, 20);
    assert!(reads(&mut o, a, 22));
    assert!(!reads(&mut o, 0, 24), "no flip-flop in one life");
    o.crash(Crash::Power, 30);
    assert!(reads(&mut o, 0, 32), "never flushed");

    let mut o = oracle();
    let a = write(&mut o, false, 10, 12);
    o.crash(Crash::Daemon, 20);
    assert!(reads(&mut o, a, 22));
    o.flushed(0, 24, 25);
    o.crash(Crash::Power, 30);
    assert!(!reads(&mut o, 0, 32), "read, then flushed");
    assert!(reads(&mut o, a, 34));
}

#[test]
fn overlapping_writes_end_in_either_order_but_in_one() {
    let mut o = oracle();
    let (a, b) = (o.write_id(), o.write_id());
    let wa = o.issue(0, 0, B, Value::write(a), Promise::None, 10);
    let wb = o.issue(0, 0, B, Value::write(b), Promise::None, 12);
    o.answered(wa, 14);
    o.answered(wb, 16);
    assert!(reads(&mut o, a, 20));
    assert!(!reads(&mut o, b, 22));
    o.flushed(0, 24, 25);
    o.crash(Crash::Power, 30);
    assert!(!reads(&mut o, b, 32) && reads(&mut o, a, 34));
}

#[test]
fn failed_writes_may_be_either_and_late_ones_until_a_flush() {
    let mut o = oracle();
    let a = o.write_id();
    let w = o.issue(0, 0, B, Value::write(a), Promise::None, 10);
    o.failed(0, w, false, 12);
    o.flushed(0, 13, 14);
    assert!(reads(&mut o, 0, 14) && !reads(&mut o, a, 16), "it had not happened, so it never will");

    let mut o = oracle();
    let a = o.write_id();
    let w = o.issue(0, 0, B, Value::write(a), Promise::None, 10);
    o.failed(0, w, true, 12);
    assert!(reads(&mut o, 0, 13) && reads(&mut o, a, 14), "landed late");
    o.flushed(0, 16, 17);
    assert!(reads(&mut o, a, 18) && !reads(&mut o, 0, 20), "settled");

    let mut o = oracle();
    let a = o.write_id();
    let w = o.issue(0, 0, B, Value::write(a), Promise::None, 10);
    o.failed(0, w, true, 12);
    o.read_begins(14);
    o.flushed(0, 16, 20);
    assert!(reads(&mut o, 0, 14), "it looked before the flush that had it land");
    o.read_ends(14);
    assert!(reads(&mut o, a, 22) && !reads(&mut o, 0, 24), "which only a later one settles");

    let mut o = oracle();
    let a = o.write_id();
    let w = o.issue(0, 0, B, Value::write(a), Promise::None, 10);
    o.failed(0, w, true, 12);
    let b = write(&mut o, false, 14, 16);
    assert!(reads(&mut o, b, 18) && !reads(&mut o, a, 20), "it must not land on a later write");
}

#[test]
fn bytes_inside_a_sector_are_patched() {
    let mut o = oracle();
    let a = write(&mut o, false, 10, 12);
    let b = o.write_id();
    let w = o.issue(0, 100, 1000, Value::write(b), Promise::None, 14);
    o.answered(w, 16);
    let mut want = BufMut::new(B as usize);
    o.fill(0, 0, a, &mut want);
    let mut patch = vec![0; 1000];
    o.fill(0, 100, b, &mut patch);
    want[100..1100].copy_from_slice(&patch);
    let slice = want[90..200].to_vec();
    let pieces: Pieces = smallvec![Piece::Data(want.freeze())];
    assert!(o.check(0, 0, &pieces, 18).is_ok());
    assert!(!reads(&mut o, a, 20));
    let odd: Pieces = smallvec![Piece::Data(BufMut::copy_of(&slice).freeze())];
    assert!(o.check(0, 90, &odd, 22).is_ok());
    assert!(o.check(0, 91, &odd, 24).is_err(), "shifted by one byte");
}

#[test]
fn trimmed_blocks_read_zeros() {
    let mut o = oracle();
    let a = write(&mut o, true, 10, 12);
    let t = o.issue(0, 0, B, Value::ZERO, Promise::None, 14);
    o.answered(t, 16);
    assert!(!reads(&mut o, a, 18) && reads(&mut o, 0, 20));
    o.crash(Crash::Power, 30);
    assert!(reads(&mut o, a, 32), "an unflushed trim may be lost");
}

#[test]
fn after_a_failed_sync_anything_not_durable_may_show_its_old_value() {
    let mut o = oracle();
    let a = write(&mut o, true, 10, 12);
    let b = write(&mut o, false, 14, 16);
    o.sync_failed();
    assert!(reads(&mut o, a, 18) && reads(&mut o, b, 20) && !reads(&mut o, 0, 22));
}

//! Requests and bytes in flight (I10).
//!
//! Each volume has a little room of its own. What finds none there takes room that all share: so requests which hang on one disk keep
//! no volume waiting that has nothing on it. A request that is longer than its volume's own room goes there alone, if what all share is
//! not to be had: whatever comes behind it in its volume waits for it, and would else wait for that disk.
//!
//! Invariants:
//! 1. Requests of one volume, and of all those that want shared room, are let in in the order in which they came. Counter-example
//!    without: of a long one and many short ones, there is always room for one more of the short ones.
//! 2. Nobody who was let in asks to be let in again: it would stand behind those who wait for its room.
//! 3. Somebody stands in line only while somebody has shared room.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use smallvec::SmallVec;

use crate::line::{Line, Place};
use crate::mutant::{self, Mutant};
use crate::wait::Signal;

/// A volume's own room is this part of the room that all share.
const OWN: u64 = 256;

/// See the head of this file.
pub(crate) struct RequestGate {
    limit: u64,
    /// Bytes in flight that are in no volume's own room.
    shared: Cell<u64>,
    /// Requests in flight.
    count: Cell<u64>,
    line: RefCell<Line<Rc<Wish>>>,
    /// Nothing is in flight.
    empty: Signal,
}

/// Bytes in flight in the room of one volume.
#[derive(Default)]
pub(crate) struct OwnRoom(Cell<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Own,
    Shared,
}

/// Of one who waits.
struct Wish {
    own: Rc<OwnRoom>,
    len: u64,
    /// What was given.
    room: Cell<Room>,
}

/// A request that was let in, or waits for it; leaves when dropped.
pub(crate) struct Admitted<'a> {
    gate: &'a RequestGate,
    own: &'a OwnRoom,
    len: u64,
    room: Room,
    /// While it waits.
    place: Option<Rc<Place<Rc<Wish>>>>,
}

impl RequestGate {
    /// So many bytes may be in flight, and a little more for each volume: its own room, or one long request.
    pub(crate) fn new(limit: u64) -> RequestGate {
        RequestGate {
            limit,
            shared: Cell::default(),
            count: Cell::default(),
            line: RefCell::default(),
            empty: Signal::default(),
        }
    }

    /// Waits until `len` more bytes of the volume with this room of its own may be in flight. One request of each volume is always let in.
    pub(crate) async fn enter<'a>(&'a self, own: &'a Rc<OwnRoom>, len: u64) -> Admitted<'a> {
        if let Some(room) = self.let_in_now(own, len) {
            return Admitted { gate: self, own, len, room, place: None };
        }
        let wish = Rc::new(Wish { own: own.clone(), len, room: Cell::new(Room::Shared) });
        let place = self.line.borrow_mut().stand(wish.clone());
        let mut admitted = Admitted { gate: self, own, len, room: Room::Shared, place: Some(place.clone()) };
        place.called().await;
        admitted.place = None;
        admitted.room = wish.room.get();
        admitted
    }

    /// Counts in one who has just come, if there is room for it and nobody was there before.
    fn let_in_now(&self, own: &Rc<OwnRoom>, len: u64) -> Option<Room> {
        let line = self.line.borrow();
        let first = line.is_empty();
        let first_of_volume = first || !line.all().any(|wish| Rc::ptr_eq(&wish.own, own));
        first_of_volume.then(|| self.let_in(own, len, first)).flatten()
    }

    /// Counts a request in if there is room for it: of what all share only if it `may_share`.
    fn let_in(&self, own: &OwnRoom, len: u64, may_share: bool) -> Option<Room> {
        let shared = self.shared.get();
        let alone = own.0.get() == 0 && !mutant::on(Mutant::LongAsksAll);
        let room = if own.0.get() + len <= self.limit / OWN {
            Room::Own
        } else if may_share && (shared == 0 || shared + len <= self.limit) {
            Room::Shared
        } else if alone {
            Room::Own
        } else {
            return None;
        };
        let taken = self.taken(own, room);
        taken.set(taken.get() + len);
        self.count.set(self.count.get() + 1);
        Some(room)
    }

    fn taken<'a>(&'a self, own: &'a OwnRoom, room: Room) -> &'a Cell<u64> {
        match room {
            Room::Own => &own.0,
            Room::Shared => &self.shared,
        }
    }

    /// Lets in those who wait, as many as there is room for.
    fn hand_on(&self) {
        while self.hand_to_one() {}
        if self.count.get() == 0 {
            debug_assert!(self.line.borrow().is_empty(), "invariant 3");
            self.empty.notify();
        }
    }

    /// Lets in the first in line who may be.
    fn hand_to_one(&self) -> bool {
        // Of these volumes one waits on. Whoever is behind it in line gets nothing that is shared.
        let mut waiting: SmallVec<[Rc<OwnRoom>; 4]> = SmallVec::new();
        let called = self.line.borrow_mut().call_any(|wish| {
            let in_turn = !waiting.iter().any(|own| Rc::ptr_eq(own, &wish.own));
            let room = in_turn.then(|| self.let_in(&wish.own, wish.len, waiting.is_empty())).flatten();
            match room {
                Some(room) => wish.room.set(room),
                None if in_turn => waiting.push(wish.own.clone()),
                None => {}
            }
            room.is_some()
        });
        if let Some(place) = &called {
            place.wake();
        }
        called.is_some()
    }

    /// Waits until no request is in flight, and none waits.
    pub(crate) async fn drained(&self) {
        while self.count.get() > 0 {
            self.empty.wait().await;
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let gate = self.gate;
        let given_up = self.place.take().is_some_and(|place| {
            self.room = place.wants().room.get();
            gate.line.borrow_mut().leave(&place)
        });
        if !given_up {
            let taken = gate.taken(self.own, self.room);
            taken.set(taken.get() - self.len);
            gate.count.set(gate.count.get() - 1);
        }
        gate.hand_on();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Wait<'a> = Pin<Box<dyn Future<Output = Admitted<'a>> + 'a>>;

    fn look<'a>(wait: &mut Wait<'a>) -> Option<Admitted<'a>> {
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(admitted) => Some(admitted),
            Poll::Pending => None,
        }
    }

    fn enter<'a>(gate: &'a RequestGate, own: &'a Rc<OwnRoom>, len: u64) -> (Wait<'a>, Option<Admitted<'a>>) {
        let mut wait: Wait<'_> = Box::pin(gate.enter(own, len));
        let admitted = look(&mut wait);
        (wait, admitted)
    }

    fn assert_idle(gate: &RequestGate, rooms: &[&Rc<OwnRoom>]) {
        assert_eq!((gate.shared.get(), gate.count.get()), (0, 0));
        assert!(rooms.iter().all(|own| own.0.get() == 0));
    }

    /// Ten bytes that all share, and a volume whose own room is taken all the while.
    fn shared_only() -> (RequestGate, Rc<OwnRoom>) {
        (RequestGate::new(10), taken())
    }

    fn taken() -> Rc<OwnRoom> {
        Rc::new(OwnRoom(Cell::new(1)))
    }

    fn assert_shared_idle(gate: &RequestGate, rooms: &[&Rc<OwnRoom>]) {
        rooms.iter().for_each(|own| own.0.set(own.0.get() - 1));
        assert_idle(gate, rooms);
    }

    #[test]
    fn a_long_one_stands_before_short_ones_that_came_later() {
        let (gate, own) = shared_only();
        let [one, other] = [4, 4].map(|len| enter(&gate, &own, len).1.expect("there is room"));
        let (mut long, waits) = enter(&gate, &own, 8);
        let another = taken();
        let (mut short, behind) = enter(&gate, &another, 2);
        assert!(waits.is_none() && behind.is_none());
        drop(one);
        assert!(look(&mut short).is_none(), "there would be room for it");
        drop(other);
        drop((look(&mut long).expect("its turn"), look(&mut short).expect("beside the long one")));
        assert_shared_idle(&gate, &[&own, &another]);
    }

    #[test]
    fn one_that_is_larger_than_all_room_goes_alone() {
        let (gate, own) = shared_only();
        let one = enter(&gate, &own, 1).1.expect("there is room");
        let (mut huge, waits) = enter(&gate, &own, 100);
        assert!(waits.is_none());
        drop(one);
        let huge = look(&mut huge).expect("its turn");
        let (mut next, waits) = enter(&gate, &own, 1);
        assert!(waits.is_none());
        drop(huge);
        drop(look(&mut next).expect("its turn"));
        assert_shared_idle(&gate, &[&own]);
    }

    #[test]
    fn a_wait_that_is_given_up_holds_up_nobody() {
        let (gate, own) = shared_only();
        let one = enter(&gate, &own, 8).1.expect("there is room");
        let long = enter(&gate, &own, 8).0;
        let mut short = enter(&gate, &own, 2).0;
        drop(long);
        let short = look(&mut short).expect("nobody else waits");
        let called = enter(&gate, &own, 8).0;
        drop(one);
        // It was called, and did not look.
        drop((called, short));
        assert_shared_idle(&gate, &[&own]);
    }

    /// Room for 10 bytes of each volume, and 2560 that all share.
    fn with_own() -> RequestGate {
        RequestGate::new(10 * OWN)
    }

    #[test]
    fn a_volumes_own_room_is_had_beside_what_hangs_on_another() {
        let (gate, hung, other) = (with_own(), Rc::default(), Rc::default());
        let hang = enter(&gate, &hung, 2555).1.expect("there is room");
        let one = enter(&gate, &other, 7).1.expect("of its own");
        let own = enter(&gate, &hung, 1).1.expect("there is no other");
        let mut behind = enter(&gate, &hung, 20).0;
        let (mut long, waits) = enter(&gate, &other, 8);
        let (mut short, too) = enter(&gate, &other, 3);
        assert!(
            look(&mut behind).is_none() && waits.is_none() && too.is_none(),
            "the volume's requests keep their order"
        );
        drop(one);
        let long = look(&mut long).expect("its own room is free");
        assert!(look(&mut short).is_none());
        drop(long);
        drop(look(&mut short).expect("its turn"));
        drop(enter(&gate, &other, 10).1.expect("nobody of its volume waits"));
        drop(hang);
        drop((look(&mut behind).expect("its turn"), own));
        assert_idle(&gate, &[&hung, &other]);
    }

    #[test]
    fn one_that_is_longer_than_its_volumes_room_goes_there_alone() {
        let (gate, hung, other) = (with_own(), Rc::default(), Rc::default());
        let hang = enter(&gate, &hung, 2555).1.expect("there is room");
        let one = enter(&gate, &other, 7).1.expect("of its own");
        let (mut long, waits) = enter(&gate, &other, 500);
        let (mut short, too) = enter(&gate, &other, 8);
        assert!(waits.is_none() && too.is_none());
        drop(one);
        let long = look(&mut long).expect("nothing else of its volume is under way");
        assert!(look(&mut short).is_none(), "its volume has all its room, and more");
        drop(long);
        drop((look(&mut short).expect("its turn"), hang));
        let long = enter(&gate, &other, 500).1.expect("there is room that all share");
        drop((enter(&gate, &other, 10).1.expect("beside it"), long));
        assert_idle(&gate, &[&hung, &other]);
    }

    #[test]
    fn who_was_called_into_its_own_room_and_gives_up_gives_that_back() {
        let (gate, hung, other) = (with_own(), Rc::default(), Rc::default());
        let hang = enter(&gate, &hung, 2560).1.expect("there is room");
        let one = enter(&gate, &other, 10).1.expect("of its own");
        let called = enter(&gate, &other, 4).0;
        drop(one);
        assert_eq!(other.0.get(), 4);
        drop(called);
        assert_eq!(other.0.get(), 0);
        drop(hang);
        assert_idle(&gate, &[&hung, &other]);
    }
}

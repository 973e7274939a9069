//! The members of an open group, by index. It grows while references to members are held across awaits; no member ever
//! moves in memory. One that has left the group keeps its place, but is none of them any more.

use std::cell::OnceCell;
use std::ops::Index;

use bimetal_format::label::MAX_MEMBERS;

use super::Member;
use crate::env::Device;

type Place<D> = OnceCell<Box<Member<D>>>;

/// Members of a group. See the head of this file.
pub(crate) struct Members<D: Device>(Box<[Place<D>]>);

impl<D: Device> Members<D> {
    /// These, in the order of their indexes.
    pub(crate) fn new(members: Vec<Member<D>>) -> Members<D> {
        let all = Members((0..MAX_MEMBERS).map(|_| OnceCell::new()).collect());
        members.into_iter().for_each(|m| all.push(m));
        all
    }

    /// Adds the member with the next index. Whoever makes one has checked that there is a row for it.
    pub(crate) fn push(&self, member: Member<D>) {
        let at = member.index as usize;
        debug_assert_eq!(at, self.len());
        let fresh = self.0[at].set(Box::new(member)).is_ok();
        debug_assert!(fresh, "an index is used once");
    }

    /// All of them, by index; missing ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member<D>> + Clone {
        self.rows().filter(|m| !m.is_gone())
    }

    /// The same with those that have left: the n-th has index n.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Member<D>> + Clone {
        self.0.iter().map_while(|m| m.get().map(|m| &**m))
    }

    /// How many indexes are in use, those of members that have left included.
    pub(crate) fn len(&self) -> usize {
        self.rows().count()
    }

    /// The member with this index.
    pub(crate) fn get(&self, index: usize) -> Option<&Member<D>> {
        self.0.get(index)?.get().map(|m| &**m)
    }
}

impl<D: Device> Index<usize> for Members<D> {
    type Output = Member<D>;

    fn index(&self, index: usize) -> &Member<D> {
        self.get(index).expect("an index of a member")
    }
}

//! What is damaged on a member is written anew, from memory.

use super::Damaged;
use crate::env::Env;
use crate::error::Error;
use crate::group::core::Core;
use crate::member::directory::Directory;
use crate::member::Member;
use crate::mutant::{self, Mutant};

impl Damaged {
    /// A block of the directory is damaged, or the root: a page that it names, written anew, has it written with it.
    pub(super) fn note_directory(&mut self, directory: &Directory, block: Option<usize>) {
        let named = directory.pages.rows().map(|(page, _)| page as u32);
        let mut of_block = named.filter(|page| block.is_none_or(|b| crate::member::directory::block_of(*page) == b));
        self.pages.extend(of_block.next());
        self.rest = true;
    }
}

impl<E: Env> Core<E> {
    /// A checkpoint of `m` that takes these pages for changed: it writes them to their other sides, with the directory, both
    /// labels, and a tail of the journal beyond all that is on the ring.
    pub(super) async fn write_anew(&self, m: &Member<E::Device>, damaged: Damaged) -> Result<(), Error> {
        let _meta = m.meta.lock().await;
        for page in damaged.pages.into_iter().filter(|_| !mutant::on(Mutant::MendSkipsPages)) {
            m.directory.borrow_mut().forget_generation(page);
        }
        self.checkpoint_locked(m, false).await
    }
}

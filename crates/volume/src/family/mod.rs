//! Families: volumes whose content is encrypted under keys that come from one, the family's.
//!
//! Terms: the *key* of a family is 32 random bytes that only the owner of a passphrase can get at, from the family's
//! *header* (LUKS2, opaque to the engine, which keeps it on every member). A family is *unlocked* while its key is here,
//! else *locked*. The key of each volume comes from the family's and from the volume's UUID. A block is encrypted alone,
//! by its number in the volume: so moves between slots and members copy ciphertext, and need no key.
//! A volume that has held *plaintext* and was given a family later is being *encrypted*, see [`convert`] and [`wipe`].
//!
//! Invariants:
//! 1. What is written to a volume that has a family reaches members as ciphertext only. (A request that was let in when it
//!    had none may still overwrite plaintext by plaintext.)
//! 2. An entry tells by its flag whether the blocks of its chunk are ciphertext, all of them or none. The flag changes
//!    only together with the slot, or where no block is valid. So content and flag become durable together (I3).
//! 3. A chunk of a volume without a family is plaintext. One of a volume that has one is ciphertext, or the volume is
//!    still being encrypted.
//! 4. Of a locked family nothing is read or written, and no key is in memory. Requests that were let in before are
//!    answered before the key goes; by force it goes at once, whatever waits for whom, and those fail that need it from then on. Nobody
//!    keeps a key across an await.
//! 5. Headers that labels name are durable on every member before the first label names them. Those that were replaced
//!    are overwritten, or it is said that they are not: what a passphrase opened that was taken away must not stay. No write to the keys
//!    zone that fails stops the group: nothing that counts is written there.
//! 6. A header that is damaged on a member and whole on another is written anew, in its place, by the next start or a check that
//!    mends; and no member leaves with the only whole one ([`headers`]).

pub(crate) mod cipher;
pub(crate) mod convert;
pub(crate) mod elsewhere;
pub(crate) mod headers;
pub mod lost;
pub(crate) mod wipe;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bimetal_crypt::{FamilyKey, VolumeKey};
use bimetal_format::label::{FamilyRow, Label, VolumeRow, VolumeState};

use self::wipe::Wiping;
use crate::env::Env;
use crate::group::core::Core;
use crate::mutant::{self, Mutant};
use crate::options::{Encrypting, FamilyStatus, VolumeStatus, Waiting};
use crate::wait::{Mutex, Signal};

/// The families of an open group.
pub(crate) struct Families {
    rows: RefCell<Vec<FamilyRow>>,
    /// Of those that are unlocked, by id.
    keys: RefCell<BTreeMap<u32, Rc<FamilyKey>>>,
    /// Held by whoever encrypts or decrypts without having been let in as a request.
    pub(crate) work: Mutex,
    /// There may be more to encrypt.
    pub(crate) wake: Signal,
    /// The task that encrypts runs; notified when it has ended, or what is adrift has.
    pub(crate) running: Cell<bool>,
    pub(crate) ended: Signal,
    /// Something could not be encrypted or overwritten at the last try.
    pub(crate) failing: Cell<bool>,
    pub(crate) wiping: Wiping,
    have_been: Cell<bool>,
    /// Id of the family that is about to be locked; 0: none.
    pub(crate) locking: Cell<u32>,
    held: Cell<usize>,
    /// Slots that were given up while writes to them were under way.
    pub(crate) adrift: Cell<usize>,
}

/// See [`Families::hold`].
pub(crate) struct Held<'a>(&'a Cell<usize>, usize);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1);
    }
}

impl Families {
    pub(crate) fn new(label: &Label) -> Families {
        Families {
            rows: RefCell::new(label.families.clone()),
            keys: RefCell::default(),
            work: Mutex::default(),
            wake: Signal::default(),
            running: Cell::new(false),
            ended: Signal::default(),
            failing: Cell::new(false),
            wiping: Wiping::default(),
            have_been: Cell::new(label.next_family > 0),
            locking: Cell::new(0),
            held: Cell::new(0),
            adrift: Cell::new(0),
        }
    }

    /// Takes over a table that all labels hold.
    pub(crate) fn apply(&self, rows: &[FamilyRow]) {
        self.keys.borrow_mut().retain(|id, _| rows.iter().any(|f| f.id == *id));
        *self.rows.borrow_mut() = rows.to_vec();
        self.have_been.set(true);
    }

    /// Whether the group has families, or has had some: members have keys zones.
    pub(crate) fn have_been(&self) -> bool {
        self.have_been.get()
    }

    /// Slots that were taken to encrypt or overwrite something, and are on their way to being free or in use, as are those that were
    /// given up: whoever needs one waits for them.
    pub(crate) fn held(&self) -> usize {
        self.held.get() + if mutant::on(Mutant::AdriftForgotten) { 0 } else { self.adrift.get() }
    }

    /// Counts slots as held until this is dropped.
    pub(crate) fn hold(&self, slots: usize) -> Held<'_> {
        self.held.set(self.held.get() + slots);
        Held(&self.held, slots)
    }

    /// The family of this name.
    pub(crate) fn find(&self, name: &str) -> Option<FamilyRow> {
        self.rows.borrow().iter().find(|f| f.name == name).cloned()
    }

    pub(crate) fn is_unlocked(&self, id: u32) -> bool {
        self.keys.borrow().contains_key(&id) && self.locking.get() != id
    }

    pub(crate) fn put_key(&self, id: u32, key: FamilyKey) {
        self.keys.borrow_mut().insert(id, Rc::new(key));
    }

    /// Whether the table has a family.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.rows.borrow().iter().any(|f| f.id == id)
    }

    pub(crate) fn forget_key(&self, id: u32) {
        self.keys.borrow_mut().remove(&id);
    }
}

/// What a volume is encrypted with.
pub(crate) struct Cipher {
    /// Id of its family, 0 if it has none.
    family: Cell<u32>,
    /// It has held plaintext, and slots may still do.
    encrypting: Cell<bool>,
    key: RefCell<Option<Rc<VolumeKey>>>,
    /// Its family is about to be locked: no request is let in.
    locking: Cell<bool>,
    /// Chunks of it that hold plaintext though it has a family, when they were last counted.
    plain: Cell<u64>,
}

impl Cipher {
    pub(crate) fn of(row: &VolumeRow) -> Cipher {
        Cipher {
            family: Cell::new(row.family),
            encrypting: Cell::new(row.state == VolumeState::Encrypting),
            key: RefCell::default(),
            locking: Cell::new(false),
            plain: Cell::new(0),
        }
    }

    pub(crate) fn update(&self, row: &VolumeRow) {
        self.family.set(row.family);
        self.encrypting.set(row.state == VolumeState::Encrypting);
    }

    /// Id of its family, 0 if it has none.
    pub(crate) fn family(&self) -> u32 {
        self.family.get()
    }

    /// Whether it has a family: what is written is encrypted.
    pub(crate) fn is_on(&self) -> bool {
        self.family.get() != 0
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.is_on() && (self.locking.get() || self.key.borrow().is_none())
    }

    /// Whether it has held plaintext that slots may still hold.
    pub(crate) fn is_encrypting(&self) -> bool {
        self.encrypting.get()
    }

    /// Its key leaves memory when the last request that makes use of it has ended.
    pub(crate) fn forget_key(&self) {
        self.key.borrow_mut().take();
    }

    /// Its key, while its family is unlocked.
    pub(crate) fn key(&self) -> Option<Rc<VolumeKey>> {
        self.key.borrow().clone()
    }
}

impl<E: Env> Core<E> {
    /// Gives the volumes of unlocked families their keys.
    pub(crate) fn give_keys(&self) {
        let keys = self.families.keys.borrow();
        for v in self.volumes.all().iter() {
            let c = &v.cipher;
            let missing = c.key.borrow().is_none() && !c.locking.get();
            if let Some(key) = keys.get(&c.family.get()).filter(|_| missing) {
                *c.key.borrow_mut() = Some(Rc::new(key.volume_key(&v.uuid)));
            }
        }
    }

    /// Locks a family (invariant 4). Whoever waits for it may give up: it is locked all the same.
    pub(crate) async fn lock_volumes_of(&self, id: u32) {
        let all = self.volumes.all();
        let own = || all.iter().filter(|v| v.cipher.family.get() == id);
        self.families.locking.set(id);
        own().for_each(|v| v.cipher.locking.set(true));
        for v in own() {
            v.drained().await;
        }
        let _nobody = self.families.work.lock().await;
        self.families.forget_key(id);
        for v in own() {
            v.cipher.forget_key();
            v.cipher.locking.set(false);
        }
        self.families.locking.set(0);
        crate::buf::wipe_recycled();
    }

    /// Forgets the keys of a family in this very step. Requests that were let in, and whoever encrypts, find none from now on.
    pub(crate) fn forget_keys_of(&self, id: u32) {
        self.families.forget_key(id);
        let all = self.volumes.all();
        all.iter().filter(|v| v.cipher.family.get() == id).for_each(|v| v.cipher.forget_key());
        crate::buf::wipe_recycled();
    }

    /// Waits for the requests on volumes of a family whose keys are forgotten, unless it is unlocked meanwhile, and overwrites the memory
    /// that they have left.
    pub(crate) async fn locked_requests_ended(&self, id: u32) {
        let all = self.volumes.all();
        for v in all.iter().filter(|v| v.cipher.family.get() == id) {
            v.idle_or(|| !v.cipher.is_locked()).await;
        }
        let _nobody = self.families.work.lock().await;
        crate::buf::wipe_recycled();
    }

    /// The name of the family with this id.
    fn name_of_family(&self, id: u32) -> Option<String> {
        let rows = self.families.rows.borrow();
        (id != 0).then(|| rows.iter().find(|f| f.id == id).map_or_else(|| format!("#{id}"), |f| f.name.clone()))
    }

    /// What `status` tells of the families.
    pub(crate) fn family_status(&self) -> Vec<FamilyStatus> {
        let status = |f: &FamilyRow| FamilyStatus {
            name: f.name.clone(),
            uuid: f.uuid,
            unlocked: self.families.is_unlocked(f.id),
            header: f.stored_len() as u64,
        };
        self.families.rows.borrow().iter().map(status).collect()
    }

    /// Adds to a volume's status what concerns its family.
    pub(crate) fn add_cipher_status(&self, c: &Cipher, status: &mut VolumeStatus) {
        status.family = self.name_of_family(c.family.get());
        status.locked = c.is_locked();
        let waits_for = match (c.is_locked(), self.families.failing.get()) {
            (true, _) => Some(Waiting::Locked),
            (_, true) => Some(Waiting::Failing),
            _ => None,
        };
        let plain_chunks = c.plain.get();
        let slots_to_wipe = self.families.wiping.left();
        status.encrypting = c.is_encrypting().then_some(Encrypting { plain_chunks, slots_to_wipe, waits_for });
    }
}

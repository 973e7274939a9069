//! The whole life of a header.

use super::*;

const UUID: &str = "6d1f0c2e-5a3b-4c77-9e10-2b4d8f60a1c3";
const ONE: &[u8] = b"the first passphrase";
const TWO: &[u8] = b"the second one\0\xff";
const KEY: [u8; KEY_BYTES] = *b"0123456789abcdef0123456789ABCDEF";

/// The library, or a word that there is none.
pub(super) fn luks() -> Option<Luks> {
    match Luks::load() {
        Ok(luks) => Some(luks),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// A header for [`ONE`].
pub(super) fn header(luks: Luks, slots: u32) -> Header {
    luks.format(UUID, "photos", &KEY, slots, ONE, Cost::Light).expect("made")
}

#[track_caller]
fn opens(luks: Luks, header: &Header, passphrase: &[u8], slot: u32) {
    let unlocked = luks.unlock(header, passphrase).expect("unlocks");
    assert_eq!((*unlocked.key.as_bytes(), unlocked.slot), (KEY, slot));
    assert!(unlocked.repaired.is_none());
}

#[track_caller]
fn refused(result: Result<Unlocked, LuksError>) -> LuksError {
    result.expect_err("does not unlock")
}

#[test]
fn a_header_unlocks_and_says_what_it_is() {
    let Some(luks) = luks() else { return };
    let header = header(luks, 4);
    assert_eq!(header.as_bytes().len() as u64, Header::size_for(4));
    assert_eq!(header.as_bytes().len(), 32768 + 4 * 131072);
    assert!(header.as_bytes()[32768 + 131072..].iter().all(|b| *b == 0), "slots that are not there take room");
    opens(luks, &header, ONE, 0);
    let info = luks.check(header.as_bytes()).expect("good");
    assert_eq!((info.uuid.as_str(), info.label.as_str()), (UUID, "photos"));
    assert_eq!((info.ours, info.max_slots, info.repaired), (true, 4, false));
    assert_eq!(info.header, header);
    let [slot] = &info.slots[..] else { panic!("{:?}", info.slots) };
    assert_eq!((slot.number, slot.kind.as_str(), slot.opens, slot.key_bytes), (0, "luks2", true, 32));
    assert_eq!((slot.pbkdf.as_str(), slot.memory_kib, slot.iterations), ("argon2id", Some(32), 4));
    assert_eq!((slot.priority, &slot.token), (Priority::Normal, &None));
    assert!(!header.as_bytes().windows(KEY_BYTES).any(|w| w == KEY), "the key lies in the open");
}

#[test]
fn headers_of_the_smallest_and_the_largest_size_work() {
    let Some(luks) = luks() else { return };
    for slots in [1, MAX_SLOTS] {
        let header = header(luks, slots);
        assert_eq!(header.as_bytes().len() as u64, Header::size_for(slots));
        opens(luks, &header, ONE, 0);
    }
}

#[test]
fn a_wrong_passphrase_is_told_apart() {
    let Some(luks) = luks() else { return };
    let header = header(luks, 2);
    for wrong in [TWO, b"", b"the first passphrase\n"] {
        let error = refused(luks.unlock(&header, wrong));
        assert!(matches!(error, LuksError::WrongPassphrase { slots: 1 }), "{error}");
    }
    for error in [
        luks.add_passphrase(&header, TWO, b"x", Cost::Light).expect_err("wrong"),
        luks.change_passphrase(&header, TWO, b"x", Cost::Light).expect_err("wrong"),
        luks.remove_passphrase(&header, TWO, false).expect_err("wrong"),
    ] {
        assert!(matches!(error, LuksError::WrongPassphrase { .. }), "{error}");
    }
}

#[test]
fn passphrases_are_added_until_there_is_no_room() {
    let Some(luks) = luks() else { return };
    let header = header(luks, 2);
    let two = luks.add_passphrase(&header, ONE, TWO, Cost::Light).expect("added");
    assert_eq!(two.as_bytes().len(), header.as_bytes().len());
    opens(luks, &two, ONE, 0);
    opens(luks, &two, TWO, 1);
    let error = luks.add_passphrase(&two, TWO, b"three", Cost::Light).expect_err("full");
    assert!(matches!(error, LuksError::Full { slots: 2 }), "{error}");
    // What was given is as it was.
    refused(luks.unlock(&header, TWO));
    // Also without room to spare a passphrase can be changed.
    let changed = luks.change_passphrase(&two, ONE, b"three", Cost::Light).expect("changed");
    opens(luks, &changed, b"three", 0);
    opens(luks, &changed, TWO, 1);
    refused(luks.unlock(&changed, ONE));
}

#[test]
fn a_changed_passphrase_keeps_its_slot() {
    let Some(luks) = luks() else { return };
    let header = luks.add_passphrase(&header(luks, 3), ONE, TWO, Cost::Light).expect("added");
    let changed = luks.change_passphrase(&header, ONE, b"three", Cost::Light).expect("changed");
    opens(luks, &changed, b"three", 0);
    opens(luks, &changed, TWO, 1);
    refused(luks.unlock(&changed, ONE));
    assert_eq!(luks.slots(&changed).expect("listed").len(), 2);
}

#[test]
fn the_last_slot_that_people_know_is_removed_only_by_force() {
    let Some(luks) = luks() else { return };
    let both = luks.add_passphrase(&header(luks, 3), ONE, TWO, Cost::Light).expect("added");
    let enrolled = |kind: &str| {
        let opened = Opened::open(luks.library, &both.0).expect("opened");
        let token = CString::new(format!(r#"{{"type":"{kind}","keyslots":["1"]}}"#)).expect("text");
        opened.context.set_token(None, Some(&token)).expect("set");
        opened.header().expect("read")
    };
    for kind in ["systemd-tpm2", "systemd-fido2", "somebody-elses"] {
        let header = enrolled(kind);
        let error = luks.remove_slot(&header, 0, false).expect_err("nobody knows the other");
        assert!(matches!(error, LuksError::LastSlot { number: 0 }), "{error}");
        luks.remove_slot(&header, 1, false).expect("nobody needs it");
        luks.remove_slot(&header, 0, true).expect("forced");
    }
    luks.remove_slot(&enrolled("systemd-recovery"), 0, false).expect("the recovery key is left");
}

#[test]
fn the_last_slot_is_removed_only_by_force() {
    let Some(luks) = luks() else { return };
    let both = luks.add_passphrase(&header(luks, 2), ONE, TWO, Cost::Light).expect("added");
    let error = luks.remove_slot(&both, 7, true).expect_err("not there");
    assert!(matches!(error, LuksError::NoSuchSlot { number: 7 }), "{error}");
    let second = luks.remove_slot(&both, 0, false).expect("removed");
    refused(luks.unlock(&second, ONE));
    opens(luks, &second, TWO, 1);
    // What was removed is not only forgotten.
    let area = METADATA_BYTES as usize..(METADATA_BYTES + SLOT_BYTES) as usize;
    let same = std::iter::zip(&both.0[area.clone()], &second.0[area]).filter(|(a, b)| a == b).count();
    assert!(same < SLOT_BYTES as usize / 10, "{same} bytes are as they were");
    let area = METADATA_BYTES as usize..(METADATA_BYTES + SLOT_BYTES) as usize;
    assert!(second.0[area].iter().all(|b| *b == 0), "what is not used takes room");
    assert_eq!(luks.remove_passphrase(&both, ONE, false).expect("removed").as_bytes().len(), second.as_bytes().len());
    for error in [
        luks.remove_slot(&second, 1, false).expect_err("the last"),
        luks.remove_passphrase(&second, TWO, false).expect_err("the last"),
    ] {
        assert!(matches!(error, LuksError::LastSlot { number: 1 }), "{error}");
    }
    let none = luks.remove_slot(&second, 1, true).expect("forced");
    let error = refused(luks.unlock(&none, TWO));
    assert!(matches!(error, LuksError::NoSlots), "{error}");
    let info = luks.check(none.as_bytes()).expect("still a header");
    assert!(info.slots.is_empty() && info.ours);
}

#[test]
fn a_recovery_key_is_marked_until_it_is_changed() {
    let Some(luks) = luks() else { return };
    let key = recovery_key();
    let header = luks.add_recovery_key(&header(luks, 3), ONE, &key, Cost::Light).expect("added");
    let typed = recovery::normalize(&key.to_uppercase()).expect("one");
    opens(luks, &header, typed.as_bytes(), 1);
    let tokens = |header| luks.slots(header).expect("listed").into_iter().map(|s| s.token).collect::<Vec<_>>();
    assert_eq!(tokens(&header), [None, Some(RECOVERY_TOKEN.to_owned())]);
    let changed = luks.change_passphrase(&header, key.as_bytes(), TWO, Cost::Light).expect("changed");
    assert_eq!(tokens(&changed), [None, None]);
    let removed = luks.remove_slot(&header, 1, false).expect("removed");
    assert_eq!(tokens(&removed), [None]);
    // A slot that takes the place is no recovery key.
    let again = luks.add_passphrase(&removed, ONE, TWO, Cost::Light).expect("added");
    assert_eq!(tokens(&again), [None, None]);
}

#[test]
fn one_damaged_copy_is_made_anew() {
    let Some(luks) = luks() else { return };
    let header = header(luks, 2);
    let copies = [0..4096, 0..16384, 16384..32768, 5000..5001, 20000..20001];
    for damage in copies {
        let mut bytes = header.as_bytes().to_vec();
        bytes[damage.clone()].iter_mut().for_each(|b| *b = !*b);
        let unlocked = luks.unlock(&Header::from_bytes(bytes.clone()), ONE).expect("unlocks");
        assert_eq!(*unlocked.key.as_bytes(), KEY);
        opens(luks, &unlocked.repaired.expect("repaired"), ONE, 0);
        let info = luks.check(&bytes).expect("good");
        assert!(info.repaired, "{damage:?}");
        opens(luks, &info.header, ONE, 0);
        assert_eq!(info.label, "photos");
        let added = luks.add_passphrase(&Header::from_bytes(bytes), ONE, TWO, Cost::Light).expect("added");
        opens(luks, &added, TWO, 1);
    }
}

#[test]
fn something_else_over_the_first_copy_does_not_stop_the_second() {
    let Some(luks) = luks() else { return };
    let mut bytes = header(luks, 1).into_bytes();
    // As of a swap area, by which libcryptsetup alone would be stopped: it asks blkid what lies there.
    bytes[..4096].fill(0);
    bytes[4086..4096].copy_from_slice(b"SWAPSPACE2");
    bytes[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    assert!(luks.unlock(&Header::from_bytes(bytes), ONE).expect("unlocks").repaired.is_some());
}

#[test]
fn what_is_no_whole_header_is_refused() {
    let Some(luks) = luks() else { return };
    let good = header(luks, 2).into_bytes();
    let mut both = good.clone();
    both[5000] ^= 1;
    both[20000] ^= 1;
    let error = luks.check(&both).expect_err("damaged");
    assert!(matches!(error, LuksError::Damaged { .. }), "{error}");
    both[..32768].fill(0);
    assert!(matches!(luks.check(&both), Err(LuksError::NotLuks)));
    for len in [0, 1, 511, 512, 4095, 4096, 4097] {
        let error = luks.check(&good[..len]).expect_err("cut");
        assert!(matches!(error, LuksError::NotLuks | LuksError::Damaged { .. }), "{len}: {error}");
    }
    for len in [16384, 30000, 32768, 32769, 200_000, good.len() - 1] {
        let error = luks.check(&good[..len]).expect_err("cut");
        assert!(matches!(error, LuksError::Damaged { .. }), "{len}: {error}");
    }
    let mut first = good.clone();
    first[6..8].copy_from_slice(&1u16.to_be_bytes());
    assert!(matches!(luks.check(&first), Err(LuksError::Luks1)));
    assert!(matches!(luks.check(&vec![0; MAX_BYTES + 1]), Err(LuksError::TooLarge { .. })));
}

#[test]
fn what_follows_a_header_is_cut_off() {
    let Some(luks) = luks() else { return };
    let header = header(luks, 2);
    let mut bytes = header.as_bytes().to_vec();
    bytes.resize(bytes.len() + 12345, 7);
    let info = luks.check(&bytes).expect("good");
    assert_eq!((info.header, info.repaired), (header, false));
}

#[test]
fn a_damaged_slot_spares_the_others() {
    let Some(luks) = luks() else { return };
    let mut bytes = luks.add_passphrase(&header(luks, 2), ONE, TWO, Cost::Light).expect("added").into_bytes();
    bytes[METADATA_BYTES as usize + 70_000] ^= 1;
    let header = Header::from_bytes(bytes);
    let error = refused(luks.unlock(&header, ONE));
    assert!(matches!(error, LuksError::WrongPassphrase { slots: 2 }), "{error}");
    opens(luks, &header, TWO, 1);
}

#[test]
fn nonsense_is_refused_before_anything_is_made() {
    let Some(luks) = luks() else { return };
    let make = |uuid: &str, label: &str, slots, pass: &[u8]| luks.format(uuid, label, &KEY, slots, pass, Cost::Light);
    assert!(matches!(make("photos", "", 1, ONE), Err(LuksError::Uuid { .. })));
    assert!(matches!(make(&UUID.replace('-', "+"), "", 1, ONE), Err(LuksError::Uuid { .. })));
    assert!(matches!(make(UUID, &"x".repeat(48), 1, ONE), Err(LuksError::Label { .. })));
    assert!(matches!(make(UUID, "a\0b", 1, ONE), Err(LuksError::Label { .. })));
    assert!(matches!(make(UUID, "", 0, ONE), Err(LuksError::Slots { asked: 0 })));
    assert!(matches!(make(UUID, "", 33, ONE), Err(LuksError::Slots { asked: 33 })));
    assert!(matches!(make(UUID, "", 1, b""), Err(LuksError::EmptyPassphrase)));
    let header = make(UUID, &"x".repeat(47), 2, ONE).expect("made");
    assert_eq!(luks.check(header.as_bytes()).expect("good").label.len(), 47);
    assert!(matches!(luks.add_passphrase(&header, ONE, b"", Cost::Light), Err(LuksError::EmptyPassphrase)));
    assert!(matches!(luks.change_passphrase(&header, ONE, b"", Cost::Light), Err(LuksError::EmptyPassphrase)));
}

#[test]
fn several_threads_take_turns() {
    let Some(luks) = luks() else { return };
    let header = header(luks, 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| opens(luks, &header, ONE, 0)));
        }
    });
}

#[test]
fn keys_are_not_printed() {
    let key = random_key();
    assert_ne!(key.as_bytes(), random_key().as_bytes());
    assert_eq!(format!("{key:?}"), "FamilyKey(..)");
}

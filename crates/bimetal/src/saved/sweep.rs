//! Writing back is cut off after every write and sync, and loses what was not synced: no moment leaves a group that mixes what
//! was saved with what was there, and doing it again completes it.

use bimetal_format::label::LABEL_SIZE;
use bimetal_volume::probe::probe;

use super::put::{put_back, Target};
use super::testing::{images, labels, now, put_label, Loss, Memory, Power};
use super::write::save_devices;
use super::{label_places, Mark, SavedFile, SavedMember};

/// A saved file, and what was saved.
struct Ground {
    _folder: tempfile::TempDir,
    file: SavedFile,
    saved: Vec<Vec<u8>>,
}

fn ground() -> Ground {
    let mut saved = images(2);
    // A flip that was cut off: the first place has an older label.
    let mut older = labels(2).remove(0);
    older.sequence -= 1;
    let first = label_places(older.device_size)[0];
    saved[0][first as usize..][..LABEL_SIZE].copy_from_slice(&older.encode(first));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let device = |image: &Vec<u8>| ("dev".to_string(), Memory::new(image.clone(), &Power::default()));
    let devices: Vec<(String, Memory)> = saved.iter().map(device).collect();
    now(save_devices([1; 16], 0, &devices, &path)).expect("saved");
    Ground { _folder: folder, file: SavedFile::open(&path).expect("sound"), saved }
}

/// The devices as a repair left them: other zones, and labels of another epoch; in the second place an older one.
fn repaired() -> Vec<Vec<u8>> {
    let image = |(mut image, mut label): (Vec<u8>, bimetal_format::label::Label)| {
        for zone in label.zones.iter().filter(|z| z.kind != bimetal_format::layout::ZoneKind::Slots) {
            let blocks = image[zone.offset as usize..][..zone.len as usize].chunks_mut(4096);
            blocks.enumerate().for_each(|(i, block)| block.fill(if i % 2 == 0 { 0xee } else { 0 }));
        }
        label.epoch.id = 1000;
        label.sequence = 19;
        put_label(&mut image, &label);
        label.sequence = 20;
        let first = label_places(label.device_size)[0];
        image[first as usize..][..LABEL_SIZE].copy_from_slice(&label.encode(first));
        image
    };
    images(2).into_iter().zip(labels(2)).map(image).collect()
}

fn targets(images: &[Vec<u8>], power: &Power) -> Vec<Target<Memory>> {
    let target = |(i, image): (usize, &Vec<u8>)| Target {
        locator: format!("dev{i}"),
        device: Memory::new(image.clone(), power),
        as_saved: false,
    };
    images.iter().enumerate().map(target).collect()
}

/// Whether all zones of a device hold this.
fn zones_are(member: &SavedMember, device: &Memory, image: &[u8]) -> bool {
    let content = device.content();
    let zones = member.extents.iter().filter(|e| !e.is_label());
    zones.map(|e| e.offset as usize..e.end() as usize).all(|range| content[range.clone()] == image[range])
}

/// A group is found only as it was saved, or as it was before.
fn judge(ground: &Ground, before: &[Vec<u8>], targets: &[Target<Memory>]) {
    for (t, member) in targets.iter().zip(&ground.file.members) {
        let Ok(label) = now(probe(&t.device)).expect("memory is read") else { continue };
        let whole = if label == member.label { &ground.saved } else { before };
        assert!(label == member.label || label.sequence == 20, "an older label must never count: {label:?}");
        for ((t, m), image) in targets.iter().zip(&ground.file.members).zip(whole) {
            assert!(
                zones_are(m, &t.device, image),
                "label {} of member {}, zones of {}",
                label.sequence,
                m.label.member,
                t.locator
            );
        }
    }
    for t in targets {
        let known = now(probe(&t.device)).expect("memory is read").is_ok() || now(Mark::of(&t.device)).is_some();
        assert!(known, "{} must always say which member it is", t.locator);
    }
}

#[test]
fn a_crash_after_any_step_leaves_no_mixture_and_doing_it_again_completes_it() {
    let ground = ground();
    let before = repaired();
    for loss in [Loss::Nothing, Loss::EverySecond, Loss::All] {
        for n in 0.. {
            let power = Power::default();
            let targets = targets(&before, &power);
            power.fails_after(n);
            let done = now(put_back(&ground.file, &targets, &[]));
            power.is_back();
            targets.iter().for_each(|t| t.device.loses(loss));
            judge(&ground, &before, &targets);
            if done.is_ok() {
                assert!(n > 10, "only {n} steps");
            } else {
                now(put_back(&ground.file, &targets, &[])).expect("completed");
                targets.iter().for_each(|t| t.device.loses(Loss::All));
            }
            let whole = targets.iter().zip(&ground.saved).all(|(t, image)| t.device.content() == *image);
            assert!(whole, "after {n} steps, {loss:?}");
            if done.is_ok() {
                break;
            }
        }
    }
}

#[test]
fn what_is_right_already_is_not_written_again() {
    let ground = ground();
    let targets = targets(&ground.saved, &Power::default());
    let written = now(put_back(&ground.file, &targets, &[])).expect("written");
    assert_eq!(written.changed_bytes, 2 * 2 * LABEL_SIZE as u64, "the labels");
    assert!(targets.iter().zip(&ground.saved).all(|(t, image)| t.device.content() == *image));
}

/// A file of one member of which a block could not be read in each of these zones, and what was there.
fn with_holes(zones: &[u64]) -> (tempfile::TempDir, SavedFile, Vec<u8>) {
    let image = images(1).remove(0);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let device = Memory::new(image.clone(), &Power::default());
    zones.iter().for_each(|zone| device.make_bad(zone + 4096));
    now(save_devices([1; 16], 0, &[("dev".to_string(), device)], &path)).expect("saved");
    let file = SavedFile::open(&path).expect("sound");
    (folder, file, image)
}

/// What there is afterwards where `there` was in two blocks of each zone, of which one is in the file.
fn written_over(file: &SavedFile, there: &[u8], zones: &[u64], as_saved: bool) -> Vec<u8> {
    let mut now_there = there.to_vec();
    zones.iter().for_each(|zone| now_there[*zone as usize..][..2 * 4096].fill(0x99));
    let mut targets = targets(&[now_there], &Power::default());
    targets[0].as_saved = as_saved;
    now(put_back(file, &targets, &[])).expect("written");
    targets[0].device.content()
}

#[test]
fn what_could_not_be_read_when_it_was_saved_is_nothing_of_later() {
    let layout = labels(1)[0].layout();
    let zones = [layout.map, layout.directory, layout.away, layout.journal];
    let (_folder, file, image) = with_holes(&zones);
    let expect = |in_holes: &dyn Fn(u64) -> u8| {
        let mut expected = image.clone();
        zones.iter().for_each(|zone| expected[*zone as usize + 4096..][..4096].fill(in_holes(*zone)));
        expected
    };
    assert!(written_over(&file, &image, &zones, true) == expect(&|_| 0x99), "nothing was written there since");
    // No repair writes to journals.
    let kept = |zone| if zone == layout.journal { 0x99 } else { 0 };
    assert!(written_over(&file, &image, &zones, false) == expect(&kept));
}

#[test]
fn a_device_that_the_repair_added_loses_its_label() {
    let ground = ground();
    let power = Power::default();
    let added = targets(&images(3)[2..], &power);
    now(put_back(&ground.file, &targets(&repaired(), &power), &added)).expect("written");
    assert!(now(probe(&added[0].device)).expect("read").is_err());
}

#[test]
fn a_device_that_the_repair_added_is_known_until_all_is_done() {
    let ground = ground();
    for n in 0.. {
        let power = Power::default();
        let (targets, added) = (targets(&repaired(), &power), targets(&images(3)[2..], &power));
        power.fails_after(n);
        let done = now(put_back(&ground.file, &targets, &added));
        power.is_back();
        targets.iter().chain(&added).for_each(|t| t.device.loses(Loss::EverySecond));
        let label = now(probe(&added[0].device)).expect("memory is read");
        if done.is_ok() {
            assert!(label.is_err() && now(Mark::of(&added[0].device)).is_none(), "it is no member of anything");
            assert!(n > 10, "only {n} steps");
            break;
        }
        let restored =
            targets.iter().zip(&ground.file.members).all(|(t, m)| now(probe(&t.device)) == Ok(Ok(m.label.clone())));
        let known = label.is_ok() || now(Mark::of(&added[0].device)).is_some_and(|mark| mark.file == [1; 16]);
        assert!(known || restored, "after {n} steps nobody knows what it is");
        now(put_back(&ground.file, &targets, &added)).expect("completed");
        assert!(now(probe(&added[0].device)).expect("read").is_err());
    }
}

#[test]
fn a_device_that_does_not_keep_what_is_written_is_told() {
    let ground = ground();
    let targets = targets(&repaired(), &Power::default());
    let journal = labels(2)[1].layout().journal;
    targets[1].device.keeps(journal + 4096);
    let said = format!("{:#}", now(put_back(&ground.file, &targets, &[])).expect_err("seen"));
    assert!(said.contains("dev1 does not hold what was written to it"), "{said}");
    assert!(targets.iter().all(|t| now(probe(&t.device)).expect("read").is_err()), "and there is no group");
}

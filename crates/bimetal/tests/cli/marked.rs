//! Devices in the midst of a `restore` that was cut off: they carry no label, and are nobody's to take.

use crate::common::{checksum, installed, Place, MIB};
use crate::family::stop;
use crate::loops::{listed, Loops};
use crate::saved::run_limited;

const WORDS: [&str; 3] =
    ["half.fast is in the midst of a restore of the Bimetal group 'half'", "bimetal restore FILE", "--force"];

/// A group `half` whose fast member lost its label to a restore that was cut off then; a group `tank` beside it.
fn half_restored() -> Option<Place> {
    if !installed("prlimit") {
        return None;
    }
    let p = Place::new();
    p.file("half.fast", 48 * MIB);
    p.file("half.slow", 96 * MIB);
    p.ok(&["create", "half", "--fast", "half.fast", "--slow", "half.slow"]);
    p.ok(&["dump", "half", "--save", "half.saved"]);
    // The second label of the fast member can be written, that of the slow one not.
    let failed = run_limited(&p, &["restore", "half.saved", "--yes"], 60);
    assert!(failed.err.contains("not completely written back"), "{}", failed.err);
    p.tank_of(&["main:20MiB"]);
    Some(p)
}

/// The device is as it was.
fn keeps(p: &Place, args: &[&str]) {
    let before = checksum(&p.path("half.fast"));
    p.refused(args, 1, &WORDS);
    assert_eq!(checksum(&p.path("half.fast")), before, "{args:?}");
}

#[test]
fn a_device_in_the_midst_of_a_restore_is_not_taken() {
    let Some(p) = half_restored() else { return };
    p.file("b.img", 96 * MIB);
    let create = ["create", "other", "--fast", "half.fast", "--slow", "b.img"];
    keeps(&p, &create);
    keeps(&p, &["serve", "--raw", "half.fast", "--nbd", "unix:bare"]);
    // The question says what would be lost.
    p.refused(
        &[&create[..], &["--force"]].concat(),
        1,
        &["will be lost", "restore of the Bimetal group 'half'", "--yes"],
    );

    let daemon = p.serve(&["tank"]);
    keeps(&p, &["member", "add", "tank", "--fast", "half.fast", "--yes"]);
    keeps(&p, &["dissolve", "tank/main", "--onto", "half.fast", "--yes"]);
    // Whoever asks the daemon itself.
    let (at, before) = (p.path("half.fast").display().to_string(), checksum(&p.path("half.fast")));
    for (path, body) in [
        ("/v1/members", format!(r#"{{"change":"add","locator":"{at}","tier":"fast","force":false}}"#)),
        ("/v1/dissolve", format!(r#"{{"volume":"main","onto":"{at}","force":false}}"#)),
    ] {
        let answer = p.ask("POST", path, &body);
        assert!(WORDS.iter().all(|w| answer.contains(w)), "{path}: {answer}");
    }
    stop(&p, daemon);
    assert_eq!(checksum(&p.path("half.fast")), before);

    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    keeps(&p, &["repair", "tank", "--fast", "half.fast", "--yes"]);
    p.ok(&["restore", "half.saved", "--yes"]);
    assert_eq!(p.json(&["check", "half"])["sound"], true);
}

#[test]
fn a_list_of_devices_says_it_and_others_are_told_that_it_is_taken() {
    let Some(p) = half_restored() else { return };
    let Some(loops) = Loops::new(&p, &["half.fast"]) else { return };
    let used = listed(&p, &loops.0[0]);
    assert!(used.contains("in the midst of a restore of the Bimetal group 'half'"), "{used}");
    assert!(p.ok(&["scan", "--udev", "half.fast"]).contains("ID_FS_TYPE=bimetal_member"));
}

//! `bimetal demo` in a folder of somebody else.

use crate::common::Place;

/// Everything below a folder, by name and content.
fn tree(p: &Place, folder: &str) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    let mut folders = vec![p.path(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            all.push((entry.path().display().to_string(), std::fs::read_to_string(entry.path()).ok()));
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    all.sort();
    all
}

#[test]
fn what_lies_beside_the_demo_stays() {
    let p = Place::new();
    // So long that no socket fits below it: the demo fails early, and has less to take away.
    let long = format!("home-{}", "x".repeat(90));
    for file in ["etc/fstab", "run/state", "mnt/photo", "daemon.log"] {
        let path = p.path(&long).join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, file).expect("written");
    }
    let before = tree(&p, &long);
    p.refused(&["demo", "--via", "nbd", "--dir", &long], 1, &["too long", "--dir"]);
    assert_eq!(tree(&p, &long), before);
    let own = p.path(&long).join("bimetal-demo");
    std::fs::create_dir(&own).expect("made");
    std::fs::write(own.join("fast.img"), "mine").expect("written");
    let before = tree(&p, &long);
    p.refused(&["demo", "--via", "nbd", "--dir", &long], 1, &["bimetal-demo is there already", "another --dir"]);
    assert_eq!(tree(&p, &long), before);
}

//! A repair with a new SSD is cut off when only that one is done, and then done with another one. Then the first one comes back, under
//! the name by which the configuration knows the other one, as block devices do.

use std::path::{Path, PathBuf};
use std::process::Command;

use bimetal_format::label::{Label, Repair, LABEL_SIZE};
use bimetal_format::layout::{label_b, LABEL_A};

use crate::common::{installed, Place, MIB};
use crate::family::{fill, is_there, marked, stop};
use crate::loops::{self, Loops};

fn label_of(bytes: &[u8]) -> Label {
    let at = LABEL_A as usize;
    Label::decode(&bytes[at..at + LABEL_SIZE], LABEL_A).expect("a label")
}

/// Members as a repair leaves them that was cut off when nothing but a new device was done: that one, and the one in `path`, which
/// was `before`.
pub(crate) fn as_begun(path: &Path, before: &[u8], new: &Path) {
    let done = label_of(&std::fs::read(path).expect("read"));
    assert_eq!(done.repair, Repair::Done);
    relabelled(path, before, |label| (label.repair, label.repair_id) = (Repair::Begun, done.repair_id));
    let whole = std::fs::read(new).expect("read");
    relabelled(new, &whole, |label| label.joining = true);
}

/// Writes `bytes` to the file of a member, with a changed label.
fn relabelled(path: &Path, bytes: &[u8], change: impl Fn(&mut Label)) {
    let mut bytes = bytes.to_vec();
    let mut label = label_of(&bytes);
    change(&mut label);
    label.sequence += 1;
    for place in [LABEL_A, label_b(bytes.len() as u64)] {
        let range = place as usize..place as usize + LABEL_SIZE;
        bytes[range].copy_from_slice(&label.encode(place));
    }
    std::fs::write(path, bytes).expect("written");
}

/// Where disks are plugged in: the configuration knows one by this name, as it knows block devices by their path. Loop devices behind it
/// have other numbers each time: other tests take those that are free.
struct Port {
    link: PathBuf,
    loops: Loops,
}

impl Port {
    fn new(p: &Place) -> Option<Port> {
        Some(Port { link: p.path("port"), loops: Loops::new(p, &[])? })
    }

    fn name(&self) -> &str {
        self.link.to_str().expect("a name")
    }

    /// A disk that is connected elsewhere; the name that it has there.
    fn beside(&mut self, file: &Path) -> String {
        self.loops.0.push(loops::attach(&[], file));
        self.loops.0.last().expect("it is there").clone()
    }

    /// A disk that is plugged in here.
    fn plug(&mut self, file: &Path) {
        let device = self.beside(file);
        let _nothing_yet = std::fs::remove_file(&self.link);
        std::os::unix::fs::symlink(device, &self.link).expect("plugged in");
    }

    fn unplug_all(&mut self) {
        self.loops.0.drain(..).for_each(|device| loops::detach(&device));
    }
}

/// Has a loop device look again how large its file is.
fn resized(device: &str) {
    assert!(Command::new("losetup").args(["-c", device]).status().expect("losetup").success());
}

/// A group whose SSD `second.img` is at the port to the configuration; `first.img` is the leftover. Nothing is connected. Gives what was
/// written.
fn with_a_leftover(p: &Place) -> Option<(Port, Vec<u8>)> {
    if !installed("nbdcopy") || !loops::possible() {
        return None;
    }
    p.tank_of(&["main:40MiB"]);
    std::fs::remove_file(p.path("fast.img")).expect("it has died");
    let before = std::fs::read(p.path("slow.img")).expect("read");
    p.file("first.img", 48 * MIB);
    p.file("second.img", 48 * MIB);
    let mut port = Port::new(p)?;
    port.plug(&p.path("first.img"));
    p.ok(&["repair", "tank", "--fast", port.name(), "--yes"]);
    port.unplug_all();
    as_begun(&p.path("slow.img"), &before, &p.path("first.img"));
    port.plug(&p.path("second.img"));
    p.ok(&["repair", "tank", "--fast", port.name(), "--yes"]);
    let daemon = p.serve(&["tank"]);
    let content = marked("Only on the second one. ", 20 * MIB);
    fill(p, "main", &content);
    stop(p, daemon);
    port.unplug_all();
    Some((port, content))
}

#[test]
fn a_member_that_has_another_name_is_found_though_a_leftover_has_its_old_one() {
    let p = Place::new();
    let Some((mut port, content)) = with_a_leftover(&p) else { return };
    port.plug(&p.path("first.img"));
    port.beside(&p.path("second.img"));
    let daemon = p.serve(&["tank"]);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}

/// Nobody strikes it off.
#[test]
fn a_repair_strikes_no_member_off_that_has_another_name_though_a_leftover_has_its_old_one() {
    let p = Place::new();
    let Some((mut port, content)) = with_a_leftover(&p) else { return };
    port.plug(&p.path("first.img"));
    port.beside(&p.path("second.img"));
    p.file("third.img", 48 * MIB);
    let repaired = p.run(&["repair", "tank", "--fast", "third.img", "--yes"]);
    assert_ne!(repaired.code, 0, "the SSD is there, and nothing is missing: {}", repaired.out);
    let daemon = p.serve(&["tank"]);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}

/// It is named again, or not: it is a member already, by what the repair has done.
#[test]
fn a_repair_that_was_cut_off_goes_on_with_its_new_device() {
    for named in [true, false] {
        let p = Place::new();
        p.tank_of(&["main:40MiB"]);
        std::fs::remove_file(p.path("fast.img")).expect("it has died");
        let before = std::fs::read(p.path("slow.img")).expect("read");
        p.file("new.img", 48 * MIB);
        let repair = ["repair", "tank", "--yes", "--fast", "new.img"];
        p.ok(&repair);
        as_begun(&p.path("slow.img"), &before, &p.path("new.img"));
        let refused = p.run(&["serve", "tank"]);
        assert!(refused.code != 0 && refused.err.contains("bimetal repair tank"), "{}", refused.err);
        p.file("other.img", 96 * MIB);
        let create = p.run(&["create", "other", "--fast", "new.img", "--slow", "other.img", "--yes"]);
        assert!(create.code != 0 && create.err.contains("'tank'"), "it is of tank: {}", create.err);
        let again = p.run(if named { &repair } else { &repair[..3] });
        assert_eq!(again.code, 0, "{}", again.err);
        assert_eq!(p.json(&["check", "tank"])["sound"], true);
        stop(&p, p.serve(&["tank"]));
    }
}

/// Later the second one dies, too, and is replaced by a third. The first one bars no start, and can be given to a repair as any other device.
#[test]
fn a_leftover_of_an_older_repair_bars_no_start() {
    let p = Place::new();
    let Some((mut port, _)) = with_a_leftover(&p) else { return };
    p.file("third.img", 48 * MIB);
    port.plug(&p.path("third.img"));
    p.ok(&["repair", "tank", "--fast", port.name(), "--yes"]);
    let first = port.beside(&p.path("first.img"));
    let config = p.path("etc/groups/tank.toml");
    let text = std::fs::read_to_string(&config).expect("described");
    std::fs::write(&config, format!("{text}\n[[member]]\nlocator = \"{first}\"\ntier = \"fast\"\n")).expect("written");
    let daemon = p.serve(&["tank"]);
    let content = marked("On the third one. ", 20 * MIB);
    fill(&p, "main", &content);
    is_there(&p, "main", &content);
    stop(&p, daemon);
    port.unplug_all();
    std::fs::remove_file(p.path("third.img")).expect("dies");
    let first = port.beside(&p.path("first.img"));
    p.ok(&["repair", "tank", "--fast", &first, "--yes"]);
    stop(&p, p.serve(&["tank"]));
}

/// Both have names of their own, and the member cannot be used at this moment.
#[test]
fn a_repair_beside_a_leftover_strikes_no_member_off_that_cannot_be_read_now() {
    let p = Place::new();
    let Some((mut port, content)) = with_a_leftover(&p) else { return };
    let second = p.path("second.img");
    let whole = std::fs::read(&second).expect("read");
    port.plug(&second);
    let device = port.loops.0[0].clone();
    let first = port.beside(&p.path("first.img"));
    p.file("second.img", 0);
    resized(&device);
    let config = p.path("etc/groups/tank.toml");
    let text = std::fs::read_to_string(&config).expect("described");
    std::fs::write(&config, format!("{text}\n[[member]]\nlocator = \"{first}\"\ntier = \"fast\"\n")).expect("written");
    p.file("third.img", 48 * MIB);
    let repaired = p.run(&["repair", "tank", "--fast", "third.img", "--yes"]);
    assert_ne!(repaired.code, 0, "{device} has no size at this moment: {}", repaired.out);
    std::fs::write(&second, whole).expect("written");
    resized(&device);
    let daemon = p.serve(&["tank"]);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}

/// The SSD was not found (a cable), a repair with a new one was cut off, and the SSD is back. Gives what is on it.
pub(crate) fn back_after_a_cut_off(p: &Place) -> Vec<u8> {
    p.tank_of(&["main:40MiB"]);
    let daemon = p.serve(&["tank"]);
    let content = marked("On the SSD that was not found. ", 20 * MIB);
    fill(p, "main", &content);
    stop(p, daemon);
    let [fast, away, slow] = ["fast.img", "away.img", "slow.img"].map(|name| p.path(name));
    std::fs::rename(&fast, &away).expect("gone");
    let before = std::fs::read(&slow).expect("read");
    p.file("new.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "new.img", "--yes", "--save", "undo.saved"]);
    as_begun(&slow, &before, &p.path("new.img"));
    std::fs::rename(&away, &fast).expect("back");
    content
}

/// It is done with the SSD then. The new one is connected again, before the first start or beside it.
pub(crate) fn done_with_the_old_one(p: &Place) -> Vec<u8> {
    let content = back_after_a_cut_off(p);
    let [new, away] = ["new.img", "away.img"].map(|name| p.path(name));
    std::fs::rename(&new, &away).expect("unplugged");
    p.ok(&["repair", "tank", "--yes"]);
    std::fs::rename(&away, &new).expect("plugged in");
    content
}

#[test]
fn a_leftover_takes_no_member_out_with_which_the_repair_was_done() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = done_with_the_old_one(&p);
    let daemon = p.serve(&["tank"]);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}

#[test]
fn a_repair_beside_a_leftover_strikes_nobody_off_who_is_there() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = done_with_the_old_one(&p);
    p.file("third.img", 48 * MIB);
    let repaired = p.run(&["repair", "tank", "--fast", "third.img", "--yes"]);
    assert_ne!(repaired.code, 0, "fast.img is there, where the configuration has it: {}", repaired.out);
    let daemon = p.serve(&["tank"]);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}

/// Whoever is told to go on with the repair learns what that gives up, and how to have it.
#[test]
fn a_member_that_a_cut_off_repair_has_given_up_is_named_if_it_is_there() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = back_after_a_cut_off(&p);
    let words =
        ["fast.img was fast member 0, which the repair that was cut off has given up", "`bimetal restore FILE`"];
    let named = ["--member", "fast.img", "slow.img", "new.img"];
    for members in [&[][..], &named] {
        for command in [&["serve", "tank"][..], &["repair", "tank"], &["rescue", "tank"], &["check", "tank"]] {
            if command[0] == "check" && !members.is_empty() {
                // Copies are not repaired by the name of the group: nothing of that is said.
                continue;
            }
            let told = p.run(&[command, members].concat());
            let told = (told.out + &told.err).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.iter().all(|w| told.contains(w)), "{command:?}: {told}");
            let calming = ["Nothing is lost.", "Nothing is given up.", "Everything is in order"];
            assert!(!calming.iter().any(|words| told.contains(words)), "{told}");
        }
    }
    p.ok(&["restore", "undo.saved", "--yes"]);
    let daemon = p.serve(&["tank"]);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}

//! An exported header and the tools that people have for LUKS2.

use std::path::Path;
use std::process::Command;

use super::tests::{header, luks};
use super::*;
use crate::attach::tools::find;

/// A header in a file, with a file of a device beside it; what to run on it by name, if it is installed.
struct Export {
    folder: tempfile::TempDir,
    luks: Luks,
}

impl Export {
    fn new(program: &str) -> Option<Export> {
        let luks = luks()?;
        if find(program).is_none() {
            println!("skipped: the program {program} is not installed");
            return None;
        }
        let folder = tempfile::tempdir().expect("made");
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("written");
        write("header", header(luks, 4).as_bytes());
        write("one", b"the first passphrase");
        write("two", b"another");
        write("disk", &[0; 1 << 20]);
        Some(Export { folder, luks })
    }

    /// Whether a program ends well, and what it says.
    fn run(&self, line: &str) -> (bool, String) {
        let mut words = line.split(' ');
        let program = find(words.next().expect("named")).expect("looked for");
        let mut command = Command::new(program);
        command.args(words).current_dir(self.folder.path()).stdin(std::process::Stdio::null());
        let output = command.env("PASSWORD", "the first passphrase").env("NEWPASSWORD", "enrolled").env("LC_ALL", "C");
        let output = output.output().expect("runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    #[track_caller]
    fn works(&self, line: &str) -> String {
        let (good, said) = self.run(line);
        assert!(good, "{line}: {said}");
        said
    }

    #[track_caller]
    fn fails(&self, line: &str) -> String {
        let (good, said) = self.run(line);
        assert!(!good, "{line}: {said}");
        said
    }

    fn header(&self) -> Header {
        let path: &Path = self.folder.path();
        Header::from_bytes(std::fs::read(path.join("header")).expect("read"))
    }
}

const LIGHT: &str = "--pbkdf-memory 64 --pbkdf-force-iterations 4";

#[test]
fn cryptsetup_takes_an_exported_header() {
    let Some(export) = Export::new("cryptsetup") else { return };
    let dump = export.works("cryptsetup luksDump header");
    for words in
        ["Subsystem:     \tbimetal", "Label:         \tphotos", "0: bimetal", "Keyslots area: \t524288 [bytes]"]
    {
        assert!(dump.contains(words), "{words}: {dump}");
    }
    export.works("cryptsetup open --test-passphrase --key-file one header");
    export.works("cryptsetup open --test-passphrase --key-file one --header header disk");
    export.fails("cryptsetup open --test-passphrase --key-file two header");
    export.works(&format!("cryptsetup luksAddKey {LIGHT} --key-file one header two"));
    assert_eq!(export.luks.unlock(&export.header(), b"another").expect("unlocks").slot, 1);
    std::fs::write(export.folder.path().join("three"), "changed").expect("written");
    export.works(&format!("cryptsetup luksChangeKey {LIGHT} --key-file two header three"));
    assert_eq!(export.luks.unlock(&export.header(), b"changed").expect("unlocks").slot, 1);
    export.works("cryptsetup luksKillSlot -q header 1");
    assert_eq!(export.luks.slots(&export.header()).expect("listed").len(), 1);
    assert!(export.luks.check(export.header().as_bytes()).expect("good").ours);
}

#[test]
fn no_device_is_opened_with_it() {
    let Some(export) = Export::new("cryptsetup") else { return };
    let said = export.fails("cryptsetup open --key-file one --header header disk bimetal-test-of-headers");
    // Where the device mapper is missing, that is what stops it.
    assert!(said.contains("too small") || said.contains("device-mapper"), "{said}");
}

#[test]
fn headers_of_others_are_told_apart() {
    let Some(export) = Export::new("cryptsetup") else { return };
    let make = |more: &str| {
        std::fs::write(export.folder.path().join("header"), vec![0; 16 << 20]).expect("written");
        export.works(&format!("cryptsetup luksFormat -q --key-file one {LIGHT} {more} --header header disk"));
        export.luks.check(export.header().as_bytes())
    };
    let info = make("--type luks2 --key-size 256 --sector-size 512").expect("a header");
    assert_eq!((info.ours, info.slots.len(), info.header.as_bytes().len()), (false, 1, 16 << 20));
    let error = make("--type luks2 --key-size 512 --sector-size 512").expect_err("another key");
    assert!(matches!(error, LuksError::OtherKey { bytes: 64, .. }), "{error}");
    let luks1 = "--type luks1 --pbkdf-force-iterations 1000";
    std::fs::write(export.folder.path().join("header"), vec![0; 16 << 20]).expect("written");
    export.works(&format!("cryptsetup luksFormat -q --key-file one {luks1} --header header disk"));
    assert!(matches!(export.luks.check(export.header().as_bytes()), Err(LuksError::Luks1)));
}

#[test]
fn a_slot_with_another_key_opens_nothing() {
    let Some(export) = Export::new("cryptsetup") else { return };
    export.works(&format!("cryptsetup luksAddKey -q --unbound --key-size 512 {LIGHT} header two"));
    let (luks, header) = (export.luks, export.header());
    let opens: Vec<bool> = luks.slots(&header).expect("listed").iter().map(|s| s.opens).collect();
    assert_eq!(opens, [true, false]);
    for result in [
        luks.unlock(&header, b"another").map(drop),
        luks.add_passphrase(&header, b"another", b"new", Cost::Light).map(drop),
        luks.change_passphrase(&header, b"another", b"new", Cost::Light).map(drop),
    ] {
        assert!(matches!(result, Err(LuksError::WrongPassphrase { slots: 1 })), "{result:?}");
    }
    assert!(matches!(luks.remove_slot(&header, 0, false), Err(LuksError::LastSlot { number: 0 })));
    assert_eq!(luks.slots(&luks.remove_slot(&header, 1, false).expect("removed")).expect("listed").len(), 1);
}

#[test]
fn systemd_cryptenroll_takes_an_exported_header() {
    let Some(export) = Export::new("systemd-cryptenroll") else { return };
    let key = recovery_key();
    let header = export.luks.add_recovery_key(&export.header(), b"the first passphrase", &key, Cost::Light);
    std::fs::write(export.folder.path().join("header"), header.expect("added").as_bytes()).expect("written");
    // It enrolls at its own cost, seconds of this machine: so it only lists and removes here.
    let listed = export.works("systemd-cryptenroll header");
    assert!(listed.contains("1 recovery"), "{listed}");
    export.works("systemd-cryptenroll --wipe-slot=recovery header");
    let info = export.luks.check(export.header().as_bytes()).expect("good");
    assert!(info.ours && info.slots.len() == 1, "{info:?}");
}

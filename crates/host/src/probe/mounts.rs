//! What is mounted and swapped to, by `/proc`. Paths there are bytes: anybody can mount something on a folder whose name is no
//! UTF-8, and such a line must not hide the others.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::sysfs::DeviceNumber;

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// No other mount of this machine has it at the same time.
    pub id: u64,
    /// Of the file system.
    pub number: DeviceNumber,
    /// Where it is mounted.
    pub place: PathBuf,
    /// The kind of the file system.
    pub kind: String,
    /// What is mounted; a block device by its name.
    pub source: PathBuf,
}

/// What this process sees mounted; of mounts on one place the last hides the others. Nothing where there is no `/proc`. Whoever guards
/// something must take an error for "it may be mounted".
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&read(Path::new("/proc/self/mountinfo"))?))
}

/// What another process sees mounted.
pub(crate) fn of_process(process: u32) -> io::Result<Vec<Mount>> {
    Ok(parse(&read(Path::new(&format!("/proc/{process}/mountinfo")))?))
}

/// Files and block devices that the kernel swaps to.
pub fn swaps() -> io::Result<Vec<PathBuf>> {
    Ok(parse_swaps(&read(Path::new("/proc/swaps"))?))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(io::Error::new(e.kind(), format!("{} cannot be read: {e}", path.display()))),
    }
}

/// The mounts in a text as the kernel writes it.
pub fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|b| *b == b'\n').filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = text(fields.next()?)?.parse().ok()?;
    let (major, minor) = text(fields.nth(1)?)?.split_once(':')?;
    let number = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let place = unescape(fields.nth(1)?);
    // Behind the options stand as many tags as the mount has, and a dash.
    fields.next()?;
    fields.find(|field| field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(Mount { id, number, place, kind, source: unescape(fields.next().unwrap_or_default()) })
}

fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok()
}

fn parse_swaps(swaps: &[u8]) -> Vec<PathBuf> {
    let lines = swaps.split(|b| *b == b'\n').skip(1);
    let names = lines.filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    names.filter(|name| !name.is_empty()).map(unescape).collect()
}

/// Undoes the octal escapes of the files in `/proc`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let code = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\').and_then(octal);
        out.push(code.unwrap_or(field[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(out).into()
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(text(digits)?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    const INFO: &[u8] = b"\
22 27 0:21 / /proc rw - proc proc rw
36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime shared:1 master:2 - ext3 /dev/x rw
37 35 0:50 / /tmp/n\xff rw - tmpfs n\xfe rw
38 35 7:1 / /mnt/\\377\\134 ro - ext4 /dev/loop1 ro
39 35 0:51 / /empty ro - tmpfs  ro
broken
";

    #[test]
    fn mounts_are_read_whatever_their_names_are() {
        let found = parse(INFO);
        let places: Vec<&[u8]> = found.iter().map(|m| m.place.as_os_str().as_bytes()).collect();
        assert_eq!(places, [&b"/proc"[..], b"/mnt/a b", b"/tmp/n\xff", b"/mnt/\xff\\", b"/empty"]);
        assert_eq!(found[1].number, DeviceNumber { major: 98, minor: 0 });
        let of = |m: &Mount| (m.id, m.kind.clone(), m.source.as_os_str().as_bytes().to_vec());
        assert_eq!(of(&found[1]), (36, "ext3".into(), b"/dev/x".to_vec()));
        assert_eq!(of(&found[2]), (37, "tmpfs".into(), b"n\xfe".to_vec()));
        assert_eq!(of(&found[4]), (39, "tmpfs".into(), Vec::new()));
    }

    #[test]
    fn swaps_are_listed() {
        let text = b"Filename\t\t\t\tType\t\tSize\n/dev/sda2   partition 100\n/n\xff\\040file file 7\n";
        let found = parse_swaps(text);
        assert_eq!(found, [Path::new("/dev/sda2"), Path::new(OsStr::from_bytes(b"/n\xff file"))]);
    }

    #[test]
    fn what_is_no_escape_stays() {
        assert_eq!(unescape(b"a\\040b\\134c\\ \\9"), Path::new("a b\\c\\ \\9"));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_what_is_not_there_is_empty() {
        assert!(read(Path::new("/proc/self/no-such-file")).expect("nothing").is_empty());
        assert!(read(Path::new("/proc/self")).is_err(), "a folder");
    }
}

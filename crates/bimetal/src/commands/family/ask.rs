//! Passphrases: asked for on the terminal, without showing them, or read from a file.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{bail, Context, Result};
use rustix::termios::{tcgetattr, tcsetattr, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use zeroize::Zeroizing;

/// What nobody else is to know. Wiped when it is dropped.
pub(super) type Secret = Zeroizing<Vec<u8>>;

/// A passphrase that is longer is a wrong file.
const MAX: usize = 64 << 10;

/// A passphrase that is there already. At its end may be a "\r" that belongs to the line's end, or to a passphrase that was chosen
/// from such a file when it did not count as that: [`super::open`] tries both.
pub(super) fn passphrase(file: Option<&Path>, prompt: &str) -> Result<Secret> {
    let secret = match file {
        Some(file) => without(from_file(file)?, &[b"\n"]),
        None => typed(prompt, "--passphrase-file")?,
    };
    not_empty(secret)
}

/// How lines end in files. Nobody could type the "\r" of other systems at a terminal.
const LINE_ENDS: [&[u8]; 2] = [b"\r\n", b"\n"];

/// A passphrase that is chosen now: typed twice.
pub(super) fn new_passphrase(file: Option<&Path>, prompt: &str) -> Result<Secret> {
    let Some(file) = file else { return typed_twice(prompt, "--passphrase-file") };
    not_empty(without(from_file(file)?, &LINE_ENDS))
}

/// The same, where another one is asked for, too.
pub(super) fn another_passphrase(file: Option<&Path>, prompt: &str) -> Result<Secret> {
    let Some(file) = file else { return typed_twice(prompt, "--new-passphrase-file") };
    not_empty(without(from_file(file)?, &LINE_ENDS))
}

fn typed_twice(prompt: &str, option: &str) -> Result<Secret> {
    let secret = not_empty(typed(prompt, option)?)?;
    if typed("The same again", option)? != secret {
        bail!("that was not the same; nothing was changed");
    }
    Ok(secret)
}

/// Refuses what cannot be: standard input gives one passphrase.
pub(super) fn one_from_input(files: [Option<&Path>; 2]) -> Result<()> {
    if files.iter().all(|f| f.is_some_and(|f| f == Path::new("-"))) {
        bail!("standard input gives one passphrase: put the other one into a file");
    }
    Ok(())
}

fn not_empty(secret: Secret) -> Result<Secret> {
    if secret.is_empty() {
        bail!("the passphrase is empty; nothing was changed");
    }
    Ok(secret)
}

fn from_file(path: &Path) -> Result<Secret> {
    if path == Path::new("-") {
        return read(&mut unbuffered_input()?).context("standard input cannot be read");
    }
    let fail = || format!("the passphrase cannot be read from {}", path.display());
    read(&mut File::open(path).with_context(fail)?).with_context(fail)
}

/// The standard library's would keep what it has read in a buffer that nobody wipes.
fn unbuffered_input() -> Result<File> {
    Ok(File::from(std::io::stdin().as_fd().try_clone_to_owned().context("there is no standard input")?))
}

/// Without the first of these that is at its end: editors put one there.
fn without(mut secret: Secret, ends: &[&[u8]]) -> Secret {
    let end = ends.iter().find(|end| secret.ends_with(end)).map_or(0, |end| end.len());
    let len = secret.len() - end;
    secret.truncate(len);
    secret
}

/// All of it.
fn read(from: &mut impl Read) -> Result<Secret> {
    // With all of its room from the start: growing would leave pieces behind.
    let mut secret = Zeroizing::new(vec![0; MAX + 1]);
    let mut len = 0;
    while len < secret.len() {
        match from.read(&mut secret[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    if len > MAX {
        bail!("a passphrase has at most {} KiB; is this the right file?", MAX >> 10);
    }
    secret.truncate(len);
    Ok(secret)
}

/// Asks on the terminal.
fn typed(prompt: &str, option: &str) -> Result<Secret> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        bail!("There is no terminal to ask for the passphrase on: read it from a file with {option} FILE, or from standard input with {option} -");
    }
    write!(std::io::stderr(), "{prompt}: ")?;
    let mut input = unbuffered_input()?;
    let terminal = Quiet::make()?;
    let typed = line(&mut input, &terminal.before);
    drop(terminal);
    crate::output::tell("");
    typed
}

/// The terminal neither shows what is typed nor acts on it: if Ctrl-C ended this process, it would stay so.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn make() -> Result<Quiet> {
        let before = tcgetattr(std::io::stdin()).context("the terminal cannot be asked")?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &quiet).context("the terminal cannot be made quiet")?;
        Ok(Quiet { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _gone = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// One line, with the keys that edit it.
fn line(input: &mut impl Read, terminal: &Termios) -> Result<Secret> {
    let key = |index| terminal.special_codes[index];
    let (erase, kill) = (key(SpecialCodeIndex::VERASE), key(SpecialCodeIndex::VKILL));
    let (interrupt, end) = (key(SpecialCodeIndex::VINTR), key(SpecialCodeIndex::VEOF));
    let mut secret = Zeroizing::new(Vec::with_capacity(MAX));
    loop {
        let mut byte = Zeroizing::new([0]);
        match input.read(&mut byte[..]) {
            Ok(0) => return Ok(secret),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e).context("the terminal cannot be read"),
        }
        match byte[0] {
            b'\n' | b'\r' => return Ok(secret),
            b if b == interrupt => bail!("interrupted; nothing was changed"),
            b if b == end && secret.is_empty() => bail!("interrupted; nothing was changed"),
            b if b == end => return Ok(secret),
            b if b == erase || b == 8 || b == 127 => take_back(&mut secret),
            b if b == kill => secret.clear(),
            _ if secret.len() == MAX => bail!("a passphrase has at most {} KiB", MAX >> 10),
            b => secret.push(b),
        }
    }
}

/// The last letter goes, which may be several bytes of UTF-8.
fn take_back(secret: &mut Vec<u8>) {
    while secret.pop().is_some_and(|b| b & 0xc0 == 0x80) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_is_no_part_of_a_passphrase() {
        let of = |bytes: &[u8], ends: &[&[u8]]| without(read(&mut &*bytes.to_vec()).expect("read"), ends).to_vec();
        let from = |bytes: &[u8]| of(bytes, &LINE_ENDS);
        assert_eq!(from(b"secret\n"), b"secret");
        assert_eq!(from(b"secret\n\n"), b"secret\n");
        assert_eq!(from(b"secret\r\n"), b"secret");
        assert_eq!(from(b"secret\r\n\r\n"), b"secret\r\n");
        assert_eq!(from(b"secret\r"), b"secret\r");
        assert_eq!(of(b"secret\r\n", &[b"\n"]), b"secret\r");
        assert_eq!(from(b" se\0cret "), b" se\0cret ");
        assert!(from(b"\n").is_empty());
        assert_eq!(from(&[7; MAX]).len(), MAX);
        let error = read(&mut &*vec![7; MAX + 1]).expect_err("too long");
        assert!(error.to_string().contains("64 KiB"), "{error}");
    }

    #[test]
    fn letters_are_taken_back_whole() {
        let mut secret = "aä€".as_bytes().to_vec();
        take_back(&mut secret);
        assert_eq!(secret, "aä".as_bytes());
        take_back(&mut secret);
        take_back(&mut secret);
        assert!(secret.is_empty());
        take_back(&mut secret);
    }
}

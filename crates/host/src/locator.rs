//! Locators: how members are named on the command line and in `groups/NAME.toml` (DESIGN section 8).

use std::fmt;
use std::path::{Path, PathBuf};

use crate::device::emulated::ModelSpec;

/// The port of NBD servers.
pub const NBD_PORT: u16 = 10809;

/// Where a member is. A hint: the label on it decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locator {
    /// A file or block device.
    Path(PathBuf),
    /// A disk that an NBD server exports.
    Nbd(NbdLocator),
    /// A file behind a model of a disk, which makes it as slow as that disk.
    Emulated {
        /// The model.
        model: ModelSpec,
        /// The file that holds the data.
        path: PathBuf,
    },
}

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdLocator {
    /// Where the server is.
    pub server: NbdServer,
    /// Name of the export; may be empty.
    pub export: String,
}

/// Where an NBD server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdServer {
    /// A unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String, u16),
}

/// Why a text is no locator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocatorError {
    /// Nothing there.
    #[error("empty locator; give a path, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH or emulated:MODEL:/path")]
    Empty,
    /// An unknown or unfitting scheme.
    #[error("{0}: locators of this kind are unknown; known are /path, nbd://, nbd+unix:// and emulated:MODEL:/path")]
    Scheme(String),
    /// A broken NBD URI.
    #[error("{uri}: {why}")]
    Nbd {
        /// The URI.
        uri: String,
        /// What is wrong.
        why: String,
    },
    /// A path that cannot be written down.
    #[error(
        "the name {0:?} is no UTF-8; the configuration, where it would stand, is text: rename that file or folder, or name it by \
         a link whose path is UTF-8"
    )]
    NotText(PathBuf),
    /// A broken emulated locator.
    #[error("{locator}: {why}; write emulated:hdd2012:/path, emulated:ssd2014:/path or emulated:rate=300M:/path")]
    Emulated {
        /// The locator.
        locator: String,
        /// What is wrong.
        why: String,
    },
}

impl Locator {
    /// Reads a locator.
    pub fn parse(text: &str) -> Result<Locator, LocatorError> {
        if text.is_empty() {
            return Err(LocatorError::Empty);
        }
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            return parse_unix(rest).map_err(|why| LocatorError::Nbd { uri: text.into(), why });
        }
        if let Some(rest) = text.strip_prefix("nbd://") {
            return parse_tcp(rest).map_err(|why| LocatorError::Nbd { uri: text.into(), why });
        }
        if let Some(rest) = text.strip_prefix("emulated:") {
            return parse_emulated(rest).map_err(|why| LocatorError::Emulated { locator: text.into(), why });
        }
        if text.contains("://") {
            return Err(LocatorError::Scheme(text.into()));
        }
        Ok(Locator::Path(text.into()))
    }

    /// The file or block device below it, if it is on this machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Locator::Path(path) | Locator::Emulated { path, .. } => Some(path),
            Locator::Nbd(_) => None,
        }
    }

    /// The same with an absolute path, so that it still holds in another working directory. That folder may have any name, and what
    /// is no text can neither be written down nor found again.
    pub fn absolute(&self) -> std::io::Result<Locator> {
        Ok(match self {
            Locator::Path(path) => Locator::Path(absolute(path)?),
            Locator::Emulated { model, path } => Locator::Emulated { model: model.clone(), path: absolute(path)? },
            Locator::Nbd(NbdLocator { server: NbdServer::Unix(path), export }) => {
                Locator::Nbd(NbdLocator { server: NbdServer::Unix(absolute(path)?), export: export.clone() })
            }
            Locator::Nbd(_) => self.clone(),
        })
    }
}

impl std::str::FromStr for Locator {
    type Err = LocatorError;
    fn from_str(text: &str) -> Result<Locator, LocatorError> {
        Locator::parse(text)
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Locator::Path(path) => write!(f, "{}", path.display()),
            Locator::Emulated { model, path } => write!(f, "emulated:{model}:{}", path.display()),
            Locator::Nbd(nbd) => nbd.fmt(f),
        }
    }
}

impl fmt::Display for NbdLocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(&self.export);
        match &self.server {
            NbdServer::Unix(path) => {
                write!(f, "nbd+unix:///{export}?socket={}", encode(&path.to_string_lossy()))
            }
            NbdServer::Tcp(host, port) => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                match *port {
                    NBD_PORT => write!(f, "nbd://{host}/{export}"),
                    port => write!(f, "nbd://{host}:{port}/{export}"),
                }
            }
        }
    }
}

fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(std::io::Error::other(LocatorError::NotText(path))),
    }
}

fn parse_unix(rest: &str) -> Result<Locator, String> {
    let (before, query) = rest.split_once('?').ok_or("the socket is missing (…?socket=PATH)")?;
    let export = match before.split_once('/') {
        Some(("", export)) => decode(export)?,
        None if before.is_empty() => String::new(),
        _ => return Err("a unix socket has no host; write nbd+unix:///EXPORT?socket=PATH".into()),
    };
    let socket =
        query.split('&').find_map(|p| p.strip_prefix("socket=")).ok_or("the socket is missing (?socket=PATH)")?;
    let socket = decode(socket)?;
    if socket.is_empty() {
        return Err("the path of the socket is empty".into());
    }
    Ok(Locator::Nbd(NbdLocator { server: NbdServer::Unix(socket.into()), export }))
}

fn parse_tcp(rest: &str) -> Result<Locator, String> {
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']').ok_or("a bracket is not closed")?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    let port = match port {
        Some(p) => p.parse().map_err(|_| format!("`{p}` is no port"))?,
        None => NBD_PORT,
    };
    Ok(Locator::Nbd(NbdLocator { server: NbdServer::Tcp(host.into(), port), export: decode(export)? }))
}

fn parse_emulated(rest: &str) -> Result<Locator, String> {
    let (model, path) = rest.split_once(':').ok_or("the path is missing")?;
    if path.is_empty() {
        return Err("the path is missing".into());
    }
    Ok(Locator::Emulated { model: ModelSpec::parse(model)?, path: path.into() })
}

/// Percent-encodes all but the characters that are plain in a URI's path and query.
fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~:@".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn decode(text: &str) -> Result<String, String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits: Vec<u8> = bytes.by_ref().take(2).collect();
        let value = std::str::from_utf8(&digits).ok().filter(|d| d.len() == 2);
        let value = value.and_then(|d| u8::from_str_radix(d, 16).ok());
        out.push(value.ok_or("a % is not followed by two hexadecimal digits")?);
    }
    String::from_utf8(out).map_err(|_| "not valid UTF-8 after decoding".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn locators_round_trip() {
        for text in [
            "/dev/sda",
            "relative/file.img",
            "nbd://server/",
            "nbd://server:9999/disk",
            "nbd://[::1]/a%20b",
            "nbd+unix:///?socket=/run/x.sock",
            "nbd+unix:///main?socket=/run/with%20space%3F.sock",
            "emulated:hdd2012:/tmp/slow.img",
            "emulated:ssd2014:/tmp/fast.img",
            "emulated:rate=300M:/tmp/x",
            "emulated:hdd2012,rate=150M:/tmp/x",
        ] {
            let locator = Locator::parse(text).expect(text);
            assert_eq!(locator.to_string(), text);
        }
        assert_eq!(Locator::parse("nbd://h").expect("short").to_string(), "nbd://h/");
        assert_eq!(Locator::parse("nbd+unix://?socket=/s").expect("short").to_string(), "nbd+unix:///?socket=/s");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let odd: PathBuf = std::ffi::OsString::from_vec(b"/n\xff/l.img".to_vec()).into();
        let server = NbdServer::Unix(odd.clone());
        for locator in [Locator::Path(odd), Locator::Nbd(NbdLocator { server, export: "x".into() })] {
            let error = locator.absolute().expect_err("refused").to_string();
            assert!(error.contains(r"/n\xFF/l.img") && error.contains("UTF-8"), "{error}");
        }
    }

    #[test]
    fn broken_locators_are_refused_in_words() {
        for (text, word) in [
            ("", "empty"),
            ("http://x/", "unknown"),
            ("nbd://", "host"),
            ("nbd://h:99999/", "port"),
            ("nbd://[::1/", "bracket"),
            ("nbd+unix:///x", "socket"),
            ("nbd+unix://host/x?socket=/s", "no host"),
            ("nbd+unix:///%zz?socket=/s", "hexadecimal"),
            ("emulated:hdd2012", "path"),
            ("emulated:floppy:/x", "floppy"),
            ("emulated:rate=x:/x", "rate"),
        ] {
            let error = Locator::parse(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}

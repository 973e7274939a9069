//! What shows the volumes of a group must not become a member of that group: it would lie inside itself, and the first
//! write of its own would wait for itself.

use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{bail, Result};
use bimetal_host::locator::NbdServer;
use bimetal_host::probe::below;
use bimetal_host::ublk::{Control, DeviceId};
use bimetal_host::Locator;

use crate::{runstate, shown};

/// Why something in such a folder is nothing to write to.
pub(crate) const IN_FILES: &str = "it lies in the folder where a group shows its volumes";

/// Ways in which a group's volumes are shown.
pub(crate) struct Own {
    pub(crate) group: String,
    /// What marks ublk devices of its volumes.
    pub(crate) tags: Vec<u64>,
    /// Its NBD servers.
    pub(crate) servers: Vec<NbdServer>,
}

impl Own {
    /// Refuses what is made of a volume of the group, and any file of a volume: groups inside each other are no better.
    /// Blocks, for as long as the file system below takes to answer.
    pub(crate) fn refuse(&self, locator: &Locator) -> Result<()> {
        if let Some(why) = self.why_not(locator) {
            let group = &self.group;
            bail!("{locator} cannot become a member of group '{group}': {why}, so the group would lie inside itself. Name a device that no volume lies below");
        }
        Ok(())
    }

    /// Why something is made of a volume. Blocks likewise.
    pub(crate) fn why_not(&self, locator: &Locator) -> Option<String> {
        match locator {
            Locator::Nbd(nbd) if self.servers.iter().any(|own| is_same(own, &nbd.server)) => {
                Some("it is an NBD export of this group".to_string())
            }
            Locator::Nbd(_) => None,
            Locator::Path(path) | Locator::Emulated { path, .. } => self.made_of_volume(path),
        }
    }

    fn made_of_volume(&self, path: &Path) -> Option<String> {
        if shown::is_where_volumes_are_shown(path) {
            return Some(IN_FILES.to_string());
        }
        let below = match below::of(path) {
            Ok(below) => below,
            // What is not there, or cannot be asked, is refused in other words by whoever opens it.
            Err(_) if std::fs::metadata(path).is_err() => return None,
            Err(e) => return Some(format!("it may be made of a volume of this group ({e})")),
        };
        if let Some(file) = below.volumes.first() {
            return Some(format!("it is made of the volume that is shown as {}", file.display()));
        }
        let attached = match runstate::attached_numbers(&self.group) {
            Ok(attached) => attached,
            Err(e) => return Some(format!("it may be a volume of this group ({e:#})")),
        };
        let own = below.devices.iter().find(|(number, name)| attached.contains(number) || self.has_tag(name));
        own.map(|(_, name)| format!("{} is a volume of this group", name.display()))
    }

    /// Whether a block device is a ublk device of this group.
    fn has_tag(&self, device: &Path) -> bool {
        let Some(id) = DeviceId::of(device).filter(|_| !self.tags.is_empty()) else { return false };
        // What cannot be asked may be ours.
        let found = Control::open().and_then(|mut control| control.info(id));
        found.map_or(true, |found| found.is_some_and(|f| self.tags.contains(&f.tag)))
    }
}

/// Whether two names are of one server, as far as this machine can tell.
fn is_same(own: &NbdServer, other: &NbdServer) -> bool {
    match (own, other) {
        (NbdServer::Unix(own), NbdServer::Unix(other)) => {
            let place = |p: &Path| std::fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
            own == other || place(own).is_some_and(|own| place(other) == Some(own))
        }
        (NbdServer::Tcp(own, port), NbdServer::Tcp(host, p)) if port == p => {
            let addresses = |host: &str| (host, *port).to_socket_addrs().into_iter().flatten().collect::<Vec<_>>();
            let own = addresses(own);
            addresses(host).iter().any(|a| own.iter().any(|own| reaches(*own, *a)))
        }
        _ => false,
    }
}

/// Whether who connects to `address` reaches what listens on `own`.
fn reaches(own: SocketAddr, address: SocketAddr) -> bool {
    // Only addresses of this machine can be taken.
    let is_here = || UdpSocket::bind((address.ip(), 0)).is_ok();
    own.ip() == address.ip() || (own.ip().is_unspecified() && is_here())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_any_of_its_names() {
        let tcp = |host: &str, port| NbdServer::Tcp(host.into(), port);
        match std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 10809)) {
            Ok(_) => assert!(is_same(&tcp("127.0.0.1", 10809), &tcp("localhost", 10809))),
            Err(_) => println!("skipped: this machine does not know the name localhost"),
        }
        assert!(is_same(&tcp("0.0.0.0", 10809), &tcp("127.0.0.1", 10809)));
        assert!(!is_same(&tcp("127.0.0.1", 10809), &tcp("127.0.0.1", 10810)));
        assert!(!is_same(&tcp("0.0.0.0", 10809), &tcp("192.0.2.1", 10809)), "an address that nobody has");
        let dir = tempfile::tempdir().expect("a folder");
        let (socket, link) = (dir.path().join("nbd.sock"), dir.path().join("link"));
        std::fs::write(&socket, "").expect("written");
        std::os::unix::fs::symlink(&socket, &link).expect("a link");
        assert!(is_same(&NbdServer::Unix(socket.clone()), &NbdServer::Unix(link)));
        assert!(!is_same(&NbdServer::Unix(socket), &NbdServer::Unix(dir.path().join("other"))));
    }
}

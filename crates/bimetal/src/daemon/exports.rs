//! Where and how a daemon serves NBD.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_export::stats::Phase;
use bimetal_export::{Export, Limits, Server};
use bimetal_host::locator::{NbdLocator, NbdServer};
use bimetal_host::net::Listener;
use bimetal_host::HostEnv;
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::group::{Group, Volume};
use bimetal_volume::options::Uuid;

use crate::{api, log, paths};

/// A wait after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// As long as that lasts, it is said so often.
const SAID_AGAIN: Duration = Duration::from_secs(60);
/// How long a socket in use is tried again.
pub(super) const BUSY_PATIENCE: Duration = Duration::from_secs(3);
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Reads `--nbd`; without any, the default socket.
pub(crate) fn addresses(texts: &[String], allow_remote: bool, default: &Path) -> Result<Vec<Address>> {
    if texts.is_empty() {
        paths::check_run_socket(default)?;
        return Ok(vec![Address::Unix(default.to_owned())]);
    }
    texts.iter().map(|t| address(t, allow_remote)).collect()
}

fn address(text: &str, allow_remote: bool) -> Result<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = std::path::absolute(path).with_context(|| format!("--nbd {text}: not a path"))?;
        paths::check_socket_path(&path, "take a shorter path for --nbd")?;
        return Ok(Address::Unix(path));
    }
    let Some(host) = text.strip_prefix("tcp:") else {
        bail!("--nbd {text}: write unix:PATH or tcp:HOST:PORT");
    };
    let mut found = host.to_socket_addrs().with_context(|| format!("--nbd {text}: write tcp:HOST:PORT"))?;
    let address = found.next().with_context(|| format!("--nbd {text}: {host} has no address"))?;
    if !address.ip().is_loopback() && !allow_remote {
        bail!(
            "--nbd {text}: anybody who reaches this address could read and write everything, because there is no \
             encryption and no password yet; add --allow-remote if the network is trusted"
        );
    }
    Ok(Address::Tcp(address))
}

/// The running NBD server and its listeners.
pub(crate) struct Served<B: Backend> {
    server: Server<HostEnv, B>,
    listeners: Vec<Listener>,
    places: Vec<Address>,
    sector_bytes: u32,
}

/// The exports of a group.
pub(crate) type Exports = Served<Volume<HostEnv>>;

impl Exports {
    /// Listens on all addresses and serves every volume of `group`.
    pub(crate) async fn open(env: &HostEnv, group: &Group<HostEnv>, addresses: &[Address]) -> Result<Exports> {
        Served::start(env, of_group(group), addresses).await
    }
}

/// Every volume of `group`.
pub(crate) fn of_group(group: &Group<HostEnv>) -> Vec<Export<Volume<HostEnv>>> {
    group.volume_names().into_iter().filter_map(|name| export(group, name)).collect()
}

/// A volume as an export.
pub(crate) fn export(group: &Group<HostEnv>, name: String) -> Option<Export<Volume<HostEnv>>> {
    let backend = group.volume(&name)?;
    let read_only = backend.read_only();
    Some(Export { uuid: backend.uuid(), name, description: String::new(), backend, read_only })
}

impl Exports {
    /// Serves a volume that was just made.
    pub(crate) fn add(&self, export: Export<Volume<HostEnv>>) {
        self.server.add_export(export);
    }

    /// Who is connected to a volume, in words.
    pub(crate) fn users_of(&self, uuid: &Uuid) -> Option<String> {
        match self.server.connections_to(uuid) {
            0 => None,
            1 => Some("1 NBD client is connected to it".into()),
            n => Some(format!("{n} NBD clients are connected to it")),
        }
    }

    /// Who is connected to any volume, in words.
    pub(crate) fn users(&self) -> Vec<String> {
        let connections = self.server.status().connections.into_iter();
        // Who is still choosing has nothing to lose.
        let using = connections.filter(|c| c.phase == Phase::Transmission);
        let named = using.filter_map(|c| c.export.map(|volume| (c.peer, volume)));
        named.map(|(peer, volume)| format!("an NBD client of volume '{volume}' ({peer}) was connected")).collect()
    }

    /// Serves a volume under another name.
    pub(crate) fn rename(&self, uuid: &Uuid, new: &str) {
        self.server.rename_export(uuid, new);
    }

    /// Serves a volume no longer, and ends the connections to it.
    pub(crate) async fn remove(&self, uuid: &Uuid) {
        self.server.remove_export(uuid).await;
    }
}

impl<B: Backend> Served<B> {
    /// Listens on all addresses and serves `exports`.
    pub(crate) async fn start(env: &HostEnv, exports: Vec<Export<B>>, addresses: &[Address]) -> Result<Served<B>> {
        let sector_bytes = exports.first().map_or(4096, |e| e.backend.sector_size());
        let server = Server::new(env.clone(), exports, Limits::default());
        server.warn_by(log::warn);
        let mut served = Served { server, listeners: Vec::new(), places: Vec::new(), sector_bytes };
        for address in addresses {
            let (listener, place) = listen(env, address).await?;
            env.spawn(accept(env.clone(), served.server.clone(), listener.clone()));
            served.listeners.push(listener);
            served.places.push(place);
        }
        Ok(served)
    }

    /// The addresses of exports as URIs.
    pub(crate) fn uris(&self, names: &[String]) -> Vec<String> {
        let uri =
            |place: &Address, export: &String| NbdLocator { server: server(place), export: export.clone() }.to_string();
        self.places.iter().flat_map(|p| names.iter().map(move |n| uri(p, n))).collect()
    }

    /// Where it can be reached.
    pub(crate) fn servers(&self) -> Vec<NbdServer> {
        self.places.iter().map(server).collect()
    }

    /// Logical sector of the exports; all volumes of a group have the same.
    pub(crate) fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// Who is connected.
    pub(crate) fn clients(&self) -> Vec<api::Client> {
        let connections = self.server.status().connections.into_iter();
        let client = |c: bimetal_export::stats::ConnectionStatus| api::Client {
            peer: c.peer,
            export: c.export.unwrap_or_default(),
            connected_seconds: c.age.as_secs(),
            requests: c.requests,
            bytes_in_flight: c.bytes_in_flight,
        };
        connections.map(client).collect()
    }

    /// Answers what was taken and ends all connections.
    pub(crate) async fn stop(&self) {
        self.server.stop().await;
        self.listeners.iter().for_each(Listener::remove_file);
    }
}

fn server(place: &Address) -> NbdServer {
    match place {
        Address::Unix(path) => NbdServer::Unix(path.clone()),
        Address::Tcp(a) => NbdServer::Tcp(a.ip().to_string(), a.port()),
    }
}

async fn listen(env: &HostEnv, address: &Address) -> Result<(Listener, Address)> {
    match address {
        Address::Unix(path) => {
            let bound = bind_unix(env, path).await;
            let listener = bound.with_context(|| format!("cannot listen on {}", path.display()))?;
            paths::share_socket(path)?;
            Ok((listener, address.clone()))
        }
        Address::Tcp(wanted) => {
            let listener = Listener::bind_tcp(env, *wanted).with_context(|| format!("cannot listen on {wanted}"))?;
            // Port 0 takes any free one.
            let place = listener.address().unwrap_or(*wanted);
            Ok((listener, Address::Tcp(place)))
        }
    }
}

/// The kernel lets go of a killed daemon's listener a moment after its process is gone, so a socket that is in use gets
/// a few seconds.
async fn bind_unix(env: &HostEnv, path: &Path) -> std::io::Result<Listener> {
    let end = env.now().plus(BUSY_PATIENCE);
    loop {
        match Listener::bind_unix(env, path, 0o600) {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && env.now() < end => env.sleep(BUSY_PAUSE).await,
            other => return other,
        }
    }
}

async fn accept<B: Backend>(env: HostEnv, server: Server<HostEnv, B>, listener: Listener) {
    let mut said = None;
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let peer = stream.peer().to_string();
                server.serve(stream, peer);
            }
            Err(e) => {
                let now = env.now();
                if said.is_none_or(|then| now.since(then) >= SAID_AGAIN) {
                    log::warn(&format!("NBD: a connection could not be accepted: {e}"));
                    said = Some(now);
                }
                env.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_remote_ones_refused() {
        let default = Path::new("/run/x/nbd.sock");
        assert_eq!(addresses(&[], false, default).expect("default"), [Address::Unix(default.into())]);
        let read = |text: &str, remote| addresses(&[text.to_string()], remote, default);
        assert_eq!(read("unix:/tmp/s", false).expect("unix"), [Address::Unix("/tmp/s".into())]);
        assert!(read("tcp:127.0.0.1:0", false).is_ok());
        let refused = read("tcp:0.0.0.0:10809", false).expect_err("remote").to_string();
        assert!(refused.contains("--allow-remote"), "{refused}");
        assert!(read("tcp:0.0.0.0:10809", true).is_ok());
        for bad in ["10809", "tcp:", "tcp:localhost", "/tmp/s"] {
            assert!(read(bad, false).is_err(), "{bad}");
        }
    }
}

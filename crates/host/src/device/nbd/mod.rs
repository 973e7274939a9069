//! Members behind an NBD server: many requests in flight on one connection, answers matched by cookie.
//!
//! A server that is silent for long is given up like one that has gone; see [`patience`].
//!
//! When the connection is lost, all requests in flight fail with `Disconnected` and the device stays failed until it is
//! opened anew: nobody knows what became of unsynced writes, so only recovery may go on.

mod client;
mod covered;
mod handshake;
mod input;
pub(super) mod lease;
mod patience;

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_nbd::consts::{cmd, export_flag};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Answering, DeviceError, DeviceTraits};

use super::{Access, OpenError};
use crate::locator::{NbdLocator, NbdServer};
use crate::net::Stream;
use crate::reactor::HostEnv;
use client::{Client, Needs};
use handshake::{negotiate, Export, HandshakeError};
use input::Input;
pub use lease::WRITER_CAME;
use patience::{Broken, Patience};

/// How long a server may take to agree.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Unit of the device.
const BLOCK: u32 = 4096;
/// Most bytes in one TRIM.
const MAX_TRIM: u64 = 1 << 30;

/// A disk behind an NBD server. Cloning gives another handle; the last one ends the connection.
#[derive(Clone)]
pub struct NbdDevice {
    handle: Rc<Handle>,
}

struct Handle {
    client: Rc<Client>,
    export: Export,
    /// Of a device that was opened to be read, beside others who do.
    reader: OnceCell<lease::Reader>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.client.disconnect();
    }
}

impl NbdDevice {
    /// Connects to the server and takes the export.
    pub async fn open(env: &HostEnv, locator: &NbdLocator, access: Access) -> Result<NbdDevice, OpenError> {
        NbdDevice::open_with(env, locator, access, Patience::default()).await
    }

    async fn open_with(
        env: &HostEnv,
        locator: &NbdLocator,
        access: Access,
        patience: Patience,
    ) -> Result<NbdDevice, OpenError> {
        let refuse = |why: String| OpenError::Nbd { locator: locator.to_string(), why };
        let connect = async {
            let stream = match &locator.server {
                NbdServer::Unix(path) => Stream::connect_unix(env, path.clone()).await,
                NbdServer::Tcp(host, port) => Stream::connect_tcp(env, host.clone(), *port).await,
            };
            let stream = stream.map_err(HandshakeError::of_connecting)?;
            let mut input = Input::new(stream.clone());
            let export = negotiate(&stream, &mut input, &locator.export).await?;
            Ok::<_, HandshakeError>((stream, input, export))
        };
        let connected = env.timeout(HANDSHAKE, connect).await;
        let connected = connected.ok_or_else(|| refuse("the server does not answer; is it an NBD server?".into()))?;
        let (stream, input, export) = connected.map_err(|e| match e {
            HandshakeError::Nobody(_) => OpenError::NoServer { locator: locator.to_string(), why: e.to_string() },
            _ => refuse(e.to_string()),
        })?;
        check(&export, access).map_err(refuse)?;
        let client = Client::start(env, stream, input, export.style, patience);
        let handle = Handle { client, export, reader: OnceCell::new() };
        let device = NbdDevice { handle: Rc::new(handle) };
        device.keep_apart(env, access).await.map_err(|e| e.of(locator.to_string()))?;
        Ok(device)
    }

    /// Sees to it that nobody else writes to the member while it is used.
    async fn keep_apart(&self, env: &HostEnv, access: Access) -> Result<(), lease::NotTaken> {
        match (access.lock, access.write) {
            (false, _) => Ok(()),
            (true, true) => lease::take(env, self).await,
            (true, false) => {
                // Nobody else has a handle yet.
                if let Some(reader) = lease::begin_to_read(env, self, access.ask).await? {
                    let _ = self.handle.reader.set(reader);
                }
                Ok(())
            }
        }
    }

    /// Whether the server takes writes, wanted or not.
    fn takes_writes(&self) -> bool {
        !self.handle.export.has(export_flag::READ_ONLY)
    }

    pub(crate) fn size(&self) -> u64 {
        self.handle.export.size / u64::from(BLOCK) * u64::from(BLOCK)
    }

    pub(crate) fn traits(&self) -> DeviceTraits {
        let export = &self.handle.export;
        DeviceTraits { discard: export.has(export_flag::SEND_TRIM), rotational: export.has(export_flag::ROTATIONAL) }
    }

    pub(crate) fn answering(&self) -> Answering {
        self.handle.client.answering()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.handle.client.is_lost()
    }

    /// Ends the connection: what is in flight fails, and all that follows.
    pub(crate) fn give_up(&self, why: &str) {
        self.handle.client.lose(&Broken::GivenUp(why.into()));
    }

    fn max_part(&self) -> usize {
        (self.handle.export.max_payload / BLOCK * BLOCK) as usize
    }

    pub(crate) async fn read(&self, offset: u64, buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        let (buf, result) = self.read_as(Needs::Lease, offset, buf).await;
        match self.handle.reader.get() {
            Some(reader) if result.is_ok() => (buf, reader.vouch(self).await),
            _ => (buf, result),
        }
    }

    async fn read_as(&self, needs: Needs, offset: u64, mut buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        let mut done = 0;
        while done < buf.len() {
            let range = done..buf.len().min(done + self.max_part());
            done = range.end;
            let result;
            (buf, result) = self.handle.client.read(needs, offset + range.start as u64, buf, range).await;
            if let Err(error) = result {
                return (buf, Err(error));
            }
        }
        (buf, Ok(()))
    }

    pub(crate) async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        lease::note_labels(self, offset, buf.len() as u64, Some(&buf));
        let mut done = 0;
        while done < buf.len() {
            let len = self.max_part().min(buf.len() - done);
            self.handle.client.write(Needs::Lease, offset + done as u64, buf.slice(done, len)).await?;
            done += len;
        }
        Ok(())
    }

    pub(crate) async fn sync(&self) -> Result<(), DeviceError> {
        if !self.handle.export.has(export_flag::SEND_FLUSH) {
            // It was opened to be read only: there is nothing of ours to make durable, and a server may not be asked.
            return Ok(());
        }
        self.handle.client.simple(cmd::FLUSH, 0, 0).await
    }

    pub(crate) async fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        if !self.handle.export.has(export_flag::SEND_TRIM) {
            return Err(DeviceError::Unsupported);
        }
        lease::note_labels(self, offset, len, None);
        let mut done = 0;
        while done < len {
            let part = (len - done).min(MAX_TRIM);
            self.handle.client.simple(cmd::TRIM, offset + done, part).await?;
            done += part;
        }
        Ok(())
    }
}

/// Whether the export can be a member.
fn check(export: &Export, access: Access) -> Result<(), String> {
    if access.write && export.has(export_flag::READ_ONLY) {
        return Err("the export is read-only; make it writable, or open the group with --read-only".into());
    }
    if access.write && !export.has(export_flag::SEND_FLUSH) {
        return Err("the server does not offer FLUSH, so nothing written there could be made durable; \
                    use a server that does (nbdkit and qemu-nbd do)"
            .into());
    }
    if export.min_block > BLOCK || export.max_payload < BLOCK {
        return Err(format!(
            "the server wants requests of {} to {} bytes; members are written in blocks of {BLOCK}",
            export.min_block, export.max_payload
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

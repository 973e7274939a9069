//! `serve --raw`: a bare device over NBD, without any group, to compare with.

use anyhow::{Context, Result};
use bimetal_export::Export;
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, HostEnv, Reactor};
use bimetal_volume::backend::{Backend, Extent, Piece, Pieces, Wanted, WriteFlags, ZERO_RUN};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::Device;
use bimetal_volume::error::Error;
use bimetal_volume::units::BLOCK;

use super::exports::{self, Address, Served};
use crate::cli::Serve;
use crate::{former, log, members};

/// Runs until a signal comes.
pub(crate) fn run(locator: &str, args: &Serve) -> Result<()> {
    let locator = members::parse(locator)?;
    let default = std::env::temp_dir().join(format!("bimetal-raw-{}.sock", std::process::id()));
    let addresses = exports::addresses(&args.nbd, args.allow_remote, &default)?;
    let (read_only, force) = (args.read_only, args.force);
    let reactor = Reactor::new()?;
    super::hygiene();
    let env = reactor.env();
    reactor.block_on(async move {
        if !read_only {
            crate::commands::create::refuse_used(&env, &locator, force).await?;
        }
        let access = if read_only { Access::READ } else { Access::SERVE };
        let device = HostDevice::open(&env, &locator, access).await?;
        if !read_only {
            let refused = former::refuse(&env, &locator, &device, None, force).await;
            refused.context("nothing is served for writing; --read-only shows what is there")?;
        }
        serve(&env, device, read_only, &addresses, &locator.to_string()).await
    })
}

async fn serve(env: &HostEnv, device: HostDevice, read_only: bool, at: &[Address], name: &str) -> Result<()> {
    let backend = Raw { device: device.clone(), read_only, zeros: BufMut::zeroed(ZERO_RUN as usize).freeze() };
    let export = Export { uuid: [0; 16], name: "raw".into(), description: name.into(), backend, read_only };
    let served = Served::start(env, vec![export], at).await?;
    let signals = bimetal_host::signals::Signals::catch(env).context("cannot catch signals")?;
    log::info(&format!("serving {name} bare on {}", served.uris(&["raw".to_string()]).join(", ")));
    super::notify_ready();
    signals.next().await.context("waiting for a signal")?;
    served.stop().await;
    device.sync().await.context("the last sync")
}

/// A device as a block export: aligned requests only go through; others are refused.
#[derive(Clone)]
struct Raw {
    device: HostDevice,
    read_only: bool,
    /// Which zeroings write.
    zeros: Buf,
}

impl Raw {
    fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        let size = self.size();
        if offset % BLOCK != 0 || len % BLOCK != 0 || offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(Error::OutOfRange { offset, len, size });
        }
        Ok(())
    }
}

/// The device's error as one of member 0.
fn failed(source: bimetal_volume::env::DeviceError) -> Error {
    Error::Device { member: 0, source }
}

impl Backend for Raw {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn sector_size(&self) -> u32 {
        BLOCK as u32
    }

    async fn read(&self, offset: u64, len: u64) -> Result<Pieces, Error> {
        self.check(offset, len)?;
        let (buf, result) = self.device.read(offset, BufMut::new(len as usize)).await;
        result.map_err(failed)?;
        Ok([Piece::Data(buf.freeze())].into_iter().collect())
    }

    async fn write_while(&self, offset: u64, data: Buf, flags: WriteFlags, _wanted: Wanted<'_>) -> Result<(), Error> {
        self.check(offset, data.len() as u64)?;
        self.device.write(offset, data).await.map_err(failed)?;
        if flags.fua {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), Error> {
        self.device.sync().await.map_err(failed)
    }

    async fn trim_while(&self, offset: u64, len: u64, flags: WriteFlags, _wanted: Wanted<'_>) -> Result<(), Error> {
        self.check(offset, len)?;
        self.device.discard(offset, len).await.map_err(failed)?;
        if flags.fua {
            self.flush().await?;
        }
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.check(offset, len)?;
        let mut at = 0;
        while at < len {
            if !wanted() {
                return Err(Error::Stopping);
            }
            let step = ZERO_RUN.min(len - at);
            let zeros = self.zeros.slice(0, step as usize);
            self.device.write(offset + at, zeros).await.map_err(failed)?;
            at += step;
        }
        if flags.fua {
            self.flush().await?;
        }
        Ok(())
    }

    async fn cache(&self, offset: u64, len: u64, _wanted: Wanted<'_>) -> Result<(), Error> {
        self.check(offset, len)
    }

    fn extents(&self, offset: u64, len: u64, _max: usize) -> Result<Vec<Extent>, Error> {
        self.check(offset, len)?;
        Ok(vec![Extent { len, data: true, tier: 0, heat: 0 }])
    }
}

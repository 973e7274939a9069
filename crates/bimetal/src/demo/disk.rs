//! What the demo's files lie on: ranges of the volume, used through an NBD client, or a mounted file system.

use anyhow::Result;

use super::nbd::Nbd;
use super::process::World;

/// Bytes of one request when a whole file is read or written.
pub(crate) const STEP: u64 = 1 << 20;
/// Requests in flight when a whole file is read or written.
const WINDOW: usize = 8;

/// A place for files that are numbered from 0.
pub(crate) trait Disk {
    /// Makes a file of `size` bytes, a multiple of [`STEP`], and gives its number.
    fn add(&mut self, size: u64) -> Result<usize>;
    /// Writes. It may still be under way when this returns.
    fn write(&mut self, file: usize, offset: u64, data: &[u8]) -> Result<()>;
    /// Makes all writes durable.
    fn sync(&mut self, file: usize) -> Result<()>;
    /// Reads one piece, past every cache of this machine's memory.
    fn read(&mut self, file: usize, offset: u64, len: u64) -> Result<Vec<u8>>;
    /// Reads a whole file in order and shows its pieces.
    fn read_all(&mut self, file: usize, each: &mut dyn FnMut(u64, &[u8])) -> Result<()>;
    /// Of `len` bytes of a file from `at` on, those on the fast and those on the slow tier.
    fn tiers(&mut self, file: usize, at: u64, len: u64) -> Result<(u64, u64)>;
    /// After a restart of the daemon.
    fn reconnect(&mut self, world: &World) -> Result<()>;
    /// Before the daemon is stopped or killed for good.
    fn leave(&mut self, world: &World) -> Result<()>;
}

/// Files as ranges of the volume, one after the other.
pub(crate) struct Ranges {
    nbd: Nbd,
    files: Vec<(u64, u64)>,
}

impl Ranges {
    pub(crate) fn connect(world: &World) -> Result<Ranges> {
        Ok(Ranges { nbd: Nbd::connect(&world.nbd_socket(), "main")?, files: Vec::new() })
    }

    fn drain(&mut self, down_to: usize) -> Result<()> {
        while self.nbd.in_flight() > down_to {
            self.nbd.finish_one()?;
        }
        Ok(())
    }
}

impl Disk for Ranges {
    fn add(&mut self, size: u64) -> Result<usize> {
        let start = self.files.last().map_or(0, |(start, size)| start + size);
        anyhow::ensure!(start + size <= self.nbd.size, "the volume is too small for the demo's files");
        self.files.push((start, size));
        Ok(self.files.len() - 1)
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) -> Result<()> {
        self.drain(WINDOW - 1)?;
        self.nbd.begin_write(self.files[file].0 + offset, data)
    }

    fn sync(&mut self, _file: usize) -> Result<()> {
        self.drain(0)?;
        self.nbd.flush()
    }

    fn read(&mut self, file: usize, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.drain(0)?;
        self.nbd.read(self.files[file].0 + offset, len)
    }

    fn read_all(&mut self, file: usize, each: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        self.drain(0)?;
        let (start, size) = self.files[file];
        let (mut asked, mut got) = (0, 0);
        while got < size {
            while asked < size && self.nbd.in_flight() < WINDOW {
                self.nbd.begin_read(start + asked, STEP)?;
                asked += STEP;
            }
            let (offset, data) = self.nbd.finish_one()?;
            each(offset - start, &data);
            got += data.len() as u64;
        }
        Ok(())
    }

    fn tiers(&mut self, file: usize, at: u64, len: u64) -> Result<(u64, u64)> {
        self.drain(0)?;
        let (start, size) = self.files[file];
        self.nbd.tiers(start + at, len.min(size.saturating_sub(at)))
    }

    fn reconnect(&mut self, world: &World) -> Result<()> {
        self.nbd = Nbd::connect(&world.nbd_socket(), "main")?;
        Ok(())
    }

    fn leave(&mut self, _world: &World) -> Result<()> {
        self.drain(0)
    }
}

use bimetal_volume::backend::{Backend, Extent, Piece, Pieces, Wanted, WriteFlags};
use bimetal_volume::buf::Buf;
use bimetal_volume::error::Error;
use smallvec::smallvec;

use super::check_range;

/// Reads as zeros and forgets what is written.
#[derive(Clone, Debug)]
pub struct Null {
    size: u64,
}

impl Null {
    /// A volume of `size` bytes.
    pub fn new(size: u64) -> Null {
        Null { size }
    }
}

impl Backend for Null {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        false
    }

    fn sector_size(&self) -> u32 {
        4096
    }

    async fn read(&self, offset: u64, len: u64) -> Result<Pieces, Error> {
        check_range(offset, len, self.size)?;
        Ok(smallvec![Piece::Zero(len)])
    }

    async fn write_while(&self, offset: u64, data: Buf, _flags: WriteFlags, _wanted: Wanted<'_>) -> Result<(), Error> {
        check_range(offset, data.len() as u64, self.size)
    }

    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn trim_while(&self, offset: u64, len: u64, _flags: WriteFlags, _wanted: Wanted<'_>) -> Result<(), Error> {
        check_range(offset, len, self.size)
    }

    async fn write_zeroes(&self, offset: u64, len: u64, _flags: WriteFlags, _wanted: Wanted<'_>) -> Result<(), Error> {
        check_range(offset, len, self.size)
    }

    async fn cache(&self, offset: u64, len: u64, _wanted: Wanted<'_>) -> Result<(), Error> {
        check_range(offset, len, self.size)
    }

    fn extents(&self, offset: u64, len: u64, _max: usize) -> Result<Vec<Extent>, Error> {
        check_range(offset, len, self.size)?;
        Ok(vec![Extent { len, data: false, tier: 0, heat: 0 }])
    }
}

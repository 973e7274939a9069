//! The volume table of a label. A volume takes a row for each of its runs of pages.

use zerocopy::little_endian::{U16, U32, U64};

use super::codec::{get_name, put_name};
use super::raw::RawVolume;
use super::LabelError;

/// Placement of a volume, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementCode {
    /// 0.
    Auto,
    /// 1.
    FastOnly,
    /// 2.
    SlowOnly,
}

/// A run of pages of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// First page.
    pub first: u32,
    /// Pages, at least one.
    pub count: u32,
}

impl PageRun {
    /// The page after the last.
    pub fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.count)
    }
}

/// What has become of a volume, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// 0: it is there.
    Living,
    /// 1: it is deleted; its pages are not free before all members know that nothing lives in them (C7.4).
    Deleted,
    /// 2: it is there, and belongs to a family since it has held plaintext: slots may still hold some of it.
    Encrypting,
}

/// A volume as every label of the group lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRow {
    /// Its name for ever.
    pub uuid: [u8; 16],
    /// Its name for people.
    pub name: String,
    /// Bytes, a multiple of the chunk size.
    pub size: u64,
    /// Never used again in this group.
    pub id: u32,
    /// Its part of the map, in the order of its chunks; at least one run. Each takes a row of the table.
    pub runs: Vec<PageRun>,
    /// Id of the family whose key its content is encrypted under; 0: it is not encrypted.
    pub family: u32,
    /// Where its chunks may live.
    pub placement: PlacementCode,
    /// Whether it is there.
    pub state: VolumeState,
}

impl VolumeRow {
    /// Pages of its part of the map.
    pub fn pages(&self) -> u64 {
        self.runs.iter().map(|r| u64::from(r.count)).sum()
    }
}

/// Rows of the volume table that these volumes take.
pub fn rows_of(volumes: &[VolumeRow]) -> usize {
    volumes.iter().map(|v| v.runs.len()).sum()
}

pub(super) fn encode_volume(r: &mut RawVolume, v: &VolumeRow, number: u16, run: &PageRun) {
    r.uuid = v.uuid;
    r.name = put_name(&v.name);
    r.size = U64::new(v.size);
    r.id = U32::new(v.id);
    r.first_page = U32::new(run.first);
    r.page_count = U32::new(run.count);
    r.family = U32::new(v.family);
    r.placement = match v.placement {
        PlacementCode::Auto => 0,
        PlacementCode::FastOnly => 1,
        PlacementCode::SlowOnly => 2,
    };
    r.state = match v.state {
        VolumeState::Living => 0,
        VolumeState::Deleted => 1,
        VolumeState::Encrypting => 2,
    };
    r.run = U16::new(number);
}

/// Reads the volume table. A row with a run number other than 0 continues the volume of the row before.
pub(super) fn decode_volumes(rows: &[RawVolume]) -> Result<Vec<VolumeRow>, LabelError> {
    let mut volumes: Vec<VolumeRow> = Vec::new();
    for r in rows {
        let row = decode_volume(r)?;
        match (usize::from(r.run.get()), volumes.last_mut()) {
            (0, _) => volumes.push(row),
            (n, Some(v)) if n == v.runs.len() && continues(v, &row) => v.runs.extend(row.runs),
            _ => return Err(LabelError::Field("volume run")),
        }
    }
    Ok(volumes)
}

/// Whether a row says the same of a volume as its first one, but for the pages.
fn continues(first: &VolumeRow, row: &VolumeRow) -> bool {
    let rest = VolumeRow { runs: first.runs.clone(), ..row.clone() };
    *first == rest
}

fn decode_volume(r: &RawVolume) -> Result<VolumeRow, LabelError> {
    let placement = match r.placement {
        0 => PlacementCode::Auto,
        1 => PlacementCode::FastOnly,
        2 => PlacementCode::SlowOnly,
        _ => return Err(LabelError::Field("volume placement")),
    };
    let state = match r.state {
        0 => VolumeState::Living,
        1 => VolumeState::Deleted,
        2 => VolumeState::Encrypting,
        _ => return Err(LabelError::Field("volume state")),
    };
    Ok(VolumeRow {
        uuid: r.uuid,
        name: get_name(&r.name, "volume name")?,
        size: r.size.get(),
        id: r.id.get(),
        runs: vec![PageRun { first: r.first_page.get(), count: r.page_count.get() }],
        family: r.family.get(),
        placement,
        state,
    })
}

/// Numbers are below the next one, and neither they nor the names of living volumes are given twice.
pub(super) fn check_names(volumes: &[VolumeRow], next: u32) -> Result<(), LabelError> {
    let field = |ok: bool| if ok { Ok(()) } else { Err(LabelError::Field("volume numbers and names")) };
    for (i, v) in volumes.iter().enumerate() {
        let living = |v: &VolumeRow| v.state != VolumeState::Deleted;
        let twice = |w: &VolumeRow| w.id == v.id || (living(v) && living(w) && w.name == v.name);
        field(v.id < next && !volumes[..i].iter().any(twice))?;
    }
    Ok(())
}

/// Every volume has pages for all its chunks, and no page is two volumes'.
pub(super) fn check_pages(volumes: &[VolumeRow], pages: u64) -> Result<(), LabelError> {
    let field = |ok: bool| if ok { Ok(()) } else { Err(LabelError::Field("volume pages")) };
    for v in volumes {
        let chunks = v.size / crate::CHUNK;
        let enough = v.pages() * crate::ENTRIES_PER_PAGE as u64 >= chunks;
        field(enough && chunks > 0 && v.size % crate::CHUNK == 0)?;
    }
    let mut runs: Vec<PageRun> = volumes.iter().flat_map(|v| v.runs.iter().copied()).collect();
    runs.sort_by_key(|r| r.first);
    let mut next_page = 0;
    for r in runs {
        field(r.count > 0 && u64::from(r.first) >= next_page)?;
        next_page = r.end();
    }
    field(next_page <= pages)
}

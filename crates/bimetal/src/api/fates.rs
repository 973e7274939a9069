//! What has become of the content of a volume when members are missing: `GET /v1/volumes/NAME/fates/FROM`.

use bimetal_volume::family::lost::LostFamily;
use serde::{Deserialize, Serialize};

/// `GET /v1/volumes/NAME/fates/FROM`: what has become of the content of a volume from byte FROM on; ask again from
/// `until_bytes` while that is not its size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fates {
    pub(crate) schema: u32,
    pub(crate) volume: String,
    pub(crate) size_bytes: u64,
    /// The runs end here.
    pub(crate) until_bytes: u64,
    pub(crate) runs: Vec<FateRun>,
}

/// Neighbouring blocks of one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FateRun {
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) fate: Fate,
}

/// What has become of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fate {
    /// Holds no data: reads as zeros.
    NeverWritten,
    /// Reads as it was last written and flushed.
    Whole,
    /// Readable, but writes of the last seconds before the group ended may be missing.
    PossiblyStale,
    /// An old copy on the slow tier is all there is: an error, unless served with `--kept-copies`.
    KeptCopy,
    /// An error; what is left does not know whether there was anything.
    PerhapsLost,
    /// An error; there was data.
    Lost,
}

impl Fate {
    /// How many there are.
    pub(crate) const COUNT: usize = 6;
}

/// Families that nobody can open with the members at hand.
pub(crate) fn lost_families(lost: &[LostFamily]) -> serde_json::Value {
    lost.iter().map(|f| serde_json::json!({ "name": f.name, "volumes": f.volumes })).collect()
}

impl From<bimetal_volume::fate::Fate> for Fate {
    fn from(fate: bimetal_volume::fate::Fate) -> Fate {
        use bimetal_volume::fate::Fate as Of;
        match fate {
            Of::NeverWritten => Fate::NeverWritten,
            Of::Whole => Fate::Whole,
            Of::PossiblyStale => Fate::PossiblyStale,
            Of::KeptCopy => Fate::KeptCopy,
            Of::PerhapsLost => Fate::PerhapsLost,
            Of::Lost => Fate::Lost,
        }
    }
}

impl From<bimetal_volume::fate::FateRun> for FateRun {
    fn from(r: bimetal_volume::fate::FateRun) -> FateRun {
        FateRun { offset_bytes: r.offset, length_bytes: r.len, fate: r.fate.into() }
    }
}

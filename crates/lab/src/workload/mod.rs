//! Generated workloads, each a habit of real users in its purest form.
//!
//! A [`Workload`] is a spec: a name, parameters, and the endless stream of accesses they make on a volume of a given
//! size, from a seed. Sizes of sets are parts per million of the volume, so that a spec means the same on any scale.
//! The same spec, volume size and seed give the same stream on every machine.
//!
//! Reading order: `stream` (from visits to accesses), `math`, `zipf`, `place` (what is hot, and where it lies), `space`
//! (what is free), then one file per workload.

mod boot;
mod churn;
mod film;
mod full;
mod hot;
mod looping;
mod math;
mod place;
mod scan;
mod space;
mod stream;
mod sync;
mod vm;
mod zipf;
mod zipf_files;

#[cfg(test)]
mod tests;

pub use boot::Boot;
pub use churn::Churn;
pub use film::FilmCopy;
pub use full::NearlyFull;
pub use hot::{Drift, Shift};
pub use looping::Loop;
pub use scan::Scan;
pub use stream::{interleave, Accesses};
pub use sync::SyncWrites;
pub use vm::VmImage;
pub use zipf_files::ZipfFiles;

/// A spec that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The volume has no room for what the spec asks.
    #[error("the volume has {have} bytes, {name} needs at least {need}")]
    VolumeTooSmall {
        /// The workload.
        name: &'static str,
        /// Bytes of the volume.
        have: u64,
        /// Bytes that would do.
        need: u64,
    },
    /// A parameter out of its range.
    #[error("{name}: {why}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// What it should be.
        why: &'static str,
    },
}

/// A generator of accesses.
pub trait Workload: Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Names and values of all its parameters.
    fn parameters(&self) -> Vec<(&'static str, String)>;

    /// The stream on a volume of so many bytes; it never ends, so take as many as are needed. All offsets and lengths
    /// are multiples of 512 bytes, and nothing lies beyond the volume.
    ///
    /// # Errors
    /// A parameter makes no sense, or the volume is too small.
    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError>;
}

/// A workload's name and parameters in one line.
pub fn describe(workload: &dyn Workload) -> String {
    let parameters = workload.parameters().into_iter().map(|(name, value)| format!(" {name}={value}"));
    std::iter::once(workload.name().to_owned()).chain(parameters).collect()
}

/// All workloads with their defaults, which fit any volume of 256 MiB and more.
pub fn all() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(ZipfFiles::default()),
        Box::new(Scan::default()),
        Box::new(FilmCopy::default()),
        Box::new(Drift::default()),
        Box::new(Shift::default()),
        Box::new(Loop::default()),
        Box::new(Churn::default()),
        Box::new(Boot::default()),
        Box::new(SyncWrites::default()),
        Box::new(VmImage::default()),
        Box::new(NearlyFull::default()),
    ]
}

/// The workload of that name with its defaults.
pub fn by_name(name: &str) -> Option<Box<dyn Workload>> {
    all().into_iter().find(|workload| workload.name() == name)
}

/// One million: the whole, in parts per million.
const MILLION: u32 = 1_000_000;
/// Alignment of everything that a file system asks for.
const PAGE: u64 = 4096;
/// Alignment of everything at all.
const SECTOR: u64 = 512;

/// Names and values of a spec's fields.
macro_rules! parameters {
    ($spec:expr; $($field:ident),+ $(,)?) => {
        vec![$((stringify!($field), $spec.$field.to_string())),+]
    };
}
use parameters;

/// A part of so many bytes, cut to whole pages.
fn part(bytes: u64, ppm: u32) -> u64 {
    let part = u128::from(bytes) * u128::from(ppm) / u128::from(MILLION);
    // No more than `bytes`, as `ppm` was checked.
    (part as u64) / PAGE * PAGE
}

fn check(holds: bool, name: &'static str, why: &'static str) -> Result<(), SpecError> {
    if holds {
        Ok(())
    } else {
        Err(SpecError::Parameter { name, why })
    }
}

/// A share, 0 to the whole.
fn check_share(ppm: u32, name: &'static str) -> Result<(), SpecError> {
    check(ppm <= MILLION, name, "must be at most 1000000")
}

/// A share that is not nothing.
fn check_part(ppm: u32, name: &'static str) -> Result<(), SpecError> {
    check((1..=MILLION).contains(&ppm), name, "must be 1 to 1000000")
}

/// Bytes of a request.
fn check_request(bytes: u64, name: &'static str) -> Result<(), SpecError> {
    let fits = bytes != 0 && bytes % SECTOR == 0 && bytes <= 1 << 30;
    check(fits, name, "must be a multiple of 512 bytes, at most 1 GiB")
}

/// A Zipf exponent.
fn check_exponent(exponent: f64) -> Result<(), SpecError> {
    check((0.0..=4.0).contains(&exponent), "exponent", "must be 0 to 4")
}

fn check_volume(name: &'static str, have: u64, need: u64) -> Result<(), SpecError> {
    if have < need {
        Err(SpecError::VolumeTooSmall { name, have, need })
    } else {
        Ok(())
    }
}

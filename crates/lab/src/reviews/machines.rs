//! The machines of the reviews, and what is measured on them.

use std::ops::Range;

use bimetal_sim::model::catalog::{self, Spec};
use bimetal_sim::model::hdd::HddSpec;
use bimetal_sim::model::ssd::SsdSpec;
use bimetal_sim::model::Model;
use bimetal_volume::units::Tier;

use super::loads::{self, GB};
use super::outcome::Column;
use crate::system::bare::Bare;
use crate::system::bimetal::{Bimetal, Part, Setup};
use crate::system::fusion::{Concat, Fusion, FusionSpec};
use crate::system::System;

/// Seed of the engine's chance.
const SEED: u64 = 2012;

/// A machine of a review.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// For people.
    pub(super) words: &'static str,
    pub(super) fast: Spec,
    pub(super) slow: Spec,
    /// Whether its set only concatenates (B12).
    concatenates: bool,
}

/// 2012: 1 TB disk of 7200 rpm, 128 GB SSD.
pub(super) fn a() -> Machine {
    let words = "machine A (2012): 1 TB disk of 7200 rpm, 128 GB SATA SSD (PM830 class, 121 GB visible), Fusion Drive";
    Machine { words, fast: Spec::Ssd(catalog::pm830()), slow: Spec::Hdd(catalog::hdd2012()), concatenates: false }
}

/// 2014: 1 TB disk of 5400 rpm, 128 GB PCIe SSD.
pub(super) fn b() -> Machine {
    let words = "machine B (2014): 1 TB disk of 5400 rpm, 128 GB PCIe SSD (SanDisk SD0128F), Fusion Drive";
    Machine { words, fast: Spec::Ssd(catalog::sd0128f()), slow: Spec::Hdd(catalog::hdd2014()), concatenates: false }
}

/// 2012, made by hand: 480 GB PCIe SSD, 2 TB disk.
pub(super) fn c() -> Machine {
    let words = "machine C (2012): 480 GB PCIe SSD and 2 TB disk, a set made by hand that only concatenates (B12)";
    // The review names no disk; one of the same year, twice as large.
    let disk = HddSpec { size: 2000 * GB, ..catalog::hdd2012() };
    Machine { words, fast: Spec::Ssd(catalog::pcie480()), slow: Spec::Hdd(disk), concatenates: true }
}

/// 2013, made by hand: 120 GB SATA II SSD, 1 TB disk of 7200 rpm. Neither is named; rates are fitted to Z1 and Z2.
pub(super) fn d() -> Machine {
    let words = "machine D (2013): 120 GB SATA II SSD and 1 TB disk of 7200 rpm, a set made by hand";
    let ssd = SsdSpec { write_rate: 261_000_000, read_rate: 270_000_000, host_rate: 275_000_000, ..catalog::pm830() };
    let disk = HddSpec { outer_rate: 114_000_000, inner_rate: 58_000_000, ..catalog::hdd2012() };
    Machine { words, fast: Spec::Ssd(ssd), slow: Spec::Hdd(disk), concatenates: true }
}

impl Machine {
    /// What stands in this column, new and empty.
    pub(super) fn build(&self, column: Column) -> Subject {
        match column {
            Column::Bimetal => Subject::Bimetal(Box::new(self.bimetal())),
            Column::DiskAlone => Subject::Bare(bare("disk alone", Tier::Slow, &self.slow)),
            Column::SsdAlone => Subject::Bare(bare("SSD alone", Tier::Fast, &self.fast)),
            Column::Review | Column::Model if self.concatenates => {
                Subject::Concat(Concat::new(&self.fast, &self.slow).expect("parameters of the catalog"))
            }
            Column::Review | Column::Model => {
                let spec = FusionSpec::default();
                Subject::Fusion(Box::new(Fusion::new(&self.fast, &self.slow, spec).expect("parameters of the catalog")))
            }
        }
    }

    /// Bimetal without its endurance budget.
    pub(super) fn spending(&self) -> Subject {
        let mut system = self.bimetal();
        system.spend_freely();
        let mut subject = Subject::Bimetal(Box::new(system));
        subject.restart();
        subject
    }

    fn bimetal(&self) -> Bimetal {
        let part = |spec| Part::new(spec).expect("parameters of the catalog");
        let setup = Setup { fast: part(&self.fast), slow: part(&self.slow), migrate: true, seed: SEED };
        Bimetal::new(setup).expect("a group of one SSD and one disk")
    }
}

/// A device by itself.
pub(super) fn bare(name: &str, tier: Tier, spec: &Spec) -> Bare<dyn Model> {
    Bare::new(name, tier, spec.build().expect("parameters of the catalog"))
}

/// Who is measured.
pub(super) enum Subject {
    Fusion(Box<Fusion>),
    Concat(Concat),
    Bare(Bare<dyn Model>),
    Bimetal(Box<Bimetal>),
}

impl Subject {
    /// As a system.
    pub(super) fn system(&mut self) -> &mut dyn System {
        match self {
            Subject::Fusion(s) => s.as_mut(),
            Subject::Concat(s) => s,
            Subject::Bare(s) => s,
            Subject::Bimetal(s) => s.as_mut(),
        }
    }

    /// Whether it has two devices.
    pub(super) fn is_tiered(&self) -> bool {
        !matches!(self, Subject::Bare(_))
    }

    /// Writes a range in order; for the state before an experiment, so how long it takes does not matter.
    pub(super) fn fill(&mut self, range: Range<u64>) {
        self.fill_all([range]);
    }

    /// Writes ranges one after another, as [`Subject::fill`] does.
    pub(super) fn fill_all(&mut self, ranges: impl IntoIterator<Item = Range<u64>>) {
        match self {
            Subject::Bimetal(s) => ranges.into_iter().for_each(|range| s.fill(range)),
            _ => ranges.into_iter().for_each(|range| drop(loads::write(self.system(), range, 4 << 20, 4))),
        }
    }

    /// The machine is restarted.
    pub(super) fn restart(&mut self) {
        match self {
            Subject::Fusion(s) => s.restart(),
            Subject::Bimetal(s) => {
                s.stop();
                s.reopen().expect("a group that was stopped in order");
            }
            Subject::Concat(_) | Subject::Bare(_) => {}
        }
    }

    /// What the mover of Bimetal says of itself.
    pub(super) fn mover_words(&self) -> Option<String> {
        match self {
            Subject::Bimetal(s) => {
                let (doing, why) = s.mover_words();
                Some(format!("{doing}: {why}"))
            }
            _ => None,
        }
    }
}

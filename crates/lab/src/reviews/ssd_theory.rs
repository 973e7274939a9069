//! S4: write amplification against spare space.

use bimetal_sim::model::ftl::{Ftl, Geometry};
use bimetal_sim::model::theory::amplification;
use bimetal_sim::prng::Prng;

use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};

/// Spare space over data, in percent.
const SPARE: [u64; 7] = [7, 10, 13, 20, 28, 50, 100];

pub(super) fn session() -> Session {
    Session { ids: &["S4"], columns: &[Column::Model], measure, report: |r| vec![s4(r)] }
}

fn measure(_: Column) -> Seen {
    let mut seen = Seen::default();
    for spare in SPARE {
        let rho = spare as f64 / 100.0;
        let amplification = replayed(rho);
        seen.put(&spare.to_string(), amplification);
        seen.line("curve", vec![(spare as f64, amplification)]);
    }
    seen
}

/// Write amplification of random writes in the steady state.
fn replayed(rho: f64) -> f64 {
    let mut flash = Ftl::new(Geometry::with_spare(512, 256, rho)).expect("enough spare blocks");
    let pages = flash.geometry().logical_pages;
    for page in 0..pages {
        flash.write(page, u8::MAX, 0);
    }
    let mut rng = Prng::new(4);
    let mut writes = |flash: &mut Ftl| {
        for _ in 0..3 * pages {
            flash.write(rng.below(u64::from(pages)) as u32, u8::MAX, 0);
        }
    };
    writes(&mut flash);
    flash.reset_counts();
    writes(&mut flash);
    flash.counts().write_amplification()
}

fn s4(results: &Results) -> Outcome {
    let metric = |spare: u64| {
        let closed = amplification(1.0 + spare as f64 / 100.0);
        let metric =
            results.metric(&spare.to_string(), &format!("{spare} % spare"), "x", Better::Lower, Demand::Nothing);
        metric.review(Value::Number((closed * 100.0).round() / 100.0))
    };
    let mut metrics: Vec<_> = SPARE.map(metric).into();
    metrics[0].remark =
        Some("The review shows the curve of a paper without its numbers; this column is the closed form.".into());
    Outcome {
        id: "S4",
        title: "Write amplification against spare space".into(),
        machine: "any SSD that cleans the emptiest block first".into(),
        method: "Flash of 512 blocks of 256 pages is filled, written at random three times over, and measured during three times more. \
                 The review's advice is to keep about 20 % free."
            .into(),
        metrics,
        checks: Vec::new(),
        charts: vec![results.chart("curve", "Write amplification", "spare space over data (%)", "written in all over written")],
        finding: format!(
            "With 7 % to spare each byte is written {} times, with 20 % {} times, with 50 % {} times.",
            results.say(Column::Model, "7"),
            results.say(Column::Model, "20"),
            results.say(Column::Model, "50"),
        ),
    }
}

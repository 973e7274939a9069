//! Whether what was asked is met, from the figures alone.

use crate::reviews::outcome::{Better, Column, Demand, Metric, Outcome, Value};

/// What "no worse" allows.
const EQUAL: f64 = 0.02;
/// How near the model of a reviewed system should be to the review.
const NEAR_REVIEW: f64 = 0.15;

/// Whether a demand is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Met,
    /// It is not.
    Missed,
    /// Something was asked, but there is no figure to judge by.
    Unknown,
    /// Nothing was asked.
    NotAsked,
}

impl Verdict {
    /// A sign and a word.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Met => "\u{2713} met",
            Verdict::Missed => "\u{2717} missed",
            Verdict::Unknown => "? not known",
            Verdict::NotAsked => "\u{2013}",
        }
    }

    pub(super) fn of(met: bool) -> Verdict {
        if met {
            Verdict::Met
        } else {
            Verdict::Missed
        }
    }
}

impl Metric {
    /// The value in a column.
    pub fn value(&self, column: Column) -> Option<&Value> {
        self.values.iter().find(|(c, _)| *c == column).map(|(_, v)| v)
    }

    /// The number in a column; of a range the better end, Bimetal's the worse one.
    pub fn number(&self, column: Column) -> Option<f64> {
        let highest = (self.better == Better::Higher) != (column == Column::Bimetal);
        let number = match self.value(column)? {
            Value::Number(x) => *x,
            Value::Range(a, b) if highest => a.max(*b),
            Value::Range(a, b) => a.min(*b),
            Value::Words(_) => return None,
        };
        number.is_finite().then_some(number)
    }

    /// How good a column is in parts of the SSD alone: 1 is as fast, 0.1 a tenth as fast.
    pub fn of_ssd(&self, column: Column) -> Option<f64> {
        let (x, ssd) = (self.number(column)?, self.number(Column::SsdAlone)?);
        let part = match self.better {
            Better::Higher => x / ssd,
            Better::Lower => ssd / x,
        };
        (part.is_finite() && part > 0.0).then_some(part)
    }

    /// How many times as good as the model of the reviewed system Bimetal is.
    pub fn advantage(&self) -> Option<f64> {
        let (ours, theirs) = (self.number(Column::Bimetal)?, self.number(Column::Model)?);
        let times = match self.better {
            Better::Higher => ours / theirs,
            Better::Lower => theirs / ours,
        };
        (times.is_finite() && times > 0.0).then_some(times)
    }
}

/// Whether Bimetal does what the metric asks.
pub fn judge(m: &Metric) -> Verdict {
    if m.demand == Demand::Nothing {
        return Verdict::NotAsked;
    }
    match (m.value(Column::Bimetal), m.value(Column::Model)) {
        // "Never" where the other has a figure.
        (Some(Value::Words(_)), Some(Value::Number(_) | Value::Range(..))) => Verdict::Missed,
        (Some(Value::Number(_) | Value::Range(..)), Some(Value::Words(_))) => Verdict::Met,
        (Some(Value::Words(ours)), Some(Value::Words(theirs))) if m.demand == Demand::Equal => {
            Verdict::of(ours == theirs)
        }
        _ => numbers(m),
    }
}

fn numbers(m: &Metric) -> Verdict {
    let (Some(ours), Some(theirs)) = (m.number(Column::Bimetal), m.number(Column::Model)) else {
        return Verdict::Unknown;
    };
    Verdict::of(match (m.demand, m.better) {
        (Demand::Beat, Better::Higher) => ours > theirs,
        (Demand::Beat, Better::Lower) => ours < theirs,
        (_, Better::Higher) => ours >= theirs * (1.0 - EQUAL),
        (_, Better::Lower) => ours <= theirs * (1.0 + EQUAL),
    })
}

/// Whether the model of the reviewed system is within 15 % of the review's figure, or range; `None` without both.
pub fn within_review(m: &Metric) -> Option<bool> {
    let model = m.number(Column::Model)?;
    let (low, high) = match m.value(Column::Review)? {
        Value::Number(x) => (*x, *x),
        Value::Range(a, b) => (a.min(*b), a.max(*b)),
        Value::Words(_) => return None,
    };
    Some(model >= low * (1.0 - NEAR_REVIEW) && model <= high * (1.0 + NEAR_REVIEW))
}

/// Demands and bars of all experiments, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Figures where Bimetal must be better: met, and all.
    pub beat: (usize, usize),
    /// Figures where it must not be more than 2 % worse: met, and all.
    pub equal: (usize, usize),
    /// Further bars: met, and all.
    pub checks: (usize, usize),
    /// Models within 15 % of the review, and all with a figure to compare.
    pub models: (usize, usize),
    /// Experiments in which everything that was asked is met, and all in which something was.
    pub experiments: (usize, usize),
}

impl Score {
    /// Of these outcomes.
    pub fn of(outcomes: &[Outcome]) -> Score {
        let mut s = Score::default();
        for o in outcomes {
            let (mut asked, mut met) = (o.checks.len(), o.checks.iter().filter(|c| c.met).count());
            s.checks = (s.checks.0 + met, s.checks.1 + asked);
            for m in &o.metrics {
                let ok = usize::from(judge(m) == Verdict::Met);
                let of = match m.demand {
                    Demand::Beat => &mut s.beat,
                    Demand::Equal => &mut s.equal,
                    Demand::Nothing => continue,
                };
                *of = (of.0 + ok, of.1 + 1);
                (met, asked) = (met + ok, asked + 1);
            }
            let compared: Vec<bool> = o.metrics.iter().filter_map(within_review).collect();
            s.models.0 += compared.iter().filter(|near| **near).count();
            s.models.1 += compared.len();
            s.experiments.0 += usize::from(asked > 0 && met == asked);
            s.experiments.1 += usize::from(asked > 0);
        }
        s
    }

    /// Whether everything that was asked is met.
    pub fn all_met(&self) -> bool {
        [self.beat, self.equal, self.checks].iter().all(|(met, all)| met == all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(better: Better, demand: Demand, ours: Value, theirs: Value) -> Metric {
        let values = vec![(Column::Model, theirs), (Column::Bimetal, ours)];
        Metric { label: "pass".into(), unit: "MB/s", better, demand, values, remark: None }
    }

    #[test]
    fn figures_are_judged_in_the_direction_that_counts() {
        use Better::{Higher, Lower};
        use Demand::{Beat, Equal, Nothing};
        let n = Value::Number;
        let cases = [
            (Higher, Beat, 10.0, 9.0, Verdict::Met),
            (Higher, Beat, 10.0, 10.0, Verdict::Missed),
            (Lower, Beat, 9.0, 10.0, Verdict::Met),
            (Lower, Beat, 10.0, 9.0, Verdict::Missed),
            (Higher, Equal, 98.1, 100.0, Verdict::Met),
            (Higher, Equal, 97.9, 100.0, Verdict::Missed),
            (Lower, Equal, 101.9, 100.0, Verdict::Met),
            (Lower, Equal, 102.1, 100.0, Verdict::Missed),
            (Higher, Nothing, 0.0, 100.0, Verdict::NotAsked),
            (Higher, Beat, f64::NAN, 1.0, Verdict::Unknown),
        ];
        for (better, demand, ours, theirs, expected) in cases {
            assert_eq!(judge(&metric(better, demand, n(ours), n(theirs))), expected, "{demand:?} {ours} {theirs}");
        }
    }

    #[test]
    fn words_and_ranges_are_judged_too() {
        let never = || Value::Words("never".into());
        let beat = |ours, theirs| judge(&metric(Better::Lower, Demand::Beat, ours, theirs));
        assert_eq!(beat(Value::Number(3.0), never()), Verdict::Met);
        assert_eq!(beat(never(), Value::Number(3.0)), Verdict::Missed);
        assert_eq!(beat(never(), never()), Verdict::Unknown);
        assert_eq!(beat(Value::Number(3.0), Value::Range(4.0, 2.0)), Verdict::Missed);
        assert_eq!(judge(&metric(Better::Lower, Demand::Equal, never(), never())), Verdict::Met);
    }

    #[test]
    fn a_model_may_be_15_percent_off_the_review() {
        let near = |review, model| {
            let mut m = metric(Better::Higher, Demand::Nothing, Value::Number(1.0), Value::Number(model));
            m.values.push((Column::Review, review));
            within_review(&m)
        };
        assert_eq!(near(Value::Number(100.0), 86.0), Some(true));
        assert_eq!(near(Value::Number(100.0), 84.0), Some(false));
        assert_eq!(near(Value::Range(7.0, 9.0), 10.3), Some(true));
        assert_eq!(near(Value::Words("the picture is missing".into()), 1.0), None);
    }
}

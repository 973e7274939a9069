//! What was seen in a column, and how the columns become metrics and charts.

use std::collections::BTreeMap;

use super::outcome::{Better, Chart, Check, Column, Demand, Metric, Series, Value};

/// What was seen in one column.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    numbers: BTreeMap<String, f64>,
    lines: BTreeMap<String, Vec<(f64, f64)>>,
    /// What a system said of itself, for people who look after it.
    pub(super) notes: Vec<String>,
}

impl Seen {
    pub(super) fn put(&mut self, name: &str, number: f64) {
        self.numbers.insert(name.into(), number);
    }

    pub(super) fn line(&mut self, name: &str, points: Vec<(f64, f64)>) {
        self.lines.entry(name.into()).or_default().extend(points);
    }
}

/// All columns of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Results(pub(super) Vec<(Column, Seen)>);

impl Results {
    /// A figure of a column.
    pub(super) fn get(&self, column: Column, name: &str) -> Option<f64> {
        self.0.iter().find(|(c, _)| *c == column).and_then(|(_, s)| s.numbers.get(name)).copied()
    }

    /// A figure in words.
    pub(super) fn say(&self, column: Column, name: &str) -> String {
        self.get(column, name).map_or("not measured".into(), figure)
    }

    /// The figure `name` of all columns, as a metric.
    pub(super) fn metric(&self, name: &str, label: &str, unit: &'static str, better: Better, demand: Demand) -> Metric {
        let of = |(column, seen): &(Column, Seen)| Some((*column, Value::Number(*seen.numbers.get(name)?)));
        Metric {
            label: label.into(),
            unit,
            better,
            demand,
            values: self.0.iter().filter_map(of).collect(),
            remark: None,
        }
    }

    /// The line `name` of all columns that have it.
    pub(super) fn chart(&self, name: &str, title: &str, x: &str, y: &str) -> Chart {
        let of = |(column, seen): &(Column, Seen)| {
            let points = seen.lines.get(name)?.clone();
            Some(Series { column: *column, points: thin(points) })
        };
        let series = self.0.iter().filter_map(of).collect();
        Chart { title: title.into(), x: x.into(), y: y.into(), series }
    }

    /// A bar for Bimetal.
    pub(super) fn check(&self, what: &str, name: &str, seen: &str, holds: impl Fn(f64) -> bool) -> Check {
        let number = self.get(Column::Bimetal, name);
        let seen = number.map_or("not measured".into(), |n| format!("{} {seen}", figure(n)));
        Check { what: what.into(), seen, met: number.is_some_and(holds) }
    }
}

/// Most points of a line.
const POINTS: usize = 600;

/// A line with fewer points: means of neighbours.
fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let n = points.len().div_ceil(POINTS).max(1);
    let mean = |of: &[(f64, f64)]| {
        let (x, y) = of.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0, y + p.1));
        (x / of.len() as f64, y / of.len() as f64)
    };
    points.chunks(n).map(mean).collect()
}

impl Metric {
    /// With the figure of the review, as the first column.
    pub(super) fn review(mut self, value: Value) -> Metric {
        self.values.insert(0, (Column::Review, value));
        self
    }

    /// With a remark.
    pub(super) fn remark(mut self, words: impl Into<String>) -> Metric {
        self.remark = Some(words.into());
        self
    }
}

/// A number with about three digits.
pub(super) fn figure(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        n if n == 0.0 => "0".into(),
        n if n < 0.1 => format!("{number:.3}"),
        _ => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let seen = [322.4, 98.04, 0.512, 0.05, 0.0].map(figure);
        assert_eq!(seen, ["322", "98.0", "0.51", "0.050", "0"]);
    }

    #[test]
    fn long_lines_are_thinned_to_means() {
        let line: Vec<(f64, f64)> = (0..6000).map(|i| (f64::from(i), f64::from(i % 10))).collect();
        let thinned = thin(line);
        assert_eq!(thinned.len(), 600);
        assert_eq!(thinned[1], (14.5, 4.5));
    }

    #[test]
    fn columns_become_a_metric() {
        let mut seen = Seen::default();
        seen.put("rate", 3.0);
        let results = Results(vec![(Column::Model, seen), (Column::Bimetal, Seen::default())]);
        let metric = results.metric("rate", "rate", "MB/s", Better::Higher, Demand::Beat).review(Value::Number(4.0));
        let wanted = vec![(Column::Review, Value::Number(4.0)), (Column::Model, Value::Number(3.0))];
        assert_eq!(metric.values, wanted);
        assert!(!results.check("is fast", "rate", "MB/s", |n| n > 1.0).met, "nothing was measured");
    }
}

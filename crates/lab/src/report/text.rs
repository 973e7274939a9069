//! Text and numbers as they stand in the report.

use crate::reviews::outcome::{Better, Column, Demand, Value};

/// Text that HTML takes for nothing else, in an element or between double quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in HTML, whatever wrote them.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A number with three digits that count, and no more than two behind the point.
pub fn figure(x: f64) -> String {
    match x.abs() {
        _ if x.is_nan() => "not a number".into(),
        a if a.is_infinite() => "without end".into(),
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.1 || a == 0.0 => trimmed(format!("{x:.2}")),
        _ => trimmed(format!("{x:.4}")),
    }
}

fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// A value without its unit.
pub fn value_words(value: &Value) -> String {
    match value {
        Value::Number(x) => figure(*x),
        Value::Range(a, b) => format!("{} to {}", figure(*a), figure(*b)),
        Value::Words(words) => words.clone(),
    }
}

/// Heading of a column.
pub(super) fn heading(column: Column) -> &'static str {
    match column {
        Column::Review => "Review, as printed",
        Column::Model => "Reviewed system, model",
        Column::Bimetal => "Bimetal",
        Column::DiskAlone => "Disk alone",
        Column::SsdAlone => "SSD alone",
    }
}

/// A class that the style knows.
pub(super) fn class(column: Column) -> &'static str {
    match column {
        Column::Review => "review",
        Column::Model => "model",
        Column::Bimetal => "bimetal",
        Column::DiskAlone => "disk",
        Column::SsdAlone => "ssd",
    }
}

/// All columns, in their order.
pub(super) const COLUMNS: [Column; 5] =
    [Column::Review, Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone];

pub(super) fn better_words(better: Better) -> &'static str {
    match better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    }
}

pub(super) fn demand_words(demand: Demand) -> &'static str {
    match demand {
        Demand::Beat => "must be better than the model",
        Demand::Equal => "must not be more than 2 % worse than the model",
        Demand::Nothing => "for orientation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.51, "0.51"),
            (0.00512, "0.0051"),
            (7.0, "7"),
            (21.94, "21.9"),
            (98.0, "98.0"),
            (321.6, "322"),
            (1667.0, "1667"),
            (f64::INFINITY, "without end"),
            (f64::NAN, "not a number"),
        ];
        for (x, expected) in cases {
            assert_eq!(figure(x), expected);
        }
    }

    #[test]
    fn nothing_in_a_text_is_taken_for_html() {
        assert_eq!(escaped("<b a=\"x\" b='y'>&\u{0}"), "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;\u{fffd}");
        assert_eq!(escaped("grün, 3 ≥ 2"), "grün, 3 ≥ 2");
    }
}

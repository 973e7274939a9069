//! Lines over an axis, as SVG. Lines differ in colour, dashes and marks, so that they are told apart on any paper.

use std::fmt::Write;

use super::axis::Axis;
use super::text::{class, escaped, heading};
use crate::reviews::outcome::{Chart, Column, Series};

/// Size of the paper, in units of the drawing, and its margins.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 48.0;
/// Points of a line that are drawn; more are thinned, each stretch to its lowest and highest.
const POINTS_MAX: usize = 400;
/// Lines up to this many points have a mark on each, others on a few.
const MARKS: usize = 24;

/// The drawing with title and legend, as an HTML figure.
pub(super) fn figure_of(chart: &Chart) -> String {
    let mut out = format!("<figure class=\"chart\"><figcaption>{}</figcaption>\n", escaped(&chart.title));
    legend(&mut out, chart.series.iter().map(|s| s.column));
    out.push_str("<div class=\"wide\">");
    drawing(&mut out, chart);
    out.push_str("</div></figure>\n");
    out
}

/// What stands for whom. Each column once, in the order given.
pub(super) fn legend(out: &mut String, columns: impl Iterator<Item = Column>) {
    let mut seen = Vec::new();
    out.push_str("<ul class=\"legend\">");
    for column in columns {
        if seen.contains(&column) {
            continue;
        }
        seen.push(column);
        let mut sample = String::new();
        mark(&mut sample, column, 14.0, 8.0);
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<li><svg class=\"key {0}\" viewBox=\"0 0 28 16\" aria-hidden=\"true\"><path class=\"line\" d=\"M1 8H27\"/>{sample}\
             </svg>{1}</li>",
            class(column),
            heading(column)
        );
    }
    out.push_str("</ul>\n");
}

fn drawing(out: &mut String, chart: &Chart) {
    let points = || chart.series.iter().flat_map(|s| s.points.iter());
    let x = Axis::over(points().map(|p| p.0), LEFT, WIDTH - RIGHT);
    let y = Axis::over(points().map(|p| p.1), HEIGHT - BOTTOM, TOP);
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escaped(&format!("{}: {} over {}", chart.title, chart.y, chart.x))
    );
    axes(out, chart, &x, &y);
    for s in &chart.series {
        line(out, s, &x, &y);
    }
    out.push_str("</svg>");
}

fn axes(out: &mut String, chart: &Chart, x: &Axis, y: &Axis) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (value, text) in y.ticks() {
        let at = y.place(value);
        let _ = write!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>");
        let _ = write!(out, "<text x=\"{}\" y=\"{:.1}\" class=\"end\">{}</text>", LEFT - 6.0, at + 4.5, escaped(&text));
    }
    for (value, text) in x.ticks() {
        let at = x.place(value);
        let _ = write!(out, "<path class=\"tick\" d=\"M{at:.1} {bottom}v5\"/>");
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"{}\" class=\"mid\">{}</text>", bottom + 19.0, escaped(&text));
    }
    let _ = write!(out, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
    let middle = (LEFT + right) / 2.0;
    let _ = write!(out, "<text x=\"{middle}\" y=\"{}\" class=\"mid name\">{}</text>", HEIGHT - 8.0, escaped(&chart.x));
    let middle = (TOP + bottom) / 2.0;
    let _ = write!(
        out,
        "<text transform=\"translate(14 {middle}) rotate(-90)\" class=\"mid name\">{}</text>",
        escaped(&chart.y)
    );
}

fn line(out: &mut String, s: &Series, x: &Axis, y: &Axis) {
    let finite = s.points.iter().copied().filter(|p| p.0.is_finite() && p.1.is_finite());
    let points = thinned(finite.collect());
    let _ = write!(out, "<g class=\"{}\">", class(s.column));
    let mut path = String::new();
    for (i, p) in points.iter().enumerate() {
        let _ = write!(path, "{}{:.1} {:.1}", if i == 0 { "M" } else { "L" }, x.place(p.0), y.place(p.1));
    }
    if points.len() > 1 {
        let _ = write!(out, "<path class=\"line\" d=\"{path}\"/>");
    }
    let every = points.len().div_ceil(MARKS).max(1);
    for p in points.iter().step_by(every) {
        mark(out, s.column, x.place(p.0), y.place(p.1));
    }
    out.push_str("</g>");
}

/// A mark of a column's own shape.
pub(super) fn mark(out: &mut String, column: Column, x: f64, y: f64) {
    let _ = match column {
        Column::Bimetal => write!(out, "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"/>"),
        Column::Model => {
            write!(out, "<rect class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"/>", x - 3.5, y - 3.5)
        }
        Column::Review => {
            write!(out, "<path class=\"mark\" d=\"M{x:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\"/>", y - 4.5)
        }
        Column::DiskAlone => write!(out, "<path class=\"mark\" d=\"M{x:.1} {:.1}l4.3 7.5h-8.6z\"/>", y - 4.5),
        Column::SsdAlone => {
            write!(out, "<path class=\"cross\" d=\"M{:.1} {:.1}l7 7m0 -7l-7 7\"/>", x - 3.5, y - 3.5)
        }
    };
}

/// At most [`POINTS_MAX`] points: of each stretch of a longer line the lowest and the highest, in their order.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points;
    }
    let stretch = points.len().div_ceil(POINTS_MAX / 2);
    let mut out = Vec::with_capacity(POINTS_MAX);
    for part in points.chunks(stretch) {
        let by_y = |a: &usize, b: &usize| part[*a].1.total_cmp(&part[*b].1);
        let lowest = (0..part.len()).min_by(by_y).unwrap_or(0);
        let highest = (0..part.len()).max_by(by_y).unwrap_or(0);
        out.push(part[lowest.min(highest)]);
        if lowest != highest {
            out.push(part[lowest.max(highest)]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_thinned_and_keep_their_extremes() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), if i == 7777 { 99.0 } else { 1.0 })).collect();
        let thin = thinned(points);
        assert!(thin.len() <= POINTS_MAX && thin.iter().any(|p| p.1 == 99.0), "{}", thin.len());
        assert!(thin.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn nothing_to_draw_is_drawn_as_empty_axes() {
        let series = vec![Series { column: Column::Bimetal, points: vec![(f64::NAN, 1.0)] }];
        let chart = Chart { title: "t".into(), x: "s".into(), y: "MB/s".into(), series };
        let html = figure_of(&chart);
        assert!(!html.contains("NaN") && html.contains("MB/s") && !html.contains("class=\"line\" d=\"M\""), "{html}");
    }
}

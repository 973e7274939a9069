//! The report: outcomes of experiments and the matrix of policies as one HTML file that needs nothing else, readable
//! by a person who knows nothing of the code.
//!
//! No script, no external file: style and drawings are inline. Nothing is said by colour alone. All text from outside
//! goes through [`text::escaped`]. The same outcomes and date give the same bytes.
//!
//! Reading order: `text` (escaping, numbers), `verdict` (what is met), `page` (the whole), `summary` (what a reader
//! sees first), `experiment` (a section each), `chart` and `axis` (drawings), `matrix`.

mod axis;
mod chart;
mod experiment;
mod matrix;
mod page;
mod summary;
mod text;
mod verdict;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

pub use page::{Report, MARK};
pub use text::{figure, value_words};
pub use verdict::{judge, within_review, Score, Verdict};

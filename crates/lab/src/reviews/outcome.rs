//! What an experiment says of itself, and what came of it. The terminal's table and the report are made from this
//! alone.

/// Who was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// The figure printed in the review.
    Review,
    /// The model of the reviewed system.
    Model,
    /// Bimetal on the same devices.
    Bimetal,
    /// The slow device alone.
    DiskAlone,
    /// The fast device alone.
    SsdAlone,
}

/// What is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A rate.
    Higher,
    /// A time, or a count of passes.
    Lower,
}

/// What is asked of Bimetal against the model of the reviewed system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// It must be better.
    Beat,
    /// It must not be more than 2 % worse.
    Equal,
    /// Nothing to compare: the row is about a device alone, or is given for orientation.
    Nothing,
}

/// One figure of an experiment: "pass 2".
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// A name within the experiment, for people.
    pub label: String,
    /// "MB/s", "s", "passes", "%".
    pub unit: &'static str,
    /// What is better.
    pub better: Better,
    /// What is asked of Bimetal.
    pub demand: Demand,
    /// What was measured, in the order of [`Column`]; a column that does not apply is absent.
    pub values: Vec<(Column, Value)>,
    /// Why the model of the reviewed system is not within 15 % of the review, or what else must be said.
    pub remark: Option<String>,
}

/// A figure, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Measured, or printed in the review.
    Number(f64),
    /// The review prints a range.
    Range(f64, f64),
    /// In words: "never", "the picture with the figure is missing".
    Words(String),
}

/// A bar that is not a comparison with the reviewed system ("the film leaves at least half of the reserve").
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What must hold.
    pub what: String,
    /// The figure seen, in words.
    pub seen: String,
    /// Whether it holds.
    pub met: bool,
}

/// A line of a chart: rate over time, throughput over passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Who.
    pub column: Column,
    /// Points, x growing.
    pub points: Vec<(f64, f64)>,
}

/// A chart of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Label of the x axis, with its unit.
    pub x: String,
    /// Label of the y axis, with its unit.
    pub y: String,
    /// Lines.
    pub series: Vec<Series>,
}

/// An experiment, described and carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// "F3".
    pub id: &'static str,
    /// A line for people: "4 KiB random writes over the first 8 GB, three times".
    pub title: String,
    /// Which devices: "machine A (2012): 1 TB disk, 128 GB SSD".
    pub machine: String,
    /// The state before, the load, the pauses, and how it is measured; full sentences.
    pub method: String,
    /// The figures.
    pub metrics: Vec<Metric>,
    /// Further bars.
    pub checks: Vec<Check>,
    /// Charts.
    pub charts: Vec<Chart>,
    /// What a reader should take from it, one or two sentences made from the figures.
    pub finding: String,
}

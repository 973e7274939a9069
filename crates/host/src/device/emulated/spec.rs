//! Names of models, as they stand in locators.

use std::fmt;

use super::head::HeadModel;
use super::pipe::PipeModel;

/// A model with its options: `hdd2012`, `ssd2014`, `rate=300M`, `hdd2012,rate=150M`, `rate=300M,latency=100us`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    base: Base,
    /// Bytes per second.
    rate: Option<u64>,
    /// Microseconds that each request takes besides.
    latency: Option<u64>,
    /// Bytes of the modelled disk, of which the file is the beginning.
    capacity: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Hdd2012,
    Hdd2014,
    Ssd2012,
    Ssd2014,
    /// A plain cap on the bandwidth.
    Plain,
}

/// A model ready to run.
pub(super) enum Model {
    /// A disk with one head.
    Head(HeadModel),
    /// An SSD, or a plain cap.
    Pipe(PipeModel),
}

impl ModelSpec {
    /// Reads a model with options.
    pub fn parse(text: &str) -> Result<ModelSpec, String> {
        let mut spec = ModelSpec { base: Base::Plain, rate: None, latency: None, capacity: None };
        for (i, word) in text.split(',').enumerate() {
            match word.split_once('=') {
                None if i == 0 => spec.base = base(word)?,
                None => return Err(format!("`{word}` is no option; known are rate=, latency= and capacity=")),
                Some(("rate", v)) => spec.rate = Some(amount(v).ok_or(format!("`{v}` is no rate like 150M"))?),
                Some(("capacity", v)) => {
                    spec.capacity = Some(amount(v).ok_or(format!("`{v}` is no capacity like 1T"))?);
                }
                Some(("latency", v)) => {
                    spec.latency = Some(micros(v).ok_or(format!("`{v}` is no latency like 100us or 5ms"))?);
                }
                Some((name, _)) => return Err(format!("`{name}` is no option; known are rate, latency and capacity")),
            }
        }
        if spec.base == Base::Plain && spec.rate.is_none() && spec.latency.is_none() {
            return Err("a model without a name needs rate= or latency=".into());
        }
        Ok(spec)
    }

    /// Whether it models a disk with a head.
    pub fn rotational(&self) -> bool {
        matches!(self.base, Base::Hdd2012 | Base::Hdd2014)
    }

    /// The model for a file of `size` bytes.
    pub(super) fn build(&self, size: u64) -> Model {
        let latency = self.latency.unwrap_or(0) * 1000;
        let head = |mut model: HeadModel| {
            if let Some(rate) = self.rate {
                model.set_rate(rate);
            }
            model.set_span(self.capacity.unwrap_or(size).max(size));
            model.add_latency(latency);
            Model::Head(model)
        };
        let pipe = |mut model: PipeModel| {
            if let Some(rate) = self.rate {
                model.set_rate(rate);
            }
            model.add_latency(latency);
            Model::Pipe(model)
        };
        match self.base {
            Base::Hdd2012 => head(HeadModel::hdd2012()),
            Base::Hdd2014 => head(HeadModel::hdd2014()),
            Base::Ssd2012 => pipe(PipeModel::ssd2012()),
            Base::Ssd2014 => pipe(PipeModel::ssd2014()),
            Base::Plain => pipe(PipeModel::plain()),
        }
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.base {
            Base::Hdd2012 => "hdd2012",
            Base::Hdd2014 => "hdd2014",
            Base::Ssd2012 => "ssd2012",
            Base::Ssd2014 => "ssd2014",
            Base::Plain => "",
        };
        let mut words = if name.is_empty() { Vec::new() } else { vec![name.to_owned()] };
        words.extend(self.rate.map(|v| format!("rate={}", short(v))));
        words.extend(self.latency.map(|v| format!("latency={v}us")));
        words.extend(self.capacity.map(|v| format!("capacity={}", short(v))));
        f.write_str(&words.join(","))
    }
}

fn base(word: &str) -> Result<Base, String> {
    Ok(match word {
        "hdd" | "hdd2012" => Base::Hdd2012,
        "hdd2014" => Base::Hdd2014,
        "ssd" | "ssd2012" => Base::Ssd2012,
        "ssd2014" => Base::Ssd2014,
        _ => return Err(format!("no model is named `{word}`; known are hdd2012, hdd2014, ssd2012 and ssd2014")),
    })
}

const LETTERS: [(char, u64); 4] = [('T', 1_000_000_000_000), ('G', 1_000_000_000), ('M', 1_000_000), ('k', 1000)];

/// A decimal amount: `150M`, `1T`, `4096`. Zero is none.
fn amount(text: &str) -> Option<u64> {
    let found = LETTERS.iter().find_map(|(letter, unit)| Some((text.strip_suffix(*letter)?, *unit)));
    let (digits, unit) = found.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|n| *n > 0)
}

/// The shortest text that [`amount`] reads as `value`.
fn short(value: u64) -> String {
    let found = LETTERS.iter().find(|(_, unit)| value.is_multiple_of(*unit));
    found.map_or_else(|| value.to_string(), |(letter, unit)| format!("{}{letter}", value / unit))
}

fn micros(text: &str) -> Option<u64> {
    let micros = match text.strip_suffix("us") {
        Some(us) => us.parse::<u64>().ok()?,
        None => text.strip_suffix("ms")?.parse::<u64>().ok()?.checked_mul(1000)?,
    };
    (micros <= 10_000_000).then_some(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_round_trip() {
        for text in ["hdd2012", "ssd2014", "rate=1500k", "hdd2014,rate=150M,latency=20us,capacity=1T", "latency=7us"] {
            assert_eq!(ModelSpec::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(ModelSpec::parse("hdd").expect("short").to_string(), "hdd2012");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "floppy", "rate=0", "rate=-1", "hdd2012,ssd2012", "rate=9999999999T", "latency=5", "seek=3"] {
            assert!(ModelSpec::parse(text).is_err(), "{text}");
        }
    }
}

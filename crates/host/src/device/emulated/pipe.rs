//! SSDs and plain bandwidth caps: requests pass through servers one after another.
//!
//! A read takes a fixed time in one of several channels, then its bytes pass a link; a write occupies one serial
//! server. Writes, and all requests under a rate cap, are not punished for the time our own process needs between two
//! of them: a server may have begun up to [`SLACK_NS`] before a request came, so that the average rate is the one of
//! the model.

/// What a host's latency may cost without lowering the rate, in nanoseconds.
const SLACK_NS: u64 = 2_000_000;

/// Times are nanoseconds on one clock.
#[derive(Clone, Debug)]
pub(super) struct PipeModel {
    read_fixed: u64,
    channels: Vec<u64>,
    write_fixed: u64,
    /// Bytes per second.
    read_rate: u64,
    write_rate: u64,
    /// One pipe for both ways.
    shared: bool,
    latency: u64,
    read_free: u64,
    write_free: u64,
}

/// Bytes per second that stand for "no limit".
const UNLIMITED: u64 = 1 << 50;

impl PipeModel {
    /// An SSD of 2012 (PM830 class, 128 GB).
    pub(super) fn ssd2012() -> PipeModel {
        PipeModel::ssd(500_000_000, 345_000_000)
    }

    /// A PCIe SSD of 2014.
    pub(super) fn ssd2014() -> PipeModel {
        PipeModel::ssd(754 << 20, 409 << 20)
    }

    fn ssd(read_rate: u64, write_rate: u64) -> PipeModel {
        let (read_fixed, write_fixed) = (126_000, 29_000);
        let channels = vec![0; 8];
        PipeModel { read_fixed, channels, write_fixed, read_rate, write_rate, ..PipeModel::plain() }
    }

    /// No limit until a rate or latency is set.
    pub(super) fn plain() -> PipeModel {
        PipeModel {
            read_fixed: 0,
            channels: Vec::new(),
            write_fixed: 0,
            read_rate: UNLIMITED,
            write_rate: UNLIMITED,
            shared: false,
            latency: 0,
            read_free: 0,
            write_free: 0,
        }
    }

    /// Caps the sum of reads and writes.
    pub(super) fn set_rate(&mut self, rate: u64) {
        self.shared = true;
        self.read_rate = rate.min(self.read_rate);
        self.write_rate = rate.min(self.write_rate);
    }

    /// Adds to each request.
    pub(super) fn add_latency(&mut self, ns: u64) {
        self.latency += ns;
    }

    /// When a request that arrives now is finished.
    pub(super) fn finish(&mut self, now: u64, bytes: u64, write: bool) -> u64 {
        let ready = if write { now } else { self.through_channel(now) };
        let (rate, fixed) = if write { (self.write_rate, self.write_fixed) } else { (self.read_rate, 0) };
        let slack = if write || self.shared { SLACK_NS } else { 0 };
        let free = if write || self.shared { &mut self.write_free } else { &mut self.read_free };
        *free = (*free).max(ready.saturating_sub(slack)) + fixed + time(bytes, rate);
        let end = (*free).max(ready);
        self.latency + end
    }

    fn through_channel(&mut self, now: u64) -> u64 {
        let Some(channel) = self.channels.iter_mut().min() else { return now };
        *channel = (*channel).max(now) + self.read_fixed;
        *channel
    }
}

/// Nanoseconds that `bytes` take.
pub(super) fn time(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MB/s of `n` requests of `bytes` with `depth` in flight, each following the end of an earlier one at once.
    fn rate(model: &mut PipeModel, bytes: u64, depth: usize, write: bool) -> f64 {
        let start = 1_000_000_000;
        let mut ends = vec![start; depth];
        let n = 4000;
        for i in 0..n {
            ends[i % depth] = model.finish(ends[i % depth], bytes, write);
        }
        let took = ends.iter().max().expect("some") - start;
        n as f64 * bytes as f64 / took as f64 * 1000.0
    }

    fn near(value: f64, wanted: f64) {
        assert!((value / wanted - 1.0).abs() < 0.1, "{value} is not near {wanted}");
    }

    #[test]
    fn published_figures_are_met() {
        near(rate(&mut PipeModel::ssd2012(), 128 << 10, 1, true), 321.0);
        near(rate(&mut PipeModel::ssd2012(), 4096, 1, true), 100.0);
        near(rate(&mut PipeModel::ssd2014(), 256 << 10, 1, true) / 1.048_576, 391.0);
        near(rate(&mut PipeModel::ssd2014(), 128 << 10, 4, false) / 1.048_576, 754.0);
    }

    #[test]
    fn a_plain_cap_holds_for_both_ways_together() {
        let mut model = PipeModel::plain();
        model.set_rate(300_000_000);
        near(rate(&mut model, 128 << 10, 1, true), 300.0);
        let mut now = 10_000_000_000;
        let start = now;
        for i in 0..1000 {
            now = model.finish(now, 1_000_000, i % 2 == 0);
        }
        near(1e12 / (now - start) as f64, 300.0);
    }
}

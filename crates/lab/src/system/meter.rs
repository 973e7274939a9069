//! What a load measured: rate over time, and latencies.

/// Sub-buckets of an octave, as a power of two: a latency is known to 0.8 %.
const FINE: u32 = 7;

/// How often each latency occurred. Bounded memory, whatever the number of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Latencies {
    /// Adds one, in ns.
    pub fn add(&mut self, ns: u64) {
        let bucket = bucket_of(ns);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean in ns; 0 if there is none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// The longest in ns.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The latency in ns that `percent` of all do not exceed, to 0.8 %; 0 if there is none.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((self.count as f64 * percent / 100.0).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return last_of(bucket).min(self.max);
            }
        }
        0
    }
}

fn bucket_of(ns: u64) -> usize {
    let octave = (63 - (ns | 1).leading_zeros()).saturating_sub(FINE);
    ((u64::from(octave) << FINE) + (ns >> octave)) as usize
}

/// The longest latency that counts into a bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let octave = (bucket >> FINE).saturating_sub(1);
    // The last bucket ends with the largest number.
    ((bucket + 1 - (octave << FINE)) << octave).wrapping_sub(1)
}

/// Counts the requests of one load: bytes per interval of time, latencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    interval: u64,
    begun: u64,
    ended: u64,
    bytes: u64,
    windows: Vec<u64>,
    latencies: Latencies,
}

impl Meter {
    /// A meter with a sample every `interval` ns.
    pub fn new(interval: u64) -> Meter {
        let latencies = Latencies::default();
        Meter { interval: interval.max(1), begun: 0, ended: 0, bytes: 0, windows: Vec::new(), latencies }
    }

    /// A meter with a sample every second.
    pub fn seconds() -> Meter {
        Meter::new(1_000_000_000)
    }

    /// The load begins. What was counted before is forgotten.
    pub fn begin(&mut self, now: u64) {
        *self = Meter { begun: now, ended: now, ..Meter::new(self.interval) };
    }

    /// A request of `bytes`, submitted at `submitted`, was complete at `at`; not before an earlier one.
    pub fn count(&mut self, submitted: u64, at: u64, bytes: u64) {
        let window = (at.saturating_sub(self.begun) / self.interval) as usize;
        if self.windows.len() <= window {
            self.windows.resize(window + 1, 0);
        }
        self.windows[window] += bytes;
        self.bytes += bytes;
        self.latencies.add(at.saturating_sub(submitted));
        self.ended = self.ended.max(at);
    }

    /// The load has ended: time until `now` counts.
    pub fn end(&mut self, now: u64) {
        self.ended = self.ended.max(now);
        self.windows.resize((self.elapsed().div_ceil(self.interval) as usize).max(self.windows.len()), 0);
    }

    /// Nanoseconds from the begin to the end.
    pub fn elapsed(&self) -> u64 {
        self.ended - self.begun
    }

    /// Bytes of all requests.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes per second over all the time.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.elapsed().max(1) as f64
    }

    /// Requests per second over all the time.
    pub fn requests_per_second(&self) -> f64 {
        self.latencies.count() as f64 * 1e9 / self.elapsed().max(1) as f64
    }

    /// Latencies of the requests, in ns.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Rate over time: seconds since the begin at the end of each interval, and bytes per second in it. The last
    /// interval is left out if the load ended within it, unless it is the only one.
    pub fn samples(&self) -> Vec<(f64, f64)> {
        let whole = (self.elapsed() / self.interval) as usize;
        if whole == 0 {
            return vec![(self.elapsed() as f64 / 1e9, self.rate())];
        }
        let seconds = self.interval as f64 / 1e9;
        let sample = |(i, bytes): (usize, &u64)| ((i + 1) as f64 * seconds, *bytes as f64 / seconds);
        self.windows.iter().take(whole).enumerate().map(sample).collect()
    }

    /// The lowest rate of an interval, bytes per second.
    pub fn lowest(&self) -> f64 {
        self.samples().iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min)
    }

    /// The highest rate of an interval, bytes per second.
    pub fn highest(&self) -> f64 {
        self.samples().iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_hundredth() {
        let mut latencies = Latencies::default();
        (1..=100_000u64).for_each(|i| latencies.add(i * 37));
        for percent in [0.1, 1.0, 50.0, 99.0, 99.9, 100.0] {
            let exact = 100_000.0 * percent / 100.0 * 37.0;
            let seen = latencies.percentile(percent) as f64;
            assert!((seen / exact - 1.0).abs() < 0.01, "{percent} %: {seen} and {exact}");
        }
        assert_eq!(latencies.max(), 3_700_000);
        assert_eq!(latencies.mean(), 50_000.5 * 37.0);
        assert_eq!(Latencies::default().percentile(50.0), 0);
        let mut extreme = Latencies::default();
        extreme.add(0);
        extreme.add(u64::MAX);
        assert_eq!((extreme.percentile(50.0), extreme.percentile(100.0)), (0, u64::MAX));
    }

    #[test]
    fn every_latency_lies_in_its_bucket() {
        for ns in (0..5000).chain([1 << 20, (1 << 20) - 1, 123_456_789, u64::MAX]) {
            let bucket = bucket_of(ns);
            assert!(last_of(bucket) >= ns && (bucket == 0 || last_of(bucket - 1) < ns), "{ns}");
        }
    }

    #[test]
    fn rate_over_time() {
        let mut meter = Meter::new(1_000_000_000);
        meter.begin(5_000_000_000);
        meter.count(5_000_000_000, 5_500_000_000, 10);
        meter.count(5_500_000_000, 6_500_000_000, 30);
        meter.end(8_200_000_000);
        assert_eq!(meter.samples(), [(1.0, 10.0), (2.0, 30.0), (3.0, 0.0)]);
        assert_eq!((meter.lowest(), meter.highest(), meter.bytes()), (0.0, 30.0, 40));
        assert_eq!(meter.rate(), 40.0 / 3.2);
    }
}

//! What an export tells about itself.

use std::time::Duration;

/// Linear steps per power of two; a value is at most 1/16 off.
const STEPS: usize = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Enough for every `u64`.
const BUCKETS: usize = STEPS * (64 - STEP_BITS as usize + 1);

/// A histogram of durations with logarithmic groups of linear steps.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]), count: 0, sum_ns: 0 }
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEP_BITS;
    let step = (ns >> shift) as usize - STEPS;
    STEPS * (shift as usize + 1) + step
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = (bucket / STEPS - 1) as u32;
    let first = ((STEPS + bucket % STEPS) as u64) << shift;
    first + ((1 << shift) - 1)
}

impl Histogram {
    /// Counts a duration.
    pub fn record(&mut self, d: Duration) {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(ns)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The duration that a share of `q` (0 to 1) does not exceed, at most 1/16 too large; zero if nothing was counted.
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(upper_end(bucket));
            }
        }
        Duration::ZERO
    }

    /// How many were at most `limit` (within the same 1/16), as cumulative buckets of metrics want it.
    pub fn count_up_to(&self, limit: Duration) -> u64 {
        let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.counts[..=bucket_of(ns)].iter().sum()
    }
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// FLUSH.
    Flush,
    /// TRIM.
    Trim,
    /// WRITE_ZEROES.
    WriteZeroes,
    /// CACHE.
    Cache,
    /// BLOCK_STATUS.
    BlockStatus,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 7] =
        [Kind::Read, Kind::Write, Kind::Flush, Kind::Trim, Kind::WriteZeroes, Kind::Cache, Kind::BlockStatus];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Flush => "flush",
            Kind::Trim => "trim",
            Kind::WriteZeroes => "write_zeroes",
            Kind::Cache => "cache",
            Kind::BlockStatus => "block_status",
        }
    }
}

/// Counters of one kind of requests.
#[derive(Clone, Default)]
pub struct RequestStats {
    /// Requests answered, failed ones included.
    pub answered: u64,
    /// Requests answered with an error by the backend.
    pub failed: u64,
    /// Bytes of their ranges.
    pub bytes: u64,
    /// From the moment a request is complete here until its answer is queued to be sent.
    pub latency: Histogram,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Options are being negotiated.
    Handshake,
    /// Requests are served.
    Transmission,
    /// No more requests are taken; answers may be under way.
    Ending,
}

/// A connection as `status` shows it.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    /// Number of the connection, counted from the start of the server.
    pub id: u64,
    /// Who it is, in words of the transport.
    pub peer: String,
    /// The export it uses, once that is negotiated.
    pub export: Option<String>,
    /// Where it stands.
    pub phase: Phase,
    /// How long it has been there.
    pub age: Duration,
    /// Requests answered.
    pub requests: u64,
    /// Requests taken and not yet answered.
    pub in_flight: usize,
    /// Bytes of their payloads.
    pub bytes_in_flight: u64,
}

/// The state of a server.
#[derive(Clone)]
pub struct ServerStatus {
    /// Connections, oldest first.
    pub connections: Vec<ConnectionStatus>,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections turned away because there were too many.
    pub turned_away: u64,
    /// Requests refused before they reached the backend: malformed, out of range, not allowed.
    pub refused: u64,
    /// Connections cut off because they kept others waiting for room.
    pub cut_off: u64,
    /// Counters per kind, in the order of [`Kind::ALL`].
    pub requests: [RequestStats; Kind::ALL.len()],
    /// No more requests are taken.
    pub stopping: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other() {
        let mut last = upper_end(0);
        for bucket in 1..BUCKETS {
            assert_eq!(bucket_of(last + 1), bucket, "the value after the end of bucket {}", bucket - 1);
            last = upper_end(bucket);
            assert_eq!(bucket_of(last), bucket);
        }
        assert_eq!(last, u64::MAX);
    }

    #[test]
    fn quantiles_are_close() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(0.5), Duration::ZERO);
        for us in 1..=1000 {
            h.record(Duration::from_micros(us));
        }
        assert_eq!(h.count(), 1000);
        for (q, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = h.quantile(q).as_secs_f64() * 1e6;
            assert!(got >= us && got <= us * 17.0 / 16.0, "quantile {q}: {got} us");
        }
        assert_eq!(h.count_up_to(Duration::from_secs(1)), 1000);
        let half = h.count_up_to(Duration::from_micros(500));
        assert!((500..=532).contains(&half), "{half}");
    }
}

//! A disk with one head (the service-time model of hard disks).
//!
//! A request takes `overhead + seek + rotation + bytes / rate(place)`. The seek grows with the square root of the
//! distance and, a little, with the distance; the rotation follows from the real angle at that moment; the rate falls
//! linearly from the outer to the inner edge. A request that begins where the last one ended, or a little behind, is
//! read or written in passing. Times are nanoseconds on one clock.

use super::pipe::time;

/// A gap of at most this is passed over without a seek, in bytes.
const PASS_OVER: u64 = 512 << 10;
/// How much later a request may come and still be served as if the head had gone on: the disk's own read-ahead and
/// write buffer. In nanoseconds.
const BUFFERED_NS: u64 = 5_000_000;
/// Waiting requests among which the disk chooses.
pub(super) const QUEUE: usize = 16;
/// After being passed over so often a request is served next.
pub(super) const MAX_SKIPS: u32 = 64;

/// The model and where its head is.
#[derive(Clone, Debug)]
pub(super) struct HeadModel {
    /// Seek times in milliseconds: constant, with the root of the distance, with the distance (in parts of the span).
    seek: [f64; 3],
    /// Bytes per second at the outer and the inner edge.
    rates: [u64; 2],
    /// One turn.
    turn: u64,
    /// Of a request elsewhere, and of one that follows on.
    overheads: [u64; 2],
    /// Bytes from the outer to the inner edge.
    span: u64,
    /// Where the head is, in bytes.
    place: u64,
    /// When it has finished the last request.
    free: u64,
}

impl HeadModel {
    /// A 3.5" disk of 2012 with 7200 turns a minute (ST1000DM003 class).
    pub(super) fn hdd2012() -> HeadModel {
        HeadModel::new([1.2, 13.5, 3.3], [190_000_000, 100_000_000], 8_333_333)
    }

    /// A 2.5" disk of 2014 with 5400 turns a minute.
    pub(super) fn hdd2014() -> HeadModel {
        HeadModel::new([1.6, 21.5, -1.6], [112_000_000, 55_000_000], 11_111_111)
    }

    fn new(seek: [f64; 3], rates: [u64; 2], turn: u64) -> HeadModel {
        let overheads = [1_200_000, 50_000];
        HeadModel { seek, rates, turn, overheads, span: 1_000_000_000_000, place: 0, free: 0 }
    }

    /// Sets one rate for the whole disk, net of what a following request costs.
    pub(super) fn set_rate(&mut self, rate: u64) {
        self.rates = [rate; 2];
        self.overheads[1] = 0;
    }

    /// Sets the bytes from the outer to the inner edge.
    pub(super) fn set_span(&mut self, span: u64) {
        self.span = span.max(1);
    }

    /// Adds to each request.
    pub(super) fn add_latency(&mut self, ns: u64) {
        self.overheads = self.overheads.map(|o| o + ns);
    }

    /// A measure of the way to `offset`; the nearest of the waiting requests is served next.
    pub(super) fn way(&self, offset: u64) -> u64 {
        match offset.checked_sub(self.place) {
            // Passing over is cheaper than any seek.
            Some(gap) if gap <= PASS_OVER => 0,
            _ => offset.abs_diff(self.place),
        }
    }

    /// Serves a request that arrived at `arrival`, after all before it; when it is finished.
    pub(super) fn serve(&mut self, arrival: u64, offset: u64, bytes: u64) -> u64 {
        let rate = self.rate_at(offset);
        let end = match offset.checked_sub(self.place) {
            Some(gap) if gap <= PASS_OVER => {
                let start = self.free.max(arrival.saturating_sub(BUFFERED_NS));
                start + self.overheads[1] + time(gap + bytes, rate)
            }
            _ => {
                let there = self.free.max(arrival) + self.overheads[0] + self.seek_time(offset);
                there + self.rotation(there, offset, rate) + time(bytes, rate)
            }
        };
        self.place = offset + bytes;
        self.free = end;
        end
    }

    fn rate_at(&self, offset: u64) -> u64 {
        let [outer, inner] = self.rates;
        let lost = u128::from(outer - inner) * u128::from(offset.min(self.span)) / u128::from(self.span);
        outer - lost as u64
    }

    fn seek_time(&self, offset: u64) -> u64 {
        let distance = offset.abs_diff(self.place) as f64 / self.span as f64;
        if distance == 0.0 {
            return 0;
        }
        let [a, b, c] = self.seek;
        ((a + b * distance.sqrt() + c * distance) * 1e6) as u64
    }

    /// How long the platter turns until `offset` is under the head.
    fn rotation(&self, now: u64, offset: u64, rate: u64) -> u64 {
        let track = (u128::from(rate) * u128::from(self.turn) / 1_000_000_000) as u64;
        let at = (u128::from(offset % track.max(1)) * u128::from(self.turn) / u128::from(track.max(1))) as u64;
        (at + self.turn - now % self.turn) % self.turn
    }
}

/// Chooses among waiting requests - where each is, and how often it was passed over - the one to be served next.
pub(super) fn choose(model: &HeadModel, waiting: impl Iterator<Item = (u64, u32)>) -> Option<usize> {
    let mut best: Option<(u64, usize)> = None;
    for (i, (offset, skips)) in waiting.take(QUEUE).enumerate() {
        if skips >= MAX_SKIPS {
            return Some(i);
        }
        let way = model.way(offset);
        if best.is_none_or(|(least, _)| way < least) {
            best = Some((way, i));
        }
    }
    best.map(|(_, i)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, wanted: f64) {
        assert!((value / wanted - 1.0).abs() < 0.12, "{value} is not near {wanted}");
    }

    /// Random 4 KiB requests in `range` of a disk of 1 TB with 16 in flight: requests per second.
    fn random_iops(mut model: HeadModel, range: u64) -> f64 {
        let mut seed = 1u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % (range / 4096) * 4096
        };
        let mut waiting: Vec<(u64, u32, u64)> = (0..16).map(|_| (next(), 0, 0)).collect();
        let mut now = 0;
        let n = 4000;
        for _ in 0..n {
            let i = choose(&model, waiting.iter().map(|w| (w.0, w.1))).expect("some wait");
            let (offset, _, arrival) = waiting.remove(i);
            waiting.iter_mut().for_each(|w| w.1 += 1);
            now = model.serve(arrival, offset, 4096);
            waiting.push((next(), 0, now));
        }
        n as f64 / (now as f64 / 1e9)
    }

    fn sequential_rate(mut model: HeadModel, from: u64) -> f64 {
        let mut now = 0;
        let first = model.serve(now, from, 131_072);
        now = first;
        for i in 1..1000 {
            now = model.serve(now + 80_000, from + i * 131_072, 131_072).max(now + 80_000);
        }
        999.0 * 131_072.0 / (now - first) as f64 * 1000.0
    }

    #[test]
    fn published_figures_are_met() {
        near(random_iops(HeadModel::hdd2012(), 1_000_000_000_000), 110.0);
        near(random_iops(HeadModel::hdd2012(), 8_000_000_000), 147.0);
        near(random_iops(HeadModel::hdd2014(), 1_000_000_000_000), 83.0);
        near(random_iops(HeadModel::hdd2014(), 8_000_000_000), 115.0);
        near(sequential_rate(HeadModel::hdd2012(), 0), 177.0);
        near(sequential_rate(HeadModel::hdd2012(), 500_000_000_000), 133.0);
        near(sequential_rate(HeadModel::hdd2014(), 500_000_000_000), 78.0);
    }

    #[test]
    fn a_set_rate_is_the_sequential_rate_everywhere() {
        let mut model = HeadModel::hdd2012();
        model.set_rate(150_000_000);
        assert!((sequential_rate(model.clone(), 0) / 150.0 - 1.0).abs() < 0.01);
        assert!((sequential_rate(model, 900_000_000_000) / 150.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn what_follows_on_is_served_first_and_nothing_starves() {
        let mut model = HeadModel::hdd2012();
        model.serve(0, 0, 4096);
        assert_eq!(choose(&model, [(9 << 30, 0), (4096, 0)].into_iter()), Some(1));
        assert_eq!(choose(&model, [(4096, 0), (9 << 30, MAX_SKIPS)].into_iter()), Some(1));
        assert_eq!(choose(&model, std::iter::empty()), None);
    }
}

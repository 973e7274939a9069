//! The clock that goes on while the machine sleeps, for promises that others count on meanwhile.

use std::time::Duration;

/// A moment since the boot. A type of its own: the time of [`Env::now`](bimetal_volume::env::Env::now) stands still while the machine
/// is suspended, and the two must not be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootInstant(Duration);

impl BootInstant {
    pub(crate) fn now() -> BootInstant {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is valid for the call; CLOCK_BOOTTIME exists since Linux 2.6.39.
        unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut t) };
        let now = Duration::new(t.tv_sec as u64, t.tv_nsec as u32);
        #[cfg(test)]
        let now = now + tests::SLEPT.get();
        BootInstant(now)
    }

    #[cfg(test)]
    pub(crate) fn plus(self, duration: Duration) -> BootInstant {
        BootInstant(self.0 + duration)
    }

    /// Time that passed from `earlier` to `self`; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: BootInstant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// How long the machine has slept, for all that this thread knows.
        pub(crate) static SLEPT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    #[test]
    fn it_tells_what_the_kernel_calls_its_uptime() {
        let told = std::fs::read_to_string("/proc/uptime").expect("read");
        let seconds: f64 = told.split(' ').next().and_then(|s| s.parse().ok()).expect("a number");
        assert!((BootInstant::now().0.as_secs_f64() - seconds).abs() < 5.0, "{told}");
    }
}

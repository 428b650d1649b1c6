//! Time as a value: a boot-time instant and the clock that reads it.

use std::{ops::Add, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// An instant on this machine's boot-time clock, which also runs while the machine is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Later than every real instant: where a sum that does not fit ends up, and what "for ever" means.
    pub(crate) const NEVER: Moment = Moment(u64::MAX);

    /// How long it is from here to `later`; zero if `later` has passed.
    pub(crate) fn until(self, later: Moment) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    /// The last point of the grid `offset + n * step` that is not after this instant.
    pub(crate) fn floor_to(self, step: Duration, offset: Duration) -> Moment {
        let step = nanos(step).max(1);
        Moment(self.0 - (self.0.wrapping_sub(nanos(offset)) % step).min(self.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where the code above the store gets its time from.
pub(crate) trait Clock: Send + Sync {
    fn now(&self) -> Moment;

    /// How long a thread has to block for `limit` to pass: no time at all on a clock that is moved by those who wait.
    fn block_for(&self, limit: Duration) -> Duration;
}

/// The machine's clock.
pub(crate) struct BootClock;

// On Apple systems CLOCK_MONOTONIC already counts the time asleep; on Linux only CLOCK_BOOTTIME does.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_TIME: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_TIME: ClockId = ClockId::Monotonic;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        let now = clock_gettime(BOOT_TIME);
        Moment(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    fn block_for(&self, limit: Duration) -> Duration {
        limit
    }
}

/// A clock that stands still until it is told otherwise; waiting moves it.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct ManualClock(std::sync::atomic::AtomicU64);

#[cfg(test)]
impl ManualClock {
    pub(crate) fn advance(&self, duration: Duration) {
        self.0.fetch_add(nanos(duration), std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn block_for(&self, limit: Duration) -> Duration {
        self.advance(limit);
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_at_never() {
        assert_eq!(BootClock.now() + Duration::MAX, Moment::NEVER);
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
    }

    #[test]
    fn the_past_is_zero_away() {
        assert_eq!(Moment(5).until(Moment(3)), Duration::ZERO);
        assert_eq!(Moment(3).until(Moment(5)), Duration::from_nanos(2));
    }

    #[test]
    fn a_grid_point_is_never_after_the_instant_nor_a_step_before() {
        for nanos in [0, 1, 99, 100, 101, 12_345] {
            for offset in [0, 30, 99] {
                let (at, step) = (Moment(nanos), Duration::from_nanos(100));
                let floor = at.floor_to(step, Duration::from_nanos(offset));
                assert!(floor <= at);
                assert!(floor.until(at) < step);
            }
        }
    }
}

//! How long an acquire may wait.

use std::time::{Duration, Instant};

use crate::clock::Moment;

/// How long an acquire may wait for the lock.
///
/// One deadline covers everything: waiting, retries, reconnecting. A wait ends at most one
/// [command timeout](crate::ClientBuilder::command_timeout) after it.
#[derive(Clone, Debug)]
#[must_use = "a wait does nothing by itself: pass it to `acquire_with`"]
pub struct Wait(Limit);

#[derive(Clone, Debug)]
enum Limit {
    AtMost(Duration),
    Until(Instant),
    Forever,
}

impl Wait {
    /// Waits as long as it takes.
    pub fn forever() -> Self {
        Self(Limit::Forever)
    }

    /// Tries once and never waits.
    pub fn none() -> Self {
        Self::at_most(Duration::ZERO)
    }

    /// Waits for at most `limit`, counted from the call that gets this `Wait`. A duration too long for the
    /// clock means "for ever"; zero means [`none`](Self::none).
    pub fn at_most(limit: Duration) -> Self {
        Self(Limit::AtMost(limit))
    }

    /// Waits until `deadline`; if that has passed, tries once.
    pub fn until(deadline: Instant) -> Self {
        Self(Limit::Until(deadline))
    }

    /// The end of a wait that begins at `now`.
    pub(crate) fn deadline(&self, now: Moment) -> Moment {
        match self.0 {
            Limit::Forever => Moment::NEVER,
            Limit::AtMost(limit) => now + limit,
            Limit::Until(deadline) => now + deadline.saturating_duration_since(Instant::now()),
        }
    }
}

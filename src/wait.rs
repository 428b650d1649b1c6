//! How long an acquire may wait.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{CancelToken, cancel::Watch, clock::Moment, waiting::Bell};

/// How long an acquire may wait for the lock.
///
/// One deadline covers everything: waiting, retries, reconnecting. A wait ends at most one
/// [command timeout](crate::ClientBuilder::command_timeout) after it.
#[derive(Clone, Debug)]
#[must_use = "a wait does nothing by itself: pass it to `acquire_with`"]
pub struct Wait {
    limit: Limit,
    cancel: Option<CancelToken>,
}

#[derive(Clone, Debug)]
enum Limit {
    AtMost(Duration),
    Until(Instant),
    Forever,
}

impl Wait {
    /// Waits as long as it takes.
    pub fn forever() -> Self {
        Self::within(Limit::Forever)
    }

    /// Tries once and never waits.
    pub fn none() -> Self {
        Self::at_most(Duration::ZERO)
    }

    /// Waits for at most `limit`, counted from the call that gets this `Wait`. A duration too long for the
    /// clock means "for ever"; zero means [`none`](Self::none).
    pub fn at_most(limit: Duration) -> Self {
        Self::within(Limit::AtMost(limit))
    }

    /// Waits until `deadline`; if that has passed, tries once.
    pub fn until(deadline: Instant) -> Self {
        Self::within(Limit::Until(deadline))
    }

    /// Also ends the wait when `token` is cancelled, with [`Error::Cancelled`](crate::Error::Cancelled): at once, even
    /// if the server is silent. Only while a connection is being opened, or none is free, may it take as long as that
    /// does: one [connect timeout](crate::ClientBuilder::connect_timeout), or half a [command
    /// timeout](crate::ClientBuilder::command_timeout).
    ///
    /// Nothing stays behind: should a request that was under way have been granted, the grant is taken back in the
    /// background. If the
    /// token is cancelled already, nothing is sent. A second token takes the place of the first.
    pub fn cancelled_by(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    fn within(limit: Limit) -> Self {
        Self { limit, cancel: None }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Has `bell` rung, and the request under way broken off, if the wait is cancelled before what this returns is
    /// dropped.
    pub(crate) fn watch(&self, bell: &Arc<Bell>) -> Option<Watch> {
        self.cancel.as_ref().map(|token| token.watch(bell))
    }

    /// What is left of it at `now` if it ends at `deadline`.
    pub(crate) fn rest(&self, now: Moment, deadline: Moment) -> Self {
        Self {
            limit: Limit::AtMost(now.until(deadline)),
            cancel: self.cancel.clone(),
        }
    }

    /// The end of a wait that begins at `now`.
    pub(crate) fn deadline(&self, now: Moment) -> Moment {
        match self.limit {
            Limit::Forever => Moment::NEVER,
            Limit::AtMost(limit) => now + limit,
            Limit::Until(deadline) => now + deadline.saturating_duration_since(Instant::now()),
        }
    }
}

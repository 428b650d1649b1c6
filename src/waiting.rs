//! The one acquire loop.

use std::time::Duration;

use crate::{
    Error, Wait,
    clock::{Clock, Moment},
    lease::{Doubt, valid_until},
    store::{Acquired, Because, Failure, Hold, Store},
};

/// The first pause between two attempts; each is half as long again as the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A grant, as the store made it.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) fencing_token: u64,
    /// When the request was sent that was granted.
    pub(crate) sent: Moment,
    /// What the attempts before it may still do.
    pub(crate) doubt: Doubt,
}

/// Why an acquire ended without a grant, and what its attempts may have left behind.
#[derive(Debug)]
pub(crate) struct NotGranted {
    pub(crate) error: Error,
    pub(crate) doubt: Doubt,
}

/// Acquires `hold`, waiting as `wait` says.
///
/// All attempts carry one token, so one whose answer was lost is simply made again. A server that cannot be reached
/// ends the acquire at once; after it has answered, failures that pass are ridden out until the deadline. Ends at most one `command_timeout` after the deadline.
pub(crate) fn acquire(
    store: &dyn Store,
    clock: &dyn Clock,
    hold: &Hold,
    length: Duration,
    wait: &Wait,
    command_timeout: Duration,
) -> Result<Grant, NotGranted> {
    let started = clock.now();
    let deadline = wait.deadline(started);
    let end = deadline + command_timeout;
    let mut doubt = Doubt::default();
    let mut pauses = Pauses::default();
    let mut in_touch = false;
    let mut repeated = false;
    let mut last = None;
    loop {
        let sent = clock.now();
        let mut free_in = None;
        let mut unanswered = false;
        let failed = match store.acquire(hold, length, command_timeout.min(sent.until(end))) {
            Ok(Acquired::Granted { fencing_token }) if clock.now() < valid_until(sent, length) => {
                return Ok(Grant {
                    fencing_token,
                    sent,
                    doubt,
                });
            }
            Ok(Acquired::Granted { .. }) => {
                doubt.add_late_grant();
                let why = format!("the grant took longer to arrive than its lease of {length:?} holds");
                Some(Error::Unconfirmed(Box::new(Because(why))))
            }
            Ok(Acquired::Busy { ttl }) => {
                free_in = ttl;
                None
            }
            Err(failure) => {
                doubt.add(sent, &failure);
                unanswered = matches!(failure, Failure::Unanswered(_));
                // Nothing but silence so far: that is not a wait, and is told at once.
                let out_of_reach = matches!(failure, Failure::Unreachable(_)) && !in_touch;
                in_touch |= matches!(failure, Failure::Unready(_));
                let hopeless = out_of_reach || !failure.passes();
                let error = failure.into_error(&hold.key);
                if hopeless {
                    return Err(NotGranted { error, doubt });
                }
                Some(error)
            }
        };
        in_touch |= failed.is_none();
        let now = clock.now();
        // A connection that had died while it was idle says nothing about the server: ask again at once.
        if unanswered && !repeated && now < end {
            repeated = true;
            continue;
        }
        repeated = false;
        if now >= deadline {
            let error = match failed {
                Some(error) if deadline == started => error,
                failed => Error::Timeout {
                    waited: started.until(now),
                    last: failed.or(last).map(Box::new),
                },
            };
            return Err(NotGranted { error, doubt });
        }
        last = failed.or(last);
        clock.sleep(pauses.next(free_in).min(now.until(deadline)));
    }
}

/// The pauses between attempts: growing, jittered so that waiters do not move in step, and never past the instant
/// when the holder's lease runs out.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    fn next(&mut self, free_in: Option<Duration>) -> Duration {
        let pause = self.0.mul_f64(0.5 + 0.5 * fastrand::f64());
        self.0 = (self.0 * 3 / 2).min(LONGEST_PAUSE);
        match free_in {
            // A TTL is told in whole milliseconds, rounded down or up as the server likes.
            Some(ttl) => pause.min(ttl + Duration::from_millis(1)),
            None => pause,
        }
    }
}

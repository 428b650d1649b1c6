//! The one acquire loop.

use std::{sync::Arc, time::Duration};

use crate::{
    Error, Wait,
    bell::Bell,
    clock::Clock,
    lease::{Doubt, Grant, valid_until},
    store::{Acquired, Failure, Hold, Store, because},
};

/// The first pause between two attempts; each is half as long again as the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Why an acquire ended without a grant, and what its attempts may have left behind.
#[derive(Debug)]
pub(crate) struct NotGranted {
    pub(crate) error: Error,
    pub(crate) doubt: Doubt,
}

/// One acquire: everything that it needs to know.
pub(crate) struct Acquire<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) hold: &'a Hold,
    /// Of the lock, as the user knows it.
    pub(crate) name: &'a [u8],
    pub(crate) length: Duration,
    pub(crate) wait: &'a Wait,
    pub(crate) command_timeout: Duration,
}

impl Acquire<'_> {
    /// Acquires the hold, waiting as the wait says.
    ///
    /// All attempts carry one token, so one whose answer was lost is simply made again. A server that cannot be reached,
    /// or hangs up again and again, ends the acquire at once; after it has answered, or while it is merely silent,
    /// failures that pass are ridden out until the deadline. Ends at most one command timeout after the deadline, or
    /// after the wait was cancelled.
    pub(crate) fn run(&self) -> Result<Grant, NotGranted> {
        let Self {
            clock, length, wait, ..
        } = *self;
        let bell = Arc::new(Bell::default());
        let _ringing = wait.ring(&bell);
        let started = clock.now();
        let deadline = wait.deadline(started);
        let end = deadline + self.command_timeout;
        let mut doubt = Doubt::default();
        let mut contact = Contact::default();
        let mut pauses = Pauses::default();
        let mut last = None;
        loop {
            if wait.is_cancelled() {
                let error = Error::Cancelled;
                return Err(NotGranted { error, doubt });
            }
            let sent = clock.now();
            let timeout = self.command_timeout.min(sent.until(end));
            let mut free_in = None;
            let failed = match self.store.acquire(self.hold, length, timeout) {
                Ok(Acquired::Granted { .. }) if wait.is_cancelled() => {
                    doubt.add_unused_grant();
                    continue;
                }
                Ok(Acquired::Granted { fencing_token }) if clock.now() < valid_until(sent, length) => {
                    return Ok(Grant {
                        fencing_token,
                        sent,
                        doubt,
                    });
                }
                Ok(Acquired::Granted { .. }) => {
                    doubt.add_unused_grant();
                    let why = format!("the grant took longer to arrive than its lease of {length:?} holds");
                    let error = Error::Unconfirmed(because(why));
                    if contact.hopelessly_late() {
                        return Err(NotGranted { error, doubt });
                    }
                    Some(error)
                }
                Ok(Acquired::Busy { ttl }) => {
                    contact.heard();
                    free_in = ttl;
                    None
                }
                Err(failure) => {
                    doubt.add(sent, length, &failure);
                    match contact.consequence_of(&failure) {
                        Consequence::AskAgain if clock.now() < end => continue,
                        Consequence::GiveUp => {
                            let error = failure.into();
                            return Err(NotGranted { error, doubt });
                        }
                        Consequence::AskAgain | Consequence::WaitOn => Some(failure.into()),
                    }
                }
            };
            let now = clock.now();
            if now >= deadline {
                let error = match failed {
                    Some(error) if deadline == started => error,
                    failed => Error::Timeout {
                        name: self.name.to_vec(),
                        waited: started.until(now),
                        last: failed.or(last).map(Box::new),
                    },
                };
                return Err(NotGranted { error, doubt });
            }
            last = failed.or(last);
            clock.wait(&bell, pauses.next(free_in).min(now.until(deadline)));
        }
    }
}

/// What was heard of the server in one acquire, and so what a failure of an attempt means for it.
#[derive(Default)]
struct Contact {
    /// The server has answered: the wait has begun.
    begun: bool,
    /// The last attempt was the immediate repetition of one that got no answer.
    repeated: bool,
    /// How many grants in a row came too late.
    late: u32,
}

enum Consequence {
    AskAgain,
    WaitOn,
    GiveUp,
}

impl Contact {
    fn heard(&mut self) {
        *self = Self {
            begun: true,
            ..Self::default()
        };
    }

    /// Takes in a grant that came too late to be used; true when there is no hope for another one. Each repetition
    /// renews the lease at the server, so going on for ever would lock everybody out.
    fn hopelessly_late(&mut self) -> bool {
        let late = self.late + 1;
        self.heard();
        self.late = late;
        late == 3
    }

    fn consequence_of(&mut self, failure: &Failure) -> Consequence {
        // A server that takes a request and is silent is there.
        self.begun |= matches!(failure, Failure::Unready(_) | Failure::Silent(_));
        // A connection that had died while it was idle says nothing about the server.
        if failure.is_unanswered() && !self.repeated {
            self.repeated = true;
            return Consequence::AskAgain;
        }
        self.repeated = false;
        // No wait has begun with a server that cannot be reached, or that hangs up whenever it is spoken to.
        let stranger = matches!(failure, Failure::Unreachable(_) | Failure::Cut(_)) && !self.begun;
        if stranger || !failure.passes() {
            Consequence::GiveUp
        } else {
            Consequence::WaitOn
        }
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{
        clock::Moment,
        store::fake::{FakeStore, Fault},
    };

    const LEASE: Duration = Duration::from_secs(30);
    const COMMAND: Duration = Duration::from_secs(1);

    fn hold() -> Hold {
        Hold::new(b"lock:x"[..].into())
    }

    fn take(store: &FakeStore, hold: &Hold, wait: Wait) -> Result<Grant, NotGranted> {
        let acquire = Acquire {
            store,
            clock: &*store.clock,
            hold,
            name: b"x",
            length: LEASE,
            wait: &wait,
            command_timeout: COMMAND,
        };
        acquire.run()
    }

    fn elapsed(store: &FakeStore, since: Moment) -> Duration {
        since.until(store.clock.now())
    }

    #[test]
    fn a_free_lock_takes_one_request() {
        let store = FakeStore::new();
        take(&store, &hold(), Wait::forever()).unwrap();
        assert_eq!(store.seen().len(), 1);
    }

    #[test]
    fn every_wait_lasts_as_long_as_it_says_and_no_longer() {
        for limit in [1.0, 1.5, 10.5, 999.0, 5_000.0].map(|millis| Duration::from_secs_f64(millis / 1000.0)) {
            let store = FakeStore::new();
            store.taken_by_another("lock:x", Duration::from_secs(60));
            let start = store.clock.now();
            let refused = take(&store, &hold(), Wait::at_most(limit)).unwrap_err();
            assert_eq!(elapsed(&store, start), limit);
            assert!(matches!(refused.error, Error::Timeout { waited, last: None, .. } if waited == limit));
            assert!(!refused.doubt.may_stand());
        }
    }

    #[test]
    fn a_wait_of_nothing_tries_once() {
        for wait in [Wait::none(), Wait::at_most(Duration::ZERO), Wait::until(Instant::now())] {
            let store = FakeStore::new();
            store.taken_by_another("lock:x", LEASE);
            let refused = take(&store, &hold(), wait).unwrap_err();
            assert!(matches!(refused.error, Error::Timeout { .. }));
            assert_eq!(store.seen().len(), 1);
        }
    }

    #[test]
    fn a_huge_wait_means_for_ever_and_ends_with_the_holders_lease() {
        let store = FakeStore::new();
        store.taken_by_another("lock:x", LEASE);
        let start = store.clock.now();
        take(&store, &hold(), Wait::at_most(Duration::MAX)).unwrap();
        let waited = elapsed(&store, start);
        assert!(
            waited >= LEASE && waited <= LEASE + Duration::from_millis(2),
            "{waited:?}"
        );
    }

    #[test]
    fn a_wait_longer_than_the_lease_yields_a_whole_lease() {
        let store = FakeStore::new();
        store.taken_by_another("lock:x", 2 * LEASE);
        let grant = take(&store, &hold(), Wait::forever()).unwrap();
        assert!(valid_until(grant.sent, LEASE) > store.clock.now() + LEASE / 2);
    }

    #[test]
    fn an_attempt_whose_reply_is_lost_is_made_again_with_the_same_token() {
        for fault in [Fault::CutAfter, Fault::CutBefore] {
            for wait in [Wait::none(), Wait::forever()] {
                let store = FakeStore::new();
                store.then([fault]);
                let grant = take(&store, &hold(), wait).unwrap();
                let seen = store.seen();
                assert_eq!(seen.len(), 2);
                assert_eq!(seen[0].token, seen[1].token);
                assert!(grant.doubt.may_still_run(store.clock.now()));
            }
        }
    }

    #[test]
    fn a_try_whose_reply_is_swallowed_ends_within_one_command_timeout() {
        let store = FakeStore::new();
        store.then([Fault::SwallowReply]);
        let start = store.clock.now();
        let refused = take(&store, &hold(), Wait::none()).unwrap_err();
        assert_eq!(elapsed(&store, start), COMMAND);
        assert!(matches!(refused.error, Error::Unconfirmed(_)));
        assert!(refused.doubt.may_stand());
    }

    #[test]
    fn a_wait_is_late_by_one_command_timeout_at_most() {
        let store = FakeStore::new();
        store.taken_by_another("lock:x", LEASE);
        store.then([Fault::Slow(Duration::ZERO)]);
        store.then([Fault::SwallowReply; 20]);
        let (start, limit) = (store.clock.now(), Duration::from_millis(2_500));
        let refused = take(&store, &hold(), Wait::at_most(limit)).unwrap_err();
        let waited = elapsed(&store, start);
        assert!(waited >= limit && waited <= limit + COMMAND, "{waited:?}");
        assert!(
            matches!(refused.error, Error::Timeout { last: Some(last), .. } if matches!(*last, Error::Unconfirmed(_)))
        );
    }

    #[test]
    fn a_server_out_of_reach_is_told_at_once() {
        let store = FakeStore::new();
        store.then([Fault::Unreachable; 2]);
        for wait in [Wait::forever(), Wait::none()] {
            let start = store.clock.now();
            let refused = take(&store, &hold(), wait).unwrap_err();
            assert!(matches!(refused.error, Error::Connection(_)));
            assert!(!refused.doubt.may_stand());
            assert_eq!(elapsed(&store, start), Duration::ZERO);
        }
    }

    #[test]
    fn a_server_that_dies_under_the_first_request_is_told_at_once() {
        let store = FakeStore::new();
        store.then([Fault::CutAfter, Fault::Unreachable]);
        let refused = take(&store, &hold(), Wait::forever()).unwrap_err();
        assert!(matches!(refused.error, Error::Connection(_)));
        assert!(refused.doubt.may_stand());
    }

    #[test]
    fn a_server_that_hangs_up_every_time_is_told_at_once() {
        let store = FakeStore::new();
        store.then([Fault::CutBefore; 2]);
        let refused = take(&store, &hold(), Wait::forever()).unwrap_err();
        assert!(matches!(refused.error, Error::Unconfirmed(_)));
        assert!(refused.doubt.may_stand());
        assert_eq!(store.seen().len(), 2);
    }

    #[test]
    fn a_server_that_is_silent_at_first_is_waited_for() {
        let store = FakeStore::new();
        store.then([Fault::SwallowReply; 5]);
        take(&store, &hold(), Wait::forever()).unwrap();
    }

    #[test]
    fn outages_during_a_wait_are_ridden_out() {
        let store = FakeStore::new();
        store.taken_by_another("lock:x", Duration::from_millis(500));
        store.then([Fault::Slow(Duration::ZERO)]);
        store.then([
            Fault::Unreachable,
            Fault::Loading,
            Fault::CutBefore,
            Fault::Unreachable,
            Fault::SwallowReply,
        ]);
        take(&store, &hold(), Wait::at_most(Duration::from_secs(10))).unwrap();
    }

    #[test]
    fn a_refusal_that_stays_ends_the_wait() {
        let store = FakeStore::new();
        store.taken_by_another("lock:x", LEASE);
        store.then([Fault::Slow(Duration::ZERO), Fault::NotPermitted]);
        let refused = take(&store, &hold(), Wait::forever()).unwrap_err();
        assert!(matches!(refused.error, Error::Server(_)));
    }

    #[test]
    fn a_grant_that_arrives_after_its_lease_is_none() {
        let store = FakeStore::new();
        store.then([Fault::Slow(LEASE)]);
        let refused = take(&store, &hold(), Wait::none()).unwrap_err();
        assert!(matches!(refused.error, Error::Unconfirmed(_)));
        assert!(refused.doubt.may_stand());

        store.then([Fault::Slow(LEASE); 2]);
        let grant = take(&store, &hold(), Wait::forever()).unwrap();
        assert!(valid_until(grant.sent, LEASE) > store.clock.now());
    }

    #[test]
    fn a_way_longer_than_the_lease_ends_the_acquire_instead_of_holding_the_key_for_ever() {
        let store = FakeStore::new();
        store.then([Fault::Slow(LEASE); 100]);
        let refused = take(&store, &hold(), Wait::forever()).unwrap_err();
        assert!(matches!(refused.error, Error::Unconfirmed(_)));
        assert!(refused.doubt.may_stand());
        assert_eq!(store.seen().len(), 3);
    }

    #[test]
    fn pauses_grow_to_their_limit_differ_and_end_with_the_holders_lease() {
        let mut pauses = Pauses::default();
        let taken: Vec<_> = (0..50).map(|_| pauses.next(None)).collect();
        assert!(taken[0] <= FIRST_PAUSE);
        assert!(
            taken[20..]
                .iter()
                .all(|pause| *pause >= LONGEST_PAUSE / 2 && *pause <= LONGEST_PAUSE)
        );
        assert!(taken[20..].iter().any(|pause| *pause != taken[20]));
        assert!(pauses.next(Some(Duration::ZERO)) <= Duration::from_millis(1));
    }
}

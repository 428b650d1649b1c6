//! What requests of unknown outcome may have left behind, and how it is taken away.

use std::time::Duration;

use crate::{
    clock::Moment,
    mistakes::{Mistake, makes},
    store::{Chore, Failure, Hold},
};

/// What is not known about the attempts that were made to acquire with one token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt {
    /// An attempt may have been granted without our knowing, or have taken a place among those who wait.
    may_stand: bool,
    /// Until when an attempt that got no answer may still run: one lease after it was sent. A command sent to a stalled
    /// server can run after its client has closed; one lease later nobody is surprised any more by what it leaves.
    may_run_until: Option<Moment>,
}

impl Doubt {
    /// Takes in the failure of an attempt that was sent at `sent` and asked for a lease of `length`.
    pub(crate) fn add(&mut self, sent: Moment, length: Duration, failure: &Failure) {
        self.may_stand |= failure.may_have_run();
        if failure.is_unanswered() {
            self.may_run_until = Some(sent + length);
        }
    }

    /// Takes in that an attempt was granted, and that the grant is not used.
    pub(crate) fn add_unused_grant(&mut self) {
        self.may_stand = true;
    }

    /// Whether something of our token may stand at the server.
    pub(crate) fn may_stand(&self) -> bool {
        self.may_stand
    }

    /// Whether an attempt got no answer, and so may have run at any time since.
    pub(crate) fn is_of_silence(&self) -> bool {
        self.may_run_until.is_some()
    }

    /// Whether an attempt may still run at `now`.
    pub(crate) fn may_still_run(&self, now: Moment) -> bool {
        self.may_run_until.is_some_and(|until| now < until)
    }
}

/// A token whose key is to be deleted, should it stand there, or whose place among those who wait is to be taken back.
#[derive(Clone)]
pub(crate) struct Cleanup {
    hold: Hold,
    /// Whether only the place is to go: it may hold the key by rights.
    place_only: bool,
    /// From here on one answer from the server settles the matter; before, a late attempt may still undo it.
    settled_at: Moment,
    /// From here on the key has expired by itself.
    gone_at: Moment,
    pause: Duration,
    longest_pause: Duration,
}

/// The first pause; each is twice as long as the one before, up to the longest: a second, or for long leases a
/// sixteenth of the lease, so that even thousands of tokens cost the server little.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Cleanup {
    /// The cleaning up after a hold whose longest lease so far was `length` and whose last request was sent by `now`.
    pub(crate) fn new(hold: Hold, doubt: Doubt, length: Duration, now: Moment) -> Self {
        let settled_at = doubt.may_run_until.unwrap_or(now);
        Self {
            hold,
            place_only: false,
            settled_at,
            gone_at: settled_at.max(now + length),
            pause: FIRST_PAUSE,
            longest_pause: LONGEST_PAUSE.max(length / 16),
        }
    }

    /// The cleaning up after a waiter that was knocked for, and has ended its wait. Its place lasts for `lasts` at
    /// most.
    pub(super) fn of_place(hold: Hold, lasts: Duration, now: Moment) -> Self {
        Self {
            place_only: true,
            ..Self::new(hold, Doubt::default(), lasts, now)
        }
    }

    /// The cleaning up for which there is another reason too: it goes on for as long as either asks.
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            settled_at: self.settled_at.max(other.settled_at),
            gone_at: self.gone_at.max(other.gone_at),
            ..self
        }
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(super) fn chore(&self) -> Chore {
        let hold = self.hold.clone();
        if self.place_only && !makes(Mistake::PassesOnByForce) {
            Chore::Withdraw(hold)
        } else {
            Chore::Evict(hold)
        }
    }

    /// What follows an attempt at `now`, answered or not: when to try again, if at all.
    pub(crate) fn next(mut self, answered: bool, now: Moment) -> Option<(Self, Moment)> {
        let done_at = if answered { self.settled_at } else { self.gone_at };
        if now >= done_at {
            return None;
        }
        // Jittered: what failed together in one batch, maybe because of one of them, is not to be tried together for
        // ever.
        let pause = self.pause.mul_f64(0.75 + 0.25 * fastrand::f64());
        let due = (now + pause).min(done_at);
        self.pause = (self.pause * 2).min(self.longest_pause);
        Some((self, due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{Clock, ManualClock},
        store::{Resource, because},
    };

    const LEASE: Duration = Duration::from_secs(10);

    fn unanswered() -> Failure {
        Failure::Silent(because("timed out"))
    }

    /// Runs a clean-up to its end; returns how long it took and how many attempts.
    fn run(doubt: Doubt, clock: &ManualClock, mut answered: impl FnMut(Duration) -> bool) -> (Duration, u32) {
        let (start, mut attempts) = (clock.now(), 0);
        let mut cleanup = Cleanup::new(Hold::new(Resource::lock("k")), doubt, LEASE, start);
        loop {
            attempts += 1;
            match cleanup.next(answered(start.until(clock.now())), clock.now()) {
                None => return (start.until(clock.now()), attempts),
                Some((next, due)) => {
                    clock.advance(clock.now().until(due));
                    cleanup = next;
                }
            }
        }
    }

    #[test]
    fn one_answer_settles_it_when_nothing_can_run_any_more() {
        let (took, attempts) = run(Doubt::default(), &ManualClock::default(), |_| true);
        assert_eq!((took, attempts), (Duration::ZERO, 1));
    }

    #[test]
    fn an_unanswered_attempt_is_watched_for_one_lease() {
        let clock = ManualClock::default();
        let mut doubt = Doubt::default();
        doubt.add(clock.now(), LEASE, &unanswered());
        let (took, attempts) = run(doubt, &clock, |_| true);
        assert_eq!(took, LEASE);
        assert!((10..30).contains(&attempts), "{attempts}");
    }

    #[test]
    fn a_server_that_is_away_is_asked_until_the_key_has_expired_by_itself() {
        let (took, _) = run(Doubt::default(), &ManualClock::default(), |_| false);
        assert_eq!(took, LEASE);
        let (took, _) = run(Doubt::default(), &ManualClock::default(), |at| at > LEASE / 2);
        assert!(took > LEASE / 2 && took < LEASE);
    }

    #[test]
    fn only_what_may_have_run_leaves_a_doubt() {
        let now = ManualClock::default().now();
        let mut doubt = Doubt::default();
        doubt.add(now, LEASE, &Failure::Unreachable(because("refused")));
        doubt.add(now, LEASE, &Failure::KeyConflict(b"lock:x".to_vec()));
        assert!(!doubt.may_stand());
        doubt.add(now, LEASE, &Failure::Unready(because("LOADING")));
        assert!(doubt.may_stand() && !doubt.may_still_run(now));
        doubt.add(now, LEASE, &unanswered());
        assert!(doubt.may_still_run(now) && !doubt.may_still_run(now + LEASE));
    }
}

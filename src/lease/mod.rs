//! One grant: how long it holds, and how it ended.

mod cleanup;
mod keeper;
mod lost;
mod schedule;
mod terms;

use std::{
    mem,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

pub use self::lost::{Lost, LostReason};
pub(crate) use self::{
    cleanup::{Cleanup, Doubt},
    keeper::{Keeper, Report, Sweeper},
    terms::{OnLost, Terms, check_length},
};
use crate::{
    Error,
    clock::{Clock, Moment},
    error::Source,
    lease::schedule::Id,
    mistakes::{Mistake, makes},
    store::{Failure, Hold},
    sync::{Condvar, Mutex},
    waiting::{Bell, Ring},
};

/// What a lease loses to clocks that do not run alike: 1 % of its length and 2 ms.
pub(crate) fn drift(length: Duration) -> Duration {
    length / 100 + Duration::from_millis(2)
}

/// Until when a lease of `length` certainly holds if the request for it was sent at `sent`: the server counts from
/// when the request arrives, which is later.
pub(crate) fn valid_until(sent: Moment, length: Duration) -> Moment {
    sent + length.saturating_sub(drift(length))
}

/// A grant, as the store made it.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The grant's own, and those for grants that the lease is handed on to.
    pub(crate) fencing_tokens: Range<u64>,
    /// When the request was sent that was granted.
    pub(crate) sent: Moment,
    /// What the attempts before it may still do.
    pub(crate) doubt: Doubt,
}

/// How long a lease is handed on at most before the server is asked whether another process waits.
const LONGEST_TURN: Duration = Duration::from_millis(20);

/// What may become of a lease when its grant ends, while another thread of this process waits.
pub(crate) enum Succession {
    /// It is the next grant's now, which has this fencing token; with the callback of the one before.
    HandedOn(u64, Option<OnLost>),
    /// It may be the next grant's, but the server has to be asked: whether somebody else waits, unless it `insists`.
    Asks { insists: bool },
    /// It ends.
    None,
}

/// What the server keeps for this process, and the state of the grant that it is now: shared by its guard and the
/// keeper. It may become the next grant's, in another thread, without a word to the server.
///
/// Invariant: once anybody has seen it not held, it is never held again. That is why the clock is read under the
/// mutex: a renewal that comes after the end finds that the end has come.
pub(crate) struct Lease {
    pub(crate) hold: Hold,
    pub(crate) name: Arc<[u8]>,
    /// What the attempts before the granted one may still do.
    pub(crate) doubt: Doubt,
    /// Without a callback: that is the grant's.
    pub(crate) terms: Terms,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    ended: Condvar,
}

/// How long, and how often, a lease has been handed on without regard for other processes.
#[derive(Clone, Copy)]
struct Turn {
    since: Moment,
    handed_on: u32,
}

struct State {
    turn: Turn,
    fencing_token: u64,
    /// For those that it is handed on to.
    spare_fencing_tokens: Range<u64>,
    /// Never held beyond this, whatever is renewed or extended.
    must_end: Moment,
    valid_until: Moment,
    /// Whether `valid_until` cannot move any further because of `must_end`.
    exhausted: bool,
    phase: Phase,
    longest_asked: Duration,
    /// Why the last renewal failed, if it did.
    trouble: Option<Source>,
    /// Until the loss has been reported or the guard has gone.
    on_lost: Option<OnLost>,
    /// Its place on the keeper's schedule.
    renewal: Option<Id>,
    /// How many threads wait for a grant's end.
    watchers: u32,
    /// Rung when it is lost: of the thread that waits for it here.
    heir: Option<Arc<Bell>>,
    /// Rung when it ends: of threads that wait for the end of one of several.
    attending: Vec<Arc<Bell>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Held,
    Lost(LostReason),
    Released,
}

/// What the keeper has to do about a lease now.
#[derive(Debug, PartialEq)]
enum Due {
    /// Renew it to this length.
    Renew(Duration),
    /// Nothing yet.
    Nothing,
    /// It is over: lost or released.
    Over,
}

impl Lease {
    pub(crate) fn new(hold: Hold, name: Arc<[u8]>, grant: &Grant, terms: &Terms, clock: Arc<dyn Clock>) -> Self {
        let Grant { sent, doubt, .. } = *grant;
        let mut fencing_tokens = grant.fencing_tokens.clone();
        let must_end = sent + terms.max_hold;
        let length = terms.first_length();
        Self {
            hold,
            name,
            doubt,
            terms: Terms {
                on_lost: None,
                ..terms.clone()
            },
            state: Mutex::new(State {
                turn: Turn {
                    since: clock.now(),
                    handed_on: 0,
                },
                fencing_token: fencing_tokens.next().expect("a grant has a fencing token"),
                spare_fencing_tokens: fencing_tokens,
                must_end,
                valid_until: valid_until(sent, length),
                exhausted: sent + length >= must_end,
                phase: Phase::Held,
                longest_asked: length,
                trouble: None,
                on_lost: terms.on_lost.clone(),
                renewal: None,
                watchers: 0,
                heir: None,
                attending: Vec::new(),
            }),
            clock,
            ended: Condvar::default(),
        }
    }

    /// Makes the lease the next grant's, on the terms `to`, if they are its own, it is held, it ends no later than
    /// they say, and no other process can have waited long.
    pub(crate) fn hand_on(&self, to: &Terms) -> Succession {
        let mut state = self.state.lock();
        let as_granted = !state.exhausted && state.longest_asked <= self.terms.length;
        let held = self.phase(&state) == Phase::Held || makes(Mistake::HandsOnALostLease);
        if !self.terms.may_be_handed_on(to) || !as_granted || !held {
            return Succession::None;
        }
        let now = self.clock.now();
        let turn_lasts = now < state.turn.since + LONGEST_TURN && state.turn.handed_on < self.terms.handoffs;
        let young = now.until(state.valid_until) >= self.terms.length / 2;
        // Other holders of permits draw fencing tokens meanwhile, so none are drawn beforehand: one that is there was
        // drawn for this very hand-over, however long that took.
        let shared = !self.hold.resource.is_exclusive();
        let fencing_token = match state.spare_fencing_tokens.next() {
            Some(fencing_token) if shared || turn_lasts && young => fencing_token,
            _ => {
                let insists = turn_lasts && shared;
                return Succession::Asks { insists };
            }
        };
        state.turn.handed_on += 1;
        state.fencing_token = fencing_token;
        state.must_end = now + self.terms.max_hold;
        // Only then: it is a system call, and a hand-over makes no other.
        if state.watchers > 0 && !makes(Mistake::HandsOnInSilence) {
            self.ended.notify_all();
        }
        Succession::HandedOn(fencing_token, mem::replace(&mut state.on_lost, to.on_lost.clone()))
    }

    /// Makes a lease that was kept for its holder so far, without a callback, the holder's on the terms `to` from `now`
    /// on. It is as long as the first of theirs.
    pub(crate) fn begin(&self, to: &Terms, now: Moment) {
        let mut state = self.state.lock();
        let length = self.terms.length;
        state.exhausted = to.max_hold <= length;
        state.must_end = if state.exhausted {
            // It was asked for just as long.
            state.valid_until + drift(length)
        } else {
            now + to.max_hold
        };
        state.on_lost = to.on_lost.clone();
    }

    /// Has `bell` rung as well when the lease ends, until it is told [otherwise](Self::dismiss).
    pub(crate) fn attend(&self, bell: &Arc<Bell>) {
        self.state.lock().attending.push(bell.clone());
    }

    pub(crate) fn dismiss(&self, bell: &Arc<Bell>) {
        self.state.lock().attending.retain(|other| !Arc::ptr_eq(other, bell));
    }

    /// Has `bell`, if any, rung in place of the former one when the lease is lost.
    pub(crate) fn name_heir(&self, bell: Option<Arc<Bell>>) {
        self.state.lock().heir = bell;
    }

    /// Until when nobody else can have the key, for all that is known here; `None` once the lease is lost. While it is
    /// being given back nobody knows how long that takes.
    pub(crate) fn taken_until(&self) -> Option<Moment> {
        let state = self.state.lock();
        match self.phase(&state) {
            Phase::Held => Some(state.valid_until),
            Phase::Released => Some(Moment::NEVER),
            Phase::Lost(_) => None,
        }
    }

    pub(crate) fn fencing_token(&self) -> u64 {
        self.state.lock().fencing_token
    }

    /// The lease that follows on this one, of the same hold and on the same terms, granted by `grant`: with `insisted`
    /// although others may wait. It has no callback.
    pub(crate) fn followed_by(&self, grant: &Grant, insisted: bool) -> Self {
        let next = Self::new(
            self.hold.clone(),
            self.name.clone(),
            grant,
            &self.terms,
            self.clock.clone(),
        );
        if insisted {
            next.state.lock().turn = self.state.lock().turn;
        }
        next
    }

    /// How much longer the lease certainly holds.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state.lock();
        match state.phase {
            Phase::Held => self.clock.now().until(state.valid_until),
            _ => Duration::ZERO,
        }
    }

    /// `Err` once the lease no longer holds, with the reason.
    pub(crate) fn check(&self) -> Result<(), Lost> {
        let state = self.state.lock();
        match self.phase(&state) {
            Phase::Lost(reason) => Err(self.lost(reason, &state)),
            _ => Ok(()),
        }
    }

    /// Waits until the grant with this fencing token no longer holds, for at most `limit`; tells whether it came to
    /// that.
    pub(crate) fn wait_lost(&self, fencing_token: u64, limit: Duration) -> bool {
        let deadline = self.clock.now() + limit;
        let mut state = self.state.lock();
        state.watchers += 1;
        let lost = loop {
            if self.phase(&state) != Phase::Held || state.fencing_token != fencing_token {
                break true;
            }
            let now = self.clock.now();
            if now >= deadline {
                break false;
            }
            let wake = deadline.min(state.valid_until);
            state = self.ended.wait_for(state, now.until(wake));
        };
        state.watchers -= 1;
        lost
    }

    /// The longest length that may be asked for now.
    pub(crate) fn longest(&self) -> Duration {
        self.longest_by(&self.state.lock())
    }

    fn longest_by(&self, state: &State) -> Duration {
        self.clock.now().until(state.must_end)
    }

    /// Notes that the server has confirmed a renewal or extension to `length`, asked for at `sent`.
    pub(crate) fn prolong(&self, sent: Moment, length: Duration) {
        let mut state = self.state.lock();
        if self.phase(&state) == Phase::Held {
            state.valid_until = state.valid_until.max(valid_until(sent, length).min(state.must_end));
            state.exhausted |= sent + length >= state.must_end;
            state.trouble = None;
        }
    }

    /// Notes that a renewal failed.
    fn fail(&self, failure: Failure) {
        self.state.lock().trouble = Some(Arc::new(Error::from(failure)));
    }

    /// Notes that the server no longer knows the lease.
    pub(crate) fn lose(&self, reason: LostReason) {
        let mut state = self.state.lock();
        if self.phase(&state) == Phase::Held {
            state.phase = Phase::Lost(reason);
            state.trouble = None;
        }
        self.tell_end(&mut state);
    }

    /// Wakes those who wait for the end.
    fn tell_end(&self, state: &mut State) {
        self.ended.notify_all();
        state.attending.iter().for_each(|bell| bell.ring(Ring::News));
        if let Some(heir) = state.heir.take().filter(|_| !makes(Mistake::LosesInSilence)) {
            heir.ring(Ring::News);
        }
    }

    /// Ends the lease on its guard's behalf: `Ok` if it was held until now. Nothing is renewed after this.
    pub(crate) fn finish(&self) -> Result<(), Lost> {
        let mut state = self.state.lock();
        let phase = self.phase(&state);
        if phase == Phase::Held && !makes(Mistake::RenewsAfterRelease) {
            state.phase = Phase::Released;
        }
        self.ended.notify_all();
        state.attending.iter().for_each(|bell| bell.ring(Ring::News));
        match phase {
            Phase::Lost(reason) => Err(self.lost(reason, &state)),
            _ => Ok(()),
        }
    }

    /// Notes that the release found the lease lost.
    pub(crate) fn found_lost(&self, reason: LostReason) -> Lost {
        let mut state = self.state.lock();
        state.phase = Phase::Lost(reason);
        self.lost(reason, &state)
    }

    /// Lets go of the callback: nobody is to be told any more.
    pub(crate) fn forget_callback(&self) {
        let callback = self.state.lock().on_lost.take();
        forget(callback);
    }

    /// Notes that a lease of `length` is about to be asked for on behalf of the grant with this fencing token; `false`
    /// if the lease has become another grant's.
    pub(crate) fn will_ask(&self, fencing_token: u64, length: Duration) -> bool {
        let mut state = self.state.lock();
        if state.fencing_token != fencing_token {
            return false;
        }
        state.longest_asked = state.longest_asked.max(length);
        true
    }

    /// The longest lease that the server may have been asked for.
    pub(crate) fn longest_asked(&self) -> Duration {
        self.state.lock().longest_asked
    }

    /// The loss and whom to tell, the first time that it is asked for after the lease was lost.
    fn unreported_loss(&self) -> Option<(Lost, OnLost)> {
        let mut state = self.state.lock();
        match self.phase(&state) {
            Phase::Lost(reason) => {
                let on_lost = state.on_lost.take()?;
                Some((self.lost(reason, &state), on_lost))
            }
            _ => None,
        }
    }

    /// What is to be done about the lease when its time in the schedule has come.
    fn due(&self) -> Due {
        let mut state = self.state.lock();
        match self.phase(&state) {
            Phase::Held if self.terms.renewed && !state.exhausted => {
                Due::Renew(self.terms.length.min(self.longest_by(&state)))
            }
            Phase::Held => Due::Nothing,
            _ => {
                // A timer stands still while the machine is suspended: whoever waits for the end may be late.
                self.tell_end(&mut state);
                Due::Over
            }
        }
    }

    /// When the keeper has to look at the lease next, and by when the renewal that is then due must have succeeded.
    ///
    /// A renewal is due after a third of the lease: a tenth of that less or more so that leases taken together do not
    /// stay together, and a little early, on a grid, so that many go out in few batches.
    fn next_look(&self, grid_offset: Duration) -> (Moment, Moment) {
        let state = self.state.lock();
        let end = state.valid_until;
        if !self.terms.renewed || state.exhausted {
            return (end, Moment::NEVER);
        }
        let third = self.terms.length / 3;
        let due = self.clock.now() + third.mul_f64(0.9 + 0.2 * fastrand::f64());
        (due.floor_to(third / 16, grid_offset).min(end), end)
    }

    fn has_callback(&self) -> bool {
        self.state.lock().on_lost.is_some()
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.state.lock().valid_until
    }

    fn phase(&self, state: &State) -> Phase {
        match state.phase {
            Phase::Held if self.clock.now() >= state.valid_until => Phase::Lost(if state.exhausted {
                LostReason::MaxHold
            } else {
                LostReason::Expired
            }),
            phase => phase,
        }
    }

    fn lost(&self, reason: LostReason, state: &State) -> Lost {
        Lost::new(reason, self.name.clone(), state.fencing_token, state.trouble.clone())
    }
}

/// Drops a callback. What it owns is the user's code, to be dropped on the guard's thread and not under a mutex. A
/// panic in it must not come out of the drop of a guard.
pub(crate) fn forget(callback: Option<OnLost>) {
    let dropped = catch_unwind(AssertUnwindSafe(move || drop(callback)));
    dropped.unwrap_or_else(mem::forget);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{clock::ManualClock, store::Resource};

    const LENGTH: Duration = Duration::from_secs(30);

    pub(super) fn granted_at(sent: Moment) -> Grant {
        Grant {
            fencing_tokens: 1..2,
            sent,
            doubt: Doubt::default(),
        }
    }

    pub(super) fn terms() -> Terms {
        Terms {
            length: LENGTH,
            renewed: true,
            max_hold: Duration::MAX,
            handoffs: 0,
            fair: false,
            replicas: None,
            on_lost: None,
        }
    }

    fn lease(terms: &Terms, clock: &Arc<ManualClock>) -> Lease {
        let hold = Hold::new(Resource::lock("lock:x"));
        Lease::new(hold, b"x"[..].into(), &granted_at(clock.now()), terms, clock.clone())
    }

    proptest! {
        #[test]
        fn validity_is_at_most_the_lease_less_what_elapsed_and_the_drift(
            micros in 10_000_u64..100_000_000_000,
            elapsed_micros in 0_u64..200_000_000_000,
        ) {
            let (length, elapsed) = (Duration::from_micros(micros), Duration::from_micros(elapsed_micros));
            let clock = Arc::new(ManualClock::default());
            let lease = lease(&Terms { length, ..terms() }, &clock);
            clock.advance(elapsed);
            let allowed = length.saturating_sub(drift(length)).saturating_sub(elapsed);
            prop_assert_eq!(lease.remaining(), allowed);
            prop_assert_eq!(lease.check().is_ok(), !allowed.is_zero());
        }

        #[test]
        fn what_was_seen_lost_is_never_held_again(
            steps in proptest::collection::vec((0_u64..40, any::<bool>(), 1_u64..60), 1..20),
        ) {
            let clock = Arc::new(ManualClock::default());
            let lease = lease(&terms(), &clock);
            let mut seen_lost = false;
            for (seconds, renew, length) in steps {
                let sent = clock.now();
                clock.advance(Duration::from_secs(seconds));
                if renew {
                    lease.prolong(sent, Duration::from_secs(length));
                }
                seen_lost |= lease.check().is_err();
                prop_assert_eq!(lease.check().is_err(), seen_lost);
            }
        }
    }

    #[test]
    fn a_shorter_renewal_does_not_undo_an_extension() {
        let clock = Arc::new(ManualClock::default());
        let lease = lease(&terms(), &clock);
        let renewal_sent = clock.now();
        lease.prolong(clock.now(), 10 * LENGTH);
        lease.prolong(renewal_sent, LENGTH);
        assert_eq!(lease.remaining(), 10 * LENGTH - drift(10 * LENGTH));
    }

    #[test]
    fn a_lease_that_runs_out_has_expired() {
        let clock = Arc::new(ManualClock::default());
        let lease = lease(&terms(), &clock);
        clock.advance(LENGTH - drift(LENGTH));
        assert_eq!(lease.check().unwrap_err().reason, LostReason::Expired);
        assert_eq!(lease.finish().unwrap_err().reason, LostReason::Expired);
    }

    #[test]
    fn the_first_reason_of_a_loss_stands() {
        let clock = Arc::new(ManualClock::default());
        let lease = lease(&terms(), &clock);
        lease.lose(LostReason::Deleted);
        lease.lose(LostReason::Taken);
        clock.advance(LENGTH);
        assert_eq!(lease.check().unwrap_err().reason, LostReason::Deleted);
    }

    #[test]
    fn a_longest_hold_ends_the_lease_and_says_so() {
        for max_hold in [Duration::from_secs(5), Duration::from_secs(45)] {
            let clock = Arc::new(ManualClock::default());
            let lease = lease(&Terms { max_hold, ..terms() }, &clock);
            let start = clock.now();
            while lease.check().is_ok() {
                if let Due::Renew(length) = lease.due() {
                    lease.prolong(clock.now(), length);
                }
                clock.advance(Duration::from_millis(100));
            }
            let held = start.until(clock.now());
            assert!(held <= max_hold && held > max_hold * 9 / 10, "{held:?} of {max_hold:?}");
            assert_eq!(lease.check().unwrap_err().reason, LostReason::MaxHold);
        }
    }

    /// A lease that may be handed on `spare` times, and the terms on which it may.
    fn handed_on_lease(clock: &Arc<ManualClock>, spare: u64) -> (Lease, Terms) {
        let terms = Terms { handoffs: 8, ..terms() };
        let grant = Grant {
            fencing_tokens: 10..11 + spare,
            ..granted_at(clock.now())
        };
        let hold = Hold::new(Resource::lock("lock:x"));
        (Lease::new(hold, b"x"[..].into(), &grant, &terms, clock.clone()), terms)
    }

    fn fencing_token(succession: Succession) -> Option<u64> {
        match succession {
            Succession::HandedOn(fencing_token, _) => Some(fencing_token),
            _ => None,
        }
    }

    #[test]
    fn each_grant_has_a_fencing_token_of_those_that_were_drawn_then_the_server_is_asked() {
        let clock = Arc::new(ManualClock::default());
        let (lease, terms) = handed_on_lease(&clock, 2);
        assert_eq!(lease.fencing_token(), 10);
        assert_eq!(fencing_token(lease.hand_on(&terms)), Some(11));
        assert_eq!(fencing_token(lease.hand_on(&terms)), Some(12));
        assert!(matches!(lease.hand_on(&terms), Succession::Asks { insists: false }));
        assert_eq!(lease.fencing_token(), 12);
    }

    #[test]
    fn the_server_is_asked_after_a_turn_and_when_half_of_the_lease_has_passed() {
        for (time, length) in [
            (LONGEST_TURN, LENGTH),
            (Duration::from_millis(8), Duration::from_millis(20)),
        ] {
            let clock = Arc::new(ManualClock::default());
            let (_, terms) = handed_on_lease(&clock, 2);
            let terms = Terms { length, ..terms };
            let hold = Hold::new(Resource::lock("lock:x"));
            let grant = Grant {
                fencing_tokens: 1..3,
                ..granted_at(clock.now())
            };
            let lease = Lease::new(hold, b"x"[..].into(), &grant, &terms, clock.clone());
            clock.advance(time);
            assert!(
                matches!(lease.hand_on(&terms), Succession::Asks { insists: false }),
                "after {time:?}"
            );
        }
    }

    #[test]
    fn a_lease_is_handed_on_only_as_it_was_granted_and_on_its_own_terms() {
        let change: [fn(&mut Terms); 6] = [
            |terms| terms.length *= 2,
            |terms| terms.renewed = false,
            |terms| terms.max_hold = LENGTH,
            |terms| terms.handoffs = 0,
            |terms| terms.handoffs = 9,
            |terms| terms.fair = true,
        ];
        for change in change {
            let (lease, mut terms) = handed_on_lease(&Arc::new(ManualClock::default()), 2);
            change(&mut terms);
            assert!(matches!(lease.hand_on(&terms), Succession::None));
        }
        let end: [fn(&Lease); 4] = [
            |lease| assert!(lease.will_ask(lease.fencing_token(), 2 * LENGTH)),
            |lease| lease.lose(LostReason::Deleted),
            |lease| drop(lease.finish()),
            |lease| lease.state.lock().valid_until = lease.clock.now(),
        ];
        for end in end {
            let (lease, terms) = handed_on_lease(&Arc::new(ManualClock::default()), 2);
            end(&lease);
            assert!(matches!(lease.hand_on(&terms), Succession::None));
        }
    }

    #[test]
    fn the_longest_hold_counts_anew_for_each_grant() {
        let clock = Arc::new(ManualClock::default());
        let terms = Terms {
            handoffs: 8,
            max_hold: 2 * LENGTH,
            ..terms()
        };
        let grant = Grant {
            fencing_tokens: 1..3,
            ..granted_at(clock.now())
        };
        let hold = Hold::new(Resource::lock("lock:x"));
        let lease = Lease::new(hold, b"x"[..].into(), &grant, &terms, clock.clone());
        clock.advance(LONGEST_TURN / 2);
        assert_eq!(fencing_token(lease.hand_on(&terms)), Some(2));
        assert_eq!(lease.longest(), 2 * LENGTH);
    }

    #[test]
    fn nothing_is_due_after_the_release() {
        let clock = Arc::new(ManualClock::default());
        let lease = lease(&terms(), &clock);
        assert_eq!(lease.due(), Due::Renew(LENGTH));
        lease.finish().unwrap();
        assert_eq!(lease.due(), Due::Over);
        assert_eq!(lease.remaining(), Duration::ZERO);
    }
}

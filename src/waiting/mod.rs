//! The one acquire loop.

mod bell;
mod gate;
mod knocks;
mod registration;

use std::{sync::Arc, time::Duration};

pub(crate) use self::{
    bell::{Bell, Ring},
    gate::{Gate, Heir, Pass},
    knocks::Knocks,
};
use self::{
    gate::{HandedOn, InLine, Outcome, PlaceLeft, Standing},
    registration::{Registration, Request},
};
use crate::{
    Error, Wait,
    cancel::Watch,
    client::Core,
    clock::Moment,
    lease::{Doubt, Grant, Lease, Terms, valid_until},
    mistakes::{Mistake, makes},
    store::{Acquired, Ask, Failure, Hold, Resource, because},
};

/// The first pause between two attempts while knocks are not heard; each is half as long again as the one before, up to
/// the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A lease that was acquired.
pub(crate) struct Acquisition {
    pub(crate) lease: Arc<Lease>,
    pub(crate) fencing_token: u64,
    /// Whether another thread has handed it on: it is being renewed already.
    pub(crate) handed_on: bool,
    /// Whether it had to be waited for.
    pub(crate) waited: bool,
}

/// One acquire: everything that it needs to know.
pub(crate) struct Acquire<'a> {
    pub(crate) core: &'a Core,
    pub(crate) resource: &'a Resource,
    /// As the user knows it.
    pub(crate) name: &'a Arc<[u8]>,
    pub(crate) terms: &'a Terms,
    pub(crate) wait: &'a Wait,
}

/// An acquire under way.
struct Waiting<'a> {
    acquire: &'a Acquire<'a>,
    bell: Arc<Bell>,
    /// If the wait may be cancelled.
    watch: Option<&'a Watch>,
    started: Moment,
    deadline: Moment,
    /// Whether it waits at all.
    waits: bool,
    line: Option<InLine<'a>>,
    /// What it has at the server.
    registration: Registration,
    contact: Contact,
    pauses: Pauses,
    /// The last failure.
    last: Option<Error>,
    /// What it was woken by.
    heard: Option<Ring>,
    has_slept: bool,
}

/// What to do next.
enum Step {
    Granted(Grant),
    /// Look again at once.
    Repeat,
    /// Look again by then, or when something is heard.
    Wait(Moment),
}

impl Acquire<'_> {
    /// Acquires the resource, waiting as the wait says.
    ///
    /// Threads that wait for the same key stand in a line, unless they keep to their turn at the server; the first one
    /// makes the attempts. All of its attempts carry one token, so one whose answer was lost is simply made again. A
    /// server that cannot be reached, or hangs up again and again, ends the acquire at once; after it has answered, or
    /// while it is merely silent, failures that pass are ridden out until the deadline. Ends at most one command
    /// timeout after the deadline, or after the wait was cancelled.
    pub(crate) fn run(&self) -> Result<Acquisition, Error> {
        self.go_on(Hold::new(self.resource.clone()), Doubt::default(), Contact::default())
    }

    /// As [`run`](Self::run) after attempts for `hold`, which have left this doubt about it and this contact.
    pub(crate) fn go_on(&self, hold: Hold, doubt: Doubt, contact: Contact) -> Result<Acquisition, Error> {
        let bell = Arc::new(Bell::default());
        let watch = self.wait.watch(&bell);
        let mut waiting = Waiting::begin(self, hold, bell, watch.as_ref());
        *waiting.registration.doubt_mut() = doubt;
        waiting.contact = contact;
        waiting.until_acquired()
    }
}

impl<'a> Waiting<'a> {
    fn begin(acquire: &'a Acquire<'a>, hold: Hold, bell: Arc<Bell>, watch: Option<&'a Watch>) -> Self {
        let core = acquire.core;
        let started = core.clock.now();
        let deadline = acquire.wait.deadline(started);
        let waits = deadline > started;
        Self {
            waits,
            line: (waits && !acquire.terms.fair).then(|| core.gate.enter(&hold, acquire.terms, &bell)),
            registration: Registration::new(core.knocks.shared(), hold, acquire.terms, &bell, started),
            acquire,
            bell,
            watch,
            started,
            deadline,
            contact: Contact::default(),
            pauses: Pauses::default(),
            last: None,
            heard: None,
            has_slept: false,
        }
    }

    fn until_acquired(mut self) -> Result<Acquisition, Error> {
        let Acquire { core, wait, .. } = *self.acquire;
        loop {
            if wait.is_cancelled() {
                return self.leave(Error::Cancelled);
            }
            let standing = match &self.line {
                Some(line) => line.standing(),
                None => Standing::First { answered: false },
            };
            let step = match standing {
                Standing::Out(outcome) => return self.taken_out(outcome),
                Standing::Behind => Step::Wait(Moment::NEVER),
                Standing::HeldHere { until } => {
                    let keep_by = self.registration.keep_by();
                    // After a knock, what stood in the way was given back.
                    if self.knocked() || core.clock.now() >= keep_by {
                        self.attempt()?
                    } else {
                        Step::Wait(until.min(keep_by))
                    }
                }
                Standing::First { answered } => {
                    self.contact.begun |= answered;
                    let fresh = self.registration.is_fresh();
                    match self.line.as_ref().and_then(|line| line.inherit(fresh)) {
                        Some(registration) => {
                            self.registration.take_over(registration);
                            Step::Wait(self.registration.next_look())
                        }
                        None => self.attempt()?,
                    }
                }
            };
            let look_by = match step {
                Step::Granted(grant) => return Ok(self.granted(&grant)),
                Step::Repeat => continue,
                Step::Wait(look_by) => look_by,
            };
            let now = core.clock.now();
            if now >= self.deadline {
                let timeout = self.timeout(now);
                return self.leave(timeout);
            }
            self.has_slept = true;
            self.heard = self.bell.wait(&*core.clock, look_by.min(self.deadline));
        }
    }

    /// Whether the key was left to it.
    fn knocked(&self) -> bool {
        self.heard == Some(Ring::Knock)
    }

    /// Makes one attempt, and takes a place at the server if it fails and that is wanted.
    fn attempt(&mut self) -> Result<Step, Error> {
        let Acquire { core, terms, .. } = *self.acquire;
        if self.line.as_ref().is_some_and(|line| !line.speak()) {
            return Ok(Step::Repeat);
        }
        let request = if self.waits && core.store.abilities().knocks {
            self.registration.request(self.contact.begun, self.knocked())
        } else {
            Request::default()
        };
        let (hold, channel) = (self.registration.hold().clone(), self.registration.channel().clone());
        let place = self.registration.place(&request, &channel);
        let ask = Ask {
            hold: &hold,
            lease: terms.first_length(),
            fencing_tokens: core.gate.fencing_tokens(&hold.resource, terms),
            fair: terms.fair,
            place: request.asks.then_some(&place),
            asked_for_place: request.asked_before,
            replicas: terms.replicas,
            interrupt: self.watch.map(Watch::interrupt),
        };
        let sent = core.clock.now();
        let end = self.deadline + core.command_timeout;
        let timeout = core.command_timeout.min(sent.until(end)) + terms.time_for_replicas();
        let answer = core.store.acquire(&ask, timeout);
        let busy = matches!(answer, Ok(Acquired::Busy { .. }));
        self.registration.note_request(&request, busy);
        let step = self.consequence(&ask, sent, answer, request.heard);
        if !core.store.abilities().tokens_last && !matches!(step, Ok(Step::Granted(_))) {
            self.registration.draw_anew();
        }
        if let Some(line) = &self.line
            && !matches!(step, Ok(Step::Granted(_)))
        {
            line.spoken(self.contact.begun);
        }
        step
    }

    /// What follows from the answer to an attempt that was sent at `sent`. `heard` says whether the waiter has a place
    /// now where a knock will reach it.
    fn consequence(
        &mut self,
        ask: &Ask,
        sent: Moment,
        answer: Result<Acquired, Failure>,
        heard: bool,
    ) -> Result<Step, Error> {
        let Acquire { core, wait, .. } = *self.acquire;
        let now = core.clock.now();
        let error = match answer {
            Ok(Acquired::Granted { .. }) if wait.is_cancelled() => {
                self.registration.doubt_mut().add_unused_grant();
                return Ok(Step::Repeat);
            }
            Ok(Acquired::Granted { fencing_token }) if now < valid_until(sent, ask.lease) => {
                return Ok(Step::Granted(Grant {
                    fencing_tokens: fencing_token..fencing_token + u64::from(ask.fencing_tokens),
                    sent,
                    doubt: self.registration.doubt(),
                }));
            }
            Ok(Acquired::Granted { .. }) => {
                self.registration.doubt_mut().add_unused_grant();
                let error = too_late(ask.lease);
                if self.contact.hopelessly_late() {
                    return Err(error);
                }
                error
            }
            Ok(Acquired::Busy { ttl, place }) => {
                self.contact.heard();
                self.registration.note_busy(place, sent.until(now), self.knocked());
                let interval = if heard {
                    self.pauses = Pauses::default();
                    core.poll_interval
                } else {
                    if self.waits && core.store.abilities().knocks {
                        // Without a thread for it, the waiter looks again and again.
                        let _ = core.knocks.start();
                    }
                    self.pauses.next()
                };
                return Ok(Step::Wait(self.registration.look_after(interval, ttl, now)));
            }
            Err(failure @ Failure::NotReplicated { .. }) => {
                self.contact.heard();
                self.registration.doubt_mut().add(sent, ask.lease, &failure);
                return Err(failure.into());
            }
            Err(failure) => {
                if core.store.abilities().tokens_last {
                    self.registration.doubt_mut().add(sent, ask.lease, &failure);
                }
                if wait.is_cancelled() {
                    // That may be why it failed.
                    return Ok(Step::Repeat);
                }
                match self.contact.consequence_of(&failure) {
                    Consequence::AskAgain if now < self.deadline + core.command_timeout => return Ok(Step::Repeat),
                    Consequence::GiveUp => {
                        // It is of no use to those behind either, if it has not answered anybody here.
                        if let Some(line) = &self.line {
                            line.dissolve(&failure);
                        }
                        return Err(failure.into());
                    }
                    Consequence::AskAgain | Consequence::WaitOn => failure.into(),
                }
            }
        };
        if !self.waits {
            return Err(error);
        }
        self.last = Some(error);
        Ok(Step::Wait(self.registration.look_after(self.pauses.next(), None, now)))
    }

    fn granted(&mut self, grant: &Grant) -> Acquisition {
        let Acquire { core, name, terms, .. } = *self.acquire;
        let hold = self.registration.hold().clone();
        let lease = Arc::new(Lease::new(hold, name.clone(), grant, terms, core.clock.clone()));
        self.registration.note_granted(self.knocked(), core.clock.now());
        match &self.line {
            Some(line) => line.granted(&lease),
            None => core.gate.hold(&lease),
        }
        Acquisition {
            fencing_token: lease.fencing_token(),
            lease,
            handed_on: false,
            waited: self.has_slept,
        }
    }

    fn timeout(&mut self, now: Moment) -> Error {
        Error::Timeout {
            name: self.acquire.name.to_vec(),
            waited: self.started.until(now),
            last: self.last.take().map(Box::new),
        }
    }

    /// Ends the wait, unless another thread has just had something for it.
    fn leave(self, error: Error) -> Result<Acquisition, Error> {
        match self.line.as_ref().and_then(InLine::leave) {
            Some(outcome) if !makes(Mistake::LosesAHandOver) => self.taken_out(outcome),
            _ => Err(error),
        }
    }

    /// Draws the consequences of another thread's having taken it out of the line.
    fn taken_out(mut self, outcome: Outcome) -> Result<Acquisition, Error> {
        let HandedOn {
            lease,
            fencing_token,
            was_first,
            place,
        } = match outcome {
            Outcome::HandedOn(handed_on) => handed_on,
            Outcome::Hopeless(failure) => return Err(failure.into()),
        };
        // Others may hold permits too: the next one goes on waiting at the server where this one stood.
        if let Some(line) = &self.line
            && was_first
            && !lease.hold.resource.is_exclusive()
        {
            match (place, self.heard) {
                (_, Some(Ring::Knock)) => self.registration.ring_for_successor(Ring::Knock),
                (PlaceLeft::GivenUp, _) => self.registration.note_withdrawn(),
                (PlaceLeft::Doubtful, _) | (PlaceLeft::Kept, Some(Ring::News)) => {
                    self.registration.ring_for_successor(Ring::News)
                }
                (PlaceLeft::Kept, _) => {}
            }
            line.bequeath(self.registration);
        }
        Ok(Acquisition {
            lease,
            fencing_token,
            handed_on: true,
            waited: true,
        })
    }
}

/// Says that a grant is of no use any more.
pub(crate) fn too_late(lease: Duration) -> Error {
    let why = format!("the grant took longer to arrive than its lease of {lease:?} holds");
    Error::Unconfirmed(because(why))
}

/// What was heard of the server in one acquire, and so what a failure of an attempt means for it.
#[derive(Clone, Default)]
pub(crate) struct Contact {
    /// The server has answered: the wait has begun.
    begun: bool,
    /// The last attempt was the immediate repetition of one that got no answer.
    repeated: bool,
    /// How many grants in a row came too late.
    late: u32,
}

pub(crate) enum Consequence {
    AskAgain,
    WaitOn,
    GiveUp,
}

impl Contact {
    /// Takes in that the server has answered.
    pub(crate) fn heard(&mut self) {
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

    pub(crate) fn consequence_of(&mut self, failure: &Failure) -> Consequence {
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
    fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(0.5 + 0.5 * fastrand::f64());
        self.0 = (self.0 * 3 / 2).min(LONGEST_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{
        clock::{Clock, Moment},
        keys::Keyspace,
        store::{
            Resource,
            fake::{FakeStore, Fault},
        },
    };

    const LEASE: Duration = Duration::from_secs(30);
    const COMMAND: Duration = Duration::from_secs(1);

    fn core(store: &FakeStore) -> Core {
        let keyspace = Keyspace::default();
        Core::new(
            Arc::new(store.clone()),
            store.clock.clone(),
            keyspace,
            COMMAND,
            Duration::from_secs(1),
        )
    }

    fn take(store: &FakeStore, wait: Wait) -> Result<Acquisition, Refused> {
        let core = core(store);
        let acquire = Acquire {
            core: &core,
            resource: &Resource::lock("lock:x"),
            name: &b"x"[..].into(),
            terms: &Terms::new(LEASE, true),
            wait: &wait,
        };
        acquire.run().map_err(|error| Refused {
            error,
            cleans_up: core.keeper.has_work(),
        })
    }

    #[derive(Debug)]
    struct Refused {
        error: Error,
        /// Whether what it may have left behind is going to be cleaned up.
        cleans_up: bool,
    }

    fn elapsed(store: &FakeStore, since: Moment) -> Duration {
        since.until(store.clock.now())
    }

    #[test]
    fn a_free_lock_takes_one_request() {
        let store = FakeStore::new();
        take(&store, Wait::forever()).unwrap();
        assert_eq!(store.seen().len(), 1);
    }

    #[test]
    fn every_wait_lasts_as_long_as_it_says_and_no_longer() {
        for limit in [1.0, 1.5, 10.5, 999.0, 5_000.0].map(|millis| Duration::from_secs_f64(millis / 1000.0)) {
            let store = FakeStore::new();
            store.taken_by_another("lock:x", Duration::from_secs(60));
            let start = store.clock.now();
            let refused = take(&store, Wait::at_most(limit)).err().unwrap();
            assert_eq!(elapsed(&store, start), limit);
            assert!(matches!(refused.error, Error::Timeout { waited, last: None, .. } if waited == limit));
        }
    }

    #[test]
    fn a_wait_of_nothing_tries_once() {
        for wait in [Wait::none(), Wait::at_most(Duration::ZERO), Wait::until(Instant::now())] {
            let store = FakeStore::new();
            store.taken_by_another("lock:x", LEASE);
            let refused = take(&store, wait).err().unwrap();
            assert!(matches!(refused.error, Error::Timeout { .. }));
            assert_eq!(store.seen().len(), 1);
        }
    }

    #[test]
    fn a_huge_wait_means_for_ever_and_ends_with_the_holders_lease() {
        let store = FakeStore::new();
        store.taken_by_another("lock:x", LEASE);
        let start = store.clock.now();
        take(&store, Wait::at_most(Duration::MAX)).unwrap();
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
        let grant = take(&store, Wait::forever()).unwrap();
        assert!(grant.lease.remaining() > LEASE / 2);
    }

    #[test]
    fn an_attempt_whose_reply_is_lost_is_made_again_with_the_same_token() {
        for fault in [Fault::CutAfter, Fault::CutBefore] {
            for wait in [Wait::none(), Wait::forever()] {
                let store = FakeStore::new();
                store.then([fault]);
                let grant = take(&store, wait).unwrap();
                let seen = store.seen();
                assert_eq!(seen.len(), 2);
                assert_eq!(seen[0].token, seen[1].token);
                assert!(grant.lease.doubt.may_still_run(store.clock.now()));
            }
        }
    }

    #[test]
    fn a_try_whose_reply_is_swallowed_ends_within_one_command_timeout() {
        let store = FakeStore::new();
        store.then([Fault::SwallowReply]);
        let start = store.clock.now();
        let refused = take(&store, Wait::none()).err().unwrap();
        assert_eq!(elapsed(&store, start), COMMAND);
        assert!(matches!(refused.error, Error::Unconfirmed(_)));
        assert!(refused.cleans_up);
    }

    #[test]
    fn a_wait_is_late_by_one_command_timeout_at_most() {
        let store = FakeStore::new();
        store.taken_by_another("lock:x", LEASE);
        store.then([Fault::Slow(Duration::ZERO)]);
        store.then([Fault::SwallowReply; 20]);
        let (start, limit) = (store.clock.now(), Duration::from_millis(2_500));
        let refused = take(&store, Wait::at_most(limit)).err().unwrap();
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
            let refused = take(&store, wait).err().unwrap();
            assert!(matches!(refused.error, Error::Connection(_)));
            assert!(!refused.cleans_up);
            assert_eq!(elapsed(&store, start), Duration::ZERO);
        }
    }

    #[test]
    fn a_server_that_dies_under_the_first_request_is_told_at_once() {
        let store = FakeStore::new();
        store.then([Fault::CutAfter, Fault::Unreachable]);
        let refused = take(&store, Wait::forever()).err().unwrap();
        assert!(matches!(refused.error, Error::Connection(_)));
        assert!(refused.cleans_up);
    }

    #[test]
    fn a_server_that_hangs_up_every_time_is_told_at_once() {
        let store = FakeStore::new();
        store.then([Fault::CutBefore; 2]);
        let refused = take(&store, Wait::forever()).err().unwrap();
        assert!(matches!(refused.error, Error::Unconfirmed(_)));
        assert!(refused.cleans_up);
        assert_eq!(store.seen().len(), 2);
    }

    #[test]
    fn a_server_that_is_silent_at_first_is_waited_for() {
        let store = FakeStore::new();
        store.then([Fault::SwallowReply; 5]);
        take(&store, Wait::forever()).unwrap();
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
        take(&store, Wait::at_most(Duration::from_secs(10))).unwrap();
    }

    #[test]
    fn a_refusal_that_stays_ends_the_wait() {
        let store = FakeStore::new();
        store.taken_by_another("lock:x", LEASE);
        store.then([Fault::Slow(Duration::ZERO), Fault::NotPermitted]);
        let refused = take(&store, Wait::forever()).err().unwrap();
        assert!(matches!(refused.error, Error::Server(_)));
    }

    #[test]
    fn a_grant_that_arrives_after_its_lease_is_none() {
        let store = FakeStore::new();
        store.then([Fault::Slow(LEASE)]);
        let refused = take(&store, Wait::none()).err().unwrap();
        assert!(matches!(refused.error, Error::Unconfirmed(_)));
        assert!(refused.cleans_up);

        store.then([Fault::Slow(LEASE); 2]);
        let grant = take(&store, Wait::forever()).unwrap();
        assert!(grant.lease.check().is_ok());
    }

    #[test]
    fn a_way_longer_than_the_lease_ends_the_acquire_instead_of_holding_the_key_for_ever() {
        let store = FakeStore::new();
        store.then([Fault::Slow(LEASE); 100]);
        let refused = take(&store, Wait::forever()).err().unwrap();
        assert!(matches!(refused.error, Error::Unconfirmed(_)));
        assert!(refused.cleans_up);
        assert_eq!(store.seen().len(), 3);
    }

    #[test]
    fn pauses_grow_to_their_limit_and_differ() {
        let mut pauses = Pauses::default();
        let taken: Vec<_> = (0..50).map(|_| pauses.next()).collect();
        assert!(taken[0] <= FIRST_PAUSE);
        assert!(
            taken[20..]
                .iter()
                .all(|pause| *pause >= LONGEST_PAUSE / 2 && *pause <= LONGEST_PAUSE)
        );
        assert!(taken[20..].iter().any(|pause| *pause != taken[20]));
    }
}

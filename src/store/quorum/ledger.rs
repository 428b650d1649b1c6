//! What is still to be done at single servers: locks to be put where they are missing, and leftovers to be taken away.
//! Pure bookkeeping: no I/O, time is a value.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
    time::Duration,
};

use super::members::Nodes;
use crate::{
    clock::Moment,
    lease::{Cleanup, Doubt},
    store::{
        Failure, Found, Hold, Token,
        redis::parts::{Call, Scripts},
    },
};

/// The pauses between attempts to put a lock where it is missing: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

const SWEEP_ABOVE: usize = 64;

/// How many jobs one server is given at once.
const BATCH: usize = 64;

/// A lock that a majority has granted to this client.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) hold: Hold,
    pub(super) fencing_token: u64,
    /// When it ends at the servers.
    pub(super) until: Moment,
    /// When the last of it ends at single servers: later than that after an extension that no majority confirmed.
    pub(super) gone_at: Moment,
    /// The servers that do not have it, for all that is known.
    pub(super) missing: Nodes,
    /// Those at which an attempt to get it may still run, and until when nobody is surprised by that.
    pub(super) doubtful: Nodes,
    pub(super) doubt: Doubt,
    /// When to try again to fill in what is missing.
    due: Moment,
    pause: Duration,
}

impl Held {
    pub(super) fn new(hold: &Hold, fencing_token: u64, until: Moment, missing: Nodes, now: Moment) -> Self {
        Self {
            hold: hold.clone(),
            fencing_token,
            until,
            gone_at: until,
            missing,
            doubtful: Nodes::default(),
            doubt: Doubt::default(),
            due: now,
            pause: FIRST_PAUSE,
        }
    }

    /// Where of so many servers something of it may stand.
    pub(super) fn may_be_at(&self, servers: usize) -> Nodes {
        (Nodes::all(servers) - self.missing) | self.doubtful
    }

    /// Tries again to fill in what is missing only after a pause, and a longer one each time.
    fn pause(&mut self, now: Moment) {
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Something to do at one server.
#[derive(Clone)]
pub(super) enum Job {
    /// Put the lock there for the rest of its lease.
    FillIn(Hold, u64, Duration),
    /// Take away what a token may have left.
    TakeAway(Hold),
}

impl Job {
    pub(super) fn call<'a>(&self, scripts: &'a Scripts) -> Call<'a> {
        match self {
            Self::FillIn(hold, fencing_token, rest) => scripts.filling_in(hold, *fencing_token, *rest),
            Self::TakeAway(hold) => scripts.evicting(hold),
        }
    }
}

/// What one server is to be rid of.
struct Leftover {
    cleanup: Cleanup,
    due: Moment,
}

pub(super) struct Ledger {
    held: HashMap<Token, Held>,
    /// How many of them there may be before those that have ended are looked for.
    sweep_above: usize,
    /// Those that are missing somewhere.
    incomplete: HashSet<Token>,
    /// By server.
    leftovers: Vec<HashMap<Token, Leftover>>,
    /// The servers at which something new is to be done, since that was asked last.
    news: Nodes,
}

impl Ledger {
    pub(super) fn new(servers: usize) -> Self {
        Self {
            held: HashMap::new(),
            sweep_above: SWEEP_ABOVE,
            incomplete: HashSet::new(),
            leftovers: (0..servers).map(|_| HashMap::new()).collect(),
            news: Nodes::default(),
        }
    }

    /// Takes in that a lock was granted.
    pub(super) fn granted(&mut self, held: Held, now: Moment) {
        if self.held.len() >= self.sweep_above {
            // Those of guards that nobody dropped.
            self.held.retain(|_, held| now < held.until);
            self.sweep_above = SWEEP_ABOVE.max(2 * self.held.len());
        }
        let token = held.hold.token.clone();
        self.news = self.news | held.missing;
        if !held.missing.is_empty() {
            self.incomplete.insert(token.clone());
        }
        self.held.insert(token, held);
    }

    /// Takes in that a majority has renewed it, unless it was released meanwhile.
    /// At `ours` it was found, at `gone` it was not.
    pub(super) fn renewed(&mut self, hold: &Hold, until: Moment, ours: Nodes, gone: Nodes, now: Moment) {
        let Some(held) = self.held.get_mut(&hold.token) else {
            return;
        };
        held.until = held.until.max(until);
        held.gone_at = held.gone_at.max(until);
        held.missing = (held.missing - ours) | gone;
        (held.due, held.pause) = (now, FIRST_PAUSE);
        self.news = self.news | held.missing;
        if held.missing.is_empty() {
            self.incomplete.remove(&hold.token);
        } else {
            self.incomplete.insert(hold.token.clone());
        }
    }

    /// Takes in that single servers may have prolonged it until `until`, and that it is not known whether a majority
    /// has.
    pub(super) fn may_last(&mut self, hold: &Hold, until: Moment) {
        if let Some(held) = self.held.get_mut(&hold.token) {
            held.gone_at = held.gone_at.max(until);
        }
    }

    pub(super) fn is_held(&self, hold: &Hold) -> bool {
        self.held.contains_key(&hold.token)
    }

    /// Takes in that it is held no longer. Nothing is filled in after that.
    pub(super) fn ended(&mut self, hold: &Hold) -> Option<Held> {
        self.incomplete.remove(&hold.token);
        self.held.remove(&hold.token)
    }

    /// Has what the token may have left at `nodes` taken away. A lease of `length` was asked for with it.
    pub(super) fn leave(&mut self, nodes: Nodes, hold: &Hold, doubt: Doubt, length: Duration, now: Moment) {
        self.news = self.news | nodes;
        for at in nodes.iter() {
            let mut cleanup = Cleanup::new(hold.clone(), doubt, length, now);
            if let Some(known) = self.leftovers[at].get(&hold.token) {
                cleanup = cleanup.and(&known.cleanup);
            }
            self.leftovers[at].insert(hold.token.clone(), Leftover { cleanup, due: now });
        }
    }

    /// Forgets the incomplete ones that have ended by themselves.
    fn forget_the_ended(&mut self, now: Moment) {
        let Self { held, incomplete, .. } = self;
        incomplete.retain(|token| {
            let stands = held.get(token).is_some_and(|held| now < held.until);
            if !stands {
                held.remove(token);
            }
            stands
        });
    }

    /// What is to be done now at the server `at`.
    pub(super) fn jobs(&mut self, at: usize, now: Moment) -> Vec<Job> {
        self.forget_the_ended(now);
        let leftovers = self.leftovers[at].values().filter(|leftover| leftover.due <= now);
        let incomplete = self.incomplete.iter().map(|token| &self.held[token]);
        let missing = incomplete.filter(|held| held.missing.contains(at) && held.due <= now);
        leftovers
            .map(|leftover| Job::TakeAway(leftover.cleanup.hold().clone()))
            .chain(missing.map(|held| Job::FillIn(held.hold.clone(), held.fencing_token, now.until(held.until))))
            .take(BATCH)
            .collect()
    }

    /// When there is something to do at the server `at`.
    pub(super) fn next_due(&self, at: usize) -> Option<Moment> {
        let leftovers = self.leftovers[at].values().map(|leftover| leftover.due);
        let incomplete = self.incomplete.iter().map(|token| &self.held[token]);
        let missing = incomplete.filter(|held| held.missing.contains(at)).map(|held| held.due);
        leftovers.chain(missing).min()
    }

    /// At which servers there is something new to do at once.
    pub(super) fn take_news(&mut self) -> Nodes {
        mem::take(&mut self.news)
    }

    /// Whether there is anything to do, now or later.
    #[cfg(test)]
    pub(super) fn has_work(&self) -> bool {
        !self.incomplete.is_empty() || self.leftovers.iter().any(|leftovers| !leftovers.is_empty())
    }

    /// Takes in that no majority is known to have the lock now: it is filled in nowhere until that is looked at again,
    /// or for good if none can have it.
    pub(super) fn put_off(&mut self, hold: &Hold, for_good: bool, now: Moment) {
        let Some(held) = self.held.get_mut(&hold.token) else {
            return;
        };
        held.pause(now);
        if for_good {
            self.incomplete.remove(&hold.token);
        }
    }

    /// All that is to be taken away at the server `at`, whenever it is due.
    pub(super) fn all_leftovers(&self, at: usize) -> Vec<Job> {
        let leftovers = self.leftovers[at].values();
        leftovers
            .map(|leftover| Job::TakeAway(leftover.cleanup.hold().clone()))
            .collect()
    }

    /// Takes in what came of a job at the server `at`.
    pub(super) fn done(&mut self, at: usize, job: &Job, answer: &Result<Found, Failure>, now: Moment) {
        match job {
            Job::FillIn(hold, _, rest) => self.filled_in(at, hold, *rest, answer, now),
            Job::TakeAway(hold) => {
                if let Entry::Occupied(mut entry) = self.leftovers[at].entry(hold.token.clone()) {
                    match entry.get().cleanup.clone().next(answer.is_ok(), now) {
                        Some((cleanup, due)) => *entry.get_mut() = Leftover { cleanup, due },
                        None => drop(entry.remove()),
                    }
                }
            }
        }
    }

    fn filled_in(&mut self, at: usize, hold: &Hold, rest: Duration, answer: &Result<Found, Failure>, now: Moment) {
        let Some(held) = self.held.get_mut(&hold.token) else {
            // It was released, or lost, meanwhile: what was put there stands in the way of others.
            let may_stand = match answer {
                Ok(found) => *found == Found::Ours,
                Err(failure) => failure.may_have_run(),
            };
            if may_stand {
                let mut doubt = Doubt::default();
                if let Err(failure) = answer {
                    doubt.add(now, rest, failure);
                }
                self.leave(Nodes::only(at), hold, doubt, rest, now);
            }
            return;
        };
        if matches!(answer, Ok(Found::Ours)) {
            held.missing.remove(at);
            if held.missing.is_empty() {
                self.incomplete.remove(&hold.token);
            }
        }
        if let Err(failure) = answer {
            // It may still run, even after the release.
            if failure.is_unanswered() {
                held.doubtful.insert(at);
                held.doubt.add(now, rest, failure);
            }
        }
        held.pause(now);
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

    struct Book {
        ledger: Ledger,
        clock: ManualClock,
        hold: Hold,
    }

    impl Book {
        /// One in which a lock was granted that three of five servers have.
        fn with_a_lock() -> Self {
            let mut book = Self {
                ledger: Ledger::new(5),
                clock: ManualClock::default(),
                hold: Hold::new(Resource::lock("lock:x")),
            };
            let now = book.clock.now();
            let missing = [3, 4].into_iter().collect();
            book.ledger
                .granted(Held::new(&book.hold, 7, now + LEASE, missing, now), now);
            book
        }

        fn jobs(&mut self, at: usize) -> Vec<Job> {
            self.ledger.jobs(at, self.clock.now())
        }

        fn done(&mut self, at: usize, job: &Job, answer: Result<Found, Failure>) {
            self.ledger.done(at, job, &answer, self.clock.now());
        }
    }

    fn silent() -> Failure {
        Failure::Silent(because("no answer in time"))
    }

    #[test]
    fn what_is_missing_is_filled_in_once_for_the_rest_of_the_lease() {
        let mut book = Book::with_a_lock();
        assert!(book.jobs(0).is_empty());
        book.clock.advance(Duration::from_secs(4));
        let jobs = book.jobs(3);
        let [job @ Job::FillIn(_, 7, rest)] = &jobs[..] else {
            panic!("one is missing");
        };
        assert_eq!(*rest, LEASE - Duration::from_secs(4));
        book.done(3, job, Ok(Found::Ours));
        book.clock.advance(LONGEST_PAUSE);
        assert!(book.jobs(3).is_empty());
        assert_eq!(book.jobs(4).len(), 1);
        book.clock.advance(LEASE);
        assert!(book.jobs(4).is_empty() && !book.ledger.has_work());
    }

    #[test]
    fn nothing_is_filled_in_after_the_release_and_what_raced_with_it_is_taken_away() {
        for answer in [Ok(Found::Ours), Err(silent())] {
            let mut book = Book::with_a_lock();
            let job = book.jobs(3).remove(0);
            assert!(book.ledger.ended(&book.hold).is_some());
            assert!(book.jobs(3).is_empty() && book.jobs(4).is_empty());
            book.done(3, &job, answer.clone());
            let jobs = book.jobs(3);
            assert!(matches!(&jobs[..], [Job::TakeAway(hold)] if *hold == book.hold));
            book.done(3, &jobs[0], Ok(Found::Ours));
            // One that may still run is looked after until then.
            assert_eq!(book.ledger.has_work(), answer.is_err());
        }
    }

    #[test]
    fn a_renewal_tells_what_is_missing_and_none_brings_back_what_was_released() {
        let mut book = Book::with_a_lock();
        let now = book.clock.now();
        let (ours, gone) = ([0, 1, 3].into_iter().collect(), Nodes::only(2));
        book.ledger.renewed(&book.hold, now + LEASE * 2, ours, gone, now);
        assert_eq!((book.jobs(2).len(), book.jobs(3).len(), book.jobs(4).len()), (1, 0, 1));
        book.ledger.ended(&book.hold);
        book.ledger.renewed(&book.hold, now + LEASE * 3, ours, gone, now);
        assert!(!book.ledger.has_work());
    }

    #[test]
    fn a_leftover_is_taken_away_where_it_is_until_that_is_confirmed() {
        let mut book = Book::with_a_lock();
        book.ledger.ended(&book.hold);
        let hold = book.hold.clone();
        book.ledger
            .leave(Nodes::only(1), &hold, Doubt::default(), LEASE, book.clock.now());
        let job = book.jobs(1).remove(0);
        book.done(1, &job, Err(silent()));
        assert!(book.jobs(1).is_empty());
        book.clock.advance(LONGEST_PAUSE);
        assert_eq!(book.jobs(1).len(), 1);
        book.done(1, &job, Ok(Found::Nothing));
        assert!(!book.ledger.has_work());
    }

    #[test]
    fn a_second_reason_to_take_something_away_does_not_make_the_first_forgotten() {
        let mut book = Book::with_a_lock();
        book.ledger.ended(&book.hold);
        let (hold, now) = (book.hold.clone(), book.clock.now());
        // An attempt may still run there.
        let mut doubt = Doubt::default();
        doubt.add(now, LEASE, &silent());
        book.ledger.leave(Nodes::only(1), &hold, doubt, LEASE, now);
        // A repeated release is not answered either.
        book.ledger
            .leave(Nodes::only(1), &hold, Doubt::default(), LEASE / 2, now);
        let job = book.jobs(1).remove(0);
        book.done(1, &job, Ok(Found::Nothing));
        assert!(book.ledger.has_work(), "it may yet come to it");
        book.clock.advance(LEASE);
        let job = book.jobs(1).remove(0);
        book.done(1, &job, Ok(Found::Ours));
        assert!(!book.ledger.has_work());
    }

    #[test]
    fn locks_of_guards_that_nobody_dropped_are_forgotten() {
        let (mut ledger, clock) = (Ledger::new(3), ManualClock::default());
        for _ in 0..10_000 {
            let hold = Hold::new(Resource::lock("lock:x"));
            let now = clock.now();
            ledger.granted(Held::new(&hold, 7, now + LEASE, Nodes::default(), now), now);
            clock.advance(LEASE);
        }
        assert!(ledger.held.len() <= 2 * SWEEP_ABOVE, "{}", ledger.held.len());
    }
}

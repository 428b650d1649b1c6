//! The guard: a hold, from its grant to its release.

pub(crate) mod several;

use std::{
    fmt, iter,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::{
    Error, Lost, LostReason, Wait,
    client::Core,
    clock::Moment,
    fork::ProcessBound,
    lease::{Grant, Lease, Report, Terms, check_length, forget},
    mistakes::{Mistake, makes},
    store::{Failure, Found, Limit, Resource, Sequel, Spent, Turn, Wishes, because},
    sync::atomic::{AtomicBool, Ordering},
    waiting::{Acquire, Acquisition, Heir, Pass},
};

/// Proof that this program holds a lock, or permits of a semaphore: released when dropped.
///
/// Where this page says lock, the permits of a semaphore's guard are meant as well.
///
/// It owns what it needs and is tied to no thread: it may be moved, shared, and dropped anywhere, in any order with its
/// lock and client. Nothing in it does I/O but [`extend`](Self::extend), [`release`](Self::release) and the drop.
///
/// Keep it in a variable with a name: `let _guard = lock.acquire()?;` holds the lock to the end of the block, while
/// `let _ = lock.acquire()?;` and a bare `lock.try_acquire()?;` release it at once, and `if
/// lock.try_acquire()?.is_some()` has released it before the block begins: write `if let Some(_guard) =
/// lock.try_acquire()?`.
///
/// In a forked child a guard is inert: it is not held there, calls return [`Error::Forked`] and dropping it does
/// nothing.
#[must_use = "the lock is released when the guard is dropped: keep it in a variable with a name, as in `let _guard = …`; \
              `let _ = …` would release it at once"]
pub struct Guard {
    holds: ProcessBound<Holds>,
    /// Set by the first that releases it, which leaves the others nothing to do.
    released: AtomicBool,
}

/// How many command timeouts a release may take.
const RELEASE_TIMEOUTS: u32 = 2;

/// What a guard owns: one hold, or those of several locks.
struct Holds {
    first: Held,
    others: Box<[Held]>,
}

/// One hold.
pub(crate) struct Held {
    core: Arc<Core>,
    lease: Arc<Lease>,
    fencing_token: u64,
    report: Option<Report>,
}

impl Guard {
    /// Acquires `resource`, which is that of `name`, waiting as `wait` says.
    pub(crate) fn acquire(
        core: &Arc<Core>,
        name: &Arc<[u8]>,
        resource: Resource,
        terms: &Terms,
        wait: &Wait,
    ) -> Result<Self, Error> {
        core.keeper.start(terms)?;
        let acquire = Acquire {
            core,
            resource: &resource,
            name,
            terms,
            wait,
        };
        let Acquisition {
            lease,
            fencing_token,
            handed_on,
            ..
        } = acquire.run()?;
        if !handed_on {
            core.keeper.keep(&lease);
        }
        let guard = Self::of(
            Held {
                core: core.clone(),
                report: core.keeper.watch(&lease),
                lease,
                fencing_token,
            },
            Box::default(),
        );
        if handed_on && wait.is_cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(guard)
    }

    /// What an acquire that did not wait came to: `None` if somebody else has it.
    pub(crate) fn if_free(acquired: Result<Self, Error>) -> Result<Option<Self>, Error> {
        match acquired {
            Ok(guard) => Ok(Some(guard)),
            // An attempt that does not wait has no other timeout than this: it found nothing free.
            Err(Error::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn of(first: Held, others: Box<[Held]>) -> Self {
        Self {
            holds: ProcessBound::new(Holds { first, others }),
            released: AtomicBool::new(false),
        }
    }

    fn first(&self) -> &Held {
        &self.holds.in_any_process().first
    }

    /// Runs `work` under the guard and releases it.
    pub(crate) fn run<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let value = work(&self);
        match self.release() {
            Ok(()) | Err(Error::Unconfirmed(_)) => Ok(value),
            Err(error) => Err(error),
        }
    }

    /// Returns the name of the lock or semaphore, as it was given to the client: of several locks, the first one.
    pub fn name(&self) -> &[u8] {
        &self.first().lease.name
    }

    /// Returns the names of all locks that it stands for, in the order in which they were taken: that of
    /// [`MultiLock::names`](crate::MultiLock::names). One name for any other lock or a semaphore.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.holds.in_any_process().all().map(|held| &*held.lease.name)
    }

    /// Returns the grant's fencing token: larger than that of every earlier grant of this name.
    ///
    /// Send it along with each write, and let the resource refuse a token smaller than the largest that it has
    /// seen; then a holder that does not know yet that it lost the lock can do no harm. See Martin Kleppmann, "How to
    /// do distributed locking" (2016).
    ///
    /// The tokens of a semaphore are unique and ordered by grant too. They tell its holders apart, but keep none of
    /// them off: several hold permits at once by rights.
    ///
    /// Each of [several locks](crate::MultiLock) has its own, and this is the first one's: send each resource the token
    /// of the lock that protects it, from [`fencing_tokens`](Self::fencing_tokens).
    pub fn fencing_token(&self) -> u64 {
        self.first().fencing_token
    }

    /// Returns the fencing tokens of all locks that it stands for, in the order of [`names`](Self::names).
    pub fn fencing_tokens(&self) -> Vec<u64> {
        self.holds
            .in_any_process()
            .all()
            .map(|held| held.fencing_token)
            .collect()
    }

    /// Returns the random token that stands for the grant at the key on the server: of several locks, at the first
    /// one's. A guard to which the lock was [handed on](crate::Lock::handoffs) within its client has that of the one
    /// before.
    pub fn token(&self) -> &str {
        self.first().lease.hold.token.as_str()
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn permits(&self) -> u32 {
        self.first().lease.hold.resource.permits()
    }

    /// Tells whether the lock is certainly still held: of several, all of them. No I/O.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns how long the lock is certainly held from now on if nothing renews it; zero once it is lost. Of several,
    /// how long all of them are. No I/O.
    ///
    /// Counted on the machine's boot-time clock from before the granted request was sent, less 1 % of the lease and
    /// 2 ms for clocks that run apart. The server frees the lock only after that.
    pub fn remaining(&self) -> Duration {
        let Ok(holds) = self.holds.get() else {
            return Duration::ZERO;
        };
        let others = holds.others.iter().map(|held| held.lease.remaining());
        others.fold(holds.first.lease.remaining(), Duration::min)
    }

    /// Does nothing if the lock, or all of several, is still held: the line to put before each write. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the reason once it is not; [`Error::Forked`] in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.holds.get()?.all().try_for_each(|held| held.lease.check())?)
    }

    /// Blocks until the lock, or one of several, is lost, for at most `limit`; tells whether it was lost. No I/O.
    pub fn wait_lost(&self, limit: Duration) -> bool {
        match self.holds.get() {
            Ok(Holds { first, others }) if others.is_empty() => first.lease.wait_lost(first.fencing_token, limit),
            Ok(holds) => several::wait_lost(&holds.to_vec(), limit),
            Err(_) => true,
        }
    }

    /// Makes the lease end `lease` from now, unless it lasts longer already. One round trip, also for several locks on
    /// one server; at most one command timeout.
    ///
    /// A lock that is renewed goes on being renewed; that does not shorten what was extended.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if the lock is no longer held.
    /// - [`Error::InvalidArgument`] for a duration outside 10 ms to 10 years, or beyond the lock's
    ///   [`max_hold`](crate::Lock::max_hold): nothing was sent.
    /// - [`Error::Unconfirmed`], [`Error::Connection`] or [`Error::Server`] if the server did not confirm it,
    ///   [`Error::NotReplicated`] if too few [replicas](crate::Lock::replicas) did, [`Error::NoQuorum`] if too few
    ///   servers of a Redlock did. The lease holds as long as it did before.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        let holds = self.holds.get()?;
        check_length(lease)?;
        holds.all().try_for_each(|held| held.admit_extension(lease))?;
        match &*holds.others {
            [] => holds.first.extend(lease),
            _ => several::extend(&holds.to_vec(), lease),
        }
    }

    /// Releases the lock and reports how that went: of several locks, all of them, in one round trip if they are on one
    /// server. At most two command timeouts; what the server did not confirm by then is completed in the background.
    ///
    /// If the guard is the last handle of its client, the client goes with it: up to one command timeout more.
    ///
    /// # Errors
    ///
    /// The worst that befell any of several locks:
    ///
    /// - [`Error::Lost`] if the lease had been lost before.
    /// - [`Error::Unconfirmed`] if the lock was held until now, but the server did not confirm the release: the lock
    ///   may stay taken until the background work gets through, or its lease ends.
    pub fn release(self) -> Result<(), Error> {
        self.release_once().unwrap_or(Ok(()))
    }

    /// Releases the lock as [`release`](Self::release) does, through any of several references; `None` if that was done
    /// before.
    pub(crate) fn release_once(&self) -> Option<Result<(), Error>> {
        self.end(RELEASE_TIMEOUTS)
    }

    /// Tells whether it was released.
    #[cfg(feature = "capi")]
    pub(crate) fn is_released(&self) -> Result<bool, Error> {
        self.holds.get()?;
        Ok(self.released.load(Ordering::SeqCst))
    }

    fn end(&self, command_timeouts: u32) -> Option<Result<(), Error>> {
        let holds = match self.holds.get() {
            Ok(holds) => holds,
            Err(error) => return Some(Err(error)),
        };
        let Holds { first, others } = holds;
        let budget = first.core.command_timeout * command_timeouts;
        (!self.released.swap(true, Ordering::SeqCst)).then(|| match &**others {
            [] => first.release(budget),
            _ => {
                let (timeout, interrupt) = (budget, None);
                several::release(&holds.to_vec(), &Limit { timeout, interrupt })
            }
        })
    }
}

impl Drop for Guard {
    /// Releases the lock, best effort: for at most one command timeout, then in the background. If the guard is the
    /// last handle of its client, the client goes with it: up to one command timeout more.
    fn drop(&mut self) {
        // Whom it concerns learns of a loss by the callback; there is nobody here to tell.
        let _ = self.end(1);
    }
}

impl Holds {
    fn all(&self) -> impl Iterator<Item = &Held> {
        iter::once(&self.first).chain(&self.others)
    }

    fn to_vec(&self) -> Vec<&Held> {
        self.all().collect()
    }
}

impl Held {
    /// Refuses an extension that cannot be asked for.
    fn admit_extension(&self, length: Duration) -> Result<(), Error> {
        self.lease.check()?;
        if length > self.lease.longest() {
            return Err(Error::invalid(format!(
                "an extension by {length:?} would outlast the longest hold of the lock"
            )));
        }
        let wishes = Wishes {
            lease: length,
            ..Wishes::default()
        };
        self.core.store.admit(&self.lease.hold.resource, &wishes)
    }

    fn extend(&self, length: Duration) -> Result<(), Error> {
        let lease = &self.lease;
        if !lease.will_ask(self.fencing_token, length) {
            // Released meanwhile, by way of another reference: it is the next holder's now.
            return Ok(());
        }
        let mut sent = self.core.clock.now();
        let answer = self.core.ask(self.core.command_timeout, |timeout, _| {
            sent = self.core.clock.now();
            let timeout = timeout + lease.terms.time_for_replicas();
            self.core
                .store
                .renew(&lease.hold, length, lease.terms.replicas, timeout)
        });
        self.extended(answer?, sent, length);
        Ok(lease.check()?)
    }

    /// Takes in the answer to an extension that was sent at `sent`.
    fn extended(&self, found: Found, sent: Moment, length: Duration) {
        match LostReason::from_found(found) {
            None => self.lease.prolong(sent, length),
            Some(reason) => self.lease.lose(reason),
        }
        self.core.keeper.report(&self.lease);
    }

    /// Ends the grant within `budget`: hands the lease on to a thread of this process that waits, or gives it back.
    fn release(&self, budget: Duration) -> Result<(), Error> {
        match self.core.gate.pass(&self.lease) {
            Pass::On(callback) if !makes(Mistake::ReleasesWhatItHandedOn) => {
                self.core.keeper.unwatch(self.report.as_ref());
                forget(callback);
                Ok(())
            }
            Pass::Ask(heir) => self.give_back(budget, Some(&heir)),
            Pass::No | Pass::On(_) => self.give_back(budget, None),
        }
    }

    /// Ends the lease: at the server first, then for those who wait here. With an `heir` the server may let this
    /// process keep it for another lease if nobody else waits, or if it insists.
    fn give_back(&self, budget: Duration, heir: Option<&Heir>) -> Result<(), Error> {
        let Self { core, lease, .. } = self;
        if makes(Mistake::WakesBeforeTheRelease) {
            core.gate.leave(lease);
        }
        let held_so_far = self.finish();
        let outcome = if is_gone(&held_so_far) {
            self.clean_up_after_loss();
            Ok(())
        } else {
            self.ask_to_release(budget, heir.filter(|_| held_so_far.is_ok()))
        };
        self.leave();
        held_so_far?;
        outcome
    }

    /// Ends the lease here: nothing is renewed from now on. `Ok` if it was held until now.
    fn finish(&self) -> Result<(), Lost> {
        let held_so_far = self.lease.finish();
        self.core.keeper.let_go(&self.lease);
        self.core.keeper.unwatch(self.report.as_ref());
        held_so_far
    }

    /// Lets those go on who wait here, once the server has answered, and tells of a loss that it told of.
    fn leave(&self) {
        self.core.gate.leave(&self.lease);
        self.core.keeper.report(&self.lease);
        self.lease.forget_callback();
    }

    fn ask_to_release(&self, budget: Duration, heir: Option<&Heir>) -> Result<(), Error> {
        let Self { core, lease, .. } = self;
        let end = core.clock.now() + budget;
        let spent = self.spent();
        // One more than are needed: the lease that follows takes one for itself.
        let fencing_tokens = core.gate.fencing_tokens(&lease.hold.resource, &lease.terms) + 1;
        let (mut sent, mut asked_again) = (core.clock.now(), false);
        let answer = core.ask(budget, |timeout, repeated| {
            (sent, asked_again) = (core.clock.now(), repeated);
            // What was not answered may have kept the key or not: now it has to go.
            match heir {
                Some(heir) if !repeated => {
                    let sequel = Sequel {
                        lease: lease.terms.length,
                        fencing_tokens,
                        heir: &heir.token,
                        heir_leaves: heir.leaves_place,
                        insists: heir.insists,
                    };
                    core.store.turn(&spent, &sequel, timeout)
                }
                _ => core.store.release(&spent, repeated, timeout).map(Turn::Left),
            }
        });
        if let (Ok(Turn::Kept { fencing_token }), Some(heir)) = (&answer, heir) {
            let grant = Grant {
                fencing_tokens: *fencing_token..fencing_token + u64::from(fencing_tokens),
                sent,
                doubt: lease.doubt,
            };
            return self.follow_on(&grant, heir, end);
        }
        if heir.is_some() && (asked_again || answer.is_err()) {
            // Its place may have been given up all the same.
            core.gate.wake_first(&lease.hold.resource);
        }
        self.clean_up_after(lease, answer.is_err());
        self.outcome(answer.map(|turn| match turn {
            Turn::Left(found) => found,
            Turn::Kept { .. } => Found::Ours,
        }))
    }

    fn spent(&self) -> Spent<'_> {
        Spent {
            hold: &self.lease.hold,
            fencing_token: self.fencing_token,
        }
    }

    /// Takes away what the release of `lease` may have left behind, in the background.
    fn clean_up_after(&self, lease: &Lease, unanswered: bool) {
        let core = &self.core;
        if unanswered || lease.doubt.may_still_run(core.clock.now()) {
            core.keeper
                .sweeper()
                .clean_up(&lease.hold, lease.doubt, lease.longest_asked());
        }
    }

    /// Takes away, in the background, what an attempt that got no answer may have put there once the key was found
    /// gone.
    fn clean_up_after_loss(&self) {
        self.clean_up_after(&self.lease, self.lease.doubt.is_of_silence());
    }

    /// Hands on the lease that follows on this one; if those who waited here have gone meanwhile, gives it back by
    /// `end`.
    fn follow_on(&self, grant: &Grant, heir: &Heir, end: Moment) -> Result<(), Error> {
        let core = &self.core;
        let next = Arc::new(self.lease.followed_by(grant, heir.insists));
        core.keeper.keep(&next);
        if let Pass::On(_) = core.gate.replace(&self.lease, &next, heir) {
            return Ok(());
        }
        // Whether it was lost by now is nobody's business.
        let _ = next.finish();
        core.keeper.let_go(&next);
        let spent = Spent {
            hold: &next.hold,
            fencing_token: next.fencing_token(),
        };
        let answer = core.ask(core.clock.now().until(end), |timeout, repeated| {
            core.store.release(&spent, repeated, timeout)
        });
        self.clean_up_after(&next, answer.is_err());
        core.gate.leave(&next);
        core.gate.wake_first(&next.hold.resource);
        self.outcome(answer.map(|_| Found::Ours))
    }

    /// What the answer to a release means for a lease that was held until then.
    fn outcome(&self, answer: Result<Found, Failure>) -> Result<(), Error> {
        let Self { core, lease, .. } = self;
        let found = answer.map_err(|failure| match Error::from(failure) {
            unconfirmed @ Error::Unconfirmed(_) => unconfirmed,
            error => Error::Unconfirmed(Arc::new(error)),
        })?;
        let Some(reason) = LostReason::from_found(found) else {
            return Ok(());
        };
        if core.clock.now() >= lease.valid_until() {
            // It may have expired on the way, or have been gone before: nobody can tell any more.
            Err(Error::Unconfirmed(because(
                "the lease ran out before the server answered",
            )))
        } else {
            Err(Error::Lost(lease.found_lost(reason)))
        }
    }
}

/// Whether the server has said that there is nothing to release.
fn is_gone(held_so_far: &Result<(), Lost>) -> bool {
    let gone = |lost: &Lost| matches!(lost.reason, LostReason::Deleted | LostReason::Taken);
    held_so_far.as_ref().is_err_and(gone)
}

// No user code runs while anything inside is half changed, so a panic in it leaves nothing broken.
impl UnwindSafe for Guard {}
impl RefUnwindSafe for Guard {}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.names().map(|name| name.escape_ascii().to_string()).collect();
        f.debug_struct("Guard")
            .field("name", &names.join(", "))
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

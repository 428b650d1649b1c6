//! The guard: a hold, from its grant to its release.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::{
    Error, Lost, LostReason, Wait,
    client::Core,
    fork::ProcessBound,
    lease::{Doubt, Lease, Terms, Ticket, check_length},
    store::{Failure, Found, Hold, because},
    waiting::{Acquire, NotGranted},
};

/// Proof that this program holds a lock: released when dropped.
///
/// It owns what it needs and is tied to no thread: it may be moved, shared, and dropped anywhere, in any order with its
/// lock and client. Nothing in it does I/O but [`extend`](Self::extend), [`release`](Self::release) and the drop.
///
/// Keep it in a variable with a name: `let _guard = lock.acquire()?;` holds the lock to the end of the block, while
/// `let _ = lock.acquire()?;` and a bare `lock.try_acquire()?;` release it at once, and `if lock.try_acquire()?.is_some()`
/// has released it before the block begins: write `if let Some(_guard) = lock.try_acquire()?`.
///
/// In a forked child a guard is inert: it is not held there, calls return [`Error::Forked`] and dropping it does
/// nothing.
#[must_use = "the lock is released when the guard is dropped: keep it in a variable with a name, as in `let _guard = …`; \
              `let _ = …` would release it at once"]
pub struct Guard {
    held: ProcessBound<Held>,
    /// Set by `release`, which leaves the drop nothing to do.
    released: bool,
}

/// What a guard owns.
struct Held {
    core: Arc<Core>,
    lease: Arc<Lease>,
    ticket: Ticket,
    /// What the attempts before the granted one may still do.
    doubt: Doubt,
}

impl Guard {
    /// Acquires `key`, which is that of the lock `name`, waiting as `wait` says.
    pub(crate) fn acquire(
        core: &Arc<Core>,
        name: &Arc<[u8]>,
        key: Vec<u8>,
        terms: &Terms,
        wait: &Wait,
    ) -> Result<Self, Error> {
        core.keeper.start(terms)?;
        let hold = Hold::new(key.into());
        let length = terms.first_length();
        let acquire = Acquire {
            store: &*core.store,
            clock: &*core.clock,
            hold: &hold,
            name,
            length,
            wait,
            command_timeout: core.command_timeout,
        };
        let grant = acquire.run().map_err(|NotGranted { error, doubt }| {
            // No attempt with this token will follow.
            if doubt.may_stand() {
                core.keeper.clean_up(&hold, doubt, length);
            }
            error
        })?;
        let lease = Arc::new(Lease::new(hold, name.clone(), &grant, terms, core.clock.clone()));
        let ticket = core.keeper.watch(&lease);
        Ok(Self {
            held: ProcessBound::new(Held {
                core: core.clone(),
                lease,
                ticket,
                doubt: grant.doubt,
            }),
            released: false,
        })
    }

    /// Runs `work` under the guard and releases it.
    pub(crate) fn run<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let value = work(&self);
        match self.release() {
            Ok(()) | Err(Error::Unconfirmed(_)) => Ok(value),
            Err(error) => Err(error),
        }
    }

    /// Returns the name of the lock, as it was given to the client.
    pub fn name(&self) -> &[u8] {
        &self.held.in_any_process().lease.name
    }

    /// Returns the grant's fencing token: larger than that of every earlier grant of this name.
    ///
    /// Send it along with each write, and let the resource refuse a token smaller than the largest that it has
    /// seen; then a holder that does not know yet that it lost the lock can do no harm. See Martin Kleppmann, "How to
    /// do distributed locking" (2016).
    pub fn fencing_token(&self) -> u64 {
        self.held.in_any_process().lease.fencing_token
    }

    /// Returns the random token that stands at the lock's key on the server.
    pub fn token(&self) -> &str {
        self.held.in_any_process().lease.hold.token.as_str()
    }

    /// Tells whether the lock is certainly still held. No I/O.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns how long the lock is certainly held from now on if nothing renews it; zero once it is lost. No I/O.
    ///
    /// Counted on the machine's boot-time clock from before the granted request was sent, less 1 % of the lease and
    /// 2 ms for clocks that run apart. The server frees the lock only after that.
    pub fn remaining(&self) -> Duration {
        self.held.get().map_or(Duration::ZERO, |held| held.lease.remaining())
    }

    /// Does nothing if the lock is still held: the line to put before each write. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the reason once it is not; [`Error::Forked`] in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.held.get()?.lease.check()?)
    }

    /// Blocks until the lock is lost, for at most `limit`; tells whether it was lost. No I/O.
    pub fn wait_lost(&self, limit: Duration) -> bool {
        self.held.get().map_or(true, |held| held.lease.wait_lost(limit))
    }

    /// Makes the lease end `lease` from now, unless it lasts longer already. One round trip, at most one command
    /// timeout.
    ///
    /// A lock that is renewed goes on being renewed; that does not shorten what was extended.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if the lock is no longer held.
    /// - [`Error::InvalidArgument`] for a duration outside 10 ms to 10 years, or beyond the lock's
    ///   [`max_hold`](crate::Lock::max_hold): nothing was sent.
    /// - [`Error::Unconfirmed`], [`Error::Connection`] or [`Error::Server`] if the server did not confirm it. The
    ///   lease holds as long as it did before.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        let held = self.held.get()?;
        check_length(lease)?;
        held.lease.check()?;
        if lease > held.lease.longest() {
            return Err(Error::invalid(format!(
                "an extension by {lease:?} would outlast the longest hold of the lock"
            )));
        }
        held.extend(lease)
    }

    /// Releases the lock and reports how that went. At most two command timeouts; what the server did not confirm by
    /// then is completed in the background.
    ///
    /// If the guard is the last handle of its client, the client goes with it: up to one command timeout more.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if the lease had been lost before.
    /// - [`Error::Unconfirmed`] if the lock was held until now, but the server did not confirm the release: the lock
    ///   may stay taken until the background work gets through, or its lease ends.
    pub fn release(mut self) -> Result<(), Error> {
        self.released = true;
        let held = self.held.get()?;
        held.release(held.core.command_timeout * 2)
    }
}

impl Drop for Guard {
    /// Releases the lock, best effort: for at most one command timeout, then in the background. If the guard is the
    /// last handle of its client, the client goes with it: up to one command timeout more.
    fn drop(&mut self) {
        if !self.released
            && let Ok(held) = self.held.get()
        {
            // Whom it concerns learns of a loss by the callback; there is nobody here to tell.
            let _ = held.release(held.core.command_timeout);
        }
    }
}

impl Held {
    fn extend(&self, length: Duration) -> Result<(), Error> {
        let lease = &self.lease;
        lease.will_ask(length);
        let mut sent = self.core.clock.now();
        let answer = self.core.ask(self.core.command_timeout, |timeout, _| {
            sent = self.core.clock.now();
            self.core.store.renew(&lease.hold, length, timeout)
        });
        match LostReason::from_found(answer?) {
            None => lease.prolong(sent, length),
            Some(reason) => lease.lose(reason),
        }
        self.core.keeper.report(lease);
        Ok(lease.check()?)
    }

    fn release(&self, budget: Duration) -> Result<(), Error> {
        let Self { core, lease, .. } = self;
        let held_so_far = lease.finish();
        core.keeper.unwatch(&self.ticket);
        // If the server has said that the lease is gone, there is nothing to release.
        let gone = |lost: &Lost| matches!(lost.reason, LostReason::Deleted | LostReason::Taken);
        let asked = (!held_so_far.as_ref().is_err_and(gone)).then(|| {
            core.ask(budget, |timeout, repeated| {
                core.store.release(&lease.hold, lease.fencing_token, repeated, timeout)
            })
        });
        let unanswered = matches!(asked, Some(Err(_)));
        if unanswered || self.doubt.may_still_run(core.clock.now()) {
            core.keeper.clean_up(&lease.hold, self.doubt, lease.longest_asked());
        }
        let outcome = asked.map_or(Ok(()), |answer| self.outcome(answer));
        core.keeper.report(lease);
        lease.forget_callback();
        held_so_far?;
        outcome
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

// No user code runs while anything inside is half changed, so a panic in it leaves nothing broken.
impl UnwindSafe for Guard {}
impl RefUnwindSafe for Guard {}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field(
                "name",
                &self.held.in_any_process().lease.name.escape_ascii().to_string(),
            )
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

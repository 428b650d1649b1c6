//! The lock: its settings, and the ways to take it.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::{
    Client, Error, Guard, Inspection, Lost, Wait,
    named::Named,
    store::{Kind, Replicas},
};

/// A named lock that at most one [`Guard`] holds at a time, whoever asks for it: threads, processes, machines.
///
/// Made by [`Client::lock`] (renewed in the background until released) or [`Client::timed_lock`] (a fixed lease).
/// It is a description, not a hold: cheap to clone, and many threads may acquire through one. A thread that already
/// holds the lock and acquires it again waits for itself: the lock is not reentrant.
///
/// Settings are chained by value and apply to what is acquired afterwards. They are checked when the lock is
/// acquired, before anything is sent.
///
/// | | waits | result |
/// |---|---|---|
/// | [`acquire`](Self::acquire) | for ever | `Guard` |
/// | [`try_acquire`](Self::try_acquire) | never | `Option<Guard>` |
/// | [`acquire_timeout`](Self::acquire_timeout) | for a duration | `Guard`, or [`Error::Timeout`] |
/// | [`acquire_with`](Self::acquire_with) | as a [`Wait`] says | `Guard`, or [`Error::Timeout`] |
/// | [`with_lock`](Self::with_lock), [`try_with_lock`](Self::try_with_lock), [`with_lock_wait`](Self::with_lock_wait), [`with_guard`](Self::with_guard) | likewise | what the closure returns |
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    pub(crate) named: Named,
}

impl Lock {
    pub(crate) fn new(client: Client, name: &[u8], length: Duration, renewed: bool) -> Self {
        Self {
            named: Named::new(client, name, Kind::Lock, length, renewed),
        }
    }

    /// Sets how long the lock stays taken after its holder was last heard of: what a crash costs the others.
    ///
    /// From 10 ms to 10 years; parts of a millisecond count. Defaults to 30 s, or what
    /// [`timed_lock`](Client::timed_lock) was given. A lease that is renewed should be several times the
    /// [command timeout](crate::ClientBuilder::command_timeout), so that a renewal can fail and be made again in time;
    /// any lease should be many round trips. On a Redlock it is at most the
    /// [longest lease](crate::ClientBuilder::max_lease) there, which is also the default if it is less than 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.named.terms.length = lease;
        self
    }

    /// Sets how long one grant may last in all. Leases are asked for, and renewed, so that it ends at most this long
    /// after it began; then it is lost, with [`LostReason::MaxHold`](crate::LostReason::MaxHold).
    ///
    /// At least 10 ms. Defaults to no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.named.terms.max_hold = max_hold;
        self
    }

    /// Sets whether those who wait are served strictly in the order in which they came: all threads of all processes,
    /// each with a place of its own at the server. Defaults to `false`.
    ///
    /// The order holds among those who set it: one that does not may find the lock free, at the end of a crashed
    /// holder's lease, before the first in the queue has come for it. Each grant costs round trips, where threads of
    /// one client otherwise hand the lock on to each other. A waiter that was killed or stopped holds up those behind
    /// it for two and a half [poll intervals](crate::ClientBuilder::poll_interval) at most: 2.5 s unless set.
    ///
    /// By default a release also goes to a waiter and not to a newcomer; only the order is looser. The threads of one
    /// client wait as one, and hand the lock on to each other for some time. A client that does not come for the lock
    /// in time when its turn has come may be overtaken; each time it happens, it is given twice as long.
    pub fn fair(mut self, fair: bool) -> Self {
        self.named.terms.fair = fair;
        self
    }

    /// Sets how often in a row the lock may be handed on to another thread of this client that waits for it, without a
    /// round trip; then the server is asked, and another client gets it if one waits. 0 is never. Defaults to 64.
    ///
    /// Each hand-over is a grant of its own: [`fencing_token`](Guard::fencing_token) rises, while
    /// [`token`](Guard::token) stays the same. However many there may be, after 20 ms the server is asked. Only renewed
    /// locks that are not [`fair`](Self::fair) are handed on, to those who wait for them with equal settings (but for
    /// the callback, which is each grant's own), and none that was extended or lost.
    pub fn handoffs(mut self, handoffs: u32) -> Self {
        self.named.terms.handoffs = handoffs;
        self
    }

    /// Sets how many replicas of the server have to confirm each grant, renewal and extension, and how long they may
    /// take: the server is asked to `WAIT` for them, on the same connection.
    ///
    /// It makes it unlikely that a failover loses the lock, and not impossible: replicas confirm what is in their
    /// memory, and one that has not got it may be promoted all the same. [Fencing tokens](Guard::fencing_token) are
    /// what helps then. A grant that too few confirm is given back, and the acquire ends with [`Error::NotReplicated`],
    /// whatever it would still have waited; so does an extension, while the lease holds as long as before. A renewal
    /// that too few confirm counts as failed: it is made again until the lease ends.
    ///
    /// At least 1 replica, and from 1 ms to 1 hour. One round trip more, which counts into the lease; the time that
    /// replicas take comes on top of the [command timeout](crate::ClientBuilder::command_timeout). A lock with this set
    /// is not [handed on](Self::handoffs). [`Error::Unsupported`] where there are no replicas that could confirm it
    /// (`memory://`, Redlock). Defaults to none.
    pub fn replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.named.terms.replicas = Some(Replicas { count, timeout });
        self
    }

    /// Sets a callback that is told when a lease is lost: when it ends here, which is before the server frees the lock,
    /// or as soon as a request finds the lock gone.
    ///
    /// It is called once for each lost lease, on a thread of the client's own: the client's callbacks run one after the
    /// other, apart from the renewals. So it may come late while an earlier one is still running, or after the process
    /// was paused; work that must stop in time asks [`check`](Guard::check) before each write. A panic in it ends that
    /// call only. Defaults to none.
    pub fn on_lost(mut self, callback: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
        self.named.terms.on_lost = Some(Arc::new(callback));
        self
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &[u8] {
        &self.named.name
    }

    /// Acquires the lock, waiting as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] at once if the server cannot be reached; once the wait has begun, outages are ridden out.
    /// Else as [`acquire_with`](Self::acquire_with), but never [`Error::Timeout`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_with(Wait::forever())
    }

    /// Acquires the lock if it is free; `None` if somebody holds it. One round trip, no waiting.
    ///
    /// # Errors
    ///
    /// As [`acquire_with`](Self::acquire_with), but never [`Error::Timeout`].
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.named.try_acquire()
    }

    /// Acquires the lock, waiting for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`acquire_with`](Self::acquire_with).
    pub fn acquire_timeout(&self, limit: Duration) -> Result<Guard, Error> {
        self.acquire_with(Wait::at_most(limit))
    }

    /// Acquires the lock, waiting as `wait` says: the general form.
    ///
    /// The lease counts from before the request that was granted, however long the wait was.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidArgument`] for a name or setting that cannot work, [`Error::Unsupported`] for one that the
    ///   client's kind of server cannot do, [`Error::Forked`] in a forked child, [`Error::Thread`]: nothing was sent.
    /// - [`Error::Connection`] at once if the server cannot be reached. Once it has answered, or taken a request and
    ///   been silent, outages are ridden out.
    /// - [`Error::Timeout`] when the wait is over, with the last failure met meanwhile; [`Error::Cancelled`] when its
    ///   token was.
    /// - [`Error::Unconfirmed`] if the attempt of a [`Wait::none`] got no answer, if the server hung up on the first
    ///   attempts of a wait, or if grants take longer to arrive than their lease holds.
    /// - [`Error::Server`] if the server refuses the request for good, or with [`Wait::none`] for now.
    /// - [`Error::NoQuorum`] with [`Wait::none`] if too few servers of a Redlock grant it, or can be asked.
    /// - [`Error::NotReplicated`] if too few [replicas](Self::replicas) confirm the grant.
    /// - [`Error::KeyConflict`] if its key, or one of its helper keys, holds something else.
    pub fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        self.named.acquire(wait)
    }

    /// Runs `work` while holding the lock, waiting for it as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lease was lost before `work` ended: it did run, and its value is dropped. Otherwise the
    /// errors of [`acquire`](Self::acquire), and `work` did not run. A release that the server does not confirm is no
    /// error: it is completed in the background.
    ///
    /// # Panics
    ///
    /// If `work` does, after the lock was released.
    pub fn with_lock<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.with_guard(|_| work())
    }

    /// Runs `work` while holding the lock if it is free; `None` if somebody holds it.
    ///
    /// # Errors
    ///
    /// As [`with_lock`](Self::with_lock), with the errors of [`try_acquire`](Self::try_acquire).
    ///
    /// # Panics
    ///
    /// If `work` does, after the lock was released.
    pub fn try_with_lock<T>(&self, work: impl FnOnce() -> T) -> Result<Option<T>, Error> {
        self.try_acquire()?.map(|guard| guard.run(|_| work())).transpose()
    }

    /// Runs `work` while holding the lock, waiting for it as `wait` says.
    ///
    /// # Errors
    ///
    /// As [`with_lock`](Self::with_lock), with the errors of [`acquire_with`](Self::acquire_with).
    ///
    /// # Panics
    ///
    /// If `work` does, after the lock was released.
    pub fn with_lock_wait<T>(&self, wait: Wait, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.acquire_with(wait)?.run(|_| work())
    }

    /// As [`with_lock`](Self::with_lock), for work that wants to see the guard: its fencing token, or whether the
    /// lease still holds.
    ///
    /// # Errors
    ///
    /// As [`with_lock`](Self::with_lock).
    ///
    /// # Panics
    ///
    /// If `work` does, after the lock was released.
    pub fn with_guard<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.acquire()?.run(work)
    }

    /// Looks at what stands on the server for this name. One round trip, at most one command timeout; waits for nobody
    /// and changes nothing.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidArgument`] for a name that cannot be used, [`Error::Forked`] in a forked child: nothing was
    ///   sent.
    /// - [`Error::Connection`], [`Error::Unconfirmed`] or [`Error::Server`] if the server cannot be reached, does not
    ///   answer, or refuses.
    /// - [`Error::KeyConflict`] if the lock's key holds something else.
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect()
    }

    /// Throws out whoever holds the lock, of redlatch or not; tells whether somebody held it. Two round trips, at most
    /// three command timeouts.
    ///
    /// For operators, when the holder is known to be gone or the lock has no expiry. It breaks the first guarantee: a
    /// holder that lives is told at its next renewal, extension or release ([`LostReason::Deleted`] or
    /// [`LostReason::Taken`]), and believes until then that it holds the lock. Fencing tokens go on rising, so a
    /// resource that [checks them](Guard::fencing_token) is safe. Only the token that is seen now is thrown out; a
    /// holder that takes its place meanwhile is left alone, unless it has the same one: a thread to which the lock was
    /// [handed on](Self::handoffs), or one of a library that gives every holder the same token.
    ///
    /// [`LostReason::Deleted`]: crate::LostReason::Deleted
    /// [`LostReason::Taken`]: crate::LostReason::Taken
    ///
    /// # Errors
    ///
    /// Those of [`inspect`](Self::inspect). After [`Error::Unconfirmed`] the holder may have been thrown out: do it
    /// again.
    pub fn force_release(&self) -> Result<bool, Error> {
        self.named.force_release()
    }
}

// No user code runs while anything inside is half changed, so a panic in it leaves nothing broken.
impl UnwindSafe for Lock {}
impl RefUnwindSafe for Lock {}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name().escape_ascii().to_string())
            .field("lease", &self.named.terms.length)
            .field("renewed", &self.named.terms.renewed)
            .finish_non_exhaustive()
    }
}

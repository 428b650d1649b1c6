//! The counting semaphore: its settings, and the ways to take permits.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::{
    Client, Error, Guard, Holder, Inspection, Lost, Wait,
    named::Named,
    store::{Kind, Replicas},
};

/// A named number of permits, of which each [`Guard`] holds one, or [several](Self::permits): at most so many at a
/// time, whoever asks: threads, processes, machines.
///
/// Made by [`Client::semaphore`]. It is a description, not a hold: cheap to clone, and many threads may acquire through
/// one. Each acquire takes permits of its own.
///
/// The limit holds whatever leases the holders chose and whatever their clocks say: each permit ends by the server's
/// time, in the very step that grants the next.
///
/// Settings are chained by value and apply to what is acquired afterwards. They are checked when permits are
/// acquired, before anything is sent.
///
/// | | waits | result |
/// |---|---|---|
/// | [`try_acquire`](Self::try_acquire) | never: the usual way | `Option<Guard>` |
/// | [`acquire`](Self::acquire) | for ever | `Guard` |
/// | [`acquire_timeout`](Self::acquire_timeout) | for a duration | `Guard`, or [`Error::Timeout`] |
/// | [`acquire_with`](Self::acquire_with) | as a [`Wait`] says | `Guard`, or [`Error::Timeout`] |
/// | [`try_with_permit`](Self::try_with_permit), [`with_permit`](Self::with_permit), [`with_permit_wait`](Self::with_permit_wait) | likewise | what the closure returns |
///
/// ```
/// # let client = redlatch::Client::open("memory://")?;
/// let calls = client.semaphore("api:acct:7", 5); // five calls at a time for this account, from everywhere
///
/// if calls.try_with_permit(|| println!("calling"))?.is_none() {
///     println!("five calls are under way: try later");
/// }
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a semaphore does nothing until permits are acquired"]
pub struct Semaphore {
    pub(crate) named: Named,
}

impl Semaphore {
    pub(crate) fn new(client: Client, name: &[u8], limit: u32, length: Duration) -> Self {
        Self {
            named: Named::new(client, name, Kind::Semaphore { limit, permits: 1 }, length, true),
        }
    }

    /// Sets how many permits one acquire takes: all of them at once, or none. Defaults to 1.
    ///
    /// From 1 to the declared limit, and at most 1,000. Who wants more than a limit that was [lowered](Self::set_limit)
    /// waits until it is raised again. Those who want several are passed over while fewer are free, and may
    /// starve among those who want one; not if all are [`fair`](Self::fair).
    pub fn permits(mut self, permits: u32) -> Self {
        self.named.kind = self.named.kind.with_permits(permits);
        self
    }

    /// Makes the lease a fixed one of this length, which is never renewed; [`extend`](Guard::extend) it by hand, to
    /// show that the holder is alive.
    ///
    /// For work that must not run on unnoticed. From 10 ms to 10 years. Without it the lease is renewed in the
    /// background until the permit is released.
    pub fn timed(mut self, lease: Duration) -> Self {
        self.named.terms.length = lease;
        self.named.terms.renewed = false;
        self
    }

    /// Sets how long a permit stays taken after its holder was last heard of: what a crash costs the others. After
    /// [`timed`](Self::timed) it sets the fixed length.
    ///
    /// From 10 ms to 10 years; parts of a millisecond count. Defaults to 30 s. Each holder's is its own: a short one
    /// never shortens another's. A lease that is renewed should be several times the
    /// [command timeout](crate::ClientBuilder::command_timeout), so that a renewal can fail and be made again in time.
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
    /// One that wants [several permits](Self::permits) is then waited for: until they are free, nobody that came later
    /// gets one. The order holds among those who set it. A waiter that was killed or stopped holds up those behind it
    /// for two and a half [poll intervals](crate::ClientBuilder::poll_interval) at most: 2.5 s unless set.
    ///
    /// By default a permit that is released also goes to a waiter and not to a newcomer; only the order is looser, and
    /// the threads of one client hand permits on to each other for some time.
    pub fn fair(mut self, fair: bool) -> Self {
        self.named.terms.fair = fair;
        self
    }

    /// Sets how often in a row a permit may be handed on to another thread of this client that waits for it although
    /// other clients wait as well; then one of those gets it. 0 is never. Defaults to 64.
    ///
    /// A hand-over is one round trip: a grant of its own, with a fencing token of its own, while
    /// [`token`](Guard::token) stays the same. However many there may be, after 20 ms others get their turn. Only
    /// renewed permits that are not [`fair`](Self::fair) are handed on, to those who wait for them with equal settings
    /// (but for the callback, which is each grant's own), and none that was extended or lost.
    pub fn handoffs(mut self, handoffs: u32) -> Self {
        self.named.terms.handoffs = handoffs;
        self
    }

    /// Sets how many replicas of the server have to confirm each grant, renewal and extension, and how long they may
    /// take: the server is asked to `WAIT` for them, on the same connection.
    ///
    /// It makes it unlikely that a failover loses the permits, and not impossible: replicas confirm what is in their
    /// memory, and one that has not got it may be promoted all the same. [Fencing tokens](Guard::fencing_token) are
    /// what helps then. A grant that too few confirm is given back, and the acquire ends with [`Error::NotReplicated`],
    /// whatever it would still have waited; so does an extension, while the lease holds as long as before. A renewal
    /// that too few confirm counts as failed: it is made again until the lease ends.
    ///
    /// At least 1 replica, and from 1 ms to 1 hour. One round trip more, which counts into the lease; the time that
    /// replicas take comes on top of the [command timeout](crate::ClientBuilder::command_timeout). A permit with this
    /// set is not [handed on](Self::handoffs). [`Error::Unsupported`] where there are no replicas that could confirm it
    /// (`memory://`, Redlock). Defaults to none.
    pub fn replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.named.terms.replicas = Some(Replicas { count, timeout });
        self
    }

    /// Sets a callback that is told when a lease is lost: when it ends here, which is before the server frees the
    /// permit, or as soon as a request finds the permit gone. As [`Lock::on_lost`](crate::Lock::on_lost).
    pub fn on_lost(mut self, callback: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
        self.named.terms.on_lost = Some(Arc::new(callback));
        self
    }

    /// Returns the semaphore's name.
    pub fn name(&self) -> &[u8] {
        &self.named.name
    }

    /// Acquires its permits if so many are free; `None` if not. One round trip, no waiting: the usual way.
    ///
    /// # Errors
    ///
    /// As [`acquire_with`](Self::acquire_with), but never [`Error::Timeout`].
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.named.try_acquire()
    }

    /// Acquires its permits, waiting as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] at once if the server cannot be reached; once the wait has begun, outages are ridden out.
    /// Else as [`acquire_with`](Self::acquire_with), but never [`Error::Timeout`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_with(Wait::forever())
    }

    /// Acquires its permits, waiting for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`acquire_with`](Self::acquire_with).
    pub fn acquire_timeout(&self, limit: Duration) -> Result<Guard, Error> {
        self.acquire_with(Wait::at_most(limit))
    }

    /// Acquires its permits, waiting as `wait` says: the general form.
    ///
    /// The lease counts from before the request that was granted, however long the wait was.
    ///
    /// # Errors
    ///
    /// [`Error::LimitMismatch`] if others declare another limit for this name; [`Error::InvalidArgument`] for numbers
    /// of permits that cannot work, before anything is sent. Otherwise those of
    /// [`Lock::acquire_with`](crate::Lock::acquire_with), for the same reasons.
    pub fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        self.named.acquire(wait)
    }

    /// Runs `work` while holding its permits if so many are free; `None` if not.
    ///
    /// # Errors
    ///
    /// As [`with_permit`](Self::with_permit), with the errors of [`try_acquire`](Self::try_acquire).
    ///
    /// # Panics
    ///
    /// If `work` does, after the permits were released.
    pub fn try_with_permit<T>(&self, work: impl FnOnce() -> T) -> Result<Option<T>, Error> {
        self.try_acquire()?.map(|guard| guard.run(|_| work())).transpose()
    }

    /// Runs `work` while holding its permits, waiting for them as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lease was lost before `work` ended: it did run, and its value is dropped. Otherwise the
    /// errors of [`acquire`](Self::acquire), and `work` did not run. A release that the server does not confirm is no
    /// error: it is completed in the background.
    ///
    /// # Panics
    ///
    /// If `work` does, after the permits were released.
    pub fn with_permit<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.with_permit_wait(Wait::forever(), work)
    }

    /// Runs `work` while holding its permits, waiting for them as `wait` says.
    ///
    /// # Errors
    ///
    /// As [`with_permit`](Self::with_permit), with the errors of [`acquire_with`](Self::acquire_with).
    ///
    /// # Panics
    ///
    /// If `work` does, after the permits were released.
    pub fn with_permit_wait<T>(&self, wait: Wait, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.acquire_with(wait)?.run(|_| work())
    }

    /// Makes `limit` the number of permits for all clients, from the next grant on. One round trip, at most two command
    /// timeouts.
    ///
    /// More permits go to those who wait, at once. With fewer nobody is thrown out; who comes later waits until enough
    /// have been released. 0 lets nobody in. What clients declare stays: [`Client::semaphore`] goes on being called
    /// with the declared limit, and this one governs. It is kept for two days after the last lease has ended.
    ///
    /// # Errors
    ///
    /// - [`Error::LimitMismatch`] if others declare another limit for this name, [`Error::KeyConflict`] if the key
    ///   holds something else.
    /// - [`Error::InvalidArgument`] for a name, or a number of permits, that cannot be used, [`Error::Forked`] in a
    ///   forked child: nothing was sent.
    /// - [`Error::Connection`], [`Error::Unconfirmed`] or [`Error::Server`] if the server cannot be reached, does not
    ///   answer, or refuses. After [`Error::Unconfirmed`] set it again.
    pub fn set_limit(&self, limit: u32) -> Result<(), Error> {
        let (core, resource) = self.named.resolve()?;
        Ok(core.ask(core.command_timeout * 2, |timeout, _| {
            core.store.set_limit(&resource, limit, timeout)
        })?)
    }

    /// Looks how many permits are free: neither held nor left to a waiter that was woken. One round trip, at most one
    /// command timeout; changes nothing.
    ///
    /// For monitoring. It may be outdated by the time it is read: who wants a permit [tries](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// Those of [`inspect`](Self::inspect).
    pub fn available(&self) -> Result<u32, Error> {
        Ok(self.inspect()?.available())
    }

    /// Looks who holds permits now. One round trip, at most one command timeout; changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`inspect`](Self::inspect).
    pub fn holders(&self) -> Result<Vec<Holder>, Error> {
        Ok(self.inspect()?.holders)
    }

    /// Looks at what stands on the server for this name, whatever limit was declared. One round trip, at most one
    /// command timeout; waits for nobody and changes nothing.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidArgument`] for a name, or a number of permits, that cannot be used, [`Error::Forked`] in a
    ///   forked child: nothing was sent.
    /// - [`Error::Connection`], [`Error::Unconfirmed`] or [`Error::Server`] if the server cannot be reached, does not
    ///   answer, or refuses.
    /// - [`Error::KeyConflict`] if the semaphore's key holds something else.
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect()
    }

    /// Throws out all who hold permits now; tells whether somebody did. Two round trips and one more for each further
    /// holder; at most one command timeout, and two more for each holder.
    ///
    /// For operators, when the holders are known to be gone. It breaks the limit: a holder that lives is told at its
    /// next renewal, extension or release ([`LostReason::Deleted`](crate::LostReason::Deleted)), and believes until
    /// then that it holds its permits. Those who come meanwhile are left alone.
    ///
    /// # Errors
    ///
    /// Those of [`inspect`](Self::inspect). After [`Error::Unconfirmed`] some may have been thrown out: do it again.
    pub fn force_release(&self) -> Result<bool, Error> {
        self.named.force_release()
    }
}

// No user code runs while anything inside is half changed, so a panic in it leaves nothing broken.
impl UnwindSafe for Semaphore {}
impl RefUnwindSafe for Semaphore {}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name().escape_ascii().to_string())
            .field("kind", &self.named.kind)
            .field("lease", &self.named.terms.length)
            .field("renewed", &self.named.terms.renewed)
            .finish_non_exhaustive()
    }
}

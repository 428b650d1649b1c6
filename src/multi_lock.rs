//! Several locks that are held as one: settings, and the ways to take them.

mod acquire;

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use self::acquire::Wanted;
use crate::{
    Client, Error, Guard, Lost, Wait,
    client::Core,
    keys,
    lease::Terms,
    mistakes::{Mistake, makes},
    store::{Kind, Resource},
};

/// The most locks that one may consist of: a server is busy with nothing else while it looks at all of them.
const MOST_NAMES: usize = 1_000;

/// Several named locks that are held as one, by one [`Guard`].
///
/// Made by [`Client::multi_lock`]. They are the very locks that [`Client::lock`] names: who holds several keeps out who
/// wants one of them, and the other way round. All are taken or none is, in one round trip if they are free and on one
/// server.
///
/// ```
/// # let client = redlatch::Client::open("memory://")?;
/// let accounts = client.multi_lock(["account:7", "account:3"]);
/// accounts.with_guard(|guard| {
///     let tokens: Vec<_> = guard.names().zip(guard.fencing_tokens()).collect();
///     assert_eq!(tokens[0].0, b"account:3");
/// })?;
///
/// let _guard = accounts.acquire()?;
/// assert!(client.lock("account:7").try_acquire()?.is_none());
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// **No deadlock among them.** Whoever waits takes the locks one after the other in one order, which is the same
/// everywhere, and holds those that it has; so no two can wait for each other, and one that wants many does not starve.
/// While it waits for one, what it has is renewed, and kept from others. Who holds a lock and *then* acquires another
/// one or several may still deadlock.
///
/// **The weakest counts.** The guard holds as long as all its locks are held; each loss is told to the callback by its
/// name. A lock that is lost while others are waited for is taken again.
///
/// Settings are chained by value and checked when the locks are acquired, before anything is sent. There is no fixed
/// lease, order or hand-over as a [`Lock`](crate::Lock) may have: [`max_hold`](Self::max_hold) bounds how long they are
/// held.
#[derive(Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct MultiLock {
    client: Client,
    /// Sorted.
    names: Arc<[Arc<[u8]>]>,
    terms: Terms,
}

impl MultiLock {
    pub(crate) fn new(client: Client, mut names: Vec<Arc<[u8]>>, length: Duration) -> Self {
        names.sort_unstable();
        names.dedup();
        // In a forked child nothing is acquired.
        if let Ok(core) = client.core() {
            // By slot, so that those that can be asked for together stand together. Bad names are refused later.
            names.sort_by_cached_key(|name| {
                let key = core.keyspace.main(Kind::Lock, name).ok()?;
                Some((keys::slot(&key), key))
            });
        }
        if makes(Mistake::TakesInNoOrder) {
            fastrand::shuffle(&mut names);
        }
        Self {
            client,
            names: names.into(),
            terms: Terms {
                handoffs: 0,
                ..Terms::new(length, true)
            },
        }
    }

    /// Sets how long the locks stay taken after their holder was last heard of: what a crash costs the others.
    ///
    /// From 10 ms to 10 years; parts of a millisecond count. Defaults to 30 s. It should be several times the
    /// [command timeout](crate::ClientBuilder::command_timeout), so that a renewal can fail and be made again in time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.length = lease;
        self
    }

    /// Sets how long the locks may be held in all, counted from when all of them are: then they are lost, with
    /// [`LostReason::MaxHold`](crate::LostReason::MaxHold).
    ///
    /// At least 10 ms. Defaults to no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.terms.max_hold = max_hold;
        self
    }

    /// Sets a callback that is told of each lock that is lost while the guard exists, by its [name](Lost::name).
    ///
    /// It is called as that of [`Lock::on_lost`](crate::Lock::on_lost) is: on a thread of the client's own, one call
    /// after the other. The locks that are not lost are still renewed, until the guard is released. Defaults to none.
    pub fn on_lost(mut self, callback: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
        self.terms.on_lost = Some(Arc::new(callback));
        self
    }

    /// Returns the names, each of them once, in the order in which they are taken: by hash slot of a cluster, then by
    /// bytes.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|name| &**name)
    }

    /// Acquires all locks, waiting as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`] at once if the server cannot be reached; once the wait has begun, outages are ridden out.
    /// Else as [`acquire_with`](Self::acquire_with), but never [`Error::Timeout`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_with(Wait::forever())
    }

    /// Acquires all locks if all are free; `None` if somebody holds one of them. No waiting; one round trip if they are
    /// on one server.
    ///
    /// # Errors
    ///
    /// As [`acquire_with`](Self::acquire_with), but never [`Error::Timeout`].
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        Guard::if_free(self.acquire_with(Wait::none()))
    }

    /// Acquires all locks, waiting for at most `limit` in all.
    ///
    /// # Errors
    ///
    /// As [`acquire_with`](Self::acquire_with).
    pub fn acquire_timeout(&self, limit: Duration) -> Result<Guard, Error> {
        self.acquire_with(Wait::at_most(limit))
    }

    /// Acquires all locks, waiting as `wait` says, in all: the general form.
    ///
    /// When it fails, nothing is held. What it had by then is given back before it returns [`Error::Timeout`], for
    /// which it may take one [command timeout](crate::ClientBuilder::command_timeout) more, and in the background
    /// otherwise.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidArgument`] for no names, more than 1000, a name or a setting that cannot work;
    ///   [`Error::Forked`] in a forked child, [`Error::Thread`]: nothing was sent.
    /// - [`Error::Timeout`] when the wait is over, with the name of the lock that could not be had, and the last
    ///   failure met meanwhile.
    /// - All others as for [one lock](crate::Lock::acquire_with).
    pub fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        let (core, resources) = self.resolve()?;
        let names = self.names.iter().cloned();
        let wanted = names.zip(resources).map(|(name, resource)| Wanted::new(name, resource));
        acquire::acquire(core, wanted, &self.terms, &wait)
    }

    /// Runs `work` while holding all locks, waiting for them as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if one of them was lost before `work` ended: it did run, and its value is dropped. Otherwise the
    /// errors of [`acquire`](Self::acquire), and `work` did not run. A release that the server does not confirm is no
    /// error: it is completed in the background.
    ///
    /// # Panics
    ///
    /// If `work` does, after the locks were released.
    pub fn with_lock<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.with_guard(|_| work())
    }

    /// Runs `work` while holding all locks if all are free; `None` if somebody holds one of them.
    ///
    /// # Errors
    ///
    /// As [`with_lock`](Self::with_lock), with the errors of [`try_acquire`](Self::try_acquire).
    ///
    /// # Panics
    ///
    /// If `work` does, after the locks were released.
    pub fn try_with_lock<T>(&self, work: impl FnOnce() -> T) -> Result<Option<T>, Error> {
        self.try_acquire()?.map(|guard| guard.run(|_| work())).transpose()
    }

    /// Runs `work` while holding all locks, waiting for them as `wait` says.
    ///
    /// # Errors
    ///
    /// As [`with_lock`](Self::with_lock), with the errors of [`acquire_with`](Self::acquire_with).
    ///
    /// # Panics
    ///
    /// If `work` does, after the locks were released.
    pub fn with_lock_wait<T>(&self, wait: Wait, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.acquire_with(wait)?.run(|_| work())
    }

    /// As [`with_lock`](Self::with_lock), for work that wants to see the guard: its fencing tokens, or whether all
    /// locks are still held.
    ///
    /// # Errors
    ///
    /// As [`with_lock`](Self::with_lock).
    ///
    /// # Panics
    ///
    /// If `work` does, after the locks were released.
    pub fn with_guard<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        self.acquire()?.run(work)
    }

    /// Refuses names and settings that cannot work. No I/O.
    #[cfg(feature = "capi")]
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.resolve().map(drop)
    }

    /// The client's core and what is to be held, if names and terms can work there.
    fn resolve(&self) -> Result<(&Arc<Core>, Vec<Resource>), Error> {
        let core = self.client.core()?;
        check_count(self.names.len())?;
        self.terms.check()?;
        let resources = self.names.iter().map(|name| {
            let key = core.keyspace.main(Kind::Lock, name)?.into();
            let kind = Kind::Lock;
            let resource = Resource { key, kind };
            core.store.admit(&resource, &self.terms.wishes())?;
            Ok(resource)
        });
        Ok((core, resources.collect::<Result<_, Error>>()?))
    }
}

/// Refuses numbers of names that cannot work.
pub(crate) fn check_count(count: usize) -> Result<(), Error> {
    if (1..=MOST_NAMES).contains(&count) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a multi-lock of {count} names cannot work: it must have from 1 to {MOST_NAMES}"
    )))
}

// No user code runs while anything inside is half changed, so a panic in it leaves nothing broken.
impl UnwindSafe for MultiLock {}
impl RefUnwindSafe for MultiLock {}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.names().map(|name| name.escape_ascii().to_string()).collect();
        f.debug_struct("MultiLock")
            .field("names", &names)
            .field("lease", &self.terms.length)
            .finish_non_exhaustive()
    }
}

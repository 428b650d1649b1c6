//! The client: a way to the servers of one URL, their connections and the background work.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::{
    Audit, ClientBuilder, Error, Lock, MultiLock, Semaphore,
    clock::Clock,
    fork::ProcessBound,
    keys::Keyspace,
    lease::Keeper,
    store::{Failure, Limit, Store},
    waiting::{Gate, Knocks},
};

/// The lease of a lock or semaphore that sets none, unless the store has only shorter ones.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A way to the server or servers of one URL, shared by the locks and semaphores made from it. Cheap to clone; open one
/// for each program.
///
/// A client keeps a pool of connections, one connection for the background work, and one on which it hears that a lock
/// it waits for was released, all opened when first needed. It
/// goes with the last of its clones, locks and guards: what is still to be cleaned up gets one more try, and its
/// threads end. That takes at most one command timeout; a callback that is still running then is left to itself.
#[derive(Clone)]
pub struct Client {
    core: ProcessBound<Arc<Core>>,
}

/// What the handles of a client share.
pub(crate) struct Core {
    pub(crate) knocks: Knocks,
    pub(crate) keeper: Keeper,
    pub(crate) gate: Gate,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keyspace: Keyspace,
    pub(crate) command_timeout: Duration,
    pub(crate) poll_interval: Duration,
}

impl Client {
    /// Makes a client for the server at `url`, with the defaults of [`ClientBuilder`]. Nothing is sent yet.
    ///
    /// | URL | server |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]`, or `valkey://` | Redis or Valkey over TCP |
    /// | `rediss://…`, or `valkeys://` | the same over TLS, with the feature `tls` |
    /// | `unix:///path/to/socket[?user=…&pass=…&db=…]` | Redis or Valkey on a Unix socket; `%2B` for a `+` in a password |
    /// | `redis-sentinel://[user:password@]host[:port],host,…[/database]#master` | the master, as Redis Sentinel knows it |
    /// | `redis-cluster://[user:password@]host[:port],host,…` | Redis Cluster, by some of its nodes |
    /// | `redlock://[user:password@]host[:port],host[:port],…[/database]` | three or more independent ones, of which a majority grants a lock (Redlock) |
    /// | `memory://[name]` | none: the locks live in this process, shared by the clients of the same URL |
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a URL that cannot be used or has a part that would not be acted on,
    /// [`Error::Unsupported`] for a kind of server that this version does not speak to, or for TLS in a build without
    /// it.
    pub fn open(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder().url(url).build()
    }

    /// Starts a client with settings of your own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn new(core: Core) -> Self {
        Self {
            core: ProcessBound::new(Arc::new(core)),
        }
    }

    /// Names a lock whose lease (30 s unless [set](Lock::lease)) is renewed in the background until it is released.
    ///
    /// The name is bytes; it must not be empty. No I/O.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.clone(), name.as_ref(), self.default_lease(), true)
    }

    /// Names a semaphore of `limit` permits, whose leases (30 s unless [set](Semaphore::lease)) are renewed in the
    /// background until they are released, unless they are [timed](Semaphore::timed).
    ///
    /// All clients declare the same limit, at least 1: it is kept on the server from the first grant, or change, on,
    /// until two days after the last lease has ended, and one that comes with another gets [`Error::LimitMismatch`].
    /// [`set_limit`](Semaphore::set_limit) changes the number of permits for all. The name is bytes; it must not be
    /// empty. No I/O.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, limit: u32) -> Semaphore {
        Semaphore::new(self.clone(), name.as_ref(), limit, self.default_lease())
    }

    /// Names a lock with a fixed lease, which is never renewed; [`extend`](crate::Guard::extend) it by hand.
    ///
    /// For work that must not run on unnoticed. Size the lease to the slow tail of the work, not the median. The name
    /// is bytes; it must not be empty. No I/O.
    pub fn timed_lock(&self, name: impl AsRef<[u8]>, lease: Duration) -> Lock {
        Lock::new(self.clone(), name.as_ref(), lease, false)
    }

    /// Names several locks that are held as one, whose leases (30 s unless [set](MultiLock::lease)) are renewed in the
    /// background until they are released.
    ///
    /// They are the locks of those names that [`lock`](Self::lock) gives. From 1 to 1000 names, in any order; one that
    /// comes twice counts once. The names are bytes; none may be empty. No I/O.
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl AsRef<[u8]>>) -> MultiLock {
        let names = names.into_iter().map(|name| name.as_ref().into());
        MultiLock::new(self.clone(), names.collect(), self.default_lease())
    }

    /// Looks through the server's database for locks that nobody will ever free: keys that match `pattern`, look like a
    /// lock (a string, or a hash as Redisson has) and have no TTL. Not redlatch's own: all of those have one.
    ///
    /// The pattern is a glob over whole keys as `SCAN` takes it, such as `lock:*`; prefixes are not put before it. The
    /// result is an iterator that asks page by page as it goes, on a connection of its own (`SCAN`, `PTTL`, `TYPE`, and
    /// `INFO` for each connection; some 1000 keys in at most one command timeout), so it holds up neither the server
    /// nor anything in memory. No I/O before its first step. In a cluster it goes through one master after the other.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for an empty pattern, [`Error::Forked`] in a forked child.
    pub fn audit(&self, pattern: impl AsRef<[u8]>) -> Result<Audit, Error> {
        Audit::new(self.clone(), pattern.as_ref())
    }

    /// The lease of a lock or semaphore that sets none. In a forked child nothing is acquired.
    fn default_lease(&self) -> Duration {
        let longest = |core: &Arc<Core>| core.store.abilities().longest_lease;
        self.core()
            .map_or(DEFAULT_LEASE, |core| DEFAULT_LEASE.min(longest(core)))
    }

    pub(crate) fn core(&self) -> Result<&Arc<Core>, Error> {
        self.core.get()
    }
}

impl Core {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        keyspace: Keyspace,
        command_timeout: Duration,
        poll_interval: Duration,
    ) -> Self {
        let keeper = Keeper::new(store.clone(), clock.clone(), command_timeout);
        let knocks = Knocks::new(
            store.clone(),
            clock.clone(),
            keeper.sweeper().clone(),
            keyspace.channel(),
            command_timeout,
            poll_interval,
        );
        Self {
            knocks,
            keeper,
            gate: Gate::default(),
            store,
            clock,
            keyspace,
            command_timeout,
            poll_interval,
        }
    }

    /// Makes a request within `budget`, and once more if the connection broke or stayed silent under it. The request is
    /// told how long it may take, and whether it is the repetition.
    pub(crate) fn ask<T>(
        &self,
        budget: Duration,
        mut request: impl FnMut(Duration, bool) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let end = self.clock.now() + budget;
        let first = request(self.command_timeout, false);
        let left = self.clock.now().until(end).min(self.command_timeout);
        match first {
            Err(failure) if failure.is_unanswered() && !left.is_zero() => request(left, true),
            answer => answer,
        }
    }

    /// As [`ask`](Self::ask) within `limit`, for a request about each of `count` things that are sent together: the
    /// request is told which ones it is about, and answers for each. Those without an answer are asked for once more.
    pub(crate) fn ask_several<T>(
        &self,
        limit: &Limit,
        count: usize,
        mut request: impl FnMut(&[usize], &Limit, bool) -> Vec<Result<T, Failure>>,
    ) -> Vec<Result<T, Failure>> {
        let end = self.clock.now() + limit.timeout;
        let within = |timeout: Duration| Limit {
            timeout: timeout.min(self.command_timeout),
            ..*limit
        };
        let all: Vec<usize> = (0..count).collect();
        let mut answers = request(&all, &within(limit.timeout), false);
        let is_unanswered = |&at: &usize| answers[at].as_ref().is_err_and(Failure::is_unanswered);
        let unanswered: Vec<usize> = all.into_iter().filter(is_unanswered).collect();
        let left = self.clock.now().until(end);
        if !unanswered.is_empty() && !left.is_zero() && limit.check().is_ok() {
            for (&at, answer) in unanswered.iter().zip(request(&unanswered, &within(left), true)) {
                answers[at] = answer;
            }
        }
        answers
    }
}

impl Drop for Core {
    /// Ends the threads: all of them within one command timeout, or leaves them to end by themselves.
    fn drop(&mut self) {
        let end = self.clock.now() + self.command_timeout;
        self.knocks.stop();
        self.keeper.close(end);
        self.knocks.join(self.clock.now().until(end));
    }
}

// No user code runs while anything inside is half changed, so a panic in it leaves nothing broken.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

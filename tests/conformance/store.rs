//! The stores, and what a test has of one to itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread::{Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

use redlatch::{CancelToken, ClientBuilder, Error, Guard, Inspection, Semaphore, Wait};

pub use crate::support::PROMPT;
use crate::{
    exclusive::{Client, Kind, Lock},
    support::{self, Cluster, Redlock, SECOND, Sentinels, Server, wait_until},
};

/// How often waiters look by themselves, and how long leases last, where a test is about being woken.
pub const MINUTE: Duration = SECOND.saturating_mul(60);

/// How long waits last that are to be served: longer than what is prompt, so that what comes late is told apart from
/// what never comes, and shorter than what happens without being woken.
const LIMIT: Duration = SECOND.saturating_mul(30);

/// A store with a corner of its own for one test.
pub struct Store {
    url: String,
    pub prefix: String,
    /// What its locks are.
    kind: Kind,
    /// The longest lease that it takes, if that is less than the default.
    pub longest_lease: Option<Duration>,
    servers: Servers,
}

/// Where the keys of a store are.
enum Servers {
    None,
    One(Arc<Server>),
    Sentinels(&'static Sentinels),
    Cluster(&'static Cluster),
    Redlock(&'static Redlock),
}

impl Servers {
    /// Deletes the keys that match a pattern, those of one name all at once, and returns how many there were.
    fn delete(&self, pattern: &str) -> usize {
        match self {
            Self::None => panic!("it has no keys"),
            Self::One(server) => server.delete(pattern),
            Self::Sentinels(sentinels) => sentinels.master().delete(pattern),
            Self::Cluster(cluster) => cluster.delete(pattern),
            Self::Redlock(redlock) => redlock.delete(pattern),
        }
    }
}

impl Store {
    fn new(url: String, kind: Kind, servers: Servers) -> Self {
        static TESTS: AtomicU32 = AtomicU32::new(0);
        Self {
            url,
            prefix: format!("test-{}:", TESTS.fetch_add(1, Ordering::Relaxed)),
            kind,
            longest_lease: None,
            servers,
        }
    }

    pub fn redis(kind: Kind) -> Self {
        let server = support::shared();
        Self::new(server.url(), kind, Servers::One(server))
    }

    pub fn memory(kind: Kind) -> Self {
        Self::new("memory://conformance".into(), kind, Servers::None)
    }

    pub fn sentinel(kind: Kind) -> Self {
        let sentinels = Sentinels::shared();
        Self::new(sentinels.url(), kind, Servers::Sentinels(sentinels))
    }

    pub fn cluster(kind: Kind) -> Self {
        let cluster = Cluster::shared();
        Self::new(cluster.url(), kind, Servers::Cluster(cluster))
    }

    pub fn redlock(kind: Kind) -> Self {
        let redlock = Redlock::shared();
        Self {
            longest_lease: Some(Redlock::MAX_LEASE),
            ..Self::new(redlock.url(), kind, Servers::Redlock(redlock))
        }
    }

    pub fn builder(&self) -> ClientBuilder {
        let builder = redlatch::Client::builder().url(&self.url).prefix(&self.prefix);
        match self.longest_lease {
            // A server that is merely slow, on a busy machine, is not to be left out.
            Some(longest) => builder.max_lease(longest).node_timeout(SECOND),
            None => builder,
        }
    }

    /// A client as another process would have it.
    pub fn client(&self) -> Client {
        self.client_with(|builder| builder)
    }

    pub fn client_with(&self, settings: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        Client {
            client: settings(self.builder()).build().unwrap(),
            kind: self.kind,
            longest_lease: self.longest_lease,
        }
    }

    /// A client whose waiters look by themselves once a minute only: whatever happens to them within seconds happens
    /// because they were woken.
    pub fn sleepy_client(&self) -> Client {
        self.client_with(|builder| builder.poll_interval(MINUTE))
    }

    /// The lock of a sleepy client of its own, with a lease that ends no sooner than that client looks.
    pub fn sleepy_lock(&self, fair: bool) -> Lock {
        sleepy(&self.sleepy_client(), fair)
    }

    /// How long the leases of its locks are unless a test says otherwise: the default, or the longest that it takes.
    pub fn lease(&self) -> Duration {
        self.longest_lease.unwrap_or(SECOND * 30)
    }

    /// The semaphore of a client of its own.
    pub fn semaphore(&self, limit: u32) -> Semaphore {
        self.client().semaphore("x", limit)
    }

    /// As [`sleepy_lock`](Self::sleepy_lock), of `limit` permits.
    pub fn sleepy_semaphore(&self, limit: u32) -> Semaphore {
        sleepy_permits(&self.sleepy_client(), limit)
    }

    /// Takes away all that stands at the server for this test, as a flush would. For stores that have keys.
    pub fn wipe(&self) {
        self.delete_keys(&format!("*{}*", self.prefix));
    }

    /// Takes away what stands for the holders of the semaphore that tests have, and nothing else.
    pub fn delete_holders(&self) {
        self.delete_keys(&format!("{}semaphore:x", self.prefix));
    }

    fn delete_keys(&self, pattern: &str) {
        assert!(self.servers.delete(pattern) > 0, "nothing stands at {pattern}");
    }

    /// Waits until so many wait for what is `wanted`, as its `inspect` counts them.
    #[track_caller]
    pub fn wait_for_waiters(&self, wanted: &impl Acquire, count: usize) {
        wait_until(&format!("{count} waiters"), PROMPT, || {
            wanted.inspect().unwrap().waiters == count
        });
    }
}

/// What somebody may wait for.
pub trait Acquire: Clone + Send + 'static {
    fn acquire_with(&self, wait: Wait) -> Result<Guard, Error>;
    fn inspect(&self) -> Result<Inspection, Error>;
}

impl Acquire for Lock {
    fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        self.acquire_with(wait)
    }

    fn inspect(&self) -> Result<Inspection, Error> {
        self.inspect()
    }
}

impl Acquire for Semaphore {
    fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        self.acquire_with(wait)
    }

    fn inspect(&self) -> Result<Inspection, Error> {
        self.inspect()
    }
}

/// The lock that tests about waiting need but one of, with a lease of a minute.
pub fn sleepy(client: &Client, fair: bool) -> Lock {
    client.lock("x").lease(MINUTE).fair(fair)
}

/// The semaphore that tests about waiting need but one of, with a lease of a minute.
pub fn sleepy_permits(client: &Client, limit: u32) -> Semaphore {
    client.semaphore("x", limit).lease(MINUTE)
}

/// Has all served who wait, and each release what it got, in whatever order the machine runs them.
#[track_caller]
pub fn serve_in_any_order(mut waiters: Vec<Waiter>) {
    while !waiters.is_empty() {
        wait_until("one more to be served", PROMPT, || {
            waiters.iter().any(Waiter::has_ended)
        });
        let nth = waiters.iter().position(Waiter::has_ended).unwrap();
        waiters.remove(nth).served().release().unwrap();
    }
}

/// Shows that nothing is left of those who waited: so many are free, and nobody counts as waiting. Those whose wait has
/// ended in vain, or with a hand-over, take their places back in the background.
#[track_caller]
pub fn assert_free(semaphore: &Semaphore, available: u32) {
    wait_until("nothing to be left of waiters", PROMPT, || {
        let seen = semaphore.inspect().unwrap();
        seen.available() == available && seen.waiters == 0
    });
}

/// Leaves what is `wanted` taken as a crash would: no release, and of a timed one no renewal.
pub fn crash(wanted: &impl Acquire) -> u64 {
    let guard = wanted.acquire_with(Wait::forever()).unwrap();
    let fencing_token = guard.fencing_token();
    std::mem::forget(guard);
    fencing_token
}

/// A thread that waits for a lock or permits, and may be told not to. It does not wait for ever: a test that fails
/// ends.
pub struct Waiter<'scope> {
    thread: ScopedJoinHandle<'scope, (Result<Guard, Error>, Duration)>,
    limit: Duration,
    cancel: CancelToken,
}

impl<'scope> Waiter<'scope> {
    pub fn start(scope: &'scope Scope<'scope, '_>, wanted: &impl Acquire) -> Self {
        Self::start_for(scope, wanted, LIMIT)
    }

    /// One that waits for `limit` at most.
    pub fn start_for(scope: &'scope Scope<'scope, '_>, wanted: &impl Acquire, limit: Duration) -> Self {
        let (wanted, cancel) = (wanted.clone(), CancelToken::new());
        let wait = Wait::at_most(limit).cancelled_by(&cancel);
        Self {
            thread: scope.spawn(move || {
                let start = Instant::now();
                (wanted.acquire_with(wait), start.elapsed())
            }),
            limit,
            cancel,
        }
    }

    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    pub fn outcome(self) -> Result<Guard, Error> {
        self.thread.join().unwrap().0
    }

    /// Its guard, which it got because it was woken: not by the last look that ends each wait.
    #[track_caller]
    pub fn served(self) -> Guard {
        let (outcome, waited) = self.thread.join().unwrap();
        let guard = outcome.unwrap();
        assert!(waited < self.limit - SECOND, "it was not woken: {waited:?}");
        guard
    }
}

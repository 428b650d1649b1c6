//! The stores, and what a test has of one to itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread::{Scope, ScopedJoinHandle},
    time::Duration,
};

use redlatch::{CancelToken, Client, ClientBuilder, Error, Guard, Lock, Wait};

use crate::support::{self, SECOND, Server, wait_until};

/// How often waiters look by themselves, and how long leases last, where a test is about being woken.
pub const MINUTE: Duration = SECOND.saturating_mul(60);

/// How long anything may take on a busy machine that happens because somebody was woken.
pub const PROMPT: Duration = SECOND.saturating_mul(10);

/// How long waits last that are to be served: longer than what is prompt, so that what comes late is told apart from
/// what never comes, and shorter than what happens without being woken.
const LIMIT: Duration = SECOND.saturating_mul(30);

/// A store with a corner of its own for one test.
pub struct Store {
    url: String,
    pub prefix: String,
    _server: Option<Arc<Server>>,
}

impl Store {
    fn new(url: String, server: Option<Arc<Server>>) -> Self {
        static TESTS: AtomicU32 = AtomicU32::new(0);
        Self {
            url,
            prefix: format!("test-{}:", TESTS.fetch_add(1, Ordering::Relaxed)),
            _server: server,
        }
    }

    pub fn redis() -> Self {
        let server = support::shared();
        Self::new(server.url(), Some(server))
    }

    pub fn memory() -> Self {
        Self::new("memory://conformance".into(), None)
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder().url(&self.url).prefix(&self.prefix)
    }

    /// A client as another process would have it.
    pub fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// A client whose waiters look by themselves once a minute only: whatever happens to them within seconds happens
    /// because they were woken.
    pub fn sleepy_client(&self) -> Client {
        self.builder().poll_interval(MINUTE).build().unwrap()
    }

    /// The lock of a sleepy client of its own, with a lease that ends no sooner than that client looks.
    pub fn sleepy_lock(&self, fair: bool) -> Lock {
        sleepy(&self.sleepy_client(), fair)
    }

    /// Waits until so many wait for `lock`, as its `inspect` counts them.
    #[track_caller]
    pub fn wait_for_waiters(&self, lock: &Lock, count: usize) {
        wait_until(&format!("{count} waiters"), PROMPT, || {
            lock.inspect().unwrap().waiters == count
        });
    }
}

/// The lock that tests about waiting need but one of, with a lease of a minute.
pub fn sleepy(client: &Client, fair: bool) -> Lock {
    client.lock("x").lease(MINUTE).fair(fair)
}

/// Leaves the lock taken as a crash would: no release, no renewal.
pub fn crash(lock: &Lock) -> u64 {
    let guard = lock.acquire().unwrap();
    let fencing_token = guard.fencing_token();
    std::mem::forget(guard);
    fencing_token
}

/// A thread that waits for a lock, and may be told not to. It does not wait for ever: a test that fails ends.
pub struct Waiter<'scope> {
    thread: ScopedJoinHandle<'scope, Result<Guard, Error>>,
    cancel: CancelToken,
}

impl<'scope> Waiter<'scope> {
    pub fn start(scope: &'scope Scope<'scope, '_>, lock: &Lock) -> Self {
        Self::start_for(scope, lock, LIMIT)
    }

    /// One that waits for `limit` at most.
    pub fn start_for(scope: &'scope Scope<'scope, '_>, lock: &Lock, limit: Duration) -> Self {
        let (lock, cancel) = (lock.clone(), CancelToken::new());
        let wait = Wait::at_most(limit).cancelled_by(&cancel);
        Self {
            thread: scope.spawn(move || lock.acquire_with(wait)),
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
        self.thread.join().unwrap()
    }

    #[track_caller]
    pub fn served(self) -> Guard {
        self.outcome().unwrap()
    }
}

//! What a scenario plays in, and what is watched there.

use std::{collections::HashMap, sync::Arc, time::Duration};

use shuttle::rand::{Rng, thread_rng};

use super::recorder::{Event, Recorder, What};
use crate::{
    Client, Error, Guard, Lock, MultiLock, Semaphore, Wait,
    client::Core,
    clock::{Clock, ManualClock, Moment},
    keys::Keyspace,
    store::{self, Found, Hold, Store, Token, memory::MemoryStore},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        interleaved::time,
        thread::{self, JoinHandle},
    },
};

pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);
const COMMAND: Duration = Duration::from_secs(5);

/// The clock of the check.
struct Hands(Moment);

impl Clock for Hands {
    fn now(&self) -> Moment {
        self.0 + time::elapsed()
    }

    fn block_for(&self, limit: Duration) -> Duration {
        limit
    }
}

/// What a thread may take.
pub(super) trait Resource: Send + 'static {
    fn acquire(&self, wait: Wait) -> Result<Guard, Error>;
}

impl Resource for Lock {
    fn acquire(&self, wait: Wait) -> Result<Guard, Error> {
        self.acquire_with(wait)
    }
}

impl Resource for MultiLock {
    fn acquire(&self, wait: Wait) -> Result<Guard, Error> {
        self.acquire_with(wait)
    }
}

impl Resource for Semaphore {
    fn acquire(&self, wait: Wait) -> Result<Guard, Error> {
        self.acquire_with(wait)
    }
}

/// One store, its clients, and who holds the one lock, or permits of the one semaphore, that all of them want.
pub(super) struct World {
    /// How many permits there are: 1 for a lock.
    limit: u32,
    store: Recorder,
    clock: Arc<dyn Clock>,
    guards: Mutex<Vec<Arc<Guard>>>,
    fencing_tokens: std::sync::Mutex<Vec<u64>>,
    lost: std::sync::Mutex<Vec<String>>,
    complaints: std::sync::Mutex<Vec<String>>,
    /// Whether leases are lost in this scenario.
    losses: bool,
    moving: AtomicBool,
}

impl World {
    /// One in which nothing is lost.
    pub(super) fn new() -> Arc<Self> {
        Self::with(1, false)
    }

    /// One in which nothing is lost, and so many permits are wanted.
    pub(super) fn of_permits(limit: u32) -> Arc<Self> {
        Self::with(limit, false)
    }

    pub(super) fn with_losses() -> Arc<Self> {
        Self::with(1, true)
    }

    fn with(limit: u32, losses: bool) -> Arc<Self> {
        time::begin();
        fastrand::seed(thread_rng().r#gen());
        let clock = Arc::new(Hands(ManualClock::default().now()));
        Arc::new(Self {
            limit,
            store: Recorder {
                memory: MemoryStore::new(clock.clone()),
                log: Arc::default(),
            },
            clock,
            guards: Mutex::default(),
            fencing_tokens: std::sync::Mutex::default(),
            lost: std::sync::Mutex::default(),
            complaints: std::sync::Mutex::default(),
            losses,
            moving: AtomicBool::new(true),
        })
    }

    pub(super) fn client(&self) -> Client {
        let store = Arc::new(self.store.clone());
        let keyspace = Keyspace::default();
        Client::new(Core::new(store, self.clock.clone(), keyspace, COMMAND, POLL_INTERVAL))
    }

    /// One that hears knocks already. Until then a waiter looks again and again, for which time would have to pass.
    pub(super) fn listening_client(&self) -> Client {
        let client = self.client();
        let core = client.core().unwrap();
        core.knocks.start().unwrap();
        while !core.knocks.are_heard() {
            thread::yield_now();
        }
        client
    }

    /// The lock that everybody wants.
    pub(super) fn lock(&self, client: &Client) -> Lock {
        client.lock("x").lease(LEASE)
    }

    /// The semaphore that everybody wants.
    pub(super) fn semaphore(&self, client: &Client) -> Semaphore {
        client.semaphore("x", self.limit).lease(LEASE)
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.store.log.events()
    }

    /// Has somebody delete the key under the holder.
    pub(super) fn evict(&self, guard: &Guard) {
        let hold = Hold {
            resource: store::Resource::lock("lock:x"),
            token: Token::found(guard.token().as_bytes()),
        };
        let _ = self.store.evict(&hold, COMMAND);
    }

    /// Notes that the loss of this one is known.
    pub(super) fn lost(&self, guard: &Guard) {
        self.lost.lock().unwrap().push(guard.token().to_owned());
    }

    /// Notes that something is not as it should be. Told at the end: a thread that panics in the middle would take
    /// others with it.
    pub(super) fn complain(&self, complaint: impl Into<String>) {
        self.complaints.lock().unwrap().push(complaint.into());
    }

    /// Notes that the lock was acquired.
    pub(super) fn enter(&self, guard: Guard) -> Arc<Guard> {
        let guard = Arc::new(guard);
        let mut guards = self.guards.lock();
        if guard.is_held() {
            // Held at the first and the last look is held at the one between.
            let others = guards.iter().filter(|other| other.is_held() && guard.is_held());
            if others.map(|other| other.permits()).sum::<u32>() + guard.permits() > self.limit {
                self.complain("more is held than there is");
            }
            let mut before = self.fencing_tokens.lock().unwrap();
            // Those who hold permits at the same time may come here in any order.
            let is_too_small = |other: &u64| {
                let own = guard.fencing_token();
                *other == own || self.limit == 1 && *other > own
            };
            if before.iter().any(is_too_small) {
                self.complain("a fencing token does not rise");
            }
            before.push(guard.fencing_token());
        } else if !self.losses {
            self.complain("it was lost when it was acquired");
        }
        if self.lost.lock().unwrap().iter().any(|token| token == guard.token()) {
            self.complain("what was lost was handed on");
        }
        guards.push(guard.clone());
        guard
    }

    /// Notes that the lock is about to be released.
    pub(super) fn leave(&self, guard: Arc<Guard>) -> Guard {
        self.guards.lock().retain(|other| !Arc::ptr_eq(other, &guard));
        Arc::into_inner(guard).expect("nobody else has it")
    }

    /// Waits for the resource, holds it, and releases it. Tells whether it was acquired.
    pub(super) fn take(&self, resource: &impl Resource, wait: Wait) -> bool {
        match resource.acquire(wait) {
            Ok(guard) => {
                let guard = self.enter(guard);
                self.release(self.leave(guard));
                true
            }
            Err(Error::Timeout { .. } | Error::Cancelled) => false,
            Err(error) => {
                self.complain(format!("an acquire failed: {error}"));
                false
            }
        }
    }

    /// Releases the lock in one way or the other.
    pub(super) fn release(&self, guard: Guard) {
        if thread_rng().gen_bool(0.5) {
            return drop(guard);
        }
        match guard.release() {
            Ok(()) => {}
            Err(Error::Lost(_) | Error::Unconfirmed(_)) if self.losses => {}
            Err(error) => self.complain(format!("a release failed: {error}")),
        }
    }

    /// Starts a thread that lets time pass, from the end of one wait to that of another, until it is
    /// [stopped](Self::stop).
    pub(super) fn start_time(self: &Arc<Self>) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || {
            while world.moving.load(Ordering::SeqCst) {
                for _ in 0..thread_rng().gen_range(0..60) {
                    thread::yield_now();
                }
                if let Some(step) = time::to_next_end() {
                    let whole = thread_rng().gen_bool(0.8);
                    time::pass(if whole { step } else { step / 2 });
                }
            }
        })
    }

    pub(super) fn stop_time(&self, time: JoinHandle<()>) {
        self.moving.store(false, Ordering::SeqCst);
        time.join().unwrap();
    }

    /// Checks that no thread of these clients holds anything or waits, and lets the clients go.
    pub(super) fn close(&self, clients: impl IntoIterator<Item = Client>) {
        for client in clients {
            let core = client.core().unwrap();
            if !core.gate.is_empty() {
                self.complain("something is left in the gate");
            }
            if !core.knocks.is_empty() {
                self.complain("somebody still expects a knock");
            }
            drop(client);
        }
    }

    /// The end of a scenario in which time stood still: nothing may be left at the store.
    pub(super) fn ends_clean(&self) {
        if !self.store.memory.is_empty() {
            self.complain("something is left at the store");
        }
        self.ends();
    }

    /// Tells what was not as it should be.
    pub(super) fn ends(&self) {
        self.check_log();
        let complaints = self.complaints.lock().unwrap();
        assert!(complaints.is_empty(), "{complaints:?}\n{:#?}", self.events());
    }

    /// Checks that all had their turns in the order of their places.
    pub(super) fn check_turns(&self) {
        let mut places: HashMap<Token, u64> = HashMap::new();
        for Event { what, token } in self.events() {
            match what {
                What::Busy(Some(place)) => {
                    places.insert(token, place);
                }
                What::Granted(..) => {
                    let own = places.remove(&token).unwrap_or(u64::MAX);
                    if places.values().any(|place| *place < own) {
                        self.complain("one that came later was served before");
                    }
                }
                What::GoesOut => {
                    places.remove(&token);
                }
                What::Busy(None) | What::Renewed(_) | What::Released(_) | What::Kept(..) => {}
            }
        }
    }

    fn check_log(&self) {
        let mut last = 0;
        let mut released: Vec<Token> = Vec::new();
        for Event { what, token } in self.events() {
            let is_over = released.contains(&token);
            match what {
                What::Granted(first, end) | What::Kept(first, end) => {
                    if first <= last {
                        self.complain("fencing tokens do not rise at the store");
                    }
                    if is_over {
                        self.complain("a token was granted after its release");
                    }
                    last = end;
                }
                What::Released(_) => released.push(token),
                What::Renewed(found) => {
                    let again = is_over && released.iter().filter(|other| **other == token).count() > 1;
                    if again {
                        self.complain("a token was renewed twice after its release");
                    }
                    if is_over && found == Found::Ours {
                        self.complain("a token was renewed after its release");
                    }
                    if is_over {
                        // One may have been on its way.
                        released.push(token);
                    }
                }
                What::Busy(_) | What::GoesOut => {}
            }
        }
    }
}

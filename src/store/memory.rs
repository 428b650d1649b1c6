//! The store in this process: no server, same answers.

use std::{
    collections::HashMap,
    process,
    sync::{Arc, OnceLock, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{Acquired, Auditor, Chore, Failure, Found, Hold, Store, Token, Upkeep, millis_rounded_up};
use crate::{
    Expiry, Finding, Holder, Inspection,
    clock::{Clock, Moment},
    sync::Mutex,
};

/// Grants in this process's memory.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    grants: HashMap<Arc<[u8]>, Grant>,
    /// One counter for all names: it rises within each of them, and no name leaves anything behind.
    fencing_token: u64,
    /// How many grants may stand before expired ones are looked for.
    sweep_above: usize,
}

struct Grant {
    token: Token,
    ends: Moment,
    fencing_token: u64,
}

/// The stores of one process by URL, so that all clients of a URL share one.
///
/// A forked child makes a node of its own behind its parent's, since the parent's mutex may have been locked by a
/// thread that the child does not have.
struct Registry {
    process: u32,
    stores: Mutex<HashMap<String, Weak<Mutex<State>>>>,
    child: OnceLock<Box<Registry>>,
}

static REGISTRY: OnceLock<Registry> = OnceLock::new();

impl Registry {
    fn new() -> Self {
        Self {
            process: process::id(),
            stores: Mutex::default(),
            child: OnceLock::new(),
        }
    }

    fn of_this_process() -> &'static Self {
        let mut registry = REGISTRY.get_or_init(Self::new);
        while registry.process != process::id() {
            registry = registry.child.get_or_init(|| Box::new(Self::new()));
        }
        registry
    }
}

impl MemoryStore {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Arc::default(),
        }
    }

    /// The store that all clients of `url` in this process share, for as long as one of them exists.
    pub(crate) fn shared(url: &str, clock: Arc<dyn Clock>) -> Self {
        let mut stores = Registry::of_this_process().stores.lock();
        stores.retain(|_, state| state.strong_count() > 0);
        match stores.get(url).and_then(Weak::upgrade) {
            Some(state) => Self { clock, state },
            None => {
                let store = Self::new(clock);
                stores.insert(url.to_owned(), Arc::downgrade(&store.state));
                store
            }
        }
    }
}

impl State {
    /// What stands at the key of `hold`, seen by the owner of its token.
    fn find(&mut self, hold: &Hold, now: Moment) -> Found {
        match self.grants.get(&hold.key) {
            None => Found::Nothing,
            Some(grant) if grant.ends <= now => {
                self.grants.remove(&hold.key);
                Found::Nothing
            }
            Some(grant) if grant.token == hold.token => Found::Ours,
            Some(_) => Found::Anothers,
        }
    }

    /// Makes the grant of `hold` last at least until `ends`.
    fn prolong(&mut self, hold: &Hold, ends: Moment) {
        if let Some(grant) = self.grants.get_mut(&hold.key) {
            grant.ends = grant.ends.max(ends);
        }
    }

    /// Grants the key of `hold` until `ends`, or longer if it was the token's already; returns the fencing token.
    fn grant(&mut self, hold: &Hold, ends: Moment, now: Moment) -> u64 {
        if self.grants.len() > self.sweep_above {
            self.grants.retain(|_, grant| grant.ends > now);
            self.sweep_above = 2 * self.grants.len() + 64;
        }
        let fencing_token = self.next_fencing_token();
        let grant = self.grants.entry(hold.key.clone()).or_insert_with(|| Grant {
            token: hold.token.clone(),
            ends,
            fencing_token,
        });
        grant.ends = grant.ends.max(ends);
        grant.fencing_token = fencing_token;
        fencing_token
    }

    fn next_fencing_token(&mut self) -> u64 {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.fencing_token = (self.fencing_token + 1).max(time.as_micros() as u64);
        self.fencing_token
    }
}

/// The end of a lease as a server keeps it, in whole milliseconds.
fn end_of(lease: Duration, now: Moment) -> Moment {
    now + Duration::from_millis(millis_rounded_up(lease))
}

impl Store for MemoryStore {
    fn acquire(&self, hold: &Hold, lease: Duration, _: Duration) -> Result<Acquired, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        if state.find(hold, now) == Found::Anothers {
            let ttl = Some(now.until(state.grants[&hold.key].ends));
            return Ok(Acquired::Busy { ttl });
        }
        let fencing_token = state.grant(hold, end_of(lease, now), now);
        Ok(Acquired::Granted { fencing_token })
    }

    fn renew(&self, hold: &Hold, lease: Duration, _: Duration) -> Result<Found, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let found = state.find(hold, now);
        if found == Found::Ours {
            state.prolong(hold, end_of(lease, now));
        }
        Ok(found)
    }

    fn release(&self, hold: &Hold, _: u64, _: bool, timeout: Duration) -> Result<Found, Failure> {
        self.evict(hold, timeout)
    }

    fn evict(&self, hold: &Hold, _: Duration) -> Result<Found, Failure> {
        let mut state = self.state.lock();
        let found = state.find(hold, self.clock.now());
        if found == Found::Ours {
            state.grants.remove(&hold.key);
        }
        Ok(found)
    }

    fn inspect(&self, key: &[u8], _: Duration) -> Result<Inspection, Failure> {
        let state = self.state.lock();
        let now = self.clock.now();
        let held = |grant: &Grant| {
            let holder = Holder::new(
                grant.token.as_bytes(),
                Expiry::In(Duration::from_millis(now.until(grant.ends).as_millis() as u64)),
            );
            Inspection::held(holder, Some(grant.fencing_token))
        };
        let grant = state.grants.get(key).filter(|grant| grant.ends > now);
        Ok(grant.map_or_else(Inspection::free, held))
    }

    fn auditor(&self, _: &[u8]) -> Box<dyn Auditor> {
        Box::new(NothingToFind)
    }

    fn upkeep(&self) -> Box<dyn Upkeep> {
        Box::new(self.clone())
    }
}

/// Nothing stands here but grants, and all of them end.
struct NothingToFind;

impl Auditor for NothingToFind {
    fn next_page(&mut self, _: Duration) -> Result<Option<Vec<Finding>>, Failure> {
        Ok(None)
    }
}

impl Upkeep for MemoryStore {
    fn perform(&mut self, chores: &[Chore], timeout: Duration) -> Vec<Result<Found, Failure>> {
        let perform = |chore: &Chore| match chore {
            Chore::Renew(hold, lease) => self.renew(hold, *lease, timeout),
            Chore::Release(hold) => self.evict(hold, timeout),
        };
        chores.iter().map(perform).collect()
    }
}

//! The store in this process: no server, same answers.

mod inbox;
mod queue;
mod slot;

use std::{
    collections::{BTreeMap, HashMap},
    process,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use self::{inbox::Inboxes, slot::Slot};
use super::{
    Acquired, Ask, AskSeveral, Auditor, Channel, Chore, Failure, Found, Hold, Listener, Replicas, Resource, Sequel,
    SeveralAcquired, Spent, Store, Turn, Upkeep, Wishes,
};
use crate::{
    Error, Expiry, Finding, Holder, Inspection,
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
    /// By key, and by whether they are locks': on a server the two kinds can stand at the same key one after the other.
    slots: HashMap<(Arc<[u8]>, bool), Slot>,
    inboxes: Inboxes,
    /// One counter for all names: it rises within each of them, and no name leaves anything behind.
    fencing_token: u64,
    /// How many slots may stand before idle ones are looked for.
    sweep_above: usize,
}

/// The stores of one process by URL, so that all clients of a URL share one.
///
/// A forked child makes a node of its own behind its parent's, since the parent's mutex may have been locked by a
/// thread that the child does not have.
struct Registry {
    /// 0 for none yet. The first node is there from the beginning, since a thread that was making it could be missing
    /// in a child, too.
    process: AtomicU32,
    stores: Mutex<BTreeMap<String, Weak<Mutex<State>>>>,
    child: OnceLock<Box<Registry>>,
}

static REGISTRY: Registry = Registry::new(0);

impl Registry {
    const fn new(process: u32) -> Self {
        Self {
            process: AtomicU32::new(process),
            stores: Mutex::new(BTreeMap::new()),
            child: OnceLock::new(),
        }
    }

    fn of_this_process() -> &'static Self {
        let process = process::id();
        let mut registry = &REGISTRY;
        while !registry.is_of(process) {
            let child = Box::new(Self::new(process));
            registry = registry.child.get_or_init(|| child);
        }
        registry
    }

    fn is_of(&self, process: u32) -> bool {
        let claimed = self
            .process
            .compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed);
        claimed.unwrap_or_else(|owner| owner) == process || claimed.is_ok()
    }
}

impl MemoryStore {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Arc::default(),
        }
    }

    /// Whether nothing is held, left to anybody, or waited for.
    #[cfg(all(test, shuttle))]
    pub(crate) fn is_empty(&self) -> bool {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.slots.values_mut().all(|slot| slot.is_empty(now))
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
    /// What stands at the key of `resource`, without what has ended; made if there is nothing.
    fn slot(&mut self, resource: &Resource, now: Moment) -> (&mut Slot, &mut Inboxes) {
        if self.slots.len() > self.sweep_above {
            self.slots.retain(|_, slot| !slot.is_idle(now));
            self.sweep_above = 2 * self.slots.len() + 64;
        }
        let slot = self.slots.entry((resource.key.clone(), resource.is_exclusive()));
        let slot = slot.or_insert_with(|| Slot::new(resource, now));
        slot.expire(now);
        (slot, &mut self.inboxes)
    }

    /// As [`slot`](Self::slot), for a caller that expects its own kind there.
    fn own_slot(&mut self, resource: &Resource, now: Moment) -> Result<(&mut Slot, &mut Inboxes), Failure> {
        if self.is_of_the_other_kind(resource, now) {
            return Err(Failure::KeyConflict(resource.key.to_vec()));
        }
        let (slot, inboxes) = self.slot(resource, now);
        match slot.declared_otherwise(resource, now) {
            Some(stored) => Err(Failure::LimitMismatch {
                key: resource.key.to_vec(),
                declared: resource.limit(),
                stored,
            }),
            None => Ok((slot, inboxes)),
        }
    }

    /// Whether what stands at the key is of the other kind.
    fn is_of_the_other_kind(&mut self, resource: &Resource, now: Moment) -> bool {
        let other = self.slots.get_mut(&(resource.key.clone(), !resource.is_exclusive()));
        other.is_some_and(|slot| {
            slot.expire(now);
            !slot.grants.is_empty()
        })
    }

    /// What there is of `hold`, seen by the owner of its token.
    fn find(&mut self, hold: &Hold, now: Moment) -> Found {
        let conflict = self.is_of_the_other_kind(&hold.resource, now);
        let (slot, _) = self.slot(&hold.resource, now);
        if slot.held_by(&hold.token).is_some() {
            Found::Ours
        } else if conflict || hold.resource.is_exclusive() && !slot.grants.is_empty() {
            Found::Anothers
        } else {
            Found::Nothing
        }
    }

    fn release(&mut self, hold: &Hold, now: Moment) -> Found {
        let found = self.find(hold, now);
        if found == Found::Ours {
            let (slot, inboxes) = self.slot(&hold.resource, now);
            slot.release(&hold.token);
            slot.serve(inboxes, now);
        }
        found
    }

    fn withdraw(&mut self, hold: &Hold, now: Moment) {
        let (slot, inboxes) = self.slot(&hold.resource, now);
        slot.withdraw(&hold.token);
        slot.serve(inboxes, now);
    }

    /// The first of `count` fencing tokens in a row, for `resource`.
    fn next_fencing_tokens(&mut self, resource: &Resource, count: u32, now: Moment) -> u64 {
        let first = (self.fencing_token + 1).max(clock_micros());
        self.fencing_token = first + u64::from(count) - 1;
        self.slot(resource, now).0.fencing_token = first;
        first
    }
}

fn clock_micros() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time.as_micros() as u64
}

impl Store for MemoryStore {
    fn admit(&self, _: &Resource, wishes: &Wishes) -> Result<(), Error> {
        if wishes.replicas {
            return Err(Error::Unsupported(
                "no replica can confirm what is kept in this process alone".to_owned(),
            ));
        }
        Ok(())
    }

    fn acquire(&self, ask: &Ask, _: Duration) -> Result<Acquired, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let resource = &ask.hold.resource;
        let (slot, inboxes) = state.own_slot(resource, now)?;
        let outcome = slot.acquire(ask, clock_micros(), now);
        // It may have left something: nobody else tells those who wait for permits that have ended by themselves, or
        // were left to this one.
        slot.serve(inboxes, now);
        if let Err(busy) = outcome {
            return Ok(busy);
        }
        let fencing_token = state.next_fencing_tokens(resource, ask.fencing_tokens, now);
        Ok(Acquired::Granted { fencing_token })
    }

    fn together(&self, _: &Resource, _: &Resource) -> bool {
        true
    }

    fn acquire_several(&self, ask: &AskSeveral, _: Duration) -> Result<SeveralAcquired, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let mut taken = None;
        for (at, hold) in ask.holds.iter().enumerate() {
            let (slot, _) = state.own_slot(&hold.resource, now)?;
            if slot.is_taken_from(&hold.token) {
                taken = Some(at);
                break;
            }
        }
        let granted = taken.unwrap_or(ask.holds.len());
        let granted = if ask.all_or_none && taken.is_some() { 0 } else { granted };
        let mut fencing_tokens = Vec::new();
        for hold in &ask.holds[..granted] {
            let (slot, _) = state.slot(&hold.resource, now);
            // It was found free, or its already.
            let _ = slot.acquire(&ask.one(hold), clock_micros(), now);
            fencing_tokens.push(state.next_fencing_tokens(&hold.resource, 1, now));
        }
        Ok(SeveralAcquired { fencing_tokens, taken })
    }

    fn renew(&self, hold: &Hold, lease: Duration, _: Option<Replicas>, _: Duration) -> Result<Found, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let found = state.find(hold, now);
        if found == Found::Ours {
            state.slot(&hold.resource, now).0.prolong(&hold.token, lease, now);
        }
        Ok(found)
    }

    fn release(&self, spent: &Spent, _: bool, _: Duration) -> Result<Found, Failure> {
        Ok(self.state.lock().release(spent.hold, self.clock.now()))
    }

    fn turn(&self, spent: &Spent, sequel: &Sequel, _: Duration) -> Result<Turn, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let Hold { resource, token } = spent.hold;
        let (slot, inboxes) = state.slot(resource, now);
        let others_first = !sequel.insists && slot.waited_for_by_others_than(sequel.heir, now);
        if slot.held_by(token).is_none() || others_first || slot.is_overdrawn() {
            return Ok(Turn::Left(state.release(spent.hold, now)));
        }
        slot.prolong(token, sequel.lease, now);
        if sequel.heir_leaves {
            slot.withdraw(sequel.heir);
            slot.serve(inboxes, now);
        }
        let fencing_token = state.next_fencing_tokens(resource, sequel.fencing_tokens, now);
        Ok(Turn::Kept { fencing_token })
    }

    fn evict(&self, hold: &Hold, _: Duration) -> Result<Found, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.withdraw(hold, now);
        Ok(state.release(hold, now))
    }

    fn inspect(&self, resource: &Resource, _: Duration) -> Result<Inspection, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        if state.is_of_the_other_kind(resource, now) {
            return Err(Failure::KeyConflict(resource.key.to_vec()));
        }
        let (slot, _) = state.slot(resource, now);
        let (held, left): (Vec<_>, Vec<_>) = slot.grants.iter().partition(|grant| !grant.claim);
        let holder = |grant: &&slot::Grant| Holder {
            token: grant.token.as_bytes().to_vec(),
            expiry: Expiry::In(Duration::from_millis(now.until(grant.ends).as_millis() as u64)),
            permits: grant.resource.permits(),
        };
        let kept = slot.declared_otherwise(resource, now);
        Ok(Inspection {
            fencing_token: (!held.is_empty()).then_some(slot.fencing_token),
            holders: held.iter().map(holder).collect(),
            waiters: slot.queue.len(now),
            reserved: left.iter().map(|grant| grant.resource.permits()).sum(),
            limit: slot.limit_at(now).unwrap_or(resource.limit()),
            declared_limit: kept.unwrap_or(resource.limit()),
        })
    }

    fn set_limit(&self, resource: &Resource, limit: u32, _: Duration) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let (slot, inboxes) = state.own_slot(resource, now)?;
        slot.set_limit(resource, limit, now);
        slot.serve(inboxes, now);
        Ok(())
    }

    fn listener(&self, channel: &Channel) -> Box<dyn Listener> {
        Box::new(self.state.lock().inboxes.open(channel))
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
            Chore::Renew(hold, lease, replicas) => self.renew(hold, *lease, *replicas, timeout),
            Chore::Evict(hold) => self.evict(hold, timeout),
            Chore::Withdraw(hold) => {
                self.state.lock().withdraw(hold, self.clock.now());
                Ok(Found::Nothing)
            }
        };
        chores.iter().map(perform).collect()
    }
}

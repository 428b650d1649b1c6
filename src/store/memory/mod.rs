//! The store in this process: no server, same answers.

mod inbox;
mod queue;

use std::{
    collections::HashMap,
    process,
    sync::{Arc, OnceLock, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use self::{
    inbox::{Inbox, InboxListener},
    queue::Queue,
};
use super::{
    Acquired, Ask, Auditor, Channel, Chore, Failure, Found, Hold, Knock, Listener, Spent, Store, Token, Turn, Upkeep,
    millis_rounded_up,
};
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
    /// Those who wait, by key. Empty ones are removed.
    queues: HashMap<Arc<[u8]>, Queue>,
    /// Where the clients that listen are knocked for.
    inboxes: HashMap<Channel, Weak<Inbox>>,
    /// One counter for all names: it rises within each of them, and no name leaves anything behind.
    fencing_token: u64,
    /// How many grants may stand before expired ones are looked for.
    sweep_above: usize,
}

struct Grant {
    token: Token,
    ends: Moment,
    fencing_token: u64,
    /// Whether the key is only kept for its token, which was knocked for.
    claim: bool,
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

    /// Whether nothing is held, left to anybody, or waited for.
    #[cfg(all(test, shuttle))]
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.grants.is_empty() && state.queues.is_empty()
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

impl MemoryStore {
    fn withdraw(&self, hold: &Hold) -> Found {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.take_out(hold);
        if state
            .standing(&hold.key, now)
            .is_some_and(|grant| grant.claim && grant.token == hold.token)
        {
            state.leave(&hold.key, now);
        }
        Found::Nothing
    }
}

impl State {
    /// What stands at the key of `hold`, seen by the owner of its token.
    fn find(&mut self, hold: &Hold, now: Moment) -> Found {
        match self.standing(&hold.key, now) {
            None => Found::Nothing,
            Some(grant) if grant.token == hold.token && !grant.claim => Found::Ours,
            Some(_) => Found::Anothers,
        }
    }

    /// What stands at `key` and has not ended.
    fn standing(&mut self, key: &Arc<[u8]>, now: Moment) -> Option<&mut Grant> {
        if self.grants.get(key).is_some_and(|grant| grant.ends <= now) {
            self.grants.remove(key);
        }
        self.grants.get_mut(key)
    }

    fn acquire(&mut self, ask: &Ask, now: Moment) -> Acquired {
        let Hold { key, token } = ask.hold;
        let head = ask.fair.then(|| self.first_waiter(key, now)).flatten();
        let its_place = ask.place.and_then(|place| place.number);
        let may_take = head
            .as_ref()
            .is_none_or(|(place, head)| head.token == *token || its_place.is_some_and(|own| own < *place));
        let busy_until = match self.standing(key, now) {
            Some(grant) if grant.token == *token => None,
            Some(grant) => Some(grant.ends),
            None if may_take => None,
            None => head.map(|(_, head)| head.lives_until),
        };
        if let Some(until) = busy_until {
            let queue = self.queues.entry(key.clone()).or_default();
            let place = match ask.place {
                Some(place) => Some(queue.enter(token, place, clock_micros(), now)),
                None => queue.place_of(token),
            };
            self.forget_if_empty(key);
            let ttl = Some(now.until(until));
            return Acquired::Busy { ttl, place };
        }
        self.take_out(ask.hold);
        let fencing_token = self.next_fencing_tokens(ask.fencing_tokens);
        self.grant(ask.hold, end_of(ask.lease, now), fencing_token, now);
        Acquired::Granted { fencing_token }
    }

    /// Grants the key of `hold` until `ends`, or longer if it was the token's already.
    fn grant(&mut self, hold: &Hold, ends: Moment, fencing_token: u64, now: Moment) {
        if self.grants.len() > self.sweep_above {
            self.grants.retain(|_, grant| grant.ends > now);
            self.queues.retain(|_, queue| queue.len(now) > 0);
            self.sweep_above = 2 * self.grants.len() + 64;
        }
        let had_it_until = self
            .standing(&hold.key, now)
            .filter(|grant| !grant.claim)
            .map(|grant| grant.ends);
        let grant = Grant {
            token: hold.token.clone(),
            ends: had_it_until.map_or(ends, |until| until.max(ends)),
            fencing_token,
            claim: false,
        };
        self.grants.insert(hold.key.clone(), grant);
    }

    /// Takes the key from whoever has it and leaves it to the first who waits, as a claim. One that is not strict about
    /// its turn is passed over if nobody hears the knock. The next two clients
    /// are told when the claim is over.
    fn leave(&mut self, key: &Arc<[u8]>, now: Moment) {
        self.grants.remove(key);
        while let Some((first, others)) = self.queues.get_mut(key).and_then(|queue| queue.call_first(now)) {
            let claim_ends = first.claim_ends(now);
            if self.knock(&first.channel, key, &first.token, Duration::ZERO) || first.claim.is_none() {
                let claim = Grant {
                    token: first.token,
                    ends: claim_ends,
                    fencing_token: self.fencing_token,
                    claim: true,
                };
                self.grants.insert(key.clone(), claim);
                let mut delay = now.until(claim_ends);
                for other in others.into_iter().take(2) {
                    self.knock(&other.channel, key, &other.token, delay);
                    delay *= 2;
                }
                break;
            }
            let hold = Hold {
                key: key.clone(),
                token: first.token,
            };
            self.take_out(&hold);
        }
        self.forget_if_empty(key);
    }

    /// Tells whether anybody hears it.
    fn knock(&mut self, channel: &Channel, key: &Arc<[u8]>, token: &Token, after: Duration) -> bool {
        let Some(inbox) = self.inboxes.get(channel).and_then(Weak::upgrade) else {
            self.inboxes.remove(channel);
            return false;
        };
        let hold = Hold {
            key: key.clone(),
            token: token.clone(),
        };
        inbox.leave(Knock { hold, after });
        true
    }

    fn first_waiter(&mut self, key: &Arc<[u8]>, now: Moment) -> Option<(u64, queue::Waiter)> {
        let first = self.queues.get_mut(key).and_then(|queue| queue.first(now));
        self.forget_if_empty(key);
        first
    }

    /// Takes a waiter out of its queue.
    fn take_out(&mut self, hold: &Hold) {
        if let Some(queue) = self.queues.get_mut(&hold.key) {
            queue.take_out(&hold.token);
        }
        self.forget_if_empty(&hold.key);
    }

    fn forget_if_empty(&mut self, key: &Arc<[u8]>) {
        if self.queues.get(key).is_some_and(Queue::is_empty) {
            self.queues.remove(key);
        }
    }

    /// The first of `count` fencing tokens in a row.
    fn next_fencing_tokens(&mut self, count: u32) -> u64 {
        let first = (self.fencing_token + 1).max(clock_micros());
        self.fencing_token = first + u64::from(count) - 1;
        first
    }
}

fn clock_micros() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time.as_micros() as u64
}

/// The end of a lease as a server keeps it, in whole milliseconds.
fn end_of(lease: Duration, now: Moment) -> Moment {
    now + Duration::from_millis(millis_rounded_up(lease))
}

impl Store for MemoryStore {
    fn acquire(&self, ask: &Ask, _: Duration) -> Result<Acquired, Failure> {
        Ok(self.state.lock().acquire(ask, self.clock.now()))
    }

    fn renew(&self, hold: &Hold, lease: Duration, _: Duration) -> Result<Found, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let found = state.find(hold, now);
        if let (Found::Ours, Some(grant)) = (found, state.standing(&hold.key, now)) {
            grant.ends = grant.ends.max(end_of(lease, now));
        }
        Ok(found)
    }

    fn release(&self, spent: &Spent, _: bool, _: Duration) -> Result<Found, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let found = state.find(spent.hold, now);
        if found == Found::Ours {
            state.leave(&spent.hold.key, now);
        }
        Ok(found)
    }

    fn turn(&self, spent: &Spent, lease: Duration, fencing_tokens: u32, _: Duration) -> Result<Turn, Failure> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let found = state.find(spent.hold, now);
        if found == Found::Ours {
            if state.first_waiter(&spent.hold.key, now).is_none() {
                let fencing_token = state.next_fencing_tokens(fencing_tokens);
                state.grant(spent.hold, end_of(lease, now), fencing_token, now);
                return Ok(Turn::Kept { fencing_token });
            }
            state.leave(&spent.hold.key, now);
        }
        Ok(Turn::Left(found))
    }

    fn evict(&self, hold: &Hold, timeout: Duration) -> Result<Found, Failure> {
        self.withdraw(hold);
        let fencing_token = 0;
        self.release(&Spent { hold, fencing_token }, false, timeout)
    }

    fn inspect(&self, key: &[u8], _: Duration) -> Result<Inspection, Failure> {
        let state = self.state.lock();
        let now = self.clock.now();
        let waiters = state.queues.get(key).map_or(0, |queue| queue.len(now));
        let held = |grant: &Grant| {
            let holder = Holder::new(
                grant.token.as_bytes(),
                Expiry::In(Duration::from_millis(now.until(grant.ends).as_millis() as u64)),
            );
            Inspection::held(holder, Some(grant.fencing_token), waiters)
        };
        match state.grants.get(key).filter(|grant| grant.ends > now) {
            Some(grant) if !grant.claim => Ok(held(grant)),
            other => Ok(Inspection::not_held(other.is_some(), waiters)),
        }
    }

    fn listener(&self, channel: &Channel) -> Box<dyn Listener> {
        let inbox = Arc::new(Inbox::default());
        let mut state = self.state.lock();
        state.inboxes.retain(|_, inbox| inbox.strong_count() > 0);
        state.inboxes.insert(channel.clone(), Arc::downgrade(&inbox));
        Box::new(InboxListener(inbox))
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
            Chore::Evict(hold) => self.evict(hold, timeout),
            Chore::Withdraw(hold) => Ok(self.withdraw(hold)),
        };
        chores.iter().map(perform).collect()
    }
}

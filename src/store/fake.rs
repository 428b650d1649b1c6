//! A store for tests of what stands above: the memory store on a manual clock, with faults to order.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{
    Acquired, Ask, AskSeveral, Auditor, Channel, Chore, Failure, Found, Hold, Knock, Listener, Replicas, Resource,
    Sequel, SeveralAcquired, Spent, Store, Token, Turn, Upkeep, because, memory::MemoryStore,
};
use crate::{
    Inspection,
    clock::{Clock, ManualClock, Moment},
    sync::Mutex,
};

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The server cannot be reached.
    Unreachable,
    /// The request runs, its answer never comes: the caller's timeout passes.
    SwallowReply,
    /// The request runs, then the connection is cut at once.
    CutAfter,
    /// The connection is cut before the request runs.
    CutBefore,
    /// The server is loading its data.
    Loading,
    /// The server does not permit it.
    NotPermitted,
    /// The answer takes this long.
    Slow(Duration),
}

/// A request that the store has seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Moment,
    pub(crate) what: &'static str,
    pub(crate) token: Token,
    pub(crate) timeout: Duration,
}

#[derive(Clone)]
pub(crate) struct FakeStore {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) memory: MemoryStore,
    /// Whether no knock is ever heard.
    pub(crate) deaf: bool,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl FakeStore {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        Self {
            memory: MemoryStore::new(clock.clone()),
            clock,
            deaf: true,
            faults: Arc::default(),
            seen: Arc::default(),
        }
    }

    /// Orders one fault for each of the next exchanges.
    pub(crate) fn then(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().extend(faults);
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// A hold of somebody else's on the key `name`, granted for `lease`.
    pub(crate) fn taken_by_another(&self, name: &str, lease: Duration) -> Hold {
        let hold = Hold::new(Resource::lock(name));
        self.grant(&hold, lease);
        hold
    }

    /// Has the server grant `hold` for `lease`, or find it busy.
    pub(crate) fn grant(&self, hold: &Hold, lease: Duration) {
        let ask = Ask {
            hold,
            lease,
            fencing_tokens: 1,
            fair: false,
            place: None,
            asked_for_place: false,
            replicas: None,
            interrupt: None,
        };
        self.memory.acquire(&ask, Duration::MAX).unwrap();
    }

    fn note(&self, what: &'static str, hold: &Hold, timeout: Duration) {
        self.seen.lock().push(Seen {
            at: self.clock.now(),
            what,
            token: hold.token.clone(),
            timeout,
        });
    }

    fn exchange<T>(&self, timeout: Duration, run: impl FnOnce() -> T) -> Result<T, Failure> {
        let fault = self.faults.lock().pop_front();
        match fault {
            None => Ok(run()),
            Some(Fault::Unreachable) => Err(Failure::Unreachable(because("connection refused"))),
            Some(Fault::SwallowReply) => {
                run();
                self.clock.advance(timeout);
                Err(Failure::Silent(because("timed out")))
            }
            Some(Fault::CutAfter) => {
                run();
                Err(Failure::Cut(because("connection reset")))
            }
            Some(Fault::CutBefore) => Err(Failure::Cut(because("broken pipe"))),
            Some(Fault::Loading) => Err(Failure::Unready(because("LOADING"))),
            Some(Fault::NotPermitted) => Err(Failure::Refused(because("NOPERM"))),
            Some(Fault::Slow(time)) => {
                let answer = run();
                self.clock.advance(time);
                Ok(answer)
            }
        }
    }
}

impl Store for FakeStore {
    fn acquire(&self, ask: &Ask, timeout: Duration) -> Result<Acquired, Failure> {
        self.note("acquire", ask.hold, timeout);
        self.exchange(timeout, || self.memory.acquire(ask, timeout))?
    }

    fn together(&self, _: &Resource, _: &Resource) -> bool {
        true
    }

    fn acquire_several(&self, ask: &AskSeveral, timeout: Duration) -> Result<SeveralAcquired, Failure> {
        for hold in ask.holds {
            self.note("acquire", hold, timeout);
        }
        self.exchange(timeout, || self.memory.acquire_several(ask, timeout))?
    }

    fn renew(
        &self,
        hold: &Hold,
        lease: Duration,
        replicas: Option<Replicas>,
        timeout: Duration,
    ) -> Result<Found, Failure> {
        self.note("renew", hold, timeout);
        self.exchange(timeout, || self.memory.renew(hold, lease, replicas, timeout))?
    }

    fn release(&self, spent: &Spent, repeated: bool, timeout: Duration) -> Result<Found, Failure> {
        self.note("release", spent.hold, timeout);
        self.exchange(timeout, || self.memory.release(spent, repeated, timeout))?
    }

    fn turn(&self, spent: &Spent, sequel: &Sequel, timeout: Duration) -> Result<Turn, Failure> {
        self.note("turn", spent.hold, timeout);
        self.exchange(timeout, || self.memory.turn(spent, sequel, timeout))?
    }

    fn evict(&self, hold: &Hold, timeout: Duration) -> Result<Found, Failure> {
        self.note("release", hold, timeout);
        self.exchange(timeout, || self.memory.evict(hold, timeout))?
    }

    fn inspect(&self, resource: &Resource, timeout: Duration) -> Result<Inspection, Failure> {
        self.exchange(timeout, || self.memory.inspect(resource, timeout))?
    }

    fn set_limit(&self, resource: &Resource, limit: u32, timeout: Duration) -> Result<(), Failure> {
        self.exchange(timeout, || self.memory.set_limit(resource, limit, timeout))?
    }

    fn listener(&self, channel: &Channel) -> Box<dyn Listener> {
        if self.deaf {
            Box::new(Deaf)
        } else {
            self.memory.listener(channel)
        }
    }

    fn auditor(&self, pattern: &[u8]) -> Box<dyn Auditor> {
        self.memory.auditor(pattern)
    }

    fn upkeep(&self) -> Box<dyn Upkeep> {
        Box::new(self.clone())
    }
}

impl Upkeep for FakeStore {
    fn perform(&mut self, chores: &[Chore], timeout: Duration) -> Vec<Result<Found, Failure>> {
        for chore in chores {
            match chore {
                Chore::Renew(hold, ..) => self.note("renew", hold, timeout),
                Chore::Evict(hold) => self.note("release", hold, timeout),
                Chore::Withdraw(hold) => self.note("withdraw", hold, timeout),
            }
        }
        let mut memory = self.memory.clone();
        let answers = self.exchange(timeout, || memory.perform(chores, timeout));
        answers.unwrap_or_else(|failure| vec![Err(failure); chores.len()])
    }
}

/// Hears no knock: the server does not permit it.
struct Deaf;

impl Listener for Deaf {
    fn open(&mut self, _: Duration) -> Result<(), Failure> {
        Err(Failure::Refused(because("NOPERM")))
    }

    fn next(&mut self, _: Duration) -> Result<Option<Knock>, Failure> {
        Err(Failure::Cut(because("it is not open")))
    }

    fn stopper(&self) -> Box<dyn Fn() + Send + Sync> {
        Box::new(|| {})
    }
}

//! The memory store, writing down what it does.

use std::{slice, sync::Arc, time::Duration};

use crate::{
    Inspection,
    store::{
        Acquired, Ask, AskSeveral, Auditor, Channel, Chore, Failure, Found, Hold, Listener, Replicas, Resource, Sequel,
        SeveralAcquired, Spent, Store, Token, Turn, Upkeep, memory::MemoryStore,
    },
};

/// What happened at the store, in the order in which it happened.
#[derive(Default)]
pub(super) struct Log(std::sync::Mutex<Vec<Event>>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) what: What,
    pub(super) token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    /// With the first and the last fencing token.
    Granted(u64, u64),
    /// With the place, if there is one.
    Busy(Option<u64>),
    Renewed(Found),
    Released(Found),
    /// With the first and the last fencing token.
    Kept(u64, u64),
    /// About to be taken out, which takes more than one step.
    GoesOut,
}

impl Log {
    fn note(&self, what: What, token: &Token) {
        // Between what the store does and this no other thread gets its turn.
        let token = token.clone();
        self.0.lock().unwrap().push(Event { what, token });
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }
}

#[derive(Clone)]
pub(super) struct Recorder {
    pub(super) memory: MemoryStore,
    pub(super) log: Arc<Log>,
}

impl Recorder {
    fn left(&self, hold: &Hold, turn: &Turn, count: u32) {
        let what = match *turn {
            Turn::Kept { fencing_token } => What::Kept(fencing_token, fencing_token + u64::from(count) - 1),
            Turn::Left(found) => What::Released(found),
        };
        self.log.note(what, &hold.token);
    }
}

impl Store for Recorder {
    fn acquire(&self, ask: &Ask, timeout: Duration) -> Result<Acquired, Failure> {
        let answer = self.memory.acquire(ask, timeout)?;
        let what = match answer {
            Acquired::Granted { fencing_token } => {
                What::Granted(fencing_token, fencing_token + u64::from(ask.fencing_tokens) - 1)
            }
            Acquired::Busy { place, .. } => What::Busy(place),
        };
        self.log.note(what, &ask.hold.token);
        Ok(answer)
    }

    fn together(&self, one: &Resource, other: &Resource) -> bool {
        self.memory.together(one, other)
    }

    fn acquire_several(&self, ask: &AskSeveral, timeout: Duration) -> Result<SeveralAcquired, Failure> {
        let answer = self.memory.acquire_several(ask, timeout)?;
        for (hold, &fencing_token) in ask.holds.iter().zip(&answer.fencing_tokens) {
            self.log.note(What::Granted(fencing_token, fencing_token), &hold.token);
        }
        Ok(answer)
    }

    fn renew(
        &self,
        hold: &Hold,
        lease: Duration,
        replicas: Option<Replicas>,
        timeout: Duration,
    ) -> Result<Found, Failure> {
        let found = self.memory.renew(hold, lease, replicas, timeout)?;
        self.log.note(What::Renewed(found), &hold.token);
        Ok(found)
    }

    fn release(&self, spent: &Spent, repeated: bool, timeout: Duration) -> Result<Found, Failure> {
        let found = self.memory.release(spent, repeated, timeout)?;
        self.left(spent.hold, &Turn::Left(found), 0);
        Ok(found)
    }

    fn turn(&self, spent: &Spent, sequel: &Sequel, timeout: Duration) -> Result<Turn, Failure> {
        let turn = self.memory.turn(spent, sequel, timeout)?;
        self.left(spent.hold, &turn, sequel.fencing_tokens);
        Ok(turn)
    }

    fn evict(&self, hold: &Hold, timeout: Duration) -> Result<Found, Failure> {
        self.log.note(What::GoesOut, &hold.token);
        self.memory.evict(hold, timeout)
    }

    fn inspect(&self, resource: &Resource, timeout: Duration) -> Result<Inspection, Failure> {
        self.memory.inspect(resource, timeout)
    }

    fn set_limit(&self, resource: &Resource, limit: u32, timeout: Duration) -> Result<(), Failure> {
        self.memory.set_limit(resource, limit, timeout)
    }

    fn listener(&self, channel: &Channel) -> Box<dyn Listener> {
        self.memory.listener(channel)
    }

    fn auditor(&self, pattern: &[u8]) -> Box<dyn Auditor> {
        self.memory.auditor(pattern)
    }

    fn upkeep(&self) -> Box<dyn Upkeep> {
        Box::new(self.clone())
    }
}

impl Upkeep for Recorder {
    fn perform(&mut self, chores: &[Chore], timeout: Duration) -> Vec<Result<Found, Failure>> {
        let perform = |chore: &Chore| match chore {
            Chore::Renew(hold, lease, replicas) => self.renew(hold, *lease, *replicas, timeout),
            Chore::Evict(hold) => self.evict(hold, timeout),
            Chore::Withdraw(hold) => {
                self.log.note(What::GoesOut, &hold.token);
                self.memory.clone().perform(slice::from_ref(chore), timeout).remove(0)
            }
        };
        chores.iter().map(perform).collect()
    }
}

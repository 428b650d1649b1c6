//! One Redis or Valkey server: pooled connections, Lua scripts.

mod audit;
mod connection;
mod listener;
mod node;
mod permission;
mod pool;
mod reply;
mod script;
mod socket;
mod url;

use std::{
    slice,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;

use self::{
    audit::RedisAuditor,
    connection::Connection,
    listener::RedisListener,
    node::Node,
    pool::Urgency,
    script::{Call, Scripts},
};
use super::{
    Acquired, Ask, AskSeveral, Auditor, Channel, Chore, Failure, Found, Hold, Listener, Resource, Sequel,
    SeveralAcquired, Spent, Store, Turn, Upkeep, because,
};
use crate::{Error, Inspection, interrupt::Interrupt};

/// How servers are spoken to.
#[derive(Clone)]
pub(crate) struct Settings {
    /// How many requests to one server may be under way at once.
    pub(crate) pool_size: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
}

pub(crate) struct RedisStore {
    node: Node,
    scripts: Arc<Scripts>,
}

impl RedisStore {
    pub(crate) fn new(url: &str, settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            node: Node::new(&url::parse(url)?, settings),
            scripts: Arc::new(Scripts::new(settings.command_timeout)),
        })
    }

    fn call(&self, call: Call, urgency: Urgency, timeout: Duration) -> Result<Value, Failure> {
        self.node.call(call, urgency, timeout)
    }

    /// Runs one script for somebody who waits, and may have it broken off.
    fn call_unless_interrupted(
        &self,
        call: &Call,
        interrupt: Option<&Interrupt>,
        timeout: Duration,
    ) -> Result<Value, Failure> {
        let (mut connection, deadline) = self.node.connection(Urgency::CanWait, timeout)?;
        connection.open(deadline)?;
        let _armed = match (interrupt, connection.hanger_up()) {
            (Some(interrupt), Some(hang_up)) => {
                let armed = interrupt.arm(move || hang_up.hang_up());
                Some(armed.ok_or_else(|| Failure::NotSent(because("the wait was cancelled")))?)
            }
            _ => None,
        };
        script::run_if_open(&mut connection, slice::from_ref(call), deadline)?.remove(0)
    }

    /// Runs the scripts of a holder in one round trip.
    fn call_all(&self, calls: &[Call], timeout: Duration) -> Vec<Result<Found, Failure>> {
        let replies = self
            .node
            .connection(Urgency::First, timeout)
            .and_then(|(mut connection, deadline)| script::run(&mut connection, calls, deadline));
        each_found(replies, calls.len())
    }
}

impl Store for RedisStore {
    fn acquire(&self, ask: &Ask, timeout: Duration) -> Result<Acquired, Failure> {
        let reply = self.call_unless_interrupted(&self.scripts.acquiring(ask), ask.interrupt, timeout)?;
        reply::acquired(reply, &ask.hold.resource)
    }

    fn together(&self, _: &Resource, _: &Resource) -> bool {
        true
    }

    fn acquire_several(&self, ask: &AskSeveral, timeout: Duration) -> Result<SeveralAcquired, Failure> {
        let acquiring = self.scripts.acquiring_several(ask);
        let reply = self.call_unless_interrupted(&acquiring, ask.interrupt, timeout)?;
        reply::several_acquired(reply, acquiring.keys())
    }

    fn renew_several(&self, holds: &[&Hold], lease: Duration, timeout: Duration) -> Vec<Result<Found, Failure>> {
        let renewing = holds.iter().map(|hold| self.scripts.renewing(hold, lease));
        self.call_all(&renewing.collect::<Vec<_>>(), timeout)
    }

    fn release_several(&self, spent: &[Spent], repeated: bool, timeout: Duration) -> Vec<Result<Found, Failure>> {
        let releasing = spent.iter().map(|spent| self.scripts.releasing(spent, repeated));
        self.call_all(&releasing.collect::<Vec<_>>(), timeout)
    }

    fn renew(&self, hold: &Hold, lease: Duration, timeout: Duration) -> Result<Found, Failure> {
        reply::found(self.call(self.scripts.renewing(hold, lease), Urgency::First, timeout)?)
    }

    fn release(&self, spent: &Spent, repeated: bool, timeout: Duration) -> Result<Found, Failure> {
        reply::found(self.call(self.scripts.releasing(spent, repeated), Urgency::First, timeout)?)
    }

    fn turn(&self, spent: &Spent, sequel: &Sequel, timeout: Duration) -> Result<Turn, Failure> {
        reply::turn(self.call(self.scripts.turning(spent, sequel), Urgency::First, timeout)?)
    }

    fn evict(&self, hold: &Hold, timeout: Duration) -> Result<Found, Failure> {
        reply::found(self.call(self.scripts.evicting(hold), Urgency::CanWait, timeout)?)
    }

    fn inspect(&self, resource: &Resource, timeout: Duration) -> Result<Inspection, Failure> {
        let inspecting = self.scripts.inspecting(resource);
        reply::inspection(self.call(inspecting, Urgency::CanWait, timeout)?, resource)
    }

    fn set_limit(&self, resource: &Resource, limit: u32, timeout: Duration) -> Result<(), Failure> {
        let setting_limit = self.scripts.setting_limit(resource, limit);
        reply::limit_set(self.call(setting_limit, Urgency::CanWait, timeout)?, resource)
    }

    fn listener(&self, channel: &Channel) -> Box<dyn Listener> {
        Box::new(RedisListener::new(self.node.opener().clone(), channel))
    }

    fn auditor(&self, pattern: &[u8]) -> Box<dyn Auditor> {
        Box::new(RedisAuditor::new(self.node.line(), pattern))
    }

    fn upkeep(&self) -> Box<dyn Upkeep> {
        Box::new(Line {
            connection: self.node.line(),
            scripts: self.scripts.clone(),
        })
    }
}

/// The background work's own connection.
struct Line {
    connection: Connection,
    scripts: Arc<Scripts>,
}

impl Upkeep for Line {
    fn perform(&mut self, chores: &[Chore], timeout: Duration) -> Vec<Result<Found, Failure>> {
        let calls: Vec<Call> = chores
            .iter()
            .map(|chore| match chore {
                Chore::Renew(hold, lease) => self.scripts.renewing(hold, *lease),
                Chore::Evict(hold) => self.scripts.evicting(hold),
                Chore::Withdraw(hold) => self.scripts.withdrawing(hold),
            })
            .collect();
        let replies = script::run(&mut self.connection, &calls, Instant::now() + timeout);
        each_found(replies, calls.len())
    }
}

/// An answer for each of so many renewals or releases that were sent together.
fn each_found(replies: Result<Vec<Result<Value, Failure>>, Failure>, count: usize) -> Vec<Result<Found, Failure>> {
    match replies {
        Ok(replies) => replies.into_iter().map(|reply| reply::found(reply?)).collect(),
        Err(failure) => vec![Err(failure); count],
    }
}

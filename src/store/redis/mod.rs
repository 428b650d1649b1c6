//! One Redis or Valkey server: pooled connections, Lua scripts.

mod audit;
mod connection;
mod listener;
mod node;
mod permission;
mod pool;
pub(in crate::store) mod process;
pub(in crate::store) mod reply;
mod script;
mod socket;
pub(in crate::store) mod url;

use std::{
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
    Acquired, Ask, Auditor, Channel, Chore, Failure, Found, Hold, Listener, Resource, Sequel, Spent, Store, Turn,
    Upkeep, because,
};
use crate::{Error, Inspection};

/// What a store on several servers is made of.
pub(in crate::store) mod parts {
    pub(in crate::store) use super::{
        audit::RedisAuditor,
        connection::Connection,
        node::Node,
        pool::{Lent, Urgency},
        process::Sighting,
        script::{Call, Scripts, run_on_all},
    };
}

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
}

impl Store for RedisStore {
    fn acquire(&self, ask: &Ask, timeout: Duration) -> Result<Acquired, Failure> {
        let acquiring = [self.scripts.acquiring(ask)];
        let (mut connection, deadline) = self.node.connection(Urgency::CanWait, timeout)?;
        connection.open(deadline)?;
        let _armed = match (ask.interrupt, connection.hanger_up()) {
            (Some(interrupt), Some(hang_up)) => {
                let armed = interrupt.arm(move || hang_up.hang_up());
                Some(armed.ok_or_else(|| Failure::NotSent(because("the wait was cancelled")))?)
            }
            _ => None,
        };
        let reply = script::run_if_open(&mut connection, &acquiring, deadline)?.remove(0)?;
        reply::acquired(reply, &ask.hold.resource)
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
        match script::run(&mut self.connection, &calls, Instant::now() + timeout) {
            Ok(replies) => replies.into_iter().map(|reply| reply::found(reply?)).collect(),
            Err(failure) => vec![Err(failure); chores.len()],
        }
    }
}

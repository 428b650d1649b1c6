//! One Redis or Valkey server: pooled connections, Lua scripts.

mod audit;
mod connection;
mod listener;
mod permission;
mod pool;
mod reply;
mod script;
mod socket;
mod url;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;

use self::{
    audit::RedisAuditor,
    connection::{Connection, Opener},
    listener::RedisListener,
    pool::{Lent, Pool, Urgency},
    script::{Call, Scripts},
};
use super::{
    Acquired, Ask, Auditor, Channel, Chore, Failure, Found, Hold, Listener, Resource, Sequel, Spent, Store, Turn,
    Upkeep, because,
};
use crate::{Error, Inspection};

pub(crate) struct RedisStore {
    pool: Pool,
    opener: Arc<Opener>,
    scripts: Arc<Scripts>,
}

impl RedisStore {
    pub(crate) fn new(
        url: &str,
        pool_size: u32,
        connect_timeout: Duration,
        command_timeout: Duration,
    ) -> Result<Self, Error> {
        let opener = Arc::new(Opener::new(&url::parse(url)?, connect_timeout));
        Ok(Self {
            pool: Pool::new(opener.clone(), pool_size),
            opener,
            scripts: Arc::new(Scripts::new(command_timeout)),
        })
    }

    /// Runs one script on a pooled connection; all of it, from check-out to reply, within `timeout`.
    fn call(&self, call: Call, urgency: Urgency, timeout: Duration) -> Result<Value, Failure> {
        let (mut connection, deadline) = self.connection(urgency, timeout)?;
        script::run(&mut connection, &[call], deadline)?.remove(0)
    }

    /// A connection, and by when `timeout` is over. At most half of it goes into waiting for a free one: with next to
    /// nothing left, a request would only look like one to a server that is silent or away.
    fn connection(&self, urgency: Urgency, timeout: Duration) -> Result<(Lent<'_>, Instant), Failure> {
        let now = Instant::now();
        let connection = self.pool.check_out(urgency, now + timeout / 2)?;
        Ok((connection, now + timeout))
    }
}

impl Store for RedisStore {
    fn acquire(&self, ask: &Ask, timeout: Duration) -> Result<Acquired, Failure> {
        let acquiring = [self.scripts.acquiring(ask)];
        let (mut connection, deadline) = self.connection(Urgency::CanWait, timeout)?;
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
        Box::new(RedisListener::new(self.opener.clone(), channel))
    }

    fn auditor(&self, pattern: &[u8]) -> Box<dyn Auditor> {
        Box::new(RedisAuditor::new(self.opener.clone(), pattern))
    }

    fn upkeep(&self) -> Box<dyn Upkeep> {
        Box::new(Line {
            connection: Connection::closed(self.opener.clone()),
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

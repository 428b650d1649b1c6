//! One Redis or Valkey server: pooled connections, Lua scripts.

mod connection;
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
    connection::{Connection, Opener},
    pool::{Pool, Urgency},
    script::{Call, Scripts},
};
use super::{Acquired, Chore, Failure, Found, Hold, Store, Upkeep};
use crate::{Error, keys};

pub(crate) struct RedisStore {
    pool: Pool,
    opener: Arc<Opener>,
    scripts: Arc<Scripts>,
}

impl RedisStore {
    pub(crate) fn new(url: &str, pool_size: u32, connect_timeout: Duration) -> Result<Self, Error> {
        let opener = Arc::new(Opener::new(&url::parse(url)?, connect_timeout));
        Ok(Self {
            pool: Pool::new(opener.clone(), pool_size),
            opener,
            scripts: Arc::new(Scripts::new()),
        })
    }

    /// Runs one script on a pooled connection; all of it, from check-out to reply, within `timeout`.
    fn call(&self, call: Call, urgency: Urgency, timeout: Duration) -> Result<Value, Failure> {
        let deadline = Instant::now() + timeout;
        let mut connection = self.pool.check_out(urgency, deadline)?;
        let mut replies = script::run(&mut connection, &[call], deadline)?;
        Ok(replies.remove(0))
    }
}

impl Store for RedisStore {
    fn acquire(&self, hold: &Hold, lease: Duration, timeout: Duration) -> Result<Acquired, Failure> {
        let counter = keys::helper("fencing", &hold.key);
        let reply = self.call(self.scripts.acquiring(hold, &counter, lease), Urgency::CanWait, timeout)?;
        reply::acquired(reply, &hold.key, &counter)
    }

    fn renew(&self, hold: &Hold, lease: Duration, timeout: Duration) -> Result<Found, Failure> {
        reply::found(self.call(self.scripts.renewing(hold, lease), Urgency::First, timeout)?)
    }

    fn release(&self, hold: &Hold, timeout: Duration) -> Result<Found, Failure> {
        reply::found(self.call(self.scripts.releasing(hold), Urgency::First, timeout)?)
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
                Chore::Release(hold) => self.scripts.releasing(hold),
            })
            .collect();
        match script::run(&mut self.connection, &calls, Instant::now() + timeout) {
            Ok(replies) => replies.into_iter().map(reply::found).collect(),
            Err(failure) => vec![Err(failure); chores.len()],
        }
    }
}

//! One Redis or Valkey server: pooled connections, Lua scripts.

mod audit;
mod connection;
mod listener;
mod node;
mod permission;
mod pool;
mod replicas;
mod reply;
mod script;
mod sentinel;
mod socket;
mod stream;
mod tls;
mod url;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{RedisConnectionInfo, Value};

pub(crate) use self::tls::{Tls, TlsSettings};
use self::{
    audit::RedisAuditor,
    connection::{Address, Connection, Opener},
    listener::RedisListener,
    node::Node,
    pool::Urgency,
    script::{Call, Scripts},
    sentinel::Sentinels,
};
use super::{
    Acquired, Ask, Auditor, Channel, Chore, Failure, Found, Hold, Listener, Replicas, Resource, Sequel, Spent, Store,
    Turn, Upkeep, because,
};
use crate::{Error, Inspection};

/// How servers are spoken to.
#[derive(Clone)]
pub(crate) struct Settings {
    /// How many requests to one server may be under way at once.
    pub(crate) pool_size: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    /// What the sentinels are told, where there are any: user name, or nothing, and password.
    pub(crate) sentinel_login: Option<(String, String)>,
    /// What is put on TCP connections, the sentinels' too, if they are not to be in the clear.
    pub(crate) tls: Option<Tls>,
}

pub(crate) struct RedisStore {
    node: Node,
    scripts: Arc<Scripts>,
}

impl RedisStore {
    pub(crate) fn new(url: &str, settings: &Settings) -> Result<Self, Error> {
        let info = url::parse(url)?;
        Ok(Self::on(Opener::new(&info, settings), settings))
    }

    /// On whichever server is the master now, by those whom a `redis-sentinel://` URL names.
    pub(crate) fn by_sentinels(url: &str, settings: &Settings) -> Result<Self, Error> {
        let url::Watched {
            master,
            sentinels,
            login,
        } = url::parse_sentinels(url)?;
        let sentinel_login = match &settings.sentinel_login {
            None => RedisConnectionInfo::default(),
            Some((user, password)) if user.is_empty() => RedisConnectionInfo::default().set_password(password),
            Some((user, password)) => RedisConnectionInfo::default().set_username(user).set_password(password),
        };
        let sentinels = Sentinels::new(&master, &sentinels, &sentinel_login, settings);
        let opener = Opener::at(Address::Master(sentinels), login, settings);
        Ok(Self::on(opener, settings))
    }

    fn on(opener: Opener, settings: &Settings) -> Self {
        Self {
            node: Node::new(opener, settings.pool_size),
            scripts: Arc::new(Scripts::new(settings.command_timeout)),
        }
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
        let acquired = reply::acquired(reply, &ask.hold.resource)?;
        if let (Acquired::Granted { .. }, Some(replicas)) = (&acquired, ask.replicas)
            && let Err(failure) = replicas::confirm(&mut connection, replicas, deadline)
        {
            // An attempt that may be repeated keeps what it has. Should this fail, it is done in the background.
            if !failure.passes() {
                let _ = script::run_if_open(&mut connection, &[self.scripts.evicting(ask.hold)], deadline);
            }
            return Err(failure);
        }
        Ok(acquired)
    }

    fn renew(
        &self,
        hold: &Hold,
        lease: Duration,
        replicas: Option<Replicas>,
        timeout: Duration,
    ) -> Result<Found, Failure> {
        let (mut connection, deadline) = self.node.connection(Urgency::First, timeout)?;
        let renewing = self.scripts.renewing(hold, lease);
        let found = reply::found(script::run(&mut connection, &[renewing], deadline)?.remove(0)?)?;
        if let (Found::Ours, Some(replicas)) = (found, replicas) {
            replicas::confirm(&mut connection, replicas, deadline)?;
        }
        Ok(found)
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
                Chore::Renew(hold, lease, _) => self.scripts.renewing(hold, *lease),
                Chore::Evict(hold) => self.scripts.evicting(hold),
                Chore::Withdraw(hold) => self.scripts.withdrawing(hold),
            })
            .collect();
        let deadline = Instant::now() + timeout;
        match script::run(&mut self.connection, &calls, deadline) {
            Ok(replies) => {
                let mut answers: Vec<_> = replies.into_iter().map(|reply| reply::found(reply?)).collect();
                replicas::confirm_renewals(&mut self.connection, chores, &mut answers, deadline);
                answers
            }
            Err(failure) => vec![Err(failure); chores.len()],
        }
    }
}

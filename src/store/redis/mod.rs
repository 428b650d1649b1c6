//! Redis or Valkey, one server or a cluster: pooled connections, Lua scripts.

mod audit;
mod cluster;
mod connection;
mod listener;
mod node;
mod permission;
mod pool;
pub(in crate::store) mod process;
mod replicas;
pub(in crate::store) mod reply;
mod route;
mod script;
mod sentinel;
mod socket;
mod stream;
mod tls;
pub(in crate::store) mod url;

use std::{
    borrow::Borrow,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{RedisConnectionInfo, Value};

pub(crate) use self::tls::{Tls, TlsSettings};
use self::{
    audit::RedisAuditor,
    cluster::{Cluster, ClusterAuditor, ClusterLine},
    connection::{Address, Connection, Opener},
    listener::{Post, RedisListener},
    node::Node,
    pool::Urgency,
    route::Route,
    script::{Call, Scripts},
    sentinel::Sentinels,
};
use super::{
    Acquired, Ask, AskSeveral, Auditor, Channel, Chore, Failure, Found, Hold, Limit, Listener, Replicas, Resource,
    Sequel, SeveralAcquired, Spent, Store, Turn, Upkeep, Wishes,
};
use crate::{
    Error, Inspection,
    interrupt::{Armed, Interrupt},
    keys,
};

/// What a store on several servers is made of.
pub(in crate::store) mod parts {
    pub(in crate::store) use super::{
        audit::RedisAuditor,
        connection::{Connection, Opener},
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
    /// What the sentinels are told, where there are any: user name, or nothing, and password.
    pub(crate) sentinel_login: Option<(String, String)>,
    /// What is put on TCP connections, the sentinels' too, if they are not to be in the clear.
    pub(crate) tls: Option<Tls>,
}

pub(crate) struct RedisStore {
    route: Route,
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

    /// On a cluster, by the nodes that a `redis-cluster://` URL names.
    pub(crate) fn in_cluster(url: &str, settings: &Settings) -> Result<Self, Error> {
        let cluster = Cluster::new(&url::parse_cluster(url)?, settings)?;
        Ok(Self {
            route: Route::Cluster(Arc::new(cluster)),
            scripts: Arc::new(Scripts::new(settings.command_timeout, true)),
        })
    }

    fn on(opener: Opener, settings: &Settings) -> Self {
        Self {
            route: Route::One(Node::new(opener, settings.pool_size)),
            scripts: Arc::new(Scripts::new(settings.command_timeout, false)),
        }
    }

    fn call(&self, call: Call, urgency: Urgency, timeout: Duration) -> Result<Value, Failure> {
        self.route.call(call, urgency, timeout)
    }

    /// Opens the connection and has `interrupt` hang it up from here on, until what this returns is dropped.
    fn open_until<'a>(
        connection: &mut Connection,
        interrupt: Option<&'a Interrupt>,
        deadline: Instant,
    ) -> Result<Option<Armed<'a>>, Failure> {
        connection.open(deadline)?;
        let (Some(interrupt), Some(hang_up)) = (interrupt, connection.hanger_up()) else {
            return Ok(None);
        };
        let armed = interrupt.arm(move || hang_up.hang_up());
        Ok(Some(armed.ok_or_else(Failure::cancelled)?))
    }

    /// Runs scripts, unless `interrupt` is tripped, and until it is.
    fn run_until<'a>(
        connection: &mut Connection,
        interrupt: Option<&Interrupt>,
        calls: &[impl Borrow<Call<'a>>],
        deadline: Instant,
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let _armed = Self::open_until(connection, interrupt, deadline)?;
        script::run_if_open(connection, calls, deadline)
    }

    /// Runs the scripts of a holder, each server's in one round trip. In a cluster one may have to be run `alone`,
    /// within what is left of the time, since its slot is elsewhere by now.
    fn call_all(
        &self,
        calls: &[Call],
        limit: &Limit,
        alone: impl Fn(usize, Duration) -> Result<Found, Failure>,
    ) -> Vec<Result<Found, Failure>> {
        let begin = Instant::now();
        match &self.route {
            Route::One(node) => {
                let replies = node
                    .connection(Urgency::First, limit.timeout)
                    .and_then(|(mut connection, deadline)| {
                        Self::run_until(&mut connection, limit.interrupt, calls, deadline)
                    });
                let replies = replies.unwrap_or_else(|failure| vec![Err(failure); calls.len()]);
                replies.into_iter().map(|reply| reply::found(reply?)).collect()
            }
            Route::Cluster(cluster) => {
                let half = limit.timeout / 2;
                let replies = cluster.run_at_once(calls, half, |connection, calls, deadline| {
                    Self::run_until(connection, limit.interrupt, calls, deadline)
                });
                let answers = replies.into_iter().enumerate().map(|(at, reply)| match reply {
                    Some(reply) => reply::found(reply?),
                    None => {
                        limit.check()?;
                        alone(at, limit.timeout.saturating_sub(begin.elapsed()))
                    }
                });
                answers.collect()
            }
        }
    }
}

impl Store for RedisStore {
    fn admit(&self, resource: &Resource, _wishes: &Wishes) -> Result<(), Error> {
        match self.route {
            Route::Cluster(_) if !keys::shares_its_slot(&resource.key) => Err(Error::invalid(format!(
                "the key `{}` cannot be used in a cluster: its `}}` would put what belongs to it into another slot; leave \
                 the `}}` out, or put a hash tag before it, as in `{{a}}b`",
                resource.key.escape_ascii()
            ))),
            _ => Ok(()),
        }
    }

    fn acquire(&self, ask: &Ask, timeout: Duration) -> Result<Acquired, Failure> {
        let mut call = self.scripts.acquiring(ask);
        let mut attempt = |connection: &mut Connection, asking, deadline| {
            call.set_asking(asking);
            let _armed = Self::open_until(connection, ask.interrupt, deadline)?;
            let reply = script::run_if_open(connection, &[&call], deadline)?.remove(0)?;
            let Some(replicas) = ask.replicas else {
                return Ok(reply);
            };
            if let Ok(Acquired::Granted { .. }) = reply::acquired(reply.clone(), &ask.hold.resource)
                && let Err(failure) = replicas::confirm(connection, replicas, deadline)
            {
                // An attempt that may be repeated keeps what it has. Should this fail, it is done in the background.
                if !failure.passes() {
                    let _ = script::run_if_open(connection, &[self.scripts.evicting(ask.hold)], deadline);
                }
                return Err(failure);
            }
            Ok(reply)
        };
        let slot = keys::slot(&ask.hold.resource.key);
        let reply = self
            .route
            .ask(slot, Urgency::CanWait, timeout, ask.interrupt, &mut attempt)?;
        reply::acquired(reply, &ask.hold.resource)
    }

    fn together(&self, one: &Resource, other: &Resource) -> bool {
        match self.route {
            Route::One(_) => true,
            Route::Cluster(_) => keys::slot(&one.key) == keys::slot(&other.key),
        }
    }

    fn acquire_several(&self, ask: &AskSeveral, timeout: Duration) -> Result<SeveralAcquired, Failure> {
        let mut call = self.scripts.acquiring_several(ask);
        let slot = call.slot();
        let mut attempt = |connection: &mut Connection, asking, deadline| {
            call.set_asking(asking);
            let _armed = Self::open_until(connection, ask.interrupt, deadline)?;
            script::run_if_open(connection, &[&call], deadline)?.remove(0)
        };
        let reply = self
            .route
            .ask(slot, Urgency::CanWait, timeout, ask.interrupt, &mut attempt)?;
        reply::several_acquired(reply, call.keys())
    }

    fn renew_several(&self, holds: &[&Hold], lease: Duration, limit: &Limit) -> Vec<Result<Found, Failure>> {
        let renewing = holds.iter().map(|hold| self.scripts.renewing(hold, lease, None));
        self.call_all(&renewing.collect::<Vec<_>>(), limit, |at, timeout| {
            self.renew(holds[at], lease, None, timeout)
        })
    }

    fn release_several(&self, spent: &[Spent], repeated: bool, limit: &Limit) -> Vec<Result<Found, Failure>> {
        let releasing = spent.iter().map(|spent| self.scripts.releasing(spent, repeated));
        self.call_all(&releasing.collect::<Vec<_>>(), limit, |at, timeout| {
            self.release(&spent[at], repeated, timeout)
        })
    }

    fn lane(&self, resource: &Resource) -> usize {
        match &self.route {
            Route::One(_) => 0,
            Route::Cluster(cluster) => cluster.lane(keys::slot(&resource.key)),
        }
    }

    fn renew(
        &self,
        hold: &Hold,
        lease: Duration,
        replicas: Option<Replicas>,
        timeout: Duration,
    ) -> Result<Found, Failure> {
        let mut call = self.scripts.renewing(hold, lease, replicas);
        let slot = call.slot();
        let mut attempt = |connection: &mut Connection, asking, deadline| {
            call.set_asking(asking);
            let mut reply = script::run(connection, &[&call], deadline)?.remove(0)?;
            if reply::is_split(&reply) {
                call = self.scripts.renewing_alone(hold, lease, replicas);
                call.set_asking(asking);
                reply = script::run(connection, &[&call], deadline)?.remove(0)?;
            }
            if let (Ok(Found::Ours), Some(replicas)) = (reply::found(reply.clone()), replicas) {
                replicas::confirm(connection, replicas, deadline)?;
            }
            Ok(reply)
        };
        reply::found(self.route.ask(slot, Urgency::First, timeout, None, &mut attempt)?)
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
        let post = match &self.route {
            Route::One(node) => Post::Server(node.opener().clone()),
            Route::Cluster(cluster) => Post::in_cluster(cluster),
        };
        Box::new(RedisListener::new(post, channel))
    }

    fn auditor(&self, pattern: &[u8]) -> Box<dyn Auditor> {
        match &self.route {
            Route::One(node) => Box::new(RedisAuditor::new(node.line(), pattern)),
            Route::Cluster(cluster) => Box::new(ClusterAuditor::new(cluster.clone(), pattern)),
        }
    }

    fn upkeep(&self) -> Box<dyn Upkeep> {
        let scripts = self.scripts.clone();
        match &self.route {
            Route::One(node) => Box::new(Line {
                connection: node.line(),
                scripts,
            }),
            Route::Cluster(cluster) => Box::new(ClusterLine::new(cluster.clone(), scripts)),
        }
    }
}

/// The background work's own connection.
struct Line {
    connection: Connection,
    scripts: Arc<Scripts>,
}

impl Upkeep for Line {
    fn perform(&mut self, chores: &[Chore], timeout: Duration) -> Vec<Result<Found, Failure>> {
        let calls: Vec<Call> = chores.iter().map(|chore| self.scripts.doing(chore)).collect();
        let deadline = Instant::now() + timeout;
        match script::run(&mut self.connection, &calls, deadline) {
            Ok(replies) => {
                let mut answers: Vec<_> = replies.into_iter().map(|reply| reply::found(reply?)).collect();
                replicas::confirm_renewals(&mut self.connection, chores.iter().zip(&mut answers), deadline);
                answers
            }
            Err(failure) => vec![Err(failure); chores.len()],
        }
    }
}

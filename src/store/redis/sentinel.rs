//! Finding the master of a deployment that Redis Sentinel watches over.
//!
//! It is asked for whenever a connection is opened, and every connection is opened anew after the former master hung
//! up, stayed silent, or said that it is one no longer: so all of a client follows a failover by itself. The steps are
//! those of Redis's "Guidelines for Redis clients with support for Redis Sentinel".

use std::{sync::Arc, time::Instant};

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo, Value};

use super::{
    Settings,
    connection::{Connection, Opener, Wire, unanswered},
    reply,
};
use crate::{
    error::Source,
    store::{Failure, because},
    sync::Mutex,
};

pub(super) struct Sentinels {
    /// The name under which they know the master.
    master: String,
    /// The one that last led to the master comes first, those that lately led nowhere last.
    sentinels: Mutex<Vec<Arc<Opener>>>,
}

/// Why there is no connection to the master, although a sentinel has said where it is.
#[derive(Debug, thiserror::Error)]
#[error("the sentinels say that the master `{name}` is at {address}, but {why}: they may be about to replace it")]
struct NoMaster {
    name: String,
    address: ConnectionAddr,
    why: &'static str,
    source: Option<Source>,
}

/// Why nobody could say where the master is.
#[derive(Debug, thiserror::Error)]
#[error("none of {tried} sentinels could be asked where the master `{name}` is")]
struct NobodyAsked {
    tried: usize,
    name: String,
    /// Of the last one.
    source: Source,
}

impl Sentinels {
    /// Those at these addresses, which let in whoever has this `login`.
    pub(super) fn new(
        master: &str,
        addresses: &[ConnectionInfo],
        login: &RedisConnectionInfo,
        settings: &Settings,
    ) -> Self {
        let sentinels = addresses.iter().map(|info| {
            let info = info.clone().set_redis_settings(login.clone());
            Arc::new(Opener::new(&info, settings))
        });
        Self {
            master: master.to_owned(),
            sentinels: Mutex::new(sentinels.collect()),
        }
    }

    /// Opens a connection to the master by `deadline`, with `opener`'s log-in.
    ///
    /// When the sentinels answer and the master does not, that may pass: it is no failure of the kind that a wrong
    /// address makes. But the one that named it may have missed a failover, and not hear of it for long: the next time
    /// the others are asked first.
    pub(super) fn open_master(&self, opener: &Opener, deadline: Instant) -> Result<Wire, Failure> {
        let (sentinel, address) = self.address(deadline)?;
        let opened = self.open_at(&address, opener, deadline);
        match opened {
            Ok(_) => self.prefer(&sentinel),
            Err(_) => self.ask_last(&sentinel),
        }
        opened
    }

    /// Opens a connection to the master that is said to be at `address`.
    fn open_at(&self, address: &ConnectionAddr, opener: &Opener, deadline: Instant) -> Result<Wire, Failure> {
        let not_there = |why, source| {
            Failure::NotSent(Arc::new(NoMaster {
                name: self.master.clone(),
                address: address.clone(),
                why,
                source,
            }))
        };
        let mut wire = opener.open_at(address, deadline).map_err(|failure| match failure {
            Failure::Unreachable(source) => not_there("it cannot be reached", Some(source)),
            other => other,
        })?;
        // The sentinels may speak of the one before, or of one that has not taken over yet.
        let sent = wire.send([&redis::cmd("ROLE")], deadline);
        let role = sent
            .and_then(|_| wire.receive(deadline))
            .map_err(|error| match unanswered(error) {
                Failure::Silent(source) => not_there("it is silent", Some(source)),
                Failure::Cut(source) => not_there("it hangs up", Some(source)),
                other => other,
            })?;
        match role {
            Value::Array(parts) if parts.first() != Some(&Value::BulkString(b"master".to_vec())) => {
                Err(not_there("it says that it is none", None))
            }
            // A user without the permission to ask finds out when a request is refused.
            _ => Ok(wire),
        }
    }

    /// Where the master is, as the first sentinel says that knows it.
    fn address(&self, deadline: Instant) -> Result<(Arc<Opener>, ConnectionAddr), Failure> {
        let sentinels = self.sentinels.lock().clone();
        // Half of the time is the master's.
        let now = Instant::now();
        let end = now + deadline.saturating_duration_since(now) / 2;
        let mut last = None;
        for (tried, sentinel) in sentinels.iter().enumerate() {
            let now = Instant::now();
            let share = end.saturating_duration_since(now) / (sentinels.len() - tried) as u32;
            match self.ask(sentinel, now + share) {
                Ok(Some(address)) => return Ok((sentinel.clone(), address)),
                Ok(None) => {
                    let why = format!("the sentinels do not know a master `{}`", self.master);
                    last = Some(Failure::Denied(because(why)));
                }
                // One that has answered says more than one that has not.
                Err(failure) => last = last.filter(|last| matches!(last, Failure::Denied(_))).or(Some(failure)),
            }
        }
        Err(match last.expect("there is at least one sentinel") {
            Failure::Unreachable(source) => Failure::Unreachable(Arc::new(NobodyAsked {
                tried: sentinels.len(),
                name: self.master.clone(),
                source,
            })),
            other => other,
        })
    }

    /// Where the master is, by one sentinel; `None` if that knows no such master.
    fn ask(&self, sentinel: &Arc<Opener>, deadline: Instant) -> Result<Option<ConnectionAddr>, Failure> {
        let mut connection = Connection::closed(sentinel.clone());
        connection.open(deadline)?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        let answer = connection
            .exchange([&command], deadline)
            .map_err(Failure::before_the_request)?
            .remove(0);
        let found: Option<(String, u16)> = match answer {
            Value::ServerError(error) if error.details().is_some_and(|text| text.contains("unknown command")) => {
                return Err(Failure::Denied(because(
                    "the server that was to be a sentinel is none: in `redis-sentinel://` URLs stand the sentinels' addresses",
                )));
            }
            answer => reply::parsed(answer).map_err(|failure| match failure {
                Failure::Refused(source) => Failure::Denied(source),
                Failure::Unready(source) => Failure::NotSent(source),
                other => other,
            })?,
        };
        Ok(found.map(|(host, port)| ConnectionAddr::Tcp(host, port)))
    }

    /// Has `sentinel` asked first from now on.
    fn prefer(&self, sentinel: &Arc<Opener>) {
        let mut sentinels = self.sentinels.lock();
        if let Some(at) = sentinels.iter().position(|other| Arc::ptr_eq(other, sentinel)) {
            sentinels[..=at].rotate_right(1);
        }
    }

    /// Has `sentinel` asked last from now on.
    fn ask_last(&self, sentinel: &Arc<Opener>) {
        let mut sentinels = self.sentinels.lock();
        if let Some(at) = sentinels.iter().position(|other| Arc::ptr_eq(other, sentinel)) {
            sentinels[at..].rotate_left(1);
        }
    }
}

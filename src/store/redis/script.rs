//! The Lua scripts and how they are run.

use std::time::{Duration, Instant};

use redis::{Cmd, ToRedisArgs, Value};

use super::{connection::Connection, reply};
use crate::store::{Failure, Hold, millis_rounded_up};

/// How long a fencing counter stays after the last grant of its name. The server's clock alone keeps tokens
/// rising; the counter bridges a clock that was stepped back, so it has to outlive such a step.
const FENCING_TTL: Duration = Duration::from_secs(2 * 24 * 60 * 60);

pub(super) struct Scripts {
    acquire: Script,
    renew: Script,
    release: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            acquire: Script::new(include_str!("../scripts/acquire.lua")),
            renew: Script::new(include_str!("../scripts/renew.lua")),
            release: Script::new(include_str!("../scripts/release.lua")),
        }
    }

    pub(super) fn acquiring(&self, hold: &Hold, counter: &[u8], lease: Duration) -> Call<'_> {
        self.acquire
            .on(&[&hold.key, counter])
            .arg(&*hold.token)
            .arg(millis_rounded_up(lease))
            .arg(FENCING_TTL.as_secs() * 1000)
    }

    pub(super) fn renewing(&self, hold: &Hold, lease: Duration) -> Call<'_> {
        self.renew
            .on(&[&hold.key])
            .arg(&*hold.token)
            .arg(millis_rounded_up(lease))
    }

    pub(super) fn releasing(&self, hold: &Hold) -> Call<'_> {
        self.release.on(&[&hold.key]).arg(&*hold.token)
    }
}

/// A script and the digest by which the server knows it.
struct Script {
    text: &'static str,
    sha1: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self {
            text,
            sha1: redis::Script::new(text).get_hash().to_owned(),
        }
    }

    /// A call of the script on `keys`; the arguments follow.
    fn on(&self, keys: &[&[u8]]) -> Call<'_> {
        Call {
            script: self,
            operands: keys.len().to_redis_args(),
        }
        .arg(keys)
    }
}

/// A script with its keys and arguments.
pub(super) struct Call<'a> {
    script: &'a Script,
    operands: Vec<Vec<u8>>,
}

impl Call<'_> {
    fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        argument.write_redis_args(&mut self.operands);
        self
    }

    fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.script.sha1)
    }

    /// For a server that does not know the script, or no longer. It does afterwards.
    fn in_full(&self) -> Cmd {
        self.command("EVAL", self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(&self.operands);
        command
    }
}

/// Runs scripts in one round trip, or in two if the server has to be given their text. Returns a reply for
/// each, server errors among them.
pub(super) fn run(connection: &mut Connection, calls: &[Call], deadline: Instant) -> Result<Vec<Value>, Failure> {
    let commands: Vec<Cmd> = calls.iter().map(Call::by_digest).collect();
    let mut replies = connection.exchange(&commands, deadline)?;
    let unknown: Vec<usize> = (0..replies.len())
        .filter(|&at| reply::is_unknown_script(&replies[at]))
        .collect();
    if !unknown.is_empty() {
        let commands: Vec<Cmd> = unknown.iter().map(|&at| calls[at].in_full()).collect();
        for (at, reply) in unknown.into_iter().zip(connection.exchange(&commands, deadline)?) {
            replies[at] = reply;
        }
    }
    Ok(replies)
}

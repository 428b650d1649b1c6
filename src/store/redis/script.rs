//! The Lua scripts and how they are run.

use std::time::{Duration, Instant};

use redis::{Arg, Cmd, ToRedisArgs, Value};

use super::{connection::Connection, permission, reply};
use crate::store::{Ask, Failure, Hold, Spent, millis_rounded_up};

/// How long a fencing counter stays after the last grant of its name. The server's clock alone keeps tokens
/// rising; the counter bridges a clock that was stepped back, so it has to outlive such a step.
const FENCING_TTL: Duration = Duration::from_secs(2 * 24 * 60 * 60);

/// What stands before the scripts that know of waiters.
macro_rules! with_queue {
    ($script:literal) => {
        concat!(include_str!("../scripts/queue.lua"), "\n", include_str!($script))
    };
}

pub(super) struct Scripts {
    acquire: Script,
    renew: Script,
    release: Script,
    turn: Script,
    withdraw: Script,
    inspect: Script,
    /// How long the mark of a release stays. It has to outlive the repetition of a release whose answer was lost, which
    /// ends within two command timeouts.
    mark_ttl: Duration,
}

/// The helper keys of a lock.
mod helper {
    use crate::keys;

    pub(super) fn counter(key: &[u8]) -> Vec<u8> {
        keys::helper("fencing", key)
    }

    pub(super) fn mark(key: &[u8]) -> Vec<u8> {
        keys::helper("released", key)
    }

    pub(super) fn queue(key: &[u8]) -> Vec<u8> {
        keys::helper("queue", key)
    }

    pub(super) fn waiters(key: &[u8]) -> Vec<u8> {
        keys::helper("waiters", key)
    }
}

impl Scripts {
    pub(super) fn new(command_timeout: Duration) -> Self {
        Self {
            acquire: Script::new(with_queue!("../scripts/acquire.lua")),
            renew: Script::new(include_str!("../scripts/renew.lua")),
            release: Script::new(with_queue!("../scripts/release.lua")),
            turn: Script::new(with_queue!("../scripts/turn.lua")),
            withdraw: Script::new(with_queue!("../scripts/withdraw.lua")),
            inspect: Script::new(include_str!("../scripts/inspect.lua")),
            mark_ttl: (command_timeout * 3).max(Duration::from_secs(1)),
        }
    }

    pub(super) fn acquiring(&self, ask: &Ask) -> Call<'_> {
        let (key, counter) = (&ask.hold.key, helper::counter(&ask.hold.key));
        let waits = ask.fair || ask.asked_for_place || ask.place.is_some();
        let call = if waits {
            let (queue, waiters) = (helper::queue(key), helper::waiters(key));
            self.acquire.on(&[key, &counter, &queue, &waiters])
        } else {
            self.acquire.on(&[key, &counter])
        };
        let call = call
            .arg(ask.hold.token.as_bytes())
            .arg(millis_rounded_up(ask.lease))
            .arg(FENCING_TTL.as_secs() * 1000)
            .arg(ask.fencing_tokens);
        if !waits {
            return call;
        }
        let call = call.arg(u8::from(ask.fair));
        let call = match ask.place.and_then(|place| place.number) {
            Some(number) => call.arg(number),
            None => call.arg(if ask.asked_for_place { "0" } else { "" }),
        };
        let Some(place) = ask.place else {
            return call;
        };
        let call = call
            .arg(&*place.channel.0)
            .arg(millis_rounded_up(place.lasts))
            .arg(place.claim.map_or(0, millis_rounded_up));
        let companions = place.companions.iter();
        companions.fold(call, |call, (token, number)| call.arg(token.as_bytes()).arg(*number))
    }

    pub(super) fn renewing(&self, hold: &Hold, lease: Duration) -> Call<'_> {
        self.renew
            .on(&[&hold.key])
            .arg(hold.token.as_bytes())
            .arg(millis_rounded_up(lease))
    }

    /// The holder's own release, which leaves a mark.
    pub(super) fn releasing(&self, spent: &Spent, repeated: bool) -> Call<'_> {
        self.release_of(spent.hold)
            .arg(spent.fencing_token)
            .arg(self.mark_ttl.as_millis() as u64)
            .arg(u8::from(repeated))
    }

    /// Without a mark: the holder's own release must not be told that it succeeded, nor lose its mark to this one.
    pub(super) fn evicting(&self, hold: &Hold) -> Call<'_> {
        self.release_of(hold).arg(0).arg(0).arg(0)
    }

    fn release_of(&self, hold: &Hold) -> Call<'_> {
        let key = &hold.key;
        self.release
            .on(&[key, &helper::mark(key), &helper::queue(key), &helper::waiters(key)])
            .arg(hold.token.as_bytes())
    }

    pub(super) fn turning(&self, spent: &Spent, lease: Duration, fencing_tokens: u32) -> Call<'_> {
        let key = &spent.hold.key;
        let (mark, queue, waiters) = (helper::mark(key), helper::queue(key), helper::waiters(key));
        self.turn
            .on(&[key, &mark, &queue, &waiters, &helper::counter(key)])
            .arg(spent.hold.token.as_bytes())
            .arg(spent.fencing_token)
            .arg(self.mark_ttl.as_millis() as u64)
            .arg(millis_rounded_up(lease))
            .arg(FENCING_TTL.as_secs() * 1000)
            .arg(fencing_tokens)
    }

    pub(super) fn withdrawing(&self, hold: &Hold) -> Call<'_> {
        let key = &hold.key;
        self.withdraw
            .on(&[key, &helper::queue(key), &helper::waiters(key)])
            .arg(hold.token.as_bytes())
    }

    pub(super) fn inspecting(&self, key: &[u8]) -> Call<'_> {
        self.inspect.on(&[key, &helper::counter(key), &helper::waiters(key)])
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
        // Room for the digest, the keys and some short arguments.
        let room = 64 + keys.iter().map(|key| key.len()).sum::<usize>() + 80;
        let mut command = Cmd::with_capacity(8, room);
        command.arg("EVALSHA").arg(&self.sha1).arg(keys.len()).arg(keys);
        Call {
            script: self,
            keys: keys.len(),
            command,
        }
    }
}

/// A script with its keys and arguments.
pub(super) struct Call<'a> {
    script: &'a Script,
    keys: usize,
    /// By the script's digest.
    command: Cmd,
}

impl Call<'_> {
    fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    pub(super) fn text(&self) -> &'static str {
        self.script.text
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        // They come after the command's name, the digest and their number.
        let arguments = self.command.args_iter().skip(3).take(self.keys);
        arguments.filter_map(|argument| match argument {
            Arg::Simple(key) => Some(key),
            _ => None,
        })
    }

    /// With the script's text, for a server that does not know it, or no longer. It does afterwards.
    fn in_full(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script.text);
        for argument in self.command.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                command.arg(argument);
            }
        }
        command
    }
}

/// Runs scripts in one round trip, or in two if the server has to be given their text. Returns an answer for each;
/// server errors are replies, but for those about permissions.
pub(super) fn run(
    connection: &mut Connection,
    calls: &[Call],
    deadline: Instant,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    connection.open(deadline)?;
    run_if_open(connection, calls, deadline)
}

/// As [`run`], but never on another connection than before.
pub(super) fn run_if_open(
    connection: &mut Connection,
    calls: &[Call],
    deadline: Instant,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    let mut replies = connection.exchange(calls.iter().map(|call| &call.command), deadline)?;
    let unknown: Vec<usize> = (0..replies.len())
        .filter(|&at| reply::is_unknown_script(&replies[at]))
        .collect();
    if !unknown.is_empty() {
        let commands: Vec<Cmd> = unknown.iter().map(|&at| calls[at].in_full()).collect();
        for (at, reply) in unknown.into_iter().zip(connection.exchange(&commands, deadline)?) {
            replies[at] = reply;
        }
    }
    let replies = calls.iter().zip(replies);
    Ok(replies.map(|(call, reply)| permission::checked(call, reply)).collect())
}

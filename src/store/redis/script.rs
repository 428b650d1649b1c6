//! The Lua scripts and how they are run.

use std::time::{Duration, Instant};

use redis::{Arg, Cmd, ToRedisArgs, Value};

use super::{connection::Connection, permission, reply};
use crate::store::{Ask, AskSeveral, Failure, Hold, KEPT, Kind, Resource, Sequel, Spent, millis_rounded_up};

pub(super) struct Scripts {
    lock: Kit,
    semaphore: Kit,
    acquire_several: Script,
    set_limit: Script,
    /// How long the mark of a release stays. It has to outlive the repetition of a release whose answer was lost, which
    /// ends within two command timeouts.
    mark_ttl: Duration,
}

/// What can be done with a resource of one kind.
struct Kit {
    acquire: Script,
    renew: Script,
    release: Script,
    turn: Script,
    withdraw: Script,
    inspect: Script,
}

/// The text of a script: what every one begins with, the kind of slot that it is for, if it is for one, and itself.
macro_rules! text {
    ($($part:literal),+) => {
        concat!(
            include_str!("../scripts/base.lua"), "\n",
            $(include_str!(concat!("../scripts/", $part)), "\n"),+
        )
    };
}

macro_rules! kit {
    ($slot:literal) => {
        Kit {
            acquire: Script::new(text!($slot, "queue.lua", "acquire.lua")),
            renew: Script::new(text!($slot, "renew.lua")),
            release: Script::new(text!($slot, "queue.lua", "release.lua")),
            turn: Script::new(text!($slot, "queue.lua", "turn.lua")),
            withdraw: Script::new(text!($slot, "queue.lua", "withdraw.lua")),
            inspect: Script::new(text!($slot, "inspect.lua")),
        }
    };
}

/// The helper keys of a resource.
mod helper {
    use crate::{keys, store::Resource};

    pub(super) fn counter(resource: &Resource) -> Vec<u8> {
        keys::helper("fencing", &resource.key)
    }

    pub(super) fn marks(resource: &Resource) -> Vec<u8> {
        keys::helper("released", &resource.key)
    }

    pub(super) fn queue(resource: &Resource) -> Vec<u8> {
        keys::helper("queue", &resource.key)
    }

    pub(super) fn waiters(resource: &Resource) -> Vec<u8> {
        keys::helper("waiters", &resource.key)
    }

    pub(super) fn limit(resource: &Resource) -> Vec<u8> {
        keys::helper("limit", &resource.key)
    }
}

impl Scripts {
    pub(super) fn new(command_timeout: Duration) -> Self {
        Self {
            lock: kit!("lock.lua"),
            semaphore: kit!("semaphore.lua"),
            acquire_several: Script::new(text!("acquire_several.lua")),
            set_limit: Script::new(text!("semaphore.lua", "queue.lua", "set_limit.lua")),
            mark_ttl: (command_timeout * 3).max(Duration::from_secs(1)),
        }
    }

    /// What the server is given to run.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<&'static str> {
        let kits = [&self.lock, &self.semaphore].into_iter();
        let scripts = kits.flat_map(|kit| {
            [
                &kit.acquire,
                &kit.renew,
                &kit.release,
                &kit.turn,
                &kit.withdraw,
                &kit.inspect,
            ]
        });
        let others = [&self.acquire_several, &self.set_limit];
        scripts.chain(others).map(|script| script.text).collect()
    }

    fn kit(&self, resource: &Resource) -> &Kit {
        match resource.kind {
            Kind::Lock => &self.lock,
            Kind::Semaphore { .. } => &self.semaphore,
        }
    }

    pub(super) fn acquiring(&self, ask: &Ask) -> Call<'_> {
        let resource = &ask.hold.resource;
        let acquire = &self.kit(resource).acquire;
        let counter = helper::counter(resource);
        let waits = ask.fair || ask.asked_for_place || ask.place.is_some();
        // A lock that is free is so because nobody waits: those who do are looked at only by those who would.
        let call = if waits || !resource.is_exclusive() {
            acquire.on(
                resource,
                &[&counter, &helper::queue(resource), &helper::waiters(resource)],
            )
        } else {
            acquire.on(resource, &[&counter])
        };
        let call = call
            .arg(ask.hold.token.as_bytes())
            .arg(millis_rounded_up(ask.lease))
            .arg(KEPT.as_millis() as u64)
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

    pub(super) fn acquiring_several(&self, ask: &AskSeveral) -> Call<'_> {
        let keys = 2 * ask.holds.len();
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.acquire_several.sha1).arg(keys);
        for Hold { resource, .. } in ask.holds {
            command.arg(&*resource.key).arg(helper::counter(resource));
        }
        command
            .arg(millis_rounded_up(ask.lease))
            .arg(KEPT.as_millis() as u64)
            .arg(u8::from(ask.all_or_none));
        for Hold { token, .. } in ask.holds {
            command.arg(token.as_bytes());
        }
        Call {
            script: &self.acquire_several,
            keys,
            command,
        }
    }

    pub(super) fn renewing(&self, hold: &Hold, lease: Duration) -> Call<'_> {
        self.kit(&hold.resource)
            .renew
            .on(&hold.resource, &[])
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

    fn release_of(&self, Hold { resource, token }: &Hold) -> Call<'_> {
        let (marks, queue, waiters) = (
            helper::marks(resource),
            helper::queue(resource),
            helper::waiters(resource),
        );
        self.kit(resource)
            .release
            .on(resource, &[&marks, &queue, &waiters])
            .arg(token.as_bytes())
    }

    pub(super) fn turning(&self, spent: &Spent, sequel: &Sequel) -> Call<'_> {
        let Hold { resource, token } = spent.hold;
        let (marks, queue, waiters) = (
            helper::marks(resource),
            helper::queue(resource),
            helper::waiters(resource),
        );
        self.kit(resource)
            .turn
            .on(resource, &[&marks, &queue, &waiters, &helper::counter(resource)])
            .arg(token.as_bytes())
            .arg(spent.fencing_token)
            .arg(self.mark_ttl.as_millis() as u64)
            .arg(millis_rounded_up(sequel.lease))
            .arg(KEPT.as_millis() as u64)
            .arg(sequel.fencing_tokens)
            .arg(sequel.heir.as_bytes())
            .arg(u8::from(sequel.insists))
            .arg(u8::from(sequel.heir_leaves))
    }

    pub(super) fn withdrawing(&self, Hold { resource, token }: &Hold) -> Call<'_> {
        self.kit(resource)
            .withdraw
            .on(resource, &[&helper::queue(resource), &helper::waiters(resource)])
            .arg(token.as_bytes())
    }

    pub(super) fn inspecting(&self, resource: &Resource) -> Call<'_> {
        self.kit(resource)
            .inspect
            .on(resource, &[&helper::counter(resource), &helper::waiters(resource)])
    }

    pub(super) fn setting_limit(&self, resource: &Resource, limit: u32) -> Call<'_> {
        self.set_limit
            .on(resource, &[&helper::queue(resource), &helper::waiters(resource)])
            .arg(limit)
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

    /// A call of the script on `resource` and these helper keys; the arguments follow those that every script for such
    /// a resource begins with.
    fn on(&self, resource: &Resource, helpers: &[&[u8]]) -> Call<'_> {
        // Room for the digest, the keys and some short arguments.
        let room = 64 + helpers.iter().map(|key| key.len()).sum::<usize>() + 2 * resource.key.len() + 80;
        let mut command = Cmd::with_capacity(12, room);
        let own_keys = if resource.is_exclusive() { 1 } else { 2 };
        let keys = own_keys + helpers.len();
        command.arg("EVALSHA").arg(&self.sha1).arg(keys).arg(&*resource.key);
        if !resource.is_exclusive() {
            command.arg(helper::limit(resource));
        }
        command.arg(helpers);
        if let Kind::Semaphore { limit, permits } = resource.kind {
            command.arg(limit).arg(permits).arg(KEPT.as_millis() as u64);
        }
        Call {
            script: self,
            keys,
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

//! The Lua scripts: which one does what, on which keys and with which arguments.

use std::{iter, time::Duration};

use redis::{Arg, Cmd, ToRedisArgs};

pub(in crate::store) use self::run::run_on_all;
pub(super) use self::run::{run, run_if_open};
use crate::{
    keys,
    store::{Ask, AskSeveral, Chore, Hold, KEPT, Kind, Replicas, Resource, Sequel, Spent, millis_rounded_up},
};

pub(in crate::store) struct Scripts {
    lock: Kit,
    semaphore: Kit,
    acquire_several: Script,
    set_limit: Script,
    quorum: quorum::Kit,
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

/// How `base.lua` says that a script runs on one server, and how it is to say that it runs in a cluster.
const ON_ONE_SERVER: &str = "local in_cluster = false\n";
const IN_CLUSTER: &str = "local in_cluster = true\n";

/// The text of a script: what every one begins with, the kind of slot that it is for, if it is for one, and itself.
macro_rules! text {
    ($($part:literal),+) => { text!(@ "base.lua" $(, $part)+) };
    (@ $($part:literal),+) => {
        concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/scripts/", $part)), "\n"),+)
    };
}

// They use it.
mod quorum;
mod run;

macro_rules! kit {
    ($slot:literal, $in_cluster:expr) => {
        Kit {
            acquire: Script::new(text!($slot, "queue.lua", "acquire.lua"), $in_cluster),
            renew: Script::new(text!($slot, "renew.lua"), $in_cluster),
            release: Script::new(text!($slot, "queue.lua", "release.lua"), $in_cluster).behind_barrier(),
            turn: Script::new(text!($slot, "queue.lua", "turn.lua"), $in_cluster).behind_barrier(),
            withdraw: Script::new(text!($slot, "queue.lua", "withdraw.lua"), $in_cluster).behind_barrier(),
            inspect: Script::new(text!($slot, "inspect.lua"), $in_cluster),
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

    pub(super) fn barrier(resource: &Resource) -> Vec<u8> {
        keys::helper(keys::BARRIER, &resource.key)
    }
}

impl Scripts {
    pub(in crate::store) fn new(command_timeout: Duration, in_cluster: bool) -> Self {
        let set_limit = Script::new(text!("semaphore.lua", "queue.lua", "set_limit.lua"), in_cluster);
        Self {
            lock: kit!("lock.lua", in_cluster),
            semaphore: kit!("semaphore.lua", in_cluster),
            acquire_several: Script::new(text!("acquire_several.lua"), in_cluster),
            set_limit: set_limit.behind_barrier(),
            quorum: quorum::Kit::new(),
            mark_ttl: (command_timeout * 3).max(Duration::from_secs(1)),
        }
    }

    /// What the server is given to run.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<&str> {
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
        let others = [&self.acquire_several, &self.set_limit].into_iter();
        let others = others.chain(self.quorum.scripts());
        scripts.chain(others).map(|script| &script.text[..]).collect()
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

    /// What a chore of the background work asks for.
    pub(super) fn doing(&self, chore: &Chore) -> Call<'_> {
        match chore {
            Chore::Renew(hold, lease, replicas) => self.renewing(hold, *lease, *replicas),
            Chore::Evict(hold) => self.evicting(hold),
            Chore::Withdraw(hold) => self.withdrawing(hold),
        }
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
            asking: false,
        }
    }

    /// One that these replicas are to confirm writes in any case: see the script.
    pub(in crate::store) fn renewing(&self, hold: &Hold, lease: Duration, replicas: Option<Replicas>) -> Call<'_> {
        let renew = &self.kit(&hold.resource).renew;
        Self::to_renew(renew.on(&hold.resource, &[]), hold, lease, replicas)
    }

    /// As [`renewing`](Self::renewing), but the limit of a semaphore is left alone: while a cluster moves their slot,
    /// they may be at two nodes.
    pub(super) fn renewing_alone(&self, hold: &Hold, lease: Duration, replicas: Option<Replicas>) -> Call<'_> {
        let renew = &self.kit(&hold.resource).renew;
        Self::to_renew(renew.on_keys(&hold.resource, iter::empty()), hold, lease, replicas)
    }

    fn to_renew<'a>(call: Call<'a>, hold: &Hold, lease: Duration, replicas: Option<Replicas>) -> Call<'a> {
        let call = call.arg(hold.token.as_bytes()).arg(millis_rounded_up(lease));
        if replicas.is_some() { call.arg(1) } else { call }
    }

    /// The holder's own release, which leaves a mark.
    pub(in crate::store) fn releasing(&self, spent: &Spent, repeated: bool) -> Call<'_> {
        self.release_of(spent.hold)
            .arg(spent.fencing_token)
            .arg(self.mark_ttl.as_millis() as u64)
            .arg(u8::from(repeated))
    }

    /// Without a mark: the holder's own release must not be told that it succeeded, nor lose its mark to this one.
    pub(in crate::store) fn evicting(&self, hold: &Hold) -> Call<'_> {
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

    pub(in crate::store) fn inspecting(&self, resource: &Resource) -> Call<'_> {
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
    text: String,
    sha1: String,
    in_cluster: bool,
    /// Whether it may touch a key after it has deleted it.
    behind_barrier: bool,
}

impl Script {
    fn new(text: &str, in_cluster: bool) -> Self {
        let text = match in_cluster {
            true => text.replacen(ON_ONE_SERVER, IN_CLUSTER, 1),
            false => text.to_owned(),
        };
        Self {
            sha1: redis::Script::new(&text).get_hash().to_owned(),
            text,
            in_cluster,
            behind_barrier: false,
        }
    }

    /// Keeps it from running while its slot is being moved: it would be stopped halfway when it touches a key that it
    /// has deleted.
    fn behind_barrier(self) -> Self {
        let behind_barrier = true;
        Self { behind_barrier, ..self }
    }

    /// A call of the script on `resource` and these helper keys; the arguments follow those that every script for such
    /// a resource begins with.
    fn on(&self, resource: &Resource, helpers: &[&[u8]]) -> Call<'_> {
        let limit = (!resource.is_exclusive()).then(|| helper::limit(resource));
        let barrier = (self.in_cluster && self.behind_barrier).then(|| helper::barrier(resource));
        let others = limit.iter().map(|key| &key[..]);
        let others = others.chain(helpers.iter().copied());
        self.on_keys(resource, others.chain(barrier.iter().map(|key| &key[..])))
    }

    /// A call of the script on the main key of `resource` and, after it, those.
    fn on_keys<'k>(&self, resource: &Resource, others: impl Iterator<Item = &'k [u8]> + Clone) -> Call<'_> {
        let keys = 1 + others.clone().count();
        // Room for the digest, the keys and some short arguments.
        let room = 64 + others.clone().map(|key| key.len()).sum::<usize>() + resource.key.len() + 80;
        let mut command = Cmd::with_capacity(12, room);
        command.arg("EVALSHA").arg(&self.sha1).arg(keys).arg(&*resource.key);
        for key in others {
            command.arg(key);
        }
        if let Kind::Semaphore { limit, permits } = resource.kind {
            command.arg(limit).arg(permits).arg(KEPT.as_millis() as u64);
        }
        Call {
            script: self,
            keys,
            command,
            asking: false,
        }
    }
}

/// A script with its keys and arguments.
pub(in crate::store) struct Call<'a> {
    script: &'a Script,
    keys: usize,
    /// By the script's digest.
    command: Cmd,
    /// Whether it goes to a node of a cluster that was named by an ASK.
    asking: bool,
}

impl Call<'_> {
    fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    pub(super) fn text(&self) -> &str {
        &self.script.text
    }

    /// The slot of its keys in a cluster.
    pub(super) fn slot(&self) -> u16 {
        self.keys().next().map_or(0, keys::slot)
    }

    /// Sets whether it goes to a node that was named by an ASK.
    pub(super) fn set_asking(&mut self, asking: bool) {
        self.asking = asking;
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
        command.arg(&self.script.text);
        for argument in self.command.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                command.arg(argument);
            }
        }
        command
    }
}
